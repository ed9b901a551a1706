//! The job poller: segments of running jobs are read at intervals.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use radrm_os::ProcessIdentity;
use radrm_scheduler_core::{Bytes, Event, JobId, JobObservation};
use radrm_telemetry::{Liveness, Segment};

use super::Engine;
use super::early::Steps;
use super::effects::Effects;
use super::timers::Timer;
use crate::gpus::Poll;
use crate::load::{self, Load};
use crate::pace::Pace;
use crate::status;

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
    /// Its first optimizer steps.
    pub(super) steps: Steps,
}

impl Engine {
    /// Polls whatever is due.
    pub(super) fn poll(&mut self) {
        self.find_programs();
        self.settle_doubts(None);
        if !self.timers.is_due(Timer::Poll, self.now.mono) {
            return;
        }
        self.timers.set(Timer::Poll, self.now.mono, Duration::from_millis(self.config.poll_ms));
        self.kill_again();
        let jobs: Vec<u64> = self.jobs.live.keys().copied().collect();
        for job in jobs {
            if !self.is_off(job) && self.poll_job(job) {
                self.report_suspend(job);
                self.observe_steps(job);
            }
        }
        self.bring_back();
        self.measure_loads();
        self.measure_paces();
        self.observe_sharing();
        self.assign_slots();
        self.check_bookings();
    }

    /// Jobs that were started and whose program was not there yet.
    fn find_programs(&mut self) {
        let pending: Vec<u64> = self
            .jobs
            .live
            .iter()
            .filter(|(_, live)| !live.reported || live.supervisor.is_none())
            .map(|(job, _)| *job)
            .collect();
        for job in pending {
            let Some(attempt) = self.jobs.entries.get(&job).map(|entry| entry.attempt) else { continue };
            // What cannot be read now is read again soon.
            let Ok(report) = self.effects.status((job, attempt)) else { continue };
            let status::Report { kept, status } = report.unwrap_or_default();
            let Some(live) = self.jobs.live.get_mut(&job) else { continue };
            if live.supervisor.is_none() {
                match (status.supervisor, kept) {
                    (_, false) => {
                        self.supervisor_ended((job, attempt));
                        continue;
                    }
                    (Some(supervisor), true) => {
                        live.supervisor = Some(supervisor);
                        self.effects.watch((job, attempt), supervisor);
                    }
                    // It is about to say who it is.
                    (None, true) => {}
                }
            }
            let Some(program) = status.program.filter(|_| !live.reported) else { continue };
            let Some(live) = self.jobs.live.get_mut(&job) else { continue };
            live.program = Some(program);
            if let Some(owed) = live.observed.owed.take()
                && self.effects.lives(program)
            {
                self.effects.signal_job((job, attempt), live.supervisor, Some(program), owed);
            }
            self.report_fences(job, status.missing.as_ref());
            self.started(job, attempt, status.began_ms);
        }
    }

    /// Polls a job if that is due; returns whether it did.
    fn poll_job(&mut self, job: u64) -> bool {
        let may_leave = self.jobs.entries.get(&job).is_some_and(|entry| entry.spec.preemptible);
        let Some(live) = self.jobs.live.get_mut(&job) else { return false };
        let now = self.now.mono;
        if live.observed.next.is_some_and(|next| now < next) {
            return false;
        }
        let Some(program) = live.program else { return false };
        let observed = &mut live.observed;
        observed.find_segment(Some(program), &*self.effects);
        let seen = observed.totals();
        let least = Duration::from_millis(self.config.poll_ms);
        let mut named: BTreeMap<String, u64> = self
            .node
            .gpus
            .list
            .iter()
            .filter_map(|gpu| Some((gpu.uuid.clone(), *seen.get(&gpu.bytes)?)))
            .collect();
        // The driver gives memory in larger pieces, and a context is counted only where there is a limit.
        let pids = observed.pids();
        for sample in &self.node.samples {
            let own = sample.processes.iter().filter(|(pid, _)| pids.contains(pid));
            let held: u64 = own.map(|(_, bytes)| bytes).sum();
            if held > 0 {
                let counted = named.entry(sample.uuid.clone()).or_default();
                *counted = held.max(*counted);
            }
        }
        let most = named.values().copied().max().unwrap_or(0);
        // Of one that may have to leave it must be known early what it uses; so it must before the third step.
        let early = (may_leave && named.is_empty()) || observed.steps.is_near();
        let changed = named != observed.used || observed.segment.is_none() || early;
        observed.gap = if changed { least } else { (observed.gap * 2).clamp(least, MAX_INTERVAL) };
        observed.next = Some(now + observed.gap);
        observed.peak = observed.peak.max(most);
        let peak = observed.peak;
        if named == observed.used {
            return true;
        }
        observed.used = named.clone();
        for (uuid, used) in named {
            if let Some(device) = self.node.device(&uuid) {
                let seen =
                    JobObservation { used: Bytes(used), peak: Bytes(peak), ..JobObservation::default() };
                self.step(Event::JobObserved { job: JobId(job), device, seen });
            }
        }
        true
    }

