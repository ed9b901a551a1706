//! Many jobs of several users on two nodes: packed by Slurm as by hand, held to their grants whatever they try, and
//! recorded one by one.

use std::{collections::BTreeMap, fs};

use radrm_preload_tests::{
    programs,
    slurm::{Setup, Slurm},
};
use radrm_profile::Profile;

const MIB: u64 = 1 << 20;
/// Accounts that every Debian has. Without root all jobs are those of the user that runs the tests.
const USERS: [(&str, u32); 3] = [("daemon", 1), ("bin", 2), ("sys", 3)];

/// Variables that users set to get more than they were granted.
const FORGED: [(&str, &str); 9] = [
    ("RADRM_DISABLE", "1"),
    ("RADRM_QUOTA", ""),
    ("RADRM_SEGMENT", "/nowhere"),
    ("RADRM_LEDGERS", "/nowhere"),
    ("RADRM_EMULATED_MACHINE", "/nowhere"),
    ("SLURM_RADRM_GPU_MEM", "5000MiB"),
    ("SLURM_RADRM_MODE", "off"),
    ("SLURM_RADRM_SHARDS", "option"),
    ("SLURM_SHARDS_ON_NODE", "5000"),
];

/// A job, and what it says of itself.
#[derive(Debug)]
struct Job {
    number: u32,
    uid: u32,
    grant: u64,
    node: usize,
    gpu: usize,
    /// Time of its begin and end, ns.
    times: (u64, u64),
    pid: u32,
}

fn cluster(gpus: usize, mib: u64) -> Option<Slurm> {
    Slurm::start_with(&Setup { nodes: 2, gpus, mib, script: None, further: "" })
}

/// A step of a simple sequence of numbers that is the same in every run.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Submits so many jobs of three users, which take what they were granted, and try to get more.
fn submit(slurm: &Slurm, count: usize, mib: u64) -> Vec<(u32, u32, u64)> {
    let asker = programs::compile("quota_ask.c", &[]);
    // SAFETY: always works.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("only root can submit jobs of other users: all are those of one");
    }
    let mut state = 18;
    let mut jobs = Vec::new();
    for at in 0..count {
        // The driver gives memory in pieces of 2 MiB, and what it takes above a request counts too.
        let grant = [mib / 16, mib / 8, mib / 4, mib * 3 / 8, mib / 2, mib][next(&mut state) as usize % 6];
        let (user, uid) = USERS[at % USERS.len()];
        let script = format!(
            "echo \"job $SLURMD_NODENAME $SLURM_JOB_GPUS $(date +%s%N)\"\n\
             {{ echo keep {}; echo 1; sleep 0.{}; }} | {}\necho \"end $(date +%s%N)\"",
            grant * MIB,
            next(&mut state) % 4,
            asker.display()
        );
        let shards = format!("--gres=shard:{grant}");
        let mut options = vec![shards.as_str()];
        // Forged in one of three ways, or in none.
        match at % 4 {
            0 => options.push("--export=NONE"),
            1 => options.push("--gpu-mem=5000MiB"),
            _ => {}
        }
        let forged = if at % 4 == 2 { &FORGED[..] } else { &[] };
        let user = is_root.then_some((user, uid));
        jobs.push((slurm.sbatch_as(user, forged, &options, &script), user.map_or(0, |(_, uid)| uid), grant));
    }
    jobs
}

