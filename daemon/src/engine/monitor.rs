//! The node's GPUs as the daemon sees them: which are there, what they do, and what fails with them.
//!
//! A job whose GPU is lost fails by itself in no time, mostly before the loss was seen. So the failure of a job with
//! GPUs counts only once a poll of the GPUs that began later says that they are there: then it is the job's own, else
//! it is the GPU's and the job goes back to the queue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use radrm_collector::Activities;
use radrm_scheduler_core::{Bytes, Device, DeviceId, Millis, NodeId, Observation, Permille};

use super::jobs::Over;
use crate::gpu_numbers;
use crate::gpus::{Gpus, Poll, Sample, Unmanaged};
use crate::store::{Entry, Watched};
use radrm_protocol::limits::DrainRow;
use radrm_protocol::wire::OutsideProcess;

/// A failure is the job's own after this time: the thread that polls may hang in a broken driver.
pub(super) const MAX_DOUBT: Duration = Duration::from_secs(10);

/// An attempt that failed, and may have failed with its GPU, or that left processes.
#[derive(Debug)]
struct Doubtful {
    over: Over,
    since: Instant,
}

/// Change of a GPU that a poll shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A GPU is gone.
    Lost(DeviceId),
    /// A GPU is there again.
    Back(DeviceId),
}

/// The monitor.
#[derive(Debug)]
pub(super) struct NodeMonitor {
    gpus: Gpus,
    /// Memory of each GPU that jobs never get, bytes.
    reserve: u64,
    samples: Vec<Sample>,
    /// Start time of the poll that gave these samples.
    polled: Option<Instant>,
    /// UUIDs of GPUs that are gone for now.
    lost: BTreeSet<String>,
    /// GPUs that take no new jobs, by UUID.
    drained: BTreeMap<String, DrainRow>,
    doubtful: Vec<Doubtful>,
    /// Figures since they were last written.
    watched: BTreeMap<String, Watched>,
    /// The GPUs' energy counters in their last samples, and when these were taken.
    energy: BTreeMap<String, (u64, Instant)>,
    /// Energy that the last poll added, mJ, and the time over which it was taken.
    energy_added: BTreeMap<String, (u64, Duration)>,
    /// Processes without the shim.
    unmanaged: Vec<Unmanaged>,
    /// Processes outside of jobs, by the GPU of which they hold memory.
    outside: BTreeMap<String, Vec<OutsideProcess>>,
    /// Names of their users.
    user_names: BTreeMap<u32, String>,
    /// Why DCGM does not measure GPUs that have no GPM.
    unmetered: Option<String>,
    /// SM activity of each GPU of late.
    windows: BTreeMap<String, Window>,
    /// Asks for a poll.
    ask: Sender<()>,
}

/// Samples of a GPU's activity since its jobs changed, or of the last window.
#[derive(Debug, Default)]
struct Window {
    jobs: Vec<u64>,
    begun: Option<Instant>,
    samples: VecDeque<(Instant, Activities)>,
    idle: Idle,
}

/// Time in which a GPU did nothing: no sample of a whole window shows any SM activity. Unknown activity is not idle.
#[derive(Debug, Default)]
struct Idle {
    since: Option<Instant>,
    last: Option<Instant>,
    /// Idle time that the last observation added.
    added: Duration,
}

impl Idle {
    fn observe(&mut self, seen: &Observation, now: Instant, window: Duration) {
        let is_whole = u128::from(seen.window.0) >= window.as_millis();
        let is_idle = is_whole && seen.peak == Some(Permille::ZERO);
        // Nothing is known of a time without polls.
        let passed = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last).min(window));
        let begins = || now.checked_sub(window).unwrap_or(now);
        self.added = match (is_idle, self.since) {
            (false, _) => Duration::ZERO,
            (true, None) => window,
            (true, Some(_)) => passed,
        };
        self.since = is_idle.then(|| self.since.unwrap_or_else(begins));
        self.last = Some(now);
    }
}

impl Window {
    /// Adds a sample; returns what is seen over the window.
    fn observe(&mut self, sample: &Sample, now: Instant, jobs: &[u64], window: Duration) -> Observation {
        let seen = self.seen(sample, now, jobs, window);
        self.idle.observe(&seen, now, window);
        seen
    }

