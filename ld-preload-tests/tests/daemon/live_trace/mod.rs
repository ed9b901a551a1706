//! Sixty jobs of a published trace through `radrmd`, as real processes under the shim on four emulated GPUs, while
//! the daemon is killed, jobs are killed, the disk is full and one user meddles with another's jobs. In the end
//! every job ended as it should, no job held more than its limit, and a replay of the daemon's events takes the
//! decisions that the daemon took.

mod checks;
mod incidents;
mod trace;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use incidents::{Disk, Marks, kill, meddle};
use radrm_preload_tests::{
    node::{Daemon, may},
    random::Random,
};
use serde_json::Value;
use trace::Planned;

/// Two users with an account on every machine, where the test may be them.
const USERS: [u32; 2] = [65_534, 1];

/// Something that goes wrong once so many jobs are over.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Incident {
    KillDaemon,
    KillJob,
    Meddle,
    FullDisk,
}

use Incident::{FullDisk, KillDaemon, KillJob, Meddle};

const INCIDENTS: [(usize, Incident); 12] = [
    (2, Meddle),
    (4, KillJob),
    (6, KillDaemon),
    (9, KillJob),
    (11, FullDisk),
    (13, KillJob),
    (17, KillDaemon),
    (20, Meddle),
    (22, KillJob),
    (26, KillDaemon),
    (28, KillJob),
    (30, Meddle),
];

struct Live {
    daemon: Daemon,
    disk: Option<Disk>,
    two_users: bool,
    program: String,
    random: Random,
    planned: Vec<Planned>,
    /// Index of the planned job by its number.
    numbers: BTreeMap<u64, usize>,
    killed: BTreeSet<u64>,
    refused: usize,
}

