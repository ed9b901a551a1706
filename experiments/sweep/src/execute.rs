//! Runs the groups of a plan: one after the other, each run by a supervisor of its own (`here`), or as jobs of radrmd
//! (`jobs`).

mod early;
mod halt;
mod here;
mod jobs;
mod open;
mod room;
mod several;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::attempt::{self, Attempt};
use crate::early::Judge;
use crate::error::SweepError;
use crate::folder::{Claim, Folder};
use crate::machine::{MigInstance, instances};
use crate::metrics;
use crate::plan::{Group, Plan, Stated};
use crate::radrmd::Radrmd;
use crate::radt::csv::{Status, write_status};
use crate::read::Source;
use crate::stop::Stop;
use crate::store::{Outcome, Recorded, State, Store};

pub use room::Gpu;

/// Between two looks at what runs.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time from SIGTERM to SIGKILL.
pub const GRACE: Duration = Duration::from_secs(10);

/// Options of a call that runs a sweep.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `radrm-run`.
    pub launcher: PathBuf,
    /// The program that becomes a supervisor when it is given an attempt's folder behind these words.
    pub supervisor: (PathBuf, Vec<String>),
    /// The machine's MIG instances; `None`: radrmd has them.
    pub instances: Option<Vec<MigInstance>>,
    /// Groups that the sweep itself runs at once, each on GPUs of its own; with 1 each sees all GPUs.
    pub jobs: usize,
    /// The machine's GPUs, for more than one.
    pub gpus: Vec<Gpu>,
    /// Groups that failed are run again.
    pub rerun: bool,
    /// Time from SIGTERM to SIGKILL.
    pub grace: Duration,
}

/// Event of a call, for the caller to show.
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

