//! New jobs that are on disk and that the scheduler learns of piece by piece: those of a large array hold up no answer to
//! others. Their user is answered when all are there.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;

use radrm_protocol::wire::Response;

use super::Engine;
use super::requests::Submission;
use crate::store::Entry;

/// Jobs that are taken up in one round, of all submissions together.
const PIECE: usize = 200;

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

impl Engine {
    /// Takes up the next jobs of each submission; `all`: all there are.
    pub(super) fn take_up_some(&mut self, all: bool, replies: &mut Vec<(Sender<Response>, Response)>) {
        let mut under_way = std::mem::take(&mut self.arrivals.under_way);
        let each = if all { usize::MAX } else { (PIECE / under_way.len().max(1)).max(1) };
        for arrival in &mut under_way {
            let count = arrival.jobs.len().min(each);
            for (entry, remarks) in arrival.jobs.drain(..count) {
                self.take_up(entry, arrival.by_admin, &remarks);
            }
        }
        for arrival in under_way {
            match arrival.jobs.is_empty() {
                true => replies.push((arrival.reply, arrival.answer)),
                false => self.arrivals.under_way.push(arrival),
            }
        }
    }
}
