//! Actions of a site on jobs while they run: it suspends them, gives them several nodes or GPUs, reboots their
//! node.

use std::{
    cell::Cell,
    fs,
    io::Write,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use radrm_os::Process;
use radrm_preload_tests::{
    programs,
    slurm::{Setup, Slurm},
};

const MIB: u64 = 1 << 20;

/// A job whose program answers requests for memory that the test writes into a file.
struct Asked<'s> {
    slurm: &'s Slurm,
    number: u32,
    answers: PathBuf,
}

impl<'s> Asked<'s> {
    fn submit(slurm: &'s Slurm, options: &[&str]) -> Self {
        let asker = programs::compile("quota_ask.c", &[]);
        let script = format!("touch in; tail -n +1 -f in | {} > answers", asker.display());
        let number = slurm.sbatch(options, &script);
        let answers = slurm.path("work/answers");
        let asked = Self { slurm, number, answers };
        slurm.until("the program is ready", || asked.lines().len() == 1);
        asked
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.answers).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn say(&self, line: &str) {
        let mut file =
            fs::File::options().append(true).open(self.slurm.path("work/in")).expect("the job's input");
        writeln!(file, "{line}").expect("a line");
    }

    /// Gives the answer to a request.
    fn ask(&self, line: &str) -> String {
        let before = self.lines().len();
        self.say(line);
        self.slurm.until("the program answers", || self.lines().len() > before);
        self.lines()[before].clone()
    }
}

#[test]
fn a_suspended_job_holds_its_memory_and_goes_on_under_its_limit() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let job = Asked::submit(&slurm, &["--gres=shard:100"]);
    assert_eq!(job.ask(&format!("keep {}", 40 * MIB)), "granted");
    let _ = slurm.said("scontrol", &["suspend", &job.number.to_string()]);
    slurm.until("its program is stopped", || {
        let stopped =
            |process: &Process| process.name().starts_with("quota_ask") && process.state() == Some(b'T');
        slurm.field(job.number, "JobState") == "SUSPENDED" && slurm.of_jobs().iter().any(stopped)
    });
    assert_eq!(slurm.machines()[0].memory(0).used, 40 * MIB, "suspension gives no memory back");
    assert_eq!(slurm.recorders(job.number), 1, "it is recorded on");
    job.say(&(60 * MIB).to_string());
    let _ = slurm.said("scontrol", &["resume", &job.number.to_string()]);
    slurm.until("the program answers", || job.lines().len() == 3);
    assert_eq!(job.lines()[2], "granted");
    assert_eq!(job.ask(&(60 * MIB + 1).to_string()), "refused");
    let _ = slurm.said("scancel", &[&job.number.to_string()]);
    slurm.until_ended(job.number);
    slurm.until("nothing of it is left", || slurm.recorders(job.number) == 0);
    assert_eq!(slurm.machines()[0].memory(0).used, 0);
    slurm.until_idle();
}

#[test]
fn a_suspended_job_can_be_cancelled() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let job = Asked::submit(&slurm, &["--gres=shard:100"]);
    assert_eq!(job.ask(&format!("keep {}", 40 * MIB)), "granted");
    let _ = slurm.said("scontrol", &["suspend", &job.number.to_string()]);
    slurm.until("it is suspended", || slurm.field(job.number, "JobState") == "SUSPENDED");
    let _ = slurm.said("scancel", &[&job.number.to_string()]);
    slurm.until_ended(job.number);
    slurm.until("no process is left", || slurm.of_jobs().is_empty() && slurm.recorders(job.number) == 0);
    assert_eq!(slurm.machines()[0].memory(0).used, 0);
    slurm.until_idle();
}

#[test]
fn each_component_of_a_heterogeneous_job_is_limited_by_its_own_shards() {
    let setup = Setup { nodes: 2, gpus: 1, mib: 1024, script: None, further: "" };
    let Some(slurm) = Slurm::start_with(&setup) else { return };
    let asker = programs::compile("quota_ask.c", &[]);
    // Each program gets what its component was granted, and not a byte more.
    let ask = |component: u32, mib: u64| {
        format!(
            "srun --overlap --het-group={component} {} <<< $'{}\\n{}'\n",
            asker.display(),
            mib * MIB,
            mib * MIB + 1
        )
    };
    let script = format!("{}{}touch done", ask(0, 100), ask(1, 200));
    let job = slurm.sbatch(&["--gres=shard:100", ":", "--gres=shard:200"], &script);
    slurm.until("its script has ended", || slurm.path("work/done").exists());
    slurm.until_ended(job);
    let output = slurm.output(job);
    let answers: Vec<&str> = output.lines().filter(|line| !line.starts_with("ready")).collect();
    assert_eq!(answers, ["granted", "refused", "granted", "refused"], "{output}{}", slurm.logs());
    slurm.until("all are recorded", || slurm.all_recorders().is_empty());
    slurm.until_idle();
}

