//! Programs without PyTorch: JAX and CuPy as far as they load the shared CUDA runtime, and libraries that do not.
//!
//! Their environments are large: `cargo xtask venv --frameworks` makes them. Without one its test says that it is
//! skipped.

use std::path::PathBuf;

use radrm_preload_tests::{artifacts, programs, python::script};
use serde_json::Value;

use super::harness::{DryRun, dry_run, python};

fn python_of(folder: &str) -> Option<PathBuf> {
    let python = artifacts::workspace().join("target").join(folder).join("bin/python3");
    if python.exists() {
        return Some(python);
    }
    eprintln!("skipped: {} is not there (cargo xtask venv --frameworks)", python.display());
    None
}

fn bytes(run: &DryRun, which: &str) -> u64 {
    let figure = &run.report["dry_run"]["gpus"][0]["phases"]["whole"][which];
    figure.as_u64().unwrap_or_else(|| panic!("{which} in {:#}", run.report["dry_run"]))
}

/// What a program prints last.
fn printed(run: &DryRun) -> Option<u64> {
    run.ended.stdout.lines().last()?.trim().parse().ok()
}

#[test]
fn jax_tells_its_allocators_figures() {
    let Some(python) = python_of("venv-jax") else { return };
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
    let Some(python) = python_of("venv-jax") else { return };
    let run = dry_run(&python, &["--emulate", "T4"], &[&script("dry_run_jax.py"), "16"]);
    assert_eq!(run.ended.status.code(), Some(1), "{}", run.ended.stderr);
    assert!(run.ended.stderr.contains("RESOURCE_EXHAUSTED"), "{}", run.ended.stderr);
    run.leaves_nothing();
}

/// A program that computes on the processor must not be told to need no GPU memory.
#[test]
fn jax_on_the_processor_gets_no_figure() {
    let Some(python) = python_of("venv-jax") else { return };
    // The plugin is there, and its GPU is not.
    let code = "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''\n\
                import jax; print(jax.numpy.ones(4).sum())\n";
    let run = dry_run(&python, &[], &["-c", code]).ok();
    let why = &run.report["dry_run"]["withheld"];
    assert!(why.as_str().is_some_and(|why| why.contains("JAX computed on the processor")), "{why}");
}

#[test]
fn cupy_tells_its_pools_figures() {
    let Some(python) = python_of("venv-cupy") else { return };
    let run = dry_run(&python, &[], &[&script("dry_run_cupy.py")]).ok();
    let told = &run.report["dry_run"];
    assert_eq!(told["withheld"], Value::Null, "{told:#}");
    assert_eq!(Some(bytes(&run, "reserved")), printed(&run), "the program sees the same");
    assert_eq!(bytes(&run, "allocated"), 3 * (64 << 20), "three matrices at a time");
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
