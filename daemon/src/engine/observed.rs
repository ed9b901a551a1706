//! Observations of a running job, read from its segment.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use radrm_os::{ProcessIdentity, thread_time};
use radrm_telemetry::{Liveness, ProcessSnapshot, Segment, SegmentError};

use super::effects::Attempts;
use super::read_times::ReadTimes;
use super::steps::Steps;
use crate::load::{self, Load};
use crate::pace::Pace;

/// The poll interval of a job in which nothing changes doubles up to this.
const MAX_INTERVAL: Duration = Duration::from_secs(8);

/// Observations of a running job.
#[derive(Debug, Default)]
pub(super) struct Observed {
    segment: Option<Segment>,
    /// Bytes on each device, by UUID.
    pub(super) used: BTreeMap<String, u64>,
    pub(super) peak: u64,
    gap: Duration,
    next: Option<Instant>,
    /// A signal that came before the program.
    pub(super) owed: Option<i32>,
    /// Launch rates alone and beside others.
    pub(super) pace: Pace,
    /// Load on each of its GPUs while it is alone there, by UUID.
    pub(super) loads: BTreeMap<String, Load>,
    /// Load on each GPU that it shares, since it has the company that is named, by UUID.
    pub(super) beside: BTreeMap<String, (Vec<u64>, Load)>,
    /// A process of it has launched a kernel, as far as that was read.
    pub(super) has_launched: bool,
    /// Its first optimizer steps.
    pub(super) steps: Steps,
    /// Its segment took longer to read than it may.
    is_too_long: bool,
    is_too_long_reported: bool,
}

impl Observed {
    /// The job's segment, once it was found.
    pub(super) fn segment(&self) -> Option<&Segment> {
        self.segment.as_ref()
    }

    /// Bytes on all devices. A job writes the figures of each itself.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Returns true if it is to be read now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// Returns true once the segment took longer to read than it may, the first time that this is asked.
    pub(super) fn is_newly_too_long(&mut self) -> bool {
        self.is_too_long && !std::mem::replace(&mut self.is_too_long_reported, true)
    }

    /// Takes note of a reading: after a change the job is read again after `least`, else later and later.
    pub(super) fn was_read(&mut self, now: Instant, changed: bool, least: Duration) {
        self.gap = if changed { least } else { (self.gap * 2).clamp(least, MAX_INTERVAL) };
        self.next = Some(now + self.gap);
    }

    /// Finds the segment that a launcher holds, unless that was done.
    pub(super) fn find_segment(&mut self, launcher: Option<ProcessIdentity>, attempts: &dyn Attempts) {
        if let (None, Some(launcher)) = (&self.segment, launcher) {
            self.segment = attempts.segment(launcher);
        }
    }

    /// Processes of the job, read in so much processor time at most.
    fn processes(&mut self, time: Duration) -> Option<Vec<ProcessSnapshot>> {
        let read = self.segment.as_ref()?.processes_within(time, thread_time);
        self.is_too_long |= matches!(read, Err(SegmentError::TooLong)) && ReadTimes::is_ample(time);
        read.ok()
    }

    /// Launches of the job's processes so far, those of kernels in graphs among them. Takes so much processor time at most.
    pub(super) fn launches(&mut self, time: Duration) -> Option<u64> {
        let kernels = self.processes(time)?.into_iter().flat_map(|process| process.kernels);
        Some(
            kernels.fold(0, |sum, kernel| {
                sum.saturating_add(kernel.launches).saturating_add(kernel.graph_launches)
            }),
        )
    }

    /// Kernel activity of each process so far, by the UUID of its GPU; `None` if too little is known of one.
    pub(super) fn work(
        &mut self,
        time: Duration,
    ) -> Option<HashMap<[u8; 16], HashMap<load::Key, load::Done>>> {
        let gpus = self.segment.as_ref()?.gpus().ok()?;
        let mut all: HashMap<_, HashMap<_, _>> = HashMap::new();
        let processes = self.processes(time)?;
        self.has_launched |=
            processes.iter().any(|process| process.launches() > 0 || process.graph_launches > 0);
        for process in processes {
            let done = load::done(&process)?;
            let timed = process.accounts.iter().find(|account| account.timed_span_ns > 0);
            let gpu = timed.and_then(|account| gpus.iter().find(|gpu| gpu.index == account.gpu));
            if let Some(gpu) = gpu {
                all.entry(gpu.uuid).or_default().insert((process.slot.slot, process.slot.generation), done);
            }
        }
        Some(all)
    }

