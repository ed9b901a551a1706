//! The page in a browser: pictures, intervals, searches, layout, colours.

#[path = "../common/mod.rs"]
mod common;
mod pictures;

use std::path::{Path, PathBuf};

use common::{kinds, out_of_memory, training};
use radrm_analyzer::sheet::{Cell, Part, Plot, Point, Sheet, sheet_html};
use radrm_analyzer::{Comparison, Held, Summary, comparison_html, flames, html};
use radrm_preload_tests::browser::Browser;
use radrm_profile::model::postmortem::Scope;
use radrm_profile::model::*;
use radrm_profile::{Bytes, Nanos};

const CHECKS: &str = concat!(include_str!("begin.js"), include_str!("checks.js"), include_str!("end.js"));
const COMPARE_CHECKS: &str =
    concat!(include_str!("begin.js"), include_str!("compare.js"), include_str!("end.js"));

/// The script that checks a page of tables.
const SHEET_CHECKS: &str =
    concat!(include_str!("begin.js"), include_str!("sheet.js"), include_str!("end.js"));

/// A run with everything that a page can show.
fn full() -> Profile {
    let mut profile = training();
    let refused = out_of_memory().processes.remove(0).state;
    let main = &mut profile.processes[0];
    main.state.failures = refused.failures;
    main.state.accounts[0].failed = 2;
    common::record_stacks(main);
    let gemm = main.kernels[1].clone();
    main.kernels.extend((0..9).map(|id| Kernel {
        id: 10 + id,
        name: format!("gemm_kernel_{id}"),
        launches: 500 + u64::from(id) * 3,
        ..gemm.clone()
    }));
    // A second process on the first GPU, between 40 s and 90 s.
    let held = kinds(&[(Kind::Device, 300)]);
    let points = vec![common::point(40_000, 1_000, held, held)];
    let timeline = Timeline { gpu: GpuIndex(0), points };
    let mut second = profile.processes[1].clone();
    second.key = ProcessKey { slot: 7, generation: 1 };
    second.identity.pid = 4799;
    second.state.accounts = vec![common::account(&timeline)];
    second.state.ended = Some(Nanos::from_secs(90));
    second.timelines = vec![timeline];
    profile.processes.push(second);
    // NVML was not asked for half a minute.
    profile.samples.retain(|sample| !(60..90).contains(&(sample.t.0 / 1_000_000_000)));
    let share = |span: u64| Share::new(if span < 90 { 0.5 } else { 0.9 });
    profile.activity = (0..187)
        .map(|s| GpuSpan {
            t: Nanos::from_secs(s),
            span: Nanos::from_secs(1),
            sm_active: share(s),
            ..GpuSpan::default()
        })
        .collect();
    let limit = |seconds, scope, mib| MemoryLimit {
        t: Nanos::from_secs(seconds),
        gpu: GpuIndex(0),
        scope,
        limit: Some(Bytes::from_mib(mib)),
    };
    profile.memory_limits =
        vec![limit(0, Scope::Job, 10_240), limit(0, Scope::User, 102_400), limit(150, Scope::Job, 9_728)];
    let key = profile.processes[0].key;
    profile.block_maps = [(80, 640, 500), (160, 640, 700)].map(|(s, a, b)| block_map(key, s, a, b)).to_vec();
    profile
}

/// Two blocks with a hole of 256 MiB between them, and one far away, of a process that has virtual memory too.
fn block_map(key: ProcessKey, seconds: u64, first: u64, second: u64) -> BlockMap {
    let run = |at: u64, mib, kind: Kind| {
        let size = Bytes::from_mib(mib);
        BlockRun {
            address: 0x7f00_0000_0000 + (at << 20),
            span: size,
            held: size,
            blocks: 1,
            kind: kind as u8,
        }
    };
    BlockMap {
        key,
        gpu: GpuIndex(0),
        t: Nanos::from_secs(seconds),
        total: Bytes::from_mib(first + second + 300 + 2048),
        kinds: kinds(&[
            (Kind::Device, first + 300),
            (Kind::PoolReserved, second),
            (Kind::PoolUsed, second),
            (Kind::Vmm, 2048),
        ]),
        runs: vec![
            run(0, first, Kind::Device),
            run(first + 256, second, Kind::PoolUsed),
            run(100_000, 300, Kind::Device),
        ],
    }
}

