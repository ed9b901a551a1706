//! Locking, checkpointing and restoring a process from another one.
//!
//! The driver does this with a thread of its own in the target. Here the caller does it: what a process
//! holds of a GPU is a word of the machine's file, and the target writes it only inside a call, which it
//! begins with [`Process::enter`]. A locked target is inside no call and begins none.
//!
//! ```text
//!            lock               checkpoint                restore             unlock
//! RUNNING ---------> LOCKED ---------------> CHECKPOINTED ---------> LOCKED ---------> RUNNING
//!                                                  \----- no room ----> FAILED, for good
//! ```
//!
//! Between two states the slot's word names the caller, so that the process that finds a caller dead finishes or
//! undoes what it began: a lock that was not reached is given up, memory that was being taken off the
//! GPU is off it, memory that was being brought back is not there.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use radrm_base::Kind;

use crate::layout::{LIVE, MAX_GPUS, Slot, state_of};
use crate::liveness::{is_alive, start_of};
use crate::machine::{Machine, identity, monotonic_ns};
use crate::process::Process;

/// Bytes per second at which memory goes to the host and comes back: what is published for drivers that
/// can do this.
const BYTES_PER_SECOND: u64 = 5_000_000_000;
/// Poll interval of a caller that waits.
const LOOK: Duration = Duration::from_millis(1);
/// After so many looks a blocked call asks whether the process that blocks it still lives.
const SUSPICIOUS: u32 = 64;

/// State that `cuCheckpointProcessGetState` reports, with its numbers.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointState {
    /// Nothing is locked.
    Running = 0,
    /// Calls block, work is done, memory is on the GPU.
    Locked = 1,
    /// Memory is in the host's memory.
    Checkpointed = 2,
    /// A restore did not work: nothing will ever work again.
    Failed = 3,
}

/// Reason that an operation was not done.
/// The state is unchanged, except after [`CheckpointError::NoMemory`] and [`CheckpointError::Imported`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CheckpointError {
    /// There is no such process.
    #[error("no such process")]
    NoProcess,
    /// The process has no driver.
    #[error("the process does not use the machine")]
    NoDriver,
    /// It belongs to another user.
    #[error("the process belongs to another user")]
    NotPermitted,
    /// It is not in the state that this operation begins with.
    #[error("the process is in another state")]
    WrongState,
    /// Its work was not done in time.
    #[error("its work was not done in time")]
    Timeout,
    /// It holds something that cannot be checkpointed.
    #[error("it holds memory that cannot be checkpointed")]
    Unsupported,
    /// A GPU has too little memory to restore it: it has failed for good.
    #[error("too little memory to restore it")]
    NoMemory,
    /// It imported shareable handles, which a restore cannot bring back: it has failed for good.
    #[error("imported memory cannot be restored")]
    Imported,
}

/// Something that a process did and that decides whether it can be checkpointed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Mark {
    /// It gave memory or events to other processes, or took theirs.
    Ipc = 1,
    /// It imported a shareable handle.
    Imported = 2,
    /// It is a client of MPS.
    Mps = 4,
}

const RUNNING: u64 = 0;
const LOCKED: u64 = 1;
const CHECKPOINTED: u64 = 2;
const FAILED: u64 = 3;
/// Waiting for calls and work to end.
const LOCKING: u64 = 4;
/// Forgetting what an earlier checkpoint saved.
const CLEARING: u64 = 5;
/// Taking memory off the GPUs.
const SAVING: u64 = 6;
/// Taking memory of the GPUs again.
const RESTORING: u64 = 7;

/// Phase in the top byte, then 24 bits of the caller's start time, then its pid.
const fn word(phase: u64, (pid, start): (u32, u64)) -> u64 {
    phase << 56 | (start & 0xff_ffff) << 32 | pid as u64
}

const fn phase_of(word: u64) -> u64 {
    word >> 56
}

