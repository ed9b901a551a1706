//! Effects of the engine outside its own data: processes, signals and files of attempts.
//!
//! The engine decides; an implementation of [`Effects`] carries out. [`super::processes`] has the real one, tests have
//! one that records.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use radrm_collector::{MemoryCount, MemoryMeter};
use radrm_limits::cgroup_v2::Group;
use radrm_os::ProcessIdentity;
use radrm_protocol::wire::HostLimits;
use radrm_scheduler_core::{HostNeed, Millis};
use radrm_telemetry::Segment;

use crate::attempt::Attempt;
use crate::dry_run::{self, NodeLoad};
use crate::error::DaemonError;
use crate::hooks::Call;
use crate::job_output::Disk;
use crate::limited_groups::{Groups, LimitedGroups};
use crate::mps;
use crate::status::{Report, Status};
use crate::supervisor::Order;
use crate::suspend;
use crate::time::Now;

/// Attempts on this node: their processes, signals and files.
pub(super) trait Attempts {
    /// Starts the supervisor of an attempt.
    ///
    /// # Errors
    /// The node's fault and not the job's.
    fn start(
        &mut self,
        attempt: Attempt,
        owner: Owner,
        order: &Order,
    ) -> Result<Option<ProcessIdentity>, DaemonError>;

    /// The path of `radrm-run`.
    fn launcher(&self) -> Result<String, DaemonError>;

    /// Reports when this supervisor is gone.
    fn watch(&mut self, attempt: Attempt, supervisor: ProcessIdentity);

    /// Forgets the supervisor of an attempt: it is gone.
    fn reap(&mut self, attempt: Attempt);

    /// Report of an attempt's status file; `None` if there is none.
    fn status(&mut self, attempt: Attempt) -> io::Result<Option<Report>>;

    /// Returns true if this process certainly lives.
    fn lives(&self, who: ProcessIdentity) -> bool;

    /// The segment that a launcher holds.
    fn segment(&self, launcher: ProcessIdentity) -> Option<Segment>;

    /// Asks an attempt to stop: each of its processes gets the signal once. Those outside of the program's process group
    /// get it as well if they have a handler for it, and SIGTERM in any case. Its programs can ask for the request from
    /// then on; signal 0 is nothing else.
    fn signal_job(
        &mut self,
        attempt: Attempt,
        supervisor: Option<ProcessIdentity>,
        program: Option<ProcessIdentity>,
        number: i32,
    );

    /// Kills everything below a supervisor but, at first, the launcher: that completes the profile.
    fn kill_below(&mut self, supervisor: ProcessIdentity, launcher: Option<ProcessIdentity>);

    /// Kills again what did not go, but this launcher. A supervisor that its job has stopped goes on; if `last`, one that
    /// hangs is killed too.
    fn kill_again(&mut self, supervisor: ProcessIdentity, launcher: Option<ProcessIdentity>, last: bool);

    /// Kills what an attempt left, if its supervisor did not report that it has ended; returns the processes. `None`: the
    /// search for them takes long, and [`Message::Swept`](crate::message::Message::Swept) brings them.
    fn sweep(&mut self, attempt: Attempt, uid: Option<u32>, status: &Status) -> Option<BTreeSet<u32>>;

    /// Removes the files of an attempt.
    fn clear(&mut self, attempt: Attempt);

    /// Removes those that no attempt needs any more: all but the files of these attempts, by their jobs, and of those whose
    /// supervisors live.
    fn clear_others(&mut self, kept: &BTreeMap<u64, u32>);
}

/// Processes that work for jobs beside their attempts. Each is started once, and reports its end.
pub(super) trait Helpers {
    /// Starts the helper that suspends a job or brings it back.
    ///
    /// # Errors
    /// Nothing was begun.
    fn start_helper(&mut self, attempt: Attempt, order: suspend::Order) -> Result<(), DaemonError>;

    /// Has the epilog of an attempt run, once, and reports its end.
    ///
    /// # Errors
    /// Nothing was begun.
    fn start_epilog(&mut self, attempt: Attempt, call: &Call) -> Result<(), DaemonError>;

