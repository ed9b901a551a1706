//! The host's side of a job: counters, processor time and memory over time.

mod memory;
mod perf;
mod tree;

pub use memory::{MemoryCount, MemoryError, MemoryMeter};
pub use perf::HostCounters;

use crate::pace::{sample_gap, span_length};
use radrm_profile::model::{CountSource, HostCount, HostCounter, HostNews, HostSpan, Share};
use radrm_profile::{Bytes, Nanos};
use std::time::{Duration, Instant};
use tree::Tree;

/// Polling /proc may take this share of the time: a job of a thousand processes is polled less
/// often.
const LOOK_SHARE: u32 = 500;
/// Likewise for the search for new processes.
const SEARCH_SHARE: u32 = 1000;

/// The first poll: shorter jobs have the figures of the end alone.
const FIRST_LOOK: Nanos = Nanos::from_millis(20);

/// Usage of a program that the kernel reports at its end: its own, and of what it has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, user and kernel mode.
    pub busy: Duration,
    /// Highest resident memory of one process.
    pub resident: Bytes,
    /// Context switches.
    pub context_switches: u64,
    /// Page faults without the disk.
    pub minor_faults: u64,
    /// Page faults that needed the disk.
    pub major_faults: u64,
}

/// State of the host's side while a job runs.
#[derive(Debug)]
pub(crate) struct HostWatch {
    counters: HostCounters,
    tree: Tree,
    next_look: Nanos,
    next_search: Nanos,
    open: HostSpan,
    /// Processor time at the start of the open span.
    busy_before: Nanos,
    ready: Vec<HostSpan>,
    usage: Option<Usage>,
    processors: u32,
    memory: Bytes,
}

impl HostWatch {
    /// Watches a program; 0 if it never started.
    pub(crate) fn new(pid: u32) -> HostWatch {
        let mut tree = Tree::new();
        tree.add(pid);
        let system = rustix::system::sysinfo();
        HostWatch {
            counters: HostCounters::default(),
            tree,
            next_look: FIRST_LOOK,
            next_search: FIRST_LOOK,
            open: HostSpan::default(),
            busy_before: Nanos::ZERO,
            ready: Vec::new(),
            usage: None,
            processors: std::thread::available_parallelism()
                .map_or(0, |number| u32::try_from(number.get()).unwrap_or(u32::MAX)),
            memory: Bytes(u64::from(system.mem_unit).saturating_mul(system.totalram)),
        }
    }

    /// Takes counters that were opened at the program's start; gives what is missing of them.
    pub(crate) fn count(&mut self, mut counters: HostCounters) -> Vec<String> {
        let missing = counters.missing();
        self.counters = counters;
        missing
    }

