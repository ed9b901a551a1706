//! Finds the driver's library once it is loaded, keeps it loaded, and fills the table of real
//! functions.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::objects::{self, LinkMap};
use super::{early, elf, route};
use crate::entries::{self, ENTRY_COUNT, EntryId, Library};
use crate::errno;
use radrm_cuda_abi::*;

/// The driver's own function of every entry point.
pub(crate) static RADRM_REAL: [AtomicPtr<()>; ENTRY_COUNT] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; ENTRY_COUNT];

/// True if the driver's code calls launches by their exported names, and so comes to our shells.
static CALLS_ITSELF: AtomicBool = AtomicBool::new(false);

/// The library, once it was seen and pinned.
struct Object {
    name: &'static CStr,
    map: AtomicPtr<LinkMap>,
}

static CUDA: Object = Object { name: c"libcuda.so.1", map: AtomicPtr::new(core::ptr::null_mut()) };
static NVML: Object = Object { name: c"libnvidia-ml.so.1", map: AtomicPtr::new(core::ptr::null_mut()) };

fn object(library: Library) -> &'static Object {
    match library {
        Library::Cuda => &CUDA,
        Library::Nvml => &NVML,
    }
}

/// The real function as far as it is known; null: not resolved.
#[inline(always)]
pub(crate) fn loaded(entry: EntryId) -> *mut () {
    match RADRM_REAL.get(usize::from(entry.0)) {
        // Acquire pairs with the release in `attach`: the function's library is mapped.
        Some(slot) => slot.load(Ordering::Acquire),
        None => core::ptr::null_mut(),
    }
}

/// Resolves an entry point whose function is not known yet.
#[cold]
#[inline(never)]
pub(crate) fn cold(entry: EntryId) -> Option<*mut ()> {
    let info = entry.info()?;
    errno::keep(|| {
        if !attach(info.library) {
            // A stand-in for the driver further down the search order (programs bring stubs that load
            // the driver on first use), or the driver itself, which is not loaded yet.
            if let Some(next) = early::next_definition(info.symbol(), entry.wrapper()) {
                return Some(next);
            }
            open(object(info.library).name, libc::RTLD_LAZY)?;
            if !attach(info.library) {
                return None;
            }
        }
        let real = loaded(entry);
        (!real.is_null()).then_some(real)
    })
}

/// Result of an NVML shell where there is no real function to ask.
#[cold]
pub(crate) fn no_nvml() -> nvmlReturn_t {
    let is_there = !NVML.map.load(Ordering::Acquire).is_null();
    if is_there { NVML_ERROR_FUNCTION_NOT_FOUND } else { NVML_ERROR_LIBRARY_NOT_FOUND }
}

/// A function of NVML by its exported name, looked up in the library that a shell has already called.
pub(crate) fn nvml_symbol(name: &CStr) -> Option<*mut ()> {
    let map = NVML.map.load(Ordering::Acquire);
    // SAFETY: not null, and then the library is pinned.
    if map.is_null() { None } else { unsafe { elf::function(map, name) } }
}

/// Returns true if the driver's library has been seen.
pub(crate) fn has_driver() -> bool {
    !CUDA.map.load(Ordering::Acquire).is_null()
}

/// A function of the driver by its exported name, looked up in libcuda only; null where missing.
pub(crate) fn driver_symbol(name: &CStr) -> *mut c_void {
    if !has_driver() && !attach(Library::Cuda) {
        return core::ptr::null_mut();
    }
    // SAFETY: the library is pinned.
    unsafe { elf::function(CUDA.map.load(Ordering::Acquire), name) }
        .map_or(core::ptr::null_mut(), |f| f.cast())
}

/// Returns true if the library is loaded; the first time pins it and fills the tables. Threads that do so at once write
/// the same values.
pub(super) fn attach(library: Library) -> bool {
    let object = object(library);
    // Acquire pairs with the release below: the tables are complete.
    if !object.map.load(Ordering::Acquire).is_null() {
        return true;
    }
    errno::keep(|| {
        let Some(map) = open(object.name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) else { return false };
        for (entry, info) in entries::of(library) {
            // SAFETY: `open` has raised the library's count, so it stays loaded.
            if let Some(real) = unsafe { elf::function(map, info.symbol()) }
                && let Some(slot) = RADRM_REAL.get(usize::from(entry.0))
            {
                // Release pairs with the Acquire in `loaded`.
                slot.store(real, Ordering::Release);
                route::add(real, entry);
            }
        }
        if library == Library::Cuda {
            complete_launches(map);
        }
        // Release pairs with the Acquire above and in `has_driver`.
        object.map.store(map.cast_mut(), Ordering::Release);
        true
    })
}

/// Prepares what the hand-written shells count on: an address to call for every launch, and whether they may take a
/// call for the program's own.
fn complete_launches(map: *const LinkMap) {
    for entry in entries::BY_HAND {
        if let Some(slot) = RADRM_REAL.get(usize::from(entry.0)) {
            let none = core::ptr::null_mut();
            let _ = slot.compare_exchange(none, no_launch as *mut (), Ordering::Release, Ordering::Relaxed);
        }
    }
    let is_launch = |name: &CStr| entries::find(name).is_some_and(|entry| entries::BY_HAND.contains(&entry));
    // SAFETY: `open` has raised the library's count, so it stays loaded.
    let by_name = unsafe { elf::refers(map, is_launch) };
    // Relaxed: published with the library.
    CALLS_ITSELF.store(by_name, Ordering::Relaxed);
}

/// In the place of a launch that the driver does not have.
extern "C" fn no_launch() -> CUresult {
    CUDA_ERROR_NOT_FOUND
}

/// Returns true if a launch that comes to a shell is known to be the program's own, and to have a function to call.
pub(crate) fn launches_are_direct() -> bool {
    has_driver() && !CALLS_ITSELF.load(Ordering::Relaxed)
}

/// A function of a library, which is loaded for it and stays loaded.
#[cfg(not(test))]
pub(crate) fn function_of(library: &CStr, name: &CStr) -> Option<*mut ()> {
    // SAFETY: `open` has raised the library's count.
    errno::keep(|| unsafe { elf::function(open(library, libc::RTLD_LAZY)?, name) })
}

fn open(name: &CStr, flags: c_int) -> Option<*const LinkMap> {
    // A glibc handle is the object's link map.
    handle(name.as_ptr(), flags).map(|handle| handle.cast_const().cast())
}

/// The program itself, which is never closed, as a handle for look-ups that begin with the program's scope.
pub(crate) fn program() -> Option<*mut c_void> {
    handle(core::ptr::null(), libc::RTLD_LAZY | libc::RTLD_NOLOAD)
}

/// Handle that `dlopen` gives for a name. The function is found when it is needed: before glibc 2.34 it is libdl's,
/// which the loader would load into every program of a job.
fn handle(name: *const c_char, flags: c_int) -> Option<*mut c_void> {
    let libc = objects::named(b"libc.so.6");
    // SAFETY: libc and libdl, found among the initial objects, stay loaded.
    let dlopen = libc
        .and_then(|map| unsafe { elf::function(map, c"dlopen") })
        .or_else(|| objects::named(b"libdl.so.2").and_then(|map| unsafe { elf::function(map, c"dlopen") }))?;
    // SAFETY: this is libc's `dlopen`.
    let dlopen = unsafe {
        core::mem::transmute::<*mut (), unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void>(dlopen)
    };
    // SAFETY: null or a C string, and valid flags.
    let handle = unsafe { dlopen(name, flags) };
    (!handle.is_null()).then_some(handle)
}
