//! The shell of `cuLaunchKernel` and its kin, by hand.
//!
//! Such a call has up to eleven arguments, five of them on the stack, which a compiled shell loads,
//! spills and pushes beside six saved registers: 2 ns more than this. What it does is what the
//! generated shells of kind `hot` do (see `build.rs`): where the thread is ready (`shell::ready`) and
//! the function's counters are in its cache (`cache::KernelCache::get`), make the call and add to the
//! counters if it succeeds; in all other cases jump on to the compiled shell.
//!
//! One thing differs. A shell by hand knows its caller, so it need not mark the call as under way: a
//! call that comes from inside the driver's library is jumped on to the driver.

use core::mem::offset_of;

use crate::kernels::cache;
use crate::state::Page;
use crate::telemetry::LaneRow;
use crate::tls::Tls;

/// Offset of the cache's address in the thread's state.
pub(crate) const CACHE: usize = offset_of!(Tls, cache);
/// Offset of the counters in an entry of the cache.
pub(crate) const ROW: usize = cache::ROW_OFFSET;
/// Bits of a function's handle, xored with itself shifted by eight, that are its entry's offset.
pub(crate) const ENTRY_MASK: usize = cache::OFFSET_MASK;

const _: () = {
    assert!(offset_of!(Tls, ready) == 0 && Page::FAST_OFFSET == 0);
    assert!(offset_of!(LaneRow, launches) == 0 && offset_of!(LaneRow, blocks) == 8);
    assert!(offset_of!(LaneRow, threads) == 16 && offset_of!(LaneRow, dynamic_shared) == 24);
};

/// Bytes of the shell's frame: copies of the stack arguments, then counters, blocks, threads. The stack
/// pointer is 8 off its alignment at entry.
pub(crate) const fn frame(on_stack: usize) -> usize {
    let used = 8 * on_stack + 24;
    used + if used.is_multiple_of(16) { 8 } else { 0 }
}

/// Where the two products lie in the frame: aligned, so that one store writes both.
pub(crate) const fn products(on_stack: usize) -> usize {
    (8 * on_stack).next_multiple_of(16)
}

/// Where the counters' address lies in the frame: beside the products, whichever place is left.
pub(crate) const fn counters(on_stack: usize) -> usize {
    if on_stack.is_multiple_of(2) { 8 * on_stack + 16 } else { 8 * on_stack }
}

/// The body of a naked shell: entry number, compiled shell, number of arguments on the stack.
///
/// At entry: rdi function, rsi, rdx, rcx grid, r8, r9 block, then on the stack the block's third size,
/// the dynamic shared memory, and what is only passed on. Free registers: rax, r10, r11.
macro_rules! launch_shell {
    ($id:literal, $cold:ident, 5) => {
        launch_shell!(@ $id, $cold, 5, "mov rax, qword ptr [rsp + {frame} + 40]\nmov qword ptr [rsp + 32], rax")
    };
    ($id:literal, $cold:ident, 4) => {
        launch_shell!(@ $id, $cold, 4, "")
    };
    (@ $id:literal, $cold:ident, $on_stack:literal, $fifth:literal) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            // Ready? The thread's first word is the page's first word.
            "mov rax, qword ptr [rip + radrm_tls@GOTTPOFF]",
            "mov r10, qword ptr [rip + {page}]",
            "cmp r10, qword ptr fs:[rax]",
            "jne 9f",
            // The function's counters in the thread's cache, to r10.
            "mov r11, qword ptr fs:[rax + {cache}]",
            "mov r10d, edi",
            "shr r10d, 8",
            "xor r10d, edi",
            "and r10d, {mask}",
            "cmp qword ptr [r11 + r10], rdi",
            "jne 9f",
            "mov r10, qword ptr [r11 + r10 + {row}]",
            "mov r11, qword ptr [rip + {real} + 8 * {id}]",
            "test r11, r11",
            "je 9f",
            // Called by the driver itself?
            "mov rax, qword ptr [rsp]",
            "sub rax, qword ptr [rip + {driver}]",
            "cmp rax, qword ptr [rip + {driver} + 8]",
            "jb 7f",
            "sub rsp, {frame}",
            ".cfi_adjust_cfa_offset {frame}",
            "mov qword ptr [rsp + {counters}], r10",
            // What such a loop runs out of is room for stores, so two values go in one.
            // Blocks of the grid, then threads of the grid. In a launch that can succeed the grid's second and
            // third size are below 2^16 and a block has at most 1024 threads: 32 bits hold either product.
            "mov eax, edx",
            "imul eax, ecx",
            "mov r10d, esi",
            "imul rax, r10",
            "movq xmm0, rax",
            "mov r10d, dword ptr [rsp + {frame} + 8]",
            "imul r10d, r8d",
            "imul r10d, r9d",
            "imul rax, r10",
            "movq xmm1, rax",
            "punpcklqdq xmm0, xmm1",
            "movaps xmmword ptr [rsp + {products}], xmm0",
            // The stack arguments.
            "movq xmm0, qword ptr [rsp + {frame} + 8]",
            "movhps xmm0, qword ptr [rsp + {frame} + 16]",
            "movaps xmmword ptr [rsp], xmm0",
            "movq xmm1, qword ptr [rsp + {frame} + 24]",
            "movhps xmm1, qword ptr [rsp + {frame} + 32]",
            "movaps xmmword ptr [rsp + 16], xmm1",
            $fifth,
            "call r11",
            // `telemetry::Row::launch` after success.
            "test eax, eax",
            "jne 8f",
            "mov rcx, qword ptr [rsp + {counters}]",
            "mov rdx, qword ptr [rsp + {products}]",
            "mov rsi, qword ptr [rsp + {products} + 8]",
            "mov edi, dword ptr [rsp + 8 + {frame} + 8]",
            "add qword ptr [rcx], 1",
            "add qword ptr [rcx + 8], rdx",
            "add qword ptr [rcx + 16], rsi",
            "test edi, edi",
            "je 8f",
            "add qword ptr [rcx + 24], rdi",
            "8:",
            "add rsp, {frame}",
            ".cfi_adjust_cfa_offset -{frame}",
            "ret",
            "7:",
            "jmp r11",
            "9:",
            "jmp {cold}",
            ".cfi_endproc",
            page = sym crate::state::PAGE,
            real = sym crate::resolve::RADRM_REAL,
            driver = sym crate::resolve::RADRM_DRIVER,
            cold = sym $cold,
            id = const $id,
            cache = const crate::launch_shell::CACHE,
            row = const crate::launch_shell::ROW,
            mask = const crate::launch_shell::ENTRY_MASK,
            frame = const crate::launch_shell::frame($on_stack),
            counters = const crate::launch_shell::counters($on_stack),
            products = const crate::launch_shell::products($on_stack),
        )
    };
}
