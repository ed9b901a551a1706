//! Runs the groups of a plan one after the other, each run by a supervisor of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use radrm_os::pidfd;
use rustix::process::{Signal, pidfd_send_signal};

use crate::attempt::{Attempt, Barrier, Order, Standing};
use crate::error::SweepError;
use crate::figures;
use crate::folder::{Claim, Folder};
use crate::leftovers;
use crate::machine::{MigInstance, instances};
use crate::plan::{Collocation, Group, Plan, Run, Stated};
use crate::radt::csv::{Status, write_status};
use crate::read::Source;
use crate::stop::Stop;
use crate::store::{Outcome, Recorded, State, Store};

/// Between two looks at what runs.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Between two looks at members that come to the barrier: this long the first one waits for nothing.
const BARRIER_INTERVAL: Duration = Duration::from_millis(2);

/// A member that has not come to the barrier by then never will: it only has to be started.
const BARRIER_PATIENCE: Duration = Duration::from_secs(60);

/// Time from SIGTERM to SIGKILL.
pub const GRACE: Duration = Duration::from_secs(10);

/// How a sweep is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `radrm-run`.
    pub launcher: PathBuf,
    /// The program that becomes a supervisor when it is given an attempt's folder behind these words.
    pub supervisor: (PathBuf, Vec<String>),
    /// The machine's MIG instances.
    pub instances: Vec<MigInstance>,
    /// Groups that failed are run again.
    pub rerun: bool,
    /// Time from SIGTERM to SIGKILL.
    pub grace: Duration,
}

/// What happens, for the caller to show.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields are a group, its runs and its outcomes")]
pub enum Event<'e> {
    /// A group is over already, or was by what its file states.
    Skipped { group: &'e Group },
    /// A group has started.
    Started { group: &'e Group, runs: &'e [Recorded] },
    /// Attempts of an earlier call still run, and are waited for.
    Adopted { group: &'e Group, runs: &'e [Recorded] },
    /// A group is over.
    Ended { group: &'e Group, outcomes: &'e [Outcome] },
    /// A remark, one sentence.
    Remark(String),
    /// Time goes by.
    Tick,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All runs are over; so many of them did not finish.
    Over {
        /// Failed, or their time was over. A group that its file alone states as failed counts as one.
        failed: usize,
    },
    /// A signal asked for the end; the next call goes on.
    Interrupted,
}

/// A sweep that no other process runs.
pub struct Sweep<'s> {
    source: &'s Source,
    folder: Folder,
    /// Equal in every call, and different for every folder.
    identity: String,
    store: Store,
    options: Options,
    stop: Stop,
    statuses: Vec<Status>,
    /// Some of them are not in the table.
    is_stale: bool,
    /// The table is no longer the one that was read.
    is_changed: bool,
    // Falls last.
    _claim: Claim,
}

impl<'s> Sweep<'s> {
    /// Claims the sweep in a file and brings its state up to date.
    ///
    /// # Errors
    /// The state cannot be used, or another process runs the sweep.
    pub fn open(source: &'s Source, options: Options, stop: Stop) -> Result<Self, SweepError> {
        for group in &source.plan.groups {
            instances(group, &options.instances)?;
        }
        let folder = Folder::of(&source.path)?;
        folder.make()?;
        let claim = folder.claim()?;
        let mut store = Store::open(&folder.database())?;
        let is_left = |group: &&Group| !is_stated(group, options.rerun);
        store.adopt(source.plan.groups.iter().filter(is_left))?;
        store.run_on(source.plan.emulate.as_deref())?;
        let identity = folder.identity()?;
        Ok(Self {
            source,
            folder,
            identity,
            store,
            options,
            stop,
            statuses: Vec::new(),
            is_stale: false,
            is_changed: false,
            _claim: claim,
        })
    }