/// Outcome of a call.
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
    /// Keys of the runs that ended in this call.
    ended: BTreeSet<String>,
    /// Early stopping, if the sweep has a rule.
    judge: Option<Judge>,
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
        if let Some(all) = &options.instances {
            let checked = || source.plan.groups.iter().map(move |group| instances(group, all).map(|_| ()));
            // Rows of radT's that cannot run fail, and the others run.
            if !(source.is_radt() && checked().any(|checked| checked.is_ok())) {
                checked().collect::<Result<(), _>>()?;
            }
        }
        let folder = Folder::of(&source.path)?;
        folder.make()?;
        let claim = folder.claim()?;
        let mut store = Store::open(&folder.database())?;
        let is_left = |group: &&Group| !is_stated(group, options.rerun);
        store.adopt(source.plan.groups.iter().filter(is_left))?;
        store.run_on(source.plan.emulate.as_deref())?;
        let identity = folder.identity()?;
        let mut judge = source.plan.early.clone().map(Judge::new);
        if let Some(judge) = &mut judge {
            for run in store.runs_of(&source.plan)?.iter().filter(|run| run.attempt > 0) {
                let attempt = Attempt::at(folder.attempt(run.number, run.attempt));
                judge.read_all(&run.key, &attempt.file(metrics::FILE));
            }
        }
        Ok(Self {
            source,
            folder,
            identity,
            store,
            options,
            stop,
            ended: BTreeSet::new(),
            judge,
            statuses: Vec::new(),
            is_stale: false,
            is_changed: false,
            _claim: claim,
        })
    }

    /// Runs what is left to do: as jobs if radrmd takes the runs, else by itself. What an earlier call started in the other
    /// way is waited for.
    ///
    /// # Errors
    /// The state cannot be written, no supervisor can be started, or radrmd rejects what is asked of it.
    pub fn run(
        &mut self,
        radrmd: &mut Radrmd<'_>,
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Result<End, SweepError> {
        let source = self.source;
        if radrmd.takes_runs {
            jobs::check(self, radrmd)?;
            if self.settle_all(report)?.is_none() {
                return Ok(End::Interrupted);
            }
        }
        if jobs::run(self, radrmd, report)?.is_none() {
            return Ok(End::Interrupted);
        }
        if !radrmd.takes_runs && (self.settle_all(report)?.is_none() || self.run_here(report)?.is_none()) {
            return Ok(End::Interrupted);
        }
        self.write_table(report)?;
        let runs = self.store.runs_of(&source.plan)?;
        let failed = runs.iter().filter(|run| matches!(run.outcome.state, State::Failed | State::TimedOut));
        Ok(End::Over { failed: failed.count() + stated_failures(&source.plan, &runs) })
    }

    /// Waits for what an earlier call started by itself; `None` if that was interrupted.
    fn settle_all(&mut self, report: &mut dyn FnMut(&Event<'_>)) -> Result<Option<()>, SweepError> {
        for group in &self.source.plan.groups {
            if self.settle(group, report)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    /// Returns true if nothing is left to do of a group, and reports the group unless it ended in this call.
    fn skip(
        &mut self,
        group: &Group,
        keys: &[String],
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Result<bool, SweepError> {
        if keys.iter().any(|key| self.ended.contains(key)) {
            return Ok(true);
        }
        let runs = self.recorded(keys)?;
        if !self.is_over(&runs) {
            return Ok(false);
        }
        // Of an earlier call that was killed before the table was written.
        let outcomes: Vec<_> = runs.iter().map(|run| run.outcome.clone()).collect();
        self.note(group, &runs, &outcomes);
        report(&Event::Skipped { group });
        Ok(true)
    }

    /// Returns true if nothing is left to do of a group's runs.
    fn is_over(&self, runs: &[Recorded]) -> bool {
        let states = || runs.iter().map(|run| run.outcome.state);
        let has_failed = states().any(|state| matches!(state, State::Failed | State::TimedOut));
        // Without a row: the file states that it is over. With rows they count, and not the file.
        runs.is_empty() || states().all(State::is_over) && !(self.options.rerun && has_failed)
    }

    /// Waits for what an earlier call started of a group by itself. Gives whether the group ended by that, and `None` if
    /// that was interrupted.
    fn settle(
        &mut self,
        group: &Group,
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<bool>, SweepError> {
        let keys = group.keys();
        let runs = self.recorded(&keys)?;
        let is_here = |run: &Recorded| run.outcome.state == State::Started && run.submission.is_none();
        if !runs.iter().any(is_here) {
            return Ok(Some(false));
        }
        report(&Event::Adopted { group, runs: &runs });
        let Some(outcomes) = self.watch(&runs, &mut Vec::new(), report)? else {
            self.give_up(&keys)?;
            return Ok(None);
        };
        if let Some(outcomes) = outcomes.into_iter().collect::<Option<Vec<_>>>() {
            self.end(group, &runs, &outcomes, report)?;
            return Ok(Some(true));
        }
        // Some members have no result: the machine was restarted, or the group never passed its barrier.
        runs.iter().for_each(|run| attempt::kill_marked(&self.mark(run)));
        Ok(Some(false))
    }

    fn recorded(&self, keys: &[String]) -> Result<Vec<Recorded>, SweepError> {
        keys.iter().filter_map(|key| self.store.run(key).transpose()).collect()
    }

    fn attempt(&self, run: &Recorded) -> Attempt {
        Attempt::at(self.folder.attempt(run.number, run.attempt))
    }

    /// The group is to be run again: the next call does.
    fn give_up(&mut self, keys: &[String]) -> Result<(), SweepError> {
        self.store.reset(keys)
    }

    fn end(
        &mut self,
        group: &Group,
        runs: &[Recorded],
        outcomes: &[Outcome],
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Result<(), SweepError> {
        // What they logged after the last look counts for the runs that follow.
        for run in runs {
            let file = self.attempt(run).file(metrics::FILE);
            if let Some(judge) = &mut self.judge {
                judge.read_all(&run.key, &file);
            }
        }
        let keys: Vec<_> = runs.iter().map(|run| run.key.clone()).collect();
        self.store.finish(&keys, outcomes)?;
        self.ended.extend(keys);
        if let Some(first) = runs.first() {
            // It is as large as what its emulated GPUs hold.
            let _ = std::fs::remove_file(self.attempt(first).file("machine"));
        }
        self.note(group, runs, outcomes);
        self.write_table(report)?;
        report(&Event::Ended { group, outcomes });
        Ok(())
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

/// Returns true if a file states that a group is over.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Run;

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
    fn the_last_values_of_a_run_count_for_the_runs_that_follow() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        let text = "command = \"true {loss}\"\n[axes]\nloss = [0.5, 0.9]\n\
                    [early_stopping]\nrule = \"halving\"\nmetric = \"loss:min\"\n";
        std::fs::write(&path, text).unwrap();
        let source = crate::read::read(&path, dir.path()).unwrap();
        let options = Options {
            launcher: "radrm-run".into(),
            supervisor: ("false".into(), Vec::new()),
            instances: None,
            jobs: 1,
            gpus: Vec::new(),
            rerun: false,
            grace: GRACE,
        };
        let mut sweep = Sweep::open(&source, options, Stop::default()).unwrap();
        let start = |sweep: &mut Sweep<'_>, group: &Group, loss: &str| {
            sweep.store.start(&group.keys()).unwrap();
            let runs = sweep.recorded(&group.keys()).unwrap();
            let attempt = sweep.attempt(&runs[0]);
            attempt.make().unwrap();
            let line = format!("{{\"name\": \"loss\", \"value\": {loss}, \"step\": 1}}\n");
            std::fs::write(attempt.file(metrics::FILE), line).unwrap();
            runs
        };
        let [first, second] = source.plan.groups.as_slice() else { panic!("two runs that start alone") };
        // It ends before the sweep looks at it.
        let runs = start(&mut sweep, first, "0.5");
        let finished = Outcome { state: State::Finished, ..Outcome::default() };
        sweep.end(first, &runs, &[finished], &mut |_| {}).unwrap();
        let runs = start(&mut sweep, second, "0.9");
        sweep.stop = Stop::asked();
        assert!(sweep.given_up(&runs[0]).unwrap().is_none(), "the sweep itself ends");
        sweep.stop = Stop::default();
        let given_up = sweep.given_up(&runs[0]).unwrap().and_then(|attempt| attempt.given_up());
        assert_eq!(given_up.as_deref(), Some("its loss of 0.9 at step 1 is not the best of 2 runs"));
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