    fn seen(&mut self, sample: &Sample, now: Instant, jobs: &[u64], window: Duration) -> Observation {
        let used = Bytes(sample.used);
        if self.jobs != jobs || sample.activity[0].is_none() {
            self.jobs = jobs.to_vec();
            self.samples.clear();
            self.begun = None;
        }
        if sample.activity[0].is_none() {
            return Observation::unmeasured(used);
        }
        let begun = *self.begun.get_or_insert(now);
        self.samples.push_back((now, sample.activity));
        while self.samples.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > window) {
            self.samples.pop_front();
        }
        let values = |at: usize| self.samples.iter().filter_map(move |(_, parts)| parts[at]);
        let mean = |at: usize| {
            let (sum, count) = values(at).fold((0.0, 0_u32), |(sum, count), part| (sum + part, count + 1));
            (count > 0).then(|| Permille::from_fraction(sum / f64::from(count)))
        };
        let span = now.saturating_duration_since(begun).min(window);
        Observation {
            used,
            smact: mean(0),
            peak: values(0).reduce(f64::max).map(Permille::from_fraction),
            window: Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
            smocc: mean(1),
            drama: mean(2),
        }
    }
}

impl Doubtful {
    /// Returns true if a poll shows what became of it.
    fn is_settled(&self, poll: &Poll) -> bool {
        let listed = || poll.samples.iter().flat_map(|sample| &sample.processes);
        let is_off = || !poll.samples.is_empty() && listed().all(|(pid, _)| !self.over.killed.contains(pid));
        poll.begun >= self.since && (self.over.killed.is_empty() || is_off())
    }
}

impl NodeMonitor {
    pub(super) fn new(gpus: Gpus, reserve: u64, ask: Sender<()>) -> Self {
        Self {
            gpus,
            reserve,
            samples: Vec::new(),
            polled: None,
            lost: BTreeSet::new(),
            drained: BTreeMap::new(),
            doubtful: Vec::new(),
            watched: BTreeMap::new(),
            energy: BTreeMap::new(),
            energy_added: BTreeMap::new(),
            unmanaged: Vec::new(),
            outside: BTreeMap::new(),
            user_names: BTreeMap::new(),
            unmetered: None,
            windows: BTreeMap::new(),
            ask,
        }
    }

    pub(super) fn gpus(&self) -> &Gpus {
        &self.gpus
    }

    #[cfg(test)]
    pub(super) fn gpus_mut(&mut self) -> &mut Gpus {
        &mut self.gpus
    }

    /// The samples of the last poll.
    pub(super) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Start time of that poll.
    pub(super) fn polled(&self) -> Option<Instant> {
        self.polled
    }

    /// A poll began then. `unmetered`: why DCGM does not measure GPUs that have no GPM.
    pub(super) fn polled_at(&mut self, begun: Instant, unmetered: Option<String>) {
        (self.polled, self.unmetered) = (Some(begun), unmetered);
    }

    pub(super) fn unmetered(&self) -> Option<&String> {
        self.unmetered.as_ref()
    }

    /// GPUs that take no new jobs, by UUID.
    pub(super) fn drained(&self) -> &BTreeMap<String, DrainRow> {
        &self.drained
    }

    pub(super) fn set_drained(&mut self, drained: BTreeMap<String, DrainRow>) {
        self.drained = drained;
    }

    /// A GPU takes no new jobs, or takes some again.
    pub(super) fn drain(&mut self, uuid: &str, drain: Option<DrainRow>) {
        match drain {
            Some(drain) => self.drained.insert(uuid.to_owned(), drain),
            None => self.drained.remove(uuid),
        };
    }

    /// Processes without the shim.
    pub(super) fn unmanaged(&self) -> &[Unmanaged] {
        &self.unmanaged
    }

    pub(super) fn set_unmanaged(&mut self, found: Vec<Unmanaged>) {
        self.unmanaged = found;
    }

    /// Processes outside of jobs, by the GPU of which they hold memory.
    pub(super) fn outside(&self) -> &BTreeMap<String, Vec<OutsideProcess>> {
        &self.outside
    }

    pub(super) fn set_outside(&mut self, all: BTreeMap<String, Vec<OutsideProcess>>) {
        self.outside = all;
    }

    /// Names of their users.
    pub(super) fn user_names_mut(&mut self) -> &mut BTreeMap<u32, String> {
        &mut self.user_names
    }

    pub(super) fn device(&self, uuid: &str) -> Option<DeviceId> {
        gpu_numbers::number_of(&self.gpus.list, uuid).map(DeviceId)
    }

