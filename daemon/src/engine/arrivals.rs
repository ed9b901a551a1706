//! New jobs that are written, and that the scheduler learns of, piece by piece: those of a large array hold up no answer to
//! others. Their user is answered when all are there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use radrm_protocol::spec::Spec;
use radrm_protocol::wire::Response;
use rusqlite::Transaction;

use crate::error::DaemonError;
use crate::peer::Peer;
use crate::store::{self, Entry, arriving};

/// Jobs that are written, and jobs that are taken up, in one round: of all submissions together.
pub(super) const PIECE: usize = 200;
/// Bytes on the disk of the jobs that are written in one round; a single job may have more.
const PIECE_BYTES: u64 = 4 << 20;

/// One job, an array, or the jobs of a group.
pub(super) type Submission = (Peer, Result<Vec<Spec>, DaemonError>, Sender<Response>);

/// A job that is not taken up yet.
#[derive(Debug)]
pub(super) struct NewJob {
    pub(super) entry: Entry,
    /// As it is stored.
    pub(super) environment: Arc<str>,
    pub(super) remarks: Vec<String>,
}

/// A submission that was accepted.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) uid: u32,
    pub(super) by_admin: bool,
    /// Jobs that are not taken up yet.
    pub(super) jobs: VecDeque<NewJob>,
    /// The first of them that are written: all, before the first is taken up.
    pub(super) written: usize,
    /// Its numbers.
    pub(super) numbers: arriving::Numbers,
    pub(super) reply: Sender<Response>,
    pub(super) answer: Response,
}

impl Arrival {
    /// Gives its jobs their numbers.
    pub(super) fn number(&mut self, numbers: arriving::Numbers) {
        self.numbers = numbers;
        for (number, job) in (numbers[0]..).zip(&mut self.jobs) {
            job.entry.id = number;
        }
        if let Response::Submitted { job, .. } = &mut self.answer {
            *job = numbers[0];
        }
    }

    fn is_written(&self) -> bool {
        self.written >= self.jobs.len()
    }

    /// Number of jobs that are written next, at most so many.
    pub(super) fn next_piece(&self, most: usize) -> usize {
        let mut bytes = 0;
        let next = self.jobs.iter().skip(self.written).take(most);
        let fit = next.take_while(|job| {
            bytes += job.entry.bytes;
            bytes <= PIECE_BYTES
        });
        fit.count().max(1).min(self.jobs.len() - self.written).min(most)
    }

    /// Writes the next jobs, so many.
    pub(super) fn write(&mut self, tx: &Transaction<'_>, count: usize) -> rusqlite::Result<()> {
        let end = self.written + count;
        for NewJob { entry, environment, .. } in self.jobs.range(self.written..end) {
            store::insert(tx, entry, environment)?;
        }
        if end == self.jobs.len() {
            arriving::end(tx, self.numbers)?;
        }
        self.written = end;
        Ok(())
    }
}

/// Submissions under way.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    under_way: Vec<Arrival>,
    /// Submissions of users with one under way, whose jobs are not counted yet, and those that there was no time to check.
    later: Vec<Submission>,
    /// Submissions that could not be written to their ends, and of which jobs may be on the disk.
    pub(super) abandoned: Vec<arriving::Numbers>,
}

