//! Times of launches, and copies.

use super::raw::Words;
use super::segment::{Segment, SegmentError};
use super::snapshot::{Account, KernelSnapshot, ProcessSnapshot};
use crate::layout::*;
use crate::strata::estimate::{self, Sums};
use crate::strata::{CopyWay, SizeClass, of_key};
use std::collections::BTreeMap;
use std::mem::offset_of;

/// Copies of one way, or memsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// The way.
    pub way: CopyWay,
    /// Number of copies or memsets.
    pub count: u64,
    /// Bytes, each copied byte once.
    pub bytes: u64,
}

/// The ways that were used.
pub(super) fn copies(base: &Words) -> Vec<Copies> {
    let at = |way: CopyWay| base.array(offset_of!(SlotHead, copies) + way as usize * 16);
    let all = CopyWay::ALL.into_iter().map(|way| (way, at(way)));
    all.filter(|(_, [count, _])| *count > 0)
        .map(|(way, [count, bytes])| Copies { way, count, bytes })
        .collect()
}

impl Segment {
    /// Adds the times of kernels of which launches were timed.
    pub(super) fn time_kernels(
        &self,
        at: u64,
        base: &Words,
        kernels: &mut BTreeMap<u16, KernelSnapshot>,
    ) -> Result<(), SegmentError> {
        let pieces = base.at(offset_of!(SlotHead, strata_pieces)).min(1 + STRATA_BYTES / STRATA_KEYS_BYTES);
        let Some(pieces) = pieces.checked_sub(1).filter(|pieces| *pieces > 0) else { return Ok(()) };
        let keys = self.words(at + STRATA_KEYS_AT, STRATA_KEYS_BYTES)?;
        let cells = self.words(at + STRATA_AT, pieces * STRATA_KEYS_BYTES)?;
        let mut strata = BTreeMap::<u16, (Vec<Sums>, u64)>::new();
        for number in 1..(pieces * STRATA_KEYS_BYTES) as usize / size_of::<StratumCell>() {
            let key = keys.at(number * 8);
            if key == 0 {
                break; // claimed in order
            }
            let (kernel, class) = of_key(key);
            let sums = sums(&cells, number * size_of::<StratumCell>());
            let (all, direct) = strata.entry(kernel).or_default();
            if class != SizeClass::GRAPH.number() {
                *direct = direct.saturating_add(sums.launches);
            }
            all.push(sums);
        }
        for (kernel, (mut sums, direct)) in strata {
            let Some(kernel) = kernels.get_mut(&kernel) else { continue };
            // Threads say now and then how often they have launched; the kernel's own counter knows always.
            let unsaid = kernel.launches.saturating_sub(direct);
            if let Some(most) = sums.iter_mut().max_by_key(|s| s.launches).filter(|_| direct > 0) {
                most.launches = most.launches.saturating_add(unsaid);
            }
            kernel.time = estimate::kernel(&sums);
        }
        Ok(())
    }
}

impl ProcessSnapshot {
    /// Time for which a GPU has been in use, from the first timed launch to the end of the last launch, ns. Launches
    /// after the latest timed launch are taken to have come as densely as those before it.
    pub fn used_ns(&self, account: &Account) -> u64 {
        // Of kernels that are timed now and then some may have ended long before; one that has not shows how much came
        // after. Where there is none, the one that was timed most does.
        const MIN_TIMED: u64 = 8;
        let times = || self.kernels.iter().filter_map(|kernel| kernel.time);
        let often = times().filter(|time| time.samples >= MIN_TIMED).max_by_key(|time| time.behind_permille);
        let teller = often.or_else(|| times().max_by_key(|time| time.samples));
        let behind = teller.map_or(1000, |time| time.behind_permille.max(1));
        (account.timed_span_ns as f64 * 1000.0 / f64::from(behind)) as u64
    }
}

fn sums(cells: &Words, at: usize) -> Sums {
    let word = |offset: usize| cells.at(at + offset);
    Sums {
        launches: word(offset_of!(StratumCell, launches)),
        samples: word(offset_of!(StratumCell, samples)),
        weight: word(offset_of!(StratumCell, weight)),
        weight_squares: word(offset_of!(StratumCell, weight_squares)),
        ns: f64::from_bits(word(offset_of!(StratumCell, ns))),
        ns_squares: f64::from_bits(word(offset_of!(StratumCell, ns_squares))),
        doubt_ns: f64::from_bits(word(offset_of!(StratumCell, doubt_ns))),
        placed_ns: f64::from_bits(word(offset_of!(StratumCell, placed_ns))),
        active_ns: f64::from_bits(word(offset_of!(StratumCell, active_ns))),
        resident_ns: f64::from_bits(word(offset_of!(StratumCell, resident_ns))),
    }
}
