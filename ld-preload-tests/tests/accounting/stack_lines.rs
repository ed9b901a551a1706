//! Programs of known lines in several languages: every byte at the peak is at the line that asked for it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use radrm_preload_tests::{
    artifacts,
    child::Ended,
    programs,
    python::{self, script},
    rig::Rig,
};

use super::stacks::{folded, recorded, total};

/// Versions of Python whose frames are read.
const VERSIONS: [&str; 6] = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"];

/// Output of a program on its requests, "LINE BYTES" each, by line.
fn said(ended: &Ended) -> BTreeMap<u64, u64> {
    let mut lines = BTreeMap::<u64, u64>::new();
    for line in ended.stdout.lines() {
        let (line, bytes) = line.split_once(' ').expect("line and bytes");
        *lines.entry(line.parse().expect("line")).or_default() += bytes.parse::<u64>().expect("bytes");
    }
    assert!(!lines.is_empty(), "{ended:?}");
    lines
}

/// Bytes of stacks by the innermost line of a file; those that have none are at line 0.
fn found(stacks: &[(Vec<String>, u64)], file: &str) -> BTreeMap<u64, u64> {
    let start = format!("({file}:");
    let line = |frame: &String| frame.rsplit_once(&start)?.1.strip_suffix(')')?.parse::<u64>().ok();
    let mut lines = BTreeMap::new();
    for (frames, bytes) in stacks {
        *lines.entry(frames.iter().rev().find_map(line).unwrap_or(0)).or_default() += bytes;
    }
    lines
}

/// Runs a program, compares its lines with the stacks and these with the peak; gives the stacks.
#[track_caller]
fn check(program: &Path, arguments: &[&str], file: &str) -> Vec<(Vec<String>, u64)> {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, program, arguments);
    let stacks = folded(&rig);
    assert_eq!(found(&stacks, file), said(&outcome.ended), "{}: {stacks:#?}", program.display());
    assert_eq!(total(&stacks), outcome.profile.processes[0].state.accounts[0].peak.0);
    stacks
}

/// Pythons of this machine, one of each version: those of `RADRM_TEST_PYTHONS`, of pyenv, of `target/pythons`, and the
/// system's.
fn interpreters() -> Vec<(&'static str, PathBuf)> {
    let named = std::env::var_os("RADRM_TEST_PYTHONS");
    let mut all: Vec<PathBuf> = named.iter().flat_map(std::env::split_paths).collect();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv"));
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from).or(home).unwrap_or_default();
    for folder in [pyenv.join("versions"), artifacts::workspace().join("target/pythons")] {
        let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
        all.extend(found.map(|entry| entry.path().join("bin/python3")));
    }
    let system = |version| ["/usr/bin", "/usr/local/bin"].map(|at| format!("{at}/python{version}").into());
    all.extend(VERSIONS.iter().flat_map(system));
    let version = |python: &PathBuf| {
        let code = "import sys; print('%d.%d' % sys.version_info[:2])";
        let output = Command::new(python).args(["-c", code]).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let all: Vec<(String, PathBuf)> =
        all.into_iter().filter_map(|python| Some((version(&python)?, python))).collect();
    let of = |wanted: &'static str| {
        let python = all.iter().find(|(version, _)| version == wanted);
        if python.is_none() {
            eprintln!("skipped: there is no Python {wanted} (RADRM_TEST_PYTHONS names some)");
        }
        Some((wanted, python?.1.clone()))
    };
    VERSIONS.into_iter().filter_map(of).collect()
}

#[test]
fn python_lines_hold_what_they_asked_for_in_every_version() {
    for (version, python) in interpreters() {
        let stacks = check(&python, &[&script("sites.py")], "sites.py");
        let depth =
            |frames: &[String]| frames.iter().filter(|frame| frame.contains("forward (sites.py:")).count();
        let deepest = stacks.iter().map(|(frames, _)| depth(frames)).max();
        assert_eq!(deepest, Some(91), "{version}: {stacks:#?}");
        for number in 1..4 {
            let made = format!("made{number} (made_{number}.py:{})", 1000 * number + 1);
            assert!(
                stacks.iter().any(|(frames, _)| frames.contains(&made)),
                "{version}, {made}: {stacks:#?}"
            );
        }
        // Frames of a generator and of a coroutine stand inside those that wait for them.
        for chain in [&["through", "through", "batches"][..], &["awaited", "awaited", "awaited", "awaited"]] {
            let is_chain = |frames: &[String]| {
                let names: Vec<&str> = frames.iter().filter_map(|frame| frame.split(' ').next()).collect();
                names.ends_with(chain)
            };
            assert!(stacks.iter().any(|(frames, _)| is_chain(frames)), "{version}, {chain:?}: {stacks:#?}");
        }
        println!("Python {version}: {} stacks, {} bytes", stacks.len(), total(&stacks));
    }
}

