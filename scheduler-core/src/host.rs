//! The jobs of a node and its cores: what a job that comes does to them all, by the estimator's formula.
//!
//! Booked cores are counted elsewhere ([`crate::HostNeed`]). Here it is what programs were measured to take, booked or not.
//! What is not measured of a job counts as nothing.

use radrm_base::HostUse;

use crate::interference::{HostLoad, HostSpec, host_speeds};
use crate::job::JobId;

/// A job on a node.
#[derive(Clone, Copy, Debug)]
struct OnHost {
    job: JobId,
    priority: i32,
    load: HostLoad,
}

/// The jobs of a node whose use of the host is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostJobs {
    jobs: Vec<OnHost>,
    /// Cores that jobs may use; 0: not known.
    cores: f64,
    /// Most memory traffic, bytes in a second, if it is known.
    bandwidth: Option<f64>,
    /// Of all their threads together.
    threads: f64,
    /// Their memory traffic together, where it is measured.
    traffic: f64,
    /// Number of those that are measured to wait for memory.
    waiting: usize,
    /// Speed of each under what the others do to the host, 0 to 1.
    speeds: Vec<f64>,
}

/// Effect of a job on the others of a node, and theirs on it, through the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HostEffect {
    /// Its own speed, 0 to 1.
    pub(crate) speed: f64,
    /// Sum of the speeds that all others lose.
    pub(crate) lost: f64,
    /// The slowest of those that lose.
    pub(crate) slowest: f64,
    /// The slowest of those that lose and are more important.
    pub(crate) protected: f64,
}

impl HostEffect {
    /// Nothing changes for any job.
    pub(crate) const NONE: Self = Self { speed: 1.0, lost: 0.0, slowest: 1.0, protected: 1.0 };
}

/// Threads that want cores at the same time.
fn threads(load: &HostLoad) -> f64 {
    load.threads.max(load.cores)
}

/// Memory traffic; what is not measured is none.
fn traffic(load: &HostLoad) -> f64 {
    load.memory_bytes_per_s.unwrap_or(0.0)
}

/// Number of loads that are measured to wait for memory.
fn waiting<'a>(loads: impl Iterator<Item = &'a HostLoad>) -> usize {
    loads.filter(|load| load.stalled_cores() > 0.0).count()
}

impl HostJobs {
    /// The node has so many cores for jobs, and this memory bandwidth, if that is known.
    pub(crate) fn bound(&mut self, cpu_milli: u64, bandwidth: Option<u64>) {
        self.cores = cpu_milli as f64 / 1000.0;
        self.bandwidth = bandwidth.filter(|bytes| *bytes > 0).map(|bytes| bytes as f64);
        self.settle();
    }

    /// A job comes, or more is known of it. Returns whether anything changed.
    pub(crate) fn set(&mut self, job: JobId, priority: i32, used: Option<HostUse>) -> bool {
        let Some(used) = used.filter(|used| used.cpu_milli > 0) else { return false };
        let load = HostLoad::from(used);
        match self.jobs.iter_mut().find(|there| there.job == job) {
            Some(there) if there.load == load => return false,
            Some(there) => there.load = load,
            None => self.jobs.push(OnHost { job, priority, load }),
        }
        self.settle();
        true
    }

    /// A job leaves. Returns whether it had a part in anything.
    pub(crate) fn leave(&mut self, job: JobId) -> bool {
        let before = self.jobs.len();
        self.jobs.retain(|there| there.job != job);
        let left = self.jobs.len() < before;
        if left {
            self.settle();
        }
        left
    }

    fn settle(&mut self) {
        self.threads = self.jobs.iter().map(|there| threads(&there.load)).sum();
        self.traffic = self.jobs.iter().map(|there| traffic(&there.load)).sum();
        self.waiting = waiting(self.jobs.iter().map(|there| &there.load));
        self.speeds = match self.is_free(&[]) {
            true => vec![1.0; self.jobs.len()],
            false => self.predict(None),
        };
    }

    /// Returns true if each thread has a core and all memory traffic its room, also with these loads, or if the cores are
    /// unknown.
    fn has_room(&self, more: &[HostLoad]) -> bool {
        let threads = self.threads + more.iter().map(threads).sum::<f64>();
        let traffic = self.traffic + more.iter().map(traffic).sum::<f64>();
        let has_room = self.bandwidth.is_none_or(|most| traffic <= most);
        self.cores <= 0.0 || (threads <= self.cores && has_room)
    }

    /// Returns true if no job slows another, also with these loads.
    fn is_free(&self, more: &[HostLoad]) -> bool {
        // Of two that wait for memory each makes the other wait longer, however much room there is.
        self.has_room(more) && (self.cores <= 0.0 || self.waiting + waiting(more.iter()) < 2)
    }

    /// Returns true if these two leave each thread a core and memory traffic its room, or if the use of one is unknown.
    pub(crate) fn has_room_for(&self, one: Option<HostUse>, other: Option<HostUse>) -> bool {
        one.zip(other).is_none_or(|(one, other)| self.has_room(&[one.into(), other.into()]))
    }

    fn predict(&self, newcomer: Option<HostLoad>) -> Vec<f64> {
        let jobs: Vec<HostLoad> = self.jobs.iter().map(|there| there.load).chain(newcomer).collect();
        let host = HostSpec { memory_bytes_per_s: self.bandwidth, ..HostSpec::of_cores(self.cores) };
        host_speeds(&jobs, &host)
    }

    /// Predicts the effect of a job of this use and priority on this host.
    pub(crate) fn effect(&self, host_use: Option<HostUse>, priority: i32) -> HostEffect {
        let Some(newcomer) = host_use.filter(|used| used.cpu_milli > 0).map(HostLoad::from) else {
            return HostEffect::NONE;
        };
        if self.is_free(&[newcomer]) || self.jobs.is_empty() {
            return HostEffect::NONE;
        }
        let after = self.predict(Some(newcomer));
        let mut effect = HostEffect { speed: after.last().copied().unwrap_or(1.0), ..HostEffect::NONE };
        for ((there, before), after) in self.jobs.iter().zip(&self.speeds).zip(&after) {
            let lost = (before - after).max(0.0);
            effect.lost += lost;
            if lost > 0.0 {
                effect.slowest = effect.slowest.min(*after);
                if there.priority > priority {
                    effect.protected = effect.protected.min(*after);
                }
            }
        }
        effect
    }
}
