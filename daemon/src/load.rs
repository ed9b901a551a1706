//! Load of a GPU by a job that has it to itself: SM activity, SM occupancy and DRAM activity.
//!
//! Only from times in which it was alone there: beside others its kernels take longer by what those do, and the
//! GPU's own figures are everybody's. Two sources show it. NVML's performance counters (Hopper and later) show all
//! three of the GPU, so of the one job on it. Elsewhere the launches do, where some were timed: the shape of each
//! and its time give SM activity and occupancy, means over the time since the first of them; of DRAM they show
//! nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use radrm_base::{Permille, SeenActivity};
use radrm_collector::work;
use radrm_profile::Nanos;
use radrm_profile::model::KernelActivity;
use radrm_telemetry::{KernelsMode, ProcessSnapshot};

/// Time that has to be known before anything is said: programs begin with something else.
pub(crate) const MIN_KNOWN: Duration = Duration::from_secs(10);
/// Launches are read so often, and where they show nothing, as when none is timed, at this longer interval.
const READ_INTERVAL: Duration = Duration::from_secs(2);
const IDLE_INTERVAL: Duration = Duration::from_secs(8);
/// Polls that are further apart do not show the same phase.
pub(crate) const MAX_GAP: Duration = Duration::from_secs(30);
/// A change that is smaller is not worth telling.
pub(crate) const MIN_CHANGE: u32 = 20;
/// More of the kernels' time in doubt is not a measurement.
const MAX_UNCERTAIN_PART: f64 = 0.2;
/// More launches of kernels of which none was timed neither.
const UNTIMED: f64 = 0.1;

/// A process of the job: its slot, and how many have had that.
pub(crate) type Key = (usize, u32);

/// Kernel activity of a process so far, and the time for which its GPU has been in use, ns.
pub(crate) type Done = (KernelActivity, u64);

/// Observed load of one job on one of its GPUs.
#[derive(Debug, Default)]
pub(crate) struct Load {
    next: Option<Instant>,
    /// The time before the first launch counts, too.
    counts_start: bool,
    before: Option<(Instant, HashMap<Key, Done>)>,
    launched: KernelActivity,
    /// The time observed, by the host's clock, and how long the GPU was in use meanwhile by its own.
    host: Duration,
    gpu: Duration,
    counted: Option<Instant>,
    counts: [f64; 3],
    counting: Duration,
    reported: Option<SeenActivity>,
    /// SM activity and SM occupancy between the last two readings, and the time of the later one.
    recent: Option<(Instant, (f64, f64))>,
}

/// Kernel activity of a process so far; `None` if too little is known of it. One that launched nothing did nothing.
pub(crate) fn done(process: &ProcessSnapshot) -> Option<Done> {
    let launches = |kernel: &radrm_telemetry::KernelSnapshot| {
        kernel.launches.saturating_add(kernel.graph_launches) as f64
    };
    let all: f64 = process.kernels.iter().map(launches).sum();
    let untimed: f64 = process.kernels.iter().filter(|kernel| kernel.time.is_none()).map(launches).sum();
    if all == 0.0 {
        // Where launches are not recorded none is seen.
        let is_recorded = process.kernels_mode != Some(KernelsMode::Off);
        return is_recorded.then(|| (KernelActivity::default(), 0));
    }
    let times = || process.kernels.iter().filter_map(|kernel| kernel.time);
    let total: f64 = times().map(|time| time.total_ns as f64).sum();
    let doubt: f64 = times().map(|time| (time.half_width_ns as f64).powi(2)).sum::<f64>().sqrt();
    // Kernels are not counted by GPU.
    let mut timed = process.accounts.iter().filter(|account| account.timed_span_ns > 0);
    let (Some(account), None) = (timed.next(), timed.next()) else { return None };
    let is_known = untimed <= UNTIMED * all && total > 0.0 && doubt <= MAX_UNCERTAIN_PART * total;
    is_known.then(|| (work(process), process.used_ns(account)))
}

impl Load {
    /// Load of a job beside others, from its first reading on: one that launches nothing there does nothing.
    pub(crate) fn beside() -> Self {
        Self { counts_start: true, ..Self::default() }
    }

