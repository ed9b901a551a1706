//! File that an address of code belongs to, and its unwind tables.
//!
//! The list of mappings comes from `/proc/self/maps`, not from the loader: asking the loader takes its lock, which
//! another thread may hold while it waits for this one. Everything else is read from the mapped headers.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};

use super::maps::{Line, Lines};
use super::memory::Memory;
use super::python::Runtime;
use crate::arena;
use crate::telemetry::Writer;

/// Modules that a table has room for.
const ROOM: usize = 2048;
/// Shortest and longest time between two scans that find nothing new, ns.
const PAUSES: (u64, u64) = (10_000_000, 1_000_000_000);
/// Time after which what is mapped is looked at again though nothing points to a change, ns: another file may have taken
/// the place of one that was unloaded.
const REVIEW: u64 = 1_000_000_000;
/// Tables that are made at most: a program that loads and unloads more often keeps the last one.
const TABLES: u64 = 512;
/// Time after which a thread that scans is not waited for any more, ns.
const ABANDONED: u64 = 5_000_000_000;
/// Sleeps of a thread that waits for the first table, and how long each is, ns: more than a second.
const WAITS: u32 = 10_000;
const WAIT: i64 = 100_000;
/// Bytes of a build id that are kept.
const ID_BYTES: usize = 24;

/// Code of one file, as it is mapped.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Module {
    start: u64,
    end: u64,
    /// Load bias: added to an address of the file.
    pub(super) bias: u64,
    /// Address of the index of its unwind tables; 0: it has none.
    pub(super) header: u64,
    /// Address at which its ELF header is mapped; 0: not known.
    base: u64,
    /// Device and inode.
    file: (u64, u64),
    /// Its number in the segment; [`NO_NUMBER`]: there was no room.
    pub(super) number: u16,
}

/// No module of the segment.
pub(super) const NO_NUMBER: u16 = 0x3fff;

/// A list of modules by address. Never changed once it is published, and never given back.
#[repr(C)]
pub(super) struct Table {
    /// Number of the table.
    pub(super) version: u64,
    /// The interpreter in it.
    pub(super) runtime: Runtime,
    len: usize,
    modules: [Module; ROOM],
}

impl Table {
    fn modules(&self) -> &[Module] {
        self.modules.get(..self.len).unwrap_or(&[])
    }

    /// The module of an address.
    pub(super) fn find(&self, pc: u64) -> Option<&Module> {
        let modules = self.modules();
        let after = modules.partition_point(|module| module.start <= pc);
        modules.get(after.checked_sub(1)?).filter(|module| pc < module.end)
    }
}

/// The calling thread; never 0.
fn thread() -> u64 {
    crate::thread::id().into()
}

/// The modules of the process.
pub(super) struct Modules {
    table: AtomicPtr<Table>,
    /// The thread that scans; 0: none.
    scanning: AtomicU64,
    /// No scan before this time, ns of segment time.
    not_before: AtomicU64,
    pause: AtomicU64,
}

