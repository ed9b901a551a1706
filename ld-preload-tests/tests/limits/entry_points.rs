//! Effect of a quota at every entry point, and what it leaves alone.
//!
//! Contexts take nothing on the cards of these tests unless one says so: the quota is then used by what
//! programs ask for, to the byte.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use radrm_preload_tests::{
    artifacts,
    child::{self, Ended, Running},
    programs,
    rig::{PATIENCE, Rig},
};
use radrm_telemetry::ledger::{Amount, LedgerView, Limit, Place};

const MIB: u64 = 1 << 20;

/// Cards of 1 GiB on which contexts take `context` MiB.
fn rig_of(cards: u32, context: u64, limit: &str) -> (Rig, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("directory");
    let spec = directory.path().join("machine.toml");
    let text = format!(
        "[[gpu]]\nmodel = \"H100-80GB\"\ncount = {cards}\nmemory_mib = 1024\ncontext_mib = {context}\n"
    );
    fs::write(&spec, text).expect("description");
    (Rig::emulated(spec.to_str().expect("text")).limited(limit), directory)
}

/// A card on which a job may take 64 MiB.
fn rig() -> (Rig, tempfile::TempDir) {
    rig_of(1, 0, "64MiB")
}

fn steps(rig: &Rig, steps: &[&str]) -> Command {
    let mut command = rig.command(programs::compile("steps.c", &[]));
    command.args(steps);
    command
}

/// Runs steps in the rig's job.
#[track_caller]
fn run(rig: &Rig, list: &[&str]) -> Ended {
    child::run(steps(rig, list), PATIENCE).ok()
}

/// Runs steps by every way into the driver. At the end everything is given back, so that the program is
/// told that the whole quota is free.
#[track_caller]
fn holds(list: &[&str]) {
    for (flags, route) in [(&[][..], "dlsym"), (&[][..], "proc"), (programs::LINKED, "")] {
        let (rig, _directory) = rig();
        let mut command = rig.command(programs::compile("steps.c", flags));
        command.arg("use:0").args(list).arg("info").env("ROUTE", route);
        let ended = child::run(command, PATIENCE).ok();
        assert_eq!(ended.stdout, format!("info {0} {0}\n", 64 * MIB), "{list:?} {flags:?} {route}");
        for gpu in rig.ledgers().iter().flat_map(|b| &b.gpus) {
            assert_eq!(gpu.failed, 0, "the card itself was never full");
            let peak = gpu.total_requested_peak;
            assert!(peak <= 64 * MIB, "{peak} bytes were held for a moment");
        }
    }
}

fn view(rig: &Rig) -> LedgerView {
    LedgerView::open(Path::new(&rig.segment()), Place::Segment).expect("the job's ledger")
}

#[test]
fn plain_memory_is_refused_from_the_first_byte_above_the_quota() {
    holds(&[
        "alloc:a:40m",
        "!alloc:b:25165825",
        "alloc:b:24m",
        "!alloc:c:1",
        "free:a",
        "alloc:c:40m",
        "free:b",
        "free:c",
    ]);
}

#[test]
fn pitched_memory_is_charged_by_the_pitch_that_the_driver_chose() {
    // 1000 bytes a row are 1024 in memory.
    holds(&[
        "pitch:a:1000:32768",
        "pitch:b:1000:32768",
        "!alloc:c:1",
        "free:a",
        "alloc:c:32m",
        "free:b",
        "free:c",
    ]);
}

#[test]
fn quota_counts_pitched_memory_as_the_driver_takes_it() {
    let (rig, _directory) = rig();
    // 2048 rows of one byte, 512 apart.
    let list = ["use:0", "pitch:a:1:2048", "info", "pause", "free:a", "pause"];
    let mut running = Running::start(steps(&rig, &list), PATIENCE);
    assert_eq!(running.line().trim_end(), format!("info {} {}", 63 * MIB, 64 * MIB));
    for bytes in [MIB, 0] {
        running.until_ready();
        let held = rig.ledgers().iter().flat_map(|b| &b.gpus).map(|gpu| gpu.total_requested_now).sum::<u64>();
        assert_eq!((view(&rig).gpus()[0].used, held), (bytes, bytes), "in the quota, at the driver");
        running.go_on();
    }
    running.end().ok();
}

