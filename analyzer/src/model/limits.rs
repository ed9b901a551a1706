//! Bottleneck of the job, in one sentence with its evidence.

use super::{GpuSummary, LoadSummary, Summary};
use radrm_profile::model::GpuClock;
use radrm_profile::{Bytes, Nanos};
use serde::Serialize;

/// From this share of the time on, SMs count as busy: the point from which jobs that share a GPU slow
/// each other down in published collocation studies.
const SM_BUSY: f64 = 0.8;
/// Likewise for the memory's bandwidth; measured code rarely gets beyond 0.8 of it.
const DRAM_BUSY: f64 = 0.6;
/// Below this the GPU waits for something.
const SM_IDLE: f64 = 0.5;
/// A mean rate over PCI Express that is a good part of what a slot of 16 lanes gives (generation 3: 16 GB/s).
const COPY_RATE: f64 = 8e9;
/// Host time of a launch without any tool, ns: 4.3 us.
const LAUNCH_NS: f64 = 4300.0;
/// Share of the time that launching takes in a program that does little else.
const LAUNCHING: f64 = 0.5;
/// A processor that is busy for this share of the time has no time left.
const PROCESSOR_BUSY: f64 = 0.85;
/// Less than this was watched: too little to judge.
const WATCHED: Nanos = Nanos::from_millis(300);

/// Origin of an estimate of SM activity, in words.
const ESTIMATED: &str = "estimated from the shapes of launches and the times of those that were timed";

/// Bottleneck of the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LimitSummary {
    /// `compute`, `memory_bandwidth`, `gpu` (one of these two: the GPU is full by an estimate that does not distinguish them
    /// apart), `copy`, `launch`, `small_kernels` (they run all the time and leave much of the GPU idle), `host`, `none`
    /// (known, and none of these), or `unknown`.
    pub limit: &'static str,
    /// The GPU that it is about.
    pub gpu: Option<u8>,
    /// The sentence for people.
    pub sentence: String,
}

/// SM activity, 0 to 1.
#[derive(Clone, Copy)]
struct Sm {
    share: f64,
    is_estimate: bool,
}

impl Sm {
    /// SM activity as measured, else as estimated; `None` without either.
    /// The estimate contains the job's own part only, which is all of it if no other job uses the GPU.
    fn of(gpu: &GpuSummary) -> Option<Sm> {
        let measured = gpu.load.as_ref().and_then(|load| load.sm_active_share);
        let estimated = || gpu.estimate.and_then(|estimate| estimate.sm_active_share);
        measured
            .map(|share| Sm { share, is_estimate: false })
            .or_else(|| estimated().map(|share| Sm { share, is_estimate: true }))
    }

    fn origin(self) -> String {
        if self.is_estimate { format!(" ({ESTIMATED})") } else { String::new() }
    }
}

/// Known figures, each `None` if it was not measured.
struct Known<'a> {
    gpu: u8,
    load: &'a LoadSummary,
    sm: Option<Sm>,
    /// Share of the time in which a kernel ran, of any process.
    running: Option<f64>,
    /// Time of the job's kernels, added up, as a share.
    kernel_time: Option<f64>,
    /// Launches per second.
    launch_rate: f64,
    /// Mean time of a launch, ns.
    launch_ns: Option<f64>,
    /// Share of the time without a kernel, at the least.
    idle: Option<f64>,
    /// Processors kept busy.
    busy: Option<f64>,
    /// Bytes copied between host and device per second, as the program asked.
    copied: f64,
}

