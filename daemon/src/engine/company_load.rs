//! Load of a GPU by all jobs that share it, where the activity of some was never measured alone: by the GPU's counters, else by
//! timed launches. The scheduler takes off what it knows of the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use radrm_scheduler_core::{Activity, Event, JobId, Permille};

use super::Engine;
use crate::gpus::Sample;
use crate::load::{Load, MAX_GAP, MIN_CHANGE, MIN_KNOWN};
use crate::store::Entry;
use crate::suspend::Step;

/// SM activity, SM occupancy and DRAM activity.
type Parts = [f64; 3];

/// Samples of each GPU on which jobs share of which some were never measured alone, by UUID.
#[derive(Debug, Default)]
pub(super) struct CompanyLoads {
    of_gpus: BTreeMap<String, CompanyLoad>,
    /// Those of which counters show the load.
    counted: BTreeSet<String>,
    /// The job of each user that was read last: where the time for its jobs is over, the next reading begins behind it.
    last_read: BTreeMap<u32, u64>,
}

/// Load of a GPU by its jobs since they are the same, or in the last window.
#[derive(Debug, Default)]
struct CompanyLoad {
    jobs: Vec<u64>,
    begun: Option<Instant>,
    samples: VecDeque<(Instant, Parts)>,
    /// Sum of all samples since then, and their number.
    sum: Parts,
    count: u32,
    reported: Option<Seen>,
}

/// Observed load of a company.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    together: Activity,
    /// SM activity of each job by its own launches; empty: not known.
    each: Vec<Permille>,
}

impl CompanyLoad {
    /// Adds a sample, `None` where nothing is known of all jobs. Returns what they do together, if it is news: until a window is
    /// over their highest sample, then the mean of the last window, or of all samples where that is more: a window in which they did
    /// something else, as an evaluation, says little of the next.
    fn observe(
        &mut self,
        now: Instant,
        jobs: &[u64],
        sample: Option<Parts>,
        each: Vec<Permille>,
        least: Duration,
        window: Duration,
    ) -> Option<Seen> {
        let is_gap = self.samples.back().is_some_and(|(at, _)| now.saturating_duration_since(*at) > MAX_GAP);
        if self.jobs != jobs || sample.is_none() || is_gap {
            *self = Self { jobs: jobs.to_vec(), ..Self::default() };
        }
        let sample = sample?;
        let begun = *self.begun.get_or_insert(now);
        let sample = sample.map(|part| part.clamp(0.0, 1.0));
        self.samples.push_back((now, sample));
        self.sum.iter_mut().zip(sample).for_each(|(sum, part)| *sum += part);
        self.count += 1;
        while self.samples.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > window) {
            self.samples.pop_front();
        }
        let span = now.saturating_duration_since(begun);
        if span < least {
            return None;
        }
        let values = |at: usize| self.samples.iter().map(move |(_, parts)| parts[at]);
        let of_window = |at: usize| values(at).sum::<f64>() / self.samples.len() as f64;
        let decisive = |at: usize| match span < window {
            true => values(at).fold(0.0, f64::max),
            false => of_window(at).max(self.sum[at] / f64::from(self.count)),
        };
        let [smact, smocc, drama] = [0, 1, 2].map(|at| Permille::from_fraction(decisive(at)));
        let seen = Seen { together: Activity { smact, smocc, drama }, each };
        let is_news = self.reported.as_ref().is_none_or(|before| before.differs(&seen));
        is_news.then(|| self.reported.insert(seen).clone())
    }
}

impl Seen {
    /// Returns true if the difference is worth a report.
    fn differs(&self, other: &Self) -> bool {
        let moved = |a: Permille, b: Permille| a.0.abs_diff(b.0) >= MIN_CHANGE;
        let (before, now) = (self.together, other.together);
        moved(before.smact, now.smact)
            || moved(before.smocc, now.smocc)
            || moved(before.drama, now.drama)
            || self.each.len() != other.each.len()
            || self.each.iter().zip(&other.each).any(|(before, now)| moved(*before, *now))
    }
}

/// Turn of a job among those of its user: first those behind the one that was read last.
fn turn(last_read: Option<&u64>, job: u64) -> (bool, u64) {
    (last_read.is_some_and(|last| job <= *last), job)
}

impl Engine {
    /// GPUs on which jobs share of which some were never measured alone, by UUID, with their jobs. None where launches are held back,
    /// or processes without the shim are there too.
    fn companies_to_learn(&self) -> BTreeMap<String, Vec<u64>> {
        let mut on: BTreeMap<&String, Vec<&Entry>> = BTreeMap::new();
        if self.config.scheduler.policy.predicts() {
            for entry in self.jobs.on_gpus() {
                entry.devices.iter().for_each(|uuid| on.entry(uuid).or_default().push(entry));
            }
        }
        let known = |entry: &&Entry| {
            let resolved = entry.needs.as_ref().and_then(|needs| needs.activity.as_ref());
            entry.activity.is_some() || resolved.is_some_and(|known| !known.source.is_predicted())
        };
        let is_free =
            |entry: &&Entry| entry.suspension.step == Step::Running && !self.slots.concerns(entry.id);
        on.retain(|uuid, there| {
            there.len() > 1
                && !there.iter().all(known)
                && there.iter().all(is_free)
                && self.node.unmanaged().iter().all(|found| found.gpu != **uuid)
        });
        let numbers = |there: Vec<&Entry>| there.iter().map(|entry| entry.id).collect();
        on.into_iter().map(|(uuid, there)| (uuid.clone(), numbers(there))).collect()
    }