    /// Starts the helper that dry-runs a job, and reports its answer.
    ///
    /// # Errors
    /// Nothing was begun.
    fn start_dry_run(&mut self, job: u64, order: &dry_run::Order) -> Result<(), DaemonError>;

    /// Has a dry run end, if it is under way; its answer comes all the same.
    fn end_dry_run(&mut self, job: u64);

    /// Ends what dry runs left that an earlier daemon began.
    fn sweep_dry_runs(&mut self, uid: &dyn Fn(u64) -> Option<u32>);

    /// Has the control daemon of MPS of a user held, for whole GPUs or a MIG instance; gives how jobs know that it is there.
    ///
    /// # Errors
    /// The node's fault.
    fn serve_mps(&mut self, client: mps::Client, order: &mps::Order) -> Result<mps::Ready, DaemonError>;

    /// Ends that for all others.
    fn keep_mps(&mut self, clients: &BTreeSet<mps::Client>);
}

/// The node: its clocks and load, what bounds jobs there, and the disk.
pub(super) trait Node {
    /// The time by both clocks.
    fn now(&self) -> Now {
        Now::read()
    }

    /// Time for which effects are carried out before clients are answered again.
    fn stint(&self) -> Duration {
        Duration::from_millis(10)
    }

    /// The wall clock. Anybody may set it: nothing ends by it.
    fn wall(&self) -> Millis {
        Millis(radrm_os::time::epoch_ms())
    }

    /// By how much the wall clock is ahead of the time that has passed, ms; `None`: nothing is to be removed by it yet.
    fn jump_ms(&self) -> Option<u64>;

    /// Load and free memory of the node.
    fn load(&self) -> NodeLoad;

    /// Has all processes of the node read, unless that is under way;
    /// [`Message::Processes`](crate::message::Message::Processes) brings them.
    fn read_processes(&mut self);

    /// Makes the control group of an attempt, where such are delegated and it has something to limit. `is_fenced`: the
    /// driver limits it.
    ///
    /// # Errors
    /// The node's fault and not the job's.
    fn limit_host(
        &mut self,
        attempt: Attempt,
        need: HostNeed,
        is_fenced: bool,
    ) -> Result<Option<Group>, DaemonError>;

    /// Host limits (`--cpus` and `--mem`) to which jobs are held here.
    fn host_limits(&self) -> HostLimits;

    /// Traffic or stalls of the host's memory by an attempt of these processes so far, if that is counted by job.
    fn memory_count(&self, attempt: Attempt, processes: &[u32]) -> Option<MemoryCount>;

    /// Meter of the host's memory, where what it counts is compared with what the host has.
    fn memory_meter(&self) -> Option<&MemoryMeter>;

    /// Returns true if attempts have control groups of their own.
    fn has_groups(&self) -> bool;

    /// The disk of the state directory; `None`: it cannot be asked.
    fn disk(&self) -> Option<Disk>;

    /// Has the folder of a job measured; [`Message::Measured`](crate::message::Message::Measured) tells what it takes on the
    /// disk.
    fn measure_disk(&self, job: u64, uid: u32);

    /// Has the groups with limits of these accounts looked up. Returns those that are found within `patience`; later,
    /// [`Message::Groups`](crate::message::Message::Groups) brings them.
    fn look_up_groups(
        &self,
        limited: &Arc<LimitedGroups>,
        accounts: Vec<(u32, String)>,
        patience: Duration,
    ) -> Vec<(u32, Groups)>;

    /// Removes the folders of these jobs, and reports which are gone; false if that cannot begin. `age_ms`: only those that did not
    /// change for so long by a clock that is so much ahead.
    fn clean(&mut self, jobs: Vec<u64>, age_ms: u64, jump_ms: u64) -> bool;
}

/// The world, as far as the engine changes it.
pub(super) trait Effects: Attempts + Helpers + Node {}

impl<T: Attempts + Helpers + Node> Effects for T {}

/// To whom a job's folder belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}
