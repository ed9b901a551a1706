//! Runs that are jobs of radrmd.
//!
//! A job is submitted held, its number is recorded, and it is released then (see [`crate::store`]). All that is asked of the
//! daemon can be asked again, so a daemon that goes away is waited for, and so does a sweep that was killed go on.

use std::collections::{BTreeSet, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

use radrm_protocol::ProtocolError;
use radrm_protocol::wire::JobRow;
use radrm_scheduler_core::Verdict;

use super::{Event, Sweep};
use crate::attempt::{OUTPUT, PROFILE};
use crate::error::SweepError;
use crate::plan::{Group, Run};
use crate::radrmd::Radrmd;
use crate::store::{Outcome, Recorded, State, Submission};
use crate::{figures, job};

/// Jobs of a sweep that wait or run at the same time: more than a machine runs, and few enough to be listed often.
const MAX_OPEN: usize = 100;

/// Between two lists of jobs, at least.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Between two looks at the signals.
const TICK: Duration = Duration::from_millis(50);

/// A list that takes its time is asked for less often: it is this part of the daemon's time at most.
const PART_OF_TIME: u32 = 20;

/// Whether radrmd can run all that is left to do.
pub(super) fn check(sweep: &Sweep<'_>, radrmd: &Radrmd<'_>) -> Result<(), SweepError> {
    for group in &sweep.source.plan.groups {
        if sweep.is_over(&sweep.recorded(&group.keys())?) {
            continue;
        }
        job::check(group).map_err(|why| SweepError::NotAJob { group: group.name.clone(), why })?;
        for run in &group.runs {
            radrmd.specify(run, "".as_ref())?;
        }
    }
    Ok(())
}

/// Brings the jobs of an earlier call to their end and, if radrmd takes runs, all other groups; `None` if that was
/// interrupted.
pub(super) fn run(
    sweep: &mut Sweep<'_>,
    radrmd: &mut Radrmd<'_>,
    report: &mut dyn FnMut(&Event<'_>),
) -> Result<Option<()>, SweepError> {
    let source = sweep.source;
    let (mut left, mut open, mut seen) = (VecDeque::new(), Vec::new(), BTreeSet::new());
    for group in &source.plan.groups {
        let runs = sweep.recorded(&group.keys())?;
        let submission = match runs.as_slice() {
            [run] if run.outcome.state == State::Started => run.submission.clone(),
            _ => None,
        };
        match (group.runs.as_slice(), runs.into_iter().next(), submission) {
            ([run], Some(recorded), Some(submission)) if seen.insert(recorded.key.clone()) => {
                open.push(Open { group, run, recorded, submission, was_released: false, runs: false });
            }
            ([run], Some(_), None) if radrmd.takes_runs => {
                let keys = group.keys();
                if !sweep.skip(group, &keys, report)? && seen.insert(keys.concat()) {
                    left.push_back((group, run));
                }
            }
            // Their file states that they are over.
            _ if radrmd.takes_runs => {
                sweep.skip(group, &group.keys(), report)?;
            }
            _ => {}
        }
    }
    if left.is_empty() && open.is_empty() {
        return Ok(Some(()));
    }
    // The first question is not asked again: there may be no daemon.
    if let Err(why) = radrmd.open_jobs() {
        let count = open.len();
        return Err(match why.is_absent() && count > 0 {
            true => SweepError::Absent { count, why },
            false => SweepError::Radrmd(why),
        });
    }
    remark(&left, open.len(), report);
    let strays = open.iter().filter(|one| one.submission.job.is_none());
    let strays = strays.map(|one| one.submission.tag.clone()).collect();
    Jobs {
        sweep,
        radrmd,
        left,
        open,
        strays,
        is_away: false,
        is_full: false,
        said_later: false,
        is_withdrawn: false,
    }
    .run(report)
}

/// What the user had better know before.
fn remark(left: &VecDeque<Member<'_>>, adopted: usize, report: &mut dyn FnMut(&Event<'_>)) {
    let mut say = |text: String| report(&Event::Remark(text));
    if adopted > 0 {
        say(format!(
            "{} of an earlier call: waiting for {}",
            jobs(adopted),
            if adopted == 1 { "it" } else { "them" }
        ));
    }
    if !left.is_empty() {
        say(format!("{} for radrmd; `--through self` runs the sweep without it", jobs(left.len())));
    }
    if left.iter().any(|(_, run)| !run.devices.is_empty()) {
        say("radrmd chooses the GPUs: a job gets as many as `devices` names".to_owned());
    }
}

/// `1 job`, `2 jobs`.
fn jobs(count: usize) -> String {
    format!("{count} job{}", if count == 1 { "" } else { "s" })
}

/// A group of one run.
type Member<'p> = (&'p Group, &'p Run);

/// A run that is a job, or about to be one.
struct Open<'p> {
    group: &'p Group,
    run: &'p Run,
    recorded: Recorded,
    submission: Submission,
    /// In this call: a user who holds the job later means it.
    was_released: bool,
    /// It was seen to run.
    runs: bool,
}

