//! Use of each resource by a process, from profiles with known figures.

mod common;

use common::*;
use radrm_analyzer::{Feature, Summary, TextOptions, html, json, text};
use radrm_profile::model::*;
use radrm_profile::*;

/// One process, alone for ten seconds on its GPU, all meters at hand.
fn alone() -> Profile {
    let mut profile = training();
    profile.processes.truncate(1);
    profile.samples.clear();
    let process = &mut profile.processes[0];
    process.identity.joined = Nanos::from_secs(20);
    process.state.ended = Some(Nanos::from_secs(30));
    (process.state.launches, process.state.graph_launches) = (900, 100);
    process.state.accounts.truncate(1);
    process.state.accounts[0].peak = Bytes::from_mib(14_377);
    let kernel = |id, launches, registers| Kernel {
        id,
        name: format!("k{id}"),
        launches,
        registers,
        blocks: launches * 10,
        threads: launches * 2560,
        static_shared: Bytes(4096 * u64::from(id)),
        dynamic_shared: Bytes(launches * 512),
        ..Kernel::default()
    };
    process.kernels = vec![kernel(1, 300, 32), kernel(2, 600, 80)];
    // The seldom one runs three times as long.
    let time = |id, ms| KernelTime { id, total: Nanos::from_millis(ms), samples: 9, ..KernelTime::default() };
    let copies = |way: &str, bytes| Copies { way: way.into(), count: 1, bytes: Bytes(bytes) };
    process.timings = Timings {
        kernels: vec![time(1, 3000), time(2, 1000)],
        copies: vec![
            copies("host_to_device", 5000),
            copies("device_to_host", 70),
            copies("device_to_device", 600),
            copies("peer", 90),
            copies("unspecified", 10),
            copies("host_to_host", 30),
            copies("memset", 8_000_000),
        ],
        gpu_time: GpuTime {
            kernels: Nanos::from_secs(4),
            active: Nanos::from_secs(2),
            resident: Nanos::from_secs(1),
        },
        spans: vec![TimedSpan { gpu: GpuIndex(0), span: Nanos::from_secs(8), timed: Nanos::from_secs(8) }],
        ..Timings::default()
    };
    let share = Share::new;
    profile.activity = vec![GpuSpan {
        span: Nanos::from_secs(10),
        meter: Meter::Gpm,
        utilization: share(0.9),
        memory_utilization: share(0.35),
        sm_active: share(0.6),
        sm_occupancy: share(0.25),
        tensor_active: share(0.1),
        dram_active: share(0.4),
        pcie_to_gpu: Some(Bytes(777)),
        ..GpuSpan::default()
    }];
    let counter =
        |kind, value| HostCounter { kind: kind as u8, value, source: CountSource::Perf, counted: Share::ONE };
    profile.host = Host {
        processors: 8,
        memory: Bytes::from_gib(64),
        counters: vec![
            counter(HostCount::TaskClock, 374_000_000_000),
            counter(HostCount::Instructions, 1_000_000),
            counter(HostCount::CacheMisses, 5_000),
        ],
        spans: vec![HostSpan {
            span: Nanos::from_secs(2),
            busy: Nanos::from_secs(5),
            resident: Bytes::from_gib(16),
            ..HostSpan::default()
        }],
        ..Host::default()
    };
    profile
}

fn features(profile: &Profile) -> Vec<Feature> {
    Summary::from_profile(profile).processes.swap_remove(0).features
}

fn of(features: &[Feature], name: &str) -> Feature {
    features.iter().find(|feature| feature.name == name).unwrap_or_else(|| panic!("no {name}")).clone()
}