/// Reads what a job wrote.
fn job(slurm: &Slurm, (number, uid, grant): (u32, u32, u64)) -> Job {
    let output = slurm.output(number);
    let words = |begin: &str| -> Vec<String> {
        let line = output.lines().find(|line| line.starts_with(begin));
        let line = line.unwrap_or_else(|| panic!("job {number} has no line `{begin}`:\n{output}"));
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    let answers: Vec<&str> = output.lines().filter(|line| ["granted", "refused"].contains(line)).collect();
    assert_eq!(answers, ["granted", "refused"], "job {number} of {grant} MiB\n{output}");
    let (began, ended, ready) = (words("job "), words("end "), words("ready "));
    Job {
        number,
        uid,
        grant,
        node: began[0].strip_prefix("node").and_then(|node| node.parse().ok()).expect("a node"),
        gpu: began[1].parse().expect("a GPU"),
        times: (began[2].parse().expect("a time"), ended[0].parse().expect("a time")),
        pid: ready[0].parse().expect("a process"),
    }
}

/// No GPU was granted twice: jobs that ran there at the same time have together what it has, at most.
fn assert_packed(jobs: &[Job], mib: u64) {
    let mut gpus: BTreeMap<(usize, usize), Vec<(u64, i64)>> = BTreeMap::new();
    for job in jobs {
        let changes = gpus.entry((job.node, job.gpu)).or_default();
        let grant = i64::try_from(job.grant).expect("small");
        changes.extend([(job.times.0, grant), (job.times.1, -grant)]);
    }
    for (gpu, mut changes) in gpus {
        changes.sort_unstable();
        let mut sum = 0;
        for (_, change) in changes {
            sum += change;
            assert!(
                sum <= i64::try_from(mib).expect("small"),
                "{sum} MiB were granted on GPU {gpu:?} at a time"
            );
        }
    }
}

/// Checks what the emulated GPUs themselves counted of it, and what its user finds recorded.
fn assert_held(slurm: &Slurm, job: &Job) {
    let grant = job.grant * MIB;
    let ledgers = slurm.machines()[job.node - 1].ledgers();
    let ledger = ledgers.iter().rfind(|ledger| ledger.pid == job.pid && ledger.uid == job.uid);
    let ledger = ledger.unwrap_or_else(|| panic!("{job:?} took nothing of its node"));
    for gpu in &ledger.gpus {
        let most = if gpu.gpu == job.gpu { grant } else { 0 };
        assert!(gpu.held_peak <= most, "{} bytes on GPU {}: {job:?}", gpu.held_peak, gpu.gpu);
    }
    let begin = format!("slurm-{}.batch.", job.number);
    let mut files = fs::read_dir(slurm.path("work")).expect("work").flatten().map(|entry| entry.path());
    let file =
        files.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin)));
    let file = file.unwrap_or_else(|| panic!("{job:?} is not recorded"));
    let profile = Profile::open(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let peaks = profile.processes.iter().flat_map(|process| &process.state.accounts).map(|gpu| gpu.peak.0);
    assert_eq!(peaks.max(), Some(grant), "{job:?}");
}

#[test]
fn two_hundred_jobs_of_three_users_keep_to_their_grants_on_two_nodes() {
    const MEMORY: u64 = 4096;
    let Some(slurm) = cluster(4, MEMORY) else { return };
    let jobs = submit(&slurm, 200, MEMORY);
    slurm.until_none("all jobs have ended", || ());
    slurm.until("all are recorded", || slurm.all_recorders().is_empty());
    let jobs: Vec<Job> = jobs.into_iter().map(|submitted| job(&slurm, submitted)).collect();
    assert_packed(&jobs, MEMORY);
    jobs.iter().for_each(|job| assert_held(&slurm, job));
    let used: std::collections::BTreeSet<_> = jobs.iter().map(|job| (job.node, job.gpu)).collect();
    eprintln!("{} jobs on {} GPUs", jobs.len(), used.len());
    slurm.until_idle();
}

#[test]
fn slurm_packs_jobs_by_memory_as_by_hand() {
    let Some(slurm) = cluster(2, 1000) else { return };
    // A whole GPU, where no part of it is given to others.
    let whole = slurm.sbatch(&["--gres=gpu:1"], "touch there.$SLURM_JOB_ID; sleep 1000");
    let runs = |job: u32| slurm.path(&format!("work/there.{job}")).exists();
    slurm.until("the job with a GPU runs", || runs(whole));
    // Three of 300 MiB fit on each of the three other ones.
    let script = "touch there.$SLURM_JOB_ID; sleep 1000";
    let parts: Vec<u32> = (0..11).map(|_| slurm.sbatch(&["--gres=shard:300"], script)).collect();
    let running = || parts.iter().filter(|job| runs(**job)).count();
    slurm.until("nine of them run", || running() == 9);
    // What is left on a GPU goes to a smaller one, past those that wait.
    let small = slurm.sbatch(&["--gres=shard:100", "--time=1"], script);
    slurm.until("the small one runs", || runs(small));
    assert_eq!(running(), 9);
}
