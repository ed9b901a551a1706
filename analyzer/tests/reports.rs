//! The reports of known profiles.

mod common;

use common::*;
use radrm_analyzer::{
    Comparison, OwnSummary, Summary, TextOptions, comparison_text, html, json, perfetto, text,
};
use radrm_profile::model::*;
use radrm_profile::*;

fn plain(profile: &Profile) -> String {
    let options = TextOptions { timeline: true, ..TextOptions::default() };
    text(profile, &Summary::from_profile(profile), &options)
}

#[test]
fn text_of_a_training_run() {
    insta::assert_snapshot!(plain(&training()));
}

#[test]
fn text_of_a_run_that_ran_out_of_memory() {
    insta::assert_snapshot!(plain(&out_of_memory()));
}

#[test]
fn text_of_several_processes_on_one_gpu() {
    insta::assert_snapshot!(plain(&several()));
}

#[test]
fn own_figures_of_a_sweep_stand_in_every_report() {
    let profile = training();
    let own = OwnSummary {
        sweep: "grid.toml".into(),
        sm_active_share: Some(0.25),
        sm_active_origin: Some("part by launches of gpm".into()),
        ..OwnSummary::default()
    };
    let summary = Summary::from_profile(&profile).with_own(Some(own));
    let options = TextOptions::default();
    for report in [text(&profile, &summary, &options), html(&profile, &summary)] {
        for part in ["by the sweep grid.toml", "25.0 % (part by launches of gpm)", "n/a: it cannot be told"] {
            assert!(report.contains(part), "{part}: {report}");
        }
    }
    let json = json(&summary);
    assert!(json.contains("\"sm_active_share\": 0.25") && json.contains("\"energy_j\": null"), "{json}");
    assert!(!plain(&profile).contains("own figures"), "a profile alone has none");
}

#[test]
fn what_a_launch_budget_held_back_is_one_line() {
    let mut profile = training();
    assert!(!plain(&profile).contains("launch budget"));
    let waited = Nanos::from_millis(12_340);
    profile.processes[0].throttling =
        Throttling { launches: 4511, waited, share_permille: 300, ..Throttling::default() };
    let line = "held back by a launch budget of 30 %: 12.3 s in 4,511 launches";
    let summary = Summary::from_profile(&profile);
    assert!(plain(&profile).contains(line), "{}", plain(&profile));
    assert!(html(&profile, &summary).contains(line));
    assert!(json(&summary).contains("\"waited_ns\": 12340000000"), "{}", json(&summary));
    profile.processes[0].throttling.launches = 1;
    assert!(plain(&profile).contains("12.3 s in 1 launch\n"), "{}", plain(&profile));
}