    /// Reads what the jobs of such GPUs launched, of each user from the job on that follows the one that was read last.
    pub(super) fn read_companies(&mut self) {
        let now = self.now.mono;
        let mut of_job: BTreeMap<u64, Vec<(String, Vec<u64>)>> = BTreeMap::new();
        for (uuid, jobs) in self.companies_to_learn() {
            jobs.iter().for_each(|job| of_job.entry(*job).or_default().push((uuid.clone(), jobs.clone())));
        }
        let uid_of = |job: u64| self.jobs.entry(job).map_or(0, |entry| entry.uid);
        let mut in_turn: Vec<_> =
            of_job.into_iter().map(|(job, companies)| (uid_of(job), job, companies)).collect();
        let CompanyLoads { counted, last_read, .. } = &mut self.company_loads;
        last_read.retain(|uid, _| in_turn.iter().any(|(of, ..)| of == uid));
        in_turn.sort_by_key(|(uid, job, _)| turn(last_read.get(uid), *job));
        for (uid, job, companies) in in_turn {
            let Some(live) = self.jobs.live_mut(job) else { continue };
            let observed = &mut live.observed;
            observed
                .beside
                .retain(|uuid, (jobs, _)| companies.iter().any(|of| of.0 == *uuid && of.1 == *jobs));
            let is_due = |uuid: &String| observed.beside.get(uuid).is_none_or(|(_, load)| load.is_due(now));
            if !companies.iter().any(|(uuid, _)| is_due(uuid)) {
                continue;
            }
            let Some(mut seen) = self.read_times.read(uid, now, |time| observed.work(time)) else {
                continue;
            };
            last_read.insert(uid, job);
            let has_launched = observed.has_launched;
            for (uuid, jobs) in companies {
                let gpu = self.node.gpus().list.iter().find(|gpu| gpu.uuid == uuid);
                let mine =
                    gpu.and_then(|gpu| seen.as_mut().map(|seen| seen.remove(&gpu.bytes).unwrap_or_default()));
                let is_counted = counted.contains(&uuid);
                let load = &mut observed.beside.entry(uuid).or_insert_with(|| (jobs, Load::beside())).1;
                load.observe(now, mine);
                // Its launches are only its part of what counters show.
                if is_counted && has_launched && load.measured().is_some() {
                    load.rest(now);
                }
            }
        }
    }

    /// Reports to the scheduler what the jobs of such GPUs do together, once each has launched kernels or could have for a window.
    pub(super) fn report_companies(&mut self, samples: &[Sample]) {
        let window = Duration::from_millis(self.config.scheduler.preconditions.window.0);
        let companies = self.companies_to_learn();
        self.company_loads.of_gpus.retain(|uuid, _| companies.contains_key(uuid));
        self.company_loads.counted.retain(|uuid| companies.contains_key(uuid));
        for (uuid, jobs) in companies {
            let Some(device) = self.node.device(&uuid) else { continue };
            let are_at_work = jobs.iter().all(|job| self.is_at_work(*job, window));
            // Counters of a GPU with modelled time set that time against the host's.
            let sample = samples.iter().find(|sample| sample.uuid == uuid && !sample.is_modelled);
            let counted = sample.and_then(|sample| self.whole(sample.activity));
            if counted.is_some() {
                self.company_loads.counted.insert(uuid.clone());
            } else {
                self.company_loads.counted.remove(&uuid);
            }
            let launched = self.launched(&uuid, &jobs);
            let sum = |all: &Vec<Parts>| [0, 1, 2].map(|at: usize| all.iter().map(|parts| parts[at]).sum());
            // A mean since all of them are there needs no window.
            let least = if counted.is_some() { MIN_KNOWN } else { Duration::ZERO };
            let seen = counted.or_else(|| launched.as_ref().map(sum)).filter(|_| are_at_work);
            let each =
                launched.unwrap_or_default().iter().map(|parts| Permille::from_fraction(parts[0])).collect();
            let of_gpu = self.company_loads.of_gpus.entry(uuid).or_default();
            if let Some(Seen { together, each }) =
                of_gpu.observe(self.now.mono, &jobs, seen, each, least, window)
            {
                let jobs = jobs.iter().copied().map(JobId).collect();
                self.step(Event::CompanyObserved { device, jobs, together, each });
            }
        }
    }

