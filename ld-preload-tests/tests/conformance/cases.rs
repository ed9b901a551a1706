//! Cases that other shims get wrong, by their numbers in the project's list.

use std::{fs, os::unix::fs::PermissionsExt};

use radrm_emulator_machine::{Charge, MachineSpec};
use radrm_preload_tests::{
    artifacts,
    child::{self, Running},
    figures::Outcome,
    programs,
    rig::{PATIENCE, Rig},
};
use radrm_profile::model::Kind;

const MIB: u64 = 1 << 20;

#[track_caller]
fn steps(rig: &Rig, steps: &[&str]) -> Outcome {
    rig.run(programs::compile("steps.c", &[]), steps).ok()
}

#[test]
fn case_02_300_processes_at_once_are_all_in_the_report() {
    let mut rig = Rig::emulated("1xH200");
    let program = programs::compile("exits_at_once.c", &[]);
    let started: Vec<Running> = (0..300_u32)
        .map(|i| {
            let mut command = rig.command(&program);
            command.arg((i % 50 + 1).to_string());
            Running::start(command, 120)
        })
        .collect();
    let pids: Vec<u32> = started.iter().map(Running::pid).collect();
    for running in started {
        running.end().ok();
    }
    let outcome = rig.end_session();
    assert_eq!(outcome.assert_equals_ledger(), 300);
    for (i, pid) in pids.iter().enumerate() {
        let process =
            outcome.profile.processes.iter().find(|p| p.identity.pid == *pid).expect("in the report");
        assert_eq!(process.state.accounts[0].peak.0, (i as u64 % 50 + 1) * MIB);
    }
}

#[test]
fn case_02_a_job_of_more_processes_than_the_segment_has_slots_for() {
    // 1,024 slots; 1,500 processes, 30 at a time.
    let mut rig = Rig::emulated("1xH200");
    let program = programs::compile("exits_at_once.c", &[]);
    for _ in 0..50 {
        let batch: Vec<Running> = (0..30)
            .map(|_| {
                let mut command = rig.command(&program);
                command.arg("3");
                Running::start(command, PATIENCE)
            })
            .collect();
        for running in batch {
            running.end().ok();
        }
    }
    let outcome = rig.end_session();
    let kept = outcome.profile.processes.iter().filter(|p| !p.state.accounts.is_empty());
    assert!(kept.clone().all(|p| p.state.accounts[0].peak.0 == 3 * MIB));
    assert_eq!(kept.count() as u64 + outcome.profile.processes_not_kept, 1500);
}

/// GPU numbers of the machine on which memory was held.
fn charged(outcome: &Outcome) -> Vec<usize> {
    (0..4).filter(|g| outcome.account_of(outcome.process(), *g).is_some_and(|a| a.peak.0 > 0)).collect()
}

#[test]
fn case_04_cuda_visible_devices_charges_the_right_gpu() {
    let spec = MachineSpec::parse("4xH200").expect("machine");
    let uuid = format!("GPU-{}", spec.uuid_text(1).trim_start_matches("GPU-"));
    for (visible, device, gpu) in [
        ("2,3", "0", 2),
        ("3,1", "1", 1),
        ("3,1", "0", 3),
        (uuid.as_str(), "0", 1),
        (&format!("3,{uuid}"), "1", 1),
    ] {
        let rig = Rig::emulated("4xH200");
        let mut command = rig.launched(programs::compile("steps.c", &[]));
        let create = format!("create:b:2m:{device}");
        command
            .args([&format!("use:{device}"), "alloc:a:5m", &create, "async:c:1m"])
            .env("CUDA_VISIBLE_DEVICES", visible);
        let outcome = rig.outcome(child::run(command, PATIENCE)).ok();
        outcome.assert_equals_ledger();
        assert_eq!(charged(&outcome), [gpu], "CUDA_VISIBLE_DEVICES={visible}, device {device}");
    }
}

