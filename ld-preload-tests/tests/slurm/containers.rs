//! Steps in containers (`--container`) that `runc` makes: limited, recorded and ended as any other, or refused.

use std::{
    cell::RefCell,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use radrm_os::Process;
use radrm_preload_tests::{
    child::{self, Running},
    programs,
    rig::PATIENCE,
    slurm::{Bundle, Slurm},
};
use radrm_profile::Profile;

use crate::enforcement::assert_limit;

const MIB: u64 = 1 << 20;
/// An account that every Debian has.
const USER: (&str, u32) = ("daemon", 1);

fn own() -> u32 {
    // SAFETY: always works.
    unsafe { libc::geteuid() }
}

/// A cluster whose steps may run in containers, and a bundle whose image has these variables. `None`, said aloud: there
/// are no containers here.
fn cluster(user: Option<u32>, is_applied: bool, env: &[&str]) -> Option<(Slurm, PathBuf)> {
    let slurm = Slurm::start(1, 1024)?;
    let user = user.or_else(|| Some(own()).filter(|own| *own != 0));
    if !slurm.allow_containers(user, is_applied) {
        return None;
    }
    let bundle = slurm.bundle(Bundle { name: "bundle", user, inside: 0, env });
    Some((slurm, bundle))
}

/// `srun` of a program in a container.
fn srun(slurm: &Slurm, options: &[&str], bundle: &Path, words: &[&str]) -> Command {
    let mut command = slurm.command("srun");
    command.args(options).arg("--container").arg(bundle).args(words);
    command
}

fn asker() -> String {
    programs::compile("quota_ask.c", &[]).canonicalize().expect("a path").to_str().expect("text").to_owned()
}

fn ready(command: Command) -> Running {
    let mut running = Running::start(command, 2 * PATIENCE);
    running.until_ready();
    running
}

/// The profile of a step; `part`: in its name.
#[track_caller]
fn profile(slurm: &Slurm, part: &str) -> Profile {
    let find = || {
        let files = fs::read_dir(slurm.path("work")).expect("work").flatten().map(|entry| entry.path());
        let named = |file: &PathBuf| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.ends_with(".radrm") && name.contains(part)
        };
        files.into_iter().find(named)
    };
    slurm.until("the step is recorded", || find().is_some() && slurm.all_recorders().is_empty());
    Profile::open(&find().expect("a profile")).expect("a profile")
}

#[track_caller]
fn assert_recorded(profile: &Profile, peak: u64) {
    let peaks = profile.processes.iter().flat_map(|process| &process.state.accounts).map(|gpu| gpu.peak.0);
    assert_eq!(peaks.max(), Some(peak));
    let command = format!("{:?}", profile.job);
    assert!(command.contains("quota_ask"), "the program of the container: {command}");
}

/// Nothing of a job is left, and its memory is free.
#[track_caller]
fn assert_gone(slurm: &Slurm) {
    slurm.until("no process of the job is left", || slurm.of_jobs().is_empty());
    slurm.until("no recorder is left", || slurm.all_recorders().is_empty());
    assert_eq!(slurm.machines()[0].memory(0).used, 0);
    slurm.until_idle();
}

#[test]
fn a_limit_holds_in_a_container_which_is_recorded() {
    let Some((slurm, bundle)) = cluster(None, true, &[]) else { return };
    let mut task = ready(srun(&slurm, &["--gpu-mem=100MiB"], &bundle, &[&asker()]));
    assert_limit(&mut task, 100);
    task.end().ok();
    assert_recorded(&profile(&slurm, ".0."), 100 * MIB);
    assert_gone(&slurm);
    // What has no limit gets what it had without the plug-in.
    let env = child::run(srun(&slurm, &[], &bundle, &["env"]), 2 * PATIENCE).ok().stdout;
    assert!(!env.contains("RADRM_") && !env.contains("LD_PRELOAD"), "{env}");
}

