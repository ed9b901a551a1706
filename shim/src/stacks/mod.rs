//! The call stacks of requests for memory.
//!
//! Runs inside the program, on top of any of its frames, so: nothing is allocated from the program's heap, no lock of
//! the program or of the loader is taken, and every address is read through the kernel ([`memory`]), so that a wrong table
//! or a damaged stack ends a stack early and does nothing else. What is found goes to the segment
//! (`telemetry::stacks`) as numbers of modules and addresses; names are found when a report is made.

mod elf;
mod expression;
mod maps;
mod memory;
mod modules;
mod native;
mod python;
mod registers;
mod rule;
mod scratch;
pub(crate) mod size;
mod tables;

use core::sync::atomic::{AtomicI32, Ordering};

use crate::cx::Cx;
use crate::telemetry::{Frame, GpuIndex, Kind, SiteId, Writer};
use crate::wiped::{Wiped, Zeroable};

use memory::Memory;
use modules::{Modules, NO_NUMBER, Table};
use native::{End, Rules};
use registers::Registers;
use scratch::Scratch;

/// What is known of the process's code.
struct Code {
    modules: Modules,
    rules: Rules,
    /// The process; 0: not known yet, as in a forked child.
    pid: AtomicI32,
}

impl Code {
    fn pid(&self) -> libc::pid_t {
        match self.pid.load(Ordering::Relaxed) {
            0 => {
                // SAFETY: `getpid` cannot fail.
                let pid = unsafe { libc::getpid() };
                self.pid.store(pid, Ordering::Relaxed);
                pid
            }
            pid => pid,
        }
    }
}

// SAFETY: zeros are "nothing known"; atomics have no destructor.
unsafe impl Zeroable for Code {}

/// Number of a function without a name.
const NO_CODE: u32 = 0xff_ffff;

static CODE: Wiped<Code> = Wiped::new();

/// The site of the call under way, for a block of `bytes`, where call stacks are recorded.
pub(crate) fn site(cx: &Cx<'_>, gpu: GpuIndex, kind: Kind, bytes: u64) -> SiteId {
    if bytes < size::smallest() { SiteId::other(gpu, kind) } else { recorded(cx, gpu, kind) }
}

/// Counts a refused request at its site.
pub(crate) fn refused(cx: &Cx<'_>, gpu: GpuIndex, kind: Kind, bytes: u64) {
    if cx.writer().records_stacks() {
        cx.writer().refused_site(recorded(cx, gpu, kind), bytes);
    }
}

#[cold]
#[inline(never)]
fn recorded(cx: &Cx<'_>, gpu: GpuIndex, kind: Kind) -> SiteId {
    let registers = Registers::here();
    let writer = cx.writer();
    let site = crate::errno::keep(|| {
        let code = CODE.get()?;
        scratch::with(|scratch| capture(writer, code, scratch, registers, gpu, kind)).flatten()
    });
    site.unwrap_or_else(|| {
        writer.stack_unread();
        SiteId::other(gpu, kind)
    })
}

/// Walks the stack and enters it. `None`: it cannot be read.
fn capture(
    writer: &Writer,
    code: &Code,
    scratch: &mut Scratch,
    registers: Registers,
    gpu: GpuIndex,
    kind: Kind,
) -> Option<SiteId> {
    scratch.memory.begin(code.pid());
    let mut table = code.modules.table(writer, &mut scratch.memory, false)?;
    let mut walked = walk(scratch, table, code, registers);
    // Code in no module may lie in one that was loaded since.
    if walked.2 {
        let newer = code.modules.table(writer, &mut scratch.memory, true)?;
        if newer.version != table.version {
            table = newer;
            walked = walk(scratch, table, code, registers);
        }
    }
    let (count, end, _) = walked;
    let own = table.find((recorded as *const ()).addr() as u64).map_or(NO_NUMBER, |module| module.number);
    let interpreted = match table.runtime.at {
        0 => 0,
        _ => python::walk(&mut scratch.memory, table.runtime, &mut scratch.code),
    };
    let Scratch { memory, native, code, frames } = scratch;
    let interpreted = code.get(..interpreted)?;
    let walked = native.get(..count)?;
    // What the shim itself adds is no frame of the program.
    let skipped = walked.iter().take_while(|word| native::module(**word) == own).count();
    let walked = walked.get(skipped..).filter(|walked| !walked.is_empty())?;
    let hash = walked
        .iter()
        .fold(end as u64 + 1, |hash, word| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
    let hash = interpreted.iter().fold(hash, |hash, frame| {
        (hash ^ frame.code ^ u64::from(frame.instruction) << 48)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    });
    let site = writer.site(gpu, kind, hash.max(1), move || {
        let frames = frames;
        let mut len = 0;
        for (word, place) in walked.iter().zip(frames.iter_mut()) {
            *place = frame(*word, table).pack();
            len += 1;
        }
        if end == End::Cut
            && let Some(place) = frames.get_mut(len)
        {
            *place = Frame::Cut.pack();
            len += 1;
        }
        for (found, place) in interpreted.iter().zip(frames.iter_mut().skip(len)) {
            *place = named(memory, writer, table, *found).pack();
            len += 1;
        }
        frames.get(..len).unwrap_or(&[])
    });
    Some(site)
}

fn walk(scratch: &mut Scratch, table: &Table, code: &Code, registers: Registers) -> (usize, End, bool) {
    let mut is_strange = false;
    let Scratch { memory, native, .. } = scratch;
    let (count, end) = native::walk(memory, table, &code.rules, registers, native, &mut is_strange);
    (count, end, is_strange)
}

/// An interpreted frame as the segment keeps it; without a name where it has none or there is no room.
fn named(memory: &mut Memory, writer: &Writer, table: &Table, frame: python::CodeFrame) -> Frame {
    let found = python::intern(memory, writer, table.runtime, frame);
    let (code, line) = found.map_or((NO_CODE, 0), |found| (found.code, found.line));
    Frame::Code { code, line, is_entry: frame.is_entry }
}

/// A walked frame as the segment keeps it.
fn frame(word: native::Word, table: &Table) -> Frame {
    let (pc, module) = (native::address(word), native::module(word));
    match table.find(pc) {
        Some(found) if module != NO_NUMBER => Frame::Native { module, offset: pc.wrapping_sub(found.bias) },
        _ => Frame::Unmapped(pc),
    }
}