    /// Returns true if a job has launched kernels, or has had its GPUs for so long without: a shell, or a program that waits, may
    /// never launch any, and what counters show is the others' then.
    fn is_at_work(&self, job: u64, window: Duration) -> bool {
        let Some(live) = self.jobs.live(job) else { return false };
        let since = self.jobs.entry(job).and_then(|entry| entry.started_ms);
        let has_had = since.map(|since| Duration::from_millis(self.now.at.0.saturating_sub(since)));
        live.observed.has_launched || has_had.is_some_and(|has_had| has_had >= window)
    }

    /// Load by each of these jobs beside the others, by its launches; `None` where that is not known of all of them. Jobs write
    /// their launches themselves: none does more than a whole GPU can.
    fn launched(&self, uuid: &str, jobs: &[u64]) -> Option<Vec<Parts>> {
        let of_job = |job: &u64| {
            let (_, load) = self.jobs.live(*job)?.observed.beside.get(uuid)?;
            let (smact, smocc, drama) = load.measured()?;
            let parts = self.whole([Some(smact), Some(smocc), drama])?;
            Some(parts.map(|part| part.clamp(0.0, 1.0)))
        };
        jobs.iter().map(of_job).collect()
    }

    /// Activity of which what is not measured is as much by SM activity as is assumed.
    fn whole(&self, parts: [Option<f64>; 3]) -> Option<Parts> {
        let assumed = self.config.scheduler.assumed;
        let [smact, smocc, drama] = parts;
        let smact = smact?;
        let usual = |part: Permille| smact * part.fraction() / assumed.smact.fraction().max(0.001);
        Some([
            smact,
            smocc.unwrap_or_else(|| usual(assumed.smocc)),
            drama.unwrap_or_else(|| usual(assumed.drama)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GPU that is polled once a second.
    struct Gpu {
        load: CompanyLoad,
        now: Instant,
    }

    impl Gpu {
        fn new() -> Self {
            Self { load: CompanyLoad::default(), now: Instant::now() }
        }

        /// So many seconds with this SM activity; what was reported.
        fn see(&mut self, seconds: u64, jobs: &[u64], smact: Option<f64>) -> Vec<u32> {
            let sample = smact.map(|smact| [smact, 0.0, 0.0]);
            let mut reported = Vec::new();
            for _ in 0..seconds {
                self.now += Duration::from_secs(1);
                let (least, window) = (Duration::from_secs(10), Duration::from_secs(90));
                let seen = self.load.observe(self.now, jobs, sample, Vec::new(), least, window);
                reported.extend(seen.map(|seen| seen.together.smact.0));
            }
            reported
        }
    }

    #[test]
    fn the_highest_sample_counts_until_a_window_is_over_and_then_the_mean() {
        let mut gpu = Gpu::new();
        assert_eq!(gpu.see(10, &[1, 2], Some(0.1)), [0; 0], "that is too short");
        assert_eq!(gpu.see(1, &[1, 2], Some(0.1)), [100]);
        assert_eq!(gpu.see(1, &[1, 2], Some(0.5)), [500]);
        assert_eq!(gpu.see(77, &[1, 2], Some(0.1)), [0; 0]);
        assert_eq!(gpu.see(9, &[1, 2], Some(0.1)), [104], "the mean");
    }

    #[test]
    fn a_quiet_window_does_not_make_busy_jobs_idle() {
        let mut gpu = Gpu::new();
        gpu.see(300, &[1, 2], Some(0.9));
        let evaluation = gpu.see(100, &[1, 2], Some(0.01));
        assert!(evaluation.iter().all(|smact| *smact >= 675), "the mean of all of it: {evaluation:?}");
        // Jobs that become busy are seen in a window.
        let mut gpu = Gpu::new();
        gpu.see(300, &[1, 2], Some(0.01));
        assert_eq!(gpu.see(100, &[1, 2], Some(0.9)).last().map(|smact| *smact > 870), Some(true));
    }

    #[test]
    fn jobs_take_turns_at_being_read() {
        let order = |last: Option<u64>| {
            let mut jobs = [1, 2, 3, 4];
            jobs.sort_by_key(|job| turn(last.as_ref(), *job));
            jobs
        };
        assert_eq!((order(None), order(Some(2)), order(Some(4))), ([1, 2, 3, 4], [3, 4, 1, 2], [1, 2, 3, 4]));
    }

    #[test]
    fn other_jobs_or_jobs_without_launches_begin_anew() {
        let mut gpu = Gpu::new();
        assert_eq!(gpu.see(15, &[1, 2], Some(0.1)), [100]);
        assert_eq!(gpu.see(10, &[1, 2, 3], Some(0.2)), [0; 0]);
        assert_eq!(gpu.see(1, &[1, 2, 3], Some(0.2)), [200]);
        assert_eq!(gpu.see(30, &[1, 2, 3, 4], None), [0; 0], "one of them has launched nothing");
        assert_eq!(gpu.see(10, &[1, 2, 3, 4], Some(0.2)), [0; 0]);
        gpu.now += Duration::from_secs(60);
        assert_eq!(gpu.see(5, &[1, 2, 3, 4], Some(0.2)), [0; 0], "no poll for a while");
    }
}