    /// The devices of these UUIDs; one that is not on this node is none that the core knows.
    pub(super) fn devices(&self, uuids: &[String]) -> Vec<DeviceId> {
        uuids.iter().map(|uuid| self.device(uuid).unwrap_or(DeviceId(u32::MAX))).collect()
    }

    pub(super) fn uuid(&self, device: DeviceId) -> String {
        let list = &self.gpus.list;
        gpu_numbers::gpu_of(list, device).map(|at| list[at].uuid.clone()).unwrap_or_default()
    }

    /// The model of the GPUs that an attempt ran on.
    pub(super) fn model(&self, entry: &Entry) -> String {
        let first = entry.devices.first();
        let gpu = self.gpus.list.iter().find(|gpu| Some(&gpu.uuid) == first);
        gpu.map(|gpu| gpu.name.clone()).unwrap_or_default()
    }

    /// The models of these GPUs, as far as they are there.
    pub(super) fn names(&self, uuids: &[String]) -> Vec<String> {
        let gpu = |uuid: &String| self.gpus.list.iter().find(|gpu| gpu.uuid == *uuid);
        uuids.iter().filter_map(gpu).map(|gpu| gpu.name.clone()).collect()
    }

    /// The memory of these GPUs, bytes, as far as they are there.
    pub(super) fn totals(&self, uuids: &[String]) -> Vec<u64> {
        let gpu = |uuid: &String| self.gpus.list.iter().find(|gpu| gpu.uuid == *uuid);
        uuids.iter().filter_map(gpu).map(|gpu| gpu.total).collect()
    }

    /// The scheduler's view of all GPUs.
    pub(super) fn descriptions(&self) -> Vec<Device> {
        (0..self.gpus.list.len()).map(|at| self.description_at(at)).collect()
    }

    /// The scheduler's view of one of them.
    pub(super) fn description(&self, device: DeviceId) -> Option<Device> {
        gpu_numbers::gpu_of(&self.gpus.list, device).map(|at| self.description_at(at))
    }

    fn description_at(&self, at: usize) -> Device {
        let list = &self.gpus.list;
        let gpu = &list[at];
        let instance = gpu.uuid.starts_with("MIG-");
        // Instances follow their GPU.
        let parent = list[..at].iter().rposition(|gpu| gpu.index.is_some());
        let parent = parent.filter(|_| instance && gpu.index.is_none());
        Device {
            id: gpu_numbers::device(list, at),
            node: NodeId(0),
            model: gpu.name.clone(),
            capacity: Bytes(gpu.total.saturating_sub(self.reserve)),
            parent: parent.map(|at| gpu_numbers::device(list, at)),
            shared: !instance || self.gpus.share_instances,
        }
    }

    pub(super) fn is_lost(&self, uuid: &str) -> bool {
        self.lost.contains(uuid)
    }

    /// GPUs that went or came back since the last poll.
    pub(super) fn changes(&mut self, poll: &Poll) -> Vec<Change> {
        let mut changes = Vec::new();
        for uuid in &poll.lost {
            if let Some(device) = self.device(uuid)
                && self.lost.insert(uuid.clone())
            {
                changes.push(Change::Lost(device));
            }
        }
        for sample in &poll.samples {
            if let Some(device) = self.device(&sample.uuid)
                && self.lost.remove(&sample.uuid)
            {
                changes.push(Change::Back(device));
            }
        }
        changes
    }

    /// Observations of each GPU over a window of polls. `jobs`: those on each, by UUID; a window begins anew when they change. The
    /// figures are added to those of the statistics.
    pub(super) fn observe(
        &mut self,
        samples: Vec<Sample>,
        jobs: &BTreeMap<String, Vec<u64>>,
        window: Duration,
    ) -> Vec<(DeviceId, Observation)> {
        let now = self.polled.unwrap_or_else(Instant::now);
        // A GPU without a sample adds nothing.
        self.windows.values_mut().for_each(|of_gpu| of_gpu.idle.added = Duration::ZERO);
        self.energy_added.clear();
        let mut seen = Vec::new();
        for sample in &samples {
            let Some(device) = self.device(&sample.uuid) else { continue };
            let own = jobs.get(&sample.uuid).map_or(&[][..], Vec::as_slice);
            let of_gpu = self.windows.entry(sample.uuid.clone()).or_default();
            seen.push((device, of_gpu.observe(sample, now, own, window)));
            self.add(sample, now);
        }
        self.samples = samples;
        seen
    }