#[test]
fn what_the_driver_refuses_is_given_back() {
    // The quota has room, the card of 1 GiB has not.
    let (rig, _directory) = rig_of(1, 0, "2GiB");
    let list = [
        "use:0",
        "alloc:a:900m",
        "20x:!alloc:b:500m",
        "20x:!create:b:500m:0",
        "20x:!async:b:500m",
        "20x:!managed:b:2g",
        "20x:!array:b:8192:8192",
        "20x:!pitch:b:1024:512000",
        "alloc:b:100m",
        "free:a",
        "free:b",
    ];
    let mut running = Running::start(steps(&rig, &[&list[..], &["pause"]].concat()), PATIENCE);
    running.until_ready();
    assert_eq!(view(&rig).gpus()[0].used, 0);
    running.go_on();
    running.end().ok();
}

#[test]
fn managed_memory_counts_in_full() {
    holds(&["managed:a:60m", "!managed:b:5m", "!alloc:b:5m", "free:a", "managed:b:64m", "free:b"]);
}

#[test]
fn pinned_host_memory_does_not_count() {
    holds(&["hostalloc:a:100m", "alloc:b:64m", "createhost:c:100m", "freehost:a", "free:b", "release:c"]);
}

#[test]
fn arrays_and_mipmaps_count_before_they_are_made() {
    // 1024 x 1024 elements of 16 bytes: 16 MiB each.
    holds(&[
        "array:a:1024:1024",
        "array:b:1024:1024",
        "array:c:1024:1024",
        "array:d:1024:1024",
        "!array:e:64:64",
        "freearray:a",
        "mipmap:e:1024:1024:11",
        "!array3d:f:512:512:64",
        "freearray:b",
        "freearray:c",
        "freearray:d",
        "freemipmap:e",
    ]);
}

#[test]
fn case_07_vmm_counts_physical_memory_not_addresses() {
    holds(&[
        "reserve:v:900m",
        "create:a:40m:0",
        "map:v:a:40m",
        "thread:create.b.24m.0",
        "!create:c:2m:0",
        "thread:!create.c.2m.0",
        "release:a",
        "!create:c:2m:0",
        "unmap:v:40m",
        "create:c:40m:0",
        "release:b",
        "release:c",
        "unreserve:v:900m",
    ]);
}

#[test]
fn case_08_pools_grow_inside_the_quota_and_their_slack_can_be_used() {
    holds(&[
        // A pool takes 32 MiB at a time.
        "async:a:20m",
        "async:b:10m",
        "async:c:20m",
        "async:d:10m",
        "!async:e:20m",
        "!alloc:e:2m",
        // What the pool holds and does not use serves it again...
        "freeasync:a",
        "async:a:20m",
        // ...and is given back before anybody else is refused.
        "freeasync:a",
        "freeasync:b",
        "free:c",
        "freeasync:d",
        "alloc:e:40m",
        "free:e",
    ]);
}

#[test]
fn case_08_a_pool_that_cannot_grow_leaks_nothing() {
    holds(&[
        "alloc:a:40m",
        "100x:!async:b:30m",
        "free:a",
        "async:b:30m",
        "100x:!async:c:40m",
        "freeasync:b",
        "sync",
    ]);
}

#[test]
fn a_pool_of_the_programs_own_counts_like_the_default_one() {
    holds(&[
        "pool:p:0",
        "frompool:a:p:30m",
        "frompool:b:p:30m",
        "!frompool:c:p:30m",
        "freeasync:a",
        "freeasync:b",
        "sync",
        "freepool:p",
    ]);
}

#[test]
fn graphs_that_allocate_are_refused_at_launch() {
    holds(&[
        "memgraph:g:40m",
        "alloc:a:30m",
        "!launchgraph:g",
        "free:a",
        "launchgraph:g",
        "launchgraph:g",
        "!alloc:a:30m",
        "sync",
        "freegraph:g",
        "trimgraphs:0",
    ]);
}

#[test]
fn imported_memory_is_charged_once() {
    holds(&[
        "create:a:40m:0",
        "export:f:a",
        "import:b:f",
        "alloc:c:24m",
        "!alloc:d:1",
        "release:a",
        "release:b",
        "free:c",
    ]);
}

#[test]
fn memory_goes_with_its_context() {
    let (rig, _directory) = rig();
    let ended = run(
        &rig,
        &[
            "init",
            "context:c:0",
            "alloc:a:60m",
            "!alloc:b:5m",
            "destroy:c",
            "use:0",
            "alloc:b:64m",
            "free:b",
            "info",
        ],
    );
    assert_eq!(ended.stdout, format!("info {0} {0}\n", 64 * MIB));
}

