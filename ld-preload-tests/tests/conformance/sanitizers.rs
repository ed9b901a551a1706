//! Programs built with a sanitizer start and run as without the shim, are counted, and are limited.

use std::{path::PathBuf, process::Command};

use radrm_preload_tests::{
    child::{self, Ended},
    programs,
    rig::{PATIENCE, Rig},
};

/// A compiler, and its flags for a sanitizer.
type Kind = (&'static str, &'static [&'static str]);

const ADDRESS: &str = "-fsanitize=address";
/// A program whose options are its own.
const OWN_OPTIONS: &str = "-DOWN_OPTIONS";

const KINDS: &[Kind] = &[
    ("gcc", &[ADDRESS]),
    ("gcc", &[ADDRESS, "-static-libasan"]),
    ("gcc", &[ADDRESS, OWN_OPTIONS]),
    ("gcc", &["-fsanitize=thread"]),
    ("gcc", &["-fsanitize=undefined"]),
    ("gcc", &["-fsanitize=leak"]),
    ("clang", &[ADDRESS]),
    ("clang", &[ADDRESS, "-shared-libasan"]),
    ("clang", &["-fsanitize=thread"]),
    ("clang", &["-fsanitize=undefined"]),
    ("clang", &["-fsanitize=leak"]),
];

/// Compiles a program so; `None`: this machine lacks the compiler or the sanitizer's runtime.
fn compiled(source: &str, (compiler, flags): Kind) -> Option<PathBuf> {
    let mut flags = flags.to_vec();
    let mut path = String::new();
    if flags.contains(&"-shared-libasan") {
        // Clang gives the program no path to its shared runtime.
        let asked = Command::new(compiler).arg("-print-file-name=libclang_rt.asan-x86_64.so").output();
        let file = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        path = file.map(|file| format!("-Wl,-rpath,{}", file.rsplit_once('/').unwrap_or_default().0)).ok()?;
    }
    if !path.is_empty() {
        flags.push(&path);
    }
    let made = programs::try_compile_by(compiler, source, &flags);
    made.map_err(|error| eprintln!("skipped: {compiler} {flags:?}: {error}")).ok()
}

/// The program without a shim; `None`: the runtime does not work on this machine.
fn bare(rig: &Rig, program: &PathBuf) -> Option<Ended> {
    let ended = child::run(rig.bare_command(program), PATIENCE);
    if ended.status.code() != Some(3) {
        eprintln!("skipped: {} does not run here: {ended:?}", program.display());
        return None;
    }
    Some(ended)
}

#[track_caller]
fn assert_same(ended: &Ended, bare: &Ended, what: &str) {
    let of = |ended: &Ended| (ended.status.code(), ended.stdout.clone(), ended.stderr.clone());
    assert_eq!(of(ended), of(bare), "{what}");
}

#[test]
fn sanitized_programs_run_as_without_the_shim() {
    for limit in [None, Some("1GiB")] {
        let rig = Rig::emulated("1xA100-40GB");
        let rig = if let Some(limit) = limit { rig.limited(limit) } else { rig };
        for kind in KINDS {
            let Some(program) = compiled("sanitized.c", *kind) else { continue };
            let Some(bare) = bare(&rig, &program) else { continue };
            let what = format!("{kind:?}, limit {limit:?}");
            assert_same(&child::run(rig.launched(&program), PATIENCE), &bare, &what);
            if kind.1.contains(&OWN_OPTIONS) {
                continue;
            }
            // A child that radrm-run does not see, also one whose parent sets options for it.
            for script in ["\"$0\"; exit $?", "ASAN_OPTIONS=detect_leaks=0 \"$0\"; exit $?"] {
                let mut command = rig.launched("/bin/sh");
                command.args(["-c", script]).arg(&program);
                assert_same(&child::run(command, PATIENCE), &bare, &format!("{what}, {script}"));
            }
        }
    }
}

#[test]
fn sanitized_programs_are_counted_and_limited() {
    let directory = tempfile::tempdir().expect("directory");
    let spec = directory.path().join("machine.toml");
    let text = "[[gpu]]\nmodel = \"H100-80GB\"\nmemory_mib = 1024\ncontext_mib = 0\n";
    std::fs::write(&spec, text).expect("description");
    let sanitizers = KINDS.iter().filter(|kind| !kind.1.contains(&OWN_OPTIONS));
    for kind in sanitizers {
        let rig = Rig::emulated(spec.to_str().expect("text")).limited("64MiB");
        let Some(program) = compiled("sanitized.c", *kind) else { continue };
        let Some(steps) = bare(&rig, &program).and_then(|_| compiled("steps.c", *kind)) else { continue };
        let mut command = rig.launched("/bin/sh");
        command.args(["-c", "\"$0\" use:0 alloc:a:60m free:a alloc:a:64m '!alloc:b:1m'; exit $?"]).arg(steps);
        // The emulated driver keeps what it has for the process.
        command.env("ASAN_OPTIONS", "detect_leaks=0").env("LSAN_OPTIONS", "detect_leaks=0");
        let outcome = rig.outcome(child::run(command, PATIENCE).ok());
        assert_eq!((outcome.peaks_mib(), outcome.profile.processes.len()), (vec![64], 1), "{kind:?}");
    }
}

#[test]
fn errors_are_found_as_without_the_shim() {
    let rig = Rig::emulated("1xA100-40GB");
    for kind in KINDS.iter().filter(|kind| kind.1.contains(&ADDRESS)) {
        let Some(program) = compiled("sanitized.c", *kind) else { continue };
        if bare(&rig, &program).is_none() {
            continue;
        }
        let mut command = rig.launched(&program);
        command.args(["overflow"]);
        let ended = child::run(command, PATIENCE);
        assert_eq!(ended.status.code(), Some(1), "{kind:?}: {ended:?}");
        assert!(ended.stderr.contains("heap-buffer-overflow"), "{kind:?}: {ended:?}");
    }
}

#[test]
fn a_runtime_that_the_user_preloads_stays_in_front() {
    let rig = Rig::emulated("1xA100-40GB");
    let asked = Command::new("gcc").arg("-print-file-name=libasan.so").output();
    let runtime = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let Some(runtime) = runtime.ok().filter(|file| file.starts_with('/')) else {
        eprintln!("skipped: gcc's AddressSanitizer is not here");
        return;
    };
    for flags in [&[ADDRESS][..], &[ADDRESS, OWN_OPTIONS]] {
        let Some(program) = compiled("sanitized.c", ("gcc", flags)) else { continue };
        let Some(bare) = bare(&rig, &program) else { continue };
        let mut command = rig.launched(&program);
        command.env("LD_PRELOAD", &runtime);
        assert_same(&child::run(command, PATIENCE), &bare, "program");
        let mut command = rig.launched("/bin/sh");
        command.args(["-c", "\"$0\"; exit $?"]).arg(&program).env("LD_PRELOAD", &runtime);
        // What the shell itself leaks is not the question.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        assert_same(&child::run(command, PATIENCE), &bare, "child");
    }
}