fn me() -> (u32, u64) {
    let pid = std::process::id();
    (pid, start_of(pid).unwrap_or(0))
}

/// Returns true if the caller that a word names still runs.
fn caller_lives(word: u64) -> bool {
    start_of(word as u32).is_some_and(|start| start & 0xff_ffff == word >> 32 & 0xff_ffff)
}

/// Returns true if a process is about to write the words of a slot in this phase.
/// It does so whatever becomes of the slot's process.
pub(crate) fn is_being_written(slot: &Slot) -> bool {
    let word = slot.checkpoint.load(SeqCst);
    matches!(phase_of(word), SAVING | RESTORING) && caller_lives(word)
}

/// A slot's words for a new process.
pub(crate) fn reset(slot: &Slot) {
    for cell in [&slot.checkpoint, &slot.in_flight, &slot.pending, &slot.marks].into_iter().chain(&slot.saved)
    {
        cell.store(0, SeqCst);
    }
}

/// Checkpoint state of a slot's process. A checkpointed process holds nothing on any GPU.
pub(crate) fn state(slot: &Slot) -> CheckpointState {
    match phase_of(slot.checkpoint.load(SeqCst)) {
        LOCKED | CLEARING | SAVING => CheckpointState::Locked,
        CHECKPOINTED | RESTORING => CheckpointState::Checkpointed,
        FAILED => CheckpointState::Failed,
        _ => CheckpointState::Running,
    }
}

fn change(cell: &AtomicU64, from: u64, to: u64) -> bool {
    cell.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
}

/// Ends the call that [`Process::enter`] began.
#[derive(Debug)]
#[must_use]
pub struct Inside<'a>(&'a AtomicU64);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Process {
    /// Begins a call of the driver: waits while the process is locked.
    pub fn enter(&self) -> Inside<'_> {
        let slot = self.slot();
        let mut looks = 0_u32;
        loop {
            // Counted first, then looked: partner is the pair in `Machine::lock_process`.
            slot.in_flight.fetch_add(1, SeqCst);
            let inside = Inside(&slot.in_flight);
            if phase_of(slot.checkpoint.load(SeqCst)) == RUNNING {
                return inside;
            }
            drop(inside);
            looks += 1;
            if looks.is_multiple_of(SUSPICIOUS) {
                self.machine().settle(self.slot_index());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Says whether work is queued that a lock has to wait for.
    pub fn set_pending(&self, pending: bool) {
        self.slot().pending.store(u64::from(pending), SeqCst);
    }

    /// Notes for good what the process did.
    pub fn mark(&self, mark: Mark) {
        self.slot().marks.fetch_or(mark as u64, SeqCst);
    }
}

/// A target: its slot, and what the slot's state was when it was found.
struct Target<'a> {
    slot: &'a Slot,
    index: usize,
    seen: u64,
}

impl Target<'_> {
    fn is_there(&self) -> bool {
        self.slot.state.load(SeqCst) == self.seen
    }
}

