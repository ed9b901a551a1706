//! Advice of programs about managed memory, by page. Nothing migrates; the advice is only remembered.

use std::collections::{BTreeMap, BTreeSet};

use radrm_cuda_abi::{CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_HOST, CUdevice, CUmemLocation};

/// Advice counts for whole pages of the processor.
const PAGE: u64 = 4096;
/// `CU_DEVICE_CPU`.
pub const CPU: CUdevice = -1;
/// `CU_DEVICE_INVALID`.
pub const INVALID_DEVICE: CUdevice = -2;

/// A location: kind and id.
pub type Place = (u32, i32);

/// The device that the older interface names for a location.
pub fn device_of(place: Option<Place>) -> CUdevice {
    match place {
        Some((kind, id)) if kind == CU_MEM_LOCATION_TYPE_DEVICE.0 => id,
        Some((kind, _)) if kind == CU_MEM_LOCATION_TYPE_HOST.0 => CPU,
        _ => INVALID_DEVICE,
    }
}

/// The location that the older interface names by a device.
pub fn place_of(device: CUdevice) -> CUmemLocation {
    let kind = if device == CPU { CU_MEM_LOCATION_TYPE_HOST } else { CU_MEM_LOCATION_TYPE_DEVICE };
    CUmemLocation { kind, id: device.max(0) }
}

/// Advice that holds for a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Mostly read.
    pub read_mostly: bool,
    /// Preferred location.
    pub preferred: Option<Place>,
    /// Location of the last prefetch.
    pub prefetched: Option<Place>,
    /// Devices whose access must not fault; [`CPU`] stands for the host.
    pub accessed_by: BTreeSet<CUdevice>,
}

/// Hints by range: first byte -> (one past the last, hints). Pages that are not listed have none.
#[derive(Debug, Default)]
pub struct Advice(BTreeMap<u64, (u64, Hints)>);

impl Advice {
    /// Changes the hints of all pages that a range touches.
    pub fn update(&mut self, base: u64, size: u64, change: impl Fn(&mut Hints)) {
        let (start, end) = pages(base, size);
        self.split(start);
        self.split(end);
        let mut gaps = Vec::new();
        let mut at = start;
        for (from, (until, hints)) in self.0.range_mut(start..end) {
            gaps.push((at, *from));
            change(hints);
            at = *until;
        }
        gaps.push((at, end));
        for (from, until) in gaps.into_iter().filter(|(from, until)| from < until) {
            let mut hints = Hints::default();
            change(&mut hints);
            self.0.insert(from, (until, hints));
        }
    }

    /// Forgets the hints of memory that is freed.
    pub fn forget(&mut self, base: u64, size: u64) {
        let (start, end) = pages(base, size);
        self.split(start);
        self.split(end);
        let gone: Vec<u64> = self.0.range(start..end).map(|(from, _)| *from).collect();
        gone.iter().for_each(|from| drop(self.0.remove(from)));
    }

    /// The hints of all pages of a range, in order; default ones where there are none.
    pub fn of(&self, base: u64, size: u64) -> Vec<Hints> {
        let (start, end) = pages(base, size);
        let before = self.0.range(..=start).next_back().filter(|(_, (until, _))| *until > start);
        let first = before.map_or(start, |(from, _)| *from);
        let mut found = Vec::new();
        let mut at = start;
        for (from, (until, hints)) in self.0.range(first..end) {
            if *from > at {
                found.push(Hints::default());
            }
            found.push(hints.clone());
            at = *until;
        }
        if at < end {
            found.push(Hints::default());
        }
        found
    }

    /// Makes `at` the beginning of a range if one spans it.
    fn split(&mut self, at: u64) {
        let Some((from, (until, hints))) = self.0.range(..at).next_back() else { return };
        if *until > at {
            let (from, until, hints) = (*from, *until, hints.clone());
            self.0.insert(from, (at, hints.clone()));
            self.0.insert(at, (until, hints));
        }
    }
}

fn pages(base: u64, size: u64) -> (u64, u64) {
    (base / PAGE * PAGE, base.saturating_add(size).next_multiple_of(PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_count_for_the_pages_they_were_given_for() {
        let mut advice = Advice::default();
        advice.update(8 * PAGE, 8 * PAGE, |h| h.read_mostly = true);
        advice.update(10 * PAGE + 5, PAGE, |h| h.preferred = Some((1, 0)));
        let read = |advice: &Advice, from: u64, pages: u64| -> Vec<(bool, bool)> {
            let hints = advice.of(from * PAGE, pages * PAGE);
            hints.iter().map(|h| (h.read_mostly, h.preferred.is_some())).collect()
        };
        assert_eq!(read(&advice, 8, 8), [(true, false), (true, true), (true, false)]);
        assert_eq!(read(&advice, 11, 1), [(true, true)], "a range that is touched in part");
        assert_eq!(read(&advice, 15, 2), [(true, false), (false, false)]);
        assert_eq!(read(&advice, 0, 8), [(false, false)]);
        advice.forget(9 * PAGE, 2 * PAGE);
        assert_eq!(read(&advice, 8, 8), [(true, false), (false, false), (true, true), (true, false)]);
    }
}
