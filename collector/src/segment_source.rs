//! The segment as a source: snapshots become the profile's model.

use crate::launches::Streams;
use crate::postmortem::convert;
use crate::source::{Brief, Source};
use crate::{blocks, limits, ranges, stacks, timings};
use radrm_profile::model::postmortem::Scope;
use radrm_profile::model::{
    Account, Block, BlockRun, Bypass, End, Event, EventKind, FailedRequest, Framework, Gpu, GpuIndex,
    Identity, KIND_COUNT, Kernel, KindAccount, Postmortem, Process, ProcessKey, ProcessState, RangeEvent,
    Ranges, StackRefusals, Stacks, Throttling, TimedLaunch, Timeline, TimelinePoint,
};
use radrm_profile::{Bytes, Nanos};
use radrm_telemetry as seg;
use radrm_telemetry::ledger::LedgerView;
use radrm_telemetry::{
    Liveness, ProcessSnapshot, RangeReader, RingReader, SampleReader, Segment, SlotInfo, monotonic_ns,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Largest live blocks that a profile names.
const LARGEST_BLOCKS: usize = 16;

/// Gives the name of a shim's entry point by its number, if it is known.
pub type EntryName = fn(u16) -> Option<&'static str>;

/// A segment and what was read of it.
#[derive(Debug)]
pub(crate) struct SegmentSource {
    segment: Segment,
    origin_mono_ns: u64,
    entry_name: EntryName,
    /// The ledgers of limits on memory, with whom they apply to.
    ledgers: Vec<(seg::Scope, LedgerView)>,
    board: Option<Arc<seg::NoticeBoard>>,
    /// Slots in use at the last poll.
    slots: HashMap<ProcessKey, SlotInfo>,
    rings: HashMap<ProcessKey, RingReader>,
    launches: HashMap<ProcessKey, (SampleReader, Streams)>,
    ranges: HashMap<ProcessKey, RangeReader>,
    /// Context overheads of processes under a quota, by process and GPU; the ledger forgets those that are gone.
    overheads: HashMap<(ProcessKey, seg::GpuIndex), Bytes>,
    /// Saved: not read any more.
    released: HashSet<ProcessKey>,
    cuda_version: Option<u32>,
}

impl SegmentSource {
    pub(crate) fn new(
        segment: Segment,
        entry_name: EntryName,
        ledgers: Vec<(seg::Scope, LedgerView)>,
        board: Option<Arc<seg::NoticeBoard>>,
    ) -> SegmentSource {
        // A segment that cannot be read has no processes either; its times do
        // not matter then.
        let origin_mono_ns = segment.job().map_or_else(|_| monotonic_ns(), |job| job.created_mono_ns);
        SegmentSource {
            segment,
            origin_mono_ns,
            entry_name,
            ledgers,
            board,
            slots: HashMap::new(),
            rings: HashMap::new(),
            launches: HashMap::new(),
            ranges: HashMap::new(),
            overheads: HashMap::new(),
            released: HashSet::new(),
            cuda_version: None,
        }
    }

    fn snapshot(&mut self, key: ProcessKey) -> Option<ProcessSnapshot> {
        let snapshot = self.segment.process(self.slots.get(&key)?).ok()??;
        self.cuda_version = snapshot.driver_version.or(self.cuda_version);
        Some(snapshot)
    }

    fn learn_overheads(&mut self) {
        let overheads = self.segment.overheads().unwrap_or_default();
        if overheads.is_empty() {
            return;
        }
        let gpus = self.segment.gpus().unwrap_or_default();
        for overhead in overheads {
            let gpu = gpus.iter().find(|gpu| gpu.uuid == overhead.uuid);
            // Process ids are used again: the ledger speaks of the one that lives.
            let of = |slot: &&SlotInfo| slot.own_pid == overhead.pid && slot.liveness == Liveness::Running;
            if let (Some(gpu), Some(slot)) = (gpu, self.slots.values().find(of)) {
                self.overheads.insert((key(slot), gpu.index), Bytes(overhead.bytes));
            }
        }
    }

    fn timeline(&self, slot: &SlotInfo, gpu: seg::GpuIndex) -> Option<Timeline> {
        let points = self.segment.timeline(slot.slot, gpu).ok()?;
        (!points.is_empty())
            .then(|| Timeline { gpu: GpuIndex(gpu.number()), points: points.iter().map(point).collect() })
    }

    fn largest_blocks(&self, slot: &SlotInfo) -> Vec<Block> {
        let blocks = self.segment.largest_blocks(slot.slot, LARGEST_BLOCKS).unwrap_or_default();
        blocks.iter().map(|live| convert::block(&live.block)).collect()
    }

    fn failure(&self, failed: &seg::FailedRequest) -> FailedRequest {
        let known = |bytes: u64| (bytes != u64::MAX).then_some(Bytes(bytes));
        FailedRequest {
            t: Nanos(failed.ns),
            gpu: GpuIndex(failed.gpu.number()),
            kind: failed.kind as u8,
            call: (self.entry_name)(failed.entry).unwrap_or_else(|| family(failed.kind)).to_owned(),
            size: Bytes(failed.bytes),
            free: known(failed.free),
            total: known(failed.total),
            result: failed.result,
        }
    }
}

impl Source for SegmentSource {
    fn now(&self) -> Nanos {
        Nanos(monotonic_ns().saturating_sub(self.origin_mono_ns))
    }

    fn origin_mono_ns(&self) -> u64 {
        self.origin_mono_ns
    }

    fn gpus(&mut self) -> Vec<Gpu> {
        let gpus = self.segment.gpus().unwrap_or_default();
        gpus.into_iter()
            .map(|gpu| Gpu {
                index: GpuIndex(gpu.index.number()),
                uuid: uuid(&gpu.uuid),
                name: gpu.name,
                total: Bytes(gpu.total_bytes),
                pci_bus_id: gpu.pci,
                driver_version: None,
                cuda_version: self.cuda_version,
            })
            .collect()
    }

    fn processes(&mut self, held: bool) -> Vec<Brief> {
        let slots = self.segment.slots().unwrap_or_default();
        self.slots = slots.into_iter().map(|slot| (key(&slot), slot)).collect();
        // What is saved and given back stays visible until the slot is used
        // again; what is gone from the directory need not be remembered.
        self.released.retain(|key| self.slots.contains_key(key));
        self.rings.retain(|key, _| self.slots.contains_key(key));
        self.launches.retain(|key, _| self.slots.contains_key(key));
        self.ranges.retain(|key, _| self.slots.contains_key(key));
        self.overheads.retain(|(key, _), _| self.slots.contains_key(key));
        self.learn_overheads();
        let mut keys: Vec<ProcessKey> =
            self.slots.keys().filter(|key| !self.released.contains(key)).copied().collect();
        keys.sort();
        let mut briefs = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(slot) = self.slots.get(&key) else { continue };
            let (pid, alive) = (slot.pid, slot.liveness == Liveness::Running);
            let accounts = if held { self.snapshot(key).map(|snapshot| snapshot.accounts) } else { None };
            let held = accounts.unwrap_or_default();
            let kinds = held.iter().flat_map(|account| &account.kinds);
            let changes =
                kinds.fold(0u64, |sum, kind| sum.wrapping_add(kind.allocs).wrapping_add(kind.frees));
            let held = held.iter().map(|account| (account.gpu.number(), Bytes(account.total_now))).collect();
            briefs.push(Brief { key, pid, alive, held, changes });
        }
        briefs
    }

    fn details(&mut self, key: ProcessKey) -> Option<Process> {
        let slot = *self.slots.get(&key)?;
        let snapshot = self.snapshot(key)?;
        let failures = snapshot.first_failures.iter().chain(&snapshot.last_failures);
        Some(Process {
            key,
            identity: Identity {
                pid: slot.shown_pid(),
                ppid: snapshot.ppid,
                uid: snapshot.uid,
                exe: snapshot.exe.clone(),
                command: snapshot.cmdline.join(" "),
                joined: Nanos(snapshot.joined_ns),
            },
            state: ProcessState {
                accounts: snapshot
                    .accounts
                    .iter()
                    .map(|of| account(of, self.overheads.get(&(key, of.gpu)).copied()))
                    .collect(),
                frameworks: frameworks(snapshot.frameworks),
                failures: failures.map(|failed| self.failure(failed)).collect(),
                largest_blocks: self.largest_blocks(&slot),
                bypasses: snapshot.bypasses.iter().map(|&(reason, count)| bypass(reason, count)).collect(),
                remainders: Vec::new(),
                launches: snapshot.kernels.iter().map(|kernel| kernel.launches).fold(0, u64::saturating_add),
                graph_launches: snapshot.graph_launches,
                events_dropped: self.rings.get(&key).map_or(snapshot.events_dropped, RingReader::lost),
                end: end(slot.liveness),
                ended: snapshot.ended_ns.map(Nanos),
            },
            kernels_mode: snapshot.kernels_mode.map(timings::mode),
            kernels: snapshot.kernels.iter().map(kernel).collect(),
            timings: timings::timings(key, &snapshot),
            throttling: Throttling {
                key,
                launches: snapshot.throttled.held,
                waited: Nanos(snapshot.throttled.held_ns),
                share_permille: self.segment.budget().map_or(0, |budget| budget.share),
            },
            stacks: None,
            // Its own Python side leaves them; they are added at the end.
            tensors: None,
            stack_moments: Vec::new(),
            stack_refusals: Vec::new(),
            ranges: None,
            kernel_activity: timings::work(&snapshot),
            timelines: snapshot
                .accounts
                .iter()
                .filter_map(|account| self.timeline(&slot, account.gpu))
                .collect(),
            seen_alive: Nanos::ZERO,
        })
    }

    fn events(&mut self, key: ProcessKey, last: bool) -> Vec<Event> {
        let Some(slot) = self.slots.get(&key) else { return Vec::new() };
        let ring = self.rings.entry(key).or_insert_with(|| RingReader::new(slot));
        ring.poll(&self.segment, last).iter().map(|event| convert_event(key, event)).collect()
    }

    fn launches(&mut self, key: ProcessKey, last: bool) -> Vec<TimedLaunch> {
        let Some(slot) = self.slots.get(&key) else { return Vec::new() };
        let new = || (SampleReader::new(slot), Streams::default());
        let (ring, streams) = self.launches.entry(key).or_insert_with(new);
        ring.poll(&self.segment, last).iter().map(|sample| streams.launch(key, sample)).collect()
    }

    fn stacks(&mut self, key: ProcessKey) -> Option<(Stacks, StackRefusals)> {
        let slot = self.slots.get(&key)?;
        let found = self.segment.stacks(slot).ok().flatten()?;
        (!found.sites.is_empty()).then(|| stacks::stacks(key, &found))
    }

    fn range_events(&mut self, key: ProcessKey, last: bool) -> Vec<RangeEvent> {
        let Some(slot) = self.slots.get(&key) else { return Vec::new() };
        let ring = self.ranges.entry(key).or_insert_with(|| RangeReader::new(slot));
        ring.poll(&self.segment, last).iter().map(|record| ranges::event(key, record)).collect()
    }

    fn ranges(&mut self, key: ProcessKey) -> Option<Ranges> {
        let found = self.segment.ranges(self.slots.get(&key)?).ok().flatten()?;
        Some(ranges::ranges(key, &found, self.ranges.get(&key).map_or(0, RangeReader::lost)))
    }

    fn postmortems(&mut self, key: ProcessKey) -> Vec<Postmortem> {
        let Some(slot) = self.slots.get(&key) else { return Vec::new() };
        let found = self.segment.postmortems(slot).unwrap_or_default();
        found.iter().map(|it| convert::postmortem(key, it, self.failure(&it.request))).collect()
    }

    fn blocks_before(
        &mut self,
        key: ProcessKey,
        gpu: GpuIndex,
        moment: Nanos,
        is_host: bool,
        most: usize,
    ) -> Vec<Block> {
        let Some(slot) = self.slots.get(&key) else { return Vec::new() };
        blocks::largest_before(&self.segment, slot, (gpu, moment, is_host), most)
    }

    fn block_runs(&mut self, key: ProcessKey, gpu: GpuIndex) -> Vec<BlockRun> {
        let Some(slot) = self.slots.get(&key) else { return Vec::new() };
        blocks::runs(&self.segment, slot, gpu)
    }

    fn limits(&mut self) -> Vec<(GpuIndex, Scope, Option<Bytes>)> {
        if self.ledgers.is_empty() {
            return Vec::new();
        }
        let gpus = self.segment.gpus().unwrap_or_default();
        limits::lowest(&self.ledgers, &gpus)
    }

    fn release(&mut self, key: ProcessKey) {
        if let Some(slot) = self.slots.get(&key) {
            // A segment that cannot be written keeps its slots: when all are
            // taken, further processes say that they could not join.
            let _ = self.segment.harvest(slot);
        }
        self.released.insert(key);
        self.rings.remove(&key);
        self.launches.remove(&key);
        self.ranges.remove(&key);
    }

    fn notices(&mut self) -> (Vec<seg::NoticeSeen>, u64) {
        let (mut seen, mut lost) = self.segment.notices().unwrap_or_default();
        if let Some(board) = &self.board {
            let (further, further_lost) = board.notices();
            seen.extend(further);
            lost = lost.saturating_add(further_lost);
        }
        (seen, lost)
    }
}