impl Arrivals {
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.later.is_empty()
    }

    pub(super) fn push(&mut self, arrival: Arrival) {
        self.under_way.push(arrival);
    }

    /// Bytes on the disk that jobs which are not written yet will take.
    pub(super) fn unwritten_bytes(&self) -> u64 {
        let jobs = self.under_way.iter().flat_map(|arrival| arrival.jobs.iter().skip(arrival.written));
        jobs.map(|job| job.entry.bytes).sum()
    }

    /// Has the jobs of this round written by `write`. `all`: all there are. Returns the submissions that failed.
    pub(super) fn write(
        &mut self,
        all: bool,
        mut write: impl FnMut(&mut Arrival, usize) -> Result<(), DaemonError>,
    ) -> Vec<(Arrival, DaemonError)> {
        let unwritten = self.under_way.iter().filter(|arrival| !arrival.is_written()).count();
        let each = (PIECE / unwritten.max(1)).max(1);
        let mut failed = Vec::new();
        for mut arrival in std::mem::take(&mut self.under_way) {
            let mut written = Ok(());
            while written.is_ok() && !arrival.is_written() {
                let (count, before) = (arrival.next_piece(each), arrival.written);
                written = write(&mut arrival, count);
                if written.is_err() {
                    arrival.written = before;
                }
                if !all {
                    break;
                }
            }
            match written {
                Ok(()) => self.under_way.push(arrival),
                Err(why) => {
                    self.abandoned.push(arrival.numbers);
                    failed.push((arrival, why));
                }
            }
        }
        failed
    }

    /// Jobs to take up in this round, each with whether an administrator submits it and with remarks. `all`: all there are.
    pub(super) fn next(&mut self, all: bool) -> Vec<(Entry, bool, Vec<String>)> {
        let written = self.under_way.iter().filter(|arrival| arrival.is_written()).count();
        let each = if all { usize::MAX } else { (PIECE / written.max(1)).max(1) };
        let of_one = |arrival: &mut Arrival| {
            // To the scheduler a group of which a part is there has lost the other jobs.
            let is_group = arrival.jobs.front().is_some_and(|job| job.entry.spec.together.is_some());
            let count = if is_group { arrival.jobs.len() } else { arrival.jobs.len().min(each) };
            let by_admin = arrival.by_admin;
            let jobs: Vec<_> = arrival.jobs.drain(..count).collect();
            jobs.into_iter().map(move |job| (job.entry, by_admin, job.remarks))
        };
        self.under_way.iter_mut().filter(|arrival| arrival.is_written()).flat_map(of_one).collect()
    }

    /// Answers to the submissions of which all jobs are taken up.
    pub(super) fn answers(&mut self) -> Vec<(Sender<Response>, Response)> {
        let done = self.under_way.extract_if(.., |arrival| arrival.jobs.is_empty());
        done.map(|arrival| (arrival.reply, arrival.answer)).collect()
    }

    /// Keeps submissions for the next round.
    pub(super) fn postpone(&mut self, some: impl Iterator<Item = Submission>) {
        self.later.extend(some);
    }

    /// Submissions that can be checked now, in the order in which they came; others are kept for later.
    pub(super) fn checkable(&mut self, new: Vec<Submission>) -> Vec<Submission> {
        let mut all = std::mem::take(&mut self.later);
        all.extend(new);
        let is_under_way = |uid: u32| self.under_way.iter().any(|arrival| arrival.uid == uid);
        let (later, now) = all.into_iter().partition(|(peer, ..)| is_under_way(peer.uid));
        self.later = later;
        now
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use radrm_protocol::together::Place;

    use super::*;

    /// An arrival of jobs that are written.
    fn arrival(jobs: u32, together: bool) -> Arrival {
        let place = |position| Place { position, members: jobs, site: 0 };
        let job = |position| {
            let spec = Spec { together: together.then(|| place(position)), ..Spec::default() };
            let entry = Entry { spec, ..Entry::default() };
            NewJob { entry, environment: "[]".into(), remarks: Vec::new() }
        };
        Arrival {
            uid: 7,
            by_admin: false,
            jobs: (0..jobs).map(job).collect(),
            written: jobs as usize,
            numbers: [1, jobs.into()],
            reply: channel().0,
            answer: Response::Done,
        }
    }

    #[test]
    fn a_group_is_taken_up_whole_and_an_array_in_pieces() {
        for (together, expected) in [(true, 250), (false, PIECE)] {
            let mut arrivals = Arrivals::default();
            arrivals.push(arrival(250, together));
            assert_eq!(arrivals.next(false).len(), expected);
        }
    }
}
