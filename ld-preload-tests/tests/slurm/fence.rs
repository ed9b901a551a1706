//! The driver's own limits around the jobs of Slurm.

use std::fs;

use radrm_emulator_machine::GroupMemory;
use radrm_preload_tests::{groups::ControlGroup, programs, slurm::Slurm};

const MIB: u64 = 1 << 20;
/// What the fence lets through above the grant.
const SLACK: u64 = 512 * MIB;

#[test]
fn the_driver_holds_a_job_to_its_shards_until_its_last_step_ends() {
    let Some(group) = ControlGroup::new(&format!("radrm-test-slurm-{}", std::process::id())) else { return };
    let Some(slurm) = Slurm::start(2, 4096) else { return };
    slurm.plug("shard=1MiB fence=on");
    // As Slurm's own plug-in names the group of its first job. These clusters have none, to run on any machine.
    let of_job = group.path().join("job_1");
    fs::create_dir(&of_job).expect("a control group");
    slurm.move_node(1, &of_job);
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
    fs::write(slurm.path("work/go"), "").expect("file");
    slurm.until_ended(job);
    slurm.until("the limits are taken back", || limits(0).is_none() && limits(1).is_none());
    slurm.until_idle();
}
