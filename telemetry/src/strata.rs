//! Strata: launches of one kernel of about one size, and the times of a sample of them.
//!
//! A stratum is found by kernel and size class. Its launches are all counted; for some of them, drawn at
//! random, the time on the GPU is known. Each known time stands for a number of launches, its weight: those
//! since the time before was taken. What follows for the kernel's total is in [`estimate`].
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

pub mod estimate;

use crate::gpu_index::GpuIndex;
use crate::kernels::{self, KernelId, Place};
use crate::layout::{STRATA, STRATA_AT, STRATA_BYTES, STRATA_KEYS_AT, STRATA_KEYS_BYTES, StratumCell};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::writer::Writer;
use std::ptr::NonNull;

/// Recording mode of launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum KernelsMode {
    /// Nothing.
    Off = 1,
    /// Launches are counted.
    #[default]
    Count = 2,
    /// Launches are counted, and some are timed.
    Sample = 3,
    /// Launches are counted and timed, all of them.
    All = 4,
}

impl KernelsMode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Off, Self::Count, Self::Sample, Self::All];

    /// The mode as it is written in options and in the environment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Count => "count",
            Self::Sample => "sample",
            Self::All => "all",
        }
    }

    /// The mode of a name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name().as_bytes() == name)
    }

    /// The mode with this number.
    pub fn from_raw(raw: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| *mode as u64 == raw)
    }

    /// Returns true if launches are timed.
    pub const fn is_timed(self) -> bool {
        matches!(self, Self::Sample | Self::All)
    }
}

/// Way of a copy, or a memset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CopyWay {
    /// From host to device.
    HostToDevice = 0,
    /// From device to host.
    DeviceToHost = 1,
    /// Inside one device.
    DeviceToDevice = 2,
    /// Between devices or contexts.
    Peer = 3,
    /// From host to host.
    HostToHost = 4,
    /// The driver finds out by the addresses.
    Unspecified = 5,
    /// A memset.
    Set = 6,
}

impl CopyWay {
    /// Every way, in the order of the numbers.
    pub const ALL: [Self; 7] = [
        Self::HostToDevice,
        Self::DeviceToHost,
        Self::DeviceToDevice,
        Self::Peer,
        Self::HostToHost,
        Self::Unspecified,
        Self::Set,
    ];

    /// A short stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostToDevice => "host_to_device",
            Self::DeviceToHost => "device_to_host",
            Self::DeviceToDevice => "device_to_device",
            Self::Peer => "peer",
            Self::HostToHost => "host_to_host",
            Self::Unspecified => "unspecified",
            Self::Set => "memset",
        }
    }
}

/// Size class of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SizeClass(u8);

impl SizeClass {
    /// Launches as a node of a graph; their unit is one launch of the graph.
    pub const GRAPH: Self = Self(u8::MAX);

    /// The class of a launch with so many threads in its whole grid: classes are a factor of two wide.
    #[inline]
    pub const fn of_threads(threads: u64) -> Self {
        Self((u64::BITS - threads.leading_zeros()) as u8)
    }

    /// The number.
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Share of a GPU that a launch fills while it runs, each field 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Filling {
    /// Share of the multiprocessors that have work, over the launch's time: SM activity.
    pub active: f64,
    /// Share of the warps that the multiprocessors can hold that are there: SM occupancy.
    pub resident: f64,
}

impl Filling {
    /// From the launch's geometry: blocks of the grid, threads of a block, blocks that a multiprocessor
    /// holds at a time, and the GPU's multiprocessors and most threads of each.
    ///
    /// With `waves = blocks / (held * sms)`: all multiprocessors are active in all full waves, and as many as
    /// there are blocks in the last one.
    pub fn of(blocks: u64, threads: u64, held: u64, sms: u64, most_threads: u64) -> Option<Self> {
        if blocks == 0 || threads == 0 || held == 0 || sms == 0 || most_threads == 0 {
            return None;
        }
        let per_wave = held.checked_mul(sms)?;
        let (full, tail) = (blocks / per_wave, blocks % per_wave);
        let waves = (full + u64::from(tail > 0)) as f64;
        let share = |n: u64, of: u64| (n as f64 / of as f64).min(1.0);
        let warps = |blocks_on_sm: f64| {
            (blocks_on_sm * threads.div_ceil(32) as f64 / (most_threads / 32).max(1) as f64).min(1.0)
        };
        let tail_active = share(tail, sms);
        // Blocks spread over the multiprocessors before any gets a second one.
        let tail_held = (tail as f64 / sms as f64).clamp(f64::from(u8::from(tail > 0)), held as f64);
        Some(Self {
            active: (full as f64 + tail_active) / waves,
            resident: (full as f64 * warps(held as f64) + tail_active * warps(tail_held)) / waves,
        })
    }
}

/// Key of a stratum; never 0.
pub(crate) const fn key(kernel: KernelId, class: SizeClass) -> u64 {
    1 << 63 | (kernel.number() as u64) << 8 | class.0 as u64
}

/// Kernel's number and size class of a key.
pub(crate) const fn of_key(key: u64) -> (u16, u8) {
    ((key >> 8) as u16, key as u8)
}

/// A stratum, for the process that found it to add to from any thread. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Stratum(NonNull<StratumCell>);

// SAFETY: the pointer leads to a mapping that is never removed, and everything there is an atomic.
unsafe impl Send for Stratum {}
// SAFETY: as above.
unsafe impl Sync for Stratum {}

impl Stratum {
    /// The stratum as an address, to be kept in a word.
    pub fn as_ptr(self) -> *const StratumCell {
        self.0.as_ptr()
    }

