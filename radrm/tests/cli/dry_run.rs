//! Dry runs of programs without a framework. The libraries must be built (`cargo build --workspace`).

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use crate::common::{Place, finish, until, wait};
use serde_json::Value;

/// Takes `sys.argv[1]` of 1/16 GiB of device memory, then keeps the host busy for `sys.argv[2]` seconds.
const TAKES: &str = cuda_program!(
    r#"block = ctypes.c_uint64()
call('cuMemAlloc_v2', ctypes.byref(block), ctypes.c_size_t(int(sys.argv[1]) << 26))
end = time.time() + float(sys.argv[2])
while time.time() < end: pass
"#
);

/// Output of `--find-batch` for a program, a sentence a line.
fn found(words: &[&str], code: i32) -> String {
    let place = Place::new();
    let output = finish(place.run(&["--dry-run", "--emulate", "T4", "--find-batch"]).args(words));
    output.code(code);
    output.stderr
}

#[test]
fn a_program_that_never_uses_the_gpu_has_no_largest_batch() {
    let said = found(&["--bs", "--", "true"], 1);
    assert_eq!(
        said,
        "radrm-run: --bs 1: unknown (the program took no GPU memory)\n\
         radrm-run: the largest --bs that fits is unknown: with 1 the program took no GPU memory\n"
    );
}

#[test]
fn the_largest_batch_is_told_from_the_end_of_the_range() {
    // A T4 has 15 GiB, less the context.
    let program = ["--", "python3", "-c", TAKES, "n=1", "0"];
    let script = TAKES.replace("sys.argv[1]", "sys.argv[1][2:]");
    let with = |range: &str, code| {
        let mut words = vec![range];
        words.extend(program);
        words[4] = &script;
        found(&words, code)
    };
    let most = with("n=100..1000", 0);
    assert!(most.contains("radrm-run: the largest n that fits is 1"), "{most}");
    assert!(with("n=7..9", 0).contains("n 9 fits, where the range ends"));
    assert!(with("n=999..1000", 1).contains("not even n 999 fits"));
}

/// Only the driver counts what is refused to a program without a framework.
#[test]
fn a_program_whose_first_request_is_refused_fits_nowhere() {
    let place = Place::new();
    let words =
        ["--dry-run", "--emulate", "T4", "--json=report.json", "--", "python3", "-c", TAKES, "999", "0"];
    assert_ne!(finish(&mut place.run(&words)).status.code(), Some(0));
    let report: Value = serde_json::from_slice(&std::fs::read(place.join("report.json")).unwrap()).unwrap();
    let told = &report["dry_run"];
    assert_eq!((&told["out_of_memory"], &told["fits"]), (&1.into(), &Value::Array(Vec::new())), "{told:#}");
}

/// Says that it is there, and waits.
const WAITS: &str = "import os, sys, time
if sys.argv[1] == 'deaf':
    import signal
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with open('new', 'w') as file:
    file.write(str(os.getpid()))
os.rename('new', 'there')
time.sleep(600)
";

/// A place in which what is temporary has a folder of its own, and a command there that signals can be sent to.
fn with_folder(options: &[&str], program: &[&str]) -> (Place, Command) {
    let place = Place::new();
    std::fs::create_dir(place.join("tmp")).unwrap();
    let mut command = place.run(&["--dry-run", "--write-files", "--quiet", "--no-profile", "--no-dataset"]);
    command.args(options).arg("--").args(program).env("TMPDIR", place.join("tmp")).process_group(0);
    (place, command)
}

fn is_empty(folder: &std::path::Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_search_that_is_told_to_end_ends_with_its_program_and_leaves_nothing() {
    // Whether the whole group gets it, and what the program makes of it.
    for (signal, group, program) in [
        (libc::SIGTERM, false, ""),
        (libc::SIGINT, false, ""),
        (libc::SIGINT, true, ""),
        (libc::SIGTERM, false, "deaf"),
    ] {
        let (place, mut command) =
            with_folder(&["--find-batch", "n=1..4"], &["python3", "-c", WAITS, program]);
        let mut child = command.spawn().unwrap();
        let there = until("the program", || std::fs::read_to_string(place.join("there")).ok());
        let to = if group { -child.id().cast_signed() } else { child.id().cast_signed() };
        // SAFETY: a signal to a process, or to the group of one, that this test started.
        assert_eq!(unsafe { libc::kill(to, signal) }, 0);
        assert_eq!(wait(&mut child).signal(), Some(signal), "{group} {program:?}");
        assert!(!std::path::Path::new("/proc").join(there).exists(), "the program goes on");
        assert!(is_empty(&place.join("tmp")), "something is left");
    }
}

/// One that is pending since before the start is the earliest that there can be.
#[test]
fn a_signal_that_comes_before_the_program_is_there_leaves_nothing() {
    let (place, mut command) = with_folder(&[], &["python3", "-c", WAITS, ""]);
    let pending = || {
        // SAFETY: plain system calls on the set that lives here and on this process.
        unsafe {
            let mut only: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut only, libc::SIGTERM);
            libc::sigprocmask(libc::SIG_BLOCK, &only, std::ptr::null_mut());
            libc::raise(libc::SIGTERM);
        }
        Ok(())
    };
    // SAFETY: nothing but system calls between fork and exec.
    let mut child = unsafe { command.pre_exec(pending) }.spawn().unwrap();
    let ended = until("an end or the program", || {
        child.try_wait().unwrap().map(Some).or_else(|| place.join("there").exists().then_some(None))
    });
    if ended.is_none() {
        child.kill().unwrap();
        wait(&mut child);
    }
    assert_eq!(ended.and_then(|status| status.signal()), Some(libc::SIGTERM));
    assert!(is_empty(&place.join("tmp")), "something is left");
}

/// It computes nothing: neither is it busy, nor does it take power, nor does anything limit it.
#[test]
fn a_dry_run_has_no_load_no_power_and_no_limits() {
    let place = Place::new();
    let run =
        finish(&mut place.run(&["--dry-run", "--emulate", "H200", "--", "python3", "-c", TAKES, "1", "1.2"]));
    run.code(0);
    let profile = place.profiles().remove(0);
    let full = finish(&mut place.command(env!("CARGO_BIN_EXE_radrm"), &["report", &profile, "--full"]));
    let full = String::from_utf8_lossy(&full.stdout).into_owned();
    for word in ["\n  load ", "power", "limits", "not measured\n"] {
        assert!(!run.stderr.contains(word) && !full.contains(word), "{word:?} in {full}");
    }
    assert!(full.contains("peak device memory    64.0 MiB"), "{full}");
    let report = finish(&mut place.command(env!("CARGO_BIN_EXE_radrm"), &["report", &profile, "--json"]));
    let summary: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((&summary["gpu_clock"], &summary["limits"]["limit"]), (&"absent".into(), &"unknown".into()));
    assert!(summary["gpus"][0]["load"].is_null(), "{summary}");
}
