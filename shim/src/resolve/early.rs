//! The exported `dlsym` and `dlvsym`.
//!
//! Every look-up that is not for a function of the driver or NVML jumps on to libc's function with
//! the stack as the caller left it, so that `RTLD_NEXT` and `RTLD_DEFAULT` mean the caller's place in
//! the search order. A program that looks for such a function by `RTLD_NEXT` would find this library's export, also where there
//! is no driver: it gets what comes after this library. The first look-up of a process may come from an allocator that is setting itself
//! up, or from a sanitizer: libc's function is therefore found by reading tables (see `elf`).
//!
//! musl loads this library too, where it is preloaded. There are no wrapped functions in such a process, and every
//! look-up ends in musl's own.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{attach, elf, objects, route};
use crate::entries::{self, Library};
use crate::environ;
use crate::mode;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// libc's `dlsym`.
static RADRM_DLSYM: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// libc's `dlvsym`.
static RADRM_DLVSYM: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// The whole of an exported look-up function: jump to libc's unless the name may have a wrapper.
///
/// Registers: rdi handle, rsi name, rdx version (`dlvsym`); the caller's place is on top of the stack.
#[cfg(target_arch = "x86_64")]
macro_rules! look_up {
    ($real:ident, $find:ident, $resolve:ident) => {
        core::arch::naked_asm!(
            "endbr64",
            "cmp byte ptr [rsi], 99", // c
            "je 2f",
            "cmp byte ptr [rsi], 110", // n
            "jne 3f",
            "2:",
            "push rdi",
            "push rsi",
            "push rdx",
            "mov rdx, qword ptr [rsp + 24]",
            "call {may_be_wrapped}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "test eax, eax",
            "je 3f",
            "jmp {resolve}",
            "3:",
            "mov rax, qword ptr [rip + {real}]",
            "test rax, rax",
            "je 4f",
            "jmp rax",
            "4:",
            "push rdi",
            "push rsi",
            "push rdx",
            "call {find}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            may_be_wrapped = sym may_be_wrapped,
            resolve = sym $resolve,
            real = sym $real,
            find = sym $find,
        )
    };
}

/// The same. Registers: x0 handle, x1 name, x2 version (`dlvsym`); x30 is the caller's place.
#[cfg(target_arch = "aarch64")]
macro_rules! look_up {
    ($real:ident, $find:ident, $resolve:ident) => {
        core::arch::naked_asm!(
            "hint 34", // bti c
            "ldrb w9, [x1]",
            "cmp w9, 99", // c
            "b.eq 2f",
            "cmp w9, 110", // n
            "b.ne 3f",
            "2:",
            "stp x29, x30, [sp, -48]!",
            "mov x29, sp",
            "stp x0, x1, [sp, 16]",
            "str x2, [sp, 32]",
            "mov x2, x30",
            "bl {may_be_wrapped}",
            "mov w9, w0",
            "ldr x2, [sp, 32]",
            "ldp x0, x1, [sp, 16]",
            "ldp x29, x30, [sp], 48",
            "cbz w9, 3f",
            "b {resolve}",
            "3:",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "cbz x16, 4f",
            "br x16",
            "4:",
            "stp x29, x30, [sp, -48]!",
            "mov x29, sp",
            "stp x0, x1, [sp, 16]",
            "str x2, [sp, 32]",
            "bl {find}",
            "mov x16, x0",
            "ldr x2, [sp, 32]",
            "ldp x0, x1, [sp, 16]",
            "ldp x29, x30, [sp], 48",
            "br x16",
            may_be_wrapped = sym may_be_wrapped,
            resolve = sym $resolve,
            real = sym $real,
            find = sym $find,
        )
    };
}

/// Interposes libc's function of this name.
///
/// # Safety
/// As for libc's.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    look_up!(RADRM_DLSYM, find_dlsym, resolve_dlsym)
}

/// Interposes libc's function of this name.
///
/// # Safety
/// As for libc's.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlvsym(
    _handle: *mut c_void,
    _name: *const c_char,
    _version: *const c_char,
) -> *mut c_void {
    look_up!(RADRM_DLVSYM, find_dlvsym, resolve_dlvsym)
}

fn libc_function(name: &CStr) -> Option<*mut ()> {
    let glibc = [b"libc.so.6".as_slice(), b"libdl.so.2"]
        .into_iter()
        .filter_map(objects::named)
        // SAFETY: both are among the initial objects wherever they matter and stay loaded.
        .find_map(|map| unsafe { elf::function(map, name) });
    // musl is one object of any name.
    glibc.or_else(|| {
        objects::all().find_map(|map| {
            // SAFETY: musl unloads nothing.
            unsafe { elf::function(map, c"__libc_start_main").and_then(|_| elf::function(map, name)) }
        })
    })
}

