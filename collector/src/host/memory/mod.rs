//! Traffic or stalls of the host's memory by jobs, from the best source that a node has.
//!
//! The kernel's resctrl counts the bytes of each job. Counters of the memory controllers count those of the whole node. Where neither
//! is there, a processor counts the cycles of a job in which it waits; these are no bytes, and never become any.

mod error;
mod event;
mod resctrl;
mod stalls;
mod uncore;
mod unit;

use std::io;
use std::path::Path;

use radrm_base::MemoryOrigin;

pub use self::error::MemoryError;
use self::event::{Counter, EventCode, Target};
use self::resctrl::Resctrl;
use self::stalls::Stalls;
use self::uncore::{Reader, Uncore};

/// Where the kernel lists the units that count.
const UNITS: &str = "/sys/bus/event_source/devices";

/// A count so far, by the source that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryCount {
    /// Bytes that a job's processes moved.
    Moved(u64),
    /// Bytes that all of the node moved.
    NodeMoved(u64),
    /// CPU cycles of a job's processes.
    Cycles {
        /// All of them.
        all: u64,
        /// Those in which the processor waited.
        stalled: u64,
    },
}

/// The source of a node's figures on memory.
#[derive(Debug)]
enum Source {
    Resctrl(Resctrl),
    Uncore(Uncore),
    Stalls(Stalls),
}

/// Counts of what the host's memory does for jobs, from the best source that there is.
#[derive(Debug)]
pub struct MemoryMeter {
    source: Option<Source>,
    /// Why there is no better one.
    lacking: Vec<MemoryError>,
}

impl MemoryMeter {
    /// Takes the best source: resctrl, if it is mounted at `resctrl`, counters of the memory controllers, or stalled cycles.
    #[must_use]
    pub fn open(resctrl: &Path) -> Self {
        Self::of(resctrl, Path::new(UNITS), &counter)
    }

    fn of(resctrl: &Path, units: &Path, open: uncore::Opener<'_>) -> Self {
        let mut lacking = Vec::new();
        let mut lacks = |error| lacking.push(error);
        let source = Resctrl::open(resctrl).map(Source::Resctrl).map_err(&mut lacks);
        let source = source.or_else(|()| Uncore::open(units, open).map(Source::Uncore).map_err(&mut lacks));
        let source = source.or_else(|()| Stalls::open(open).map(Source::Stalls).map_err(&mut lacks));
        Self { source: source.ok(), lacking }
    }

    /// The source; `None`: nothing is counted.
    #[must_use]
    pub fn origin(&self) -> Option<MemoryOrigin> {
        self.source.as_ref().map(|source| match source {
            Source::Resctrl(_) => MemoryOrigin::Resctrl,
            Source::Uncore(_) => MemoryOrigin::Uncore,
            Source::Stalls(_) => MemoryOrigin::StalledCycles,
        })
    }

    /// Why there is no better source, or none.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let sentences: Vec<String> = self.lacking.iter().map(ToString::to_string).collect();
        (!sentences.is_empty()).then(|| sentences.join("; "))
    }

    /// Counts a process and what it starts from now on as the job of this name.
    ///
    /// # Errors
    /// The source takes no more jobs.
    pub fn begin(&mut self, name: &str, pid: u32) -> Result<(), MemoryError> {
        match &mut self.source {
            Some(Source::Resctrl(resctrl)) => resctrl.begin(name, pid),
            Some(Source::Stalls(stalls)) => stalls.begin(name, pid, &counter),
            Some(Source::Uncore(_)) | None => Ok(()),
        }
    }

    /// The count of a job. `None`: the source does not say, or counts the node only.
    ///
    /// `members` are its processes. Those that resctrl does not have yet join it now, and `None` says that what they moved
    /// before is not in the sum. Once there is a sum all that they start is in the group, and `members` is better empty.
    #[must_use]
    pub fn job(&self, name: &str, members: &[u32]) -> Option<MemoryCount> {
        match self.source.as_ref()? {
            Source::Resctrl(resctrl) => resctrl.bytes(name, members).map(MemoryCount::Moved),
            Source::Uncore(_) => None,
            Source::Stalls(stalls) => {
                stalls.cycles(name).map(|(all, stalled)| MemoryCount::Cycles { all, stalled })
            }
        }
    }

    /// The count of the node, where the source counts no jobs.
    #[must_use]
    pub fn node(&self) -> Option<MemoryCount> {
        match self.source.as_ref()? {
            Source::Uncore(uncore) => uncore.bytes().map(MemoryCount::NodeMoved),
            Source::Resctrl(_) | Source::Stalls(_) => None,
        }
    }

    /// Ends the counts of a job. With resctrl its processes belong to the file system's root then.
    pub fn end(&mut self, name: &str) {
        match &mut self.source {
            Some(Source::Resctrl(resctrl)) => resctrl.end(name),
            Some(Source::Stalls(stalls)) => stalls.end(name),
            Some(Source::Uncore(_)) | None => {}
        }
    }
}

/// A counter of the kernel's.
fn counter(code: EventCode, target: Target) -> io::Result<Reader> {
    let counter = Counter::open(code, target)?;
    Ok(Box::new(move || counter.value()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A counter of each kind of target that is allowed, which has counted 100.
    fn allowing(processors: bool, processes: bool) -> impl Fn(EventCode, Target) -> io::Result<Reader> {
        move |_, target| {
            let allowed = if matches!(target, Target::Processor(_)) { processors } else { processes };
            match allowed {
                true => Ok(Box::new(|| Some(100_u64)) as Reader),
                false => Err(io::Error::from_raw_os_error(libc::EACCES)),
            }
        }
    }

    fn put(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn the_best_source_counts_and_those_before_it_say_why_not() {
        let root = tempfile::tempdir().unwrap();
        let (resctrl, units) = (root.path().join("resctrl"), root.path().join("devices"));
        let open =
            |processors, processes| MemoryMeter::of(&resctrl, &units, &allowing(processors, processes));
        let none = open(false, false);
        assert_eq!((none.origin(), none.job("a", &[]), none.node()), (None, None, None));
        let why = none.problem().unwrap();
        for word in ["resctrl is not mounted", "no memory controller", "kernel.perf_event_paranoid"] {
            assert!(why.contains(word), "{why}");
        }
        let stalls = open(true, true);
        assert_eq!(stalls.origin(), Some(MemoryOrigin::StalledCycles));
        assert!(stalls.problem().unwrap().contains("no memory controller"));
        put(
            &units.join("nvidia_scf_pmu_0"),
            &[
                ("type", "30"),
                ("cpumask", "0"),
                ("format/event", "config:0-7"),
                ("events/cmem_rd_data", "event=0xf0"),
                ("events/cmem_wr_total_bytes", "event=0xf3"),
            ],
        );
        assert_eq!(open(false, true).origin(), Some(MemoryOrigin::StalledCycles), "not allowed");
        let uncore = open(true, true);
        assert_eq!(uncore.origin(), Some(MemoryOrigin::Uncore));
        assert_eq!(uncore.node(), Some(MemoryCount::NodeMoved(3_300)));
        assert_eq!(uncore.job("a", &[]), None, "it counts no jobs");
        assert!(uncore.problem().unwrap().starts_with("resctrl is not mounted"));
        put(&resctrl, &[("info/L3_MON/mon_features", "mbm_total_bytes\n"), ("mon_groups/x/tasks", "")]);
        let best = open(true, true);
        assert_eq!((best.origin(), best.problem(), best.node()), (Some(MemoryOrigin::Resctrl), None, None));
    }
}