/// Reads a summary that is complete but for this.
pub(super) fn limit(s: &Summary) -> LimitSummary {
    let launches = s.launches.saturating_add(s.graph_launches);
    let unknown = |why: &str| LimitSummary {
        limit: "unknown",
        gpu: None,
        sentence: format!("bottleneck unknown: {why}"),
    };
    if s.nothing_seen() {
        return unknown(match (s.uncounted.is_empty(), s.init_failures.is_empty()) {
            (true, true) => "no GPU program was seen",
            (true, false) => "cuInit failed",
            (false, _) => "no process was counted",
        });
    }
    match s.gpu_clock {
        GpuClock::Real => {}
        GpuClock::Modelled => return unknown("the GPUs are emulated"),
        GpuClock::Absent => return unknown("a dry run computes nothing"),
    }
    let watched = |gpu: &GpuSummary| {
        let load = gpu.load.as_ref().map(|load| load.watched_ns);
        load.max(gpu.estimate.map(|estimate| estimate.over_ns))
    };
    if !s.gpus.iter().any(|gpu| watched(gpu).is_some()) {
        return unknown("the GPU's load was not sampled");
    }
    let busiest = s
        .gpus
        .iter()
        .filter(|gpu| (gpu.used() || launches > 0) && watched(gpu) >= Some(WATCHED))
        .max_by(|a, b| figure(a).total_cmp(&figure(b)));
    let Some(gpu) = busiest else {
        return unknown("the GPU was watched for too short a time");
    };
    let seconds = s.outcome.duration_ns.as_secs_f64().max(1e-9);
    let timed: Vec<_> = s.kernels.iter().filter_map(|kernel| Some((kernel, kernel.gpu_time?))).collect();
    let timed_ns: f64 = timed.iter().map(|(_, time)| time.total_ns.0 as f64).sum();
    let timed_launches: f64 =
        timed.iter().map(|(kernel, _)| kernel.launches.saturating_add(kernel.graph_launches) as f64).sum();
    let over_pcie = |way: &str| matches!(way, "host_to_device" | "device_to_host");
    let load = gpu.load.clone().unwrap_or_default();
    let known = Known {
        gpu: gpu.index,
        load: &load,
        sm: Sm::of(gpu),
        running: load.utilization_share,
        kernel_time: gpu.estimate.map(|estimate| estimate.kernel_time_share),
        launch_rate: launches as f64 / seconds,
        launch_ns: (timed_launches > 0.0).then(|| timed_ns / timed_launches),
        idle: s.gpu_idle_share,
        busy: s.host.as_ref().and_then(|host| host.mean_busy_processors),
        copied: s.copies.iter().filter(|c| over_pcie(&c.way)).map(|c| c.bytes.0 as f64).sum::<f64>()
            / seconds,
    };
    match found(&known) {
        Some((limit, sentence)) => LimitSummary { limit, gpu: Some(gpu.index), sentence },
        None if known.sm.is_none() => {
            let why = s.unmeasured.iter().find(|clause| clause.starts_with("SM activity"));
            unknown(why.map_or("SM activity was not measured", String::as_str))
        }
        None => LimitSummary {
            limit: "none",
            gpu: Some(gpu.index),
            sentence: format!(
                "no single bottleneck found on GPU {}: {}; the job waits for something that is not measured, or its phases differ",
                gpu.index,
                known.figures()
            ),
        },
    }
}