    /// Takes the usage that the kernel reported at the end.
    pub(crate) fn used(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// Polls if it is due. `others`: processes of the job that are known by other ways.
    pub(crate) fn poll(&mut self, now: Nanos, others: impl Iterator<Item = u32>) {
        if now < self.next_look {
            return;
        }
        if now >= self.next_search {
            let began = Instant::now();
            others.for_each(|pid| self.tree.add(pid));
            self.tree.find_children();
            self.next_search = now + pause(began.elapsed() * SEARCH_SHARE, now);
        }
        let began = Instant::now();
        let reading = self.tree.poll();
        self.next_look = now + pause(began.elapsed() * LOOK_SHARE, now);
        self.open.resident = self.open.resident.max(reading.resident);
        self.open.processes = self.open.processes.max(reading.processes);
        self.open.threads = self.open.threads.max(reading.threads);
        if now.minus(self.open.t) >= span_length(self.open.t) {
            let busy = self.clock().unwrap_or(reading.busy);
            self.close(now, busy);
        }
    }

    /// The exact processor time, if perf counts it.
    fn clock(&self) -> Option<Nanos> {
        let counters = self.counters.read();
        counters.iter().find(|counter| counter.kind == HostCount::TaskClock as u8).map(|c| Nanos(c.value))
    }

    fn close(&mut self, now: Nanos, busy: Nanos) {
        self.open.span = now.minus(self.open.t);
        self.open.busy = busy.minus(self.busy_before);
        self.busy_before = self.busy_before.max(busy);
        if self.open.span > Nanos::ZERO {
            self.ready.push(self.open);
        }
        self.open = HostSpan { t: now, ..HostSpan::default() };
    }

    /// The last span.
    pub(crate) fn finish(&mut self, now: Nanos) {
        let counters = self.counters();
        let clock = counters.iter().find(|counter| counter.kind == HostCount::TaskClock as u8);
        let busy = clock.map_or(Nanos::ZERO, |counter| Nanos(counter.value));
        if let (true, Some(usage)) = (self.open.processes == 0 && self.ready.is_empty(), self.usage) {
            // Over before the first poll: at least one process was there.
            self.open.resident = usage.resident;
            self.open.processes = 1;
            self.open.threads = 1;
        }
        self.close(now, busy);
    }

    /// Changes since the last call.
    pub(crate) fn news(&mut self) -> HostNews {
        HostNews {
            processors: self.processors,
            memory: self.memory,
            counters: self.counters(),
            resident_peak: self.usage.map(|usage| usage.resident),
            spans: std::mem::take(&mut self.ready),
        }
    }

    /// The counters, from the most complete source. Each way can only miss something, never see too much: perf
    /// what began before it did, the kernel's figures what no parent waited for, /proc what was short.
    fn counters(&self) -> Vec<HostCounter> {
        let mut counters = self.counters.read();
        let mut learn = |count: HostCount, value: u64, source: CountSource| {
            let counter = HostCounter { kind: count as u8, value, source, counted: Share::ONE };
            match counters.iter_mut().find(|known| known.kind == counter.kind) {
                Some(known) if known.value < value => *known = counter,
                Some(_) => {}
                None => counters.push(counter),
            }
        };
        let busy = self.tree.busy();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if let Some(usage) = self.usage {
            learn(HostCount::TaskClock, nanos(usage.busy), CountSource::Usage);
            learn(HostCount::ContextSwitches, usage.context_switches, CountSource::Usage);
            let faults = usage.minor_faults.saturating_add(usage.major_faults);
            learn(HostCount::PageFaults, faults, CountSource::Usage);
            learn(HostCount::MajorFaults, usage.major_faults, CountSource::Usage);
        }
        if busy > Nanos::ZERO {
            learn(HostCount::TaskClock, busy.0, CountSource::Procfs);
        }
        counters.sort_by_key(|counter| counter.kind);
        counters
    }
}

/// Time to wait after something that was expensive.
fn pause(price: Duration, now: Nanos) -> Nanos {
    Nanos::from(price.max(sample_gap(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_follow_each_other_and_grow_rare() {
        let mut watch = HostWatch::new(std::process::id());
        let day = Nanos::from_secs(86_400);
        let mut now = Nanos::ZERO;
        while now < day {
            watch.poll(now, std::iter::empty());
            // Polls of a test are as dear as those of a job, but its time is not real.
            watch.next_look = now;
            watch.next_search = day;
            now = Nanos(now.0 + (now.0 / 300).max(50_000_000));
        }
        watch.finish(now);
        let spans = watch.news().spans;
        assert!((500..3_000).contains(&spans.len()), "{}", spans.len());
        assert!(spans.windows(2).all(|pair| pair[0].t + pair[0].span == pair[1].t));
        assert!(spans[..spans.len() - 1].iter().all(|span| span.processes >= 1 && span.resident > Bytes(0)));
    }

    #[test]
    fn a_job_that_was_over_at_once_has_the_kernels_figures() {
        let mut watch = HostWatch::new(0);
        let usage = Usage {
            busy: Duration::from_millis(3),
            resident: Bytes::from_mib(2),
            context_switches: 5,
            minor_faults: 70,
            major_faults: 1,
        };
        watch.used(usage);
        watch.finish(Nanos::from_millis(4));
        let news = watch.news();
        let expected = HostSpan {
            t: Nanos::ZERO,
            span: Nanos::from_millis(4),
            busy: Nanos::from_millis(3),
            resident: Bytes::from_mib(2),
            processes: 1,
            threads: 1,
        };
        assert_eq!(news.spans, [expected]);
        let value = |count: HostCount| {
            let found = news.counters.iter().find(|counter| counter.kind == count as u8);
            found.map(|counter| (counter.value, counter.source))
        };
        assert_eq!(value(HostCount::PageFaults), Some((71, CountSource::Usage)));
        assert_eq!(value(HostCount::ContextSwitches), Some((5, CountSource::Usage)));
        assert_eq!(value(HostCount::Cycles), None);
        assert_eq!(news.resident_peak, Some(Bytes::from_mib(2)));
    }

    #[test]
    fn the_larger_count_is_kept() {
        let mut watch = HostWatch::new(0);
        watch.used(Usage { busy: Duration::from_secs(2), ..Usage::default() });
        let clock = watch.counters()[0];
        assert_eq!((clock.value, clock.source), (2_000_000_000, CountSource::Usage));
    }
}
