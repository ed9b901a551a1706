//! Sites of call stacks: sums against a naive model, at every moment of a run.
#![cfg(not(loom))]

mod common;

use common::{gpu, join};
use proptest::prelude::*;
use radrm_base::Kind;
use radrm_telemetry::{FailedRequest, Frame, GpuIndex, OwnCounts, SegmentFile, SiteId, Writer};
use std::collections::BTreeMap;

fn recording(file: &SegmentFile) -> (Writer, GpuIndex) {
    let mut writer = join(file);
    assert!(writer.record_stacks());
    let gpu = gpu(&writer);
    (writer, gpu)
}

fn frames(stack: u64) -> [u64; 2] {
    [Frame::Native { module: 0, offset: stack }.pack(), Frame::Cut.pack()]
}

fn site(writer: &Writer, gpu: GpuIndex, kind: Kind, stack: u64) -> SiteId {
    let frames = frames(stack);
    let frames: &'static [u64] = Box::leak(Box::new(frames));
    writer.site(gpu, kind, stack + 1, || frames)
}

/// Bytes by stack and kind, now and at the peak of the device total.
#[derive(Default)]
struct Model {
    live: BTreeMap<(u64, Kind), u64>,
    at_peak: BTreeMap<(u64, Kind), u64>,
    levels: u64,
    peak: u64,
}

impl Model {
    fn total(&self) -> u64 {
        self.levels
            + self.live.iter().filter(|((_, kind), _)| kind.in_total()).map(|(_, bytes)| bytes).sum::<u64>()
    }

    fn changed(&mut self) {
        if self.total() > self.peak {
            self.peak = self.total();
            self.at_peak = self.live.clone();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_sites_held_at_the_peak_is_what_a_snapshot_would_say(
        steps in prop::collection::vec((0..6u64, 0..3usize, 0..1000u64, 0..4u32), 1..200)
    ) {
        let file = SegmentFile::create_unnamed(0).unwrap();
        let (writer, gpu) = recording(&file);
        let kinds = [Kind::Device, Kind::Vmm, Kind::PinnedHost];
        let mut model = Model::default();
        let mut blocks: Vec<(u64, Kind, u64)> = Vec::new();
        for (stack, kind, bytes, step) in steps {
            match step {
                0 if !blocks.is_empty() => {
                    let (stack, kind, bytes) = blocks.swap_remove(bytes as usize % blocks.len());
                    writer.discharge_by(OwnCounts::NONE, site(&writer, gpu, kind, stack), gpu, kind, bytes, 0);
                    *model.live.get_mut(&(stack, kind)).unwrap() -= bytes;
                }
                1 => {
                    // A level of a pool: no site has it, and it can make a peak.
                    if bytes % 2 == 0 {
                        writer.raise_level(gpu, Kind::PoolReserved, bytes, 0);
                        model.levels += bytes;
                    } else {
                        writer.lower_level(gpu, Kind::PoolReserved, model.levels.min(bytes), 0);
                        model.levels -= model.levels.min(bytes);
                    }
                    model.changed();
                }
                _ => {
                    let kind = kinds[kind];
                    writer.charge_by(OwnCounts::NONE, site(&writer, gpu, kind, stack), gpu, kind, bytes, 0);
                    *model.live.entry((stack, kind)).or_default() += bytes;
                    blocks.push((stack, kind, bytes));
                    model.changed();
                }
            }
            let segment = file.segment().unwrap();
            let slot = segment.slots().unwrap()[0];
            let seen = segment.stacks(&slot).unwrap().unwrap();
            for (of, bytes) in [(0, &model.live), (1, &model.at_peak)] {
                let found: BTreeMap<(u64, Kind), u64> = seen.sites.iter().map(|site| {
                    let Frame::Native { offset, .. } = site.frames[0] else { panic!("{site:?}") };
                    ((offset, site.kind), if of == 0 { site.live } else { site.at_peak })
                }).filter(|(_, bytes)| *bytes > 0).collect();
                let expected: BTreeMap<_, _> = bytes.iter().filter(|(_, b)| **b > 0).map(|(k, b)| (*k, *b)).collect();
                prop_assert_eq!(found, expected, "{}", if of == 0 { "now" } else { "at the peak" });
            }
            prop_assert_eq!((seen.full, seen.unordered), (0, 0));
        }
    }
}

#[test]
fn threads_that_change_sites_at_once_leave_the_exact_sums() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let (writer, gpu) = recording(&file);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for round in 0..3000u64 {
                    let site = site(&writer, gpu, Kind::Device, (thread + round) % 5);
                    let bytes = 64 + round % 7;
                    writer.charge_by(OwnCounts::NONE, site, gpu, Kind::Device, bytes, 0);
                    if round % 3 > 0 {
                        writer.discharge_by(OwnCounts::NONE, site, gpu, Kind::Device, bytes, 0);
                    }
                }
            });
        }
    });
    let segment = file.segment().unwrap();
    let slot = segment.slots().unwrap()[0];
    let seen = segment.stacks(&slot).unwrap().unwrap();
    let account = &segment.process(&slot).unwrap().unwrap().accounts[0];
    let sum = |of: fn(&radrm_telemetry::SiteSnapshot) -> u64| seen.sites.iter().map(of).sum::<u64>();
    assert_eq!(sum(|site| site.live), account.total_now);
    // A thread that was interrupted for long in its turn is not waited for, and that is counted.
    if seen.unordered == 0 {
        assert_eq!(sum(|site| site.at_peak), account.peak.total, "at the peak: {:?}", seen.sites);
    }
    assert!(seen.unordered < 100, "turns are waited for: {}", seen.unordered);
}