    /// GPUs were polled.
    pub(super) fn polled(&mut self, poll: Poll) {
        self.come_and_gone(&poll);
        if poll.samples.is_empty() {
            return;
        }
        self.report_unknown();
        self.count_loads(&poll.samples);
        self.node.polled = Some(poll.begun);
        self.node.unmetered = poll.unmetered;
        let mut samples = poll.samples;
        self.by_launches(&mut samples);
        self.note_outside(&samples);
        let mut jobs: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for entry in self.jobs.on_gpus() {
            entry.devices.iter().for_each(|uuid| jobs.entry(uuid.clone()).or_default().push(entry.id));
        }
        let window = self.config.scheduler.preconditions.window;
        for (device, seen) in self.node.observe(samples, &jobs, Duration::from_millis(window.0)) {
            self.step(Event::DeviceObserved { device, seen });
        }
    }

    /// Keeps the highest memory that a job was seen to hold beyond the daemon's end: a suspended job shows nothing
    /// of it.
    pub(super) fn keep_peak(&mut self, job: u64) {
        let seen = self.jobs.live.get(&job).map(|live| live.observed.peak).filter(|peak| *peak > 0);
        if let Some(entry) = self.jobs.entries.get_mut(&job)
            && seen > entry.peak
        {
            entry.peak = seen;
            self.touch(job);
        }
    }
}

impl Observed {
    /// The job's segment, once it was found.
    pub(super) fn segment(&self) -> Option<&Segment> {
        self.segment.as_ref()
    }

    /// Finds the segment that a launcher holds, unless that was done.
    pub(super) fn find_segment(&mut self, launcher: Option<ProcessIdentity>, effects: &dyn Effects) {
        if let (None, Some(launcher)) = (&self.segment, launcher) {
            self.segment = effects.segment(launcher);
        }
    }

    /// Launches of the job's processes so far, those of kernels in graphs among them.
    pub(super) fn launches(&self) -> Option<u64> {
        let kernels =
            self.segment.as_ref()?.processes().ok()?.into_iter().flat_map(|process| process.kernels);
        Some(kernels.fold(0, |sum, kernel| sum.saturating_add(kernel.launches + kernel.graph_launches)))
    }

    /// Kernel activity of each process so far, by the UUID of its GPU; `None` if too little is known of one.
    pub(super) fn work(&self) -> Option<HashMap<[u8; 16], HashMap<load::Key, load::Done>>> {
        let segment = self.segment.as_ref()?;
        let gpus = segment.gpus().ok()?;
        let mut all: HashMap<_, HashMap<_, _>> = HashMap::new();
        for process in segment.processes().ok()? {
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
        (self.gap, self.next) = (Duration::ZERO, None);
    }

    /// The job's living processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        let slots = self.segment.as_ref().and_then(|segment| segment.slots().ok()).unwrap_or_default();
        slots.iter().filter(|slot| slot.liveness == Liveness::Running).filter_map(|slot| slot.pid).collect()
    }

    /// Bytes on each GPU that the job's living processes hold, contexts included.
    fn totals(&self) -> HashMap<[u8; 16], u64> {
        let mut sums = HashMap::new();
        let Some(segment) = &self.segment else { return sums };
        let gpus = segment.gpus().unwrap_or_default();
        let uuid = |index| gpus.iter().find(|gpu| gpu.index == index).map(|gpu| gpu.uuid);
        let mut slots = segment.slots().unwrap_or_default();
        slots.retain(|slot| slot.liveness == Liveness::Running);
        for slot in &slots {
            for (index, bytes) in segment.totals(slot).unwrap_or_default() {
                if let Some(uuid) = uuid(index) {
                    *sums.entry(uuid).or_insert(0_u64) += bytes;
                }
            }
        }
        for overhead in segment.overheads().unwrap_or_default() {
            if slots.iter().any(|slot| slot.own_pid == overhead.pid) {
                *sums.entry(overhead.uuid).or_insert(0) += overhead.bytes;
            }
        }
        sums
    }
}
