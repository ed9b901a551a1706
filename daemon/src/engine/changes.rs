//! Requests that cancel, hold or release jobs. What they name is looked up and changed piece by piece: one that names thousands
//! holds up no answer to others, and its user is answered when all of it is done.
//!
//! A request does all that it asks, or nothing. All its jobs are looked up before the first is changed, and those that wait are
//! kept out of the queue until it is their turn: none of them starts meanwhile. What the first piece leaves is on disk with that
//! piece, so that a daemon that comes back goes on with it.

use std::collections::{BTreeSet, HashSet};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use radrm_protocol::job_ref::JobRef;
use radrm_protocol::wire::{Request, Response};
use radrm_scheduler_core::{Event, JobId};

use super::Engine;
use super::arrivals::PIECE;
use super::change_list::{Asked, Names, Progress};
use super::outbox::Note;
use super::requests::refused;
use crate::error::DaemonError;
use crate::peer::Peer;
use crate::store::changes::{self, Change, Undone};
use crate::store::{Entry, Stage};

/// The most jobs that one request names.
const MAX_NAMED: usize = 10_000;

/// Change that a request asks for, and the jobs that it names; gives back any other request.
pub(super) fn of(peer: &Peer, request: Request) -> Result<(Change, Vec<JobRef>), Request> {
    Ok(match request {
        Request::Cancel { jobs } => (Change::Cancel { by: peer.name.clone() }, jobs),
        Request::Hold { jobs, held: true } => (Change::Hold, jobs),
        Request::Hold { jobs, held: false } => (Change::Release, jobs),
        other => return Err(other),
    })
}

/// Time and number of jobs for one piece of work.
struct Stint {
    begun: Instant,
    time: Duration,
    jobs: usize,
}

impl Stint {
    fn new(time: Duration, jobs: usize) -> Self {
        Self { begun: Instant::now(), time, jobs }
    }

    fn is_over(&self) -> bool {
        self.jobs == 0 || self.begun.elapsed() >= self.time
    }
}

impl Engine {
    /// A user asks for a change. It is begun at once unless an earlier one of the user is under way.
    pub(super) fn ask_change(
        &mut self,
        peer: Peer,
        (change, named): (Change, Vec<JobRef>),
        reply: Sender<Response>,
        replies: &mut Vec<(Sender<Response>, Response)>,
    ) {
        if named.len() > MAX_NAMED {
            let why = DaemonError::ManyJobs { named: named.len(), most: MAX_NAMED };
            replies.push((reply, refused(&why)));
            return;
        }
        let uid = peer.uid;
        let is_first = !self.changes.users.contains_key(&uid);
        let names = Names { peer, left: named.into(), ranges: HashSet::new() };
        self.changes.push(Asked {
            uid,
            change,
            jobs: BTreeSet::new(),
            progress: Progress::LookingUp(names),
            number: None,
            reply: Some(reply),
        });
        if is_first {
            self.change_some_of(uid, Stint::new(self.effects.stint(), PIECE), replies);
            self.end_pass();
        }
    }

    /// Does the next piece of each user's requests, in the time of one stint; `all`: all there is.
    pub(super) fn change_some(&mut self, all: bool, replies: &mut Vec<(Sender<Response>, Response)>) {
        let users: Vec<u32> = self.changes.users.keys().copied().collect();
        let count = u32::try_from(users.len()).unwrap_or(u32::MAX).max(1);
        let (time, jobs) = match all {
            true => (Duration::MAX, usize::MAX),
            false => (self.effects.stint() / count, (PIECE / count as usize).max(1)),
        };
        for uid in users {
            self.change_some_of(uid, Stint::new(time, jobs), replies);
        }
        self.end_pass();
    }

    /// Something in the queue changes: it is looked through once, at the end of the pass, after all of it.
    fn in_pass(&mut self) {
        if !std::mem::replace(&mut self.changes.in_pass, true) {
            self.step(Event::Paused { paused: true });
        }
    }

    fn end_pass(&mut self) {
        if std::mem::take(&mut self.changes.in_pass) {
            self.step(Event::Paused { paused: false });
        }
    }