fn refused(gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) -> FailedRequest {
    FailedRequest { ns, gpu, kind, entry: 0, bytes, free: 0, total: 0, result: 2, quota: None }
}

fn charge(writer: &Writer, gpu: GpuIndex, site: SiteId, kind: Kind, bytes: u64) {
    writer.charge_by(OwnCounts::NONE, site, gpu, kind, bytes, 0);
}

#[test]
fn the_first_refusal_of_each_of_16_sites_and_the_latest_of_a_gpu_keep_what_was_held() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let (writer, gpu) = recording(&file);
    let holder = site(&writer, gpu, Kind::Device, 500);
    let asks: Vec<SiteId> = (0..20).map(|stack| site(&writer, gpu, Kind::Vmm, stack)).collect();
    for (number, asking) in (1u64..).zip(&asks) {
        charge(&writer, gpu, holder, Kind::Device, 10);
        // The second one of a site is counted only, unless it is the latest with a post-mortem.
        for again in 0..2 {
            let request = refused(gpu, Kind::Vmm, 1000 + again, number);
            writer.refused_site(*asking, &request);
            writer.postmortem(&request, *asking, |_| {});
        }
    }
    writer.raise_level(gpu, Kind::PoolReserved, 7, 0);
    // Post-mortems are rare by their own duration, which is counted from the request, here from long ago.
    let last = refused(gpu, Kind::Vmm, 5, 1 << 62);
    writer.postmortem(&last, asks[3], |_| {});
    let segment = file.segment().unwrap();
    let seen = segment.stacks(&segment.slots().unwrap()[0]).unwrap().unwrap();
    let (latest, first): (Vec<_>, Vec<_>) = seen.refusals.iter().partition(|refusal| refusal.is_latest);
    assert_eq!(first.len(), 16);
    for (number, refusal) in (1u64..).zip(first) {
        assert_eq!((refusal.request.ns, refusal.request.bytes), (number, 1000));
        assert_eq!((refusal.site, refusal.total), (asks[number as usize - 1], 10 * number));
        assert_eq!(refusal.held, [(holder, 10 * number)]);
    }
    let [latest] = latest[..] else { panic!("{latest:?}") };
    assert_eq!((latest.request, latest.site, latest.total), (last, asks[3], 207));
    assert_eq!((latest.kinds[Kind::PoolReserved.index()], &latest.held[..]), (7, &[(holder, 200)][..]));
    assert!(seen.sites.iter().filter(|site| site.kind == Kind::Vmm).all(|site| site.refused == 2));
}

