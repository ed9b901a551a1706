//! The record of a refused request: its cause, and the memory holders at that moment.

use std::{fs, process::Command};

use radrm_preload_tests::{
    artifacts,
    child::{self, Running},
    programs,
    rig::{PATIENCE, Rig},
};
use radrm_profile::{
    Bytes,
    model::{
        Kind,
        postmortem::{Cause, Postmortem, QuotaUse, Scope},
    },
};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// GPUs of 4 GiB on which a context takes nothing, so that figures are round.
fn machine(gpus: u32) -> Rig {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("temporary file");
    let text =
        format!("[[gpu]]\nmodel = \"H100-80GB\"\ncount = {gpus}\nmemory_mib = 4096\ncontext_mib = 0\n");
    fs::write(file.path(), text).expect("toml");
    Rig::emulated(&file.path().display().to_string())
}

/// `steps.c` as a job of its own on the machine of `rig`, with the profile of this name.
fn job(rig: &Rig, profile: &str, options: &[&str], steps: &[&str]) -> Command {
    for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
        artifacts::file(library);
    }
    let mut command = rig.bare_command(artifacts::file("radrm-run"));
    command.env("RADRM_LIB_DIR", artifacts::directory()).env_remove("RADRM_EMULATED_MACHINE");
    command.args(["--no-dataset", "--wait-all", "-o"]).arg(rig.path().join(profile));
    command.arg("--machine").arg(rig.machine_path()).args(options);
    command.arg("--").arg(programs::compile("steps.c", &[])).args(steps);
    command
}

/// A job that stops at its first `pause`: its launcher and its process's id.
fn waiting(command: Command) -> (Running, u32) {
    let mut job = Running::start(command, PATIENCE);
    let pid = job.until_ready();
    (job, pid)
}

fn finish(mut job: Running) {
    job.go_on();
    job.end().ok();
}

/// Text and JSON of `radrm report --oom` about a profile.
fn told(rig: &Rig, profile: &str) -> (String, Value) {
    let radrm = |words: &[&str]| {
        let mut command = rig.bare_command(artifacts::file("radrm"));
        command.arg("report").arg(rig.path().join(profile)).args(words);
        child::run(command, PATIENCE).ok().stdout
    };
    (radrm(&["--oom"]), serde_json::from_str(&radrm(&["--oom", "--json"])).expect("JSON"))
}

/// The only post-mortem in a profile.
#[track_caller]
fn only(rig: &Rig, profile: &str) -> Postmortem {
    let profile = radrm_profile::Profile::open(&rig.path().join(profile)).expect("a profile");
    let [it] = &profile.postmortems[..] else { panic!("{:#?}", profile.postmortems) };
    it.clone()
}

fn kind(it: &[Bytes; 9], kind: Kind) -> u64 {
    it[kind.index()].0
}

#[test]
fn a_neighbour_in_another_job_that_fills_the_device_is_named() {
    let rig = machine(1);
    let (neighbour, pid) = waiting(job(&rig, "n.radrm", &[], &["use:0", "alloc:a:3g", "pause"]));
    let steps = ["use:0", "alloc:x:512m", "managed:y:64m", "hostalloc:h:32m", "toomuch:z:1g", "exit:1"];
    let ended = child::run(job(&rig, "p.radrm", &[], &steps), PATIENCE);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    finish(neighbour);

    let it = only(&rig, "p.radrm");
    assert!(it.is_complete && !it.is_latest);
    assert_eq!((it.cause, it.request.size), (Cause::Device, Bytes::from_gib(1)));
    let free = it.request.free.expect("what was free");
    assert!(free <= Bytes::from_mib(512), "{free}");
    assert_eq!(kind(&it.own, Kind::Device), 512 * MIB);
    assert_eq!((kind(&it.own, Kind::Managed), kind(&it.own, Kind::PinnedHost)), (64 * MIB, 32 * MIB));
    let blocks: Vec<_> = it.blocks.iter().map(|block| (block.size.0, block.kind)).collect();
    assert_eq!(blocks, [(512 * MIB, Kind::Device as u8), (64 * MIB, Kind::Managed as u8)]);
    assert!(it.blocks.iter().all(|block| block.since <= it.request.t && block.since.0 > 0));

    let (text, json) = told(&rig, "p.radrm");
    let it = &json["postmortems"][0];
    assert_eq!((it["cause"].as_str(), it["is_first"].as_bool()), (Some("device"), Some(true)));
    let list = it["nvml"]["processes"].as_array().expect("NVML's list");
    let found = list.iter().find(|process| process["pid"].as_u64() == Some(pid.into())).expect("neighbour");
    assert_eq!(found["used_bytes"].as_u64(), Some(3 << 30));
    assert_eq!(found["is_of_job"].as_bool(), Some(false));
    assert_eq!(it["nvml"]["others_bytes"].as_u64(), Some(3 << 30));
    assert!(text.contains("refused by      the GPU: ") && text.contains("another job"), "{text}");
    let row = text.lines().find(|line| line.contains(&format!(" {pid} "))).expect("the neighbour's row");
    assert!(row.contains("3.00 GiB"), "{text}");
}

