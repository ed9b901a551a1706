//! The calling thread's state: plain memory, reached by one instruction pair.

use core::cell::Cell;

use crate::kernels::cache::KernelCache;
use crate::kernels::timing::strata::StrataCache;
use crate::ranges::Nesting;
use crate::telemetry;

/// Value of [`Tls::ready`] in a new thread: no page has it.
const NOT_READY: u64 = u64::MAX;

/// State of one thread. It starts as [`NOT_READY`] followed by zeros and has no destructor.
#[repr(C, align(64))]
pub(crate) struct Tls {
    /// Word that a hooked call compares with the process's page, and the only one that a launch compares: the thread's
    /// epoch, or, during a hooked call, the stack address of that call, which is not an epoch.
    pub(crate) ready: Cell<u64>,
    /// Epoch of the process state that the rest was filled under; 0: not yet.
    pub(crate) epoch: Cell<u64>,
    /// Join generation that `lane`, `counts`, `cache` and `memory` belong to.
    pub(crate) generation: Cell<u64>,
    /// Kernels this thread has launched lately.
    pub(crate) cache: Cell<*const KernelCache>,
    /// Strata of this thread's launches, while launches are timed.
    pub(crate) strata: Cell<*const StrataCache>,
    /// The thread's counters in the segment.
    pub(crate) lane: Cell<Option<telemetry::Lane>>,
    /// The thread's counters of allocations in the segment.
    pub(crate) counts: Cell<telemetry::OwnCounts>,
    /// Words for the memory hooks; zeroed whenever the process joins anew.
    pub(crate) memory: [Cell<u64>; 16],
    /// Open ranges of the program.
    pub(crate) nesting: Nesting,
}

impl Tls {
    /// Stack address of the hooked call under way; 0: none.
    #[inline(always)]
    pub(crate) fn call_under_way(&self) -> u64 {
        let ready = self.ready.get();
        if ready == self.epoch.get() || ready == NOT_READY { 0 } else { ready }
    }

    /// Marks a hooked call as under way.
    #[inline(always)]
    pub(crate) fn enter(&self, stack: u64) {
        self.ready.set(stack);
    }

    /// The kernels that the thread has launched lately.
    #[inline(always)]
    pub(crate) fn kernels(&self) -> &KernelCache {
        // SAFETY: a thread with a valid epoch has been given a cache, which is never unmapped.
        unsafe { &*self.cache.get() }
    }

    /// Ends [`Tls::enter`].
    #[inline(always)]
    pub(crate) fn leave(&self) {
        self.ready.set(self.epoch.get());
    }
}

const TLS_BYTES: usize = 512;
const _: () = assert!(size_of::<Tls>() <= TLS_BYTES);

#[cfg(target_arch = "x86_64")]
mod place {
    use super::{NOT_READY, TLS_BYTES, Tls};

    core::arch::global_asm!(
        ".pushsection .tdata.radrm_tls,\"awT\",@progbits",
        ".balign 64",
        ".globl radrm_tls",
        ".hidden radrm_tls",
        ".type radrm_tls,@object",
        ".size radrm_tls, {bytes}",
        "radrm_tls:",
        ".quad {start}",
        ".zero {bytes} - 8",
        ".popsection",
        bytes = const TLS_BYTES,
        start = const NOT_READY as i64,
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

    // What the standard library's thread-locals call for their address. The loader's function of this name would make the
    // library need glibc's loader, and a program of musl would not start with it. All thread-locals of the library lie in
    // one block, which the loader places beside those of the program (initial-exec above demands it): the address is that
    // of the symbol above, less its offset in the block, plus the offset that is asked for.
    #[cfg(not(test))]
    core::arch::global_asm!(
        ".pushsection .text.radrm_tls_address,\"ax\",@progbits",
        ".balign 16",
        ".globl __tls_get_addr",
        ".hidden __tls_get_addr",
        ".type __tls_get_addr,@function",
        "__tls_get_addr:",
        "endbr64",
        "movq radrm_tls@GOTTPOFF(%rip), %rax",
        "addq %fs:0, %rax",
        "subq $radrm_tls@DTPOFF, %rax",
        "addq 8(%rdi), %rax",
        "retq",
        ".size __tls_get_addr, . - __tls_get_addr",
        ".popsection",
        options(att_syntax),
    );
}

#[cfg(not(target_arch = "x86_64"))]
mod place {
    use super::{NOT_READY, TLS_BYTES, Tls};

    #[repr(align(64))]
    struct Room(core::cell::UnsafeCell<[u64; TLS_BYTES / 8]>);

    const START: [u64; TLS_BYTES / 8] = {
        let mut words = [0; TLS_BYTES / 8];
        words[0] = NOT_READY;
        words
    };

    thread_local! {
        static ROOM: Room = const { Room(core::cell::UnsafeCell::new(START)) };
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
