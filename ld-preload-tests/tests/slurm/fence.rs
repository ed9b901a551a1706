//! The driver's own limits around the jobs of Slurm.

use std::fs;
use std::path::PathBuf;

use radrm_emulator_machine::GroupMemory;
use radrm_preload_tests::{groups::ControlGroup, programs, slurm::Slurm};

const MIB: u64 = 1 << 20;
/// Bytes that the fence lets through above the grant.
const SLACK: u64 = 512 * MIB;

/// A cluster whose first job, number 1, runs in this group, named as Slurm's own plug-in names that of a job. These
/// clusters have none, to run on any machine.
fn cluster(group: &ControlGroup, words: &str) -> Option<(Slurm, PathBuf)> {
    let slurm = Slurm::start(2, 4096)?;
    slurm.plug(words);
    let of_job = group.path().join("job_1");
    fs::create_dir(&of_job).expect("a control group");
    slurm.move_node(1, &of_job);
    Some((slurm, of_job))
}

#[test]
fn the_driver_holds_a_job_to_its_shards_until_its_last_step_ends() {
    let Some(group) = ControlGroup::new(&format!("radrm-test-slurm-{}", std::process::id())) else { return };
    let Some((slurm, of_job)) = cluster(&group, "shard=1MiB fence=on") else { return };
    let asker = programs::compile("quota_ask.c", &[]);
    let ask = |bytes: u64| format!("srun --overlap env -u LD_PRELOAD {} <<< {bytes}\n", asker.display());
    let script = format!(
        "{}{}touch there; until [ -e go ]; do sleep 0.05; done",
        ask(1000 * MIB + SLACK),
        ask(1002 * MIB + SLACK)
    );
    let job = slurm.sbatch(&["--gres=shard:1000"], &script);
    assert_eq!(job, 1, "the first job of a new cluster");
    slurm.until("both programs have ended", || slurm.path("work/there").exists());
    let output = slurm.output(job);
    let answers: Vec<&str> = output.lines().filter(|line| !line.starts_with("ready")).collect();
    assert_eq!(answers, ["granted", "refused"], "programs without the shim\n{output}{}", slurm.logs());
    let limits = |gpu| slurm.machines()[0].group_memory(&of_job, gpu);
    let granted = GroupMemory { soft: 1000 * MIB, hard: 1000 * MIB + SLACK, used: 0 };
    let other = GroupMemory { soft: 0, hard: SLACK, used: 0 };
    let mut found = [limits(0), limits(1)];
    found.sort_by_key(|memory| memory.map(|memory| memory.soft));
    assert_eq!(found, [Some(other), Some(granted)]);
    let below = fs::read_dir(&of_job).expect("groups").flatten().filter(|entry| entry.path().is_dir());
    assert_eq!(below.count(), 0, "the recorder runs as root, and has no group of its own to limit");
    fs::write(slurm.path("work/go"), "").expect("file");
    slurm.until_ended(job);
    slurm.until("the limits are taken back", || limits(0).is_none() && limits(1).is_none());
    slurm.until_idle();
}

#[test]
fn what_evades_the_shim_in_any_step_is_charged_to_the_job() {
    for fence in ["on", "off"] {
        let name = format!("radrm-test-slurm-past-{fence}-{}", std::process::id());
        let Some(group) = ControlGroup::new(&name) else { return };
        let Some((slurm, _)) = cluster(&group, &format!("shard=1MiB fence={fence}")) else { return };
        let asker = programs::compile("quota_ask.c", &[]);
        // The step holds 600 of the 1000 MiB past the shim for as long as the script asks for as much. A figure counts
        // when nothing changed meanwhile.
        let script = format!(
            "srun --overlap /bin/sh -c '{{ echo keep {0}; sleep 1000; }} | env -u LD_PRELOAD {1} > past' &\n\
             until grep -q granted past; do sleep 0.05; done\n\
             while sleep 1; do echo {0}; done | {1} > answers",
            600 * MIB,
            asker.display()
        );
        let job = slurm.sbatch(&["--gres=shard:1000"], &script);
        assert_eq!(job, 1, "the first job of a new cluster");
        let answers = || {
            let text = fs::read_to_string(slurm.path("work/answers")).unwrap_or_default();
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        slurm.until("the script asks", || answers().len() >= 5 || answers().ends_with(&["refused".into()]));
        let is_charged = answers().ends_with(&["refused".to_owned()]);
        assert_eq!(is_charged, fence == "on", "fence={fence}: {:?}\n{}", answers(), slurm.logs());
        slurm.said("scancel", &["1"]);
        slurm.until_idle();
    }
}
