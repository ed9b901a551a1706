//! Programs without PyTorch: JAX, CuPy and Numba as far as they load the shared CUDA runtime, and libraries that do not.
//!
//! Their environments are large: `cargo xtask venv --frameworks` makes them. Without one its test says that it is
//! skipped.

use std::collections::BTreeMap;

use radrm_preload_tests::{
    artifacts, programs,
    python::{framework, interpreter, script},
};
use serde_json::Value;

use super::harness::{DryRun, dry_run, dry_run_with, plain_dry_run, python};

fn bytes(run: &DryRun, which: &str) -> u64 {
    let figure = &run.report["dry_run"]["gpus"][0]["phases"]["whole"][which];
    figure.as_u64().unwrap_or_else(|| panic!("{which} in {:#}", run.report["dry_run"]))
}

/// Number in the last line that a program prints.
fn printed(run: &DryRun) -> Option<u64> {
    run.ended.stdout.lines().last()?.trim().parse().ok()
}

#[test]
fn jax_tells_its_allocators_figures() {
    let Some(python) = framework("venv-jax") else { return };
    let run = dry_run(&python, &["--emulate", "A100-40GB"], &[&script("dry_run_jax.py"), "2"]).ok();
    let told = &run.report["dry_run"];
    assert_eq!(told["withheld"], Value::Null, "{told:#}");
    assert_eq!(told["missing"], Value::Array(Vec::new()));
    assert_eq!(Some(bytes(&run, "allocated")), printed(&run), "the program sees the same");
    // The two gibibytes, and the little that is alive beside them.
    assert!((2 << 30..(2 << 30) + (64 << 20)).contains(&bytes(&run, "allocated")), "{told:#}");
    assert!(bytes(&run, "reserved") >= bytes(&run, "allocated"));
    assert!(told["fits"].as_array().is_some_and(|cards| !cards.is_empty()));
    run.leaves_nothing();
    let again = dry_run(&python, &["--emulate", "A100-40GB"], &[&script("dry_run_jax.py"), "2"]).ok();
    // Its threads free in another order each time: a few small arrays more or less are alive at the peak.
    assert!(bytes(&again, "allocated").abs_diff(bytes(&run, "allocated")) < 1 << 20);
}

#[test]
fn jax_runs_out_of_memory_with_its_own_message() {
    let Some(python) = framework("venv-jax") else { return };
    let run = dry_run(&python, &["--emulate", "T4"], &[&script("dry_run_jax.py"), "16"]);
    assert_eq!(run.ended.status.code(), Some(1), "{}", run.ended.stderr);
    assert!(run.ended.stderr.contains("RESOURCE_EXHAUSTED"), "{}", run.ended.stderr);
    run.leaves_nothing();
}

/// Output of a program on its lines, "LINE BYTES" each.
fn said(run: &DryRun) -> BTreeMap<u64, u64> {
    let mut lines = BTreeMap::<u64, u64>::new();
    for line in run.ended.stdout.lines() {
        let (line, bytes) = line.split_once(' ').expect("line and bytes");
        *lines.entry(line.parse().expect("line")).or_default() += bytes.parse::<u64>().expect("bytes");
    }
    lines
}

/// JAX keeps no history, so the figures are of a moment at which it was read, and are not said to be of the peak.
#[test]
fn arrays_of_jax_are_at_their_lines() {
    let Some(python) = framework("venv-jax") else { return };
    let options = ["--emulate", "A100-40GB", "--stacks=tensors"];
    let run = dry_run(&python, &options, &[&script("sites_jax.py")]).ok();
    let of = &run.report["tensors"][0];
    assert_eq!(of["missing"], Value::Null, "{of:#}");
    assert!(of["framework"].as_str().is_some_and(|name| name.starts_with("JAX 0.")), "{of:#}");
    assert!(of["remarks"][0].as_str().is_some_and(|why| why.contains("no history")), "{of:#}");
    let gpu = &of["gpus"][0];
    assert_eq!(gpu["moment"], "largest_read", "what is held at the end is less: {gpu:#}");
    let line = |of: &Value| {
        let site = of["site"].as_str()?.strip_suffix(')')?;
        Some((site.rsplit_once("sites_jax.py:")?.1.parse().ok()?, of["bytes"].as_u64()?))
    };
    let lines = gpu["lines"].as_array().expect("lines");
    let mut said = said(&run);
    let in_use = said.remove(&0);
    assert_eq!(lines.iter().filter_map(line).collect::<BTreeMap<_, _>>(), said, "{gpu:#}");
    let of_category = |wanted: &str| {
        let categories = gpu["categories"].as_array()?;
        categories.iter().find(|of| of["category"] == wanted)?["bytes"].as_u64()
    };
    assert_eq!(of_category("arrays"), Some(said.values().sum()), "{gpu:#}");
    let allocated = gpu["allocated_bytes"].as_u64().expect("bytes");
    for list in ["categories", "modules", "lines"] {
        let bytes = |of: &Value| of["bytes"].as_u64().expect("bytes");
        assert_eq!(gpu[list].as_array().expect("a list").iter().map(bytes).sum::<u64>(), allocated, "{list}");
    }
    assert_eq!(Some(allocated), in_use, "what the allocator rounds up is unknown, and part of the sum");
    let peak = gpu["peak_bytes"].as_u64().expect("the allocator's own peak");
    assert!(peak >= allocated && peak == bytes(&run, "allocated"), "{peak} of {allocated}");
    run.leaves_nothing();
}

