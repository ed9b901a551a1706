//! The writer against simple models, with the reader as the judge.

mod common;

use common::{gpu, join};
use proptest::prelude::*;
use radrm_telemetry::timeline::{bucket_index, bucket_span};
use radrm_telemetry::*;
use std::collections::{BTreeMap, HashMap};

fn kind() -> impl Strategy<Value = Kind> {
    (0..9u8).prop_map(|raw| Kind::from_raw(raw).unwrap())
}

/// Keys of a few shapes: neighbours, 2 MiB apart, small numbers, anything.
fn key() -> impl Strategy<Value = BlockKey> {
    let namespace = prop_oneof![Just(Namespace::Pointer), Just(Namespace::Vmm), Just(Namespace::Array)];
    let value = prop_oneof![
        (0..600u64).prop_map(|n| 0x7f00_0000_0000 + n * 512),
        (0..600u64).prop_map(|n| 0x7f00_0000_0000 + (n << 21)),
        0..600u64,
        any::<u64>(),
    ];
    (namespace, value).prop_map(|(namespace, value)| BlockKey::new(namespace, value))
}

#[derive(Clone, Debug)]
enum TableStep {
    Insert(BlockKey, u64),
    Remove(BlockKey),
    Get(BlockKey),
    /// Many neighbours at once, so that the table grows.
    Fill(u64),
    RemoveKind(Kind),
}