/// Memory that a trim leaves belongs to no site: the driver does not report whose it is.
#[test]
fn what_graphs_hold_is_at_the_sites_that_made_it_grow_until_a_trim() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let (writer, gpu) = recording(&file);
    let launches = [1, 2].map(|stack| site(&writer, gpu, Kind::Graph, stack));
    writer.raise_level_from(launches[0], gpu, Kind::Graph, 30, 0);
    writer.raise_level_from(launches[1], gpu, Kind::Graph, 12, 0);
    let sums = || {
        let segment = file.segment().unwrap();
        let seen = segment.stacks(&segment.slots().unwrap()[0]).unwrap().unwrap();
        let of = |of: fn(&radrm_telemetry::SiteSnapshot) -> u64| seen.sites.iter().map(of).sum::<u64>();
        (of(|site| site.live), of(|site| site.at_peak))
    };
    assert_eq!(sums(), (42, 42));
    writer.lower_level(gpu, Kind::Graph, 40, 0);
    assert_eq!(sums(), (0, 42));
    writer.raise_level_from(launches[1], gpu, Kind::Graph, 12, 0);
    assert_eq!(sums(), (12, 42));
}

#[test]
fn stacks_beyond_the_table_are_counted_as_others() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let (writer, gpu) = recording(&file);
    let stacks = 20_000u64;
    for stack in 0..stacks {
        writer.charge_by(
            OwnCounts::NONE,
            site(&writer, gpu, Kind::Device, stack * 7919),
            gpu,
            Kind::Device,
            10,
            0,
        );
    }
    let segment = file.segment().unwrap();
    let slot = segment.slots().unwrap()[0];
    let seen = segment.stacks(&slot).unwrap().unwrap();
    assert_eq!(seen.sites.iter().map(|site| site.live).sum::<u64>(), 10 * stacks);
    assert_eq!(seen.sites.iter().map(|site| site.at_peak).sum::<u64>(), 10 * stacks);
    let others = seen.sites.iter().find(|site| site.frames.is_empty()).unwrap();
    assert_eq!((others.gpu, others.kind, others.allocs), (gpu, Kind::Device, seen.full));
    assert!(seen.full > 3000, "{}", seen.full);
}

#[test]
fn names_are_kept_once_and_read_back() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let (writer, gpu) = recording(&file);
    let module = writer.stack_module(b"/opt/lib\xc3\xa9.so", &[1, 2, 3]).unwrap();
    let code = writer.stack_code(b"train.py", b"Model.step").unwrap();
    assert_eq!(writer.stack_code(b"train.py", b"Model.step"), Some(code));
    assert_ne!(writer.stack_code(b"train.p", b"yModel.step"), Some(code));
    let frames = [Frame::Native { module, offset: 5 }, Frame::Code { code, line: 17, is_entry: true }];
    let words: &'static [u64] = Box::leak(Box::new(frames.map(Frame::pack)));
    let site = writer.site(gpu, Kind::Array, 9, || words);
    writer.refused_site(site, &refused(gpu, Kind::Array, 70, 1));
    writer.refused_site(site, &refused(gpu, Kind::Array, 50, 2));
    let segment = file.segment().unwrap();
    let seen = segment.stacks(&segment.slots().unwrap()[0]).unwrap().unwrap();
    assert_eq!(seen.sites.len(), 1);
    let read = &seen.sites[0];
    assert_eq!((read.frames.as_slice(), read.refused, read.refused_bytes), (&frames[..], 2, 70));
    assert_eq!(seen.modules[usize::from(module)].path, "/opt/lib\u{e9}.so");
    assert_eq!(seen.modules[usize::from(module)].build_id, [1, 2, 3]);
    let named = &seen.codes[code as usize];
    assert_eq!((named.file.as_str(), named.name.as_str()), ("train.py", "Model.step"));
}

#[test]
fn a_process_without_the_recorder_has_no_stacks() {
    let file = SegmentFile::create_unnamed(0).unwrap();
    let writer = join(&file);
    let gpu = gpu(&writer);
    writer.charge_by(OwnCounts::NONE, SiteId::other(gpu, Kind::Device), gpu, Kind::Device, 5, 0);
    let segment = file.segment().unwrap();
    assert_eq!(segment.stacks(&segment.slots().unwrap()[0]).unwrap(), None);
}