fn key(slot: &SlotInfo) -> ProcessKey {
    ProcessKey { slot: slot.slot as u32, generation: slot.generation.into() }
}

fn end(liveness: Liveness) -> End {
    match liveness {
        Liveness::Running => End::Running,
        Liveness::Dead => End::Vanished,
        Liveness::Exited => End::Exited(None),
        Liveness::Execed => End::Exec,
    }
}

/// As the driver's tools print it.
fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// The call that most programs ask for a kind of memory with.
fn family(kind: seg::Kind) -> &'static str {
    match kind {
        seg::Kind::Device => "cuMemAlloc",
        seg::Kind::PoolReserved | seg::Kind::PoolUsed => "cuMemAllocAsync",
        seg::Kind::Vmm => "cuMemCreate",
        seg::Kind::Array => "cuArrayCreate",
        seg::Kind::Graph => "cuGraphLaunch",
        seg::Kind::Managed => "cuMemAllocManaged",
        seg::Kind::PinnedHost => "cuMemHostAlloc",
        seg::Kind::Imported => "cuIpcOpenMemHandle",
    }
}

fn account(account: &seg::Account, context_overhead: Option<Bytes>) -> Account {
    let mut kinds = [KindAccount::default(); KIND_COUNT];
    for ((to, from), at_peak) in kinds.iter_mut().zip(&account.kinds).zip(account.peak.kinds) {
        *to = KindAccount {
            now: Bytes(from.now),
            peak: Bytes(from.peak),
            at_peak: Bytes(at_peak),
            blocks: from.live_blocks(),
            allocations: from.allocs,
            frees: from.frees,
        };
    }
    Account {
        gpu: GpuIndex(account.gpu.number()),
        now: Bytes(account.total_now),
        peak: Bytes(account.peak.total),
        peak_at: Nanos(account.peak.ns),
        kinds_approximate: account.peak.approximate,
        kinds,
        failed: account.failed,
        granted_since_refusal: account.granted_since_refusal,
        contexts: u32::try_from(account.contexts).unwrap_or(u32::MAX),
        context_overhead,
    }
}

