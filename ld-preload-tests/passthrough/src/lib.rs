//! An interposer that only forwards: the floor under any shim.
//!
//! It takes the same ways into a program as a shim does (linked symbols, `dlsym`,
//! `cuGetProcAddress` by returned address) and wraps the same entry points, but each wrapper is one
//! load and one jump. What a shim costs beyond this is what the shim does.
#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use radrm_cuda_abi::*;

/// A wrapper: one load and one jump, whatever the prototype. On the first call the arguments in
/// registers wait on the stack until the driver's function is found.
#[cfg(target_arch = "x86_64")]
macro_rules! forward {
    ($symbol:ident, $id:literal) => {
        #[doc = "Forwards."]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $symbol() {
            core::arch::naked_asm!(
                "mov r11, [rip + {real} + {offset}]",
                "test r11, r11",
                "je 2f",
                "jmp r11",
                "2:",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "sub rsp, 8",
                "mov edi, {id}",
                "call {fill}",
                "add rsp, 8",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                real = sym REAL,
                offset = const $id * 8,
                id = const $id,
                fill = sym fill,
            )
        }
    };
}

/// The same.
#[cfg(target_arch = "aarch64")]
macro_rules! forward {
    ($symbol:ident, $id:literal) => {
        #[doc = "Forwards."]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $symbol() {
            core::arch::naked_asm!(
                "adrp x16, {real}",
                "add x16, x16, :lo12:{real}",
                "ldr x16, [x16, {offset}]",
                "cbz x16, 2f",
                "br x16",
                "2:",
                "stp x29, x30, [sp, -80]!",
                "stp x0, x1, [sp, 16]",
                "stp x2, x3, [sp, 32]",
                "stp x4, x5, [sp, 48]",
                "stp x6, x7, [sp, 64]",
                "mov w0, {id}",
                "bl {fill}",
                "mov x16, x0",
                "ldp x6, x7, [sp, 64]",
                "ldp x4, x5, [sp, 48]",
                "ldp x2, x3, [sp, 32]",
                "ldp x0, x1, [sp, 16]",
                "ldp x29, x30, [sp], 80",
                "br x16",
                real = sym REAL,
                offset = const $id * 8,
                id = const $id,
                fill = sym fill,
            )
        }
    };
}

/// One forwarded entry point.
pub struct Forward {
    name: &'static CStr,
    wrapper: *const (),
}

// SAFETY: the pointer is a function's address, never written through.
unsafe impl Sync for Forward {}

include!(concat!(env!("OUT_DIR"), "/generated.rs"));

/// The driver's functions, in the order of `FORWARDS`. Relaxed: the library's code and data were
/// mapped before anyone could learn the address.
static REAL: [AtomicPtr<c_void>; FORWARDS.len()] = [const { AtomicPtr::new(null_mut()) }; FORWARDS.len()];
/// libc's `dlsym`. Relaxed: as for [`REAL`].
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

fn real(id: usize) -> *mut c_void {
    let real = REAL[id].load(Ordering::Relaxed);
    if real.is_null() { fill(id) } else { real }
}

#[cold]
extern "C" fn fill(id: usize) -> *mut c_void {
    let real = driver_symbol(FORWARDS[id].name);
    REAL[id].store(real, Ordering::Relaxed);
    real
}

/// The version of glibc's first symbols on this kind of machine.
const OLDEST: &CStr = if cfg!(target_arch = "aarch64") { c"GLIBC_2.17" } else { c"GLIBC_2.2.5" };

/// libc's `dlsym`, past our own.
extern "C" fn libc_dlsym() -> *mut c_void {
    let known = DLSYM.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: constant C strings; `dlvsym` is libc's.
    let found = unsafe {
        let new = libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), c"GLIBC_2.34".as_ptr());
        if new.is_null() { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), OLDEST.as_ptr()) } else { new }
    };
    DLSYM.store(found, Ordering::Relaxed);
    found
}

