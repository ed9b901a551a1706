//! The functions that CPython runs on the calling thread, read from its own structures as other profilers read them from
//! outside: no function of it is called and its lock is not taken. A thread's frames are changed by that thread alone, so
//! while it is here they stand still.

mod code;
mod layout;

use super::memory::Memory;
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

/// Fills in the calling thread's frames, innermost first; returns how many. 0: the thread runs none, or the interpreter is
/// of a version that is not read.
pub(super) fn walk(memory: &mut Memory, runtime: Runtime, frames: &mut [CodeFrame; DEPTH]) -> usize {
    find(memory, runtime).and_then(|(layout, thread)| follow(memory, &layout, thread, frames)).unwrap_or(0)
}

/// The calling thread in the interpreter's list.
fn find(memory: &mut Memory, runtime: Runtime) -> Option<(Layout, u64)> {
    let layout = Layout::of(memory, runtime.at, runtime.version)?;
    let (field, own) = match layout.id {
        // SAFETY: `gettid` cannot fail.
        ThreadId::Native(field) => (field, u64::from(unsafe { libc::gettid() }.cast_unsigned())),
        // SAFETY: `pthread_self` cannot fail.
        ThreadId::Library(field) => (field, unsafe { libc::pthread_self() }),
    };
    let mut interpreter = memory.u64(runtime.at.checked_add(layout.interpreters)?)?;
    for _ in 0..INTERPRETERS {
        if interpreter == 0 {
            return None;
        }
        let mut thread = memory.u64(interpreter.checked_add(layout.threads)?)?;
        for _ in 0..THREADS {
            if thread == 0 {
                break;
            }
            if memory.u64(thread.checked_add(field)?)? == own {
                return Some((layout, thread));
            }
            thread = memory.u64(thread.checked_add(layout.next_thread)?)?;
        }
        interpreter = memory.u64(interpreter.checked_add(layout.next_interpreter)?)?;
    }
    None
}

fn follow(
    memory: &mut Memory,
    layout: &Layout,
    thread: u64,
    frames: &mut [CodeFrame; DEPTH],
) -> Option<usize> {
    let mut frame = memory.u64(thread.checked_add(layout.current_frame)?)?;
    if let Some(field) = layout.by_cframe {
        frame = memory.u64(frame.checked_add(field)?)?;
    }
    let mut count = 0;
    // Frames of native owners are none of ours, and not more than the others.
    for _ in 0..2 * DEPTH {
        if frame == 0 || count == DEPTH {
            break;
        }
        if let Entry::InsideNative(field) = layout.entry
            && memory.u8(frame.checked_add(field)?)? >= NATIVE_OWNER
        {
            if let Some(inner) = count.checked_sub(1).and_then(|at| frames.get_mut(at)) {
                inner.is_entry = true;
            }
        } else {
            *frames.get_mut(count)? = read(memory, layout, frame)?;
            count += 1;
        }
        frame = memory.u64(frame.checked_add(layout.previous)?)?;
    }
    Some(count)
}

/// One frame.
fn read(memory: &mut Memory, layout: &Layout, frame: u64) -> Option<CodeFrame> {
    let code = memory.u64(frame.checked_add(layout.code)?)? & !TAGS;
    // A frame that has not begun stands before its first instruction.
    let instruction = match layout.instruction {
        Instruction::Number(field, bytes) => {
            let number = memory.i32(frame.checked_add(field)?)?;
            u32::try_from(number).unwrap_or(0).saturating_mul(bytes)
        }
        Instruction::Pointer(field, begin) => {
            let at = memory.u64(frame.checked_add(field)?)?;
            u32::try_from(at.wrapping_sub(code.checked_add(begin)?)).unwrap_or(0)
        }
    };
    let is_entry = match layout.entry {
        Entry::Every => true,
        Entry::Marked(field) => memory.u8(frame.checked_add(field)?)? != 0,
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