#[test]
fn kernels_whose_launches_were_timed_stand_by_their_time() {
    let mut profile = training();
    let ids: Vec<u32> = profile.processes[0].kernels.iter().map(|kernel| kernel.id).collect();
    let time = |id: &u32| KernelTime {
        id: *id,
        total: Nanos::from_millis(1_000 * u64::from(*id + 1)),
        half_width: Nanos::from_millis(30),
        samples: 40,
    };
    let kernels: Vec<KernelTime> = ids.iter().skip(1).map(time).collect();
    let all = Nanos(kernels.iter().map(|kernel| kernel.total.0).sum());
    profile.processes[0].timings = Timings {
        kernels,
        gpu_time: GpuTime { kernels: all, ..GpuTime::default() },
        copies: vec![Copies { way: "host_to_device".into(), count: 3, bytes: Bytes(5 << 20) }],
        spans: vec![TimedSpan {
            gpu: GpuIndex(0),
            span: Nanos::from_secs(100),
            timed: Nanos::from_secs(100),
        }],
        ..Timings::default()
    };
    let summary = Summary::from_profile(&profile);
    let times: Vec<_> = summary.kernels.iter().map(|k| k.gpu_time.map_or(0, |t| t.total_ns.0)).collect();
    assert!(times.is_sorted_by(|a, b| a >= b) && times[0] > 0, "{times:?}");
    let shares: f64 = summary.kernels.iter().filter_map(|k| k.gpu_time).map(|t| t.share).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    let busy = times.iter().sum::<u64>() as f64;
    let doubt = 30e6 * ((ids.len() - 1) as f64).sqrt();
    assert!((summary.gpu_idle_share.unwrap() - (1.0 - (busy + doubt) / 1e11)).abs() < 1e-9);
    let text = plain(&profile);
    profile.processes[0].timings.spans[0].timed = Nanos((busy + doubt) as u64 * 1000);
    assert!(plain(&profile).contains("no kernel ran in at least 99 % of the time"), "{}", plain(&profile));
    profile.processes[0].timings.spans[0].timed = Nanos::from_secs(100);
    assert!(text.contains("GPU time") && text.contains("30.0 ms"), "{text}");
    assert!(text.contains("copies: host to device 5.00 MiB in 3 calls"), "{text}");
    let page = html(&profile, &summary);
    assert!(page.contains("time on the GPU") && page.contains("\u{b1} 30.0 ms"), "{page}");
    assert!(text.contains("drawn at random") && !text.contains("every launch was timed"), "{text}");
    let launched = |id: u32| {
        let kernel = profile.processes[0].kernels.iter().find(|kernel| kernel.id == id).unwrap();
        kernel.launches + kernel.graph_launches
    };
    let whole = |id: &u32| KernelTime { samples: launched(*id), ..time(id) };
    profile.processes[0].timings.kernels = ids.iter().map(whole).collect();
    let text = plain(&profile);
    assert!(text.contains("every launch was timed") && !text.contains("drawn at random"), "{text}");
}

#[test]
fn text_without_a_gpu_program() {
    insta::assert_snapshot!(plain(&nothing()));
}

#[test]
fn text_of_an_idle_program_without_an_end() {
    insta::assert_snapshot!(plain(&idle()));
}

#[test]
fn json_of_a_run_that_ran_out_of_memory() {
    insta::assert_snapshot!(json(&Summary::from_profile(&out_of_memory())));
}

#[test]
fn colour_adds_nothing_but_colour() {
    let profile = training();
    let summary = Summary::from_profile(&profile);
    let options = TextOptions { color: true, ..TextOptions::default() };
    let coloured = text(&profile, &summary, &options);
    assert!(coloured.contains("\x1b[1m"));
    let mut bare = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        bare.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    bare.push_str(rest);
    assert_eq!(bare, text(&profile, &summary, &TextOptions::default()));
}

#[test]
fn several_processes_give_a_bound_and_say_so() {
    let summary = Summary::from_profile(&several());
    let gpu = &summary.gpus[0];
    // 1000 MiB until 2 s, 1100 from 1.5 s, 1200 from 2.5 s; busy for 1.7 s each.
    assert_eq!(gpu.peak_bytes, Bytes::from_mib(2300));
    assert_eq!(gpu.peak_at_least_bytes, Bytes::from_mib(1200));
    assert!(!gpu.peak_exact);
    assert_eq!(gpu.peak_at_ns, Nanos::from_millis(2500));
    let device = &gpu.kinds["device"];
    assert_eq!((device.peak_bytes, device.peak_exact), (Bytes::from_mib(2300), false));
    // Quiet while the next one is busy: then the sum is known.
    let mut profile = several();
    for process in &mut profile.processes {
        process.timelines[0].points[0].span = Nanos::from_millis(1);
    }
    let gpu = Summary::from_profile(&profile).gpus.remove(0);
    assert_eq!((gpu.peak_bytes, gpu.peak_exact), (Bytes::from_mib(2300), true));
    assert_eq!(gpu.kinds["device"].peak_bytes, Bytes::from_mib(2300));
    // One after the other: the highest of them, and that is exact.
    let mut profile = several();
    for (i, process) in profile.processes.iter_mut().enumerate() {
        process.state.ended = Some(Nanos::from_millis(1000 * i as u64 + 900));
    }
    let gpu = Summary::from_profile(&profile).gpus.remove(0);
    assert!(gpu.peak_exact);
    assert_eq!(gpu.peak_bytes, Bytes::from_mib(1200));
    assert_eq!(gpu.kinds["device"].peak_bytes, Bytes::from_mib(1200));
}

