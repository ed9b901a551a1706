//! Processes that the shims know, and their memory.

use std::collections::{BTreeSet, HashMap};
use std::iter::successors;
use std::time::Duration;

use radrm_telemetry::{Liveness, Segment, SlotInfo};

use crate::jobs::Job;
use crate::scopes::user_name;
use radrm_os::{Mapped, Process, TimeByUser};

/// Memory that a shim counts for its process on one GPU, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Process id of the job's launcher.
    pub job: u32,
    /// The device total.
    pub device: u64,
    /// Managed memory: of its pages as much as there is may be on the GPU.
    pub managed: u64,
}

/// Processes that any shim knows.
///
/// A shim knows its process's id in the innermost pid namespace; NVML lists it in the outermost. The
/// start time is the same in both, and distinguishes processes with the same id in different containers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    processes: HashMap<Name, Vec<OnGpu>>,
    /// Launchers that run, and whether their jobs have a limit.
    launchers: HashMap<u32, bool>,
    /// Users whose processes were not all read.
    beyond: BTreeSet<u32>,
}

/// Ancestors that are searched: more are a sign of something gone wrong.
pub(super) const MAX_ANCESTORS: usize = 256;

/// Processor time that the segments of one user may take.
const MAX_TIME: Duration = Duration::from_millis(500);

/// Process id and start time.
type Name = (u32, u64);
/// The driver's uuid of a GPU, and what is counted there.
type OnGpu = ([u8; 16], Counted);

/// Reads the segments of these jobs.
#[must_use]
pub fn all(jobs: &[Job]) -> Known {
    let mut known = Known::default();
    let mut mapped = Mapped::default();
    let mut time = TimeByUser::default();
    for job in jobs {
        known.launchers.extend(job.launched.then(|| (job.launcher, job.segment.has_limits())));
        // Any user can write a segment that names any process. A process that has joined one has it mapped; where that
        // cannot be told, the process is about to end.
        let has_joined = |pid: u32| mapped.has(Process(pid), job.file) != Some(false);
        let add = || known.add(&job.segment, job.launcher, has_joined);
        if time.spend(Some(job.uid), MAX_TIME, add).is_none() {
            known.beyond.insert(job.uid);
        }
    }
    known.beyond.extend(mapped.beyond());
    known
}

/// Reads the segment of one job, whose launcher runs.
#[must_use]
pub fn of_segment(segment: &Segment, launcher: u32) -> Known {
    let mut known = Known::below(launcher);
    known.add(segment, launcher, |_| true);
    known
}

/// Returns true if a process has, or had, one of these slots.
#[must_use]
pub fn has_slot(slots: &[SlotInfo], process: Process) -> bool {
    let (start, ids) = (process.start(), process.ids());
    let is = |pid: u32| process.0 == pid || ids.contains(&pid);
    slots.iter().any(|slot| Some(slot.start) == start && is(slot.own_pid))
}

impl Known {
    /// Users whose processes were not all read, a sentence for each.
    pub fn unread(&self) -> impl Iterator<Item = String> {
        self.beyond.iter().map(|uid| {
            let user = user_name(*uid).unwrap_or_else(|| uid.to_string());
            format!("processes of {user} cannot be read: what they have mapped or written takes too long")
        })
    }

    /// Nothing but a launcher that runs.
    #[must_use]
    pub fn below(launcher: u32) -> Self {
        Self { launchers: [(launcher, false)].into(), ..Self::default() }
    }

    fn add(&mut self, segment: &Segment, launcher: u32, mut has_joined: impl FnMut(u32) -> bool) {
        let gpus = segment.gpus().unwrap_or_default();
        let slots = segment.slots().unwrap_or_default();
        for slot in slots.into_iter().filter(|slot| slot.liveness == Liveness::Running) {
            let Some(pid) = slot.pid.filter(|pid| has_joined(*pid)) else { continue };
            let Ok(held) = segment.held(&slot) else { continue };
            let accounts = gpus.iter().map(|gpu| {
                let (device, managed) =
                    held.get(usize::from(gpu.index.number())).copied().unwrap_or_default();
                (gpu.uuid, Counted { job: launcher, device, managed })
            });
            self.processes.insert((pid, slot.start), accounts.collect());
        }
    }

    /// The nearest ancestor of a process that is the launcher of a job. A process whose ancestors have ended is
    /// adopted by its launcher, as long as that runs.
    #[must_use]
    pub fn launcher_above(&self, process: Process) -> Option<u32> {
        let mut ancestors = successors(process.parent(), |process| process.parent()).take(MAX_ANCESTORS);
        ancestors.find(|process| self.launchers.contains_key(&process.0)).map(|process| process.0)
    }

    /// The nearest ancestor of a process that is the launcher of a job with a limit, but for that of `job`, in which the
    /// process counts: its limit should hold, and does not.
    #[must_use]
    pub fn limited_above(&self, process: Process, job: u32) -> Option<u32> {
        if !self.launchers.iter().any(|(launcher, is_limited)| *is_limited && *launcher != job) {
            return None;
        }
        let mut ancestors = successors(process.parent(), |process| process.parent()).take(MAX_ANCESTORS);
        let is_one = |process: &Process| process.0 != job && self.launchers.get(&process.0) == Some(&true);
        ancestors.find(is_one).map(|process| process.0)
    }

    /// Memory that is counted for a process on a GPU; `None` if no shim knows the process. One that is known and
    /// was never seen on this GPU has nothing there.
    #[must_use]
    pub fn of(&self, process: Process, gpu: &[u8; 16]) -> Option<Counted> {
        let start = process.start()?;
        let mut ids = process.ids();
        if ids.is_empty() {
            ids.push(process.0);
        }
        let accounts = ids.iter().rev().find_map(|pid| self.processes.get(&(*pid, start)))?;
        let on_gpu = accounts.iter().find(|(uuid, _)| uuid == gpu).map(|(_, counted)| *counted);
        Some(on_gpu.unwrap_or_default())
    }
}

#[cfg(test)]
impl Known {
    /// One process on one GPU.
    pub(super) fn with(process: Process, gpu: &[u8; 16], counted: Counted) -> Self {
        let name = (process.0, process.start().unwrap_or(0));
        Self { processes: [(name, vec![(*gpu, counted)])].into(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_id_and_its_start() {
        let own = Process(std::process::id());
        let (start, gpu) = (own.start().unwrap(), [7; 16]);
        let counted = Counted { job: 1, device: 5, managed: 0 };
        let mut known = Known::with(own, &gpu, counted);
        assert_eq!(known.of(own, &gpu), Some(counted));
        assert_eq!(known.of(own, &[8; 16]), Some(Counted::default()));
        known.processes.clear();
        known.processes.insert((own.0, start + 1), vec![(gpu, counted)]);
        assert_eq!(known.of(own, &gpu), None, "another process had this id before");
        assert_eq!(known.launcher_above(own), None);
        let parent = own.parent().unwrap();
        let above = parent.parent().unwrap_or(parent).0;
        known.launchers.insert(above, true);
        assert_eq!(known.launcher_above(own), Some(above));
        assert_eq!(
            (known.limited_above(own, u32::MAX), known.limited_above(own, above)),
            (Some(above), None)
        );
        known.launchers.insert(above, false);
        assert_eq!(known.limited_above(own, u32::MAX), None, "a job without a limit misses nothing");
    }
}