    /// Puts the next reading off, where little depends on it.
    pub(crate) fn rest(&mut self, now: Instant) {
        self.next = Some(now + IDLE_INTERVAL);
    }

    /// Returns true if launches are to be read again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// Takes note of what the job's processes have done so far, while it is alone; `None`: that is not known.
    pub(crate) fn observe(&mut self, now: Instant, seen: Option<HashMap<Key, Done>>) {
        self.next = Some(now + if seen.is_some() { READ_INTERVAL } else { IDLE_INTERVAL });
        let Some(seen) = seen else {
            (self.before, self.recent) = (None, None);
            return;
        };
        if let Some((then, before)) = &self.before
            && let passed = now.saturating_duration_since(*then)
            && passed <= MAX_GAP
        {
            let (mut work, mut used) = (KernelActivity::default(), 0);
            for (process, (so_far, used_ns)) in &seen {
                let (was, was_used) = before.get(process).copied().unwrap_or_default();
                work = work.and(so_far.since(was));
                used = used.max(used_ns.saturating_sub(was_used));
            }
            let window = passed.max(Duration::from_nanos(used));
            let filling = work.filling(Nanos(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX)));
            // Launches of which nothing is known show nothing; none are no activity.
            self.recent = filling
                .map(|filling| (filling.active, filling.resident))
                .or((work.kernels == Nanos::ZERO).then_some((0.0, 0.0)))
                .map(|parts| (now, parts));
            // What came before the first launch is not a part of its work.
            if self.counts_start || self.host > Duration::ZERO || work.kernels > Nanos::ZERO {
                self.launched = self.launched.and(work);
                self.host += passed;
                self.gpu += Duration::from_nanos(used);
            }
        }
        self.before = Some((now, seen));
    }

    /// Takes note of what the GPU's counters say of the time since they were last read, while the job is alone.
    pub(crate) fn count(&mut self, now: Instant, parts: [f64; 3]) {
        if let Some(then) = self.counted.replace(now)
            && let passed = now.saturating_duration_since(then)
            && passed <= MAX_GAP
            && (self.counting > Duration::ZERO || parts[0] > 0.0)
        {
            for (sum, part) in self.counts.iter_mut().zip(parts) {
                *sum += part.clamp(0.0, 1.0) * passed.as_secs_f64();
            }
            self.counting += passed;
        }
    }

    /// It is not alone any more: what comes now says nothing.
    pub(crate) fn pause(&mut self) {
        (self.before, self.counted, self.recent) = (None, None, None);
    }

    /// SM activity, SM occupancy and DRAM activity of the job, as fractions; the last is `None` where DRAM was not
    /// measured. Returns `None` if they are not known yet.
    pub(crate) fn measured(&self) -> Option<(f64, f64, Option<f64>)> {
        if self.counting >= MIN_KNOWN {
            let [smact, smocc, drama] = self.counts.map(|sum| sum / self.counting.as_secs_f64());
            return Some((smact, smocc, Some(drama)));
        }
        // Emulated GPUs take modelled time, of which more or less may pass than of the host's.
        let window = self.host.max(self.gpu);
        let filling = self.launched.filling(Nanos(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX)));
        let filling = filling.map(|filling| (filling.active, filling.resident));
        let (active, resident) = filling.or(self.counts_start.then_some((0.0, 0.0)))?;
        (window >= MIN_KNOWN).then_some((active, resident, None))
    }

    /// SM activity and SM occupancy between the last two readings of its launches. `None`: they are too long ago, or show nothing.
    pub(crate) fn lately(&self, now: Instant) -> Option<(f64, f64)> {
        let is_new = |at: &Instant| now.saturating_duration_since(*at) <= MAX_GAP;
        self.recent.filter(|(at, _)| is_new(at)).map(|(_, parts)| parts)
    }

    /// Activity that was reported last.
    pub(crate) fn reported(&self) -> Option<SeenActivity> {
        self.reported
    }

    /// Activity, if it is news.
    pub(crate) fn news(&mut self) -> Option<SeenActivity> {
        let (smact, smocc, drama) = self.measured()?;
        let part = |value: f64| Permille::from_fraction(value.clamp(0.0, 1.0));
        let found = SeenActivity { smact: part(smact), smocc: Some(part(smocc)), drama: drama.map(part) };
        let moved = |a: Permille, b: Permille| a.0.abs_diff(b.0) >= MIN_CHANGE;
        let some_moved = |a: Option<Permille>, b: Option<Permille>| match (a, b) {
            (Some(a), Some(b)) => moved(a, b),
            (a, b) => a.is_some() != b.is_some(),
        };
        let is_news = self.reported.is_none_or(|before| {
            moved(before.smact, found.smact)
                || some_moved(before.smocc, found.smocc)
                || some_moved(before.drama, found.drama)
        });
        is_news.then(|| *self.reported.insert(found))
    }
}

