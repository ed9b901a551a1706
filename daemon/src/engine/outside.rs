//! Processes outside of jobs that hold memory of GPUs, as each poll lists them.

use std::collections::{BTreeMap, BTreeSet};

use radrm_limits::scopes::user_name;
use radrm_os::Process;
use radrm_protocol::limits::DrainRow;
use radrm_protocol::wire::OutsideProcess;
use radrm_scheduler_core::{JobId, Obstacle, Wait};

use super::Engine;
use crate::gpus::Sample;

/// A process has no more ancestors than this.
const MAX_DEPTH: usize = 64;

impl Engine {
    /// Takes note of the processes that are of no job.
    pub(super) fn note_outside(&mut self, samples: &[Sample]) {
        let mut supervisors = BTreeSet::new();
        let mut own = BTreeSet::new();
        for (job, live) in self.jobs.lives() {
            supervisors.extend(live.supervisor.map(|who| who.pid));
            let Some(uid) = self.jobs.entry(*job).map(|entry| entry.uid) else { continue };
            // Processes below the supervisor are known without.
            own.extend(
                self.read_times.read(uid, self.now.mono, |_| live.observed.pids()).unwrap_or_default(),
            );
        }
        // A job that is over may be about to leave.
        own.extend(self.node.leaving_processes());
        let is_own = |pid: u32| {
            let ancestors = std::iter::successors(Some(Process(pid)), |process| process.parent());
            own.contains(&pid) || ancestors.take(MAX_DEPTH).any(|process| supervisors.contains(&process.0))
        };
        let mut all: BTreeMap<String, Vec<OutsideProcess>> = BTreeMap::new();
        for sample in samples {
            let outside = sample.processes.iter().filter(|(pid, bytes)| *bytes > 0 && !is_own(*pid));
            let names = self.node.user_names_mut();
            let mut outside: Vec<OutsideProcess> =
                outside.filter_map(|(pid, bytes)| describe(*pid, *bytes, names)).collect();
            outside.sort_by_key(|process| std::cmp::Reverse(process.bytes));
            if !outside.is_empty() {
                all.insert(sample.uuid.clone(), outside);
            }
        }
        self.node.set_outside(all);
    }

    /// Reason that a job waits, with the processes outside of jobs that have memory of the GPUs, and GPUs that are drained for a
    /// reason.
    pub(super) fn why_it_waits(&self, job: u64, wait: &Wait) -> String {
        if !is_about_devices(wait) {
            return wait.to_string();
        }
        let no_processes = BTreeMap::new();
        let outside = match wait {
            Wait::Memory { .. } | Wait::Reserved { .. } => self.node.outside(),
            _ => &no_processes,
        };
        let of_gpu = |(uuid, processes): (&String, &Vec<OutsideProcess>)| {
            let number = self.node.device(uuid).map_or_else(|| uuid.clone(), |device| device.to_string());
            processes.first().map(|process| format!("; outside of jobs, on GPU {number}: {process}"))
        };
        let words: Vec<String> = outside.iter().filter_map(of_gpu).collect();
        format!("{wait}{}{}", words.concat(), self.drain_reasons(job))
    }

    /// `; GPU 1 is drained: fan broken` for each that is drained for a reason, and could hold the job.
    fn drain_reasons(&self, job: u64) -> String {
        let of_gpu = |(uuid, drain): (&String, &DrainRow)| {
            let reason = drain.reason.as_ref()?;
            let device = self.node.device(uuid)?;
            let could_hold = self.core.state.could_hold(JobId(job), device);
            could_hold.then(|| format!("; GPU {device} is drained: {reason}"))
        };
        self.node.drained().iter().filter_map(of_gpu).collect()
    }
}

/// Returns true if a job waits because of what GPUs hold or are.
fn is_about_devices(wait: &Wait) -> bool {
    matches!(
        wait,
        Wait::NoDevice
            | Wait::Gang { .. }
            | Wait::Memory { .. }
            | Wait::Reserved { why: Obstacle::Device | Obstacle::NearBlocker | Obstacle::Threads, .. }
            | Wait::Slowdown { .. }
            | Wait::Rule { .. }
            | Wait::Protected { .. }
            | Wait::Busy { .. }
            | Wait::Unmeasured
            | Wait::Settling
            | Wait::Window { .. }
            | Wait::Share { .. }
            | Wait::Partition
            | Wait::Full { .. }
            | Wait::Idle
    )
}

/// `None`: it is gone. To look up a name may take a question to a server, so names are kept.
fn describe(pid: u32, bytes: u64, names: &mut BTreeMap<u32, String>) -> Option<OutsideProcess> {
    let process = Process(pid);
    let uid = process.uid()?;
    let ancestors = std::iter::successors(process.parent(), |process| process.parent());
    let is_limited = ancestors.take(MAX_DEPTH).any(|process| process.name() == "radrm-run");
    let user = names.entry(uid).or_insert_with(|| user_name(uid).unwrap_or_else(|| uid.to_string())).clone();
    Some(OutsideProcess { pid, user, program: process.name().into(), bytes, is_limited })
}
