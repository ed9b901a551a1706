//! Live blocks of a process: the largest, and where they lie in a GPU's address space.

use radrm_profile::model::{Account, Block, BlockMap, BlockRun, GpuIndex, Kind, Process};
use radrm_profile::{Bytes, Nanos};
use radrm_telemetry as seg;
use radrm_telemetry::{Segment, SlotInfo};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Runs of a map. Where there are more blocks those with the smallest holes between them are put together.
const RUNS: usize = 500;

/// Runs of all maps of a process on a GPU in a profile: half a megabyte. From half of them on only higher totals are mapped.
const ALL_RUNS: usize = 50_000;

/// A map is worth a record where this part more is held than in all before.
const HIGHER: u64 = 16;

/// Else one is written when the process is by this part older than at the last one, and no more often than that.
const OLDER: u64 = 8;
const MIN_INTERVAL: Nanos = Nanos::from_secs(1);

/// Kinds whose blocks are known by their address.
const WITH_ADDRESS: [Kind; 2] = [Kind::Device, Kind::PoolUsed];

/// The largest blocks of a process on a GPU, of those that were made up to a moment.
pub(crate) fn largest_before(
    segment: &Segment,
    slot: &SlotInfo,
    (gpu, moment, is_host): (GpuIndex, Nanos, bool),
    most: usize,
) -> Vec<Block> {
    let mut largest = BinaryHeap::new();
    let seen = segment.each_block(slot.slot, |live| {
        let block = live.block;
        let wanted = block.gpu.number() == gpu.0
            && block.ns <= moment.0
            && block.kind != Kind::Imported
            && (block.kind == Kind::PinnedHost) == is_host;
        if wanted {
            largest.push(Reverse((block.bytes, Reverse(block.ns), block.kind)));
            if largest.len() > most {
                largest.pop();
            }
        }
    });
    if seen.is_err() {
        return Vec::new();
    }
    let block = |Reverse((bytes, Reverse(ns), kind)): Reverse<(u64, Reverse<u64>, Kind)>| Block {
        size: Bytes(bytes),
        kind: kind as u8,
        gpu,
        since: Nanos(ns),
    };
    largest.into_sorted_vec().into_iter().map(block).collect()
}

/// The blocks of a process on a GPU that have an address, by address.
pub(crate) fn runs(segment: &Segment, slot: &SlotInfo, gpu: GpuIndex) -> Vec<BlockRun> {
    let mut found = Vec::new();
    let seen = segment.each_block(slot.slot, |live| {
        let is_wanted = live.key.namespace() == seg::Namespace::Pointer as u8
            && live.block.gpu.number() == gpu.0
            && WITH_ADDRESS.contains(&live.block.kind)
            && live.block.bytes > 0;
        if is_wanted {
            let size = Bytes(live.block.bytes);
            let kind = live.block.kind as u8;
            found.push(BlockRun { address: live.key.value(), span: size, held: size, blocks: 1, kind });
        }
    });
    if seen.is_err() {
        return Vec::new();
    }
    found.sort_unstable_by_key(|run| run.address);
    found
}

/// As many runs at most, with what lies closest put together.
fn bounded(runs: Vec<BlockRun>, most: usize) -> Vec<BlockRun> {
    let gap = |a: &BlockRun, b: &BlockRun| b.address.saturating_sub(a.address.saturating_add(a.span.0));
    let mut gaps: Vec<u64> = runs.windows(2).map(|pair| gap(&pair[0], &pair[1])).collect();
    let too_many = runs.len().saturating_sub(most);
    if too_many == 0 {
        return runs;
    }
    // Of gaps as wide as the widest that has to go only as many as needed.
    gaps.sort_unstable();
    let widest = gaps[too_many - 1];
    let mut equal = too_many - gaps.partition_point(|gap| *gap < widest);
    let mut kept: Vec<BlockRun> = Vec::with_capacity(most);
    let mut largest = Bytes::ZERO;
    for run in runs {
        let closes = kept.last().is_some_and(|last| match gap(last, &run) {
            here if here == widest && equal > 0 => {
                equal -= 1;
                true
            }
            here => here < widest,
        });
        match kept.last_mut() {
            Some(last) if closes => {
                last.span = Bytes(run.address.saturating_add(run.span.0).saturating_sub(last.address));
                last.held = last.held + run.held;
                last.blocks = last.blocks.saturating_add(run.blocks);
                if run.held > largest {
                    (largest, last.kind) = (run.held, run.kind);
                }
            }
            _ => {
                largest = run.held;
                kept.push(run);
            }
        }
    }
    kept
}

/// Maps of a process that are in its profile.
#[derive(Debug, Default)]
pub(crate) struct Written(BTreeMap<u8, OnGpu>);

#[derive(Debug, Default)]
struct OnGpu {
    highest: Bytes,
    last: Option<Nanos>,
    runs: usize,
    /// Allocations and releases at the last one.
    changes: u64,
}