impl Modules {
    /// The current table, made anew where `pc` is in none and the last look is some time ago.
    pub(super) fn table(
        &self,
        writer: &Writer,
        memory: &mut Memory,
        is_stale: bool,
    ) -> Option<&'static Table> {
        let known = self.table.load(Ordering::Acquire);
        let overdue = writer.now().wrapping_sub(self.not_before.load(Ordering::Relaxed)).cast_signed();
        let is_due = (known.is_null() || is_stale) && overdue >= 0;
        if is_due || overdue > REVIEW.cast_signed() {
            self.scan(writer, memory, overdue > ABANDONED.cast_signed());
        }
        if self.table.load(Ordering::Acquire).is_null() {
            self.wait(writer, memory);
        }
        // SAFETY: tables are published whole, never changed and never unmapped.
        unsafe { self.table.load(Ordering::Acquire).as_ref() }
    }

    /// Of threads that begin at the same time one makes the first table, and the others wait for it: without it none of their
    /// stacks can be read. The one takes no lock of the program, so they wait for the kernel only.
    #[cold]
    fn wait(&self, writer: &Writer, memory: &mut Memory) {
        for _ in 0..WAITS {
            // Acquire pairs with the Release at the end of a scan, whose table is seen then.
            let owner = self.scanning.load(Ordering::Acquire);
            let is_ready = !self.table.load(Ordering::Acquire).is_null();
            // None: the list could not be read. This thread itself: it was interrupted there.
            if is_ready || owner == 0 || owner == thread() {
                return;
            }
            let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: WAIT };
            let _ = rustix::thread::nanosleep(&pause);
        }
        self.scan(writer, memory, true);
    }

    /// Looks at what is mapped, unless another thread does. `anyway`: that one has had its time, it may be gone or have left by
    /// a jump.
    #[cold]
    fn scan(&self, writer: &Writer, memory: &mut Memory, anyway: bool) {
        let own = thread();
        // Acquire pairs with the Release below.
        match self.scanning.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            Err(owner) if anyway || owner == own => self.scanning.store(own, Ordering::Relaxed),
            Err(_) => return,
            Ok(_) => {}
        }
        let known = self.table.load(Ordering::Acquire);
        // SAFETY: as above.
        let known = unsafe { known.as_ref() };
        let is_new = self.rebuild(writer, memory, known);
        let pause = match is_new {
            true => PAUSES.0,
            false => (self.pause.load(Ordering::Relaxed) * 2).clamp(PAUSES.0, PAUSES.1),
        };
        self.pause.store(pause, Ordering::Relaxed);
        self.not_before.store(writer.now().saturating_add(pause), Ordering::Relaxed);
        self.scanning.store(0, Ordering::Release);
    }

    /// Makes a table of what is mapped now; false if it is as before.
    fn rebuild(&self, writer: &Writer, memory: &mut Memory, known: Option<&Table>) -> bool {
        let version = known.map_or(0, |known| known.version) + 1;
        if version > TABLES {
            return false;
        }
        let Some(fresh) = arena::map_private(size_of::<Table>()).map(<*mut u8>::cast::<Table>) else {
            return false;
        };
        // SAFETY: mapped just above and not published; zeros are a table without modules.
        let table = unsafe { &mut *fresh };
        table.version = version;
        if list(table, memory).is_some() && number(table, writer, memory, known) {
            let before = known.map_or(core::ptr::null_mut(), |known| core::ptr::from_ref(known).cast_mut());
            // Release: pairs with the Acquire with which a table is taken. Of two threads that scan at once one is first.
            if self.table.compare_exchange(before, fresh, Ordering::Release, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
        // SAFETY: as above.
        let _ = unsafe { rustix::mm::munmap(fresh.cast(), size_of::<Table>()) };
        false
    }
}

/// Lists what is mapped and can be run. `None`: the list cannot be read.
fn list(table: &mut Table, memory: &mut Memory) -> Option<()> {
    // What was copied may be mapped differently by now.
    memory.clear();
    let file = rustix::fs::open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut lines = Lines::new(&file);
    // Where the file that the current lines belong to begins.
    let mut base: Option<((u64, u64), u64)> = None;
    while let Some(line) = lines.next() {
        if !line.is_file() {
            continue;
        }
        if line.offset == 0 && base.is_none_or(|(file, _)| file != line.file) {
            base = Some((line.file, line.start));
        }
        if line.is_code {
            let begin = base.filter(|(file, _)| *file == line.file).map(|(_, begin)| begin);
            let (bias, header) = begin
                .and_then(|begin| super::elf::header(memory, begin))
                .map_or((line.start.wrapping_sub(line.offset), 0), |found| (found.bias, found.unwind));
            let Some(place) = table.modules.get_mut(table.len) else { break };
            *place = Module {
                start: line.start,
                end: line.end,
                bias,
                header,
                base: begin.unwrap_or(0),
                file: line.file,
                number: NO_NUMBER,
            };
            table.len += 1;
        }
    }
    lines.is_whole().then_some(())
}

/// Gives modules their numbers in the segment, those they had where they are known; false if nothing is new.
fn number(table: &mut Table, writer: &Writer, memory: &mut Memory, known: Option<&Table>) -> bool {
    let known = known.map_or(&[][..], Table::modules);
    let mut is_new = known.len() != table.len;
    let len = table.len;
    for module in table.modules.iter_mut().take(len) {
        let same = |other: &&Module| {
            (other.start, other.bias, other.file) == (module.start, module.bias, module.file)
        };
        match known.iter().find(same) {
            Some(other) => {
                is_new |= other.end != module.end;
                module.number = other.number;
            }
            None => is_new = true,
        }
    }
    if is_new {
        name(table, writer, memory);
    }
    is_new
}

/// Enters modules without number into the segment; a second pass over the list has their paths.
fn name(table: &mut Table, writer: &Writer, memory: &mut Memory) {
    let Ok(file) = rustix::fs::open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    else {
        return;
    };
    let mut lines = Lines::new(&file);
    let len = table.len;
    while let Some(Line { start, file, path, .. }) = lines.next() {
        let modules = table.modules.get_mut(..len).unwrap_or_default();
        let Ok(at) = modules.binary_search_by_key(&start, |module| module.start) else { continue };
        if table.runtime.at == 0
            && let Some(found) = runtime(memory, path, modules.get(at).map_or(0, |module| module.base))
        {
            table.runtime = found;
        }
        // Another piece of the same file has the same number.
        let sibling = |other: &&Module| {
            other.number != NO_NUMBER && (other.bias, other.file) == modules_key(modules, at)
        };
        let number = modules.iter().find(sibling).map(|other| other.number);
        let Some(module) = modules.get_mut(at).filter(|m| m.number == NO_NUMBER && m.file == file) else {
            continue;
        };
        let mut id = [0u8; ID_BYTES];
        let id = super::elf::build_id(memory, module.base, &mut id);
        module.number = number.or_else(|| writer.stack_module(path, id)).unwrap_or(NO_NUMBER);
    }
}

/// Name of a file that can hold an interpreter: `python3.11`, `libpython3.11.so.1.0`; what follows `python`.
fn interpreter(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    name.strip_prefix(b"lib").unwrap_or(name).strip_prefix(b"python")
}

/// The interpreter in the file at `base`.
fn runtime(memory: &mut Memory, path: &[u8], base: u64) -> Option<Runtime> {
    let name = interpreter(path)?;
    let at = super::elf::symbol(memory, base, b"_PyRuntime")?;
    // Versions before 3.11 state theirs only in the file's name.
    let stated = super::elf::symbol(memory, base, b"Py_Version").and_then(|at| memory.u64(at));
    let version = stated.or_else(|| {
        let minor = name.strip_prefix(b"3.")?.iter().take_while(|digit| digit.is_ascii_digit());
        let minor = minor.fold(0u64, |sum, digit| sum.saturating_mul(10) + u64::from(digit - b'0'));
        Some(3 << 24 | minor.min(0xff) << 16)
    })?;
    Some(Runtime { at, version })
}

fn modules_key(modules: &[Module], at: usize) -> (u64, (u64, u64)) {
    modules.get(at).map_or((0, (0, 0)), |module| (module.bias, module.file))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    impl Table {
        /// Start address of one of the modules.
        #[cfg(target_arch = "x86_64")]
        pub(in crate::stacks) fn start_of(&self, number: usize) -> u64 {
            self.modules[number % self.len].start
        }
    }

    /// The modules of this program.
    pub(in crate::stacks) fn table(memory: &mut Memory) -> Box<Table> {
        // SAFETY: all zeros is a table without modules.
        let mut table: Box<Table> = unsafe { Box::new_zeroed().assume_init() };
        assert_eq!(list(&mut table, memory), Some(()));
        // As if they had numbers in a segment.
        let len = table.len;
        for (number, module) in (0u16..).zip(&mut table.modules[..len]) {
            module.number = number;
        }
        table
    }

    #[test]
    fn modules_are_found_by_their_addresses_with_tables_and_build_id() {
        // SAFETY: all zeros is a memory without pages.
        let mut memory: Box<Memory> = unsafe { Box::new_zeroed().assume_init() };
        memory.clear();
        let table = table(&mut memory);
        let own = table.find((list as *const ()).addr() as u64).expect("this program");
        assert_ne!(own.header, 0);
        let libc_function = (libc::getpid as *const ()).addr() as u64;
        let libc = table.find(libc_function).expect("libc");
        assert_ne!((libc.header, libc.base), (0, own.base));
        let mut id = [0; ID_BYTES];
        assert_eq!(super::super::elf::build_id(&mut memory, libc.base, &mut id).len(), 20);
        assert!(table.find(8).is_none());
        let exported = super::super::elf::symbol(&mut memory, libc.base, b"getpid");
        assert_eq!(exported, Some(libc_function));
        assert_eq!(super::super::elf::symbol(&mut memory, libc.base, b"no such name"), None);
    }
}
