//! Jobs that share a host: how much each is slowed by what the others do to cores, memory, page cache and PCIe.
//!
//! A job alone spends parts of its time at each resource of the host. Beside others that part is stretched, the rest is
//! not; stretches add:
//!
//! ```text
//! 1 / s_i = 1 + sum_r part_ir (stretch_ir - 1)
//!
//! cores      part = c_i / t_i            stretch = (1 - w) even + w woken
//!            even  = max(1, (t_i + R_i) / cores) / (own share of cores alone)
//!            woken = 1 + whole(R_i / cores) where that is more than even, w = min(1, 4.5 (1 - part))
//!            R_i   = sum_j r_j t_j       r_j: how much of the time a thread of j is runnable beside the others
//! memory     part = b_i / B              stretch = max(1, sum b_j s_j / B)
//!            or, where cycles are counted and no bytes:
//!            part = w_i c_i / t_i        stretch = 1 + sum_{j != i} w_j c_j s_j / cores
//! PCIe       part = p_i                  stretch = 1 + sum_{j != i} p_j s_j
//! page cache part = d_i read from the cache that no longer fits, over what the disk delivers
//! ```
//!
//! with c_i CPU seconds a second over t_i threads that use them, b_i bytes of memory traffic a second, w_i the part of its cycles
//! in which a processor waits, p_i the part of the time
//! in which its link is busy. The kernel's fair scheduler gives runnable threads equal parts of the cores in the long run, by
//! moving them between cores. A thread that sleeps and wakes is not moved in the short time that it computes: it shares one
//! core, of the cores that have the fewest threads, with all of them. So one that wakes beside two busy threads on two cores has
//! half a core, and not two thirds of one. Speeds and runnable parts are the fixed point of all of them. What is not measured counts as unused:
//! it slows no job and is slowed by none.

use radrm_base::{HostUse, Permille};
use serde::{Deserialize, Serialize};

/// Load of a job on its host, when the job runs alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostLoad {
    /// CPU seconds in a second.
    pub cores: f64,
    /// Threads that use them at the same time, at least 1.
    pub threads: f64,
    /// Memory traffic, bytes in a second; `None`: not measured.
    pub memory_bytes_per_s: Option<f64>,
    /// Part of its CPU cycles in which a processor waits for memory, where no bytes are measured; `None`: not measured.
    pub memory_stalled: Option<f64>,
    /// Part of the time in which its PCIe link is busy; `None`: not measured.
    pub pcie: Option<f64>,
    /// Bytes that it reads again and again from files, of which the page cache is to hold all.
    pub cached_bytes: f64,
    /// Bytes in a second that it reads from these.
    pub cached_bytes_per_s: f64,
    /// Resident memory, bytes: it leaves no room for the page cache.
    pub resident_bytes: f64,
}

impl From<HostUse> for HostLoad {
    /// Takes what is measured of every run: CPU time, threads and resident memory, and memory traffic or stalled cycles where
    /// they are counted.
    fn from(of: HostUse) -> Self {
        Self {
            cores: f64::from(of.cpu_milli) / 1000.0,
            threads: f64::from(of.threads),
            resident_bytes: of.resident.0 as f64,
            memory_bytes_per_s: of.memory_traffic.map(|bytes| bytes as f64),
            memory_stalled: of.memory_stalled.filter(|_| of.memory_traffic.is_none()).map(Permille::fraction),
            ..Self::default()
        }
    }
}

impl HostLoad {
    /// Part of its CPU time in which it waits for memory; what is not measured is none.
    fn stalled(&self) -> f64 {
        self.memory_stalled.unwrap_or(0.0).clamp(0.0, 1.0)
    }

    /// Cores that wait for memory for it, in the mean.
    #[must_use]
    pub fn stalled_cores(&self) -> f64 {
        self.stalled() * self.cores
    }
}

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSpec {
    /// Cores that jobs can use.
    pub cores: f64,
    /// Most memory traffic, bytes in a second; `None`: not measured.
    pub memory_bytes_per_s: Option<f64>,
    /// Memory, bytes; `None`: the page cache is not looked at.
    pub memory_bytes: Option<f64>,
    /// Throughput of its disks, bytes in a second; `None`: not measured.
    pub disk_bytes_per_s: Option<f64>,
}

impl HostSpec {
    /// One of which only the cores are known.
    #[must_use]
    pub fn of_cores(cores: f64) -> Self {
        Self { cores, memory_bytes_per_s: None, memory_bytes: None, disk_bytes_per_s: None }
    }
}

