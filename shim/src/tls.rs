//! The calling thread's state: plain zero-initialised memory, reached by one instruction pair.

use core::cell::Cell;

use crate::kernels::cache::KernelCache;
use crate::telemetry;

/// State of one thread. All-zero bytes are its start; it has no destructor.
#[repr(C, align(64))]
pub(crate) struct Tls {
    /// Epoch of the process state that the rest was filled under; 0: not yet.
    pub(crate) epoch: Cell<u64>,
    /// Stack address of the hooked call under way; 0: none.
    pub(crate) guard: Cell<usize>,
    /// Join generation that `lane`, `cache` and `memory` belong to.
    pub(crate) generation: Cell<u64>,
    /// Kernels this thread has launched lately.
    pub(crate) cache: Cell<*const KernelCache>,
    /// The thread's counters in the segment.
    pub(crate) lane: Cell<Option<telemetry::Lane>>,
    /// Words for the memory hooks; zeroed whenever the process joins anew.
    pub(crate) memory: [Cell<u64>; 16],
}

const TLS_BYTES: usize = 512;
const _: () = assert!(size_of::<Tls>() <= TLS_BYTES);

#[cfg(target_arch = "x86_64")]
mod place {
    use super::{TLS_BYTES, Tls};

    core::arch::global_asm!(
        ".pushsection .tbss.radrm_tls,\"awT\",@nobits",
        ".balign 64",
        ".globl radrm_tls",
        ".hidden radrm_tls",
        ".type radrm_tls,@object",
        ".size radrm_tls, {bytes}",
        "radrm_tls:",
        ".zero {bytes}",
        ".popsection",
        bytes = const TLS_BYTES,
    );

    #[inline(always)]
    pub(super) fn address() -> *const Tls {
        let at: usize;
        // SAFETY: reads the thread pointer and the symbol's offset; the initial-exec model holds
        // because the library is loaded with the program.
        unsafe {
            core::arch::asm!(
                "mov {at}, qword ptr fs:[0]",
                "add {at}, qword ptr [rip + radrm_tls@GOTTPOFF]",
                at = out(reg) at,
                options(pure, readonly, nostack),
            );
        }
        at as *const Tls
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod place {
    use super::{TLS_BYTES, Tls};

    #[repr(align(64))]
    struct Room(core::cell::UnsafeCell<[u8; TLS_BYTES]>);

    thread_local! {
        static ROOM: Room = const { Room(core::cell::UnsafeCell::new([0; TLS_BYTES])) };
    }

    pub(super) fn address() -> *const Tls {
        ROOM.with(|room| room.0.get().cast_const().cast())
    }
}

/// The calling thread's state.
#[inline(always)]
pub(crate) fn get<'t>() -> &'t Tls {
    // SAFETY: the block is this thread's own, zeroed at its start and as large and aligned as `Tls`
    // needs; the reference does not leave the thread (`Tls` is not `Sync`).
    unsafe { &*place::address() }
}
