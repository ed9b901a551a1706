//! Record of a run that is over, as far as decisions about later runs follow from it.

use core::fmt;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Millis, Permille};

/// Activity of a job on a GPU that it has to itself: means over its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Activity {
    /// SM activity (SMACT).
    pub smact: Permille,
    /// SM occupancy (SMOCC).
    pub smocc: Permille,
    /// DRAM activity (DRAMA).
    pub drama: Permille,
}

impl Activity {
    /// The same work stretched over more time (`by` under 1) or less; nothing is busier than always.
    #[must_use]
    pub fn scaled(self, by: f64) -> Self {
        let part = |value: Permille| Permille::from_fraction(value.fraction() * by).min(Permille::WHOLE);
        Self { smact: part(self.smact), smocc: part(self.smocc), drama: part(self.drama) }
    }
}

/// Use of its host by a job where nothing there slows it: means over its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct HostUse {
    /// CPU time in a unit of time, thousandths of a core.
    pub cpu_milli: u32,
    /// Threads that take it at the same time.
    pub threads: u32,
    /// Resident memory.
    pub resident: Bytes,
    /// Memory traffic, bytes in a second; `None`: not measured.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub memory_traffic: Option<u64>,
    /// Part of its CPU cycles in which a processor waited, mostly for memory; `None`: not measured.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub memory_stalled: Option<Permille>,
}

/// Source of a node's figures on what its memory does for jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "snake_case"))]
pub enum MemoryOrigin {
    /// The kernel's resctrl counts the bytes of each job.
    Resctrl,
    /// Counters of the memory controllers count the bytes of the node.
    Uncore,
    /// Processors count the cycles in which they wait: no bytes.
    StalledCycles,
}

impl fmt::Display for MemoryOrigin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Resctrl => "resctrl",
            Self::Uncore => "uncore counters",
            Self::StalledCycles => "stalled cycles",
        })
    }
}

/// CPU time over spans of time, as far as a [`HostUse`] follows from them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostMeter {
    time: f64,
    cpu: f64,
    squares: f64,
    spans: u32,
}

impl HostMeter {
    /// A span and the CPU time in it, both in the same unit.
    pub fn add(&mut self, span: u64, busy: u64) {
        if span == 0 {
            return;
        }
        let (span, busy) = (span as f64, busy as f64);
        self.time += span;
        self.cpu += busy;
        self.squares += busy * busy / span;
        self.spans += 1;
    }

    /// Number of spans.
    #[must_use]
    pub fn spans(&self) -> u32 {
        self.spans
    }

    /// The means. The threads are the cores that a unit of CPU time saw in use at its time, so a short start with many of
    /// them counts little. `None`: no time passed.
    #[must_use]
    pub fn used(&self, resident: Bytes) -> Option<HostUse> {
        let Self { time, cpu, squares, .. } = *self;
        if time <= 0.0 {
            return None;
        }
        // A conversion from a float saturates. A clock's slip makes no thread: a twentieth more is none.
        let threads = if cpu > 0.0 { ((squares / cpu + 0.95) as u32).max(1) } else { 0 };
        Some(HostUse {
            cpu_milli: (cpu / time * 1000.0 + 0.5) as u32,
            threads,
            resident,
            memory_traffic: None,
            memory_stalled: None,
        })
    }
}

/// One earlier run of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct PastRun {
    /// Its batch size, if that is known.
    pub batch: Option<u32>,
    /// Its peak of device memory on the GPU where that was highest. Of a run that ran out of memory: what it
    /// held there and asked for on top.
    pub peak: Bytes,
    /// Duration of the run.
    pub ran: Millis,
    /// Activity on a GPU, if it was measured.
    pub activity: Option<Activity>,
    /// Use of its host, if it was measured.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub host: Option<HostUse>,
    /// It was not cut short: a run that was needs at least its peak, and longer.
    pub complete: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_start_on_many_cores_makes_no_threads() {
        let of = |spans: &[(u64, u64)]| {
            let mut meter = HostMeter::default();
            spans.iter().for_each(|(span, busy)| meter.add(*span, *busy));
            meter.used(Bytes(7))
        };
        let loader = of(&[(1000, 600); 50]).unwrap();
        let expected = HostUse { cpu_milli: 600, threads: 1, resident: Bytes(7), ..HostUse::default() };
        assert_eq!(loader, expected);
        let mut spans = [(1000, 900); 400];
        spans[0] = (1000, 8000);
        assert_eq!(of(&spans).map(|of| of.threads), Some(2), "and not 8");
        assert_eq!(of(&[(1000, 3900), (1000, 4000)]).map(|of| (of.cpu_milli, of.threads)), Some((3950, 4)));
        assert_eq!(of(&[(1000, 0)]).map(|of| (of.cpu_milli, of.threads)), Some((0, 0)));
        assert_eq!((of(&[]), of(&[(0, 5)])), (None, None));
    }
}
