//! Surroundings that jobs find, and what is left of them.

use std::{fs, thread, time::Duration};

use radrm_preload_tests::{
    child::{self, Running},
    programs,
    rig::PATIENCE,
    slurm::Slurm,
};
use radrm_profile::Profile;

#[test]
fn a_job_without_options_runs_as_without_the_plugin() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let environment = |options: &[&str]| {
        let mut command = slurm.command("srun");
        command.args(options).arg("env");
        let text = child::run(command, PATIENCE).ok().stdout;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // Numbers of the job, its ports and processes.
        lines.retain(|line| {
            !["_ID=", "_ADDR=", "_PORT=", "_TIME=", "PID=", "JOBID=", "_COMM", "_SLUID="]
                .iter()
                .any(|part| line.contains(part))
        });
        lines.sort();
        lines
    };
    let with = environment(&[]);
    let limited = environment(&["--gpu-mem=100MiB"]);
    fs::write(slurm.path("plugstack.conf"), "").expect("plugstack.conf");
    assert_eq!(with, environment(&[]));
    assert!(limited.iter().any(|line| line == "RADRM_QUOTA=1"), "{limited:?}");
    assert!(
        !slurm.path("state-radrm1").exists()
            || fs::read_dir(slurm.path("state-radrm1")).unwrap().count() == 0
    );
}

#[test]
fn a_task_is_the_program_itself() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let run = |words: &[&str]| {
        let mut command = slurm.command("srun");
        command.args(["--gpu-mem=100MiB"]).args(words);
        child::run(command, PATIENCE)
    };
    let ended =
        run(&["/bin/sh", "-c", "tr '\\0' ' ' < /proc/$$/cmdline; cat; echo seen >&2; exit 7", "name", "a b"]);
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    assert!(ended.stdout.ends_with("name a b ") && ended.stderr.contains("seen"), "{ended:?}");
    let killed = run(&["/bin/sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(137), "{killed:?}");
}

#[test]
fn a_profile_holds_peak_and_outcome_of_each_step() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let asker = programs::compile("quota_ask.c", &[]);
    let job = slurm.sbatch(
        &["--gpu-mem=100MiB"],
        &format!(
            "{0} <<< 62914560\nsrun --overlap {0} <<< 83886080\nsrun --overlap /bin/sh -c 'exit 3'",
            asker.display()
        ),
    );
    slurm.until_ended(job);
    slurm.until("all recorders have ended", || slurm.recorders(job) == 0);
    let files: Vec<String> = fs::read_dir(slurm.path("work"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".radrm"))
        .collect();
    for (step, peak, exit) in [("batch", 60_u64, 3), ("0", 80, 0), ("1", 0, 3)] {
        let begin = format!("slurm-{job}.{step}.");
        let file =
            files.iter().find(|name| name.starts_with(&begin)).unwrap_or_else(|| panic!("{begin} {files:?}"));
        let profile = Profile::open(&slurm.path("work").join(file)).expect("profile");
        let shown = format!("{:?}", profile.outcome);
        assert!(shown.contains(&format!("Code({exit})")), "{file}: {shown}");
        let most =
            profile.processes.iter().flat_map(|process| &process.state.accounts).map(|gpu| gpu.peak.0).max();
        assert_eq!(most.unwrap_or(0) >> 20, peak, "{file}");
    }
    let dataset = slurm.path("data/radrm/dataset.db");
    assert!(dataset.exists(), "the user's dataset has the runs");
}

#[test]
fn cancelling_leaves_no_process_behind() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let job = slurm.sbatch(&["--gpu-mem=100MiB"], "srun --overlap sleep 1000 & sleep 1000");
    slurm.until("both steps are recorded", || slurm.recorders(job) == 2);
    let _ = slurm.said("scancel", &[&job.to_string()]);
    slurm.until_ended(job);
    slurm.until("no recorder is left", || slurm.recorders(job) == 0);
    slurm.until("nothing is kept of the job", || {
        fs::read_dir(slurm.path("state-radrm1")).unwrap().count() == 0
    });
    slurm.until_idle();
}

#[test]
fn arrays_and_requeued_jobs_are_limited_each_time() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let asker = programs::compile("quota_ask.c", &[]);
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| ["granted", "refused"].contains(line)).map(str::to_owned).collect()
    };
    let script = format!("{0} <<< 104857600; {0} <<< 104857601", asker.display());
    let job = slurm.sbatch(&["--gpu-mem=100MiB", "--array=1-3"], &script);
    slurm.until_ended(job);
    for task in 1..=3 {
        let begin = format!("out.{task}.");
        let mut files = fs::read_dir(slurm.path("work")).unwrap().map(|entry| entry.unwrap().path());
        let file = files.find(|path| path.file_name().unwrap().to_string_lossy().starts_with(&begin));
        assert_eq!(lines(&fs::read_to_string(file.unwrap()).unwrap()), ["granted", "refused"]);
    }
    let wait = format!("{script}\n[ \"$SLURM_RESTART_COUNT\" = 1 ] || {{ touch first; sleep 1000; }}");
    let job = slurm.sbatch(&["--gpu-mem=100MiB", "--requeue", "--open-mode=append"], &wait);
    slurm.until("the first attempt is there", || slurm.path("work/first").exists());
    let _ = slurm.said("scontrol", &["requeue", &job.to_string()]);
    slurm.until("it waits for its second attempt", || {
        slurm.said("squeue", &["-h", "-j", &job.to_string(), "-o", "%T"]).trim() == "PENDING"
    });
    // A node ends a job whose credential is from the second in which its first attempt ended.
    thread::sleep(Duration::from_secs(1));
    // Slurm would wait two minutes.
    let _ = slurm.said("scontrol", &["update", &format!("jobid={job}"), "starttime=now"]);
    slurm.until_ended(job);
    assert_eq!(lines(&slurm.output(job)), ["granted", "refused"].repeat(2));
}

#[test]
fn a_killed_recorder_ends_no_task() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let mut command = slurm.command("srun");
    command.arg("--gpu-mem=100MiB").arg(programs::compile("quota_ask.c", &[]));
    let mut task = Running::start(command, PATIENCE);
    task.until_ready();
    slurm.kill_recorders();
    task.say("104857600\n");
    assert_eq!(task.line().trim(), "granted");
    task.say("104857601\n");
    assert_eq!(task.line().trim(), "refused", "the limit needs no recorder");
}

#[test]
fn a_recorder_starts_before_the_streams_of_its_step_are_connected() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let script = "for process in /proc/[0-9]*; do tr '\\0' ' ' < $process/cmdline; echo; done 2>/dev/null |
        grep -e \"--step-of=slurm-$SLURM_JOB_ID \"";
    let mut command = slurm.command("srun");
    // This user has no further groups, of which the controller then states none.
    command.args(["--gpu-mem=100MiB", "/bin/sh", "-c", script]);
    let recorders = child::run(command, PATIENCE).ok().stdout;
    // By this word it waits for the rest of its command line.
    assert!(recorders.lines().any(|line| line.contains(" --later --attend ")), "{recorders}");
}