/// A program that computes on the processor must not be told to need no GPU memory.
#[test]
fn jax_on_the_processor_gets_no_figure() {
    let Some(python) = framework("venv-jax") else { return };
    // The plugin is there, and its GPU is not.
    let code = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''\n\
                import jax; print(jax.numpy.ones(4).sum())\n";
    let run = dry_run(&python, &[], &["-c", code]).ok();
    let why = &run.report["dry_run"]["withheld"];
    assert!(why.as_str().is_some_and(|why| why.contains("JAX computed on the processor")), "{why}");
}

#[test]
fn cupy_tells_its_pools_figures() {
    let Some(python) = framework("venv-cupy") else { return };
    let run = dry_run(&python, &[], &[&script("dry_run_cupy.py")]).ok();
    let told = &run.report["dry_run"];
    assert_eq!(told["withheld"], Value::Null, "{told:#}");
    assert_eq!(Some(bytes(&run, "reserved")), printed(&run), "the program sees the same");
    assert_eq!(bytes(&run, "allocated"), 3 * (64 << 20), "three matrices at a time");
    run.leaves_nothing();
}

#[test]
fn arrays_and_textures_of_the_runtime_keep_what_they_were_given() {
    let program = programs::compile("runtime_arrays.c", &["-ldl"]);
    for runtime in ["libcudart.so.12", "libcudart.so.13"] {
        let run = dry_run_with(&program, &[], &[("RADRM_EMULATOR_BACKED", "1")], &[runtime]).ok();
        assert_eq!(run.ended.stdout.trim(), "good", "{runtime}");
        run.leaves_nothing();
    }
}

/// Memory that the pool keeps stands at the line that made it grow, not at one of CuPy's own, compiled code.
#[test]
fn lines_that_grow_the_pool_of_cupy_hold_what_it_took() {
    let Some(python) = framework("venv-cupy") else { return };
    let run = dry_run(&python, &["--stacks"], &[&script("sites_cupy.py")]).ok();
    let stacks = &run.report["stacks"][0];
    let line = |site: &Value| {
        let frames = site["stack"].as_array()?.iter().rev();
        let line = frames
            .filter_map(Value::as_str)
            .find_map(|frame| frame.rsplit_once("(sites_cupy.py:")?.1.strip_suffix(')')?.parse::<u64>().ok());
        // The line to look at first is that line too.
        let first = format!("(sites_cupy.py:{})", line?);
        assert!(site["site"].as_str().is_some_and(|name| name.ends_with(&first)), "{site:#}");
        line
    };
    let mut found = BTreeMap::<u64, u64>::new();
    for site in stacks["sites"].as_array().unwrap_or_else(|| panic!("sites in {:#}", run.report)) {
        *found.entry(line(site).unwrap_or(0)).or_default() += site["peak_bytes"].as_u64().expect("bytes");
    }
    found.retain(|_, bytes| *bytes > 0);
    assert_eq!(found, said(&run), "{stacks:#}");
    run.leaves_nothing();
}

/// NVIDIA's runtime is in that library as in the wheels that bring it linked in: it finds no device, and the
/// report names who asked.
#[test]
fn a_runtime_that_is_linked_into_a_library_gets_no_figure() {
    let Some(python) = python() else { return };
    let packages = artifacts::workspace().join("target/venv/lib");
    let archive = std::fs::read_dir(packages).into_iter().flatten().flatten().find_map(|version| {
        let file = version.path().join("site-packages/nvidia/cu13/lib/libcudart_static.a");
        file.exists().then_some(file)
    });
    let Some(archive) = archive else {
        eprintln!("skipped: there is no runtime to link (cargo xtask venv)");
        return;
    };
    let library =
        programs::compile("linked_runtime.c", &["-shared", "-fPIC", &archive.to_string_lossy(), "-lrt"]);
    let code = format!(
        "import ctypes, torch\n\
         torch.ones(1 << 20, device='cuda')\n\
         print(ctypes.CDLL({:?}).take_a_mebibyte())\n",
        library
    );
    let run = dry_run(&python, &[], &["-c", &code]).ok();
    assert_ne!(printed(&run), Some(0), "it must not work");
    let told = &run.report["dry_run"];
    let name = library.file_name().expect("name").to_string_lossy().into_owned();
    let why = told["withheld"].as_str().unwrap_or_default();
    assert!(why.starts_with(&name) && why.contains("runtime linked into it"), "{told:#}");
    assert_eq!(told["gpus"], Value::Null, "{told:#}");
}

/// Six arrays of 256 MiB; a kernel, which NVIDIA's compiler and linker make, reads one and writes another.
const NUMBA: &str = "import numpy
from numba import cuda
@cuda.jit
def add(a, b):
    i = cuda.grid(1)
    if i < b.size:
        b[i] = a[i] + 1
a = cuda.device_array(1 << 26, dtype=numpy.float32)
kept = [cuda.device_array_like(a) for _ in range(5)]
add[1 << 18, 256](a, kept[0])
cuda.synchronize()
print('ran')
";

#[test]
fn numba_has_the_figures_of_the_driver() {
    let Some(python) = interpreter() else { return };
    let run = plain_dry_run(&python, &["--emulate", "A10"], &["-c", NUMBA]).ok();
    assert_eq!(run.ended.stdout, "ran\n");
    let found = &run.report["dry_run"];
    assert!(found["withheld"].is_null(), "{found:#}");
    let requested = found["gpus"][0]["requested_peak"].as_u64();
    assert!(requested >= Some((6 * 256) << 20), "{found:#}");
}