impl Written {
    /// The maps to write of a process; `read` gives the blocks on a GPU. Where these are not what the account says of
    /// their kinds, memory came or went in between: there is none this time.
    pub(crate) fn news(
        &mut self,
        process: &Process,
        now: Nanos,
        whole: bool,
        mut read: impl FnMut(GpuIndex) -> Vec<BlockRun>,
    ) -> Vec<BlockMap> {
        let t = process.state.ended.map_or(now, |ended| ended.min(now));
        let mut maps = Vec::new();
        for account in &process.state.accounts {
            let known = self.0.entry(account.gpu.0).or_default();
            if !known.is_due(account, t, t.minus(process.identity.joined), whole) {
                continue;
            }
            let runs = read(account.gpu);
            let of = |kind: Kind| {
                let own = runs.iter().filter(|run| run.kind == kind as u8);
                own.fold(0u64, |sum, run| sum.saturating_add(run.held.0))
            };
            let overlaps =
                runs.windows(2).any(|pair| pair[0].address.saturating_add(pair[0].span.0) > pair[1].address);
            let differs = WITH_ADDRESS.iter().any(|kind| account.kinds[kind.index()].now.0 != of(*kind));
            if runs.is_empty() || overlaps || differs {
                continue;
            }
            let runs = bounded(runs, RUNS);
            *known = OnGpu {
                highest: known.highest.max(account.now),
                last: Some(t),
                runs: known.runs + runs.len(),
                changes: changes(account),
            };
            let kinds = account.kinds.each_ref().map(|kind| kind.now);
            maps.push(BlockMap { key: process.key, gpu: account.gpu, t, total: account.now, kinds, runs });
        }
        maps
    }
}

impl OnGpu {
    fn is_due(&self, account: &Account, now: Nanos, age: Nanos, whole: bool) -> bool {
        let has_news = !account.now.is_zero() && changes(account) != self.changes;
        let is_higher = account.now.0 > self.highest.0.saturating_add(self.highest.0 / HIGHER);
        let pause = MIN_INTERVAL.max(Nanos(age.0 / OLDER));
        let is_older = whole || self.last.is_none_or(|last| now.minus(last) >= pause);
        has_news && (is_higher && self.runs < ALL_RUNS || is_older && (whole || self.runs < ALL_RUNS / 2))
    }
}

fn changes(account: &Account) -> u64 {
    account.kinds.iter().fold(0, |sum, kind| sum.wrapping_add(kind.allocations).wrapping_add(kind.frees))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(address: u64, bytes: u64) -> BlockRun {
        BlockRun { address, span: Bytes(bytes), held: Bytes(bytes), blocks: 1, kind: Kind::Device as u8 }
    }

    #[test]
    fn blocks_that_are_too_many_are_joined_over_the_smallest_holes() {
        let runs = vec![run(0, 10), run(10, 10), run(40, 10), run(52, 10), run(500, 10)];
        assert_eq!(bounded(runs.clone(), 5), runs);
        let shown = |most| -> Vec<(u64, u64, u64, u32)> {
            let runs = bounded(runs.clone(), most);
            runs.iter().map(|run| (run.address, run.span.0, run.held.0, run.blocks)).collect()
        };
        assert_eq!(shown(4), [(0, 20, 20, 2), (40, 10, 10, 1), (52, 10, 10, 1), (500, 10, 10, 1)]);
        assert_eq!(shown(3), [(0, 20, 20, 2), (40, 22, 20, 2), (500, 10, 10, 1)]);
        assert_eq!(shown(1), [(0, 510, 50, 5)]);
        // Of equal holes only as many close as have to.
        let equal: Vec<BlockRun> = (0..10).map(|at| run(at * 20, 10)).collect();
        assert_eq!(bounded(equal, 7).len(), 7);
    }

    fn process(now: u64, changes: u64) -> Process {
        let mut account = Account { now: Bytes(now), ..Account::default() };
        let kind = &mut account.kinds[Kind::Device as usize];
        (kind.now, kind.allocations) = (Bytes(now), changes);
        let mut process = Process::default();
        process.state.accounts = vec![account];
        process
    }

    #[test]
    fn maps_are_written_where_more_is_held_and_from_time_to_time() {
        let mut written = Written::default();
        let mut at = |ms, now: u64, changes| {
            let read = |_| vec![run(4096, now)];
            written.news(&process(now, changes), Nanos::from_millis(ms), false, read).len()
        };
        assert_eq!(at(0, 100, 1), 1);
        assert_eq!(at(100, 104, 2), 0, "little more");
        assert_eq!(at(200, 120, 3), 1);
        assert_eq!(at(900, 90, 4), 0, "less");
        assert_eq!(at(1300, 90, 4), 1, "a second later");
        assert_eq!(at(9000, 90, 4), 0, "nothing changed");
        assert_eq!(at(100_000, 90, 5), 1);
        assert_eq!(at(102_000, 91, 6), 0, "an old process is read more rarely");
    }

    #[test]
    fn blocks_that_changed_while_they_were_read_are_no_map() {
        let mut written = Written::default();
        let mut read =
            |runs: Vec<BlockRun>| written.news(&process(100, 1), Nanos::ZERO, false, |_| runs.clone()).len();
        assert_eq!(read(vec![run(4096, 90)]), 0, "a block is missing");
        assert_eq!(read(vec![run(4096, 60), run(4100, 40)]), 0, "one took the place of another");
        assert_eq!(read(vec![run(4096, 60), run(8192, 40)]), 1);
    }

    #[test]
    fn maps_of_a_long_run_are_bounded() {
        let mut written = Written::default();
        let mut kept = 0;
        for second in 0..200_000u64 {
            let size = 1000 + second % 7;
            let read = |_| (0..600).map(|at| run(at << 20, size)).collect();
            let process = process(600 * size, second + 1);
            let maps = written.news(&process, Nanos::from_secs(second), false, read);
            kept += maps.iter().map(|map| map.runs.len()).sum::<usize>();
        }
        assert!(kept > 10 * RUNS && kept <= ALL_RUNS, "{kept}");
    }
}
