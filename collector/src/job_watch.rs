//! Watch that a launcher holds while its job runs.

use crate::host::{HostCounters, Usage};
use crate::segment_source::SegmentSource;
use crate::watch::{Finished, Watch, WatchOptions};
use radrm_os::nvml::DriverOverhead;
use radrm_profile::model::{Exit, Job, UncountedProcess};
use radrm_telemetry::Segment;
use std::path::PathBuf;
use std::time::Duration;

/// A watch over the job of a segment. It has no thread that polls the
/// segment: call [`JobWatch::poll`] from time to time.
pub struct JobWatch {
    watch: Watch<SegmentSource>,
}

impl JobWatch {
    /// Starts to watch: begins the profile's file, NVML's thread (idle until a
    /// GPU is seen) and the digest's. Never fails; see
    /// [`JobWatch::take_warnings`].
    pub fn start(segment: Segment, job: Job, options: WatchOptions) -> JobWatch {
        let source =
            SegmentSource::new(segment, options.entry_name, options.ledgers.clone(), options.board.clone());
        JobWatch { watch: Watch::start(source, job, &options) }
    }

    /// Polls the job, and writes what is due. Returns how long the caller
    /// may sleep until the next poll; polling earlier or later does no harm,
    /// but between two polls a process's ring holds only its last events.
    pub fn poll(&mut self) -> Duration {
        self.watch.poll()
    }

    /// Takes the warnings: sentences about what could not be done, each reported once.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.watch.take_warnings()
    }

    /// Path that the profile is being written to.
    pub fn profile_path(&self) -> Option<PathBuf> {
        self.watch.profile_path()
    }

    /// Takes the memory that the driver itself took for processes of the job, measured since the last call.
    pub fn take_measured(&mut self) -> Vec<DriverOverhead> {
        self.watch.take_measured()
    }

    /// Takes counters of the program's processes, to be opened as soon as it has started.
    pub fn count_host(&mut self, counters: HostCounters) {
        self.watch.count_host(counters);
    }

    /// Takes what the kernel says of the program at its end.
    pub fn used(&mut self, usage: Usage) {
        self.watch.used(usage);
    }

    /// Records the exit of a process that the caller has waited for, other than
    /// the program itself (a launcher may adopt orphans).
    pub fn process_ended(&mut self, pid: u32, exit: Exit) {
        self.watch.process_ended(pid, exit);
    }

    /// Takes processes of the job that hold memory and are in no figure, in place of those of the last call.
    pub fn outside(&mut self, found: Vec<UncountedProcess>) {
        self.watch.outside(found);
    }

    /// Adds a sentence for the reader of the profile.
    pub fn note(&mut self, sentence: String) {
        self.watch.note(sentence);
    }

    /// Notes that the program has ended: processes that it left may be recorded further.
    pub fn program_ended(&mut self) {
        self.watch.program_ended();
    }

    /// Records how the program has ended, before processes that it left are recorded further.
    pub fn goes_on(&mut self, exit: Exit) {
        self.watch.goes_on(exit);
    }

    /// Ends all threads of the watch, and records how the program has ended: then this process may be forked. Takes at
    /// most about a second.
    pub fn pause(&mut self, exit: Exit) {
        self.watch.pause(exit);
    }

    /// Goes on after [`JobWatch::pause`], in this process or in a child.
    pub fn resume(&mut self) {
        self.watch.resume();
    }

    /// Leaves the profile's file to another process, which goes on with it.
    pub fn detach(&mut self) {
        self.watch.detach();
    }

    /// The program has ended: reads everything once more and completes the
    /// profile. Takes at most about a second, also if NVML hangs.
    pub fn finish(self, exit: Exit) -> Finished {
        self.watch.finish(exit)
    }
}

impl std::fmt::Debug for JobWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobWatch").field("profile", &self.profile_path()).finish_non_exhaustive()
    }
}
