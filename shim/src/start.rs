//! Replacement of the compiler's start files (`build.rs`).
//!
//! The start files run code and write pages at the start and the end of every program that the library is loaded into,
//! and have the loader look for names that no library has. All of that is for libraries that are unloaded, or of
//! compilers long gone.

// The library's name towards libc, which the standard library passes along with destructors of thread-locals: only its address
// counts. Weak, so that start files win where a linker adds them all the same.
#[cfg(not(test))]
core::arch::global_asm!(
    ".pushsection .rodata.radrm_dso_handle,\"a\",%progbits",
    ".weak __dso_handle",
    ".hidden __dso_handle",
    ".balign 8",
    "__dso_handle:",
    ".zero 8",
    ".popsection",
);
