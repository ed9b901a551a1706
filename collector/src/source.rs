//! Source of what the watch needs to know of a job. The segment is one such source; the tests have another.

use radrm_profile::model::postmortem::Scope;
use radrm_profile::model::{
    Block, BlockRun, Event, Gpu, GpuIndex, Postmortem, Process, ProcessKey, RangeEvent, Ranges,
    StackRefusals, Stacks, TimedLaunch,
};
use radrm_profile::{Bytes, Nanos};
use radrm_telemetry::NoticeSeen;

/// A job that is being watched.
pub(crate) trait Source {
    /// Time since the job's start.
    fn now(&self) -> Nanos;

    /// The job's start on CLOCK_MONOTONIC.
    fn origin_mono_ns(&self) -> u64;

    /// The GPUs that its processes have shown so far.
    fn gpus(&mut self) -> Vec<Gpu>;

    /// Its processes, living and dead, without details: cheap, but for what
    /// they hold, which is read only on demand.
    fn processes(&mut self, held: bool) -> Vec<Brief>;

    /// Everything about a process; `None` if its memory is not what it should
    /// be, or if it is gone. Not cheap.
    fn details(&mut self, key: ProcessKey) -> Option<Process>;

    /// Its events since the last call. `last`: nothing will follow, so nothing
    /// unfinished is waited for.
    fn events(&mut self, key: ProcessKey, last: bool) -> Vec<Event>;

    /// Its launches that were timed since the last call, some of them; likewise.
    fn launches(&mut self, _: ProcessKey, _last: bool) -> Vec<TimedLaunch> {
        Vec::new()
    }

    /// The call stacks of its requests for memory, and refused ones; `None` if none are recorded. Not cheap.
    fn stacks(&mut self, _: ProcessKey) -> Option<(Stacks, StackRefusals)> {
        None
    }

    /// Its ranges and marks since the last call, as far as there was room for them; likewise.
    fn range_events(&mut self, _: ProcessKey, _last: bool) -> Vec<RangeEvent> {
        Vec::new()
    }

    /// Figures of its ranges and marks; `None` if it has none. Not cheap.
    fn ranges(&mut self, _: ProcessKey) -> Option<Ranges> {
        None
    }

    /// Post-mortems of refused requests that it has written down. Cheap if there is none.
    fn postmortems(&mut self, _: ProcessKey) -> Vec<Postmortem> {
        Vec::new()
    }

    /// Its largest blocks on a GPU of those that were made up to a moment and
    /// are alive, at most so many; `is_host`: page-locked memory of the host, else
    /// all other. Not cheap.
    fn blocks_before(
        &mut self,
        _: ProcessKey,
        _gpu: GpuIndex,
        _moment: Nanos,
        _is_host: bool,
        _most: usize,
    ) -> Vec<Block> {
        Vec::new()
    }

    /// Its blocks on a GPU that have an address, by address. Not cheap.
    fn block_runs(&mut self, _: ProcessKey, _gpu: GpuIndex) -> Vec<BlockRun> {
        Vec::new()
    }

    /// The limits on memory that are in force, the lowest of each scope on each GPU.
    fn limits(&mut self) -> Vec<(GpuIndex, Scope, Option<Bytes>)> {
        Vec::new()
    }

    /// Its data is saved: its slot may be used again.
    fn release(&mut self, key: ProcessKey);

    /// Reports of processes without a slot, in their order, and the number of reports that there was no room
    /// for.
    fn notices(&mut self) -> (Vec<NoticeSeen>, u64) {
        (Vec::new(), 0)
    }
}

/// A process at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Brief {
    /// Its name within the job.
    pub(crate) key: ProcessKey,
    /// Process id; `None`: of another pid namespace, and not known here.
    pub(crate) pid: Option<u32>,
    /// False once it has ended.
    pub(crate) alive: bool,
    /// Device total now, by the GPU's index in the job.
    pub(crate) held: Vec<(u8, Bytes)>,
    /// Allocations and releases so far: a total that is the same as before may have been another in between.
    pub(crate) changes: u64,
}
