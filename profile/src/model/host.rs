//! Use of the host's processors and of the host's memory by the job.

use super::Share;
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// Count that the host keeps of a job. The numbers are the file format's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum HostCount {
    /// Processor time, ns, over all processors.
    TaskClock = 0,
    /// Clock cycles.
    Cycles = 1,
    /// Instructions that were completed.
    Instructions = 2,
    /// Misses of the last level of cache.
    CacheMisses = 3,
    /// Context switches.
    ContextSwitches = 4,
    /// Page faults, those without the disk included.
    PageFaults = 5,
    /// Page faults that needed the disk.
    MajorFaults = 6,
}

impl HostCount {
    /// All of them, by number.
    pub const ALL: [HostCount; 7] = [
        HostCount::TaskClock,
        HostCount::Cycles,
        HostCount::Instructions,
        HostCount::CacheMisses,
        HostCount::ContextSwitches,
        HostCount::PageFaults,
        HostCount::MajorFaults,
    ];

    /// The one with this number.
    pub fn from_number(number: u8) -> Option<HostCount> {
        HostCount::ALL.get(usize::from(number)).copied()
    }

    /// Stable name for programs.
    pub const fn key(self) -> &'static str {
        match self {
            HostCount::TaskClock => "task_clock_ns",
            HostCount::Cycles => "cycles",
            HostCount::Instructions => "instructions",
            HostCount::CacheMisses => "cache_misses",
            HostCount::ContextSwitches => "context_switches",
            HostCount::PageFaults => "page_faults",
            HostCount::MajorFaults => "major_faults",
        }
    }

    /// Name for people.
    pub const fn label(self) -> &'static str {
        match self {
            HostCount::TaskClock => "processor time",
            HostCount::Cycles => "cycles",
            HostCount::Instructions => "instructions",
            HostCount::CacheMisses => "cache misses",
            HostCount::ContextSwitches => "context switches",
            HostCount::PageFaults => "page faults",
            HostCount::MajorFaults => "major faults",
        }
    }
}

/// Source of a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CountSource {
    /// perf events: the program and all that it started.
    Perf,
    /// perf events in user mode: what the kernel did for the job is not in it.
    PerfUser,
    /// /proc, read from time to time: what ended between two polls and was not waited for is
    /// not in it.
    Procfs,
    /// The kernel's figures at the end: the program, and what it has waited for.
    #[default]
    Usage,
}

impl CountSource {
    /// Stable name for programs.
    pub const fn key(self) -> &'static str {
        match self {
            CountSource::Perf => "perf",
            CountSource::PerfUser => "perf_user",
            CountSource::Procfs => "procfs",
            CountSource::Usage => "rusage",
        }
    }
}

/// A counter since the job's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCounter {
    /// Number of the [`HostCount`].
    pub kind: u8,
    /// Its value. Where the processor had to share its counters, scaled up from the time in which it
    /// was counted.
    pub value: u64,
    /// Source of the count.
    pub source: CountSource,
    /// Share of the time in which it was counted.
    pub counted: Share,
}

/// The host's side over a span of time. Later spans are longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSpan {
    /// Start of the span.
    pub t: Nanos,
    /// Length of the span.
    pub span: Nanos,
    /// Processor time that all processes of the job took in it.
    pub busy: Nanos,
    /// Highest sum of their resident memory. Pages that several have are in it several times.
    pub resident: Bytes,
    /// Most processes at a time.
    pub processes: u32,
    /// Most threads at a time.
    pub threads: u32,
}

/// Changes of the host's side; its counters replace those known before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNews {
    /// Processors that the job may use; 0 if unknown.
    pub processors: u32,
    /// The host's memory.
    pub memory: Bytes,
    /// Counters, whole.
    pub counters: Vec<HostCounter>,
    /// Highest resident memory of one process, as the kernel reports at the end.
    pub resident_peak: Option<Bytes>,
    /// Spans since the last such record.
    pub spans: Vec<HostSpan>,
}

/// The host's side of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Processors that the job may use; 0 if unknown.
    pub processors: u32,
    /// The host's memory; 0 if unknown.
    pub memory: Bytes,
    /// Counters since the job's start.
    pub counters: Vec<HostCounter>,
    /// Highest resident memory of one process, as the kernel reports at the end.
    pub resident_peak: Option<Bytes>,
    /// By time, without overlaps.
    pub spans: Vec<HostSpan>,
}

impl Host {
    /// A counter, if it was counted.
    pub fn counter(&self, count: HostCount) -> Option<&HostCounter> {
        self.counters.iter().find(|counter| counter.kind == count as u8)
    }

    /// Adds what is new.
    pub(crate) fn apply(&mut self, news: HostNews) {
        self.processors = news.processors;
        self.memory = news.memory;
        self.counters = news.counters;
        self.resident_peak = news.resident_peak;
        self.spans.extend(news.spans);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_numbers() {
        for count in HostCount::ALL {
            assert_eq!(HostCount::from_number(count as u8), Some(count));
        }
        assert_eq!(HostCount::from_number(200), None);
    }

    #[test]
    fn counters_are_replaced_and_spans_added() {
        let news = |value| HostNews {
            counters: vec![HostCounter { kind: HostCount::TaskClock as u8, value, ..HostCounter::default() }],
            spans: vec![HostSpan::default()],
            ..HostNews::default()
        };
        let mut host = Host::default();
        host.apply(news(1));
        host.apply(news(2));
        assert_eq!(host.counter(HostCount::TaskClock).map(|counter| counter.value), Some(2));
        assert_eq!((host.counter(HostCount::Cycles), host.spans.len()), (None, 2));
    }
}