#[test]
fn every_feature_of_a_process_that_was_alone_is_known_with_its_origin() {
    let found = features(&alone());
    for (name, value, origin, how) in [
        ("threads_per_launch", 2560.0, "counted", "by estimated GPU time"),
        ("blocks_per_launch", 10.0, "counted", ""),
        ("registers_per_thread", 44.0, "counted", ""),
        ("static_shared_bytes_per_block", 5120.0, "counted", ""),
        ("dynamic_shared_bytes_per_block", 512.0, "counted", ""),
        ("sm_active", 60.0, "measured", "by GPM"),
        ("sm_occupancy", 25.0, "measured", "by GPM"),
        ("tensor_active", 10.0, "measured", "by GPM"),
        ("sm_active_by_geometry", 25.0, "estimated", "shapes of launches"),
        ("sm_occupancy_by_geometry", 12.5, "estimated", ""),
        ("gpu_busy", 90.0, "measured", "by NVML"),
        ("kernel_time_share", 50.0, "estimated", ""),
        ("dram_throughput", 40.0, "measured", "by GPM"),
        ("memory_busy", 35.0, "measured", "by NVML"),
        ("tensor_per_dram", 0.25, "derived", "no FLOP per byte"),
        ("sm_per_dram", 1.5, "derived", "by GPM"),
        ("memory_footprint_bytes", Bytes::from_mib(14_377).0 as f64, "counted", ""),
        ("memory_footprint", 14_377.0 / 143_771.0 * 100.0, "derived", ""),
        ("copy_to_device_bytes_per_second", 500.0, "counted", "over its life"),
        ("copy_from_device_bytes_per_second", 7.0, "counted", ""),
        ("copy_on_device_bytes_per_second", 60.0, "counted", ""),
        ("copy_between_devices_bytes_per_second", 9.0, "counted", ""),
        ("copy_other_bytes_per_second", 4.0, "counted", ""),
        ("memset_bytes_per_second", 800_000.0, "counted", ""),
        ("pcie_to_gpu_bytes_per_second", 777.0, "measured", "by NVML"),
        ("launches_per_second", 100.0, "counted", "kernels and graphs"),
        ("host_busy_processors", 2.0, "measured", "by perf, of the job"),
        ("host_busy_processors_max", 2.5, "measured", "by perf, of the job"),
        ("host_cpu", 25.0, "measured", "of those that it may use"),
        ("host_cache_misses", 5.0, "measured", "by perf"),
        ("host_resident_bytes", Bytes::from_gib(16).0 as f64, "measured", "/proc"),
        ("host_memory", 25.0, "measured", ""),
    ] {
        let feature = of(&found, name);
        let value_found = feature.value.unwrap_or_else(|| panic!("{feature:?}"));
        assert!((value_found - value).abs() < 1e-9, "{feature:?}, expected {value}");
        assert!(feature.origin == origin && feature.how.contains(how), "{feature:?}");
    }
    for (name, why) in [
        ("l2_throughput", "no meter"),
        ("pcie_from_gpu_bytes_per_second", "not reported by NVML"),
        ("exclusive_throughput", "does not report its progress"),
    ] {
        let feature = of(&found, name);
        assert_eq!((feature.value, feature.origin), (None, "unknown"));
        assert!(feature.how.contains(why), "{feature:?}");
    }
    let mut names: Vec<_> = found.iter().map(|feature| feature.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), found.len(), "a name stands twice");
}

/// Metrics of a profiler stand beside those of meters, and replace meters that are missing.
#[test]
fn imported_metrics_are_means_by_time_and_stand_for_meters_that_are_missing() {
    let kernel = |name: &str, values: &[(&str, f64)]| ProfiledKernel {
        name: name.into(),
        launches: 1,
        metrics: values.iter().map(|(metric, value)| ((*metric).to_owned(), *value)).collect(),
    };
    let metrics = |kernels| Some(KernelMetrics { tool: "T".into(), file: "f.csv".into(), kernels });
    let mut profile = alone();
    profile.kernel_metrics = metrics(vec![
        kernel(
            "k1",
            &[("l2_throughput", 80.0), ("sm_active", 60.0), ("occupancy", 50.0), ("dram_throughput", 10.0)],
        ),
        kernel("k2", &[("l2_throughput", 40.0), ("sm_active", 100.0), ("occupancy", 20.0)]),
    ]);
    let found = features(&profile);
    let value = |found: &[Feature], name: &str| of(found, name).value.unwrap_or_else(|| panic!("{name}"));
    // k1 took 3 s, k2 1 s; kernels ran half of the time.
    assert_eq!(value(&found, "kernel_l2_throughput"), 70.0);
    assert_eq!(value(&found, "l2_throughput"), 35.0);
    assert_eq!(
        (value(&found, "sm_active"), of(&found, "sm_active").origin),
        (60.0, "measured"),
        "the meter's"
    );
    assert_eq!(value(&found, "kernel_dram_throughput"), 10.0);
    let how = of(&found, "kernel_dram_throughput").how;
    assert!(how.contains("by T (f.csv)") && how.contains("kernels with 75.0 % of GPU time"), "{how}");

    profile.activity = vec![GpuSpan { span: Nanos::from_secs(10), ..GpuSpan::default() }];
    let found = features(&profile);
    assert_eq!((value(&found, "sm_active"), of(&found, "sm_active").origin), (35.0, "imported"));
    // Per second of the GPU: (3 s * 50 % of 60 % + 1 s * 20 % of 100 %) / 4 s, half of the time.
    assert!((value(&found, "sm_occupancy") - 13.75).abs() < 1e-9);
    assert_eq!(value(&found, "dram_throughput"), 5.0);

    // By launches without timed ones: 300 of the one, 600 of the other, and how long the profiled ones took.
    profile.processes[0].timings = Timings::default();
    let timed = |ns| kernel("k1", &[("l2_throughput", 80.0), ("duration_ns", ns)]);
    let other = kernel("k2", &[("l2_throughput", 40.0), ("duration_ns", 100.0)]);
    profile.kernel_metrics = metrics(vec![timed(200.0), other.clone()]);
    assert_eq!(value(&features(&profile), "kernel_l2_throughput"), 60.0);
    profile.kernel_metrics = metrics(vec![kernel("k1", &[("l2_throughput", 70.0)]), other]);
    assert_eq!(value(&features(&profile), "kernel_l2_throughput"), 50.0);
    assert!(of(&features(&profile), "l2_throughput").value.is_none(), "how long kernels ran is not known");
    profile.kernel_metrics = metrics(vec![kernel("strange", &[("l2_throughput", 70.0)])]);
    assert!(
        of(&features(&profile), "kernel_l2_throughput").how.contains("of none of its kernels f.csv has it")
    );
}