#[test]
fn a_quota_of_the_job_and_all_of_its_processes_are_named() {
    let mut rig = machine(1).limited("1GiB");
    let steps = programs::compile("steps.c", &[]);
    let start = |words: &[&str]| {
        let mut command = rig.command(steps.clone());
        command.args(words);
        let mut process = Running::start(command, PATIENCE);
        let pid = process.until_ready();
        (process, pid)
    };
    let (small, small_pid) = start(&["use:0", "alloc:a:100m", "pause"]);
    let (large, large_pid) = start(&["use:0", "create:a:300m:0", "alloc:b:20m", "alloc:c:10m", "pause"]);
    // One that is gone holds nothing.
    let mut gone = rig.command(steps.clone());
    gone.args(["use:0", "alloc:a:500m", "kill"]);
    assert!(!child::run(gone, PATIENCE).status.success());
    let mut victim = rig.command(steps.clone());
    victim.args(["use:0", "async:a:64m", "toomuch:b:900m"]);
    child::run(victim, PATIENCE).ok();
    finish(small);
    finish(large);
    let outcome = rig.end_session();

    let [it] = &outcome.profile.postmortems[..] else { panic!("{:#?}", outcome.profile.postmortems) };
    let Cause::Quota(quota) = it.cause else { panic!("{:?}", it.cause) };
    assert_eq!((quota.scope, quota.limit), (Scope::Job, Bytes::from_gib(1)));
    assert_eq!(quota.used, Bytes::from_mib(100 + 330 + 64));
    assert_eq!(it.quotas, [quota]);
    assert_eq!(kind(&it.own, Kind::PoolUsed), 64 * MIB);
    assert_eq!(kind(&it.own, Kind::PoolReserved), 64 * MIB);
    let others = it.others.as_ref().expect("the other processes");
    let held: Vec<_> = others
        .iter()
        .map(|o| (o.pid, kind(&o.kinds, Kind::Device), kind(&o.kinds, Kind::Vmm), o.blocks.len()))
        .collect();
    assert_eq!(held, [(large_pid, 30 * MIB, 300 * MIB, 3), (small_pid, 100 * MIB, 0, 1)]);
    assert_eq!((others[0].blocks[0].size, others[0].blocks[0].kind), (Bytes::from_mib(300), Kind::Vmm as u8));
    let holders: Vec<_> = it.holders.iter().map(|holder| (holder.pid, holder.bytes.0 / MIB)).collect();
    assert_eq!(holders[..2], [(large_pid, 330), (small_pid, 100)]);

    let (text, json) = told(&rig, "profile.radrm");
    assert_eq!(json["postmortems"][0]["job_bytes"].as_u64(), Some((100 + 330 + 64) * MIB));
    for part in ["the job's quota of ", "virtual memory 300.0 MiB", &large_pid.to_string()] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_quota_of_the_user_is_shared_with_jobs_that_are_named() {
    let rig = machine(1);
    // SAFETY: plain system call.
    let uid = unsafe { libc::getuid() };
    let config = rig.path().join("node.toml");
    fs::write(&config, format!("[user.{uid}]\nmem-limit = \"1GiB\"\n")).expect("file");
    let with_config = |mut command: Command| {
        command.env("RADRM_CONFIG", &config);
        command
    };
    let (other, pid) = waiting(with_config(job(
        &rig,
        "o.radrm",
        &["--mem-limit", "2GiB"],
        &["use:0", "alloc:a:700m", "pause"],
    )));
    let steps = ["use:0", "alloc:a:100m", "toomuch:b:300m"];
    child::run(with_config(job(&rig, "p.radrm", &["--mem-limit", "900MiB"], &steps)), PATIENCE).ok();
    finish(other);

    let it = only(&rig, "p.radrm");
    let user = QuotaUse { scope: Scope::User, limit: Bytes::from_gib(1), used: Bytes::from_mib(800) };
    let own = QuotaUse { scope: Scope::Job, limit: Bytes::from_mib(900), used: Bytes::from_mib(100) };
    assert_eq!((it.cause, &it.quotas[..]), (Cause::Quota(user), &[own, user][..]));
    let (text, json) = told(&rig, "p.radrm");
    let holders = json["postmortems"][0]["holders"].as_array().expect("holders").clone();
    let held: Vec<_> = holders
        .iter()
        .map(|h| (h["bytes"].as_u64().unwrap() / MIB, h["is_of_job"].as_bool().unwrap()))
        .collect();
    assert_eq!(held, [(700, false), (100, true)]);
    assert_eq!(holders[0]["pid"].as_u64(), Some(pid.into()));
    assert!(text.contains("under the user quota") && text.contains("another job"), "{text}");
}

#[test]
fn an_injected_fault_is_not_taken_for_fragmentation() {
    let rig = machine(1);
    let steps = ["use:0", "alloc:a:100m", "toomuch:b:100m"];
    child::run(job(&rig, "p.radrm", &["--faults", "oom@2"], &steps), PATIENCE).ok();
    let (text, json) = told(&rig, "p.radrm");
    assert!(text.contains("a fault injected by --faults: 100.0 MiB requested"), "{text}");
    assert!(text.contains("with faults oom@2"), "{text}");
    assert!(json.to_string().contains("\"cause\":\"injected\""), "{json}");
}

#[test]
fn fragmentation_is_told_from_a_full_device() {
    let rig = machine(1);
    let steps = ["use:0", "alloc:a:100m", "toomuch:b:1g", "toomuch:c:5g"];
    child::run(job(&rig, "p.radrm", &["--faults", "fragment=256MiB"], &steps), PATIENCE).ok();
    let it = only(&rig, "p.radrm");
    assert_eq!(it.cause, Cause::Fragmentation);
    assert!(it.request.free > Some(Bytes::from_gib(3)), "{:?}", it.request);
    assert_eq!((it.later.count(), it.later.device, it.later.like(&it.cause)), (1, 1, 0));
    let (text, _) = told(&rig, "p.radrm");
    assert!(text.contains("probably fragmented: ") && text.contains("none for the same reason"), "{text}");
}

#[test]
fn a_program_that_is_killed_right_after_its_refusal_leaves_all_of_it() {
    let rig = machine(1);
    let (neighbour, pid) = waiting(job(&rig, "n.radrm", &[], &["use:0", "alloc:a:1g", "pause"]));
    let steps = ["use:0", "alloc:a:2g", "toomuch:b:2g", "kill"];
    assert!(!child::run(job(&rig, "p.radrm", &[], &steps), PATIENCE).status.success());
    finish(neighbour);
    let it = only(&rig, "p.radrm");
    assert!(it.is_complete && it.cause == Cause::Device);
    assert_eq!(kind(&it.own, Kind::Device), 2 << 30);
    assert_eq!(it.blocks.iter().map(|block| block.size.0).collect::<Vec<_>>(), [2 << 30]);
    let nvml = it.nvml.expect("NVML was asked, though the program was gone");
    let neighbour = nvml.processes.iter().find(|process| process.pid == pid).expect("the neighbour");
    assert_eq!((neighbour.used, neighbour.is_own), (Some(Bytes::from_gib(1)), false));
}

#[test]
fn of_a_program_that_goes_on_the_first_refusal_is_kept() {
    let rig = machine(1);
    let steps = ["use:0", "alloc:a:1g", "toomuch:b:8g", "free:a", "alloc:c:10m", "3x:toomuch:d:5g"];
    let ended = child::run(job(&rig, "p.radrm", &[], &steps), PATIENCE).ok();

    let it = only(&rig, "p.radrm");
    assert_eq!((it.request.size, kind(&it.own, Kind::Device)), (Bytes::from_gib(8), 1 << 30));
    assert_eq!((it.later.count(), it.later.like(&it.cause)), (3, 3));
    assert_eq!((it.later.smallest, it.later.largest), (Bytes::from_gib(5), Bytes::from_gib(5)));
    // In short in the report at the end, and on the page.
    for part in
        ["memory holders at the out-of-memory event", "this process held 1.00 GiB", "3 more requests refused"]
    {
        assert!(ended.stderr.contains(part), "{part}\n{}", ended.stderr);
    }
    let mut page = rig.bare_command(artifacts::file("radrm"));
    page.arg("report").arg(rig.path().join("p.radrm")).arg("--html=-");
    let page = child::run(page, PATIENCE).ok().stdout;
    assert!(
        page.contains("Memory holders at the out-of-memory event")
            && page.contains("this process held 1.00 GiB")
    );
}

#[test]
fn each_gpu_and_each_process_has_a_first_refusal_of_its_own() {
    let rig = machine(2);
    let steps = ["fork:2", "use:0", "toomuch:a:9g", "use:1", "alloc:b:10m", "toomuch:c:8g"];
    let outcome = rig.outcome(child::run(job(&rig, "profile.radrm", &[], &steps), PATIENCE).ok());
    let mut found: Vec<_> = outcome
        .profile
        .postmortems
        .iter()
        .map(|it| (it.process, it.gpu().0, it.request.size.0 >> 30, kind(&it.own, Kind::Device)))
        .collect();
    found.sort();
    let (first, second) = (found[0].0, found[2].0);
    assert_ne!(first, second);
    let of = |process| [(process, 0, 9, 0), (process, 1, 8, 10 * MIB)];
    assert_eq!(found, [of(first), of(second)].concat());
}

#[test]
fn without_a_refusal_the_report_says_so() {
    let rig = machine(1);
    rig.run(programs::compile("steps.c", &[]), &["use:0", "alloc:a:1m"]).ok();
    let (text, json) = told(&rig, "profile.radrm");
    assert!(text.contains("no memory request was refused"), "{text}");
    assert_eq!(json["postmortems"].as_array().map(Vec::len), Some(0));
}