    /// Since when a GPU has done nothing, if it has done nothing for a whole window.
    pub(super) fn idle_since(&self, uuid: &str) -> Option<Instant> {
        self.windows.get(uuid)?.idle.since
    }

    /// Idle time of a GPU that the last poll added.
    pub(super) fn idle_added(&self, uuid: &str) -> Duration {
        self.windows.get(uuid).map_or(Duration::ZERO, |window| window.idle.added)
    }

    fn add(&mut self, sample: &Sample, now: Instant) {
        let figures = self.watched.entry(sample.uuid.clone()).or_default();
        figures.samples += 1;
        figures.used += sample.used as f64;
        figures.peak = figures.peak.max(sample.used as f64);
        if self.gpus.emulated.is_some() {
            // Their kernels take modelled time, which is not the time between two polls.
            return;
        }
        if let Some(smact) = sample.activity[0] {
            figures.smact += smact;
            figures.smact_samples += 1;
        }
        if let Some(power) = sample.power_mw {
            figures.power += f64::from(power) / 1000.0;
            figures.power_samples += 1;
        }
        if let Some(energy) = sample.energy_mj
            && let Some((before, since)) = self.energy.insert(sample.uuid.clone(), (energy, now))
        {
            let added = energy.saturating_sub(before);
            *figures.energy_mj.get_or_insert(0.0) += added as f64 / 1e9;
            let span = now.saturating_duration_since(since);
            self.energy_added.insert(sample.uuid.clone(), (added, span));
        }
    }

    /// Energy of a GPU that the last poll added, mJ, if the GPU counts it and was polled so short a time before.
    pub(super) fn energy_added(&self, uuid: &str, within: Duration) -> Option<u64> {
        self.energy_added.get(uuid).filter(|(_, span)| *span <= within).map(|(added, _)| *added)
    }

    /// Figures since this was last asked.
    pub(super) fn take_figures(&mut self) -> BTreeMap<String, Watched> {
        std::mem::take(&mut self.watched)
    }

    /// Keeps an attempt until a poll of the GPUs that begins after now and lists none of the killed processes; returns it
    /// if no poll can be asked for.
    pub(super) fn doubt(&mut self, over: Over, now: Instant) -> Option<Over> {
        if self.ask.send(()).is_err() {
            return Some(over);
        }
        self.doubtful.push(Doubtful { over, since: now });
        None
    }

    /// Processes of attempts that are over and may be on a GPU still.
    pub(super) fn leaving_processes(&self) -> impl Iterator<Item = u32> {
        self.doubtful.iter().flat_map(|doubtful| doubtful.over.killed.iter().copied())
    }