extern "C" fn find_dlsym() -> *mut () {
    environ::keep();
    match libc_function(c"dlsym") {
        Some(real) => {
            RADRM_DLSYM.store(real, Ordering::Release);
            real
        }
        None => nothing as *mut (),
    }
}

extern "C" fn find_dlvsym() -> *mut () {
    environ::keep();
    match libc_function(c"dlvsym") {
        Some(real) => {
            RADRM_DLVSYM.store(real, Ordering::Release);
            real
        }
        None => nothing as *mut (),
    }
}

/// Stands in for libc's functions where they cannot be found.
extern "C" fn nothing() -> *mut c_void {
    core::ptr::null_mut()
}

/// libc's `dlsym`, called from this library: `RTLD_NEXT` means what comes after us.
fn real_dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let mut real = RADRM_DLSYM.load(Ordering::Acquire);
    if real.is_null() {
        real = find_dlsym();
    }
    // SAFETY: the address is that of libc's `dlsym`, or of a function that ignores its arguments.
    unsafe { core::mem::transmute::<*mut (), Dlsym>(real)(handle, name.as_ptr()) }
}

/// Returns 1 if a look-up is for a name that has a wrapper and may find it, else 0. By `RTLD_NEXT` only objects that come
/// before this library find something of it; their answer is what comes after it.
unsafe extern "C" fn may_be_wrapped(handle: *mut c_void, name: *const c_char, caller: *const c_void) -> i32 {
    // SAFETY: the caller's promise to `dlsym`.
    let name = unsafe { CStr::from_ptr(name) };
    let may_be = entries::find(name).is_some()
        && (handle != libc::RTLD_NEXT || objects::comes_before(caller.addr(), dlsym as *const () as usize));
    i32::from(may_be)
}

unsafe extern "C" fn resolve_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's promise to `dlsym`.
    let name = unsafe { CStr::from_ptr(name) };
    routed(handle, name, real_dlsym(handle, name))
}

unsafe extern "C" fn resolve_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    let mut real = RADRM_DLVSYM.load(Ordering::Acquire);
    if real.is_null() {
        real = find_dlvsym();
    }
    // SAFETY: the address is that of libc's `dlvsym`, or of a function that ignores its arguments;
    // the pointers are the caller's.
    let found = unsafe { core::mem::transmute::<*mut (), Dlvsym>(real)(handle, name, version) };
    // SAFETY: the caller's promise to `dlvsym`.
    routed(handle, unsafe { CStr::from_ptr(name) }, found)
}

/// Address that a program gets for a look-up whose plain answer is `found`.
fn routed(handle: *mut c_void, name: &CStr, found: *mut c_void) -> *mut c_void {
    if found.is_null() {
        return found;
    }
    let Some((entry, info)) = entries::find(name).and_then(|e| Some((e, e.info()?))) else { return found };
    if found.cast_const().cast::<()>() == entry.wrapper() {
        return own_export(handle, name, info.library, entry);
    }
    if !mode::is_to_be_bypassed()
        && attach::attach(info.library)
        && route::entries_at(found.cast()).any(|e| e == entry)
    {
        return entry.wrapper().cast_mut().cast();
    }
    found
}

/// The look-up went through the program's global scope and found our own export: the answer is what
/// the program would have found without us, or its wrapper.
fn own_export(handle: *mut c_void, name: &CStr, library: Library, entry: entries::EntryId) -> *mut c_void {
    let real: *mut c_void = if handle == libc::RTLD_DEFAULT && attach::attach(library) {
        // The caller's own scope may reach the library where the global one does not.
        attach::loaded(entry).cast()
    } else {
        core::ptr::null_mut()
    };
    if real.is_null() {
        // A failure leaves the message for `dlerror` behind.
        let next = real_dlsym(libc::RTLD_NEXT, name);
        return if next.is_null() { next } else { routed(libc::RTLD_NEXT, name, next) };
    }
    match entry.info() {
        Some(_) if !mode::is_to_be_bypassed() => entry.wrapper().cast_mut().cast(),
        _ => real,
    }
}

/// The definition of a name that comes after this library in the global search order.
pub(super) fn next_definition(name: &CStr, ours: *const ()) -> Option<*mut ()> {
    let next = real_dlsym(libc::RTLD_NEXT, name);
    (!next.is_null() && next.cast_const().cast::<()>() != ours).then_some(next.cast())
}
