//! The books, as plain data.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::checkpoint::{self, CheckpointState};
use crate::kind::Kind;
use crate::layout::{Book, LIVE, REAPING, Slot, generation_of, state_of};
use crate::liveness::is_alive;
use crate::machine::{Machine, identity};
use crate::mapping::load_bytes;

/// One kind in one book; bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KindBooks {
    /// Requested now, or at the process's end.
    pub requested_now: u64,
    /// Most that was requested at a time.
    pub requested_peak: u64,
    /// Held now, or at the process's end.
    pub held_now: u64,
    /// Most that was held at a time.
    pub held_peak: u64,
    /// Times that memory was taken.
    pub allocations: u64,
    /// Times that memory was given back.
    pub frees: u64,
}

/// One process's book on one GPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GpuBooks {
    /// Number of the GPU on the machine.
    pub gpu: usize,
    /// By kind, in the order of [`Kind::ALL`].
    pub kinds: Vec<KindBooks>,
    /// Sum of the requested bytes of the kinds 0 to 4 (what the program's calls took).
    pub total_requested_now: u64,
    /// Its peak.
    pub total_requested_peak: u64,
    /// Bytes that the process is charged for now, its contexts included; 0 after its end.
    pub held_now: u64,
    /// Their peak.
    pub held_peak: u64,
    /// Requests that could not be met.
    pub failed: u64,
    /// Bytes of the last of them.
    pub failed_bytes: u64,
    /// Kernels launched.
    pub launches: u64,
    /// Modelled time of kernels (ns).
    pub busy_ns: u64,
    /// Modelled time of copies (ns).
    pub copy_ns: u64,
    /// Contexts alive now, or at the process's end.
    pub contexts: u64,
}

impl GpuBooks {
    /// One kind's page.
    pub fn kind(&self, kind: Kind) -> KindBooks {
        self.kinds.get(kind as usize).copied().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self
            == Self { gpu: self.gpu, kinds: vec![KindBooks::default(); self.kinds.len()], ..Self::default() }
    }
}

/// The books of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessBooks {
    /// Process id.
    pub pid: u32,
    /// Start time (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
    /// User.
    pub uid: u32,
    /// Whether it lives.
    pub alive: bool,
    /// Whether it is locked or checkpointed; a checkpointed process holds nothing on any GPU.
    pub checkpoint: CheckpointState,
    /// Place in the order of joining: smaller came earlier.
    pub order: u64,
    /// Time of joining (CLOCK_MONOTONIC, ns).
    pub joined_ns: u64,
    /// Program.
    pub exe: String,
    /// Command line, arguments separated by NUL, cut to 1 KiB.
    pub command: String,
    /// Driver calls without semantics in the emulator.
    pub unsupported_calls: u64,
    /// The GPUs that it used.
    pub gpus: Vec<GpuBooks>,
}

impl ProcessBooks {
    /// The book on one GPU, if the process used it.
    pub fn gpu(&self, gpu: usize) -> Option<&GpuBooks> {
        self.gpus.iter().find(|g| g.gpu == gpu)
    }
}

impl Machine {
    /// The books of all processes, dead ones included, in the order of joining.
    pub fn books(&self) -> Vec<ProcessBooks> {
        let mut books: Vec<ProcessBooks> = (0..self.slots_used()).filter_map(|i| self.book_of(i)).collect();
        books.sort_by_key(|b| b.order);
        books
    }

    fn book_of(&self, index: usize) -> Option<ProcessBooks> {
        let slot = self.layout().slots.get(index)?;
        // Partner: the Release store at the end of `Process::join`.
        let word = slot.state.load(Acquire);
        if state_of(word) < LIVE {
            return None;
        }
        let book = self.read_slot(index, slot, word);
        // The slot went to another process meanwhile: what was read belongs to neither.
        (generation_of(slot.state.load(Acquire)) == generation_of(word)).then_some(book)
    }