fn table_step() -> impl Strategy<Value = TableStep> {
    prop_oneof![
        8 => (key(), 1..1u64 << 40).prop_map(|(key, bytes)| TableStep::Insert(key, bytes)),
        6 => key().prop_map(TableStep::Remove),
        3 => key().prop_map(TableStep::Get),
        1 => (0..20u64).prop_map(TableStep::Fill),
        1 => kind().prop_map(TableStep::RemoveKind),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_block_table_is_a_map(steps in prop::collection::vec(table_step(), 1..200)) {
        let file = SegmentFile::create_unnamed(0).unwrap();
        let writer = join(&file);
        let gpu = gpu(&writer);
        let table = writer.blocks();
        let mut model = HashMap::new();
        let insert = |model: &mut HashMap<BlockKey, Block>, key, bytes: u64| {
            let kind = Kind::from_raw((bytes % 9) as u8).unwrap();
            let block = Block { bytes, kind, gpu, ns: bytes * 3, aux: bytes * 7 };
            // The shim's rule: a key is not inserted while it is there.
            if let std::collections::hash_map::Entry::Vacant(place) = model.entry(key) {
                assert_eq!(table.insert(key, &block), Inserted::New);
                place.insert(block);
            }
        };
        for step in steps {
            match step {
                TableStep::Insert(key, bytes) => insert(&mut model, key, bytes),
                TableStep::Remove(key) => prop_assert_eq!(table.remove(key), model.remove(&key)),
                TableStep::Get(key) => prop_assert_eq!(table.get(key), model.get(&key).copied()),
                TableStep::Fill(region) => for n in 0..700 {
                    insert(&mut model, BlockKey::pointer((region << 36) + n * 512), n + 1);
                },
                TableStep::RemoveKind(kind) => {
                    let mut removed = HashMap::new();
                    table.remove_where(|_, block| block.kind == kind, |key, block| {
                        removed.insert(key, block);
                    });
                    let expected: HashMap<_, _> = model.extract_if(|_, block| block.kind == kind).collect();
                    prop_assert_eq!(removed, expected);
                }
            }
        }
        let mut visited = HashMap::new();
        table.for_each(|key, block| prop_assert_unique(visited.insert(key, *block)));
        prop_assert_eq!(&visited, &model);
        let segment = file.segment().unwrap();
        let mut read = HashMap::new();
        segment.each_block(writer.slot(), |it| prop_assert_unique(read.insert(it.key, it.block))).unwrap();
        prop_assert_eq!(&read, &model);
        let mut sizes: Vec<u64> = model.values().map(|block| block.bytes).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.truncate(7);
        let largest = segment.largest_blocks(writer.slot(), 7).unwrap();
        prop_assert_eq!(largest.iter().map(|it| it.block.bytes).collect::<Vec<_>>(), sizes);
    }

    #[test]
    fn accounts_and_timeline_follow_a_naive_model(
        steps in prop::collection::vec((kind(), 0..1u64 << 40, any::<bool>(), any::<bool>(), 0..40u32), 1..300)
    ) {
        let file = SegmentFile::create_unnamed(0).unwrap();
        let writer = join(&file);
        let gpu = gpu(&writer);
        let mut model = Model::default();
        let mut ns = 0u64;
        for (kind, bytes, charge, counted, pause) in steps {
            // Pauses from nothing to days, so that all widths of buckets occur.
            ns += if pause < 20 { 0 } else { 1u64 << pause };
            model.step(ns, kind, bytes, charge, counted);
            match (charge, counted) {
                (true, true) => writer.charge(gpu, kind, bytes, ns),
                (true, false) => writer.raise_level(gpu, kind, bytes, ns),
                (false, true) => writer.discharge(gpu, kind, bytes, ns),
                (false, false) => writer.lower_level(gpu, kind, bytes, ns),
            }
        }
        let segment = file.segment().unwrap();
        let process = segment.processes().unwrap().remove(0);
        let account = process.accounts.first();
        prop_assert_eq!(account.map_or(0, |it| it.total_now), model.total());
        prop_assert_eq!(account.map_or(0, |it| it.peak.total), model.peak);
        for (number, expected) in model.figures.iter().enumerate() {
            prop_assert_eq!(account.map_or_else(KindFigures::default, |it| it.kinds[number]), *expected);
        }
        if let Some(account) = account && model.peak > 0 {
            prop_assert!(!account.peak.approximate);
            prop_assert_eq!(account.peak.ns, model.peak_ns);
            prop_assert_eq!(account.peak.kinds, model.at_peak);
        }
        let underflows = process.bypasses.iter().find(|(reason, _)| *reason == Bypass::Underflow);
        prop_assert_eq!(underflows.map_or(0, |(_, n)| *n), model.underflows);
        prop_assert_eq!(segment.timeline(writer.slot(), gpu).unwrap(), model.timeline());
    }

    #[test]
    fn buckets_are_ordered_and_hold_their_times(ns in 0..30 * 86_400 * 1_000_000_000u64) {
        let index = bucket_index(ns);
        let (start, width) = bucket_span(index);
        prop_assert!(start <= ns && ns < start + width);
        prop_assert!(width == 1 << 20 || width <= ns / 256);
        prop_assert_eq!(bucket_span(index + 1).0, start + width);
        prop_assert!(index < 6400);
    }

    #[test]
    fn kernels_keep_their_names(names in prop::collection::vec(prop::collection::vec(1..=255u8, 0..1500), 1..40)) {
        let file = SegmentFile::create_unnamed(0).unwrap();
        let writer = join(&file);
        let mut ids = HashMap::new();
        for (number, name) in names.iter().enumerate() {
            let attributes = KernelAttributes { registers: number as u32 % 3, ..Default::default() };
            let id = writer.kernel(name, &attributes);
            prop_assert_ne!(id, KernelId::OTHER);
            if let Some(before) = ids.insert((name.clone(), attributes), id) {
                prop_assert_eq!(before, id);
            }
        }
        let process = file.segment().unwrap().processes().unwrap().remove(0);
        prop_assert_eq!(process.kernels.len(), ids.len());
        for ((name, attributes), id) in ids {
            let kernel = process.kernels.iter().find(|kernel| kernel.id == id.number()).unwrap();
            prop_assert_eq!(kernel.attributes, attributes);
            prop_assert_eq!(kernel.truncated, name.len() > 1023);
            let text = String::from_utf8_lossy(&name).into_owned();
            if kernel.truncated {
                // Up to three bytes more may be dropped, so that no character is cut.
                let sure = String::from_utf8_lossy(&name[..1000]).into_owned();
                let begins = kernel.name.starts_with(sure.trim_end_matches(char::REPLACEMENT_CHARACTER));
                prop_assert!(begins);
            } else {
                prop_assert_eq!(&kernel.name, &text);
            }
        }
    }

    #[test]
    fn the_event_ring_delivers_or_counts(polls in prop::collection::vec(0..3000u64, 1..8)) {
        let file = SegmentFile::create_unnamed(0).unwrap();
        let segment = file.segment().unwrap();
        let writer = join(&file);
        let mut reader = RingReader::new(&segment.slot(writer.slot()).unwrap());
        let (mut sent, mut got) = (0u64, 0u64);
        let mut last = None;
        for burst in polls {
            for _ in 0..burst {
                writer.event(&Event { a: sent, ..Event::new(EventKind::Other, 0) });
                sent += 1;
            }
            for event in reader.poll(&segment, false).into_iter().filter(|it| it.kind == EventKind::Other) {
                prop_assert!(last < Some(event.a));
                last = Some(event.a);
                got += 1;
            }
        }
        // Of the losses one may be the event of joining.
        prop_assert!(sent - got == reader.lost() || sent - got + 1 == reader.lost());
        prop_assert_eq!(last.unwrap_or(sent.wrapping_sub(1)), sent.wrapping_sub(1));
    }
}

fn prop_assert_unique<T: std::fmt::Debug>(before: Option<T>) {
    assert!(before.is_none(), "seen twice: {before:?}");
}

/// Keeps every change, and computes the rest the long way.
#[derive(Default)]
struct Model {
    figures: [KindFigures; KIND_COUNT],
    peak: u64,
    peak_ns: u64,
    at_peak: [u64; KIND_COUNT],
    underflows: u64,
    /// Time, bytes by kind before and after.
    changes: Vec<(u64, [u64; KIND_COUNT], [u64; KIND_COUNT])>,
}

impl Model {
    fn now(&self) -> [u64; KIND_COUNT] {
        self.figures.map(|it| it.now)
    }

    fn total(&self) -> u64 {
        self.now()[..5].iter().sum()
    }

    fn step(&mut self, ns: u64, kind: Kind, bytes: u64, charge: bool, counted: bool) {
        let before = self.now();
        let it = &mut self.figures[kind as usize];
        if charge {
            it.now += bytes;
            it.peak = it.peak.max(it.now);
            it.allocs += u64::from(counted);
        } else {
            self.underflows += u64::from(bytes > it.now);
            it.now = it.now.saturating_sub(bytes);
            it.frees += u64::from(counted);
        }
        if self.total() > self.peak {
            (self.peak, self.peak_ns, self.at_peak) = (self.total(), ns, self.now());
        }
        self.changes.push((ns, before, self.now()));
    }

    fn timeline(&self) -> Vec<TimelinePoint> {
        let first8 = |kinds: &[u64; KIND_COUNT]| -> [u64; 8] { kinds[..8].try_into().unwrap() };
        let total = |kinds: &[u64; KIND_COUNT]| kinds[..5].iter().sum::<u64>();
        let mut buckets = BTreeMap::<usize, Vec<_>>::new();
        for change in &self.changes {
            buckets.entry(bucket_index(change.0)).or_default().push(change);
        }
        let mut points = Vec::new();
        for (index, changes) in buckets {
            let (t_ns, width_ns) = bucket_span(index);
            let (_, start, _) = changes[0];
            let (_, _, end) = changes[changes.len() - 1];
            // The moment of the maximum: the first time an allocation in the device total reached it, else the beginning.
            let raises = changes.iter().filter(|(_, before, after)| total(after) > total(before));
            let mut at_max = (0, *start);
            for (_, _, after) in raises {
                if total(after) > at_max.0 {
                    at_max = (total(after), *after);
                }
            }
            // Nothing to see: a release of nothing, say.
            if at_max.0 == 0 && first8(start) == first8(end) {
                continue;
            }
            if at_max.0 < total(start) {
                at_max = (total(start), *start);
            }
            points.push(TimelinePoint {
                t_ns,
                width_ns,
                max_total: at_max.0,
                kinds_at_max: first8(&at_max.1),
                last_kinds: first8(end),
            });
        }
        points
    }
}