#[test]
fn processes_that_have_ended_hold_nothing() {
    let gpu = Summary::from_profile(&training()).gpus.remove(1);
    let device = &gpu.kinds["device"];
    assert_eq!((device.now_bytes, device.blocks), (Bytes::ZERO, 0));
    assert_eq!((device.unfreed_bytes, device.unfreed_blocks), (Bytes::from_mib(512), 3));
    // One that still runs does.
    let mut profile = training();
    profile.processes[1].state.end = End::Running;
    profile.processes[1].state.ended = None;
    let device = &Summary::from_profile(&profile).gpus.remove(1).kinds["device"].clone();
    assert_eq!((device.now_bytes, device.unfreed_bytes), (Bytes::from_mib(512), Bytes::ZERO));
}

#[test]
fn a_block_of_a_pool_is_a_block_that_was_never_freed() {
    let gpu = Summary::from_profile(&training()).gpus.remove(0);
    let blocks = |key: &str| gpu.kinds[key].unfreed_blocks;
    assert_eq!(blocks("pool_used"), 3);
    let device: u64 = ["device", "pool_reserved", "vmm", "array", "graph"].map(blocks).iter().sum();
    assert_eq!(gpu.left_over().1.blocks, device + 3);
}

#[test]
fn the_page_is_whole_and_escaped() {
    for profile in [training(), out_of_memory(), several(), nothing(), idle()] {
        let page = html(&profile, &Summary::from_profile(&profile));
        assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
        for word in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(word), "the page refers to something outside: {word}");
        }
        assert_eq!(page.matches("<script>").count(), 1, "a name became a script");
        let data = data(&page);
        assert!(data["end"].as_u64() > Some(0), "{data}");
        assert!(!page.contains("NaN"), "a coordinate is not a number");
    }
    let page = html(&training(), &Summary::from_profile(&training()));
    assert!(page.contains("triton_poi_fused_&#60;script&#62;"), "the kernel's name is missing");
    let gpu = &data(&page)["gpus"][0];
    let names: Vec<_> = gpu["stacks"][0]["series"].as_array().unwrap().iter().map(|s| &s["name"]).collect();
    assert_eq!(names, ["device", "pool reserved", "virtual memory", "graphs"]);
    assert!(gpu["nvml"][0]["t"].as_array().unwrap().len() > 100 && gpu["capacity"] == 143_771u64 << 20);
    let page = html(&out_of_memory(), &Summary::from_profile(&out_of_memory()));
    assert!(page.contains("Emulated on 2xH200"));
    assert_eq!(data(&page)["gpus"][0]["refused"].as_array().unwrap().len(), 2);
}

/// Data for the page's script.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once(r#"<script type="application/json" id="data">"#).expect("no data");
    serde_json::from_str(rest.split_once("</script>").expect("no end").0).expect("no JSON")
}