#[test]
fn a_limit_holds_for_another_user_in_a_user_namespace() {
    if own() != 0 {
        eprintln!("skipped: only root can submit jobs of other users");
        return;
    }
    let (name, uid) = USER;
    let Some((slurm, bundle)) = cluster(Some(uid), true, &[]) else { return };
    let as_user = |options: &[&str], words: &[&str]| {
        let mut command = srun(&slurm, options, &bundle, words);
        command.uid(uid).gid(uid).env("USER", name).env("LOGNAME", name).env("HOME", slurm.path("work"));
        command
    };
    let map =
        child::run(as_user(&["--gres=shard:100"], &["cat", "/proc/self/uid_map"]), 2 * PATIENCE).ok().stdout;
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "1", "1"], "the user is root inside");
    let mut task = ready(as_user(&["--gres=shard:100"], &[&asker()]));
    assert_limit(&mut task, 100);
    task.end().ok();
    assert_gone(&slurm);
    assert_recorded(&profile(&slurm, "-2.0."), 100 * MIB);
}

#[test]
fn a_batch_script_in_a_container_is_limited_and_recorded() {
    let Some((slurm, bundle)) = cluster(None, true, &[]) else { return };
    let output = slurm.path("work/output");
    let script = format!("{{ echo {}; echo {}; }} | {}", 100 * MIB, 100 * MIB + 1, asker());
    let (container, to) = (bundle.to_str().expect("text"), output.to_str().expect("text"));
    let job = slurm.sbatch(&["--gpu-mem=100MiB", "--container", container, "-o", to], &script);
    slurm.until_ended(job);
    let output = fs::read_to_string(&output).unwrap_or_default();
    let answers: Vec<&str> = output.lines().filter(|line| ["granted", "refused"].contains(line)).collect();
    assert_eq!(answers, ["granted", "refused"], "{output}{}", slurm.logs());
    let profile = profile(&slurm, &format!("-{job}.batch."));
    let peaks = profile.processes.iter().flat_map(|process| &process.state.accounts).map(|gpu| gpu.peak.0);
    assert_eq!(peaks.max(), Some(100 * MIB));
    assert_gone(&slurm);
}

#[test]
fn neither_image_nor_user_lifts_a_limit_in_a_container() {
    let image = ["RADRM_DISABLE=1", "RADRM_QUOTA=", "RADRM_LEDGERS=/nowhere", "LD_PRELOAD=libm.so.6"];
    let Some((slurm, bundle)) = cluster(None, true, &image) else { return };
    let forged = [
        ("RADRM_DISABLE", "1"),
        ("RADRM_SEGMENT", "/nowhere"),
        ("RADRM_CONTAINER", "recorded"),
        ("RADRM_EMULATED_MACHINE", "/nowhere"),
        ("SLURM_RADRM_GPU_MEM", "900MiB"),
        // Slurm then does not state the container either.
        ("SLURM_CONTAINER", ""),
    ];
    let mut command = srun(&slurm, &["--gpu-mem=100MiB"], &bundle, &[&asker()]);
    command.envs(forged);
    let mut task = ready(command);
    assert_limit(&mut task, 100);
    drop(task);
    let env = child::run(srun(&slurm, &["--gpu-mem=100MiB"], &bundle, &["env"]), 2 * PATIENCE).ok().stdout;
    let value = |name: &str| {
        let values = env.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        values.collect::<Vec<_>>()
    };
    let preload = value("LD_PRELOAD");
    assert!(preload[0].ends_with("/libradrm.so:libm.so.6") && preload.len() == 1, "{preload:?}");
    assert!(value("RADRM_DISABLE").is_empty() && value("RADRM_CONTAINER").is_empty(), "{env}");
    assert_eq!(value("RADRM_QUOTA"), ["1"]);
}

#[test]
fn a_cancelled_container_leaves_nothing_behind() {
    let Some((slurm, bundle)) = cluster(None, true, &[]) else { return };
    let task = RefCell::new(ready(srun(&slurm, &["--gpu-mem=100MiB"], &bundle, &[&asker()])));
    assert_eq!(task.borrow_mut().ask(&format!("keep {}", 40 * MIB)), "granted");
    assert_eq!(slurm.machines()[0].memory(0).used, 40 * MIB);
    let _ = slurm.said("scancel", &["1"]);
    // While its input is open the program goes on.
    slurm.until("the step has ended", || task.borrow_mut().has_ended());
    drop(task);
    assert_gone(&slurm);
    assert_recorded(&profile(&slurm, "-1.0."), 40 * MIB);
}