#[test]
fn case_05_the_sum_agrees_with_nvml_context_included() {
    let mut rig = Rig::emulated("1xA100-40GB");
    let mut command = rig.command(programs::compile("steps.c", &[]));
    command.args([
        "use:0",
        "alloc:a:3g",
        "async:b:500m",
        "create:c:200m:0",
        "array:d:4096:4096",
        "load",
        "pause",
    ]);
    let mut running = Running::start(command, PATIENCE);
    let pid = running.until_ready();
    let used = child::run(rig.bare_command(programs::compile("nvml_used.c", &[])), PATIENCE).ok().stdout;
    let nvml: u64 = used
        .lines()
        .find_map(|l| l.strip_prefix(&format!("process {pid} ")))
        .and_then(|n| n.parse().ok())
        .unwrap_or_else(|| panic!("NVML does not know the process: {used}"));
    // The launcher looks again before the program ends.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    running.go_on();
    running.end().ok();
    let outcome = rig.end_session();
    outcome.assert_equals_ledger();
    // The report's sum is what was accounted plus what NVML sees beyond it, which has to be the
    // context: 2 % of the whole at most may be unexplained.
    let remainder = outcome.process().state.remainders.first().expect("NVML's figure beside ours");
    assert_eq!(remainder.nvml_peak.0, nvml);
    assert_eq!(remainder.accounted, outcome.account(0).now);
    let context = outcome.ledgers.iter().find(|b| b.pid == pid).and_then(|b| b.gpu(0)).expect("its ledger");
    let context = context.kind(Charge::Context).requested_peak;
    let sum = remainder.accounted.0 + context;
    assert!(context > 0 && sum.abs_diff(nvml) * 50 <= nvml, "accounted and context {sum}, NVML {nvml}");
    if let Some(overhead) = outcome.account(0).context_overhead {
        assert!(overhead.0.abs_diff(context) * 50 <= nvml, "measured {overhead:?}, ledger {context}");
    }
}

#[test]
fn case_06_no_figure_ever_underflows() {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("bad_frees.c", &[]), &[]).ok();
    outcome.assert_equals_ledger();
    for account in &outcome.process().state.accounts {
        assert!(account.now.0 <= account.peak.0);
        for page in account.kinds {
            assert!(page.now.0 <= page.peak.0 && page.peak.0 < 1 << 40, "{page:?}");
            assert!(page.frees <= page.allocations, "{page:?}");
        }
    }
    assert_eq!(outcome.account(0).now.0, MIB);
}

#[test]
fn case_09_the_kill_switch_really_turns_the_shim_off() {
    let rig = Rig::emulated("1xH200");
    let mut command = rig.launched(programs::compile("steps.c", &[]));
    command.args(["use:0", "alloc:a:5m", "launch:3"]).env("RADRM_DISABLE", "1");
    let outcome = rig.outcome(child::run(command, PATIENCE)).ok();
    assert!(outcome.profile.processes.is_empty(), "{:?}", outcome.profile.processes);
    assert_eq!(outcome.ledgers.len(), 1);
    // 0 and nothing mean: not off.
    for value in ["", "0"] {
        let rig = Rig::emulated("1xH200");
        let mut command = rig.launched(programs::compile("steps.c", &[]));
        command.args(["use:0", "alloc:a:5m"]).env("RADRM_DISABLE", value);
        let outcome = rig.outcome(child::run(command, PATIENCE)).ok();
        assert_eq!(outcome.assert_equals_ledger(), 1);
    }
}

#[test]
fn case_09_graphs_and_peer_access_keep_working() {
    let rig = Rig::emulated("2xH200");
    let outcome = steps(
        &rig,
        &[
            "use:0",
            "peer",
            "alloc:a:1m",
            "kernelgraph:g:3",
            "launchgraph:g",
            "sync",
            "launchgraph:g",
            "freegraph:g",
        ],
    );
    outcome.assert_equals_ledger();
    assert!(outcome.ended.stdout.contains("peer 1"), "{}", outcome.ended.stdout);
    assert_eq!(outcome.launches("nothing"), (0, 6));
}

#[test]
fn case_10_mem_get_info_with_a_null_pointer_does_what_the_driver_does() {
    let program = programs::compile("steps.c", &[]);
    let rig = Rig::emulated("1xH200");
    let mut bare = rig.bare_command(&program);
    bare.args(["use:0", "infonull", "info"]);
    let bare = child::run(bare, PATIENCE).ok().stdout;
    let rig = Rig::emulated("1xH200");
    let outcome = steps(&rig, &["use:0", "infonull", "info"]);
    assert_eq!(outcome.ended.stdout, bare);
    assert!(bare.contains("infonull"), "{bare}");
}