impl Live {
    fn new(scale: u32) -> Self {
        // Times of the scheduler's order are of the trace's size.
        let minutes = |minutes: u64| minutes * 60_000 / u64::from(scale);
        let config = format!(
            "emulate = \"4xA100-40GB\"\nevents = \"PLACE/state/events.jsonl\"\n[scheduler]\nlearn_after = {}\n\
             [scheduler.order]\naging = {}\nshortest_most = {}\n[scheduler.order.fair]\nhalf_life = {}\nmost = {}\n",
            minutes(10),
            minutes(60),
            minutes(100),
            minutes(24 * 60),
            minutes(8 * 60)
        );
        let mut daemon = Daemon::prepare(&config);
        let file = daemon.path("config.toml");
        let text = fs::read_to_string(&file).expect("configuration");
        fs::write(&file, text.replace("PLACE", &daemon.place().display().to_string()))
            .expect("configuration");
        let marks = daemon.path("marks");
        fs::write(&marks, "").expect("marks");
        fs::set_permissions(&marks, fs::Permissions::from_mode(0o666)).expect("mode");
        let disk = may(&["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"])
            .then(|| Disk::mount(daemon.place()));
        if let Some(disk) = &disk {
            daemon.enter(disk.pid());
        }
        let two_users = may(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "true"])
            && may(&["getent", "passwd", "65534"])
            && may(&["getent", "passwd", "1"]);
        let program = incidents::program(&daemon);
        daemon.start();
        let seed: u64 = std::time::UNIX_EPOCH.elapsed().expect("time").subsec_nanos().into();
        eprintln!("seed {seed}");
        for (there, what) in [(disk.is_some(), "a full disk"), (two_users, "a second user")] {
            if !there {
                eprintln!("skipped here: {what}");
            }
        }
        Self {
            daemon,
            disk,
            two_users,
            program,
            random: Random(seed | 1),
            planned: trace::planned(scale),
            numbers: BTreeMap::new(),
            killed: BTreeSet::new(),
            refused: 0,
        }
    }

    fn user(&self, planned: &Planned) -> Option<u32> {
        self.two_users.then(|| USERS[usize::from(planned.second)])
    }

    /// Path at which a file of the daemon's state is seen from here.
    fn state(&self, name: &str) -> PathBuf {
        let path = self.daemon.path("state").join(name);
        self.disk.as_ref().map_or(path.clone(), |disk| disk.path(&path))
    }

    /// Submits a job; false if it was refused.
    fn submit(&mut self, at: usize) -> bool {
        let planned = &self.planned[at];
        let millis = planned.length.as_millis();
        let mut words = vec!["submit", "--quiet", "--name", &planned.name];
        let (gpus, expected) = (planned.gpus.to_string(), format!("{millis}ms"));
        let said = planned.said_mib.map(|mib| format!("{mib}MiB"));
        words.extend(["--gpus", &gpus, "--expected", &expected]);
        if let Some(said) = &said {
            words.extend(["--gpu-mem", said]);
        }
        let marks = self.daemon.path("marks").display().to_string();
        let figures =
            [planned.mib, u64::try_from(millis).expect("a time"), planned.kernels].map(|n| n.to_string());
        let code = planned.code.to_string();
        words.extend(["--", &self.program, &marks, &figures[0], &figures[1], &figures[2], &code]);
        let mut command = match self.user(planned) {
            Some(user) => self.daemon.client_of(user, &words),
            None => self.daemon.client(&words),
        };
        command.env("RADRM_EMULATOR_KERNEL_TIMES", self.daemon.path("times"));
        let done = command.output().expect("radrm");
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(said.contains("kept for the jobs that are there"), "{said}{}", self.daemon.log());
            self.refused += 1;
            return false;
        }
        let number = String::from_utf8_lossy(&done.stdout).trim().parse().expect("a number");
        assert_eq!(self.numbers.insert(number, at), None);
        true
    }

    /// Jobs that are over as far as their programs tell.
    fn over(&self, marks: &Marks) -> usize {
        let ended: BTreeSet<u64> = marks.ended.iter().map(|(job, _)| *job).collect();
        ended.union(&self.killed).count()
    }

    /// Lets it go wrong; false if it cannot now.
    fn happen(&mut self, incident: Incident, marks: &Marks) -> bool {
        match incident {
            KillDaemon => {
                self.daemon.kill();
                thread::sleep(Duration::from_millis(self.random.below(700)));
                self.daemon.start();
            }
            KillJob => {
                // One of the longest: its end is sure to be this one.
                let left = |job: u64| self.planned[self.numbers[&job]].length;
                let honest = |job: u64| !self.planned[self.numbers[&job]].liar && !self.killed.contains(&job);
                let known = marks.running().filter(|mark| self.numbers.contains_key(&mark.job));
                let mut victims: Vec<_> = known.filter(|mark| honest(mark.job)).collect();
                victims.sort_by_key(|mark| std::cmp::Reverse(left(mark.job)));
                victims.truncate(4);
                if victims.is_empty() {
                    return false;
                }
                let victim = self.random.one_of(&victims).clone();
                if !kill(&victim) {
                    return false;
                }
                self.killed.insert(victim.job);
            }
            Meddle if self.two_users => {
                let Some(mark) = marks.running().find(|mark| self.numbers.contains_key(&mark.job)) else {
                    return false;
                };
                let second = self.planned[self.numbers[&mark.job]].second;
                meddle(&self.daemon, USERS[usize::from(!second)], mark.job);
            }
            FullDisk => {
                let Some(disk) = &self.disk else { return true };
                // What a refused request left has to be on disk.
                let liar = self.numbers.iter().find(|(_, at)| self.planned[**at].liar).map(|(job, _)| *job);
                if !liar.is_some_and(|job| marks.ended.iter().any(|(ended, _)| *ended == job)) {
                    return false;
                }
                disk.fill(&self.daemon);
                self.daemon.until("a job is refused", |daemon| {
                    let done = daemon.output(&["submit", "--gpus", "0", "--hold", "--", "true"]);
                    let said = String::from_utf8_lossy(&done.stderr);
                    // One that got through in the last free page is not of the trace.
                    let number =
                        String::from_utf8_lossy(&done.stdout).split_whitespace().nth(1).map(str::to_owned);
                    if let Some(number) = number {
                        daemon.ok(&["cancel", &number]);
                    }
                    said.contains("kept for the jobs that are there")
                });
                self.refused += 1;
                thread::sleep(Duration::from_millis(1500));
                disk.free(&self.daemon);
            }
            Meddle => {}
        }
        true
    }

    /// Submits all jobs when their time comes, and lets happen what has to.
    fn run(&mut self) -> Duration {
        let begun = Instant::now();
        let mut next = 0;
        let mut incidents = VecDeque::from(INCIDENTS);
        let mut checked = Instant::now();
        let last = self.planned.last().map(|job| job.arrival).unwrap_or_default();
        let work: Duration = self.planned.iter().map(|job| job.length).sum();
        let most = Duration::from_secs(300) + last + work;
        loop {
            while next < self.planned.len()
                && begun.elapsed() >= self.planned[next].arrival
                && self.submit(next)
            {
                next += 1;
            }
            let marks = Marks::read(&self.daemon);
            let over = self.over(&marks);
            // One that cannot be now does not keep the others.
            let due = (0..incidents.len()).find(|at| {
                let (after, incident) = incidents[*at];
                over >= after && self.happen(incident, &marks)
            });
            if let Some(at) = due {
                incidents.remove(at);
            } else if over == self.planned.len() {
                // On a slow machine jobs may be over before all of them could be killed or meddled with.
                eprintln!("not any more: {incidents:?}");
                return begun.elapsed();
            }
            if checked.elapsed() > Duration::from_secs(3) {
                checked = Instant::now();
                self.nothing_odd(&marks);
            }
            assert!(
                begun.elapsed() < most,
                "{}",
                self.daemon.ok(&["queue", "--all", "--why", "--ended", "100"])
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// No job is over whose program did not say so.
    fn nothing_odd(&self, marks: &Marks) {
        let before: BTreeSet<u64> =
            marks.ended.iter().map(|(job, _)| *job).chain(self.killed.clone()).collect();
        for (job, row) in checks::rows(&self.daemon).iter().filter(|(_, row)| row["state"] == "ended") {
            if self.numbers.contains_key(job) && !before.contains(job) {
                let now = Marks::read(&self.daemon);
                assert!(
                    now.ended.iter().any(|(ended, _)| ended == job),
                    "{row}\n{}\n{}",
                    self.daemon.show(*job)["history"],
                    fs::read_to_string(self.state(&format!("jobs/{job}/output"))).unwrap_or_default()
                );
            }
        }
    }

    fn check(&mut self, took: Duration) {
        for job in self.numbers.keys() {
            self.daemon.end(*job);
        }
        let all = checks::rows(&self.daemon);
        let marks = Marks::read(&self.daemon);
        let mut rows: BTreeMap<u64, Value> = BTreeMap::new();
        let (mut ooms, mut sure) = (0, 0);
        for (job, at) in &self.numbers {
            let (row, planned) = (all[job].clone(), &self.planned[*at]);
            let attempts = 1 + u32::from(planned.liar);
            assert_eq!(row["attempts"], attempts, "{row}\n{}", self.daemon.show(*job)["history"]);
            assert_eq!(row["ooms"], attempts - 1, "{row}");
            ooms += attempts - 1;
            let finished = marks.ended.contains(&(*job, attempts));
            if self.killed.contains(job) && !finished {
                sure += 1;
                assert_eq!(
                    (&row["exit_code"], &row["end"]),
                    (&137.into(), &"killed by SIGKILL".into()),
                    "{row}"
                );
            } else {
                // One that was killed behind its last line may have been too late for it.
                let late = self.killed.contains(job) && row["exit_code"] == 137;
                assert!(
                    late || row["exit_code"] == planned.code,
                    "{row}\n{}",
                    self.daemon.show(*job)["history"]
                );
            }
            rows.insert(*job, row);
        }
        assert!(sure >= 3, "of {} killed jobs {sure} were killed in their middle", self.killed.len());
        let log = self.state("events.jsonl");
        // Others came through as the disk filled up.
        let mut replayed = checks::replay(&log);
        replayed.ends.retain(|job, _| self.numbers.contains_key(job));
        assert_eq!(replayed.daemons, 4);
        let nodes: Value = serde_json::from_str(&self.daemon.ok(&["nodes", "--json"])).expect("JSON");
        assert_eq!(nodes["issues"], Value::Array(Vec::new()));
        checks::decided_is_done(&replayed, &marks, &rows);
        let (over, seen) = checks::over_quota(&self.state("machine"), &replayed, &marks);
        assert_eq!(over, 0, "bytes beyond limits");
        // One that was killed may not have come as far as its GPU.
        assert!(seen + self.killed.len() >= marks.by_attempt().len(), "{seen}");
        // Runs of the program of which nothing was said learnt from each other.
        let unsaid = |job: &u64| self.planned[self.numbers[job]].said_mib.is_none();
        let own: Vec<_> = replayed.starts.iter().filter(|((job, _), _)| unsaid(job)).collect();
        assert!(own.iter().any(|(_, start)| start.reserved.is_none()), "{own:?}");
        assert!(own.iter().any(|(_, start)| start.reserved.is_some()), "{own:?}");
        let told = checks::told(&log);
        eprintln!(
            "{} jobs in {:.1} s: {ooms} out of memory, {sure} killed, {} refused while the disk was full, {seen} \
             programs with 0 bytes beyond their limits\n{told}",
            rows.len(),
            took.as_secs_f64(),
            self.refused
        );
        if self.disk.is_some() {
            assert!(self.refused > 0);
        }
    }
}

fn live(scale: u32) {
    let mut live = Live::new(scale);
    let took = live.run();
    live.check(took);
}

#[test]
fn sixty_jobs_of_a_trace_end_as_they_should_whatever_goes_wrong() {
    live(1000);
}

/// The same at 1/100 of the trace's time, about three minutes:
/// `cargo nextest run -p radrm-preload-tests -E 'test(/^live_trace::/)' --run-ignored only --no-capture`
#[test]
#[ignore = "takes three minutes"]
fn sixty_jobs_of_a_trace_at_a_hundredth_of_its_time() {
    live(100);
}
