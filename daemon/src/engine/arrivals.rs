//! New jobs that are on disk and that the scheduler learns of piece by piece: those of a large array hold up no answer to
//! others. Their user is answered when all are there.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;

use radrm_protocol::spec::Spec;
use radrm_protocol::wire::Response;

use crate::error::DaemonError;
use crate::peer::Peer;
use crate::store::Entry;

/// Jobs that are taken up in one round, of all submissions together.
const PIECE: usize = 200;

/// One job, an array, or the jobs of a group.
pub(super) type Submission = (Peer, Result<Vec<Spec>, DaemonError>, Sender<Response>);

/// A submission whose jobs are on disk.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) uid: u32,
    pub(super) by_admin: bool,
    /// Jobs that are not taken up yet, with remarks on each.
    pub(super) jobs: VecDeque<(Entry, Vec<String>)>,
    pub(super) reply: Sender<Response>,
    pub(super) answer: Response,
}

/// Submissions under way.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    under_way: Vec<Arrival>,
    /// Submissions of users with one under way, whose jobs are not counted yet.
    later: Vec<Submission>,
}

impl Arrivals {
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty() && self.later.is_empty()
    }

    pub(super) fn push(&mut self, arrival: Arrival) {
        self.under_way.push(arrival);
    }

    /// Jobs to take up in this round, each with whether an administrator submits it and with remarks. `all`: all there are.
    pub(super) fn next(&mut self, all: bool) -> Vec<(Entry, bool, Vec<String>)> {
        let each = if all { usize::MAX } else { (PIECE / self.under_way.len().max(1)).max(1) };
        let of_one = |arrival: &mut Arrival| {
            let (count, by_admin) = (arrival.jobs.len().min(each), arrival.by_admin);
            let jobs: Vec<_> = arrival.jobs.drain(..count).collect();
            jobs.into_iter().map(move |(entry, remarks)| (entry, by_admin, remarks))
        };
        self.under_way.iter_mut().flat_map(of_one).collect()
    }

    /// Answers to the submissions of which all jobs are taken up.
    pub(super) fn answers(&mut self) -> Vec<(Sender<Response>, Response)> {
        let done = self.under_way.extract_if(.., |arrival| arrival.jobs.is_empty());
        done.map(|arrival| (arrival.reply, arrival.answer)).collect()
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
