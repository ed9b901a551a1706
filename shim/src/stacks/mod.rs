//! The call stacks of requests for memory.
//!
//! Runs inside the program, on top of any of its frames, so: nothing is allocated from the program's heap, no lock of
//! the program or of the loader is taken, and every address is read through the kernel ([`memory`]), so that a wrong table
//! or a damaged stack ends a stack early and does nothing else. What is found goes to the segment
//! (`telemetry::stacks`) as numbers of modules and addresses; names are found when a report is made.

mod cursor;
mod elf;
mod expression;
mod guard;
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
mod trace;

use core::sync::atomic::{AtomicI32, Ordering};

use crate::cx::Cx;
use crate::telemetry::{FailedRequest, Frame, GpuIndex, Kind, SiteId, Writer};
use crate::wiped::{Wiped, Zeroable};

use memory::Memory;
use modules::{Modules, NO_NUMBER, Table};
use native::{End, Rules};
use registers::{RSP, Registers};
use scratch::Scratch;

/// Modules and unwind rules of the process's code.
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

/// Counts a refused request at its site, which it returns.
pub(crate) fn refused(cx: &Cx<'_>, request: &FailedRequest) -> SiteId {
    if !cx.writer().records_stacks() {
        return SiteId::NONE;
    }
    let site = recorded(cx, request.gpu, request.kind);
    cx.writer().refused_site(site, request);
    site
}

/// The site of the call under way, or the one of all stacks that are not known where none may be recorded here.
#[cold]
#[inline(never)]
fn recorded(cx: &Cx<'_>, gpu: GpuIndex, kind: Kind) -> SiteId {
    match crate::errno::keep(guard::obstacle) {
        None => walked(cx, gpu, kind),
        Some(obstacle) => {
            cx.bypass(obstacle);
            cx.writer().stack_unread();
            SiteId::other(gpu, kind)
        }
    }
}

#[inline(never)]
fn walked(cx: &Cx<'_>, gpu: GpuIndex, kind: Kind) -> SiteId {
    let registers = Registers::here();
    let writer = cx.writer();
    let site = crate::errno::keep(|| {
        let code = CODE.get()?;
        let thread = cx.tls().lane.get().map_or_else(crate::thread::id, |lane| lane.thread());
        scratch::with(|scratch| capture(writer, code, scratch, (registers, thread), gpu, kind)).flatten()
    });
    site.unwrap_or_else(|| {
        writer.stack_unread();
        SiteId::other(gpu, kind)
    })
}

/// Walks the stack of the calling thread and enters it. `None`: it cannot be read.
fn capture(
    writer: &Writer,
    code: &Code,
    scratch: &mut Scratch,
    (registers, thread): (Registers, u32),
    gpu: GpuIndex,
    kind: Kind,
) -> Option<SiteId> {
    scratch.memory.begin(code.pid(), registers.get(RSP).unwrap_or(0));
    scratch.native.compare(&scratch.memory);
    scratch.code.compare(&scratch.memory);
    let mut table = code.modules.table(writer, &mut scratch.memory, false)?;
    // Code in no module may lie in one that was loaded since.
    if walk(scratch, table, code, registers) {
        let newer = code.modules.table(writer, &mut scratch.memory, true)?;
        if newer.version != table.version {
            table = newer;
            walk(scratch, table, code, registers);
        }
    }
    let own = table.find((recorded as *const ()).addr() as u64).map_or(NO_NUMBER, |module| module.number);
    let Scratch { memory, native, code, frames, .. } = scratch;
    code.walk(memory, table.runtime, thread);
    // What the shim itself adds is not a frame of the program.
    let is_own = |step: &&native::Step| native::module(step.word) == own;
    let skipped = native.frames().iter().rev().take_while(is_own).count();
    let walked = native.frames().len().checked_sub(skipped).filter(|left| *left > 0)?;
    let walked = native.frames().get(..walked)?;
    let end = native.end();
    let hash = trace::mixed(native.hash(skipped), code.hash());
    let site = writer.site(gpu, kind, hash.max(1), move || {
        let frames = frames;
        let mut len = 0;
        for (step, place) in walked.iter().rev().zip(frames.iter_mut()) {
            *place = frame(step.word, table).pack();
            len += 1;
        }
        if end == End::Cut
            && let Some(place) = frames.get_mut(len)
        {
            *place = Frame::Cut.pack();
            len += 1;
        }
        for (found, place) in code.frames().zip(frames.iter_mut().skip(len)) {
            *place = named(memory, writer, table, found).pack();
            len += 1;
        }
        if code.is_cut()
            && let Some(place) = frames.get_mut(len)
        {
            *place = Frame::Cut.pack();
            len += 1;
        }
        frames.get(..len).unwrap_or(&[])
    });
    Some(site)
}

/// Walks the native stack; whether there is code that lies in no module.
fn walk(scratch: &mut Scratch, table: &Table, code: &Code, registers: Registers) -> bool {
    let Scratch { memory, native, code: interpreted, version, .. } = scratch;
    if *version != table.version {
        *version = table.version;
        native.clear();
        interpreted.clear();
        native.compare(memory);
        interpreted.compare(memory);
    }
    native.walk(memory, table, &code.rules, registers)
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
