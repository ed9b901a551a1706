//! Limits, and what users try against them.

use radrm_preload_tests::{
    child::{self, Running},
    programs,
    rig::PATIENCE,
    slurm::Slurm,
};

const MIB: u64 = 1 << 20;

/// A task that answers requests for memory.
fn asker(slurm: &Slurm, options: &[&str], environment: &[(&str, &str)]) -> Running {
    let mut command = slurm.command("srun");
    command.args(options).arg(programs::compile("quota_ask.c", &[])).envs(environment.iter().copied());
    let mut running = Running::start(command, PATIENCE);
    running.until_ready();
    running
}

/// It gets all of so many MiB, and not one byte more.
#[track_caller]
pub fn assert_limit(asker: &mut Running, mib: u64) {
    assert_eq!(asker.ask(&(mib * MIB).to_string()), "granted", "{mib} MiB");
    assert_eq!(asker.ask(&(mib * MIB + 1).to_string()), "refused", "a byte above {mib} MiB");
}

#[test]
fn shards_are_a_limit_that_no_option_widens() {
    let Some(slurm) = Slurm::start(2, 1024) else { return };
    let mut task = asker(&slurm, &["--gres=shard:100"], &[]);
    assert_limit(&mut task, 100);
    drop(task);
    let mut task = asker(&slurm, &["--gres=shard:100", "--gpu-mem=900MiB"], &[]);
    assert_limit(&mut task, 100);
    drop(task);
    let forged = [
        ("RADRM_DISABLE", "1"),
        ("RADRM_QUOTA", ""),
        ("RADRM_SEGMENT", "/nowhere"),
        ("RADRM_LEDGERS", "/nowhere"),
        ("RADRM_EMULATED_MACHINE", "/nowhere"),
        ("RADRM_LIB_DIR", "/nowhere"),
        ("SLURM_RADRM_GPU_MEM", "900MiB"),
        ("SLURM_RADRM_MODE", "off"),
        ("SLURM_SHARDS_ON_NODE", "900"),
        ("SLURM_STEP_GPUS", "0,1"),
        ("SPANK_RADRM_GPU_MEM", "900MiB"),
    ];
    let mut task = asker(&slurm, &["--gres=shard:100"], &forged);
    assert_limit(&mut task, 100);
}

#[test]
fn variables_of_other_tools_tighten_shards_where_it_is_permitted() {
    let Some(slurm) = Slurm::start(2, 1024) else { return };
    let config = slurm.path("permits.toml");
    std::fs::write(&config, "[job]\nlimits-from-environment = true\n").expect("configuration");
    let config = config.display().to_string();
    let permitted = ("RADRM_CONFIG", config.as_str());
    for (environment, mib) in [
        (&[permitted, ("CUDA_DEVICE_MEMORY_LIMIT", "60m")][..], 60),
        (&[permitted, ("NVIDIA_GPU_MEMORY_LIMIT", "70")], 70),
        (&[permitted, ("NVIDIA_GPU_MEMORY_REQUEST", "80")], 80),
        (&[permitted, ("NVIDIA_GPU_MEMORY_LIMIT", "900")], 100),
        (&[("NVIDIA_GPU_MEMORY_LIMIT", "70")], 100),
    ] {
        let mut task = asker(&slurm, &["--gres=shard:100"], environment);
        assert_limit(&mut task, mib);
    }
    let mut task = asker(&slurm, &["--gpu-mem=90MiB"], &[permitted, ("NVIDIA_GPU_MEMORY_LIMIT", "70")]);
    assert_limit(&mut task, 70);
}

#[test]
fn an_option_limits_all_tasks_of_a_job_together() {
    let Some(slurm) = Slurm::start(2, 1024) else { return };
    let mut task = asker(&slurm, &["--gpu-mem=100MiB"], &[]);
    assert_limit(&mut task, 100);
    drop(task);
    // Both get the same line.
    let mut two = asker(&slurm, &["-n", "2", "--gpu-mem=100MiB"], &[]);
    two.until_ready();
    let mut answers = [two.ask("keep 62914560"), two.line().trim().to_owned()];
    answers.sort();
    assert_eq!(answers, ["granted", "refused"]);
}