/// The segment's timeline has no imported memory: it belongs to others.
fn point(point: &seg::TimelinePoint) -> TimelinePoint {
    let kinds = |from: &[u64; seg::TIMELINE_KINDS]| {
        let mut to = [Bytes::ZERO; KIND_COUNT];
        for (to, from) in to.iter_mut().zip(from) {
            *to = Bytes(*from);
        }
        to
    };
    TimelinePoint {
        t: Nanos(point.t_ns),
        span: Nanos(point.width_ns),
        max_total: Bytes(point.max_total),
        at_max: kinds(&point.kinds_at_max),
        last: kinds(&point.last_kinds),
    }
}

fn kernel(kernel: &seg::KernelSnapshot) -> Kernel {
    Kernel {
        id: kernel.id.into(),
        name: kernel.name.clone(),
        name_cut: kernel.truncated,
        registers: kernel.attributes.registers,
        static_shared: Bytes(kernel.attributes.static_shared_bytes.into()),
        local: Bytes(kernel.attributes.local_bytes.into()),
        max_threads: kernel.attributes.max_threads,
        launches: kernel.launches,
        graph_launches: kernel.graph_launches,
        blocks: kernel.blocks.saturating_add(kernel.graph_blocks),
        threads: kernel.threads.saturating_add(kernel.graph_threads),
        dynamic_shared: Bytes(kernel.dynamic_shared_bytes),
    }
}