#[test]
fn case_20_a_capture_is_neither_broken_nor_counted_too_much() {
    let rig = Rig::emulated("1xH200");
    // 5 launches are recorded, not run; the graph is launched twice: 10 kernels. The allocation
    // in the capture is a node: nothing is held before the graph runs.
    let outcome = steps(
        &rig,
        &[
            "use:0",
            "load",
            "alloc:a:1m",
            "capture:s",
            "launchin:s:5",
            "asyncin:s:b:4m",
            "freeasyncin:s:b",
            "endcapture:s",
            "launchgraph:s",
            "sync",
            "launchgraph:s",
            "sync",
        ],
    );
    outcome.assert_equals_ledger();
    assert_eq!(outcome.launches("nothing"), (0, 10));
    assert_eq!(outcome.account(0).kinds[Kind::PoolUsed.index()].peak.0, 0);
    let counted: u64 = outcome.ledgers.iter().flat_map(|b| &b.gpus).map(|g| g.launches).sum();
    assert_eq!(counted, 10);
}

#[test]
fn case_21_without_a_usable_segment_the_program_runs_untouched() {
    let rig = Rig::emulated("1xH200");
    let garbage = rig.path().join("garbage");
    fs::write(&garbage, vec![0x5a; 1 << 20]).expect("garbage");
    let short = rig.path().join("short");
    fs::write(&short, b"RADRM").expect("short");
    let unreadable = rig.path().join("unreadable");
    fs::write(&unreadable, b"").expect("unreadable");
    fs::set_permissions(&unreadable, fs::Permissions::from_mode(0o0)).expect("mode");
    let program = programs::compile("steps.c", &[]);
    let arguments = ["use:0", "alloc:a:1m", "launch:2", "kernelgraph:g:2", "launchgraph:g", "free:a", "info"];
    let mut bare = rig.bare_command(&program);
    bare.args(arguments);
    let bare = child::run(bare, PATIENCE).ok();
    let segments = [
        None,
        Some("".into()),
        Some(rig.path().join("nothing")),
        Some(rig.path().to_owned()),
        Some("/dev/null".into()),
        Some("/proc/1/fd/999".into()),
        Some(garbage),
        Some(short),
        Some(unreadable),
    ];
    for segment in segments {
        let mut command = rig.bare_command(&program);
        command.args(arguments).env("LD_PRELOAD", artifacts::file("libradrm.so"));
        if let Some(segment) = &segment {
            command.env("RADRM_SEGMENT", segment);
        }
        let ended = child::run(command, PATIENCE).ok();
        assert_eq!((ended.stdout, ended.stderr), (bare.stdout.clone(), bare.stderr.clone()), "{segment:?}");
    }
}

#[test]
fn case_21_a_launcher_that_is_killed_leaves_the_program_running() {
    let mut rig = Rig::emulated("1xH200");
    let mut command = rig.command(programs::compile("steps.c", &[]));
    command.args(["use:0", "alloc:a:1m", "pause", "alloc:b:1m", "launch:100", "free:a", "info"]);
    let mut running = Running::start(command, PATIENCE);
    running.until_ready();
    rig.kill_launcher();
    running.go_on();
    assert!(running.end().ok().stdout.contains("info"));
}

#[test]
fn case_22_process_state_and_errno_are_untouched() {
    let program = programs::compile("surroundings.c", &[]);
    let mut rig = Rig::emulated("1xH200");
    let bare = child::run(rig.bare_command(&program), PATIENCE).ok();
    let shimmed = child::run(rig.command(&program), PATIENCE).ok();
    rig.end_session();
    for (bare, shimmed) in bare.stdout.lines().zip(shimmed.stdout.lines()) {
        assert_eq!(bare, shimmed);
    }
    assert_eq!((bare.stdout, bare.stderr), (shimmed.stdout, shimmed.stderr));
}