    fn change_some_of(
        &mut self,
        uid: u32,
        mut stint: Stint,
        replies: &mut Vec<(Sender<Response>, Response)>,
    ) {
        while let Some(mut asked) = self.changes.take(uid) {
            match self.go_on(&mut asked, &mut stint) {
                Some(answer) => replies.extend(asked.reply.map(|reply| (reply, answer))),
                None => return self.changes.put_back(asked),
            }
            if stint.is_over() {
                return;
            }
        }
    }

    /// Does the next piece of a request. Returns the answer once there is one.
    fn go_on(&mut self, asked: &mut Asked, stint: &mut Stint) -> Option<Response> {
        loop {
            let next = match &mut asked.progress {
                Progress::LookingUp(names) => match self.look_up(names, &mut asked.jobs, stint) {
                    Ok(true) => match self.first_step(&asked.change, &mut asked.jobs) {
                        Ok(next) => next,
                        Err(why) => return Some(refused(&why)),
                    },
                    Ok(false) => return None,
                    Err(why) => return Some(refused(&why)),
                },
                Progress::KeepingOut { from } => {
                    match self.keep_out(&asked.change, &asked.jobs, from, stint) {
                        Ok(true) => self.to_change(&mut asked.jobs),
                        Ok(false) => return None,
                        Err(job) => Progress::LettingIn { from: *from, why: DaemonError::JobRuns(job) },
                    }
                }
                Progress::LettingIn { from, why } => {
                    return self.let_in(&asked.jobs, from, stint).then(|| refused(why));
                }
                Progress::Changing { begun, runs } => {
                    let unheld = self.change_next(&asked.change, &mut asked.jobs, begun, stint);
                    let (begun, runs) = (std::mem::take(begun), runs.or(unheld));
                    return self.keep_rest(asked, begun, runs);
                }
            };
            asked.progress = next;
        }
    }