fn bypass(reason: seg::Bypass, count: u64) -> Bypass {
    use seg::Bypass as B;
    // Those after which a figure of memory or launches may be too low or too
    // high. The others only make something coarser, or are as it should be.
    let matters = matches!(
        reason,
        B::Panicked
            | B::HelperMissing
            | B::HelperFailed
            | B::NoContext
            | B::UnknownDevice
            | B::GpuTableFull
            | B::UnknownBlock
            | B::BlockReplaced
            | B::Underflow
            | B::TimelineFull
            | B::GraphUnknown
            | B::PoolUnknown
            | B::ArrayUnknown
            | B::ForeignHandle
            | B::ShimTableFull
            | B::Other
    );
    Bypass { reason: reason.name().to_owned(), count, matters }
}

fn frameworks(bits: u64) -> Vec<Framework> {
    use seg::framework::*;
    [
        (PYTORCH, "PyTorch"),
        (JAX, "JAX"),
        (TENSORFLOW, "TensorFlow"),
        (CUPY, "CuPy"),
        (NUMBA, "Numba"),
        (TRITON, "Triton"),
        (CUDA_PYTHON, "cuda-python"),
        (CUDART, "CUDA runtime"),
        (CUBLAS, "cuBLAS"),
        (CUDNN, "cuDNN"),
        (NCCL, "NCCL"),
    ]
    .into_iter()
    .filter(|(bit, _)| bits & bit != 0)
    .map(|(_, name)| Framework { name: name.into(), version: None })
    .collect()
}

