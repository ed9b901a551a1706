//! Runs that are jobs of radrmd.
//!
//! A job is submitted held, its number is recorded, and it is released then (see [`crate::store`]). All that is asked of the
//! daemon can be asked again, so a daemon that goes away is waited for, and so does a sweep that was killed go on.

use std::collections::{BTreeSet, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

use radrm_protocol::spec::Spec;
use radrm_protocol::wire::{JobRow, Verdict};
use radrm_protocol::{ProtocolError, words};

use super::halt::Halt;
use super::open::{Open, count};
use super::{Event, Sweep};
use crate::attempt::{OUTPUT, PROFILE};
use crate::error::SweepError;
use crate::plan::{Collocation, Group};
use crate::radrmd::Radrmd;
use crate::store::{Outcome, State};
use crate::{figures, job, link, metrics};

/// Jobs of a sweep that wait or run at the same time: more than a machine runs, and few enough to be listed often.
const MAX_OPEN: usize = 100;

/// Between two lists of jobs, at least.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Between two looks at the signals.
const TICK: Duration = Duration::from_millis(50);

/// A list that takes its time is asked for less often: it is this part of the daemon's time at most.
const PART_OF_TIME: u32 = 20;

/// Checks that radrmd can run all that is left to do.
pub(super) fn check(sweep: &Sweep<'_>, radrmd: &mut Radrmd<'_>) -> Result<(), SweepError> {
    let runs = || sweep.source.plan.groups.iter().flat_map(|group| &group.runs);
    if runs().any(|run| matches!(run.collocation, Collocation::Mig(_))) {
        radrmd.find_models().map_err(SweepError::Radrmd)?;
    }
    for group in &sweep.source.plan.groups {
        if sweep.is_over(&sweep.recorded(&group.keys())?) {
            continue;
        }
        job::check(group, radrmd.models())
            .map_err(|why| SweepError::NotAJob { group: group.name.clone(), why })?;
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
        let keys = group.keys();
        let runs = sweep.recorded(&keys)?;
        let is_started = runs.iter().all(|run| run.outcome.state == State::Started);
        let is_recorded = !runs.is_empty();
        let one = Open::of(group, runs).filter(|_| is_started && is_recorded);
        if let Some(one) = one {
            if seen.insert(keys.concat()) {
                open.push(one);
            }
        } else if radrmd.takes_runs && !sweep.skip(group, &keys, report)? && seen.insert(keys.concat()) {
            // Otherwise nothing is left to do of it, or its file states that it is over.
            left.push_back(group);
        }
    }
    if left.is_empty() && open.is_empty() {
        return Ok(Some(()));
    }
    // The first question is not asked again: there may be no daemon.
    if let Err(why) = radrmd.open_jobs() {
        let count = count(&open);
        return Err(match why.is_absent() && count > 0 {
            true => SweepError::Absent { count, why },
            false => SweepError::Radrmd(why),
        });
    }
    remark(&left, count(&open), report);
    let strays = open.iter().filter(|one| one.jobs().is_empty());
    let strays = strays.flat_map(Open::tags).map(str::to_owned).collect();
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
        listing: Duration::ZERO,
    }
    .run(report)
}