    /// Forgets what was reported of the job: it does not hold any more.
    pub(super) fn forget(&mut self) {
        self.used.clear();
        self.pace = Pace::default();
        self.steps.forget();
        self.loads.values_mut().for_each(Load::pause);
        self.beside.clear();
        (self.gap, self.next) = (Duration::ZERO, None);
    }

    /// The job's living processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        let slots = self.segment.as_ref().and_then(|segment| segment.slots().ok()).unwrap_or_default();
        slots.iter().filter(|slot| slot.liveness == Liveness::Running).filter_map(|slot| slot.pid).collect()
    }

    /// Bytes on each GPU that the job's living processes hold, contexts included.
    pub(super) fn totals(&self) -> HashMap<[u8; 16], u64> {
        let mut sums = HashMap::new();
        let Some(segment) = &self.segment else { return sums };
        let gpus = segment.gpus().unwrap_or_default();
        let uuid = |index| gpus.iter().find(|gpu| gpu.index == index).map(|gpu| gpu.uuid);
        let mut slots = segment.slots().unwrap_or_default();
        slots.retain(|slot| slot.liveness == Liveness::Running);
        for slot in &slots {
            for (index, bytes) in segment.totals(slot).unwrap_or_default() {
                if let Some(uuid) = uuid(index) {
                    add(sums.entry(uuid).or_insert(0_u64), bytes);
                }
            }
        }
        for overhead in segment.overheads().unwrap_or_default() {
            if slots.iter().any(|slot| slot.own_pid == overhead.pid) {
                add(sums.entry(overhead.uuid).or_insert(0), overhead.bytes);
            }
        }
        sums
    }

    /// Steps that each process has made that holds memory of a GPU: the fewest, as one that has not begun may take more.
    pub(super) fn steps(&self) -> u32 {
        let Some(segment) = self.segment() else { return 0 };
        let slots = segment.slots().unwrap_or_default().into_iter().filter(|slot| {
            slot.liveness == Liveness::Running && segment.totals(slot).is_ok_and(|totals| !totals.is_empty())
        });
        let made = slots.map(|slot| {
            let ranges = segment.ranges(&slot).ok().flatten();
            ranges.as_ref().and_then(radrm_collector::steps).map_or(0, |(_, count)| count)
        });
        u32::try_from(made.min().unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// The most that the job has held on one GPU, contexts included, bytes. Of several processes there the sum of their peaks.
    pub(super) fn highest(&mut self, time: Duration) -> u64 {
        let processes = self.processes(time).unwrap_or_default();
        let Some(segment) = self.segment() else { return self.peak };
        let gpus = segment.gpus().unwrap_or_default();
        let mut sums: BTreeMap<[u8; 16], u64> = BTreeMap::new();
        let contexts = segment.overheads().unwrap_or_default();
        for process in processes.iter().filter(|process| process.slot.liveness == Liveness::Running) {
            for account in &process.accounts {
                if let Some(gpu) = gpus.iter().find(|gpu| gpu.index == account.gpu) {
                    add(sums.entry(gpu.uuid).or_default(), account.peak.total);
                }
            }
            for context in contexts.iter().filter(|context| context.pid == process.slot.own_pid) {
                add(sums.entry(context.uuid).or_default(), context.bytes);
            }
        }
        sums.into_values().max().unwrap_or(0).max(self.peak)
    }
}

/// Adds what a job writes itself.
fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_a_job_makes_up_have_a_sum() {
        let used = [("A", u64::MAX), ("B", 1)].map(|(gpu, bytes)| (gpu.to_owned(), bytes));
        assert_eq!(Observed { used: used.into(), ..Observed::default() }.used_bytes(), u64::MAX);
        let mut sum = u64::MAX;
        add(&mut sum, u64::MAX);
        assert_eq!(sum, u64::MAX);
    }
}