#[test]
fn case_04_each_gpu_has_its_own_limit() {
    let (rig, _directory) = rig_of(2, 0, "0=64MiB,1=32MiB");
    run(&rig, &["use:1", "!alloc:a:33m", "alloc:a:32m", "use:0", "alloc:b:64m", "!alloc:c:1"]);
    // The device that the program sees as the first one is the machine's second.
    let mut command = steps(&rig, &["use:0", "!alloc:a:33m", "alloc:a:32m"]);
    command.env("CUDA_VISIBLE_DEVICES", "1");
    child::run(command, PATIENCE).ok();
}

#[test]
fn case_05_the_context_counts() {
    let (rig, _directory) = rig_of(1, 24, "64MiB");
    // The launcher measures what the driver took; the next request knows.
    let list = ["use:0", "alloc:a:2m", "sleep:1500", "alloc:b:2m", "!alloc:c:48m", "alloc:c:30m", "info"];
    let ended = run(&rig, &list);
    assert_eq!(ended.stdout, format!("info {} {}\n", (64 - 24 - 34) * MIB, 64 * MIB));
}

#[test]
fn case_05_a_measured_context_is_charged_from_the_next_start() {
    let (rig, _directory) = rig_of(1, 24, "64MiB");
    let mut first = Running::start(steps(&rig, &["use:0", "alloc:a:2m", "sleep:1500", "pause"]), PATIENCE);
    first.until_ready();
    // 24 + 2 MiB are taken, and 24 by this one's context.
    run(&rig, &["use:0", "!alloc:a:16m", "alloc:a:14m", "!alloc:b:1m"]);
    first.go_on();
    first.end().ok();
}

#[test]
fn case_09_the_switch_that_turns_the_shim_off_does() {
    let (rig, _directory) = rig();
    let mut command = steps(&rig, &["use:0", "alloc:a:100m"]);
    command.env("RADRM_DISABLE", "1");
    child::run(command, PATIENCE).ok();
}

/// Runs steps under the rig's launcher, which starts a line of words that leads to them.
#[track_caller]
fn run_behind(rig: &Rig, words: &[&str], list: &[&str]) {
    let mut command = rig.launched(words[0]);
    command.args(&words[1..]).arg(programs::compile("steps.c", &[])).args(list);
    child::run(command, PATIENCE).ok();
}

#[test]
fn quota_holds_without_a_usable_segment() {
    const REFUSED: &[&str] = &[
        "use:0",
        "!alloc:a:1m",
        "!create:a:2m:0",
        "!async:a:1m",
        "!managed:a:1m",
        "!array:a:64:64",
        "hostalloc:h:1m",
        "launch:2",
    ];
    let (rig, _directory) = rig();
    let long = format!("RADRM_SEGMENT=/{}", "x".repeat(5000));
    for words in [
        &["env", "-u", "RADRM_SEGMENT"][..],
        &["env", "RADRM_SEGMENT="],
        &["env", "RADRM_SEGMENT=nothing"],
        &["env", &long],
        &["env", "-u", "RADRM_SEGMENT", "-u", "RADRM_KERNELS", "sh", "-c", "\"$0\" \"$@\" & wait $!"],
    ] {
        run_behind(&rig, words, REFUSED);
    }
    // A launcher inside finds the job that it is in: it counts there.
    let launcher = artifacts::file("radrm-run").display().to_string();
    for lost in [&["env", "-u", "RADRM_SEGMENT"][..], &["env", "RADRM_SEGMENT="]] {
        let inner = [&launcher, "--quiet", "--no-dataset", "--no-profile", "--"];
        run_behind(&rig, &[lost, &inner].concat(), &["use:0", "alloc:a:64m", "!alloc:b:1m"]);
    }
    run_behind(&rig, &["env"], &["use:0", "alloc:a:64m", "!alloc:b:1m"]);
}

#[test]
fn case_09_graphs_and_peer_access_work_under_a_quota() {
    let (rig, _directory) = rig_of(2, 0, "64MiB");
    let list = [
        "use:0",
        "peer",
        "kernelgraph:g:20",
        "10x:launchgraph:g",
        "capture:s",
        "launchin:s:3",
        "asyncin:s:p:1m",
        "freeasyncin:s:p",
        "endcapture:s",
        "10x:launchgraph:s",
        "alloc:a:30m",
        "sync",
        "freegraph:g",
        "freegraph:s",
    ];
    let ended = run(&rig, &list);
    assert!(ended.stdout.starts_with("peer "), "{}", ended.stdout);
}

