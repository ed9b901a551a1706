//! The dynamic linker's list of loaded objects.
//!
//! It is found through the program's own dynamic section, in which every dynamic linker leaves its address for debuggers.
//! glibc's symbol for it, `_r_debug`, would make this library need glibc's linker by name, and musl's linker would then
//! end each program that inherits `LD_PRELOAD`.

use core::ffi::{CStr, c_char, c_int, c_void};

/// A loaded object, as the dynamic linker shows it to debuggers. A `dlopen` handle of glibc is one.
#[repr(C)]
pub(crate) struct LinkMap {
    pub(super) base: usize,
    name: *const c_char,
    pub(super) dynamic: *const Dyn,
    next: *const LinkMap,
    previous: *const LinkMap,
}

/// An entry of an object's dynamic section.
#[repr(C)]
pub(super) struct Dyn {
    pub(super) tag: i64,
    pub(super) value: usize,
}

/// Record that the dynamic linker keeps for debuggers.
#[repr(C)]
struct RDebug {
    version: c_int,
    map: *const LinkMap,
}

const DT_DEBUG: i64 = 21;
/// Objects or entries read before a walk gives up.
pub(super) const MANY: usize = 65_536;

/// The first loaded object whose file name is `name`.
pub(super) fn named(name: &[u8]) -> Option<*const LinkMap> {
    all().find(|map| {
        // SAFETY: the list holds the program's initial objects first, which stay for good.
        let map = unsafe { &**map };
        // SAFETY: a loaded object's name is a C string.
        !map.name.is_null()
            && unsafe { CStr::from_ptr(map.name) }.to_bytes().rsplit(|b| *b == b'/').next() == Some(name)
    })
}

/// All loaded objects, the program's initial ones first.
pub(super) fn all() -> impl Iterator<Item = *const LinkMap> {
    let first = stated_by_the_kernel().or_else(stated_by_the_linker).map_or(core::ptr::null(), |debug| {
        // SAFETY: the dynamic linker has filled the structure before any code of ours runs.
        unsafe { (&raw const (*debug).map).read() }
    });
    let some = |map: *const LinkMap| (!map.is_null()).then_some(map);
    // SAFETY: not null, so an object of the list.
    core::iter::successors(some(first), move |map| some(unsafe { (**map).next })).take(MANY)
}

/// Returns true if the object with the code at `first` comes before the one with the code at `second` in the order in which
/// they were loaded, which is the search order of a program's initial objects.
#[cold]
pub(super) fn comes_before(first: usize, second: usize) -> bool {
    /// State of the search, and then its result.
    struct Search {
        first: usize,
        second: usize,
        is_before: bool,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
        // SAFETY: the linker's structure, and the place that was handed over for the search.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        // SAFETY: the linker states so many headers there.
        let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let has = |address: usize| {
            let at = (address as u64).wrapping_sub(info.dlpi_addr);
            headers.iter().any(|header| {
                header.p_type == libc::PT_LOAD && at.wrapping_sub(header.p_vaddr) < header.p_memsz
            })
        };
        let has_second = has(search.second);
        search.is_before = !has_second && has(search.first);
        c_int::from(has_second || search.is_before)
    }
    let mut search = Search { first, second, is_before: false };
    // SAFETY: the function takes what it gets, and nothing else refers to the place meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.is_before
}

/// Through the program headers that the kernel, or a linker that was started as a program, states.
fn stated_by_the_kernel() -> Option<*const RDebug> {
    // SAFETY: without precondition; every process has both values.
    let (at, count) = unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
    let at = at as usize as *const libc::Elf64_Phdr;
    // SAFETY: the kernel has mapped so many headers there.
    let headers = (!at.is_null()).then(|| unsafe { core::slice::from_raw_parts(at, count as usize) })?;
    // Headers that do not say where they lie are those of a linker that was started as a program.
    let own = headers.iter().find(|header| header.p_type == libc::PT_PHDR)?;
    debug(at.addr().wrapping_sub(own.p_vaddr as usize), headers)
}

/// Through the headers that the dynamic linker reports: musl's states none of the program when it was started as a
/// program itself.
#[cold]
fn stated_by_the_linker() -> Option<*const RDebug> {
    unsafe extern "C" fn program(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
        // SAFETY: the linker's structure, and the place that was handed over for the result.
        unsafe {
            let info = &*info;
            let headers = core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
            *found.cast::<Option<*const RDebug>>() = debug(info.dlpi_addr as usize, headers);
        }
        // The program comes first.
        1
    }
    let mut found: Option<*const RDebug> = None;
    // SAFETY: the function takes what it gets, and nothing else refers to the place meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(program), (&raw mut found).cast()) };
    found
}

/// Address of the record for debuggers, from the dynamic section of a program.
fn debug(base: usize, headers: &[libc::Elf64_Phdr]) -> Option<*const RDebug> {
    let header = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let section = base.wrapping_add(header.p_vaddr as usize) as *const Dyn;
    for number in 0..MANY {
        // SAFETY: the dynamic section ends with a null entry, at which the loop stops.
        match unsafe { section.wrapping_add(number).as_ref() }? {
            Dyn { tag: 0, .. } => return None,
            Dyn { tag: DT_DEBUG, value } => return (*value != 0).then_some(*value as *const RDebug),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_the_one_that_dlopen_hands_out() {
        // SAFETY: plain call.
        let program = unsafe { libc::dlopen(core::ptr::null(), libc::RTLD_LAZY) }.cast_const().cast();
        assert_eq!(all().next(), Some(program));
        assert!(all().count() > 2);
    }

    #[test]
    fn kernel_and_linker_state_the_same() {
        assert_eq!(stated_by_the_kernel(), stated_by_the_linker());
        assert!(stated_by_the_kernel().is_some());
    }

    #[test]
    fn the_program_comes_before_libc() {
        let (program, libc) = (comes_before as *const () as usize, libc::getpid as *const () as usize);
        assert!(comes_before(program, libc));
        assert!(!comes_before(libc, program) && !comes_before(program, program) && !comes_before(1, libc));
    }

    #[test]
    fn an_absent_object_is_absent() {
        assert!(named(b"libcuda-that-does-not-exist.so.1").is_none());
    }
}