/// Rounds to the fixed point.
const ROUNDS: usize = 200;
/// Slowest speed that is predicted.
const LOWEST: f64 = 0.001;
/// A thread that sleeps for `1 / 4.5` of its time or more counts as one that wakes; one that sleeps less does in part. By measured
/// speeds beside two busy threads on two cores: loaders that compute 24 and 64 % of their time had half a core, one with 93 % was
/// a third of the way from two thirds of a core to half of one.
const WAKES: f64 = 4.5;

/// Speeds of jobs on one host against running alone there, 0 to 1, in the order given.
#[must_use]
pub fn host_speeds(jobs: &[HostLoad], host: &HostSpec) -> Vec<f64> {
    let mut speeds = vec![1.0; jobs.len()];
    // How much of the time a thread of each is runnable.
    let mut runnable: Vec<f64> = jobs.iter().map(busy).collect();
    if jobs.len() < 2 {
        return speeds;
    }
    // What threads wait beyond the mean, so that no more is computed than the cores can.
    let mut crowded = 1.0_f64;
    for _ in 0..ROUNDS {
        let all: f64 = jobs.iter().zip(&runnable).map(|(job, part)| threads(job) * part).sum();
        let traffic = sum(jobs, &speeds, |job| job.memory_bytes_per_s.unwrap_or(0.0));
        let stalled = sum(jobs, &speeds, HostLoad::stalled_cores);
        let links = sum(jobs, &speeds, |job| job.pcie.unwrap_or(0.0));
        let cache = cache_misses(jobs, host);
        let mut moved = 0.0_f64;
        for (at, job) in jobs.iter().enumerate() {
            let others = (all - threads(job) * runnable[at]).max(0.0);
            let alone = (threads(job) / host.cores).max(1.0);
            let beside = ((threads(job) + others) / host.cores).max(1.0);
            let even = (beside / alone).max(1.0) * crowded;
            let own = (threads(job) - 1.0).max(0.0);
            let woken = woken(others + own * runnable[at], host.cores) / woken(own * busy(job), host.cores);
            let stretch = even + wakes(job) * (woken - even).max(0.0);
            let mut slow = 1.0 + busy(job) * (stretch - 1.0);
            if let (Some(own), Some(most)) = (job.memory_bytes_per_s, host.memory_bytes_per_s)
                && most > 0.0
            {
                let part = (own / most).clamp(0.0, 1.0);
                slow += part * ((traffic / most).max(1.0) - 1.0);
            }
            let others = (stalled - job.stalled_cores() * speeds[at]).max(0.0);
            slow += job.stalled() * busy(job) * others / host.cores;
            let own = job.pcie.unwrap_or(0.0).clamp(0.0, 1.0);
            slow += own * (links - own * speeds[at]).max(0.0);
            slow += cache * extra(job, host);
            let next = 0.5 * speeds[at] + 0.5 * (1.0 / slow).max(LOWEST);
            moved = moved.max((next - speeds[at]).abs());
            speeds[at] = next;
            // The stretched part of the stretched time. To its neighbours a thread is runnable as if it were moved: while it
            // waits for one core, those on the others lose nothing.
            let waits = busy(job) * even / (slow - busy(job) * (stretch - even)).max(1.0);
            runnable[at] = 0.5 * runnable[at] + 0.5 * waits.clamp(0.0, 1.0);
        }
        let taken = sum(jobs, &speeds, |job| job.cores);
        let wider = (crowded * (taken / host.cores).sqrt()).max(1.0);
        moved = moved.max((wider - crowded).abs());
        crowded = wider;
        if moved < 1e-6 {
            break;
        }
    }
    speeds
}

fn threads(job: &HostLoad) -> f64 {
    job.threads.max(job.cores).max(if job.cores > 0.0 { 1.0 } else { 0.0 })
}

/// Part of a job's time in which its threads compute, alone.
fn busy(job: &HostLoad) -> f64 {
    let threads = threads(job);
    if threads > 0.0 { (job.cores / threads).clamp(0.0, 1.0) } else { 0.0 }
}

/// Stretch of a thread's time on the core where it wakes, beside `others` threads that are runnable in the mean.
fn woken(others: f64, cores: f64) -> f64 {
    let (sure, part) = (others.floor(), others.fract());
    let beside = |threads: f64| (threads / cores).floor();
    1.0 + (1.0 - part) * beside(sure) + part * beside(sure + 1.0)
}

