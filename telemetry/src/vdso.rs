//! The kernel's clock, by the function that the kernel itself puts into every process (vDSO).
//!
//! libc's function of that purpose calls it too, but its name may lead to a library in front of libc, such as libfaketime,
//! and the processes of a segment must have one time.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

const NAME: &CStr =
    if cfg!(target_arch = "aarch64") { c"__kernel_clock_gettime" } else { c"__vdso_clock_gettime" };

const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// Entries or symbols read at most.
const MAX_ENTRIES: usize = 1024;

/// Stands for a kernel without the function.
const NONE: usize = 1;

/// Time of a clock in ns; 0 if the system does not have the clock. `errno` is left alone.
pub(crate) fn clock_ns(clock: libc::clockid_t) -> u64 {
    /// Address of the function; 0: not searched for yet.
    static FUNCTION: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: the code has been there from the start, and each thread that searches finds the same.
    let mut function = FUNCTION.load(Ordering::Relaxed);
    if function == 0 {
        function = find().unwrap_or(NONE);
        FUNCTION.store(function, Ordering::Relaxed);
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let is_read = function != NONE && {
        // SAFETY: the address is that of the kernel's function, and the place is this function's own.
        unsafe { std::mem::transmute::<usize, ClockGettime>(function)(clock, &raw mut time) == 0 }
    };
    if !is_read && !ask(clock, &mut time) {
        return 0;
    }
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Reads a clock by a system call.
#[cold]
fn ask(clock: libc::clockid_t, time: &mut libc::timespec) -> bool {
    // SAFETY: the place is the caller's.
    crate::sys::keep_errno(|| unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut *time) == 0 })
}

#[repr(C)]
struct Dyn {
    tag: u64,
    value: usize,
}

/// Tables of the image that the kernel has mapped into the process.
struct Image {
    base: usize,
    names: usize,
    symbols: *const libc::Elf64_Sym,
    hash: *const u32,
    gnu_hash: *const u32,
}

/// Address of the function.
#[cold]
fn find() -> Option<usize> {
    let image = Image::mapped()?;
    // SAFETY: tables of this image, as its dynamic section states them.
    let count = unsafe { count(image.hash, image.gnu_hash) };
    (0..count.min(MAX_ENTRIES)).find_map(|at| {
        // SAFETY: there are so many symbols, whose names lie in the table of names.
        let (symbol, name) = unsafe {
            let symbol = &*image.symbols.wrapping_add(at);
            let name = image.names.wrapping_add(symbol.st_name as usize) as *const c_char;
            (symbol, CStr::from_ptr(name))
        };
        (symbol.st_shndx != 0 && name == NAME).then(|| image.base.wrapping_add(symbol.st_value as usize))
    })
}

impl Image {
    fn mapped() -> Option<Self> {
        // SAFETY: without precondition.
        let image = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
        // SAFETY: null, or the header of an image that the kernel has mapped for good.
        let header = unsafe { (image as *const libc::Elf64_Ehdr).as_ref() }?;
        let segments = image.wrapping_add(header.e_phoff as usize) as *const libc::Elf64_Phdr;
        // SAFETY: the header says that so many follow each other there.
        let segments = unsafe { std::slice::from_raw_parts(segments, header.e_phnum.into()) };
        let of_kind = |kind| segments.iter().find(|segment| segment.p_type == kind);
        let loaded = of_kind(libc::PT_LOAD)?;
        let base = image.wrapping_add(loaded.p_offset as usize).wrapping_sub(loaded.p_vaddr as usize);
        let entries = base.wrapping_add(of_kind(libc::PT_DYNAMIC)?.p_vaddr as usize) as *const Dyn;
        let (mut names, mut symbols, mut hash, mut gnu_hash) = (0, 0, 0, 0);
        for at in 0..MAX_ENTRIES {
            // SAFETY: a null entry ends the section, and the loop.
            let entry = unsafe { &*entries.wrapping_add(at) };
            let address = base.wrapping_add(entry.value);
            match entry.tag {
                0 => break,
                DT_STRTAB => names = address,
                DT_SYMTAB => symbols = address,
                DT_HASH => hash = address,
                DT_GNU_HASH => gnu_hash = address,
                _ => {}
            }
        }
        (names != 0 && symbols != 0).then_some(Self {
            base,
            names,
            symbols: symbols as *const _,
            hash: hash as *const _,
            gnu_hash: gnu_hash as *const _,
        })
    }
}

/// Number of symbols, by either table of their hashes: each kernel has one of them.
///
/// # Safety
/// Each is null, or the table of a loaded image.
unsafe fn count(hash: *const u32, gnu_hash: *const u32) -> usize {
    if !hash.is_null() {
        // SAFETY: buckets, then chains: one for each symbol.
        return unsafe { *hash.wrapping_add(1) } as usize;
    }
    if gnu_hash.is_null() {
        return 0;
    }
    // SAFETY: the header has four words, behind which lie words of a filter, two halves each, and the buckets. The last
    // chain begins at the highest of them, and its end is marked.
    unsafe {
        let (buckets, first, filter) = (*gnu_hash, *gnu_hash.wrapping_add(1), *gnu_hash.wrapping_add(2));
        let table = gnu_hash.wrapping_add(4).wrapping_add(2 * filter as usize);
        let chains = table.wrapping_add(buckets as usize);
        let last = (0..buckets as usize).map(|bucket| *table.wrapping_add(bucket)).max().unwrap_or(0);
        if last < first {
            return first as usize;
        }
        let mut at = last;
        for _ in 0..MAX_ENTRIES {
            if *chains.wrapping_add((at - first) as usize) & 1 != 0 {
                break;
            }
            at = at.wrapping_add(1);
        }
        at as usize + 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_libc() {
        for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME] {
            let theirs = || {
                let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                // SAFETY: a place for the result.
                assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
                time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
            };
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            let (before, own, asked, after) = (theirs(), clock_ns(clock), ask(clock, &mut time), theirs());
            assert!(asked && (before..=after).contains(&own), "{before} {own} {after}");
        }
        assert_eq!(clock_ns(-1000), 0);
    }

    #[test]
    fn the_kernels_function_is_found_where_there_is_one() {
        // SAFETY: without precondition.
        let image = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
        if image == 0 {
            eprintln!("skipped: this kernel maps no vDSO");
            return;
        }
        let Image { hash, gnu_hash, .. } = Image::mapped().expect("tables");
        if !hash.is_null() && !gnu_hash.is_null() {
            // SAFETY: tables of the kernel's image.
            let [by_hash, by_gnu_hash] =
                [(hash, std::ptr::null()), (std::ptr::null(), gnu_hash)].map(|(a, b)| unsafe { count(a, b) });
            assert_eq!(by_hash, by_gnu_hash);
        }
        let function = find().expect("the function");
        assert!((image..image + (64 << 10)).contains(&function), "{function:x} {image:x}");
    }
}