fn convert_event(process: ProcessKey, event: &seg::Event) -> Event {
    use seg::EventKind as E;
    let kind = event.memory.map_or(u8::MAX, |kind| kind as u8);
    let (a, b) = (event.a, event.b);
    let what = match event.kind {
        E::Joined => EventKind::Joined,
        E::ContextCreated => EventKind::ContextCreated,
        E::ContextDestroyed => EventKind::ContextDestroyed,
        E::ModuleLoaded => EventKind::ModuleLoaded,
        E::GraphInstantiated => EventKind::GraphInstantiated { kernels: b },
        E::RequestFailed => EventKind::Refused { kind, size: Bytes(a) },
        E::LargeAlloc => EventKind::Allocated { kind, size: Bytes(b) },
        E::LargeFree => EventKind::Freed { kind, size: Bytes(b) },
        other => EventKind::Other { number: u32::from(other as u8), value: a },
    };
    Event { t: Nanos(event.ns), process, gpu: event.gpu.map(|gpu| GpuIndex(gpu.number())), kind: what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_looks_as_everywhere() {
        let bytes = std::array::from_fn(|i| i as u8 * 16);
        assert_eq!(uuid(&bytes), "GPU-00102030-4050-6070-8090-a0b0c0d0e0f0");
    }
}