#[test]
fn a_killed_slurmstepd_leaves_no_container_behind() {
    let Some((slurm, bundle)) = cluster(None, true, &[]) else { return };
    let mut task = ready(srun(&slurm, &["--gpu-mem=100MiB"], &bundle, &[&asker()]));
    assert_eq!(task.ask(&format!("keep {}", 40 * MIB)), "granted");
    let ancestors = |process: Process| std::iter::successors(Some(process), |process| process.parent());
    let is_step = |process: &Process| process.name() == "slurmstepd";
    let steps: Vec<u32> = slurm
        .of_jobs()
        .into_iter()
        .filter_map(|process| ancestors(process).take_while(|process| process.0 > 1).find(is_step))
        .map(|process| process.0)
        .collect();
    assert!(!steps.is_empty(), "{}", slurm.logs());
    // SAFETY: a plain system call on a process of this test.
    unsafe { libc::kill(steps[0].cast_signed(), libc::SIGKILL) };
    slurm.until("the recorder has ended the container", || slurm.of_jobs().is_empty());
    // Slurm itself does not notice.
    slurm.until_none("the job is cancelled", || {
        let _ = slurm.said("scancel", &["1"]);
    });
    assert_gone(&slurm);
    drop(task);
    let mut task = ready(srun(&slurm, &["--gpu-mem=1024MiB"], &bundle, &[&asker()]));
    assert_eq!(task.ask(&(1024 * MIB).to_string()), "granted", "all memory is there for the next job");
}

#[test]
fn a_container_that_no_limit_reaches_is_not_started() {
    let Some((slurm, bundle)) = cluster(None, false, &[]) else { return };
    let run = |options: &[&str]| child::run(srun(&slurm, options, &bundle, &["echo", "ran"]), 2 * PATIENCE);
    for limit in ["--gpu-mem=100MiB", "--gres=shard:100"] {
        let hidden = || {
            // Since Slurm 22.11 nothing else says that there is a container, and srun starts it all the same.
            let mut command = srun(&slurm, &[limit], &bundle, &["echo", "ran"]);
            command.env("SLURM_CONTAINER", "");
            child::run(command, 2 * PATIENCE)
        };
        for ended in [run(&[limit]), hidden()] {
            assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(125), ""), "{ended:?}");
            let why = ["the task is not started: ", "RunTimeRun of oci.conf", "radrm cdi apply"];
            assert!(why.iter().all(|part| ended.stderr.contains(part)), "{ended:?}");
        }
    }
    // What is only recorded goes on without.
    let ended = run(&["--radrm=profile"]).ok();
    assert_eq!(ended.stdout, "ran\n");
    assert!(ended.stderr.contains("nothing is recorded"), "{ended:?}");
    let ended = run(&[]).ok();
    assert!(ended.stdout == "ran\n" && !ended.stderr.contains("radrm"), "{ended:?}");
    assert_gone(&slurm);
    // Without the file Slurm starts no container, and the limit is that of any task.
    fs::remove_file(slurm.path("oci.conf")).expect("oci.conf");
    let mut task = ready(srun(&slurm, &["--gpu-mem=100MiB"], &bundle, &[&asker()]));
    assert_limit(&mut task, 100);
}

#[test]
fn a_container_of_another_user_than_the_jobs_is_not_started() {
    let Some((slurm, _)) = cluster(None, true, &[]) else { return };
    if own() != 0 {
        eprintln!("skipped: only root makes containers of other users");
        return;
    }
    let bundle = slurm.bundle(Bundle { name: "other", user: None, inside: USER.1, env: &[] });
    let run = |option: &str| child::run(srun(&slurm, &[option], &bundle, &["echo", "ran"]), 2 * PATIENCE);
    let ended = run("--gpu-mem=100MiB");
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(125), ""), "{ended:?}");
    assert!(ended.stderr.contains("the container's user 1 is user 1 on this node"), "{ended:?}");
    let ended = run("--radrm=profile").ok();
    assert_eq!(ended.stdout, "ran\n");
    assert!(ended.stderr.contains("nothing of the container is recorded"), "{ended:?}");
    assert_gone(&slurm);
}