#[test]
fn case_13_children_by_fork_and_exec_share_the_quota() {
    let (rig, _directory) = rig();
    // A server that forks before it uses the GPU: eight workers, each wants a quarter and keeps it.
    let ended = child::run(steps(&rig, &["fork:8", "use:0", "alloc:a:16m", "sleep:1500"]), PATIENCE);
    assert_eq!(ended.status.code(), Some(45));
    assert_eq!(ended.stderr.matches("= 2").count(), 4, "{}", ended.stderr);
    // What a program becomes starts from nothing, and what it held is back.
    run(&rig, &["use:0", "alloc:a:60m", "exec", "use:0", "alloc:a:60m", "exec", "use:0", "alloc:a:64m"]);
    // A parent with a context and a child without: the child is refused nothing of its own.
    run(&rig, &["use:0", "alloc:a:10m", "free:a", "fork:2", "exit:0"]);
}

#[test]
fn case_14_an_unusable_segment_or_ledger_means_no_memory() {
    let (rig, _directory) = rig();
    let garbage = rig.path().join("garbage");
    fs::write(&garbage, vec![0x5a; 1 << 20]).expect("garbage");
    let closed = rig.path().join("closed");
    fs::write(&closed, b"").expect("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).expect("mode");
    for segment in [rig.path().join("nothing"), garbage.clone(), closed, "/dev/null".into()] {
        let list = [
            "use:0",
            "!alloc:a:1m",
            "!create:a:2m:0",
            "!async:a:1m",
            "!array:a:64:64",
            "hostalloc:h:1m",
            "launch:2",
        ];
        let mut command = steps(&rig, &list);
        command.env("RADRM_SEGMENT", &segment);
        child::run(command, PATIENCE).ok();
    }
    for ledger in [rig.path().join("nothing"), garbage] {
        let mut command = steps(&rig, &["use:0", "!alloc:a:1m", "launch:2"]);
        command.env("RADRM_LEDGERS", &ledger);
        child::run(command, PATIENCE).ok();
    }
    run(&rig, &["use:0", "alloc:a:64m"]);
}

#[test]
fn case_15_a_limit_changes_while_the_program_runs() {
    let (rig, _directory) = rig();
    let list = [
        "use:0",
        "alloc:a:40m",
        "pause",
        "!alloc:b:8m",
        "info",
        "free:a",
        "alloc:b:8m",
        "pause",
        "alloc:c:100m",
        "info",
    ];
    let mut running = Running::start(steps(&rig, &list), PATIENCE);
    running.until_ready();
    let view = view(&rig);
    let set = |amount| assert!(view.set_limit(&Limit { gpu: None, amount: Amount::Bytes(amount) }));
    // Below what is in use: nothing is taken away, nothing more is given.
    set(20 * MIB);
    assert_eq!(view.gpus()[0].used, 40 * MIB);
    running.go_on();
    running.until_ready_after(&format!("info 0 {}", 20 * MIB));
    set(200 * MIB);
    running.go_on();
    let ended = running.end().ok();
    assert_eq!(ended.stdout, format!("info {} {}\n", (200 - 108) * MIB, 200 * MIB));
}

#[test]
fn case_17_over_the_quota_is_out_of_memory_and_nothing_else_happens() {
    let (rig, _directory) = rig();
    // Refused a thousand times, the program goes on, and so does its neighbour in the job.
    let neighbour = {
        let mut running =
            Running::start(steps(&rig, &["use:0", "alloc:a:20m", "pause", "launch:10", "free:a"]), PATIENCE);
        running.until_ready();
        running
    };
    run(&rig, &["use:0", "alloc:a:40m", "1000x:!alloc:b:5m", "launch:10", "alloc:b:4m", "free:a", "free:b"]);
    let mut neighbour = neighbour;
    neighbour.go_on();
    neighbour.end().ok();
    assert_eq!(view(&rig).gpus()[0].refused, 1000);
}

#[test]
fn case_21_without_its_launcher_the_quota_still_holds() {
    let (mut rig, _directory) = rig();
    let mut running = Running::start(
        steps(&rig, &["use:0", "alloc:a:40m", "pause", "!alloc:b:30m", "alloc:b:24m"]),
        PATIENCE,
    );
    running.until_ready();
    // A child that starts later joins as well: the segment stays as long as a process of the job lives.
    let later = steps(&rig, &["use:0", "!alloc:a:30m", "alloc:a:10m"]);
    rig.kill_launcher();
    child::run(later, PATIENCE).ok();
    running.go_on();
    running.end().ok();
}

#[test]
fn a_member_that_ends_normally_gives_its_share_back() {
    let (rig, _directory) = rig();
    for _ in 0..5 {
        run(&rig, &["use:0", "alloc:a:64m"]);
    }
    let members = view(&rig).members();
    assert!(members.is_empty(), "{members:?}");
    assert_eq!(view(&rig).gpus()[0].used, 0);
}