    pub(super) fn has_doubts(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// Takes the attempts for which this poll has settled what became of them, and those that are old.
    pub(super) fn settled(&mut self, poll: Option<&Poll>, now: Instant) -> Vec<Over> {
        let is_settled = |doubtful: &Doubtful| {
            poll.is_some_and(|poll| doubtful.is_settled(poll)) || now - doubtful.since > MAX_DOUBT
        };
        let doubtful = std::mem::take(&mut self.doubtful);
        let (settled, open): (Vec<_>, Vec<_>) = doubtful.into_iter().partition(is_settled);
        self.doubtful = open;
        settled.into_iter().map(|doubtful| doubtful.over).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Attempt;
    use crate::engine::jobs::Seen;
    use crate::status::Status;
    use radrm_os::nvml::Gpu;
    use std::sync::mpsc::channel;

    const GIB: u64 = 1 << 30;

    fn gpu(uuid: &str, index: Option<u32>) -> Gpu {
        Gpu { index, uuid: uuid.into(), bytes: [0; 16], name: "G".into(), total: 40 * GIB, divided: false }
    }

    fn monitor(list: Vec<Gpu>) -> (NodeMonitor, std::sync::mpsc::Receiver<()>) {
        let gpus = Gpus { list, ..Gpus::off() };
        let (ask, asked) = channel();
        (NodeMonitor::new(gpus, GIB, ask), asked)
    }

    fn over<const N: usize>(attempt: Attempt, killed: [u32; N]) -> Over {
        Over {
            attempt,
            status: Status::default(),
            reported: true,
            killed: killed.into(),
            seen: Seen::default(),
        }
    }

    fn sample(uuid: &str) -> Sample {
        Sample { uuid: uuid.into(), used: GIB, ..Sample::default() }
    }

    fn poll(begun: Instant, there: &[&str], lost: &[&str]) -> Poll {
        Poll {
            begun,
            samples: there.iter().map(|uuid| sample(uuid)).collect(),
            lost: lost.iter().map(|uuid| (*uuid).to_owned()).collect(),
            ..Poll::begin()
        }
    }

    #[test]
    fn a_gpu_goes_once_and_comes_back_once() {
        let (mut monitor, _asked) = monitor(vec![gpu("A", Some(0)), gpu("B", Some(1))]);
        let now = Instant::now();
        let gone = poll(now, &["A"], &["B", "unknown"]);
        assert_eq!(monitor.changes(&gone), [Change::Lost(DeviceId(1))]);
        assert_eq!(monitor.changes(&gone), []);
        assert!(monitor.is_lost("B"));
        assert_eq!(monitor.changes(&poll(now, &["A", "B"], &[])), [Change::Back(DeviceId(1))]);
        assert!(!monitor.is_lost("B"));
    }

    #[test]
    fn a_failure_is_settled_by_a_poll_that_began_later_or_by_time() {
        let (mut monitor, asked) = monitor(vec![gpu("A", Some(0))]);
        let failed = Instant::now();
        let doubt =
            |monitor: &mut NodeMonitor, attempt| monitor.doubt(over((1, attempt), []), failed).is_none();
        assert!(doubt(&mut monitor, 1));
        asked.try_recv().unwrap();
        let before = poll(failed - Duration::from_millis(1), &["A"], &[]);
        assert!(monitor.settled(Some(&before), failed).is_empty(), "it began before");
        assert!(monitor.settled(None, failed + MAX_DOUBT).is_empty());
        assert_eq!(monitor.settled(Some(&poll(failed, &[], &[])), failed).len(), 1);
        assert!(!monitor.has_doubts());
        assert!(doubt(&mut monitor, 2));
        assert_eq!(monitor.settled(None, failed + MAX_DOUBT * 2).len(), 1, "no poll comes back");
        drop(asked);
        assert!(!doubt(&mut monitor, 3), "nothing polls");
    }

    #[test]
    fn an_end_counts_when_no_gpu_lists_the_processes_that_were_killed() {
        let (mut monitor, _asked) = monitor(vec![gpu("A", Some(0))]);
        let now = Instant::now();
        assert!(monitor.doubt(over((1, 1), [7, 8]), now).is_none());
        let mut seen = poll(now, &["A"], &[]);
        seen.samples[0].processes = vec![(5, GIB), (8, GIB)];
        assert!(monitor.settled(Some(&seen), now).is_empty(), "one is on the GPU still");
        assert!(
            monitor.settled(Some(&poll(now, &[], &["A"])), now).is_empty(),
            "no GPU was asked for its list"
        );
        seen.samples[0].processes.pop();
        assert_eq!(monitor.settled(Some(&seen), now).len(), 1);
    }

    #[test]
    fn a_utilisation_is_no_sm_activity() {
        let (mut monitor, _asked) = monitor(vec![gpu("A", Some(0))]);
        let busy = Sample { utilization: Some(98), ..sample("A") };
        let seen = monitor.observe(vec![busy], &BTreeMap::new(), Duration::from_secs(90));
        assert_eq!(seen, [(DeviceId(0), Observation::unmeasured(Bytes(GIB)))]);
    }

    #[test]
    fn a_window_has_mean_and_peak_and_begins_anew_with_other_jobs() {
        let (mut window, begin) = (Window::default(), Instant::now());
        let at = |window: &mut Window, second: u64, smact: f64, jobs: &[u64]| {
            let sample = Sample { activity: [Some(smact), None, Some(0.1)], ..sample("A") };
            let seen =
                window.observe(&sample, begin + Duration::from_secs(second), jobs, Duration::from_secs(90));
            (seen.smact.map(|part| part.0), seen.peak.map(|part| part.0), seen.window.0 / 1000)
        };
        for second in 0..200 {
            at(&mut window, second, 0.9, &[1, 2]);
        }
        assert_eq!(at(&mut window, 200, 0.0, &[1, 2]), (Some(890), Some(900), 90), "one odd sample");
        assert_eq!(at(&mut window, 201, 0.2, &[2]), (Some(200), Some(200), 0));
        assert_eq!(at(&mut window, 202, 0.4, &[2]), (Some(300), Some(400), 1));
    }

    #[test]
    fn a_gpu_is_idle_after_a_whole_window_of_known_inactivity() {
        let (mut window, begin) = (Window::default(), Instant::now());
        let mut at = |second: u64, smact: Option<f64>, jobs: &[u64]| {
            let sample = Sample { activity: [smact, None, None], ..sample("A") };
            let now = begin + Duration::from_secs(second);
            window.observe(&sample, now, jobs, Duration::from_secs(90));
            let since = window.idle.since.map(|since| (since - begin).as_secs());
            (since, window.idle.added.as_secs())
        };
        at(0, Some(0.5), &[1]);
        assert_eq!(at(10, Some(0.0), &[1]), (None, 0));
        assert_eq!(at(90, Some(0.0), &[1]), (None, 0), "work at its begin");
        assert_eq!(at(100, Some(0.0), &[1]), (Some(10), 90));
        assert_eq!(at(101, Some(0.0), &[1]), (Some(10), 1));
        assert_eq!(at(5000, Some(0.0), &[1]), (Some(10), 90), "no poll for more than an hour");
        assert_eq!(at(5001, Some(0.001), &[1]), (None, 0), "a thousandth is work");
        assert_eq!(at(5091, Some(0.0), &[1]), (None, 0));
        assert_eq!(at(5092, Some(0.0), &[1]), (Some(5002), 90));
        assert_eq!(at(5093, Some(0.0), &[1, 2]), (None, 0), "a new job has had no window");
        assert_eq!(at(5183, Some(0.0), &[1, 2]), (Some(5093), 90));
        assert_eq!(at(5184, None, &[1, 2]), (None, 0), "unknown is not idle");
    }

    #[test]
    fn a_gpu_without_a_sample_adds_no_idle_time() {
        let (mut monitor, _asked) = monitor(vec![gpu("A", Some(0))]);
        let begin = Instant::now();
        let idle = || Sample { activity: [Some(0.0), None, None], ..sample("A") };
        let mut at = |second: u64, samples: Vec<Sample>| {
            monitor.polled_at(begin + Duration::from_secs(second), None);
            monitor.observe(samples, &BTreeMap::new(), Duration::from_secs(90));
            monitor.idle_added("A").as_secs()
        };
        assert_eq!(at(0, vec![idle()]), 0);
        assert_eq!(at(90, vec![idle()]), 90);
        assert_eq!(at(91, Vec::new()), 0);
        assert_eq!(at(92, vec![idle()]), 2);
    }

    #[test]
    fn emulated_gpus_have_no_activity_over_time() {
        let (mut monitor, _asked) = monitor(vec![gpu("A", Some(0))]);
        let busy = || Sample { activity: [Some(0.5), Some(0.4), Some(0.3)], ..sample("A") };
        let observe =
            |monitor: &mut NodeMonitor, samples| monitor.observe(samples, &BTreeMap::new(), Duration::ZERO);
        let seen = observe(&mut monitor, vec![busy(), sample("unknown")]);
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].1.smact, seen[0].1.used), (Some(Permille(500)), Bytes(GIB)));
        assert_eq!(monitor.take_figures()["A"].smact_samples, 1);
        monitor.gpus.emulated = Some("1xG".into());
        let _ = observe(&mut monitor, vec![busy()]);
        let figures = monitor.take_figures();
        assert_eq!((figures["A"].samples, figures["A"].smact_samples), (1, 0));
        assert!(monitor.take_figures().is_empty(), "taken once");
    }

    #[test]
    fn an_instance_names_the_gpu_before_it_as_its_parent() {
        let (mut monitor, _asked) = monitor(vec![gpu("A", Some(0)), gpu("MIG-1", None), gpu("B", Some(1))]);
        let devices = monitor.descriptions();
        assert_eq!(
            devices.iter().map(|device| device.parent).collect::<Vec<_>>(),
            [None, Some(DeviceId(0)), None]
        );
        assert_eq!(devices[0].capacity, Bytes(39 * GIB), "what jobs never get is left out");
        let shared = |monitor: &NodeMonitor| -> Vec<bool> {
            monitor.descriptions().iter().map(|device| device.shared).collect()
        };
        assert_eq!(shared(&monitor), [true, false, true]);
        monitor.gpus.share_instances = true;
        assert_eq!(shared(&monitor), [true; 3]);
        assert_eq!(monitor.devices(&["B".into(), "C".into()]), [DeviceId(1), DeviceId(u32::MAX)]);
    }
}
