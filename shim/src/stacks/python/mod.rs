//! The functions that CPython runs on the calling thread, read from its own structures as other profilers read them from
//! outside: no function of it is called and its lock is not taken. A thread's frames are changed by that thread alone, so
//! while it is here they stand still.

mod code;
mod layout;

use super::memory::Memory;
use super::trace::{Found, Trace, mixed};
use crate::telemetry::Writer;

use layout::{Entry, Instruction, Layout, NATIVE_OWNER, ThreadId};

pub(super) use code::Interned;

/// Frames that are followed.
pub(super) const DEPTH: usize = 128;
/// Interpreters and threads that are searched for the calling one.
const INTERPRETERS: usize = 64;
const THREADS: usize = 4096;
/// Bits of a reference that are no part of the address (from 3.14 on).
const TAGS: u64 = 3;
/// Seeds of hashes: of walks to the end, and of those that are cut.
const SEED: u64 = 1;
const CUT_SEED: u64 = 2;
/// Known frames among which the one that a walk comes to is looked for.
const LOOK: usize = 16;

/// An interpreter's runtime in this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct Runtime {
    /// Address of `_PyRuntime`; 0: there is no interpreter.
    pub(super) at: u64,
    /// Its version, as `Py_Version` has it.
    pub(super) version: u64,
}

/// A frame as it is found: code object and instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(super) struct CodeFrame {
    pub(super) code: u64,
    /// Bytes from the code's beginning.
    pub(super) instruction: u32,
    pub(super) is_entry: bool,
}

/// A frame of the interpreter's list.
#[derive(Clone, Copy)]
struct Step {
    at: u64,
    found: CodeFrame,
    /// It stands for a native frame and runs no function.
    is_native: bool,
}

impl Found for Step {
    fn join(&mut self, outer: Option<&Self>) {
        self.found.is_entry |= outer.is_some_and(|outer| outer.is_native);
    }

    fn mix(&self, outer: u64) -> u64 {
        match self.is_native {
            true => outer,
            false => mixed(outer, self.found.code ^ u64::from(self.found.instruction) << 48),
        }
    }
}

/// Frames of native owners are none of ours, and not more than the others.
const STEPS: usize = 2 * DEPTH;

/// The interpreter's frames of a stack.
pub(super) struct Walk {
    trace: Trace<Step, STEPS>,
    is_cut: bool,
}

impl Walk {
    /// Forgets the last walk.
    pub(super) fn clear(&mut self) {
        self.trace.clear();
    }

    /// Compares the last walk with memory, before anything else of the stack is read.
    pub(super) fn compare(&mut self, memory: &Memory) {
        self.trace.compare(memory);
    }

    /// Finds the frames of `thread`, the calling one; none if it runs none, or the interpreter is of a version that is not read.
    pub(super) fn walk(&mut self, memory: &mut Memory, runtime: Runtime, thread: u32) {
        let found = find(memory, runtime, thread);
        memory.begin_log();
        self.is_cut = false;
        let is_met = found.and_then(|(layout, thread)| self.follow(memory, &layout, thread));
        if is_met.is_none() {
            self.trace.give_up();
            self.is_cut = false;
        }
        let is_whole = is_met.is_some() && (is_met == Some(true) || self.trace.fresh() < DEPTH);
        let seed = if self.is_cut { CUT_SEED } else { SEED };
        self.trace.finish(memory, is_met == Some(true), is_whole, seed);
        // Frames that are known from the last walk make it deeper than one walk can be.
        self.is_cut |= self.trace.frames().iter().filter(|step| !step.is_native).count() > DEPTH;
    }

    /// Returns true if there are frames further out.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Its frames, innermost first.
    pub(super) fn frames(&self) -> impl Iterator<Item = CodeFrame> {
        self.trace.frames().iter().rev().filter(|step| !step.is_native).map(|step| step.found).take(DEPTH)
    }

    /// Their hash.
    pub(super) fn hash(&self) -> u64 {
        self.trace.hash(0, SEED)
    }

