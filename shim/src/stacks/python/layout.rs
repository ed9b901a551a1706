//! Offsets of the fields in CPython's structures.
//!
//! From 3.13 on the interpreter states them itself: `_PyRuntime` begins with a table of offsets (`_Py_DebugOffsets` in
//! `pycore_debug_offsets.h`), which is meant for readers like this one. Before that the offsets belong to a version;
//! they are from its headers. Layouts within one minor version do not change.

use crate::stacks::memory::Memory;

/// Cookie that [`Layout::of`] expects at the beginning of the runtime's table.
const COOKIE: [u8; 8] = *b"xdebugpy";
/// Offsets larger than this are damage.
const LIMIT: u64 = 1 << 20;

/// Identification of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ThreadId {
    /// By its number in the system, in this field.
    Native(u64),
    /// By its number in the C library, in this field.
    Library(u64),
}

/// Location of a frame's last instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Instruction {
    /// A number in this field, in so many bytes.
    Number(u64, u32),
    /// A pointer in this field; instructions begin at the other one of the code object.
    Pointer(u64, u64),
}

/// With which frame the native frame that runs it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// With each.
    Every,
    /// With those whose field is set.
    Marked(u64),
    /// With the one inside a frame whose field is [`NATIVE_OWNER`] or more.
    InsideNative(u64),
}

/// Owner of frames that stand for a native one, and of all with a higher number.
pub(super) const NATIVE_OWNER: u8 = 3;

/// Format in which a code object maps its instructions to lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lines {
    /// Steps of instructions and lines (`lnotab_notes.txt` of 3.9).
    Steps,
    /// Ranges of instructions and steps of lines (`lnotab_notes.txt` of 3.10).
    Ranges,
    /// Entries with positions (`locations.md`).
    Locations,
}

/// Offsets in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// In the runtime: its first interpreter.
    pub(super) interpreters: u64,
    /// In an interpreter: the next one, its first thread.
    pub(super) next_interpreter: u64,
    pub(super) threads: u64,
    /// In a thread: the next one, what it is known by, its innermost frame.
    pub(super) next_thread: u64,
    pub(super) id: ThreadId,
    pub(super) current_frame: u64,
    /// The innermost frame is one step further: in a structure of that field.
    pub(super) by_cframe: Option<u64>,
    /// In a frame.
    pub(super) previous: u64,
    pub(super) code: u64,
    pub(super) instruction: Instruction,
    pub(super) entry: Entry,
    /// In a code object.
    pub(super) filename: u64,
    pub(super) name: u64,
    pub(super) lines: (u64, Lines),
    pub(super) firstlineno: u64,
    /// Bytes of a string's header, for ASCII and for others.
    pub(super) text: (u64, u64),
}

impl Layout {
    const V3_9: Self = Self {
        interpreters: 32,
        next_interpreter: 0,
        threads: 8,
        next_thread: 8,
        id: ThreadId::Library(176),
        current_frame: 24,
        by_cframe: None,
        previous: 24,
        code: 32,
        instruction: Instruction::Number(104, 1),
        entry: Entry::Every,
        filename: 104,
        name: 112,
        lines: (120, Lines::Steps),
        firstlineno: 40,
        text: (48, 72),
    };
    const V3_10: Self =
        Self { instruction: Instruction::Number(96, 2), lines: (120, Lines::Ranges), ..Self::V3_9 };
    const V3_11: Self = Self {
        interpreters: 40,
        next_interpreter: 0,
        threads: 16,
        next_thread: 8,
        id: ThreadId::Native(160),
        current_frame: 56,
        by_cframe: Some(8),
        previous: 48,
        code: 32,
        instruction: Instruction::Pointer(56, 184),
        entry: Entry::Marked(68),
        filename: 112,
        name: 128,
        lines: (136, Lines::Locations),
        firstlineno: 72,
        text: (48, 72),
    };
    const V3_12: Self = Self {
        threads: 72,
        id: ThreadId::Native(144),
        by_cframe: Some(0),
        previous: 8,
        code: 0,
        instruction: Instruction::Pointer(56, 192),
        entry: Entry::InsideNative(70),
        firstlineno: 68,
        text: (40, 56),
        ..Self::V3_11
    };

    /// The layout of the interpreter whose runtime is at an address. `version` is that of `Py_Version`.
    pub(super) fn of(memory: &mut Memory, runtime: u64, version: u64) -> Option<Self> {
        match version >> 16 {
            0x0309 => Some(Self::V3_9),
            0x030a => Some(Self::V3_10),
            0x030b => Some(Self::V3_11),
            0x030c => Some(Self::V3_12),
            0x030d => Self::stated(memory, runtime, &Words::V3_13),
            0x030e => Self::stated(memory, runtime, &Words::V3_14),
            _ => None,
        }
    }

    /// Layout that the runtime's own table states.
    fn stated(memory: &mut Memory, runtime: u64, words: &Words) -> Option<Self> {
        // A build without the global lock has other headers of objects, and code of its own for each thread.
        let is_usual = memory.word(runtime)? == u64::from_le_bytes(COOKIE) && memory.word(runtime + 16)? == 0;
        let mut at = |word: u64| memory.word(runtime + word * 8).filter(|offset| *offset < LIMIT);
        is_usual.then_some(())?;
        let Words { thread, frame, code } = *words;
        Some(Self {
            interpreters: at(5)?,
            next_interpreter: at(8)?,
            threads: at(9)?,
            next_thread: at(thread + 2)?,
            id: ThreadId::Native(at(thread + 6)?),
            current_frame: at(thread + 4)?,
            by_cframe: None,
            previous: at(frame + 1)?,
            code: at(frame + 2)?,
            instruction: Instruction::Pointer(at(frame + 3)?, at(code + 9)?),
            entry: Entry::InsideNative(at(frame + 5)?),
            filename: at(code + 1)?,
            name: at(code + 3)?,
            lines: (at(code + 4)?, Lines::Locations),
            firstlineno: at(code + 5)?,
            text: (40, 56),
        })
    }
}

/// Starts of the parts of the runtime's table, in words; within a part all versions have the same order.
struct Words {
    thread: u64,
    frame: u64,
    code: u64,
}

impl Words {
    const V3_13: Self = Self { thread: 19, frame: 28, code: 34 };
    const V3_14: Self = Self { thread: 22, frame: 31, code: 39 };
}