#[test]
fn wrong_options_are_rejected_with_one_sentence() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    for (program, options, part) in [
        ("srun", &["--gpu-mem=10G"][..], "write 10GiB or 10Gi (2^30 bytes each), or 10GB"),
        ("sbatch", &["--gpu-mem=10G"][..], "write 10GiB or 10Gi (2^30 bytes each), or 10GB"),
        ("srun", &["--radrm=off", "--gpu-mem=1GiB"][..], "cannot be used together"),
        ("srun", &["--gpu-share=300"][..], "is not a percentage between 1 and 100"),
    ] {
        let mut command = slurm.command(program);
        command.args(options).arg(if program == "sbatch" { "--wrap=/bin/true" } else { "/bin/true" });
        let ended = child::run(command, PATIENCE);
        assert!(!ended.status.success() && ended.stderr.contains(part), "{program} {options:?}: {ended:?}");
    }
}

#[test]
fn a_program_that_no_limit_can_hold_is_not_started() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let mut command = slurm.command("srun");
    command.arg("--gpu-mem=100MiB").arg(programs::compile("static.c", &["-static"]));
    let ended = child::run(command, PATIENCE);
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    let why = ["the task is not started: ", "statically linked"];
    assert!(why.iter().all(|part| ended.stderr.contains(part)), "{ended:?}");
    slurm.plug("run=/nowhere/radrm-run");
    let mut command = slurm.command("srun");
    command.args(["--gpu-mem=100MiB", "/bin/echo", "ran"]);
    let ended = child::run(command, PATIENCE);
    assert!(ended.status.code() == Some(125) && ended.stdout.is_empty(), "{ended:?}");
    // Where it is only observed, the program runs.
    let mut command = slurm.command("srun");
    command.args(["--radrm=profile", "/bin/echo", "ran"]);
    assert_eq!(child::run(command, PATIENCE).ok().stdout, "ran\n");
    slurm.until_idle();
}

#[test]
fn a_killed_tasks_share_is_there_for_the_others() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let script = format!(
        "mkfifo in; {0} < in > first & exec 7> in; echo keep 62914560 >&7\n\
         until grep -q granted first; do sleep 0.02; done\n\
         srun --overlap {0} <<< 62914560; kill -9 $!; wait $!\n\
         srun --overlap {0} <<< 104857600; srun --overlap {0} <<< 104857601",
        programs::compile("quota_ask.c", &[]).display()
    );
    let job = slurm.sbatch(&["--gpu-mem=100MiB"], &script);
    slurm.until_ended(job);
    let output = slurm.output(job);
    let answers: Vec<&str> = output.lines().filter(|line| ["granted", "refused"].contains(line)).collect();
    assert_eq!(answers, ["refused", "granted", "refused"], "two steps share one limit\n{output}");
}

#[test]
fn a_job_keeps_its_limit_whatever_its_steps_say() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let asker = programs::compile("quota_ask.c", &[]);
    let path = std::env::var("PATH").expect("PATH");
    let script = format!(
        "for way in 'env -u SLURM_RADRM_GPU_MEM srun' 'env SLURM_RADRM_GPU_MEM=900MiB srun' \
         'srun --gpu-mem=900MiB' 'srun --export=NONE' 'srun --gpu-mem=50MiB'; do\n\
         $way --overlap {0} <<< 104857600; $way --overlap {0} <<< 104857601; done",
        asker.display()
    );
    for options in [
        &["--gpu-mem=100MiB"][..],
        &["--gpu-mem=100MiB", "--export=NONE"],
        &["--gres=shard:100", "--export=NONE"],
    ] {
        let job = slurm.sbatch(options, &format!("export PATH={path}\n{script}"));
        slurm.until_ended(job);
        let output = slurm.output(job);
        let answers: Vec<&str> =
            output.lines().filter(|line| ["granted", "refused"].contains(line)).collect();
        let expected = ["granted", "refused"].repeat(4).into_iter().chain(["refused"; 2]);
        assert_eq!(answers, expected.collect::<Vec<_>>(), "{options:?}\n{output}");
    }
}