/// The kernel's high-water mark of one process may exceed every sample of all processes.
#[test]
fn resident_memory_is_one_figure_wherever_it_is_told() {
    let mut profile = alone();
    profile.host.resident_peak = Some(Bytes::from_gib(20));
    let summary = Summary::from_profile(&profile);
    assert_eq!(summary.host.as_ref().unwrap().resident_peak_bytes, Some(Bytes::from_gib(20)));
    let shown = text(&profile, &summary, &TextOptions::default());
    assert!(shown.contains("resident memory       up to 20.0 GiB"), "{shown}");
    let told = of(&features(&profile), "host_resident_bytes").value;
    assert_eq!(told, Some(Bytes::from_gib(20).0 as f64));
    profile.host.resident_peak = Some(Bytes::from_gib(1));
    assert_eq!(of(&features(&profile), "host_resident_bytes").value, Some(Bytes::from_gib(16).0 as f64));
}

#[test]
fn a_figure_that_is_not_the_processs_own_is_not_given_as_its_own() {
    let of_gpu =
        ["sm_active", "dram_throughput", "gpu_busy", "tensor_per_dram", "pcie_to_gpu_bytes_per_second"];
    let mut shared = alone();
    let mut other = shared.processes[0].clone();
    other.key.slot += 1;
    shared.processes.push(other);
    let found = features(&shared);
    for name in of_gpu {
        assert!(of(&found, name).how.contains("which other processes used too"), "{name}");
    }
    assert!(of(&found, "host_cpu").how.contains("of the whole job, in which 2 processes used GPUs"));
    assert_eq!(of(&found, "copy_to_device_bytes_per_second").value, Some(500.0));

    let mut blind = alone();
    blind.activity[0] = GpuSpan { span: Nanos::from_secs(10), ..GpuSpan::default() };
    blind.unmeasured = vec!["SM activity: DCGM is not installed".into()];
    blind.host = Host::default();
    blind.processes[0].kernels_mode = Some(KernelsMode::Off);
    let found = features(&blind);
    assert_eq!(of(&found, "sm_active").how, "SM activity: DCGM is not installed");
    assert_eq!(of(&found, "host_cpu").how, "the profile has no host figures");
    for name in ["threads_per_launch", "launches_per_second", "memset_bytes_per_second", "kernel_time_share"]
    {
        let feature = of(&found, name);
        assert!(feature.value.is_none() && feature.how.contains("--kernels off"), "{feature:?}");
    }
    assert_eq!(of(&found, "memory_footprint_bytes").origin, "counted");
}

#[test]
fn features_are_shown_where_they_are_asked_for() {
    let profile = alone();
    let summary = Summary::from_profile(&profile);
    let plain = text(&profile, &summary, &TextOptions::default());
    assert!(!plain.contains("features of process"), "{plain}");
    let options = TextOptions { features: true, width: 120, ..TextOptions::default() };
    insta::assert_snapshot!(
        text(&profile, &summary, &options)
            .lines()
            .skip_while(|line| !line.starts_with("features"))
            .take_while(|line| !line.starts_with("host"))
            .collect::<Vec<_>>()
            .join("\n")
    );
    let page = html(&profile, &summary);
    for part in ["What it takes of each resource", "tensor per dram", "0.25", "measured", "no FLOP per byte"]
    {
        assert!(page.contains(part), "no {part} in {page}");
    }
    assert!(json(&summary).contains("\"resource\": \"host_memory\""));
    // A job of many processes gets the busiest.
    let mut many = profile.clone();
    many.processes = (0..40)
        .map(|slot| {
            let mut process = profile.processes[0].clone();
            (process.key.slot, process.identity.pid) = (slot, 5000 + slot);
            process.state.launches = u64::from(slot);
            process
        })
        .collect();
    let summary = Summary::from_profile(&many);
    let shown = text(&many, &summary, &options);
    assert_eq!(shown.matches("features of process").count(), 8);
    assert!(shown.contains("features of process 5039") && shown.contains("... 32 more"), "{shown}");
    assert!(html(&many, &summary).contains("Those of further processes are in the JSON report."));
}
