//! The ledgers, as plain data.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::charge::Charge;
use crate::checkpoint::{self, CheckpointState};
use crate::layout::{LIVE, Ledger, REAPING, Slot, generation_of, state_of};
use crate::machine::{Machine, identity};
use crate::mapping::load_bytes;

/// One kind in one ledger; bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KindLedger {
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

/// One process's ledger on one GPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GpuLedger {
    /// Number of the GPU on the machine.
    pub gpu: usize,
    /// In the order of [`Charge::all`].
    pub kinds: Vec<KindLedger>,
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

impl GpuLedger {
    /// One kind's page.
    pub fn kind(&self, kind: impl Into<Charge>) -> KindLedger {
        self.kinds.get(kind.into().index()).copied().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self
            == Self { gpu: self.gpu, kinds: vec![KindLedger::default(); self.kinds.len()], ..Self::default() }
    }
}

/// The ledger of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessLedger {
    /// Process id.
    pub pid: u32,
    /// Start time (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
    /// User.
    pub uid: u32,
    /// True if the process lives.
    pub alive: bool,
    /// Checkpoint state; a checkpointed process holds nothing on any GPU.
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
    pub gpus: Vec<GpuLedger>,
}

impl ProcessLedger {
    /// The ledger on one GPU, if the process used it.
    pub fn gpu(&self, gpu: usize) -> Option<&GpuLedger> {
        self.gpus.iter().find(|g| g.gpu == gpu)
    }
}

impl Machine {
    /// The ledgers of all processes, dead ones included, in the order of joining.
    pub fn ledgers(&self) -> Vec<ProcessLedger> {
        let mut ledgers: Vec<ProcessLedger> =
            (0..self.slots_used()).filter_map(|i| self.ledger_of(i)).collect();
        ledgers.sort_by_key(|b| b.order);
        ledgers
    }

    fn ledger_of(&self, index: usize) -> Option<ProcessLedger> {
        let slot = self.layout().slots.get(index)?;
        // Partner: the Release store at the end of `Process::join`.
        let word = slot.state.load(Acquire);
        if state_of(word) < LIVE {
            return None;
        }
        let ledger = self.read_slot(index, slot, word);
        // The slot went to another process meanwhile: what was read belongs to neither.
        (generation_of(slot.state.load(Acquire)) == generation_of(word)).then_some(ledger)
    }

    fn read_slot(&self, index: usize, slot: &Slot, word: u64) -> ProcessLedger {
        let id = identity(slot);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
        let alive = state_of(word) == LIVE && self.lives(slot);
        let gpus = (0..self.gpu_count())
            .map(|gpu| {
                let held = if alive || state_of(word) == REAPING {
                    self.layout().held[gpu][index].load(Relaxed)
                } else {
                    0
                };
                read_ledger(gpu, &slot.ledgers[gpu], held)
            })
            .filter(|b| !b.is_empty())
            .collect();
        ProcessLedger {
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

pub(crate) fn read_ledger(gpu: usize, ledger: &Ledger, held_now: u64) -> GpuLedger {
    GpuLedger {
        gpu,
        kinds: ledger
            .kinds
            .iter()
            .map(|page| KindLedger {
                requested_now: page.requested_now.load(Relaxed),
                requested_peak: page.requested_peak.load(Relaxed),
                held_now: page.held_now.load(Relaxed),
                held_peak: page.held_peak.load(Relaxed),
                allocations: page.allocations.load(Relaxed),
                frees: page.frees.load(Relaxed),
            })
            .collect(),
        total_requested_now: ledger.total_requested_now.load(Relaxed),
        total_requested_peak: ledger.total_requested_peak.load(Relaxed),
        held_now,
        held_peak: ledger.total_held_peak.load(Relaxed),
        failed: ledger.failed.load(Relaxed),
        failed_bytes: ledger.failed_bytes.load(Relaxed),
        launches: ledger.launches.load(Relaxed),
        busy_ns: ledger.busy_ns.load(Relaxed),
        copy_ns: ledger.copy_ns.load(Relaxed),
        contexts: ledger.contexts.load(Relaxed),
    }
}

/// The ledgers as JSON: a list of processes, keys as the fields are named, kinds by name.
pub fn ledgers_to_json(ledgers: &[ProcessLedger]) -> String {
    let processes: Vec<String> = ledgers.iter().map(process_json).collect();
    format!("[{}]\n", processes.join(",\n"))
}

fn process_json(ledger: &ProcessLedger) -> String {
    let gpus: Vec<String> = ledger.gpus.iter().map(gpu_json).collect();
    format!(
        "{{\"pid\":{},\"start_time\":{},\"uid\":{},\"alive\":{},\"order\":{},\"joined_ns\":{},\"exe\":{},\
         \"command\":{},\"unsupported_calls\":{},\"gpus\":[{}]}}",
        ledger.pid,
        ledger.start_time,
        ledger.uid,
        ledger.alive,
        ledger.order,
        ledger.joined_ns,
        json_text(&ledger.exe),
        json_text(&ledger.command),
        ledger.unsupported_calls,
        gpus.join(",")
    )
}

fn gpu_json(ledger: &GpuLedger) -> String {
    let kinds: Vec<String> = Charge::all()
        .map(|kind| {
            let page = ledger.kind(kind);
            format!(
                "\"{}\":{{\"requested_now\":{},\"requested_peak\":{},\"held_now\":{},\"held_peak\":{},\
                 \"allocations\":{},\"frees\":{}}}",
                kind.key(),
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
        ledger.gpu,
        ledger.total_requested_now,
        ledger.total_requested_peak,
        ledger.held_now,
        ledger.held_peak,
        ledger.failed,
        ledger.failed_bytes,
        ledger.launches,
        ledger.busy_ns,
        ledger.copy_ns,
        ledger.contexts,
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