/// The best figure of how busy a GPU was.
fn figure(gpu: &GpuSummary) -> f64 {
    let utilization = || gpu.load.as_ref().and_then(|load| load.utilization_share);
    Sm::of(gpu).map(|sm| sm.share).or_else(utilization).unwrap_or(0.0)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The first that holds: what a GPU is full of comes before what keeps it empty.
fn found(known: &Known<'_>) -> Option<(&'static str, String)> {
    let Known { gpu, load, sm, .. } = known;
    // Counters do not tell programs apart.
    let meter = load.meter.map_or("", |meter| match meter {
        "gpm" => " (GPM, all programs on it)",
        _ => " (DCGM, all programs on it)",
    });
    if let Some(dram) = load.dram_active_share.filter(|share| *share >= DRAM_BUSY) {
        let text = format!(
            "memory bandwidth limits it: {} of GPU {gpu}'s was in use on average{meter}",
            percent(dram)
        );
        return Some(("memory_bandwidth", text));
    }
    if let Some(sm) = sm.filter(|sm| sm.share >= SM_BUSY) {
        let active = format!("the SMs of GPU {gpu} were active {} of the time", percent(sm.share));
        if sm.is_estimate {
            let text = format!(
                "compute or memory bandwidth limits it: {active} ({ESTIMATED}, which does not distinguish the two)"
            );
            return Some(("gpu", text));
        }
        let dram = load.dram_active_share.map_or(String::new(), |dram| {
            format!(", its memory's bandwidth was in use to {}", percent(dram))
        });
        return Some(("compute", format!("compute limits it: {active}{dram}{meter}")));
    }
    // The GPU is not full: by the best figure there is.
    let idle = match (sm, known.idle, load.utilization_share) {
        (Some(sm), ..) => (sm.share < SM_IDLE)
            .then(|| format!("SMs were active {} of the time{}", percent(sm.share), sm.origin())),
        (None, Some(idle), _) if idle > 1.0 - SM_IDLE => {
            Some(format!("no kernel ran in at least {:.0} % of the time", (idle * 100.0).floor()))
        }
        (None, _, Some(busy)) => {
            (busy < SM_IDLE).then(|| format!("a kernel ran in {} of the time", percent(busy)))
        }
        _ => None,
    }?;
    let pcie = match (load.pcie_from_gpu_bytes_per_s, load.pcie_to_gpu_bytes_per_s) {
        (Some(from), Some(to)) => Some(from.max(to)),
        _ => None,
    };
    let (rate, by) = match pcie {
        Some(rate) if rate >= known.copied => (rate, "over PCI Express on average"),
        _ => (known.copied, "between host and device by its own copies"),
    };
    if rate >= COPY_RATE {
        let rate = Bytes(rate as u64);
        return Some(("copy", format!("copies limit it: {rate} a second {by}, while on GPU {gpu} {idle}")));
    }
    let launching = known.launch_rate * LAUNCH_NS / 1e9;
    let is_short = known.launch_ns.is_none_or(|ns| ns < 2.0 * LAUNCH_NS);
    if launching >= LAUNCHING && is_short {
        let each = known.launch_ns.map_or(String::new(), |ns| format!(" of {} each", Nanos(ns as u64)));
        let text = format!(
            "launches limit it: {:.0} a second{each}, which at some 4.3 us of the host's time each takes {} of a \
             processor, while on GPU {gpu} {idle}",
            known.launch_rate,
            percent(launching)
        );
        return Some(("launch", text));
    }
    // A host that waits for kernels spins, and seems busy. Neither figure is below the share of the time in which one of
    // the job's kernels ran: the GPU ran those of others too, and of those beside each other each counts. The lower is nearer.
    let ran = known.running.map(|share| (share, "one ran in", ""));
    let took = known.kernel_time.map(|share| (share, "they took", ", added up"));
    let small = ran.into_iter().chain(took).min_by(|(a, ..), (b, ..)| a.total_cmp(b));
    if let Some((share, what, how)) = small.filter(|(share, ..)| *share >= SM_BUSY) {
        let share = percent(share);
        let text =
            format!("small kernels limit it: {what} {share} of the time{how}, but on GPU {gpu} {idle}");
        return Some(("small_kernels", text));
    }
    let busy = known.busy.filter(|busy| *busy >= PROCESSOR_BUSY)?;
    Some((
        "host",
        format!("the host limits it: {busy:.2} processors were busy on average, while on GPU {gpu} {idle}"),
    ))
}

impl Known<'_> {
    fn figures(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.sm.map(|sm| format!("SMs active {}{}", percent(sm.share), sm.origin())));
        parts.extend(
            self.load.dram_active_share.map(|share| format!("memory bandwidth in use {}", percent(share))),
        );
        parts.extend(self.busy.map(|busy| format!("{busy:.2} processors busy")));
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EstimateSummary, HostSummary, ProcessSummary};
    use radrm_profile::model::{Job, Profile};

    fn load() -> LoadSummary {
        LoadSummary {
            watched_ns: Nanos::from_secs(10),
            meter: Some("gpm"),
            sm_active_share: Some(0.3),
            dram_active_share: Some(0.1),
            ..LoadSummary::default()
        }
    }

    fn judged(load: LoadSummary, busy: f64, launches: u64) -> LimitSummary {
        limit(&Summary { launches, ..summary(load, busy) })
    }

    fn summary(load: LoadSummary, busy: f64) -> Summary {
        let mut s = Summary::from_profile(&Profile::new(Job::default()));
        s.processes = vec![ProcessSummary::default()];
        s.gpus = vec![GpuSummary { load: Some(load), ..GpuSummary::default() }];
        s.host = Some(HostSummary { mean_busy_processors: Some(busy), ..HostSummary::default() });
        s.outcome.duration_ns = Nanos::from_secs(10);
        s
    }

    #[test]
    fn each_limit_is_found_by_its_evidence() {
        for (load, busy, launches, expected, part) in [
            (LoadSummary { dram_active_share: Some(0.7), ..load() }, 0.1, 1, "memory_bandwidth", "70 %"),
            (LoadSummary { sm_active_share: Some(0.9), ..load() }, 2.0, 1, "compute", "90 %"),
            (
                LoadSummary {
                    pcie_to_gpu_bytes_per_s: Some(12e9),
                    pcie_from_gpu_bytes_per_s: Some(0.0),
                    ..load()
                },
                2.0,
                1,
                "copy",
                "11.2 GiB a second over PCI Express",
            ),
            (load(), 1.0, 1_500_000, "launch", "150000 a second"),
            (load(), 0.97, 1, "host", "0.97 processors"),
            (load(), 0.2, 1, "none", "SMs active 30 %, memory bandwidth in use 10 %, 0.20 processors busy"),
            (
                LoadSummary { sm_active_share: None, ..load() },
                0.2,
                1,
                "unknown",
                "SM activity was not measured",
            ),
            (
                LoadSummary { sm_active_share: None, utilization_share: Some(0.1), ..load() },
                1.0,
                1,
                "host",
                "a kernel ran in 10 % of the time",
            ),
            (
                LoadSummary { utilization_share: Some(0.95), ..load() },
                1.0,
                1,
                "small_kernels",
                "one ran in 95 % of the time, but on GPU 0 SMs were active 30 %",
            ),
            (LoadSummary { watched_ns: Nanos(1), ..load() }, 1.0, 1, "unknown", "too short"),
        ] {
            let limit = judged(load, busy, launches);
            assert_eq!(limit.limit, expected, "{}", limit.sentence);
            assert!(limit.sentence.contains(part), "{}", limit.sentence);
        }
    }

    #[test]
    fn a_lower_bound_is_rounded_down() {
        let load = LoadSummary { sm_active_share: None, utilization_share: Some(0.1), ..load() };
        let of = |idle| {
            limit(&Summary { launches: 1, gpu_idle_share: Some(idle), ..summary(load.clone(), 1.0) }).sentence
        };
        assert!(of(0.9993).contains("no kernel ran in at least 99 % of the time"), "{}", of(0.9993));
        // Where it is too little to decide, what NVML reports may do.
        assert!(of(0.3).contains("a kernel ran in 10 % of the time"), "{}", of(0.3));
    }

    #[test]
    fn an_unknown_bottleneck_names_the_missing_meter() {
        let clause = "SM activity of GPU 0: NVML measures it on Hopper and later only, and there is no dcgmi";
        let load = LoadSummary { sm_active_share: None, utilization_share: Some(0.9), ..load() };
        let s = Summary { launches: 1, unmeasured: vec![clause.to_owned()], ..summary(load, 0.1) };
        assert_eq!(limit(&s).sentence, format!("bottleneck unknown: {clause}"));
    }
    #[test]
    fn without_a_meter_an_estimate_serves_and_is_labelled() {
        let estimated = |sm: Option<f64>, kernel_time_share, load: Option<LoadSummary>, busy| {
            let mut s = Summary { launches: 1, ..summary(LoadSummary::default(), busy) };
            let estimate = EstimateSummary {
                over_ns: Nanos::from_secs(9),
                kernel_time_share,
                sm_active_share: sm,
                ..EstimateSummary::default()
            };
            s.gpus = vec![GpuSummary { load, estimate: Some(estimate), ..GpuSummary::default() }];
            limit(&s)
        };
        let unmetered = LoadSummary { sm_active_share: None, dram_active_share: None, meter: None, ..load() };
        for load in [None, Some(unmetered.clone())] {
            let of = |sm, kernels, busy| estimated(sm, kernels, load.clone(), busy);
            for (found, limit, part) in [
                (of(Some(0.9), 0.95, 1.0), "gpu", "does not distinguish the two"),
                (of(Some(0.1), 0.95, 1.0), "small_kernels", "they took 95 % of the time, added up"),
                (
                    of(Some(0.1), 0.2, 1.0),
                    "host",
                    "SMs were active 10 % of the time (estimated from the shapes",
                ),
                (of(Some(0.1), 0.2, 0.1), "none", "SMs active 10 % (estimated"),
                (of(None, 0.2, 0.1), "unknown", "SM activity was not measured"),
            ] {
                assert_eq!(found.limit, limit, "{}", found.sentence);
                assert!(found.sentence.contains(part), "{}", found.sentence);
            }
        }
        // Kernels beside each other are added up, and the meter says that the GPU was idle half of the time.
        let beside =
            LoadSummary { utilization_share: Some(0.55), sm_active_share: None, meter: None, ..load() };
        assert_eq!(estimated(Some(0.1), 1.0, Some(beside), 1.0).limit, "host");
        // Another job's kernels run beside this one's, which waits for its host.
        let neighbour = LoadSummary { utilization_share: Some(0.95), ..unmetered.clone() };
        assert_eq!(estimated(Some(0.02), 0.05, Some(neighbour.clone()), 1.0).limit, "host");
        let small = estimated(Some(0.1), 0.9, Some(neighbour), 1.0);
        assert_eq!(small.limit, "small_kernels");
        assert!(small.sentence.contains("they took 90 % of the time, added up"), "{}", small.sentence);
        // What is measured counts for more.
        let measured = estimated(Some(0.9), 0.95, Some(load()), 0.1);
        assert!(!measured.sentence.contains("estimated"), "{}", measured.sentence);
    }

    #[test]
    fn emulated_gpus_have_no_bottleneck() {
        for time in [GpuClock::Modelled, GpuClock::Absent] {
            let s = Summary { launches: 1_500_000, gpu_clock: time, ..summary(load(), 1.0) };
            assert_eq!(limit(&s).limit, "unknown", "{time:?}");
        }
    }
}
