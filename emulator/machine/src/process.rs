//! A program's own slot.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::charge::Charge;
use crate::checkpoint;
use crate::error::MachineError;
use crate::layout::{
    CLAIMING, Curve, ENDED, FREE, LIVE, Ledger, MAX_PROCESSES, Slot, generation_of, state_of, tag,
};
use crate::liveness::{ProcessIdentity, pid_namespace};
use crate::lock::SlotLock;
use crate::machine::{Machine, identity, monotonic_ns};
use crate::mapping::store_bytes;

/// Number of attempts of a request that comes up short.
/// Other processes' requests that are about to be withdrawn may be in the sum.
const ATTEMPTS: u32 = 6;

/// A GPU's memory does not suffice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{wanted} bytes wanted, {free} free")]
pub struct NoMemory {
    /// Bytes that were asked for.
    pub wanted: u64,
    /// Bytes that were free.
    pub free: u64,
}

/// The calling process's place in a machine.
///
/// Dropping it ends the slot and gives everything back, as the process's death does. The ledger stays.
pub struct Process {
    machine: Machine,
    index: usize,
    word: u64,
    /// Says to other pid namespaces that this process lives.
    _lock: Option<SlotLock>,
}

impl Process {
    pub(crate) fn join(machine: Machine) -> Result<Self, MachineError> {
        let me = ProcessIdentity::current();
        // A program that this process ran before it called execve is over, and so is a process that
        // had this number before.
        for (index, slot) in machine.layout().slots.iter().enumerate().take(machine.slots_used()) {
            let word = slot.state.load(Acquire);
            let other = identity(slot);
            let same_image = (other.start_time, other.image) == (me.start_time, me.image);
            let is_here = slot.namespace.load(Relaxed) == pid_namespace();
            if state_of(word) == LIVE && other.pid == me.pid && is_here && !same_image {
                machine.end(index, word);
            }
        }
        let (index, generation) = claim(&machine)?;
        let slot = &machine.layout().slots[index];
        if let Err(e) = machine.mapping().reserve(slot) {
            slot.state.store(tag(generation, ENDED), Release);
            return Err(MachineError::io(machine.path(), e));
        }
        machine.retire(slot);
        clear_ledger(slot);
        checkpoint::reset(slot);
        slot.pid.store(me.pid, Relaxed);
        slot.start_time.store(me.start_time, Relaxed);
        slot.image.store(me.image, Relaxed);
        slot.stack.store(me.stack, Relaxed);
        slot.namespace.store(pid_namespace(), Relaxed);
        let lock = SlotLock::take(machine.path(), machine.mapping().offset_of(slot)).ok();
        slot.locked.store(lock.is_some().into(), Relaxed);
        // SAFETY: getuid cannot fail.
        slot.uid.store(unsafe { libc::getuid() }, Relaxed);
        slot.joined_mono_ns.store(monotonic_ns(), Relaxed);
        slot.order.store(machine.unique(), Relaxed);
        let exe = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        slot.exe_len.store(store_bytes(&slot.exe, exe.as_os_str().as_encoded_bytes()), Relaxed);
        let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        slot.command_len.store(store_bytes(&slot.command, &command), Relaxed);
        let word = tag(generation, LIVE);
        // Partner: the Acquire loads in `reap` and `ledgers`.
        slot.state.store(word, Release);
        machine.own.store(index, Relaxed);
        Ok(Self { machine, index, word, _lock: lock })
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Number of the slot, and its generation: together unique on the machine.
    pub fn id(&self) -> (usize, u64) {
        (self.index, generation_of(self.word))
    }

    pub(crate) fn slot_index(&self) -> usize {
        self.index
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.machine.layout().slots[self.index]
    }

    fn ledger(&self, gpu: usize) -> Option<&Ledger> {
        self.slot().ledgers.get(gpu)
    }

    /// Takes memory: `held` bytes of the GPU if [`Charge::is_held`], and both figures in the ledger.
    ///
    /// # Errors
    /// [`NoMemory`] if the GPU has less than `held` free; nothing changes then.
    pub fn charge(
        &self,
        gpu: usize,
        charge: impl Into<Charge>,
        requested: u64,
        held: u64,
    ) -> Result<(), NoMemory> {
        let charge = charge.into();
        if charge.is_held() && held > 0 {
            self.reserve(gpu, held)?;
        }
        if let Some(ledger) = self.ledger(gpu) {
            let page = &ledger.kinds[charge.index()];
            raise(&page.requested_now, &page.requested_peak, requested);
            raise(&page.held_now, &page.held_peak, held);
            page.allocations.fetch_add(1, Relaxed);
            if charge.in_total() {
                raise(&ledger.total_requested_now, &ledger.total_requested_peak, requested);
            }
        }
        Ok(())
    }

    /// Gives back what [`Self::charge`] took.
    pub fn discharge(&self, gpu: usize, charge: impl Into<Charge>, requested: u64, held: u64) {
        let charge = charge.into();
        if let Some(ledger) = self.ledger(gpu) {
            let page = &ledger.kinds[charge.index()];
            page.requested_now.fetch_sub(requested, Relaxed);
            page.held_now.fetch_sub(held, Relaxed);
            page.frees.fetch_add(1, Relaxed);
            if charge.in_total() {
                ledger.total_requested_now.fetch_sub(requested, Relaxed);
            }
        }
        if charge.is_held() && held > 0 && gpu < crate::MAX_GPUS {
            self.machine.layout().held[gpu][self.index].fetch_sub(held, SeqCst);
        }
    }

    /// Notes a request that could not be met.
    pub fn failed(&self, gpu: usize, bytes: u64) {
        if let Some(ledger) = self.ledger(gpu) {
            ledger.failed.fetch_add(1, Relaxed);
            ledger.failed_bytes.store(bytes, Relaxed);
        }
    }

    /// Notes that a context came (`true`) or went.
    pub fn context(&self, gpu: usize, came: bool) {
        if let Some(ledger) = self.ledger(gpu) {
            if came {
                ledger.contexts.fetch_add(1, Relaxed);
            } else {
                ledger.contexts.fetch_sub(1, Relaxed);
            }
        }
    }

    /// Counts a kernel launch and the time that it takes of the GPU (ns).
    pub fn launched(&self, gpu: usize, launches: u64, busy_ns: u64) {
        if let Some(ledger) = self.ledger(gpu) {
            ledger.launches.fetch_add(launches, Relaxed);
            ledger.busy_ns.fetch_add(busy_ns, Relaxed);
        }
    }

    /// Counts time of the copy engines (ns).
    pub fn copied(&self, gpu: usize, ns: u64) {
        if let Some(ledger) = self.ledger(gpu) {
            ledger.copy_ns.fetch_add(ns, Relaxed);
        }
    }

    /// Says that this process keeps the GPU busy until `until_ns` (CLOCK_MONOTONIC) with so many
    /// streams that ask for a share of the SMs in permille. Others see it in [`Machine::load`]; it
    /// ends by itself, also if the process is killed.
    pub fn set_busy(&self, gpu: usize, until_ns: u64, streams: u32, demand_permille: u32) {
        let layout = self.machine.layout();
        if gpu < crate::MAX_GPUS {
            layout.busy_demand[gpu][self.index]
                .store(u64::from(streams) << 32 | u64::from(demand_permille), Relaxed);
            layout.busy_until[gpu][self.index].store(until_ns, Relaxed);
        }
    }

    /// Work of this process on a GPU.
    pub(crate) fn curve(&self, gpu: usize) -> Option<&Curve> {
        self.ledger(gpu).map(|ledger| &ledger.curve)
    }

    /// Its plan is on the GPU's time.
    pub(crate) fn clocked(&self, gpu: usize) {
        if let Some(curve) = self.curve(gpu) {
            curve.clocked.store(1, Relaxed);
        }
    }

    /// Counts a call of the driver.
    pub fn called(&self) {
        self.slot().calls.fetch_add(1, Relaxed);
    }

    /// Counts a call that the emulator has no semantics for.
    pub fn unsupported(&self) {
        self.slot().unsupported.fetch_add(1, Relaxed);
    }

    /// Bytes that this process is charged for on a GPU.
    pub fn held(&self, gpu: usize) -> u64 {
        self.machine.layout().held.get(gpu).map_or(0, |words| words[self.index].load(Relaxed))
    }

    fn reserve(&self, gpu: usize, bytes: u64) -> Result<(), NoMemory> {
        let held = self.machine.reserve(self.index, gpu, bytes)?;
        if let Some(ledger) = self.ledger(gpu) {
            ledger.total_held_peak.fetch_max(held, Relaxed);
        }
        Ok(())
    }
}

impl Machine {
    /// Adds to what a slot holds of a GPU, if there is room; gives what it holds then.
    pub(crate) fn reserve(&self, slot: usize, gpu: usize, bytes: u64) -> Result<u64, NoMemory> {
        let total = self.memory_now(gpu).total;
        let refused = |free| Err(NoMemory { wanted: bytes, free });
        if bytes > total {
            return refused(self.memory(gpu).free);
        }
        let word = &self.layout().held[gpu][slot];
        let mut free = 0;
        for attempt in 0..ATTEMPTS {
            // Add first, then sum: partner is the same pair in every other process.
            word.fetch_add(bytes, SeqCst);
            let sum = self.held(gpu);
            let group = self.group_memory_of(slot, gpu);
            let group = group.filter(|group| group.used > group.hard);
            if sum <= total && group.is_none() {
                return Ok(word.load(Relaxed));
            }
            word.fetch_sub(bytes, SeqCst);
            free = total.saturating_sub(sum.saturating_sub(bytes));
            if let Some(group) = group {
                free = free.min(group.hard.saturating_sub(group.used.saturating_sub(bytes)));
            }
            if attempt == 0 {
                self.reap();
            } else {
                // Rivals that withdraw at the same time must not meet again at the same time.
                let spins = (slot as u64).wrapping_mul(0x9e37_79b9) >> (8 + attempt) & 0x3ff;
                (0..spins << attempt).for_each(|_| std::hint::spin_loop());
                std::thread::yield_now();
            }
        }
        refused(free)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A child made by fork must not end its parent's slot.
        if std::process::id() == self.slot().pid.load(Relaxed) {
            self.machine.end(self.index, self.word);
        }
    }
}

fn raise(now: &std::sync::atomic::AtomicU64, peak: &std::sync::atomic::AtomicU64, bytes: u64) {
    let level = now.fetch_add(bytes, Relaxed).wrapping_add(bytes);
    if level > peak.load(Relaxed) {
        peak.fetch_max(level, Relaxed);
    }
}

/// Finds a slot: a new one, else one left behind half claimed, else the one that ended first.
fn claim(machine: &Machine) -> Result<(usize, u64), MachineError> {
    let layout = machine.layout();
    for round in 0..2 {
        let used = layout
            .header
            .slots_used
            .fetch_update(SeqCst, SeqCst, |n| ((n as usize) < MAX_PROCESSES).then_some(n + 1));
        if let Ok(fresh) = used {
            let word = &layout.slots[fresh as usize].state;
            if word.compare_exchange(FREE, tag(1, CLAIMING), AcqRel, Relaxed).is_ok() {
                return Ok((fresh as usize, 1));
            }
        }
        if round == 0 {
            machine.reap();
        }
        let mut ended: Vec<(u64, usize, u64)> = layout
            .slots
            .iter()
            .enumerate()
            .map(|(i, slot)| (slot.order.load(Relaxed), i, slot.state.load(Acquire)))
            .filter(|(_, _, word)| state_of(*word) == ENDED)
            .collect();
        ended.sort_unstable();
        for (_, index, word) in ended {
            let generation = generation_of(word) + 1;
            let claimed =
                layout.slots[index].state.compare_exchange(word, tag(generation, CLAIMING), AcqRel, Relaxed);
            if claimed.is_ok() {
                return Ok((index, generation));
            }
        }
    }
    Err(MachineError::Full(MAX_PROCESSES))
}

fn clear_ledger(slot: &Slot) {
    slot.calls.store(0, Relaxed);
    slot.unsupported.store(0, Relaxed);
    for ledger in &slot.ledgers {
        for page in &ledger.kinds {
            let words = [
                &page.requested_now,
                &page.requested_peak,
                &page.held_now,
                &page.held_peak,
                &page.allocations,
                &page.frees,
            ];
            words.into_iter().for_each(|w| w.store(0, Relaxed));
        }
        let words = [
            &ledger.total_requested_now,
            &ledger.total_requested_peak,
            &ledger.total_held_peak,
            &ledger.failed,
            &ledger.failed_bytes,
            &ledger.launches,
            &ledger.busy_ns,
            &ledger.copy_ns,
            &ledger.contexts,
        ];
        words.into_iter().for_each(|w| w.store(0, Relaxed));
    }
}

impl Machine {
    /// Takes what a slot's processes had at work over to the GPUs.
    pub(crate) fn retire(&self, slot: &Slot) {
        for (ledger, timeline) in slot.ledgers.iter().zip(&self.layout().timelines) {
            let work = ledger.curve.take();
            timeline.gone_active.fetch_add(work.active, Relaxed);
            timeline.gone_resident.fetch_add(work.resident, Relaxed);
        }
    }
}