    /// Looks the next names up. Returns true once that is done for all.
    ///
    /// # Errors
    /// One of them is not the user's, or is over.
    fn look_up(
        &self,
        names: &mut Names,
        jobs: &mut BTreeSet<u64>,
        stint: &Stint,
    ) -> Result<bool, DaemonError> {
        while let Some(named) = names.left.pop_front() {
            let [first, last] = self.named(&names.peer, named)?;
            if names.ranges.insert([first, last]) {
                let of_range = self.jobs.entries().range(first..=last);
                let open = of_range.filter(|(_, entry)| entry.stage != Stage::Ended).map(|(job, _)| *job);
                let open: Vec<u64> = open.collect();
                if open.is_empty() {
                    return Err(DaemonError::JobOver(named));
                }
                jobs.extend(open);
            }
            if stint.is_over() && !names.left.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The step behind the looking up.
    ///
    /// # Errors
    /// One of the jobs cannot be changed so.
    fn first_step(&self, change: &Change, jobs: &mut BTreeSet<u64>) -> Result<Progress, DaemonError> {
        match change {
            Change::Release => Ok(self.to_change(jobs)),
            Change::Cancel { .. } if jobs.len() < 2 => Ok(self.to_change(jobs)),
            Change::Cancel { .. } => Ok(Progress::KeepingOut { from: u64::MAX }),
            Change::Hold => match jobs.iter().find(|job| self.has_begun(**job)) {
                Some(job) => Err(DaemonError::JobRuns(*job)),
                None => Ok(Progress::KeepingOut { from: u64::MAX }),
            },
        }
    }

    /// From now on its jobs are changed: those that have begun come last, as others may start in their place.
    fn to_change(&self, jobs: &mut BTreeSet<u64>) -> Progress {
        let begun: BTreeSet<u64> = jobs.iter().copied().filter(|job| self.has_begun(*job)).collect();
        jobs.retain(|job| !begun.contains(job));
        Progress::Changing { begun, runs: None }
    }

    fn has_begun(&self, job: u64) -> bool {
        let begun = |entry: &Entry| matches!(entry.stage, Stage::Starting | Stage::Running);
        self.jobs.entry(job).is_some_and(begun)
    }

    /// Returns true for a job that waits, and that no user holds.
    fn may_start(&self, job: u64) -> bool {
        self.jobs.entry(job).is_some_and(|entry| entry.stage == Stage::Waiting && !entry.held)
    }

    /// Keeps the next jobs out of the queue, those below `from`. Returns true once that is done for all; the number of a job
    /// that has begun where it is to be held.
    fn keep_out(
        &mut self,
        change: &Change,
        jobs: &BTreeSet<u64>,
        from: &mut u64,
        stint: &Stint,
    ) -> Result<bool, u64> {
        self.in_pass();
        while let Some(job) = jobs.range(..*from).next_back().copied() {
            *from = job;
            if *change == Change::Hold && self.has_begun(job) {
                return Err(job);
            }
            if self.may_start(job) {
                self.step(Event::Held { job: JobId(job) });
            }
            if stint.is_over() {
                break;
            }
        }
        Ok(jobs.range(..*from).next().is_none())
    }

    /// Lets the next jobs that were kept out into the queue again. Returns true once that is done for all.
    fn let_in(&mut self, jobs: &BTreeSet<u64>, from: &mut u64, stint: &Stint) -> bool {
        self.in_pass();
        while let Some(job) = jobs.range(*from..).next().copied() {
            *from = job + 1;
            if self.may_start(job) && !self.changes.keeps_out(job) {
                self.step(Event::Released { job: JobId(job) });
            }
            if stint.is_over() {
                break;
            }
        }
        jobs.range(*from..).next().is_none()
    }

    /// Changes the next jobs: the last one first, but those that are released in their order. Returns the first that could not
    /// be held, as another request has let it start.
    fn change_next(
        &mut self,
        change: &Change,
        jobs: &mut BTreeSet<u64>,
        begun: &mut BTreeSet<u64>,
        stint: &mut Stint,
    ) -> Option<u64> {
        let mut next = || {
            let waiting = if *change == Change::Release { jobs.pop_first() } else { jobs.pop_last() };
            waiting.or_else(|| begun.pop_first())
        };
        self.in_pass();
        let mut unheld = None;
        while let Some(job) = next() {
            if *change == Change::Hold && self.has_begun(job) {
                unheld = unheld.or(Some(job));
            } else {
                self.change(change, job);
            }
            stint.jobs = stint.jobs.saturating_sub(1);
            if stint.is_over() {
                break;
            }
        }
        unheld
    }

    /// Keeps on disk what is left of a request, or answers one that is done.
    fn keep_rest(&mut self, asked: &mut Asked, begun: BTreeSet<u64>, runs: Option<u64>) -> Option<Response> {
        if asked.jobs.is_empty() && begun.is_empty() {
            if let Some(number) = asked.number {
                self.outbox.note(Note::Change(number, None));
            }
            let runs = runs.map(|job| refused(&DaemonError::JobRuns(job)));
            return Some(runs.unwrap_or(Response::Done));
        }
        if asked.number.is_none() {
            let number = self.changes.next_number();
            self.outbox.note(Note::Change(number, Some(Box::new(asked.undone(&begun)))));
            asked.number = Some(number);
        }
        asked.progress = Progress::Changing { begun, runs };
        None
    }

    fn change(&mut self, change: &Change, job: u64) {
        // It may have ended since it was looked up.
        if self.jobs.entry(job).is_none_or(|entry| entry.stage == Stage::Ended) {
            return;
        }
        match change {
            Change::Cancel { by } => self.cancel_by(job, by),
            Change::Hold => self.hold(job, true),
            Change::Release => self.hold(job, false),
        }
    }

    /// Takes up what an earlier daemon has not done, before a job starts.
    pub(super) fn recover_changes(&mut self) -> Result<(), DaemonError> {
        let undone = changes::all(&self.outbox.store().connection).map_err(DaemonError::QueueRead)?;
        for (number, Undone { uid, change, jobs }) in undone {
            let ranges = jobs.into_iter().filter(|[first, last]| first <= last);
            let open = ranges.flat_map(|[first, last]| self.jobs.entries().range(first..=last));
            let open = open.filter(|(_, entry)| entry.stage != Stage::Ended).map(|(job, _)| *job);
            let mut jobs: BTreeSet<u64> = open.collect();
            if change != Change::Release {
                for job in jobs.iter().rev().copied() {
                    if self.may_start(job) {
                        self.step(Event::Held { job: JobId(job) });
                    }
                }
            }
            let progress = self.to_change(&mut jobs);
            self.changes.last_number = self.changes.last_number.max(number);
            self.changes.push(Asked { uid, change, jobs, progress, number: Some(number), reply: None });
        }
        Ok(())
    }
}