    /// Runs what is left to do.
    ///
    /// # Errors
    /// The state cannot be written, or no supervisor can be started.
    pub fn run(&mut self, report: &mut dyn FnMut(&Event<'_>)) -> Result<End, SweepError> {
        let source = self.source;
        for group in &source.plan.groups {
            if self.stop.count() > 0 {
                return Ok(End::Interrupted);
            }
            if self.group(group, report)?.is_none() {
                return Ok(End::Interrupted);
            }
        }
        self.write_table(report)?;
        let runs = self.store.runs_of(&source.plan)?;
        let failed = runs.iter().filter(|run| matches!(run.outcome.state, State::Failed | State::TimedOut));
        Ok(End::Over { failed: failed.count() + stated_failures(&source.plan, &runs) })
    }

    /// Brings a group to its end; `None` if that was interrupted.
    fn group(&mut self, group: &Group, report: &mut dyn FnMut(&Event<'_>)) -> Result<Option<()>, SweepError> {
        let keys = group.keys();
        let mut runs = self.recorded(&keys)?;
        let states = || runs.iter().map(|run| run.outcome.state);
        let has_failed = states().any(|state| matches!(state, State::Failed | State::TimedOut));
        let is_over = states().all(State::is_over) && !(self.options.rerun && has_failed);
        // Without a row: the file states that it is over. With rows they count, and not the file.
        if runs.is_empty() || is_over {
            // Of an earlier call that was killed before the table was written.
            let outcomes: Vec<_> = runs.iter().map(|run| run.outcome.clone()).collect();
            self.note(group, &runs, &outcomes);
            report(&Event::Skipped { group });
            return Ok(Some(()));
        }
        if states().any(|state| state == State::Started) {
            report(&Event::Adopted { group, runs: &runs });
            let found = self.watch(&runs, &mut Vec::new(), report);
            let Some(outcomes) = found else { return self.give_up(&keys) };
            if let Some(outcomes) = outcomes.into_iter().collect::<Option<Vec<_>>>() {
                return self.end(group, &runs, &outcomes, report);
            }
            // Some members have no result: the machine was restarted, or the group never passed its barrier.
            runs.iter().for_each(|run| leftovers::kill(&self.mark(run)));
        }
        self.store.start(&keys)?;
        runs = self.recorded(&keys)?;
        let Some(mut children) = self.start(group, &runs, report)? else { return self.give_up(&keys) };
        report(&Event::Started { group, runs: &runs });
        let Some(outcomes) = self.watch(&runs, &mut children, report) else { return self.give_up(&keys) };
        let outcomes: Vec<_> = outcomes
            .into_iter()
            .zip(&runs)
            .map(|(outcome, run)| {
                outcome.unwrap_or_else(|| {
                    leftovers::kill(&self.mark(run));
                    let reason = Some(
                        "its supervisor left no result: supervisor.log in its folder may say why".to_owned(),
                    );
                    Outcome { state: State::Failed, reason, ..Outcome::default() }
                })
            })
            .collect();
        self.end(group, &runs, &outcomes, report)
    }

    fn recorded(&self, keys: &[String]) -> Result<Vec<Recorded>, SweepError> {
        keys.iter().filter_map(|key| self.store.run(key).transpose()).collect()
    }

    fn attempt(&self, run: &Recorded) -> Attempt {
        Attempt::at(self.folder.attempt(run.number, run.attempt))
    }

    /// The group is to be run again: the next call does.
    fn give_up(&mut self, keys: &[String]) -> Result<Option<()>, SweepError> {
        self.store.reset(keys)?;
        Ok(None)
    }

    fn end(
        &mut self,
        group: &Group,
        runs: &[Recorded],
        outcomes: &[Outcome],
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<()>, SweepError> {
        let keys: Vec<_> = runs.iter().map(|run| run.key.clone()).collect();
        self.store.finish(&keys, outcomes)?;
        if let Some(first) = runs.first() {
            // It is as large as what its emulated GPUs hold.
            let _ = std::fs::remove_file(self.attempt(first).file("machine"));
        }
        self.note(group, runs, outcomes);
        self.write_table(report)?;
        report(&Event::Ended { group, outcomes });
        Ok(Some(()))
    }

    /// Starts the members of a group at once; `None` if that was interrupted.
    fn start(
        &self,
        group: &Group,
        runs: &[Recorded],
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<Vec<Child>>, SweepError> {
        let Some(first) = runs.first() else { return Ok(Some(Vec::new())) };
        let shared = self.attempt(first);
        let io = |path: PathBuf| move |source| SweepError::Io { path, source };
        let barrier = match runs.len() {
            0 | 1 => None,
            _ => {
                std::fs::create_dir_all(shared.folder()).map_err(io(shared.folder().to_owned()))?;
                let path = shared.file("barrier");
                Some((Barrier::close(&path).map_err(io(path.clone()))?, path))
            }
        };
        let mut children = Vec::new();
        let instances = instances(group, &self.options.instances)?;
        for (run, member) in members(group, runs) {
            let (planned, instance) = (&group.runs[member], instances[member].clone());
            let attempt = self.attempt(run);
            let mut order = Order {
                command: self.command(planned, &attempt, &shared),
                directory: planned.directory.clone(),
                environment: planned.environment.clone(),
                timeout_ms: planned.timeout_ms,
                grace_ms: self.options.grace.as_millis() as u64,
                barrier: barrier.as_ref().map(|(_, path)| path.clone()),
                mark: self.mark(run),
            };
            let devices = instance.unwrap_or_else(|| planned.devices.join(","));
            if !devices.is_empty() {
                order.environment.insert("CUDA_VISIBLE_DEVICES".to_owned(), devices);
            }
            let status = attempt.prepare(&order).map_err(io(attempt.folder().to_owned()))?;
            children.push(self.supervisor(&attempt, status)?);
        }
        let Some((barrier, path)) = barrier else { return Ok(Some(children)) };
        let since = Instant::now();
        loop {
            let has_come = |run: &Recorded| self.attempt(run).supervisor().is_some_and(|(_, waits)| waits);
            if runs.iter().all(has_come) {
                barrier.open().map_err(io(path))?;
                return Ok(Some(children));
            }
            let is_gone = runs.iter().any(|run| self.attempt(run).standing() != Standing::UnderWay);
            if self.stop.count() > 0 || is_gone || since.elapsed() > BARRIER_PATIENCE {
                // The lock falls, and those that wait end.
                drop(barrier);
                for child in &mut children {
                    let _ = child.wait();
                }
                if self.stop.count() == 0 {
                    report(&Event::Remark(format!("group {}: not all members could be started", group.name)));
                    return Ok(Some(children));
                }
                return Ok(None);
            }
            thread::sleep(BARRIER_INTERVAL);
        }
    }

    /// A supervisor that holds the lock of its attempt from its first moment on.
    fn supervisor(&self, attempt: &Attempt, status: std::fs::File) -> Result<Child, SweepError> {
        use std::os::unix::process::CommandExt;
        let (program, words) = &self.options.supervisor;
        let log = std::fs::File::create(attempt.file("supervisor.log"));
        let log = log.map_err(|source| SweepError::Io { path: attempt.folder().to_owned(), source })?;
        let mut command = Command::new(program);
        // Ctrl-C of the terminal is the sweep's alone.
        command.args(words).arg(attempt.folder()).process_group(0);
        command.stdin(Stdio::from(status)).stdout(Stdio::null()).stderr(log);
        command.spawn().map_err(|source| SweepError::Start { program: program.display().to_string(), source })
    }

    fn command(&self, run: &Run, attempt: &Attempt, shared: &Attempt) -> Vec<String> {
        let file = |attempt: &Attempt, name: &str| attempt.file(name).to_string_lossy().into_owned();
        let mut words = vec![self.options.launcher.to_string_lossy().into_owned(), "--quiet".to_owned()];
        let mut option = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
        option("-o", &file(attempt, "profile.radrm"));
        // A share of the running time below 0.5 %, for SM activity by the shape of launches.
        option("--kernels", "sample");
        if let Some(machine) = &run.emulate {
            option("--emulate", machine);
            option("--machine", &file(shared, "machine"));
        }
        if let Some(limit) = &run.mem_limit {
            option("--mem-limit", limit);
        }
        if let Some(share) = &run.sm_limit {
            option("--sm-limit", share);
        }
        if run.collocation == Collocation::Mps {
            words.push("--mps".to_owned());
        }
        words.push("--".to_owned());
        words.extend(run.words(&file(attempt, "profiler")));
        words
    }

    /// Waits until no attempt is under way; what came of each, or `None` if that was interrupted.
    fn watch(
        &self,
        runs: &[Recorded],
        children: &mut Vec<Child>,
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Option<Vec<Option<Outcome>>> {
        let mut sent = vec![0; runs.len()];
        loop {
            children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
            let standings: Vec<_> = runs.iter().map(|run| self.attempt(run).standing()).collect();
            if !standings.contains(&Standing::UnderWay) {
                for mut child in children.drain(..) {
                    let _ = child.wait();
                }
                let ended = |(standing, run): (Standing, &Recorded)| match standing {
                    Standing::Ended(ended) => {
                        Some(figures::outcome(&ended, &self.attempt(run).file("profile.radrm")))
                    }
                    Standing::UnderWay | Standing::Nothing => None,
                };
                let outcomes: Vec<_> = standings.into_iter().zip(runs).map(ended).collect();
                // A group that ended just before the signal is recorded.
                let is_whole = outcomes.iter().all(Option::is_some);
                return (is_whole || self.stop.count() == 0).then_some(outcomes);
            }
            let asked = self.stop.count().min(2);
            for (run, sent) in runs.iter().zip(&mut sent) {
                // A supervisor that cannot be asked yet is asked the next time.
                if *sent < asked && end(&self.attempt(run)) {
                    *sent += 1;
                }
            }
            report(&Event::Tick);
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Keeps what the column Status of a table is to say of a group.
    fn note(&mut self, group: &Group, runs: &[Recorded], outcomes: &[Outcome]) {
        for ((run, member), outcome) in members(group, runs).zip(outcomes) {
            let planned = &group.runs[member];
            let Some(row) = planned.row else { continue };
            let word = if outcome.state == State::Finished { "FINISHED" } else { "FAILED" };
            let letter = planned.name.rsplit(' ').next().unwrap_or_default();
            let status =
                Status { row, status: format!("{word} {} ({letter})", run.key), run: run.key.clone() };
            self.statuses.push(status);
            self.is_stale = true;
        }
    }

    /// Writes it.
    fn write_table(&mut self, report: &mut dyn FnMut(&Event<'_>)) -> Result<(), SweepError> {
        if !self.source.is_table() || self.is_changed || !self.is_stale {
            return Ok(());
        }
        match write_status(&self.source.path, &self.source.text, &self.statuses) {
            Err(error @ SweepError::Changed(_)) => {
                self.is_changed = true;
                report(&Event::Remark(error.to_string()));
                Ok(())
            }
            other => {
                self.is_stale = false;
                other
            }
        }
    }

    /// Identifies the processes of an attempt among all of the machine.
    fn mark(&self, run: &Recorded) -> String {
        format!("{}.{}.{}", self.identity, run.key, run.attempt)
    }
}

/// Whether a file states that a group is over.
fn is_stated(group: &Group, rerun: bool) -> bool {
    match group.stated {
        Stated::Finished => true,
        Stated::Failed => !rerun,
        Stated::Open => false,
    }
}

/// Groups that their file states as failed, and of which no run is recorded.
fn stated_failures(plan: &Plan, recorded: &[Recorded]) -> usize {
    let is_recorded = |group: &Group| {
        let keys = group.keys();
        recorded.iter().any(|run| keys.contains(&run.key))
    };
    plan.groups.iter().filter(|group| group.stated == Stated::Failed && !is_recorded(group)).count()
}

/// Recorded runs of a group, each with its place among the members. A member that is not recorded is left out.
fn members<'r>(group: &Group, runs: &'r [Recorded]) -> impl Iterator<Item = (&'r Recorded, usize)> + use<'r> {
    let keys = group.keys();
    runs.iter().filter_map(move |run| Some((run, keys.iter().position(|key| *key == run.key)?)))
}

/// Asks the supervisor of an attempt to end its program; gives whether it was there to be asked.
fn end(attempt: &Attempt) -> bool {
    let Some((supervisor, _)) = attempt.supervisor() else { return false };
    // The descriptor first: the number can be another process's by now, and the descriptor cannot.
    let Ok(handle) = pidfd::open(supervisor.pid) else { return false };
    supervisor.lives() && pidfd_send_signal(&handle, Signal::TERM).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use radrm_os::ProcessIdentity;

    use super::*;

    #[test]
    fn a_supervisor_is_asked_only_once_its_process_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = Attempt::at(dir.path().join("1"));
        let _status = attempt.prepare(&Order::default()).unwrap();
        assert!(!end(&attempt), "it has not said yet which process it is");
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        let says = |start: u64| std::fs::write(attempt.file("status"), format!("{} {start}\n", child.id()));
        says(identity.start + 1).unwrap();
        assert!(!end(&attempt), "another process has its number");
        says(identity.start).unwrap();
        assert!(end(&attempt));
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        assert!(!end(&attempt));
    }

    fn group(name: &str, stated: Stated, programs: &[&str]) -> Group {
        let run = |name: &&str| Run { command: vec![(*name).into()], ..Run::default() };
        Group { name: name.into(), runs: programs.iter().map(run).collect(), stated }
    }

    #[test]
    fn members_are_found_by_their_keys() {
        let group = group("g", Stated::Open, &["a", "b", "c"]);
        let recorded = |key: &str| Recorded { key: key.into(), ..Recorded::default() };
        let keys = group.keys();
        let runs = [recorded(&keys[2]), recorded("other"), recorded(&keys[1])];
        let places: Vec<_> = members(&group, &runs).map(|(run, at)| (run.key.clone(), at)).collect();
        assert_eq!(places, [(keys[2].clone(), 2), (keys[1].clone(), 1)]);
    }

    #[test]
    fn groups_that_only_their_file_states_as_failed_count() {
        let groups = [
            group("1", Stated::Failed, &["a", "b"]),
            group("2", Stated::Failed, &["c"]),
            group("3", Stated::Finished, &["d"]),
        ];
        let recorded = Recorded { key: groups[1].keys().remove(0), ..Recorded::default() };
        let plan = Plan { groups: groups.into(), ..Plan::default() };
        assert_eq!(stated_failures(&plan, &[recorded]), 1);
        assert_eq!(stated_failures(&plan, &[]), 2);
    }
}