/// Reports remarks for the user before the jobs run.
fn remark(left: &VecDeque<&Group>, adopted: usize, report: &mut dyn FnMut(&Event<'_>)) {
    let mut say = |text: String| report(&Event::Remark(text));
    if adopted > 0 {
        say(format!(
            "{} of an earlier call: waiting for {}",
            jobs(adopted),
            if adopted == 1 { "it" } else { "them" }
        ));
    }
    if !left.is_empty() {
        let count = left.iter().map(|group| group.runs.len()).sum();
        say(format!("{} for radrmd; `--through self` runs the sweep without it", jobs(count)));
    }
    if left.iter().any(|group| group.runs.iter().any(|run| !run.devices.is_empty())) {
        say("radrmd chooses the GPUs: a job gets as many as `devices` names".to_owned());
    }
}

/// `1 job`, `2 jobs`.
fn jobs(count: usize) -> String {
    format!("{count} job{}", if count == 1 { "" } else { "s" })
}

/// Next step for an open job in a turn.
enum Next {
    Stays,
    /// It is over, or not a job any more.
    Leaves,
    /// It is to be run as another job.
    Again,
}

struct Jobs<'j, 's, 'd, 'p> {
    sweep: &'j mut Sweep<'s>,
    radrmd: &'j mut Radrmd<'d>,
    left: VecDeque<&'p Group>,
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
    /// Duration of the last list of jobs.
    listing: Duration,
}

impl<'p> Jobs<'_, '_, '_, 'p> {
    fn run(mut self, report: &mut dyn FnMut(&Event<'_>)) -> Result<Option<()>, SweepError> {
        loop {
            let asked = self.sweep.stop.count();
            if asked > 0 && (self.is_away || asked > 1) {
                self.leave(report);
                return Ok(None);
            }
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
            self.pause(asked, report);
        }
    }

    /// Lets time go by, until a new signal at most.
    fn pause(&self, asked: usize, report: &mut dyn FnMut(&Event<'_>)) {
        let until = Instant::now() + POLL_INTERVAL.max(self.listing * PART_OF_TIME);
        while Instant::now() < until && self.sweep.stop.count() == asked {
            report(&Event::Tick);
            thread::sleep(TICK);
        }
    }

    /// The jobs stay with radrmd, and the next call waits for them.
    fn leave(&self, report: &mut dyn FnMut(&Event<'_>)) {
        if !self.open.is_empty() {
            let text = format!("{} left with radrmd: the next call waits for them", jobs(count(&self.open)));
            report(&Event::Remark(text));
        }
    }

    /// Asks the daemon for all jobs once, and does what follows.
    fn turn(&mut self, is_asked: bool, report: &mut dyn FnMut(&Event<'_>)) -> Result<(), Halt> {
        if is_asked && !self.is_withdrawn {
            self.withdraw()?;
        }
        let begun = Instant::now();
        let rows = self.radrmd.open_jobs();
        self.listing = begun.elapsed();
        let rows = rows?;
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
                    self.left.push_front(one.group);
                }
            }
        }
        while !is_asked && self.radrmd.takes_runs && !self.is_full && self.has_room() {
            let Some(group) = self.left.pop_front() else { break };
            let one = self.begin(group)?;
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

    fn has_room(&self) -> bool {
        count(&self.open) < MAX_OPEN
    }

    /// Cancels what is submitted. What may have been submitted is held, and found by the next call.
    fn withdraw(&mut self) -> Result<(), Halt> {
        self.open.retain(|one| !one.jobs().is_empty());
        let keys: Vec<_> = self.open.iter().flat_map(Open::keys).collect();
        // On disk before: a job that is cancelled by this is not a failure.
        self.sweep.store.withdraw(&keys)?;
        let members = self.open.iter_mut().flat_map(|one| &mut one.members);
        members.for_each(|member| member.submission.withdrawn = true);
        let jobs: Vec<_> = self.open.iter().flat_map(Open::open_jobs).collect();
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
            let members = || self.open.iter().flat_map(|one| &one.members);
            let own = tag.and_then(|tag| members().find(|member| member.submission.tag == *tag));
            // As long as no number is recorded, it may be the one.
            tag.is_some() && own.is_none_or(|own| own.submission.job.is_some_and(|job| job != row.job))
        };
        let strays: Vec<u64> = rows.iter().filter(is_stray).map(|row| row.job).collect();
        if strays.is_empty() { Ok(()) } else { Ok(self.radrmd.cancel(&strays)?) }
    }

    /// An attempt that is on disk and not submitted.
    fn begin(&mut self, group: &'p Group) -> Result<Open<'p>, SweepError> {
        let keys = group.keys();
        // The GPUs of a group are its own.
        let shares = match group.runs.as_slice() {
            [run] => !self.radrmd.specify(run, "".as_ref())?.exclusive,
            _ => false,
        };
        self.sweep.store.submit(&keys, shares)?;
        let unrecorded = || SweepError::Unrecorded(group.name.clone());
        Open::of(group, self.sweep.recorded(&keys)?).ok_or_else(unrecorded)
    }

    /// Submits an attempt, records the numbers of its jobs, and releases them.
    fn submit(&mut self, at: usize, report: &mut dyn FnMut(&Event<'_>)) -> Result<Next, Halt> {
        let Some(one) = self.open.get_mut(at) else { return Ok(Next::Stays) };
        let mut specs = Vec::new();
        for member in &one.members {
            let attempt = self.sweep.attempt(&member.recorded);
            // Here and not where the attempt begins: a sweep that is killed in between has it on disk without a folder.
            attempt.make().map_err(|source| SweepError::Io { path: attempt.folder().to_owned(), source })?;
            let mut spec = self.radrmd.specify(member.run, &attempt.file("profiler"))?;
            let variable = format!("{}=", metrics::VARIABLE);
            spec.environment.retain(|line| !line.starts_with(&variable));
            let logged = words::encode(attempt.file(metrics::FILE).as_os_str());
            spec.environment.push(variable + &logged);
            let tags = format!("{}=", link::VARIABLE);
            if !spec.environment.iter().any(|line| line.starts_with(&tags)) {
                spec.environment.push(tags + &words::encode(link::context(&member.recorded).as_ref()));
            }
            specs.push(Spec {
                name: job::name(&member.run.name, &member.submission.tag).into(),
                output: Some(attempt.file(OUTPUT)),
                held: true,
                ..spec
            });
        }
        match self.radrmd.submit(specs, &job::sites(one.group)) {
            Ok((first, remarks)) => {
                let name = one.group.name.clone();
                self.submitted(at, first)?;
                for text in remarks {
                    report(&Event::Remark(format!("{name}: {text}")));
                }
                self.release(at, report)?;
                Ok(Next::Stays)
            }
            Err(ProtocolError::Refused(text)) => {
                let whose = if one.members.len() == 1 { "its job" } else { "its group" };
                let reason = Some(format!("radrmd rejects {whose}: {text}"));
                let outcome = Outcome { state: State::Failed, reason, ..Outcome::default() };
                let (group, recorded) = (one.group, one.recorded());
                self.sweep.end(group, &recorded, &vec![outcome; recorded.len()], report)?;
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
                    self.strays.extend(one.tags().map(str::to_owned));
                }
                Err(why.into())
            }
        }
    }

    /// Records the numbers of the jobs of a group, which are consecutive.
    fn submitted(&mut self, at: usize, first: u64) -> Result<(), SweepError> {
        let Some(one) = self.open.get_mut(at) else { return Ok(()) };
        self.sweep.store.submitted(&one.keys(), first)?;
        for (member, job) in one.members.iter_mut().zip(first..) {
            member.submission.job = Some(job);
        }
        Ok(())
    }

    /// Lets the jobs of a group start. Asked again until radrmd has it on disk: after a restart they would be held
    /// otherwise.
    fn release(&mut self, at: usize, report: &mut dyn FnMut(&Event<'_>)) -> Result<(), Halt> {
        let jobs = self.open.get(at).map(Open::open_jobs).unwrap_or_default();
        let answer = self.radrmd.release(&jobs);
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

    /// Looks at an open group in the list of the user's open jobs.
    fn look(&mut self, at: usize, rows: &[JobRow], report: &mut dyn FnMut(&Event<'_>)) -> Result<Next, Halt> {
        let Some(one) = self.open.get(at) else { return Ok(Next::Stays) };
        if one.jobs().is_empty() {
            match one.first_among(rows) {
                Some(first) => self.submitted(at, first)?,
                // It was not submitted.
                None if self.radrmd.takes_runs => return self.submit(at, report),
                None => return self.again(at),
            }
        }
        let count = self.open.get(at).map_or(0, |one| one.members.len());
        let mut is_queued = false;
        for place in 0..count {
            match self.look_at_member(at, place, rows, report)? {
                Look::Open => is_queued = true,
                Look::Over => {}
                Look::Unknown => return self.again(at),
            }
        }
        let Some(one) = self.open.get_mut(at) else { return Ok(Next::Stays) };
        let is_of = |row: &&JobRow| one.tags().any(|tag| job::is_of(row, tag));
        if !one.runs && rows.iter().filter(is_of).any(job::has_started) {
            one.runs = true;
            let runs = one.recorded();
            report(&Event::Started { group: one.group, runs: &runs });
        }
        if is_queued && !one.was_released {
            self.release(at, report)?;
        }
        self.end_if_over(at, report)
    }

    fn look_at_member(
        &mut self,
        at: usize,
        place: usize,
        rows: &[JobRow],
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Look, Halt> {
        let member = self.open.get(at).and_then(|one| one.members.get(place));
        let Some((member, job)) = member.and_then(|member| Some((member, member.submission.job?))) else {
            return Ok(Look::Open);
        };
        let tag = member.submission.tag.clone();
        if member.ended.is_some() {
            return Ok(Look::Over);
        }
        if let Some(row) = rows.iter().find(|row| row.job == job && job::is_of(row, &tag)) {
            let recorded = job::has_started(row).then(|| member.recorded.clone());
            if let Some(recorded) = recorded
                && let Some(attempt) = self.sweep.given_up(&recorded)?
            {
                self.radrmd.cancel(&[job])?;
                self.sweep.asked(&attempt);
            }
            return Ok(Look::Open);
        }
        let name = member.run.name.clone();
        let attempt = self.sweep.attempt(&member.recorded);
        let answer = self.radrmd.job(job);
        let Some(row) = self.or_later(answer, report)? else { return Ok(Look::Open) };
        match row.filter(|row| job::is_of(row, &tag)) {
            Some(row) if row.end.is_some() => {
                if let Some(profile) = &row.profile {
                    let failed = |source| SweepError::Io { path: profile.raw().into(), source };
                    attempt.take_profile(profile.raw().as_ref()).map_err(failed)?;
                }
                let outcome = figures::outcome(&job::ended(&row), &attempt.file(PROFILE));
                let was_cancelled = row.verdict == Some(Verdict::Cancelled);
                let is_to_repeat = was_cancelled && outcome.state != State::Stopped;
                let ended = (outcome, is_to_repeat);
                if let Some(member) = self.open.get_mut(at).and_then(|one| one.members.get_mut(place)) {
                    member.ended = Some(ended);
                }
                Ok(Look::Over)
            }
            // It was submitted after the list was made.
            Some(_) => Ok(Look::Open),
            None if self.sweep.options.rerun => Ok(Look::Unknown),
            None => Err(SweepError::UnknownJob { run: name, job }.into()),
        }
    }

    /// The attempt is over without a result.
    fn again(&mut self, at: usize) -> Result<Next, Halt> {
        if let Some(one) = self.open.get(at) {
            self.sweep.store.reset(&one.keys())?;
        }
        Ok(if self.is_withdrawn { Next::Leaves } else { Next::Again })
    }

    /// Records the end of a group when all of its jobs are over.
    fn end_if_over(&mut self, at: usize, report: &mut dyn FnMut(&Event<'_>)) -> Result<Next, Halt> {
        let Some(one) = self.open.get(at) else { return Ok(Next::Stays) };
        let ends = one.members.iter().map(|member| member.ended.clone());
        let Some(ends) = ends.collect::<Option<Vec<_>>>() else { return Ok(Next::Stays) };
        if one.is_withdrawn() && ends.iter().any(|(_, was_cancelled)| *was_cancelled) {
            return self.again(at);
        }
        let outcomes: Vec<_> = ends.into_iter().map(|(outcome, _)| outcome).collect();
        let (group, recorded) = (one.group, one.recorded());
        self.sweep.end(group, &recorded, &outcomes, report)?;
        Ok(Next::Leaves)
    }
}

/// State of a job as polled.
enum Look {
    Open,
    Over,
    /// The daemon does not know it, and it is to be run again.
    Unknown,
}