#[test]
fn case_23_deepbind_shows_as_a_remainder_against_nvml() {
    let mut rig = Rig::emulated("1xH200");
    let library = programs::compile("deepbind_library.c", &["-fPIC", "-shared", "-lcuda"]);
    let mut command = rig.command(programs::compile("deepbind.c", &[]));
    command.arg(library);
    let mut running = Running::start(command, PATIENCE);
    running.until_ready();
    std::thread::sleep(std::time::Duration::from_millis(2500));
    running.go_on();
    running.end().ok();
    let outcome = rig.end_session();
    // The shim cannot see it: the ledger knows 101 MiB, the account 1 MiB.
    assert_eq!(outcome.account(0).peak.0, MIB);
    assert_eq!(outcome.ledgers[0].gpus[0].kind(Kind::Device).requested_peak, 101 * MIB);
    let remainder = outcome.process().state.remainders.first().expect("a remainder");
    assert!(remainder.bytes() >= 100 * i128::from(MIB), "{remainder:?}");
}

#[test]
fn case_24_a_machine_with_unified_memory() {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("temporary file");
    fs::write(file.path(), "[[gpu]]\nmodel = \"H100-80GB\"\nname = \"NVIDIA GB10\"\nintegrated = true\n")
        .expect("toml");
    let rig = Rig::emulated(&file.path().display().to_string());
    let outcome = steps(
        &rig,
        &[
            "use:0",
            "alloc:a:5m",
            "managed:b:7m",
            "hostalloc:c:2m",
            "register:d:1m",
            "async:e:1m",
            "info",
            "launch:2",
        ],
    );
    outcome.assert_equals_ledger();
    assert_eq!(outcome.account(0).kinds[Kind::Device.index()].now.0, 5 * MIB);
    assert_eq!(outcome.account(0).kinds[Kind::Managed.index()].now.0, 7 * MIB);
}

/// Runs a program with the given library directory, whose `libradrm.so` is no good: the program runs
/// on, and the launcher says in one sentence why nothing is counted.
#[track_caller]
fn launcher_says_why(directory: &std::path::Path, why: &str) {
    let rig = Rig::instant();
    artifacts::file("libradrm.so");
    let mut command = rig.bare_command(artifacts::file("radrm-run"));
    command.args(["--no-dataset", "--no-profile", "--", "/bin/sh", "-c", "echo \"$LD_PRELOAD\"; exit 7"]);
    command.env("RADRM_LIB_DIR", directory);
    let ended = child::run(command, PATIENCE);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(7), "\n"), "{why}: {ended:?}");
    let sentence = ended.stderr.lines().next().unwrap_or("");
    assert!(
        sentence.starts_with("radrm-run: ") && sentence.contains("libradrm.so"),
        "{why}: {}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("ld.so"), "{why}: the loader had to say it: {}", ended.stderr);
}

#[test]
fn case_25_a_missing_or_wrong_preload_is_named() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let shim = directory.path().join("libradrm.so");
    launcher_says_why(directory.path(), "missing");
    fs::write(&shim, "no library\n").expect("text");
    launcher_says_why(directory.path(), "no library at all");
    let whole = fs::read(artifacts::file("libradrm.so")).expect("the shim");
    fs::write(&shim, &whole[..4096]).expect("short");
    launcher_says_why(directory.path(), "cut short");
    fs::write(&shim, &whole[..65536]).expect("beginning");
    launcher_says_why(directory.path(), "its beginning only");
    let mut other = whole.clone();
    other[18] = 0xb7; // e_machine: AArch64
    fs::write(&shim, other).expect("another machine's");
    launcher_says_why(directory.path(), "another machine's");
    fs::write(&shim, b"").expect("empty");
    launcher_says_why(directory.path(), "empty");
}

#[test]
fn case_25_a_static_program_is_named_as_out_of_reach() {
    let rig = Rig::emulated("1xH200");
    let Ok(program) = programs::try_compile("static.c", &["-static"]) else {
        eprintln!("skipped: no static libc on this machine");
        return;
    };
    // It would look for a real GPU in vain: said before it starts.
    let ended = child::run(rig.launched(&program), PATIENCE);
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains("statically linked"), "{ended:?}");
    // Without emulation it runs, unseen.
    let ended = child::run(Rig::instant().launched(&program), PATIENCE);
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(3), "static\n"), "{}", ended.stderr);
}