    /// The stratum behind an address from [`Stratum::as_ptr`]; `None` for null.
    ///
    /// # Safety
    ///
    /// The address is null or came from `as_ptr` in this process.
    pub unsafe fn from_ptr(cell: *const StratumCell) -> Option<Self> {
        NonNull::new(cell.cast_mut()).map(Self)
    }

    fn cell(&self) -> &StratumCell {
        // SAFETY: a stratum is allocated, and mapped as long as the process lives.
        unsafe { self.0.as_ref() }
    }

    /// Counts launches.
    pub fn launched(self, launches: u64) {
        self.cell().launches.fetch_add(launches, Relaxed);
    }

    /// Counts a timing that begins; gives how many had begun before.
    pub fn begin(self) -> u64 {
        self.cell().begun.fetch_add(1, Relaxed)
    }

    /// Timings that have begun.
    pub fn begun(self) -> u64 {
        self.cell().begun.load(Relaxed)
    }

    /// The mean of the known times, ns.
    pub fn mean_ns(self) -> Option<f64> {
        let cell = self.cell();
        let weight = cell.weight.load(Relaxed);
        (weight > 0).then(|| f64::from_bits(cell.ns.load(Relaxed)) / weight as f64)
    }

    /// The standard deviation of the known times as a share of their mean; of fewer than three times nothing is known of
    /// it, which counts as one.
    pub fn variation(self) -> Option<f64> {
        let mean = self.mean_ns().filter(|mean| *mean > 0.0)?;
        let cell = self.cell();
        let samples = cell.samples.load(Relaxed) as f64;
        if samples < 3.0 {
            return Some(1.0);
        }
        let squares = f64::from_bits(cell.ns_squares.load(Relaxed)) / cell.weight.load(Relaxed) as f64;
        let variance = (squares / (mean * mean) - 1.0).max(0.0) * samples / (samples - 1.0);
        Some(variance.sqrt())
    }

    /// Notes how the GPU was filled by a launch that took `ns` and stands for `weight` launches.
    pub fn placed(self, weight: u64, ns: f64, filling: Filling) {
        let cell = self.cell();
        let seq = cell.seq.load(Relaxed);
        if seq & 1 == 1 || cell.seq.compare_exchange(seq, seq + 1, Acquire, Relaxed).is_err() {
            return;
        }
        crate::sync::fence(Release); // as in `timed`
        let time = weight as f64 * ns;
        add_float(&cell.placed_ns, time);
        add_float(&cell.active_ns, time * filling.active);
        add_float(&cell.resident_ns, time * filling.resident);
        cell.seq.store(seq + 2, Release);
    }