/// 128 functions are kept; a stack of as many has no mark, a deeper one has it at its outer end.
#[test]
fn python_stacks_that_are_too_deep_say_so() {
    const PROGRAM: &str = "\
import ctypes
cuda = ctypes.CDLL('libcuda.so.1')
cuda.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
device, context = ctypes.c_int(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def down(left, bytes):
    if left:
        down(left - 1, bytes)
    else:
        assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), bytes) == 0
for functions, bytes in ((127, 1 << 20), (128, 2 << 20), (300, 3 << 20), (200, 4 << 20)):
    down(functions - 1, bytes)
";
    let folder = tempfile::tempdir().expect("folder");
    let program = folder.path().join("deep.py");
    std::fs::write(&program, PROGRAM).expect("program");
    for (version, python) in interpreters() {
        let rig = Rig::emulated("H100-80GB");
        recorded(&rig, &python, &[program.to_str().expect("path")]);
        let stacks = folded(&rig);
        // What is kept of the deeper ones is the same.
        for (bytes, is_cut) in [(1u64 << 20, false), (9 << 20, true)] {
            let (frames, _) = stacks.iter().find(|(_, found)| *found == bytes).expect("a stack");
            let mark = frames.iter().position(|frame| frame == "[outer Python frames not known]");
            let functions =
                frames.iter().filter(|frame| frame.ends_with(".py:10)") || frame.ends_with(".py:12)"));
            // The module's own function is the 128th of the first.
            assert_eq!(functions.count(), if is_cut { 128 } else { 127 }, "{version}: {frames:?}");
            assert_eq!(mark.is_some(), is_cut, "{version}, {bytes}: {frames:?}");
            let whole = frames.iter().any(|frame| frame.starts_with("<module> (deep.py"));
            assert_eq!(whole, !is_cut, "{version}, {bytes}: {frames:?}");
        }
    }
}

#[test]
fn lines_of_cpp_hold_what_they_asked_for() {
    for flags in [&["-O2"][..], &["-O0"], &["-O3", "-fomit-frame-pointer"]] {
        let stacks =
            check(&programs::compile("sites.cpp", &[flags, &["-lstdc++"]].concat()), &[], "sites.cpp");
        for part in
            ["Early::Early", "Layer<17>::Layer", "Layer<19>::Layer", "Attention::forward", "Guard::~Guard"]
        {
            let is_there = stacks.iter().any(|(frames, _)| frames.iter().any(|frame| frame.contains(part)));
            assert!(is_there, "{part} with {flags:?}: {stacks:#?}");
        }
        let depth = |frames: &[String]| frames.iter().filter(|f| f.contains("Attention::forward")).count();
        assert_eq!(stacks.iter().map(|(frames, _)| depth(frames)).max(), Some(91), "{flags:?}: {stacks:#?}");
    }
}

#[test]
fn lines_with_arrays_of_numba_hold_what_they_asked_for() {
    let Some(python) = python::interpreter() else { return };
    let stacks = check(&python, &[&script("sites_numba.py")], "sites_numba.py");
    let depth = |frames: &[String]| frames.iter().filter(|f| f.contains("forward (sites_numba.py:")).count();
    assert_eq!(stacks.iter().map(|(frames, _)| depth(frames)).max(), Some(91), "{stacks:#?}");
}

/// The line to look at first is the program's, although the package's own debug information is nearer.
#[test]
fn compiled_code_of_a_package_is_not_taken_for_the_programs_line() {
    let compiled = programs::compile("pool.c", &["-shared", "-fPIC"]);
    for (folder, expected) in
        [("lib/site-packages/pool", "step (train.py:4)"), ("own", "pool_take (memory.pyx:43)")]
    {
        let place = tempfile::tempdir().expect("folder");
        let package = place.path().join(folder);
        std::fs::create_dir_all(&package).expect("package");
        let module = package.join("memory.so");
        std::fs::copy(&compiled, &module).expect("module");
        let program = place.path().join("train.py");
        let code = "import ctypes, sys\npool = ctypes.CDLL(sys.argv[1])\ndef step():\n    pool.pool_take(1 << 20)\nstep()\n";
        std::fs::write(&program, code).expect("program");
        let rig = Rig::emulated("H100-80GB");
        let arguments = [&program, &module].map(|path| path.to_str().expect("path"));
        recorded(&rig, Path::new("python3"), &arguments);
        let json: serde_json::Value = serde_json::from_str(&rig.report(&["--json"]).stdout).expect("JSON");
        let sites = &json["stacks"][0]["sites"];
        assert_eq!(sites[0]["site"], expected, "{sites:#}");
        let stack = sites[0]["stack"].to_string();
        assert!(stack.contains("memory.pyx:43") && stack.contains("train.py:4"), "{stack}");
    }
}