#[test]
fn names_of_programs_are_escaped_everywhere() {
    let evil = "\x1b[2J<script>alert(1)</script>\"'&";
    let mut profile = out_of_memory();
    profile.job.command = vec![evil.into()];
    profile.job.user = Some(evil.into());
    profile.job.host = evil.into();
    profile.job.cwd = evil.into();
    profile.job.emulated = Some(evil.into());
    profile.job.environment = vec![(evil.into(), evil.into())];
    profile.gpus[0].name = evil.into();
    profile.gpus[0].uuid = evil.into();
    profile.notes.push(Note::Collector(evil.into()));
    let mut second = profile.processes[0].clone();
    second.key.slot = 9;
    second.identity.command = evil.into();
    second.state.failures[0].call = evil.into();
    second.state.frameworks = vec![Framework { name: evil.into(), version: Some(evil.into()) }];
    second.kernels[0].name = evil.into();
    profile.processes.push(second);
    profile.outcome.as_mut().unwrap().reason = Some(Reason::Other(evil.into()));

    let summary = Summary::from_profile(&profile);
    let options = TextOptions { timeline: true, profile_path: Some(evil.into()), ..TextOptions::default() };
    let shown = text(&profile, &summary, &options);
    assert!(!shown.contains('\x1b'), "{shown}");
    assert_eq!(html(&profile, &summary).matches("<script>").count(), 1);
    assert!(!json(&summary).contains('\x1b'));
}

#[test]
fn absurd_figures_are_survived() {
    let mut profile = out_of_memory();
    let process = &mut profile.processes[0];
    for point in &mut process.timelines[0].points {
        point.at_max = [Bytes(u64::MAX); KIND_COUNT];
        point.max_total = Bytes(u64::MAX);
        point.span = Nanos(u64::MAX);
    }
    process.timelines[0].points[3].t = Nanos(u64::MAX);
    process.state.accounts[0].peak = Bytes(u64::MAX);
    process.state.accounts[0].kinds = [KindAccount {
        now: Bytes(u64::MAX),
        peak: Bytes(u64::MAX),
        at_peak: Bytes(u64::MAX),
        blocks: u64::MAX,
        allocations: u64::MAX,
        frees: u64::MAX,
    }; KIND_COUNT];
    process.state.remainders =
        vec![Remainder { nvml: Bytes(0), accounted: Bytes(u64::MAX), ..Remainder::default() }];
    process.state.launches = u64::MAX;
    process.kernels[0].launches = u64::MAX;
    process.kernels[0].graph_launches = u64::MAX;
    process.kernels[0].threads = u64::MAX;
    process.kernels[0].name = "_ZN".repeat(300);
    process.state.failures[0].kind = 200;
    process.state.failures[0].gpu = GpuIndex(99);
    let copy = process.clone();
    profile.processes.push(copy);
    let most = Some(Share(u16::MAX));
    let absurd = GpuSpan {
        t: Nanos(u64::MAX),
        span: Nanos(u64::MAX),
        samples: u32::MAX,
        sm_active: most,
        utilization: most,
        energy_mj: Some(u64::MAX),
        pcie_to_gpu: Some(Bytes(u64::MAX)),
        pcie_from_gpu: Some(Bytes(u64::MAX)),
        ..GpuSpan::default()
    };
    profile.activity = vec![absurd, GpuSpan { t: Nanos::ZERO, ..absurd }, GpuSpan::default()];
    let span = HostSpan { busy: Nanos(u64::MAX), resident: Bytes(u64::MAX), ..HostSpan::default() };
    profile.host.spans = vec![span, HostSpan { span: Nanos(u64::MAX), ..span }];
    let counter = |kind| HostCounter { kind, value: u64::MAX, ..HostCounter::default() };
    profile.host.counters = (0..=255).map(counter).collect();
    profile.outcome = None;
    let summary = Summary::from_profile(&profile);
    let options = TextOptions { timeline: true, ..TextOptions::default() };
    assert!(!text(&profile, &summary, &options).is_empty());
    assert!(!perfetto(&profile, &summary).is_empty());
    let runs = [summary.clone(), Summary::from_profile(&training())];
    assert!(!comparison_text(&Comparison::of(&runs[..1], &runs[1..]), &options).contains("NaN"));
    assert!(!html(&profile, &summary).contains("NaN"));
    assert!(json(&summary).contains("18446744073709551615"));
}