    fn read_slot(&self, index: usize, slot: &Slot, word: u64) -> ProcessBooks {
        let id = identity(slot);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
        let alive = state_of(word) == LIVE && is_alive(&id);
        let gpus = (0..self.gpu_count())
            .map(|gpu| {
                let held = if alive || state_of(word) == REAPING {
                    self.layout().held[gpu][index].load(Relaxed)
                } else {
                    0
                };
                read_book(gpu, &slot.books[gpu], held)
            })
            .filter(|b| !b.is_empty())
            .collect();
        ProcessBooks {
            pid: id.pid,
            start_time: id.start_time,
            uid: slot.uid.load(Relaxed),
            alive,
            checkpoint: checkpoint::state(slot),
            order: slot.order.load(Relaxed),
            joined_ns: slot.joined_mono_ns.load(Relaxed),
            exe: text(load_bytes(&slot.exe, slot.exe_len.load(Relaxed))),
            command: text(load_bytes(&slot.command, slot.command_len.load(Relaxed))),
            unsupported_calls: slot.unsupported.load(Relaxed),
            gpus,
        }
    }
}

pub(crate) fn read_book(gpu: usize, book: &Book, held_now: u64) -> GpuBooks {
    GpuBooks {
        gpu,
        kinds: book
            .kinds
            .iter()
            .map(|page| KindBooks {
                requested_now: page.requested_now.load(Relaxed),
                requested_peak: page.requested_peak.load(Relaxed),
                held_now: page.held_now.load(Relaxed),
                held_peak: page.held_peak.load(Relaxed),
                allocations: page.allocations.load(Relaxed),
                frees: page.frees.load(Relaxed),
            })
            .collect(),
        total_requested_now: book.total_requested_now.load(Relaxed),
        total_requested_peak: book.total_requested_peak.load(Relaxed),
        held_now,
        held_peak: book.total_held_peak.load(Relaxed),
        failed: book.failed.load(Relaxed),
        failed_bytes: book.failed_bytes.load(Relaxed),
        launches: book.launches.load(Relaxed),
        busy_ns: book.busy_ns.load(Relaxed),
        copy_ns: book.copy_ns.load(Relaxed),
        contexts: book.contexts.load(Relaxed),
    }
}

/// The books as JSON: a list of processes, keys as the fields are named, kinds by name.
pub fn books_to_json(books: &[ProcessBooks]) -> String {
    let processes: Vec<String> = books.iter().map(process_json).collect();
    format!("[{}]\n", processes.join(",\n"))
}

fn process_json(book: &ProcessBooks) -> String {
    let gpus: Vec<String> = book.gpus.iter().map(gpu_json).collect();
    format!(
        "{{\"pid\":{},\"start_time\":{},\"uid\":{},\"alive\":{},\"order\":{},\"joined_ns\":{},\"exe\":{},\
         \"command\":{},\"unsupported_calls\":{},\"gpus\":[{}]}}",
        book.pid,
        book.start_time,
        book.uid,
        book.alive,
        book.order,
        book.joined_ns,
        json_text(&book.exe),
        json_text(&book.command),
        book.unsupported_calls,
        gpus.join(",")
    )
}

fn gpu_json(book: &GpuBooks) -> String {
    let kinds: Vec<String> = Kind::ALL
        .iter()
        .map(|kind| {
            let page = book.kind(*kind);
            format!(
                "\"{}\":{{\"requested_now\":{},\"requested_peak\":{},\"held_now\":{},\"held_peak\":{},\
                 \"allocations\":{},\"frees\":{}}}",
                kind.name(),
                page.requested_now,
                page.requested_peak,
                page.held_now,
                page.held_peak,
                page.allocations,
                page.frees
            )
        })
        .collect();
    format!(
        "{{\"gpu\":{},\"total_requested_now\":{},\"total_requested_peak\":{},\"held_now\":{},\"held_peak\":{},\
         \"failed\":{},\"failed_bytes\":{},\"launches\":{},\"busy_ns\":{},\"copy_ns\":{},\"contexts\":{},\
         \"kinds\":{{{}}}}}",
        book.gpu,
        book.total_requested_now,
        book.total_requested_peak,
        book.held_now,
        book.held_peak,
        book.failed,
        book.failed_bytes,
        book.launches,
        book.busy_ns,
        book.copy_ns,
        book.contexts,
        kinds.join(",")
    )
}

fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