/// Runs checks in a page, on a wide and on a narrow screen: all hold, and nothing is complained of.
#[track_caller]
fn holds(page: &str, checks: &str) {
    let Some(mut browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let url = written(folder.path(), page);
    for width in [1400, 500] {
        browser.open(&url, (width, 900));
        let result = browser.value(checks);
        let lines: Vec<&str> = result.as_str().expect("lines").lines().collect();
        let failed: Vec<_> = lines.iter().filter(|line| !line.starts_with("ok ")).collect();
        assert!(failed.is_empty(), "at {width} pixels: {failed:#?}");
        assert_eq!(lines.last(), Some(&"ok the end"), "{lines:?}");
        assert!(browser.complaints.is_empty(), "at {width} pixels: {:#?}", browser.complaints);
    }
}

/// Writes a page to a file, and gives its address.
fn written(folder: &Path, page: &str) -> String {
    let file = folder.join("page.html");
    std::fs::write(&file, page).expect("written");
    format!("file://{}", file.display())
}

#[test]
fn a_browser_finds_every_part_of_the_page_at_work() {
    let profile = full();
    holds(&html(&profile, &Summary::from_profile(&profile)), CHECKS);
}

/// Runs before and after: weights shrank, a line moved, and one is new.
fn compared() -> Comparison {
    let before = full();
    let mut after = before.clone();
    let process = &mut after.processes[0];
    let stacks = process.stacks.as_mut().expect("call stacks");
    let less = Bytes::from_mib(200);
    stacks.sites[1].at_peak = stacks.sites[1].at_peak.minus(less);
    for frame in stacks.sites.iter_mut().flat_map(|site| &mut site.frames) {
        if let StackFrame::Code { code: 3, line, .. } = frame {
            *line += 2;
        }
    }
    stacks.sites.push(Site {
        kind: Kind::Device as u8,
        frames: vec![StackFrame::Code { code: 4, line: 77, is_entry: true }],
        at_peak: Bytes::from_mib(50),
        ..Site::default()
    });
    process.state.accounts[0].peak = process.state.accounts[0].peak.minus(Bytes::from_mib(150));
    let flames = |profile: &Profile| vec![Some(flames(profile, Held::AtPeak, false))];
    let summaries = |profile: &Profile| vec![Summary::from_profile(profile)];
    Comparison::of(&summaries(&before), &summaries(&after)).with_stacks(&flames(&before), &flames(&after))
}

#[test]
fn a_browser_finds_what_grew_and_shrank() {
    holds(&comparison_html(&compared()), COMPARE_CHECKS);
}

/// Three configurations, of which one is beaten by another.
fn configurations() -> Sheet {
    let all = [("fast", 1.0, 9.0, true), ("small", 3.0, 1.0, true), ("beaten", 4.0, 9.0, false)];
    let texts = |time: f64, memory: f64| [format!("{time} s"), format!("{memory} GiB")];
    let row = |(name, time, memory, _): (&str, f64, f64, bool)| {
        let [time_text, memory_text] = texts(time, memory);
        vec![
            Cell { text: name.to_owned(), value: None },
            Cell { text: time_text, value: Some(time) },
            Cell { text: memory_text, value: Some(memory) },
        ]
    };
    let point = |(name, time, memory, on_front): (&str, f64, f64, bool)| Point {
        name: name.to_owned(),
        at: [time, memory],
        texts: texts(time, memory),
        on_front,
    };
    let axes = ["run time", "peak memory"].map(str::to_owned);
    let part = Part {
        title: "Run time and memory".to_owned(),
        titles: ["configuration", "run time", "peak memory"].map(str::to_owned).to_vec(),
        names: 1,
        rows: all.map(row).to_vec(),
        notes: vec!["A note.".to_owned()],
        plot: Some(Plot { axes, points: all.map(point).to_vec() }),
    };
    Sheet { title: "Sweep grid.toml".to_owned(), parts: vec![part], ..Sheet::default() }
}

#[test]
fn a_browser_shows_and_sorts_a_page_of_tables() {
    holds(&sheet_html(&configurations()), SHEET_CHECKS);
}

/// Colours by their names in a style sheet.
fn colours(sheet: &str) -> Vec<(String, [f64; 3])> {
    let part =
        |text: &str, at: usize| f64::from(u8::from_str_radix(&text[at..at + 2], 16).expect("a colour"));
    sheet
        .split(';')
        .filter_map(|line| line.trim().strip_prefix("--")?.split_once(": #"))
        .map(|(name, hex)| (name.to_owned(), [0, 2, 4].map(|at| part(hex, at))))
        .collect()
}

/// WCAG 2.2, "contrast ratio".
fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let luminance = |colour: [f64; 3]| {
        let [r, g, b] = colour.map(|part| {
            let part = part / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn colours_have_the_contrast_that_wcag_asks_for() {
    for (theme, sheet) in [
        ("light", include_str!("../../templates/page/light.css")),
        ("dark", include_str!("../../templates/page/dark.css")),
    ] {
        let colours = colours(sheet);
        let of = |name: &str| colours.iter().find(|colour| colour.0 == name).expect(name).1;
        let check = |name: &str, on: &str, least: f64| {
            let found = contrast(of(name), of(on));
            assert!(found >= least, "{theme}: {name} on {on} has {found:.2}:1");
        };
        for name in ["text", "soft", "good", "bad", "warn", "accent"] {
            check(name, "card", 4.5);
            check(name, "bg", 4.5);
        }
        check("warn", "warnbg", 4.5);
        check("edge", "card", 3.0);
        for series in 0..9 {
            check(&format!("c{series}"), "card", 3.0);
            check("inside", &format!("c{series}"), 4.5);
        }
    }
    assert!((contrast([0.0; 3], [255.0; 3]) - 21.0).abs() < 1e-9);
}

#[test]
fn a_page_of_many_gpus_and_processes_stays_small() {
    let mut profile = training();
    let template = profile.processes[0].clone();
    profile.gpus = (0..4).map(common::gpu).collect();
    profile.processes.clear();
    for number in 0..8u32 {
        let mut process = template.clone();
        process.key.slot = number;
        process.identity.pid = 5000 + number;
        let gpu = GpuIndex((number % 4) as u8);
        process.state.accounts[0].gpu = gpu;
        process.timelines[0].gpu = gpu;
        let points = (0..3000u64).map(|at| {
            let held = kinds(&[
                (Kind::Device, 1000 + at * 7919 % 4001 + u64::from(number)),
                (Kind::PoolReserved, 500 + at * 104_729 % 977),
                (Kind::Vmm, 200 + at % 13),
                (Kind::Managed, at % 31),
            ]);
            common::point(at * 1200 + u64::from(number), 400, held, held)
        });
        process.timelines[0].points = points.collect();
        let kernel = |id: u32| Kernel {
            id,
            name: format!("{}{number}{id}", "k".repeat(180)),
            launches: 1 + u64::from(id),
            ..Kernel::default()
        };
        process.kernels = (0..200).map(kernel).collect();
        record_many_stacks(&mut process);
        let run = |at: u64| BlockRun {
            address: 0x7f00_0000_0000 + (at << 22) + at * 7919 % 4093 * 512,
            span: Bytes(4096 + at * 104_729 % 1_000_003),
            held: Bytes(4096 + at * 104_729 % 1_000_003),
            blocks: 1 + at as u32 % 50,
            kind: 0,
        };
        let map = |at: u64| BlockMap {
            key: process.key,
            gpu,
            t: Nanos::from_secs(at * 36),
            total: Bytes(at % 7),
            runs: (0..500).map(run).collect(),
            ..BlockMap::default()
        };
        profile.block_maps.extend((0..100).map(map));
        profile.processes.push(process);
    }
    profile.outcome = Some(Outcome { exit: Exit::Code(0), duration: Nanos::from_secs(3600), reason: None });
    let page = html(&profile, &Summary::from_profile(&profile));
    println!("{} bytes", page.len());
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
}

/// More stacks and moments than a page has room for.
fn record_many_stacks(process: &mut Process) {
    let gpu = process.state.accounts[0].gpu;
    let name = |number: u32| format!("{}{number}", "function_of_a_long_name_".repeat(4));
    let codes =
        (0..3000).map(|number| StackCode { file: format!("/home/u/{number}.py"), name: name(number) });
    let frame = |code| StackFrame::Code { code, line: 1 + code, is_entry: true };
    let site = |number: u32| Site {
        gpu,
        kind: Kind::Device as u8,
        frames: (0..12).map(|deep| frame(number * 7 * deep % 3000)).chain([frame(number)]).collect(),
        at_peak: Bytes(1000 + u64::from(number)),
        held: Bytes(u64::from(number)),
        ..Site::default()
    };
    let sites: Vec<Site> = (0..3000).map(site).collect();
    let ids: Vec<(u64, u64)> = sites.iter().map(|site| (site.id(), site.held.0)).collect();
    let moment = |at: u64| StackMoment {
        gpu,
        t: Nanos::from_secs(at),
        total: Bytes(at * 7),
        changed: ids.iter().map(|(id, held)| (*id, Bytes(held * at % 1009))).collect(),
        ..StackMoment::default()
    };
    process.stack_moments = (0..40).map(moment).collect();
    process.stacks = Some(Stacks { key: process.key, codes: codes.collect(), sites, ..Stacks::default() });
}

/// Writes the page of everything to a folder, for a look at it.
#[test]
fn the_page_can_be_written_for_a_look() {
    let Some(folder) = std::env::var_os("RADRM_PAGES") else { return };
    let profile = full();
    let page = html(&profile, &Summary::from_profile(&profile));
    let folder = PathBuf::from(folder);
    std::fs::write(folder.join("full.html"), page).expect("written");
    std::fs::write(folder.join("compare.html"), comparison_html(&compared())).expect("written");
}