/// Writes the pages to a folder, for a look at them.
#[test]
fn pages_can_be_written_for_a_look() {
    let Some(folder) = std::env::var_os("RADRM_PAGES") else { return };
    let folder = std::path::PathBuf::from(folder);
    for (name, profile) in [
        ("training", training()),
        ("oom", out_of_memory()),
        ("several", several()),
        ("nothing", nothing()),
        ("idle", idle()),
    ] {
        std::fs::write(folder.join(format!("{name}.html")), html(&profile, &Summary::from_profile(&profile)))
            .unwrap();
    }
}

/// Time of the reports of a large profile. Run it alone, in release.
#[test]
#[ignore = "prints figures, checks nothing"]
fn figures_of_a_large_profile() {
    let mut profile = training();
    let template = profile.processes[0].clone();
    let process = &mut profile.processes[0];
    process.timelines = (0..8u8)
        .map(|gpu| {
            let points = (0..3100u64)
                .map(|i| {
                    let held = kinds(&[(Kind::Device, i * 7919 % 100_000), (Kind::Vmm, i % 300)]);
                    point(i * 190, 190, held, held)
                })
                .collect();
            Timeline { gpu: GpuIndex(gpu), points }
        })
        .collect();
    process.state.accounts = process.timelines.iter().map(account).collect();
    process.kernels = (0..4096)
        .map(|id| Kernel {
            id,
            name: format!(
                "_ZN2at6native29vectorized_elementwise_kernelILi{id}ENS0_15CUDAFunctor_addIfEEEEviT0_"
            ),
            launches: u64::from(id),
            ..template.kernels[0].clone()
        })
        .collect();
    profile.gpus = (0..8).map(gpu).collect();
    profile.outcome.as_mut().unwrap().duration = Nanos::from_secs(600);
    let start = std::time::Instant::now();
    let summary = Summary::from_profile(&profile);
    println!("summary {:?}", start.elapsed());
    let start = std::time::Instant::now();
    let options = TextOptions { timeline: true, ..TextOptions::default() };
    println!("text {} bytes, {:?}", text(&profile, &summary, &options).len(), start.elapsed());
    let start = std::time::Instant::now();
    println!("JSON {} bytes, {:?}", json(&summary).len(), start.elapsed());
    let start = std::time::Instant::now();
    println!("page {} bytes, {:?}", html(&profile, &summary).len(), start.elapsed());
}

/// Time of the summary of many busy processes. Run it alone, in release.
#[test]
#[ignore = "prints figures, checks nothing"]
fn figures_of_many_busy_processes() {
    for (count, points) in [(8, 3100), (64, 3100), (4096, 300)] {
        let mut profile = Profile::new(job());
        profile.gpus = vec![gpu(0)];
        let mut one = training().processes.remove(0);
        one.timelines[0].points = (0..points)
            .map(|i| {
                let held = kinds(&[(Kind::Device, i * 7919 % 100_000), (Kind::PoolReserved, i % 300)]);
                point(i * 190, 190, held, held)
            })
            .collect();
        one.state.accounts = vec![account(&one.timelines[0])];
        profile.processes = (0..count)
            .map(|slot| {
                let mut process = one.clone();
                (process.key.slot, process.identity.pid) = (slot, 5000 + slot);
                process
            })
            .collect();
        let start = std::time::Instant::now();
        let summary = Summary::from_profile(&profile);
        println!("{count} processes, {points} points each: {:?}", start.elapsed());
        assert!(summary.gpus[0].peak_bytes >= summary.gpus[0].peak_at_least_bytes);
    }
}

#[test]
fn what_could_not_be_looked_at_is_not_called_unused() {
    let mut profile = nothing();
    let summary = Summary::from_profile(&profile);
    assert!(summary.notes[0].contains("no process that RADRM was loaded into reported a call of cuInit"));
    assert!(plain(&profile).contains(&summary.notes[0]));

    profile.unseen.push("RADRM_DISABLE is set".into());
    let shown = plain(&profile);
    assert!(shown.contains("\nnothing was counted: RADRM_DISABLE is set\n"), "{shown}");
    assert_eq!(shown.matches("RADRM_DISABLE").count(), 1, "said twice: {shown}");
    assert!(html(&profile, &Summary::from_profile(&profile)).contains("nothing was counted: RADRM_DISABLE"));

    profile.processes = training().processes;
    let summary = Summary::from_profile(&profile);
    assert_eq!(summary.notes[0], "not all was counted: RADRM_DISABLE is set");
    assert!(plain(&profile).contains(&summary.notes[0]));
}

