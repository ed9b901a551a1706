//! Groups of jobs that start together: what the daemon adds to the decision of the scheduler, which is a barrier.
//!
//! A start that did not come about is made again for the whole group, under new attempts: the barrier has the name of the
//! attempt of the first job, and no attempt of a group has a number twice.

use std::path::PathBuf;

use radrm_attempt::{Barrier, barrier};
use radrm_protocol::ProtocolError;
use radrm_protocol::spec::Spec;
use radrm_protocol::together::{self, Member, Place};
use radrm_scheduler_core::Job;

use super::Engine;
use crate::attempt::Attempt;
use crate::error::DaemonError;
use crate::store::{Entry, Stage};

/// A job's group, as long as it is not known to have started.
fn gathering(entry: &Entry) -> Option<Place> {
    entry.spec.together.filter(|_| entry.first_start_ms.is_none())
}

/// Specifications that a request for a group submits, in the order of the numbers.
pub(super) fn specs(members: Vec<Member>) -> Result<Vec<Spec>, DaemonError> {
    together::check(&members)?;
    members.iter().try_for_each(|member| check(&member.spec))?;
    let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
    let place = |(position, member): (u32, Member)| {
        let place = Place { position, members: count, site: member.site };
        Spec { together: Some(place), ..member.spec }
    };
    Ok((0..).zip(members).map(place).collect())
}

/// Specification that a request for one job, or an array, submits.
pub(super) fn single(spec: Spec) -> Result<Vec<Spec>, DaemonError> {
    check(&spec)?;
    Ok(vec![spec])
}

/// A place in a group is not the client's to give.
fn check(spec: &Spec) -> Result<(), DaemonError> {
    match spec.together {
        Some(_) => Err(ProtocolError::NotTheClients.into()),
        None => Ok(()),
    }
}

impl Engine {
    /// The barrier of a job's attempt, if it has to wait for others.
    pub(super) fn barrier(&self, entry: &Entry) -> Option<Barrier> {
        let place = gathering(entry).filter(|place| place.members > 1)?;
        Some(Barrier { path: self.barrier_path(entry, place)?, members: place.members as usize, tied: false })
    }

    fn barrier_path(&self, entry: &Entry, place: Place) -> Option<PathBuf> {
        let first = place.first(entry.id);
        let attempt = match first == entry.id {
            true => entry.attempt,
            false => self.jobs.entry(first)?.attempt,
        };
        Some(self.paths.barrier((first, attempt)))
    }

    /// Returns true if all jobs of its group are still about to start: one that is launched without them waits for
    /// ever.
    pub(super) fn may_start_together(&self, job: u64) -> bool {
        let Some(entry) = self.jobs.entry(job) else { return false };
        let Some(place) = gathering(entry) else { return true };
        let first = place.first(job);
        let is_there = |job: u64| {
            let other = self.jobs.entry(job);
            other.is_some_and(|other| matches!(other.stage, Stage::Starting | Stage::Running))
        };
        (first..first + u64::from(place.members)).all(is_there)
    }

    /// Time of the last start of a job's group, ms since 1970; `None`: one of its starts still waits to be carried out, and the
    /// others wait for that one.
    pub(super) fn last_launch(&self, entry: &Entry) -> Option<u64> {
        let jobs = match gathering(entry) {
            Some(place) => place.first(entry.id)..place.first(entry.id) + u64::from(place.members),
            None => entry.id..entry.id + 1,
        };
        let mut last = 0;
        for job in jobs {
            if self.outbox.starts(job) {
                return None;
            }
            last = last.max(self.jobs.lives().get(&job).map_or(0, |live| live.launched_ms));
        }
        Some(last)
    }

    /// An attempt ends, or is to end, before its program was there: those that wait for it do not start either.
    pub(super) fn give_up_together(&self, job: u64) {
        let entry = self.jobs.entry(job);
        if let Some(barrier) = entry.and_then(|entry| self.barrier(entry)) {
            barrier::give_up(&barrier.path);
        }
    }

    /// Likewise for a job that is not in the table yet.
    pub(super) fn give_up_found(&self, entry: &Entry, first: Option<Attempt>) {
        if gathering(entry).is_some()
            && let Some(first) = first
        {
            barrier::give_up(&self.paths.barrier(first));
        }
    }

    /// A group has started if a job of it that is over did: the scheduler does not know of that one.
    pub(super) fn mark_begun(&self, job: &mut Job) {
        let Some(group) = job.together.as_mut().filter(|group| !group.begun) else { return };
        let has_begun = |job: u64| {
            let other = self.outbox.store().job(job).ok().flatten();
            other.is_some_and(|other| other.first_start_ms.is_some())
        };
        group.begun = (group.first.0..=group.last().0).any(has_begun);
    }

    /// Adds the jobs of its group to the history of a new job.
    pub(super) fn remark_group(&mut self, job: u64) {
        let place = self.jobs.entry(job).and_then(|entry| entry.spec.together);
        if let Some(place) = place.filter(|place| place.members > 1) {
            let first = place.first(job);
            let last = first + u64::from(place.members) - 1;
            self.remark(job, format!("jobs {first} to {last} start together"));
        }
    }
}