/// What becomes of an open job in a turn.
enum Next {
    Stays,
    /// It is over, or not a job any more.
    Leaves,
    /// It is to be run as another job.
    Again,
}

/// Why a turn ended early.
enum Halt {
    /// No daemon answers, or it cannot at the moment.
    Away(ProtocolError),
    Failed(SweepError),
}

impl From<ProtocolError> for Halt {
    fn from(why: ProtocolError) -> Self {
        if why.is_absent() || matches!(why, ProtocolError::Later(_)) {
            Self::Away(why)
        } else {
            Self::Failed(SweepError::Radrmd(why))
        }
    }
}

impl From<SweepError> for Halt {
    fn from(why: SweepError) -> Self {
        Self::Failed(why)
    }
}

struct Jobs<'j, 's, 'd, 'p> {
    sweep: &'j mut Sweep<'s>,
    radrmd: &'j mut Radrmd<'d>,
    left: VecDeque<Member<'p>>,
    open: Vec<Open<'p>>,
    /// Tags of attempts that may have been submitted without an answer. A job of such an attempt that is not the recorded
    /// one is held, and cancelled where it turns up.
    strays: BTreeSet<String>,
    is_away: bool,
    /// radrmd took no further job in this turn.
    is_full: bool,
    /// The user knows that radrmd rejects requests for now.
    said_later: bool,
    /// A signal came, and the jobs are cancelled.
    is_withdrawn: bool,
}