#[test]
fn a_job_with_several_gpus_has_its_limit_on_each_of_them() {
    let Some(slurm) = Slurm::start(3, 1024) else { return };
    let asker = programs::compile("quota_ask.c", &[]);
    // A task on each GPU. Each keeps all that the job may take there before any asks for more.
    let task = format!(
        "{{ echo keep {}; touch kept.$SLURM_PROCID; until [ -e kept.0 ] && [ -e kept.1 ]; do sleep 0.02; done; \
         echo {}; }} | CUDA_VISIBLE_DEVICES=$SLURM_PROCID {} > answers.$SLURM_PROCID",
        100 * MIB,
        2 * MIB,
        asker.display()
    );
    let script = format!("srun -n 2 /bin/bash -c '{task}'");
    let job = slurm.sbatch(&["-n", "2", "--gres=gpu:2", "--gpu-mem=100MiB"], &script);
    slurm.until_ended(job);
    for task in 0..2 {
        let text = fs::read_to_string(slurm.path(&format!("work/answers.{task}"))).unwrap_or_default();
        let answers: Vec<&str> = text.lines().filter(|line| !line.starts_with("ready")).collect();
        assert_eq!(answers, ["granted", "refused"], "task {task}\n{}", slurm.output(job));
    }
    let peaks = slurm.machines()[0].ledgers().into_iter().flat_map(|ledger| ledger.gpus);
    let mut used: Vec<usize> = peaks.filter(|gpu| gpu.held_peak == 100 * MIB).map(|gpu| gpu.gpu).collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), 2, "each task was on a GPU of its own");
    slurm.until("all are recorded", || slurm.recorders(job) == 0);
    slurm.until_idle();
}

#[test]
fn a_job_runs_again_under_its_limit_after_its_node_was_rebooted() {
    let setup = Setup { nodes: 1, gpus: 1, mib: 1024, script: None, further: "BatchStartTimeout=1\n" };
    let Some(slurm) = Slurm::start_with(&setup) else { return };
    let asker = programs::compile("quota_ask.c", &[]);
    let script = format!(
        "echo begins >> begins; {0} <<< $'{1}\\n{2}'\n[ \"$(wc -l < begins)\" -ge 2 ] || {{ touch first; sleep 1000; }}",
        asker.display(),
        100 * MIB,
        100 * MIB + 1
    );
    let job = slurm.sbatch(&["--gres=shard:100", "--requeue", "--open-mode=append"], &script);
    slurm.until("the first attempt is there", || slurm.path("work/first").exists());
    slurm.reboot_node(1);
    // Slurm believes a node that has lost a job of less than ten seconds, and more, when it states its jobs again.
    let stated = Cell::new(Instant::now());
    slurm.until("it waits for its second attempt", || {
        if stated.get().elapsed() > Duration::from_secs(4) {
            slurm.kill_daemon("slurmd-node1");
            slurm.boot_node(1);
            stated.set(Instant::now());
        }
        slurm.said("squeue", &["-h", "-j", &job.to_string(), "-o", "%T"]).trim() == "PENDING"
    });
    // Slurm would wait two minutes. Credentials of the second in which the node revoked the first attempt's are none.
    thread::sleep(Duration::from_secs(2));
    let _ = slurm.said("scontrol", &["update", &format!("jobid={job}"), "starttime=now"]);
    slurm.until_ended(job);
    let output = slurm.output(job);
    let answers: Vec<&str> = output.lines().filter(|line| ["granted", "refused"].contains(line)).collect();
    assert_eq!(answers, ["granted", "refused"].repeat(2), "{output}{}", slurm.logs());
    slurm.until("nothing is kept of the job", || {
        slurm.recorders(job) == 0
            && fs::read_dir(slurm.path("state-radrm1")).is_ok_and(|kept| kept.count() == 0)
    });
    assert_eq!(slurm.machines()[0].memory(0).used, 0);
    slurm.until_idle();
}