/// Activity of each of these jobs on one GPU: lately where that is known, else its mean. `utilization`: the driver's, per cent.
pub(crate) fn together(
    loads: &[&Load],
    now: Instant,
    utilization: Option<u32>,
) -> Option<Vec<[Option<f64>; 3]>> {
    let means: Option<Vec<_>> = loads.iter().map(|load| load.measured()).collect();
    let lately = loads.iter().map(|load| load.lately(now));
    // A kernel that still runs may have been launched long ago.
    let is_quiet = lately.clone().all(|parts| parts.is_some_and(|(smact, _)| smact <= 0.0));
    let is_wrong = is_quiet && utilization.is_some_and(|percent| percent > 0);
    let each = means?.into_iter().zip(lately).map(|((smact, smocc, drama), lately)| {
        match lately.filter(|_| !is_wrong) {
            Some((smact, smocc)) => [Some(smact), Some(smocc), None],
            None => [Some(smact), Some(smocc), drama],
        }
    });
    Some(each.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job of one process, and one second after the other.
    struct Job {
        load: Load,
        now: Instant,
        done: Done,
    }

    impl Job {
        fn new() -> Self {
            Self { load: Load::default(), now: Instant::now(), done: Done::default() }
        }

        /// So many seconds in each of which kernels keep so many ms of a whole GPU busy; what was reported.
        fn run(&mut self, seconds: u32, active_ms: u64, used_ms: u64) -> Vec<u32> {
            let mut reported = Vec::new();
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                let ms = |ms: u64| Nanos(ms * 1_000_000);
                let more = KernelActivity {
                    kernels: ms(used_ms),
                    active: ms(active_ms),
                    resident: ms(active_ms / 2),
                    ..KernelActivity::default()
                };
                self.done = (self.done.0.and(more), self.done.1 + ms(used_ms).0);
                self.load.observe(self.now, Some(HashMap::from([((1, 1), self.done)])));
                reported.extend(self.load.news().map(|found| found.smact.0));
            }
            reported
        }
    }

    #[test]
    fn sm_activity_is_that_of_the_time_since_the_first_launch() {
        let mut job = Job::new();
        assert_eq!(job.run(60, 0, 0), [0; 0], "it loads its data");
        assert_eq!(job.run(9, 250, 900), [0; 0], "that is too short");
        assert_eq!(job.run(60, 250, 900), [250]);
        let (_, smocc, drama) = job.load.measured().unwrap();
        assert!((smocc - 0.125).abs() < 1e-6 && drama.is_none());
        assert_eq!(job.load.reported.unwrap().drama, None, "launches show nothing of it");
        let more = job.run(60, 750, 900);
        assert!(
            more.windows(2).all(|two| two[1] - two[0] >= MIN_CHANGE) && *more.last().unwrap() > 450,
            "{more:?}"
        );
    }

    #[test]
    fn a_job_that_launches_nothing_beside_others_does_nothing() {
        let mut job = Job { load: Load::beside(), ..Job::new() };
        job.run(9, 0, 0);
        assert_eq!(job.load.measured(), None, "that is too short");
        job.run(11, 0, 0);
        assert_eq!(job.load.measured(), Some((0.0, 0.0, None)));
        job.run(20, 500, 900);
        let (smact, ..) = job.load.measured().unwrap();
        assert!((0.25..0.3).contains(&smact), "{smact}");
        let mut alone = Job::new();
        alone.run(60, 0, 0);
        assert_eq!(alone.load.measured(), None, "it may still load its data");
    }

    #[test]
    fn a_job_that_stopped_launching_is_idle_lately_whatever_its_mean_is() {
        let mut job = Job::new();
        job.run(1, 0, 0);
        job.run(60, 500, 900);
        assert_eq!(job.load.lately(job.now).map(|parts| parts.0), Some(0.5));
        job.run(1, 0, 0);
        assert_eq!(job.load.lately(job.now), Some((0.0, 0.0)));
        assert!(job.load.measured().unwrap().0 > 0.4);
        assert_eq!(job.load.lately(job.now + 2 * MAX_GAP), None, "that is too long ago");
    }

    #[test]
    fn a_long_kernel_is_not_taken_for_an_idle_gpu() {
        let mut job = Job::new();
        job.run(60, 500, 900);
        let mean = job.load.measured().unwrap().0;
        job.run(4, 0, 0);
        let smact = |utilization| together(&[&job.load], job.now, utilization).unwrap()[0][0].unwrap();
        assert_eq!((smact(None), smact(Some(0))), (0.0, 0.0));
        assert!(mean - smact(Some(100)) < 0.1, "the driver has a kernel that runs");
        let unknown = Load::default();
        assert!(together(&[&job.load, &unknown], job.now, Some(0)).is_none());
    }

    #[test]
    fn a_process_whose_launches_are_not_recorded_is_unknown() {
        let process = |kernels_mode| ProcessSnapshot { kernels_mode, ..ProcessSnapshot::default() };
        assert_eq!(done(&process(Some(KernelsMode::Off))), None);
        for mode in [None, Some(KernelsMode::Count), Some(KernelsMode::All)] {
            assert_eq!(done(&process(mode)), Some((KernelActivity::default(), 0)));
        }
    }

    #[test]
    fn times_beside_others_say_nothing() {
        let mut job = Job::new();
        job.run(1, 0, 0);
        assert_eq!(job.run(20, 250, 900), [250]);
        for _ in 0..20 {
            // Another job comes, and goes.
            job.load.pause();
            job.done.0 =
                job.done.0.and(KernelActivity { active: Nanos(90_000_000_000), ..KernelActivity::default() });
            assert_eq!(job.run(1, 900, 900), [0; 0]);
        }
        job.load.observe(job.now, None);
        assert_eq!(job.run(1, 900, 900), [0; 0], "it was not known");
    }

    #[test]
    fn where_a_gpus_time_is_modelled_it_is_the_measure() {
        // A hundred seconds of the GPU in each of the host's.
        assert_eq!(Job::new().run(5, 25_000, 100_000), [250]);
        // Of a program that does other things most of the time.
        assert_eq!(Job::new().run(30, 10, 20), [10]);
    }

    #[test]
    fn a_process_that_comes_counts_and_one_that_goes_takes_nothing_back() {
        let mut load = Load::default();
        let done = |ms: u64| {
            (
                KernelActivity {
                    kernels: Nanos(ms * 1_000_000),
                    active: Nanos(ms * 1_000_000),
                    ..KernelActivity::default()
                },
                0,
            )
        };
        let mut now = Instant::now();
        let polls = [vec![], vec![(1, 1000)], vec![(1, 2000), (2, 1000)], vec![(2, 2000)]];
        for poll in polls {
            now += Duration::from_secs(5);
            load.observe(now, Some(poll.into_iter().map(|(pid, ms)| ((pid, 1), done(ms))).collect()));
        }
        assert_eq!(load.measured().map(|found| found.0), Some(4.0 / 15.0));
    }

    #[test]
    fn counters_of_the_gpu_come_before_launches_and_tell_of_dram() {
        let mut job = Job::new();
        for second in 0..30 {
            let now = job.now + Duration::from_secs(second);
            job.load.count(now, if second < 10 { [0.0; 3] } else { [0.5, 0.25, 0.75] });
        }
        job.run(30, 250, 900);
        assert_eq!(job.load.measured(), Some((0.5, 0.25, Some(0.75))));
        assert_eq!(job.load.reported.unwrap().drama, Some(Permille(750)));
    }
}