fn real_dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the address is libc's `dlsym`.
    unsafe {
        let dlsym: unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
            core::mem::transmute(libc_dlsym());
        dlsym(handle, name.as_ptr())
    }
}

fn driver_symbol(name: &CStr) -> *mut c_void {
    // SAFETY: a constant C string.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
    if driver.is_null() { null_mut() } else { real_dlsym(driver, name) }
}

/// The wrapper that stands for `name`, if there is one.
fn wrapper(name: &CStr) -> *mut c_void {
    match name.to_bytes() {
        b"cuGetProcAddress" => cuGetProcAddress as *mut c_void,
        b"cuGetProcAddress_v2" => cuGetProcAddress_v2 as *mut c_void,
        _ => FORWARDS.iter().find(|f| f.name == name).map_or(null_mut(), |f| f.wrapper.cast_mut().cast()),
    }
}

/// Function that our `dlsym` answers itself; null where libc's has to answer.
extern "C" fn substitute(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    if name.is_null() || handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT {
        return null_mut();
    }
    // SAFETY: the caller of `dlsym` passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    if !name.to_bytes().starts_with(b"cu") {
        return null_mut();
    }
    let wrapper = wrapper(name);
    if wrapper.is_null() || real_dlsym(handle, name).is_null() { null_mut() } else { wrapper }
}

/// Jumps to libc's `dlsym` for everything but the driver's names, so that libc sees the caller's
/// own return address and `RTLD_NEXT` keeps its meaning.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {substitute}",
        "test rax, rax",
        "jne 2f",
        "call {libc_dlsym}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        "2:",
        "add rsp, 24",
        "ret",
        substitute = sym substitute,
        libc_dlsym = sym libc_dlsym,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "stp x29, x30, [sp, -32]!",
        "stp x0, x1, [sp, 16]",
        "bl {substitute}",
        "cbnz x0, 2f",
        "bl {libc_dlsym}",
        "mov x16, x0",
        "ldp x0, x1, [sp, 16]",
        "ldp x29, x30, [sp], 32",
        "br x16",
        "2:",
        "ldp x29, x30, [sp], 32",
        "ret",
        substitute = sym substitute,
        libc_dlsym = sym libc_dlsym,
    );
}

/// The wrapper of a driver function that `cuGetProcAddress` returned, else the function itself.
fn by_address(found: *mut c_void) -> *mut c_void {
    let wrapped = FORWARDS.iter().enumerate().find(|(id, _)| real(*id) == found);
    wrapped.map_or(found, |(_, f)| f.wrapper.cast_mut().cast())
}

/// Replaces what stands at `pfn` after a look-up that succeeded.
unsafe fn replace(result: CUresult, name: *const c_char, pfn: *mut *mut c_void) -> CUresult {
    if result.is_ok() && !pfn.is_null() && !name.is_null() {
        // SAFETY: a C string; the driver has just written `pfn`.
        unsafe {
            let name = CStr::from_ptr(name);
            *pfn = if name.to_bytes() == b"cuGetProcAddress" {
                // The form with 5 arguments also serves callers that pass 4: the driver's own
                // answer tells which it was.
                if *pfn == driver_symbol(c"cuGetProcAddress") {
                    cuGetProcAddress as *mut c_void
                } else {
                    cuGetProcAddress_v2 as *mut c_void
                }
            } else {
                by_address(*pfn)
            };
        }
    }
    result
}

/// Forwards, then wraps what came back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    let real = driver_symbol(c"cuGetProcAddress");
    // SAFETY: the driver's function of this name.
    unsafe {
        let real: unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64) -> CUresult =
            core::mem::transmute(real);
        replace(real(name, pfn, version, flags), name, pfn)
    }
}

/// Forwards, then wraps what came back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_void,
) -> CUresult {
    let real = driver_symbol(c"cuGetProcAddress_v2");
    // SAFETY: the driver's function of this name.
    unsafe {
        let real: unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_void) -> CUresult =
            core::mem::transmute(real);
        replace(real(name, pfn, version, flags, status), name, pfn)
    }
}