impl Machine {
    fn target(&self, pid: u32) -> Result<Target<'_>, CheckpointError> {
        start_of(pid).ok_or(CheckpointError::NoProcess)?;
        self.reap();
        let slots = self.layout().slots.iter().enumerate().take(self.slots_used());
        let target = slots
            .map(|(index, slot)| Target { slot, index, seen: slot.state.load(SeqCst) })
            .find(|target| state_of(target.seen) == LIVE && target.slot.pid.load(Relaxed) == pid);
        let target = target.filter(|target| is_alive(&identity(target.slot)));
        let target = target.ok_or(CheckpointError::NoDriver)?;
        // SAFETY: plain system call that cannot fail.
        let uid = unsafe { libc::geteuid() };
        if uid != 0 && uid != target.slot.uid.load(Relaxed) {
            return Err(CheckpointError::NotPermitted);
        }
        self.settle(target.index);
        Ok(target)
    }

    /// Finishes or undoes what a caller that died began.
    fn settle(&self, index: usize) {
        let Some(slot) = self.layout().slots.get(index) else { return };
        let found = slot.checkpoint.load(SeqCst);
        let phase = phase_of(found);
        if !matches!(phase, LOCKING..=RESTORING) || caller_lives(found) {
            return;
        }
        // Only who puts its own name there goes on; the memory's words are written by one at a time.
        let mine = word(phase, me());
        if !change(&slot.checkpoint, found, mine) {
            return;
        }
        let then = match phase {
            LOCKING => RUNNING,
            CLEARING => LOCKED,
            SAVING => {
                self.save(index, slot);
                CHECKPOINTED
            }
            _ => {
                self.layout().held.iter().for_each(|words| words[index].store(0, SeqCst));
                CHECKPOINTED
            }
        };
        change(&slot.checkpoint, mine, word(then, (0, 0)));
    }

    /// Takes all words off the GPUs; doing it again, after dying in the middle, does no harm.
    fn save(&self, index: usize, slot: &Slot) {
        for (words, saved) in self.layout().held.iter().zip(&slot.saved) {
            let held = words[index].load(SeqCst);
            if held > 0 {
                saved.store(held, SeqCst);
                words[index].store(0, SeqCst);
            }
        }
    }

    /// The state of a process.
    ///
    /// # Errors
    /// [`CheckpointError::NoProcess`], [`CheckpointError::NoDriver`], [`CheckpointError::NotPermitted`].
    pub fn checkpoint_state(&self, pid: u32) -> Result<CheckpointState, CheckpointError> {
        Ok(state(self.target(pid)?.slot))
    }

    /// Blocks new calls of a process and waits until those under way and all work are done.
    ///
    /// # Errors
    /// Those of [`Self::checkpoint_state`], [`CheckpointError::WrongState`], and
    /// [`CheckpointError::Timeout`]; without a time it waits as long as it takes.
    pub fn lock_process(&self, pid: u32, timeout: Option<Duration>) -> Result<(), CheckpointError> {
        let target = self.target(pid)?;
        let (cell, mine) = (&target.slot.checkpoint, word(LOCKING, me()));
        if !change(cell, word(RUNNING, (0, 0)), mine) {
            return Err(CheckpointError::WrongState);
        }
        let begun = Instant::now();
        loop {
            // Locked first, then looked: partner is the pair in `Process::enter`.
            if target.slot.in_flight.load(SeqCst) == 0 && self.is_idle(&target) {
                // A process that died meanwhile may have left its slot to another.
                let done = change(cell, mine, word(LOCKED, (0, 0)));
                return if done && target.is_there() { Ok(()) } else { Err(CheckpointError::NoProcess) };
            }
            let late = timeout.is_some_and(|most| begun.elapsed() >= most);
            if late || !target.is_there() || !is_alive(&identity(target.slot)) {
                change(cell, mine, word(RUNNING, (0, 0)));
                return Err(if late { CheckpointError::Timeout } else { CheckpointError::NoProcess });
            }
            std::thread::sleep(LOOK);
        }
    }

    fn is_idle(&self, target: &Target<'_>) -> bool {
        let now = monotonic_ns();
        target.slot.pending.load(SeqCst) == 0
            && self.layout().busy_until.iter().all(|words| words[target.index].load(SeqCst) <= now)
    }

    /// Lets a locked process go on.
    ///
    /// # Errors
    /// Those of [`Self::checkpoint_state`], and [`CheckpointError::WrongState`].
    pub fn unlock_process(&self, pid: u32) -> Result<(), CheckpointError> {
        let target = self.target(pid)?;
        let unlocked = change(&target.slot.checkpoint, word(LOCKED, (0, 0)), word(RUNNING, (0, 0)));
        if unlocked { Ok(()) } else { Err(CheckpointError::WrongState) }
    }

    /// Takes a locked process's memory off the GPUs.
    ///
    /// # Errors
    /// Those of [`Self::checkpoint_state`], [`CheckpointError::WrongState`],
    /// [`CheckpointError::Unsupported`].
    pub fn checkpoint_process(&self, pid: u32) -> Result<(), CheckpointError> {
        let target = self.target(pid)?;
        let slot = target.slot;
        let cell = &slot.checkpoint;
        if phase_of(cell.load(SeqCst)) != LOCKED {
            return Err(CheckpointError::WrongState);
        }
        let managed = slot
            .ledgers
            .iter()
            .any(|ledger| ledger.kinds[Kind::Managed.index()].requested_now.load(SeqCst) > 0);
        if managed || slot.marks.load(SeqCst) & (Mark::Ipc as u64 | Mark::Mps as u64) != 0 {
            return Err(CheckpointError::Unsupported);
        }
        let me = me();
        let (clearing, saving) = (word(CLEARING, me), word(SAVING, me));
        if !change(cell, word(LOCKED, (0, 0)), clearing) {
            return Err(CheckpointError::WrongState);
        }
        slot.saved.iter().for_each(|saved| saved.store(0, SeqCst));
        if !change(cell, clearing, saving) {
            return Err(CheckpointError::NoProcess);
        }
        // Looked at after the phase was set: partner is the look at the phase in `Machine::clear`.
        if !target.is_there() {
            change(cell, saving, word(LOCKED, (0, 0)));
            return Err(CheckpointError::NoProcess);
        }
        let bytes: u64 = self.layout().held.iter().map(|words| words[target.index].load(SeqCst)).sum();
        self.copy(bytes);
        self.save(target.index, slot);
        change(cell, saving, word(CHECKPOINTED, (0, 0)));
        self.after(&target)
    }

    /// Brings a checkpointed process's memory back; it stays locked.
    ///
    /// # Errors
    /// Those of [`Self::checkpoint_state`], [`CheckpointError::WrongState`],
    /// [`CheckpointError::NoMemory`], [`CheckpointError::Imported`].
    pub fn restore_process(&self, pid: u32) -> Result<(), CheckpointError> {
        let target = self.target(pid)?;
        let cell = &target.slot.checkpoint;
        let restoring = word(RESTORING, me());
        if !change(cell, word(CHECKPOINTED, (0, 0)), restoring) {
            return Err(CheckpointError::WrongState);
        }
        if !target.is_there() {
            change(cell, restoring, word(CHECKPOINTED, (0, 0)));
            return Err(CheckpointError::NoProcess);
        }
        if target.slot.marks.load(SeqCst) & Mark::Imported as u64 != 0 {
            change(cell, restoring, word(FAILED, (0, 0)));
            return Err(CheckpointError::Imported);
        }
        let mut bytes = 0;
        for gpu in 0..MAX_GPUS {
            let saved = target.slot.saved[gpu].load(SeqCst);
            if saved > 0 && self.reserve(target.index, gpu, saved).is_err() {
                let words = &self.layout().held;
                (0..gpu).for_each(|gpu| words[gpu][target.index].store(0, SeqCst));
                change(cell, restoring, word(FAILED, (0, 0)));
                return Err(CheckpointError::NoMemory);
            }
            bytes += saved;
        }
        self.copy(bytes);
        change(cell, restoring, word(LOCKED, (0, 0)));
        self.after(&target)
    }

    /// The time that a copy takes.
    fn copy(&self, bytes: u64) {
        std::thread::sleep(Duration::from_nanos(
            u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(BYTES_PER_SECOND)).unwrap_or(0),
        ));
    }

    /// A slot whose process died while its words were written was left for this caller to clear.
    fn after(&self, target: &Target<'_>) -> Result<(), CheckpointError> {
        if target.is_there() && is_alive(&identity(target.slot)) {
            return Ok(());
        }
        self.reap();
        Err(CheckpointError::NoProcess)
    }
}