    /// Follows the list to its end, or to a frame from which on the last walk holds (true).
    fn follow(&mut self, memory: &mut Memory, layout: &Layout, thread: u64) -> Option<bool> {
        let mut frame = memory.word(thread.checked_add(layout.current_frame)?)?;
        if let Some(field) = layout.by_cframe {
            frame = memory.word(frame.checked_add(field)?)?;
        }
        memory.begin_log();
        let mut count = 0;
        while frame != 0 {
            if self.trace.drop_to(LOOK, |known| known.at == frame) && self.trace.fits() {
                return Some(true);
            }
            // What is left may be what begins the thread.
            if count == DEPTH && !is_native(memory, layout, frame)? {
                self.is_cut = true;
                break;
            }
            let mut step = Step { at: frame, found: CodeFrame::default(), is_native: false };
            if !self.trace.push(memory, step) {
                self.is_cut = true;
                break;
            }
            step.is_native = is_native(memory, layout, frame)?;
            if !step.is_native {
                step.found = read(memory, layout, frame)?;
                count += 1;
            }
            *self.trace.latest()? = step;
            frame = memory.word(frame.checked_add(layout.previous)?)?;
        }
        Some(false)
    }
}

/// Returns true if a frame stands for native code.
fn is_native(memory: &mut Memory, layout: &Layout, frame: u64) -> Option<bool> {
    let Entry::InsideNative(field) = layout.entry else { return Some(false) };
    Some(memory.part(frame.checked_add(field)?, 1)? >= NATIVE_OWNER.into())
}

/// The calling thread in the interpreter's list.
fn find(memory: &mut Memory, runtime: Runtime, thread: u32) -> Option<(Layout, u64)> {
    let layout = Layout::of(memory, runtime.at, runtime.version)?;
    let (field, own) = match layout.id {
        ThreadId::Native(field) => (field, u64::from(thread)),
        // SAFETY: `pthread_self` cannot fail.
        ThreadId::Library(field) => (field, unsafe { libc::pthread_self() }),
    };
    let mut interpreter = memory.word(runtime.at.checked_add(layout.interpreters)?)?;
    for _ in 0..INTERPRETERS {
        if interpreter == 0 {
            return None;
        }
        let mut thread = memory.word(interpreter.checked_add(layout.threads)?)?;
        for _ in 0..THREADS {
            if thread == 0 {
                break;
            }
            if memory.word(thread.checked_add(field)?)? == own {
                return Some((layout, thread));
            }
            thread = memory.word(thread.checked_add(layout.next_thread)?)?;
        }
        interpreter = memory.word(interpreter.checked_add(layout.next_interpreter)?)?;
    }
    None
}

/// One frame.
fn read(memory: &mut Memory, layout: &Layout, frame: u64) -> Option<CodeFrame> {
    let code = memory.word(frame.checked_add(layout.code)?)? & !TAGS;
    // A frame that has not begun stands before its first instruction.
    let instruction = match layout.instruction {
        Instruction::Number(field, bytes) => {
            let number = (memory.part(frame.checked_add(field)?, 4)? as u32).cast_signed();
            u32::try_from(number).unwrap_or(0).saturating_mul(bytes)
        }
        Instruction::Pointer(field, begin) => {
            let at = memory.word(frame.checked_add(field)?)?;
            u32::try_from(at.wrapping_sub(code.checked_add(begin)?)).unwrap_or(0)
        }
    };
    let is_entry = match layout.entry {
        Entry::Every => true,
        Entry::Marked(field) => memory.part(frame.checked_add(field)?, 1)? != 0,
        Entry::InsideNative(_) => false,
    };
    Some(CodeFrame { code, instruction, is_entry })
}

/// Names a frame's function in the segment and finds its line.
pub(super) fn intern(
    memory: &mut Memory,
    writer: &Writer,
    runtime: Runtime,
    frame: CodeFrame,
) -> Option<Interned> {
    let layout = Layout::of(memory, runtime.at, runtime.version)?;
    code::intern(memory, writer, &layout, frame)
}
