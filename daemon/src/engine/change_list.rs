//! Requests that cancel, hold or release jobs, as far as they have come.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::mpsc::Sender;

use radrm_protocol::job_ref::JobRef;
use radrm_protocol::wire::Response;

use crate::error::DaemonError;
use crate::peer::Peer;
use crate::store::changes::{Change, Undone};

/// Progress of a request.
#[derive(Debug)]
pub(super) enum Progress {
    /// Names are looked up.
    LookingUp(Names),
    /// Jobs that wait are kept out of the queue, the last one first; those from this number on are.
    KeepingOut { from: u64 },
    /// A job began before it could be held. Those from this number on are let into the queue again, and nothing was done.
    LettingIn { from: u64, why: DaemonError },
    /// Jobs are changed; these had begun before, and come last. `runs`: the first that could not be held.
    Changing { begun: BTreeSet<u64>, runs: Option<u64> },
}

/// Names that are looked up.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) peer: Peer,
    pub(super) left: VecDeque<JobRef>,
    /// Numbers that they have come to: a name may be there many times.
    pub(super) ranges: HashSet<[u64; 2]>,
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) uid: u32,
    pub(super) change: Change,
    /// Jobs that were found, and then those that are left.
    pub(super) jobs: BTreeSet<u64>,
    pub(super) progress: Progress,
    /// Its number on disk, if it is there.
    pub(super) number: Option<u64>,
    /// Where the answer goes; an earlier daemon's client has gone.
    pub(super) reply: Option<Sender<Response>>,
}

impl Asked {
    /// Returns true if it keeps this job out of the queue.
    fn keeps_out(&self, job: u64) -> bool {
        let has_come_to = match self.progress {
            Progress::KeepingOut { from } => job >= from,
            Progress::Changing { .. } => true,
            Progress::LookingUp(_) | Progress::LettingIn { .. } => false,
        };
        has_come_to && self.change != Change::Release && self.jobs.contains(&job)
    }

    /// The part that is left, for the disk.
    pub(super) fn undone(&self, begun: &BTreeSet<u64>) -> Undone {
        let mut ranges: Vec<[u64; 2]> = Vec::new();
        for job in self.jobs.union(begun).copied() {
            if let Some([_, last]) = ranges.last_mut()
                && *last + 1 == job
            {
                *last = job;
            } else {
                ranges.push([job, job]);
            }
        }
        Undone { uid: self.uid, change: self.change.clone(), jobs: ranges }
    }
}

/// Requests under way by user, those of each in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) users: BTreeMap<u32, VecDeque<Asked>>,
    /// The queue changes by them now, and is looked through when all pieces of this round are done.
    pub(super) in_pass: bool,
    /// The highest number that one has on disk.
    pub(super) last_number: u64,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    pub(super) fn push(&mut self, asked: Asked) {
        self.users.entry(asked.uid).or_default().push_back(asked);
    }

    /// Returns true if one of them keeps this job out of the queue.
    pub(super) fn keeps_out(&self, job: u64) -> bool {
        self.users.values().flatten().any(|asked| asked.keeps_out(job))
    }

    /// The first request of a user.
    pub(super) fn take(&mut self, uid: u32) -> Option<Asked> {
        let line = self.users.get_mut(&uid)?;
        let asked = line.pop_front();
        if line.is_empty() {
            self.users.remove(&uid);
        }
        asked
    }

    /// Puts a request back that was taken and is not done.
    pub(super) fn put_back(&mut self, asked: Asked) {
        self.users.entry(asked.uid).or_default().push_front(asked);
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}