impl<'p> Jobs<'_, '_, '_, 'p> {
    fn run(mut self, report: &mut dyn FnMut(&Event<'_>)) -> Result<Option<()>, SweepError> {
        loop {
            let asked = self.sweep.stop.count();
            if asked > 0 && (self.is_away || asked > 1) {
                self.leave(report);
                return Ok(None);
            }
            let begun = Instant::now();
            match self.turn(asked > 0, report) {
                Ok(()) => {}
                Err(Halt::Failed(why)) => return Err(why),
                Err(Halt::Away(why)) if !self.is_away => {
                    self.is_away = true;
                    let what = if why.is_absent() { "went away" } else { "cannot answer" };
                    let text = format!("radrmd {what}: its jobs go on, and the sweep waits for it ({why})");
                    report(&Event::Remark(text));
                }
                Err(Halt::Away(_)) => {}
            }
            if self.open.is_empty() && (self.left.is_empty() || self.is_withdrawn) {
                return Ok((!self.is_withdrawn).then_some(()));
            }
            self.pause(begun.elapsed(), asked, report);
        }
    }

    /// Lets time go by, until a new signal at most.
    fn pause(&self, took: Duration, asked: usize, report: &mut dyn FnMut(&Event<'_>)) {
        let until = Instant::now() + POLL_INTERVAL.max(took * PART_OF_TIME);
        while Instant::now() < until && self.sweep.stop.count() == asked {
            report(&Event::Tick);
            thread::sleep(TICK);
        }
    }

    /// The jobs stay with radrmd, and the next call waits for them.
    fn leave(&self, report: &mut dyn FnMut(&Event<'_>)) {
        if !self.open.is_empty() {
            let text = format!("{} left with radrmd: the next call waits for them", jobs(self.open.len()));
            report(&Event::Remark(text));
        }
    }

    /// Asks the daemon for all jobs once, and does what follows.
    fn turn(&mut self, is_asked: bool, report: &mut dyn FnMut(&Event<'_>)) -> Result<(), Halt> {
        if is_asked && !self.is_withdrawn {
            self.withdraw()?;
        }
        let rows = self.radrmd.open_jobs()?;
        if std::mem::take(&mut self.is_away) {
            report(&Event::Remark("radrmd answers again".to_owned()));
        }
        self.cancel_strays(&rows)?;
        self.is_full = false;
        let mut at = 0;
        while at < self.open.len() {
            match self.look(at, &rows, report)? {
                Next::Stays => at += 1,
                Next::Leaves => {
                    self.open.remove(at);
                }
                Next::Again => {
                    let one = self.open.remove(at);
                    self.left.push_front((one.group, one.run));
                }
            }
        }
        while !is_asked && self.radrmd.takes_runs && !self.is_full && self.open.len() < MAX_OPEN {
            let Some((group, run)) = self.left.pop_front() else { break };
            let one = self.begin(group, run)?;
            self.open.push(one);
            let at = self.open.len() - 1;
            if let Next::Leaves = self.submit(at, report)? {
                self.open.remove(at);
            }
        }
        if !self.radrmd.takes_runs {
            // The sweep itself starts them when the others are over.
            self.left.clear();
        }
        Ok(())
    }

    /// Cancels what is submitted. What may have been submitted is held, and found by the next call.
    fn withdraw(&mut self) -> Result<(), Halt> {
        self.open.retain(|one| one.submission.job.is_some());
        let keys: Vec<_> = self.open.iter().map(|one| one.recorded.key.clone()).collect();
        // On disk before: a job that is cancelled by this is no failure.
        self.sweep.store.withdraw(&keys)?;
        self.open.iter_mut().for_each(|one| one.submission.withdrawn = true);
        let jobs: Vec<_> = self.open.iter().filter_map(|one| one.submission.job).collect();
        if !jobs.is_empty() {
            self.radrmd.cancel(&jobs)?;
        }
        self.is_withdrawn = true;
        Ok(())
    }

    /// Cancels jobs that were submitted without an answer, and in whose place others were submitted.
    fn cancel_strays(&mut self, rows: &[JobRow]) -> Result<(), Halt> {
        let is_stray = |row: &&JobRow| {
            let tag = self.strays.iter().find(|tag| job::is_of(row, tag));
            let own = tag.and_then(|tag| self.open.iter().find(|one| one.submission.tag == *tag));
            // As long as no number is recorded, it may be the one.
            tag.is_some() && own.is_none_or(|own| own.submission.job.is_some_and(|job| job != row.job))
        };
        let strays: Vec<u64> = rows.iter().filter(is_stray).map(|row| row.job).collect();
        if strays.is_empty() { Ok(()) } else { Ok(self.radrmd.cancel(&strays)?) }
    }

    /// An attempt that is on disk and not submitted.
    fn begin(&mut self, group: &'p Group, run: &'p Run) -> Result<Open<'p>, SweepError> {
        let spec = self.radrmd.specify(run, "".as_ref())?;
        let keys = group.keys();
        for key in &keys {
            self.sweep.store.submit(key, !spec.exclusive)?;
        }
        let recorded = self.sweep.recorded(&keys)?.into_iter().next().unwrap_or_default();
        let submission = recorded.submission.clone().unwrap_or_default();
        Ok(Open { group, run, recorded, submission, was_released: false, runs: false })
    }

    /// Submits an attempt, records the job's number, and releases the job.
    fn submit(&mut self, at: usize, report: &mut dyn FnMut(&Event<'_>)) -> Result<Next, Halt> {
        let Some(one) = self.open.get_mut(at) else { return Ok(Next::Stays) };
        let attempt = self.sweep.attempt(&one.recorded);
        // Here and not where the attempt begins: a sweep that is killed in between has it on disk without a folder.
        attempt.make().map_err(|source| SweepError::Io { path: attempt.folder().to_owned(), source })?;
        let mut spec = self.radrmd.specify(one.run, &attempt.file("profiler"))?;
        spec.name = job::name(&one.run.name, &one.submission.tag);
        spec.output = Some(attempt.file(OUTPUT));
        spec.held = true;
        match self.radrmd.submit(spec) {
            Ok((job, remarks)) => {
                self.sweep.store.submitted(&one.recorded.key, job)?;
                one.submission.job = Some(job);
                for text in remarks {
                    report(&Event::Remark(format!("{}: {text}", one.run.name)));
                }
                self.release(at, job, report)?;
                Ok(Next::Stays)
            }
            Err(ProtocolError::Refused(text)) => {
                let reason = Some(format!("radrmd rejects its job: {text}"));
                let outcome = Outcome { state: State::Failed, reason, ..Outcome::default() };
                let (group, recorded) = (one.group, one.recorded.clone());
                self.sweep.end(group, &[recorded], &[outcome], report)?;
                Ok(Next::Leaves)
            }
            // It stays without a job, and is submitted in the next turn.
            Err(why @ ProtocolError::Later(_)) => {
                self.is_full = true;
                self.or_later::<()>(Err(why), report)?;
                Ok(Next::Stays)
            }
            Err(why) => {
                if why.is_lost() {
                    self.strays.insert(one.submission.tag.clone());
                }
                Err(why.into())
            }
        }
    }

    /// Lets a job start. Asked again until radrmd has it on disk: after a restart the job would be held otherwise.
    fn release(&mut self, at: usize, job: u64, report: &mut dyn FnMut(&Event<'_>)) -> Result<(), Halt> {
        let answer = self.radrmd.release(job);
        let answer = self.or_later(answer, report)?;
        if let Some(one) = self.open.get_mut(at) {
            one.was_released = answer.unwrap_or(false);
        }
        Ok(())
    }

    /// An answer, or `None` where the same request may be accepted in a later turn; the user hears of it once.
    fn or_later<T>(
        &mut self,
        answer: Result<T, ProtocolError>,
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<T>, Halt> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(ProtocolError::Later(text)) => {
                if !std::mem::replace(&mut self.said_later, true) {
                    let text = format!("radrmd rejects requests for now, and the sweep tries again: {text}");
                    report(&Event::Remark(text));
                }
                Ok(None)
            }
            Err(why) => Err(why.into()),
        }
    }

    /// Looks at an open run in the list of the user's open jobs.
    fn look(&mut self, at: usize, rows: &[JobRow], report: &mut dyn FnMut(&Event<'_>)) -> Result<Next, Halt> {
        let Some(one) = self.open.get_mut(at) else { return Ok(Next::Stays) };
        let tag = one.submission.tag.as_str();
        let is_own =
            |row: &&JobRow| job::is_of(row, tag) && one.submission.job.is_none_or(|job| job == row.job);
        let found = rows.iter().find(is_own);
        match (one.submission.job, found) {
            (_, Some(row)) => {
                if one.submission.job.is_none() {
                    self.sweep.store.submitted(&one.recorded.key, row.job)?;
                    one.submission.job = Some(row.job);
                }
                if job::has_started(row) && !one.runs {
                    one.runs = true;
                    let runs = std::slice::from_ref(&one.recorded);
                    report(&Event::Started { group: one.group, runs });
                }
                if !one.was_released {
                    self.release(at, row.job, report)?;
                }
                Ok(Next::Stays)
            }
            // It was not submitted.
            (None, None) if self.radrmd.takes_runs => self.submit(at, report),
            (None, None) => self.again(at),
            (Some(job), None) => {
                let tag = tag.to_owned();
                let answer = self.radrmd.job(job);
                let Some(row) = self.or_later(answer, report)? else { return Ok(Next::Stays) };
                match row.filter(|row| job::is_of(row, &tag)) {
                    Some(row) if row.end.is_some() => self.end(at, &row, report),
                    // It was submitted after the list was made.
                    Some(_) => Ok(Next::Stays),
                    None if self.sweep.options.rerun => self.again(at),
                    None => {
                        let run = self.open.get(at).map(|one| one.run.name.clone()).unwrap_or_default();
                        Err(SweepError::UnknownJob { run, job }.into())
                    }
                }
            }
        }
    }

    /// The attempt is over without a result.
    fn again(&mut self, at: usize) -> Result<Next, Halt> {
        if let Some(one) = self.open.get(at) {
            self.sweep.store.reset(std::slice::from_ref(&one.recorded.key))?;
        }
        Ok(if self.is_withdrawn { Next::Leaves } else { Next::Again })
    }

    /// A job is over.
    fn end(&mut self, at: usize, row: &JobRow, report: &mut dyn FnMut(&Event<'_>)) -> Result<Next, Halt> {
        let Some(one) = self.open.get(at) else { return Ok(Next::Stays) };
        if one.submission.withdrawn && row.verdict == Some(Verdict::Cancelled) {
            return self.again(at);
        }
        let attempt = self.sweep.attempt(&one.recorded);
        if let Some(profile) = &row.profile {
            let failed = |source| SweepError::Io { path: profile.into(), source };
            attempt.take_profile(profile.as_ref()).map_err(failed)?;
        }
        let outcome = figures::outcome(&job::ended(row), &attempt.file(PROFILE));
        let (group, recorded) = (one.group, one.recorded.clone());
        self.sweep.end(group, &[recorded], &[outcome], report)?;
        Ok(Next::Leaves)
    }
}