    /// Notes the time of a launch that stands for `weight` launches. `doubt`: share of it that is in doubt
    /// beyond what the sample's size explains, 0 to 1. False: another thread is writing, the time is lost.
    pub fn timed(self, weight: u64, ns: f64, doubt: f64) -> bool {
        let cell = self.cell();
        let seq = cell.seq.load(Relaxed);
        if seq & 1 == 1 || cell.seq.compare_exchange(seq, seq + 1, Acquire, Relaxed).is_err() {
            return false;
        }
        crate::sync::fence(Release); // a reader that sees a store below sees the odd number above
        let w = weight as f64;
        add(&cell.samples, 1);
        add(&cell.weight, weight);
        add(&cell.weight_squares, weight.saturating_mul(weight));
        add_float(&cell.ns, w * ns);
        add_float(&cell.ns_squares, w * ns * ns);
        if doubt > 0.0 {
            add_float(&cell.doubt_ns, w * ns * doubt.min(1.0));
        }
        cell.seq.store(seq + 2, Release); // a reader that sees the even number sees the sums
        true
    }
}

/// Adds to a word that only the holder of `seq` writes.
fn add(word: &AtomicU64, amount: u64) {
    word.store(word.load(Relaxed).saturating_add(amount), Relaxed);
}

fn add_float(word: &AtomicU64, amount: f64) {
    word.store((f64::from_bits(word.load(Relaxed)) + amount).to_bits(), Relaxed);
}

impl Writer {
    /// Notes what is recorded of launches.
    pub fn kernels_mode(&self, mode: KernelsMode) {
        self.base().head.kernels_mode.store(mode as u64, Relaxed);
    }

    /// The stratum of a kernel's launches of one size class. `None` without room. Cold.
    pub fn stratum(&self, kernel: KernelId, class: SizeClass) -> Option<Stratum> {
        let pieces = &self.base().head.strata_pieces;
        if !self.grow_upto(pieces, STRATA_KEYS_AT, STRATA_KEYS_BYTES, 1) {
            return None;
        }
        // SAFETY: the keys are allocated (just above); STRATA words, atomics only.
        let keys = unsafe { self.at::<[AtomicU64; STRATA]>(STRATA_KEYS_AT).as_ref() };
        let (Place::Known(number) | Place::Claimed(number)) = kernels::claim(keys, key(kernel, class)) else {
            return None;
        };
        let within = u64::from(number.0) * size_of::<StratumCell>() as u64;
        if !self.grow_upto(pieces, STRATA_KEYS_AT, STRATA_KEYS_BYTES, 2 + within / STRATA_KEYS_BYTES) {
            return None;
        }
        Some(Stratum(self.at(STRATA_AT + within)))
    }

    /// Counts a copy or memset.
    pub fn copied(&self, way: CopyWay, bytes: u64) {
        if let Some([count, sum]) = self.base().head.copies.get(way as usize) {
            count.fetch_add(1, Relaxed);
            sum.fetch_add(bytes, Relaxed);
        }
    }

    /// Notes how long a GPU has been in use, from the first timed launch to the end of the latest, ns.
    pub fn timed_span(&self, gpu: GpuIndex, ns: u64) {
        if let Some(account) = self.base().accounts.get(usize::from(gpu.number())) {
            account.timed_span_ns.fetch_max(ns, Relaxed);
        }
    }

    /// Counts a timing that was lost.
    pub fn timing_lost(&self) {
        let [lost, _] = &self.base().head.timing;
        lost.fetch_add(1, Relaxed);
    }

    /// Adds to the time that the host has spent on timing, ns.
    pub fn timing_cost(&self, ns: u64) {
        let [_, cost] = &self.base().head.timing;
        cost.fetch_add(ns, Relaxed);
    }
}

const _: () = assert!(STRATA_BYTES.is_multiple_of(STRATA_KEYS_BYTES));

#[cfg(test)]
mod tests {
    use super::Filling;

    #[test]
    fn multiprocessors_are_filled_wave_by_wave() {
        let of = |blocks, threads, held| {
            let f = Filling::of(blocks, threads, held, 100, 2048).unwrap();
            ((f.active * 1000.0).round(), (f.resident * 1000.0).round())
        };
        // Fewer blocks than multiprocessors.
        assert_eq!(of(50, 1024, 2), (500.0, 250.0));
        // One each, then two each.
        assert_eq!(of(100, 1024, 2), (1000.0, 500.0));
        assert_eq!(of(200, 1024, 2), (1000.0, 1000.0));
        // A full wave and half of the multiprocessors in the next.
        assert_eq!(of(250, 1024, 2), (750.0, 625.0));
        assert_eq!(of(1, 32, 32), (10.0, 0.0));
        assert_eq!(Filling::of(0, 32, 1, 1, 1), None);
        assert_eq!(Filling::of(5, 32, u64::MAX, 100, 2048), None);
    }
}