#[test]
fn copies_are_listed_without_a_kernel() {
    let mut profile = training();
    for process in &mut profile.processes {
        process.kernels.clear();
        process.timings.kernels.clear();
        process.timings.copies =
            vec![Copies { way: "host_to_device".into(), bytes: Bytes::from_mib(3), count: 2 }];
    }
    let shown = plain(&profile);
    assert!(
        shown.contains("no kernel was launched\n  copies: host to device 6.00 MiB in 4 calls"),
        "{shown}"
    );
    assert!(html(&profile, &Summary::from_profile(&profile)).contains("host to device 6.00 MiB in 4 calls"));
}

#[test]
fn a_job_that_still_runs_is_shown_as_running() {
    let profile = idle();
    let summary = Summary::of_running(&profile);
    let shown = text(&profile, &summary, &TextOptions::default());
    assert!(shown.contains("  running for 5.00 s"), "{shown}");
    assert!(!shown.contains("no end"), "{shown}");
    assert_eq!(summary.outcome.status, "running");
}

#[test]
fn what_nvml_missed_is_explained() {
    let says = |profile: &Profile| -> String {
        let shown = plain(profile);
        shown.lines().find(|line| line.contains("NVML reports")).unwrap_or_default().trim().to_owned()
    };
    let mut profile = training();
    assert!(says(&profile).starts_with("NVML reports          this job up to"), "{}", says(&profile));
    assert!(!says(&profile).contains("missed"));
    for sample in &mut profile.samples {
        sample.processes[0].used = Some(Bytes::from_mib(500));
    }
    assert!(says(&profile).ends_with("its 180 samples missed the peak"), "{}", says(&profile));
    let page = html(&profile, &Summary::from_profile(&profile));
    assert!(page.contains("500.0 MiB (its 180 samples missed the peak)"), "the page keeps it to itself");
    for sample in &mut profile.samples {
        sample.processes.clear();
    }
    assert!(says(&profile).contains("180 samples do not list it"), "{}", says(&profile));
    profile.samples.clear();
    assert!(says(&profile).ends_with("no sample of this GPU"), "{}", says(&profile));
    profile.outcome.as_mut().unwrap().duration = Nanos::from_millis(7);
    assert!(says(&profile).ends_with("the job ended before the first one"), "{}", says(&profile));
    // Where a note says why NVML is silent, there is nothing to explain.
    profile.notes.push(Note::Collector("NVML cannot be used (why)".into()));
    assert_eq!(says(&profile), "");
}

#[test]
fn a_framework_is_named_once_whatever_its_workers_knew() {
    let mut profile = training();
    let worker = |version: Option<&str>| {
        vec![Framework { name: "PyTorch".into(), version: version.map(str::to_owned) }]
    };
    profile.processes[1].state.frameworks = worker(None);
    assert!(plain(&profile).contains("  PyTorch 2.15 · CUDA runtime 13\n"));
    profile.processes[1].state.frameworks = worker(Some("2.16"));
    assert!(plain(&profile).contains("  PyTorch 2.15, 2.16 · CUDA runtime 13\n"));
}

#[test]
fn ends_of_a_kind_are_one_note() {
    let mut profile = several();
    for process in &mut profile.processes {
        process.identity.pid += 100;
        process.state.end = End::Signal(15);
    }
    let notes = Summary::from_profile(&profile).notes;
    assert_eq!(notes, ["3 processes (4811, 4812, 4813) were killed by SIGTERM"]);
}