/// Degree to which a job's threads are those that wake, 0 to 1, and not those that the kernel moves while they compute.
fn wakes(job: &HostLoad) -> f64 {
    (WAKES * (1.0 - busy(job))).min(1.0)
}

fn sum(jobs: &[HostLoad], speeds: &[f64], of: impl Fn(&HostLoad) -> f64) -> f64 {
    jobs.iter().zip(speeds).map(|(job, speed)| of(job) * speed).sum()
}

/// Part of what is read again and again that the page cache no longer holds.
fn cache_misses(jobs: &[HostLoad], host: &HostSpec) -> f64 {
    let Some(memory) = host.memory_bytes else { return 0.0 };
    let resident: f64 = jobs.iter().map(|job| job.resident_bytes).sum();
    let files: f64 = jobs.iter().map(|job| job.cached_bytes).sum();
    let room = (memory - resident).max(0.0);
    if files > room { 1.0 - room / files } else { 0.0 }
}

/// Time that a second of a job alone takes longer if nothing of its files is in the page cache.
fn extra(job: &HostLoad, host: &HostSpec) -> f64 {
    match host.disk_bytes_per_s {
        Some(disk) if disk > 0.0 => job.cached_bytes_per_s / disk,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostSpec = HostSpec {
        cores: 2.0,
        memory_bytes_per_s: Some(20e9),
        memory_bytes: Some(16e9),
        disk_bytes_per_s: Some(1e9),
    };

    fn cpu(cores: f64, threads: f64) -> HostLoad {
        HostLoad { cores, threads, ..HostLoad::default() }
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 0.01, "{found} and not {expected}");
    }

    #[test]
    fn threads_that_always_compute_share_the_cores_evenly() {
        let speeds = host_speeds(&[cpu(1.0, 1.0), cpu(1.0, 1.0)], &HOST);
        near(speeds[0], 1.0);
        for speed in host_speeds(&[cpu(1.0, 1.0); 4], &HOST) {
            near(speed, 0.5);
        }
        // Of five threads on two cores each gets two fifths; a job of two had a core for each of them.
        let speeds = host_speeds(&[cpu(2.0, 2.0), cpu(1.0, 1.0), cpu(2.0, 2.0)], &HOST);
        near(speeds[0], 0.4);
        near(speeds[1], 0.4);
    }

    #[test]
    fn only_the_part_on_the_cores_is_stretched() {
        // Half of its time on a core, beside three threads that leave it half of one: 1 / (0.5 + 0.5 * 2).
        let speeds = host_speeds(&[cpu(0.5, 1.0), cpu(1.0, 1.0), cpu(1.0, 1.0), cpu(1.0, 1.0)], &HOST);
        near(speeds[0], 1.0 / 1.5);
        assert_eq!(host_speeds(&[cpu(0.0, 0.0), cpu(2.0, 2.0), cpu(2.0, 2.0)], &HOST)[0], 1.0);
    }

    /// Measured on two cores, `bench/RESULTS.md`: a loader's cores alone, how many processes compute beside it, its speed.
    #[test]
    fn a_loader_that_wakes_shares_one_core() {
        for (cores, beside, seen) in [
            (0.64, 1, 0.96),
            (0.64, 2, 0.61),
            (0.64, 3, 0.60),
            (0.24, 1, 0.99),
            (0.24, 2, 0.82),
            (0.24, 3, 0.78),
            (0.93, 1, 0.95),
            (0.93, 2, 0.62),
            (0.93, 3, 0.51),
        ] {
            let mut jobs = vec![cpu(cores, 1.0)];
            jobs.resize(1 + beside, cpu(1.0, 1.0));
            let found = host_speeds(&jobs, &HOST)[0];
            assert!((found - seen).abs() <= 0.07, "{cores} beside {beside}: {found} and not {seen}");
        }
    }

    #[test]
    fn memory_traffic_counts_where_it_is_known_and_exceeds_the_host() {
        let job = |bytes: f64| HostLoad { memory_bytes_per_s: Some(bytes), ..cpu(0.5, 1.0) };
        let light = host_speeds(&[job(5e9), job(5e9)], &HOST);
        assert_eq!(light, [1.0, 1.0]);
        let heavy = host_speeds(&[job(18e9), job(18e9)], &HOST);
        // s = 1 / (1 + 0.9 (1.8 s - 1))
        near(heavy[0], 0.755);
        near(heavy[1], 0.755);
        let unknown = HostSpec { memory_bytes_per_s: None, ..HOST };
        assert_eq!(host_speeds(&[job(18e9), job(18e9)], &unknown), [1.0, 1.0]);
    }

    #[test]
    fn jobs_that_wait_for_memory_stretch_each_others_waits() {
        let host = HostSpec { cores: 8.0, ..HOST };
        let job = |cores: f64, stalled: f64| HostLoad { memory_stalled: Some(stalled), ..cpu(cores, cores) };
        // s = 1 / (1 + 0.5 (4 * 0.5 s / 8))
        let equal = host_speeds(&[job(4.0, 0.5), job(4.0, 0.5)], &host);
        near(equal[0], 0.899);
        near(equal[1], 0.899);
        assert_eq!(host_speeds(&[job(4.0, 0.0), job(4.0, 0.9)], &host), [1.0, 1.0], "one does not wait");
        assert_eq!(host_speeds(&[job(4.0, 0.9), cpu(4.0, 4.0)], &host), [1.0, 1.0], "not measured");
        let few = host_speeds(&[job(1.0, 1.0), job(1.0, 1.0)], &HostSpec { cores: 64.0, ..HOST });
        near(few[0], 0.985);
    }

    #[test]
    fn bytes_that_are_measured_take_the_place_of_stalled_cycles() {
        let both = HostUse {
            cpu_milli: 1000,
            threads: 1,
            memory_traffic: Some(5),
            memory_stalled: Some(Permille(900)),
            ..HostUse::default()
        };
        assert_eq!(HostLoad::from(both).memory_stalled, None, "memory counts once");
        let stalled = HostLoad::from(HostUse { memory_traffic: None, ..both });
        assert_eq!((stalled.memory_bytes_per_s, stalled.memory_stalled), (None, Some(0.9)));
    }

    #[test]
    fn files_that_no_longer_fit_into_the_page_cache_come_from_the_disk() {
        let reads = HostLoad { cached_bytes: 8e9, cached_bytes_per_s: 1e9, ..cpu(0.2, 1.0) };
        let holds = |bytes: f64| HostLoad { resident_bytes: bytes, ..cpu(0.2, 1.0) };
        near(host_speeds(&[reads, holds(4e9)], &HOST)[0], 1.0);
        // Half of its files are in memory; what it reads of the others takes as long as all of its time did.
        near(host_speeds(&[reads, holds(12e9)], &HOST)[0], 1.0 / 1.5);
    }

    /// Jobs of all sorts, always the same ones: up to five a case.
    fn cases() -> impl Iterator<Item = Vec<HostLoad>> {
        let mut state = 1u64;
        let mut part = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1u32 << 31)
        };
        (0..500).map(move |case| {
            let job = |part: &mut dyn FnMut() -> f64| {
                let cores = 2.0 * part();
                HostLoad {
                    cores,
                    threads: cores + 4.0 * part(),
                    memory_bytes_per_s: (part() < 0.5).then(|| 30e9 * part()),
                    pcie: (part() < 0.5).then(&mut *part),
                    ..HostLoad::default()
                }
            };
            (0..1 + case % 5).map(|_| job(&mut part)).collect()
        })
    }

    #[test]
    fn speeds_are_parts_of_the_speed_alone_and_cores_are_not_sold_twice() {
        for jobs in cases() {
            let speeds = host_speeds(&jobs, &HOST);
            assert!(speeds.iter().all(|speed| (LOWEST..=1.0).contains(speed)), "{speeds:?}");
            let taken: f64 = jobs.iter().zip(&speeds).map(|(job, speed)| job.cores * speed).sum();
            assert!(taken <= HOST.cores * 1.01, "{taken} of {}: {jobs:?} {speeds:?}", HOST.cores);
        }
    }

    /// Of one resource: with several, a job that slows a neighbour on the cores leaves more of the link to the others.
    #[test]
    fn another_job_on_the_cores_makes_none_faster() {
        let more = [cpu(1.0, 1.0), cpu(0.7, 3.0)];
        for mut jobs in cases() {
            jobs.iter_mut().for_each(|job| (job.memory_bytes_per_s, job.pcie) = (None, None));
            let alone = host_speeds(&jobs, &HOST);
            let all: Vec<HostLoad> = jobs.iter().chain(&more).copied().collect();
            for (before, after) in alone.iter().zip(host_speeds(&all, &HOST)) {
                assert!(after <= before + 2e-2, "{jobs:?}: {before} and then {after}");
            }
        }
    }
}
