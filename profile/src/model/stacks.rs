//! Call stacks of requests for memory, and what was held from each.

use super::{GpuIndex, ProcessKey};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The call stacks of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stacks {
    /// Which process.
    pub key: ProcessKey,
    /// Executables and libraries, by number; those in which no frame lies are empty.
    pub modules: Vec<StackModule>,
    /// Functions of interpreters, by number; likewise.
    pub codes: Vec<StackCode>,
    /// Call sites.
    pub sites: Vec<Site>,
    /// Stacks that found no place in the recorder's tables: what was held from them is at sites without frames.
    pub full: u64,
    /// Stacks that could not be read; likewise.
    pub unread: u64,
    /// Changes that threads made out of turn: figures at the peak may be off by these.
    pub unordered: u64,
    /// Names of native frames, by module and address, the innermost of what was inlined there first. Not in the file: found
    /// when a report is made, from the files of the modules.
    #[serde(skip)]
    pub symbols: BTreeMap<(u32, u64), Vec<Symbol>>,
}

/// An executable or library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackModule {
    /// Path, as it was mapped.
    pub path: String,
    /// Build id; empty if it has none.
    pub build_id: Vec<u8>,
}

/// A function of an interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackCode {
    /// File.
    pub file: String,
    /// Name.
    pub name: String,
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StackFrame {
    /// Native code.
    Native {
        /// Number of the module.
        module: u32,
        /// Address as the module's file has it.
        offset: u64,
    },
    /// Native code in no file: made at run time.
    Unmapped(u64),
    /// A function of an interpreter.
    Code {
        /// Number of the function.
        code: u32,
        /// Line in its file; 0: not known.
        line: u32,
        /// The native frame that interprets it begins with it.
        is_entry: bool,
    },
    /// Frames further out are not recorded.
    Cut,
}

/// A stack, a GPU and a kind of memory, and what was held from there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// GPU.
    pub gpu: GpuIndex,
    /// Number of the kind of memory.
    pub kind: u8,
    /// Innermost frame first; empty: stacks without a place of their own.
    pub frames: Vec<StackFrame>,
    /// Held when it was last read, at the process's end if it has ended.
    pub held: Bytes,
    /// Held at the peak of the GPU's device total in this process.
    pub at_peak: Bytes,
    /// Allocations.
    pub allocations: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// The largest of those.
    pub refused_size: Bytes,
}

/// Name of a native frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// Function, in the program's source language.
    pub function: String,
    /// File, if debug information has it.
    pub file: Option<String>,
    /// Line there.
    pub line: Option<u32>,
}
