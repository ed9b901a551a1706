//! Call stacks of requests for memory, and what was held from each.

use super::{GpuIndex, KIND_COUNT, Kind, ProcessKey};
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The call stacks of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stacks {
    /// Key of the process.
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
    /// Frames further out are not recorded: native ones, or behind a function of an interpreter such functions.
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

impl Site {
    /// Returns true if its bytes are part of the device total: what pools handed out stands for what they reserved.
    pub fn is_in_total(&self) -> bool {
        Kind::from_raw(self.kind)
            .is_some_and(|kind| (kind.in_total() && kind != Kind::PoolReserved) || kind == Kind::PoolUsed)
    }

    /// A number that the site has in every record of its process: FNV-1a over GPU, kind and frames.
    pub fn id(&self) -> u64 {
        let words = self.frames.iter().flat_map(|frame| match *frame {
            StackFrame::Native { module, offset } => [1, u64::from(module), offset],
            StackFrame::Unmapped(address) => [2, 0, address],
            StackFrame::Code { code, line, is_entry } => {
                [3 + u64::from(is_entry), u64::from(code), u64::from(line)]
            }
            StackFrame::Cut => [5, 0, 0],
        });
        let words = [u64::from(self.gpu.0), u64::from(self.kind)].into_iter().chain(words);
        words.flat_map(u64::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

/// Memory that was held from each call site of a process on one GPU at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackMoment {
    /// Key of the process.
    pub key: ProcessKey,
    /// The GPU.
    pub gpu: GpuIndex,
    /// Time of the event.
    pub t: Nanos,
    /// True if the process had held less at all times before; else it is the moment at which it was read.
    pub is_peak: bool,
    /// Device total.
    pub total: Bytes,
    /// All kinds.
    pub kinds: [Bytes; KIND_COUNT],
    /// Sites, by [`Site::id`], that held something else at the moment recorded before of this GPU (before the first:
    /// nothing).
    pub changed: Vec<(u64, Bytes)>,
}

/// Refused requests of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackRefusals {
    /// Key of the process.
    pub key: ProcessKey,
    /// By time: of each call site the first, as long as there was room, and of each GPU the latest.
    pub refusals: Vec<StackRefusal>,
}

/// A refused request: where it was made, and what was held from each call site at that moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackRefusal {
    /// The GPU.
    pub gpu: GpuIndex,
    /// Time of the event.
    pub t: Nanos,
    /// Number of the kind of memory.
    pub kind: u8,
    /// Size asked for.
    pub size: Bytes,
    /// The site that asked, by [`Site::id`].
    pub site: u64,
    /// True for the latest one of the GPU that has a post-mortem, else it is the first one of its site.
    pub is_latest: bool,
    /// Device total.
    pub total: Bytes,
    /// All kinds.
    pub kinds: [Bytes; KIND_COUNT],
    /// Sites, by [`Site::id`], that held anything.
    pub held: Vec<(u64, Bytes)>,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Records that are written under this number are read under it for good.
    #[test]
    fn a_site_keeps_its_number() {
        let site = |frames| Site { gpu: GpuIndex(1), kind: 2, frames, ..Site::default() };
        let native = StackFrame::Native { module: 1, offset: 16 };
        let code = |is_entry| StackFrame::Code { code: 1, line: 16, is_entry };
        let all = [vec![], vec![native], vec![code(true)], vec![code(false)], vec![native, StackFrame::Cut]];
        let numbers: std::collections::BTreeSet<u64> =
            all.map(|frames| site(frames).id()).into_iter().collect();
        assert_eq!(numbers.len(), 5);
        let other = Site { held: Bytes(7), ..site(vec![native]) };
        assert_eq!(other.id(), site(vec![native]).id(), "what is held is not a part of it");
        assert_eq!(Site::default().id(), 0x8820_1fb9_60ff_6465);
    }
}
