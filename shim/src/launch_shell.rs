//! The shells of `cuLaunchKernel`, `cuLaunchKernelEx` and their kin, by hand.
//!
//! Such a call has up to eleven arguments, five of them on the stack, which a compiled shell loads, spills and pushes
//! beside six saved registers: 40 instructions and 3 ns more (`bench/RESULTS.md`). What these do is what a generated
//! shell does (see `build.rs`): where the thread is ready (`Tls::ready`), the job has no launch budget (`throttle`) and
//! the function's counters are in its cache (`cache::KernelCache::get`), make the call and add to the counters if it
//! succeeds; in all other cases jump on to the compiled shell.
//!
//! Each instruction counts: a launch is bound by how many of them the processor takes in, the more so while
//! another program runs on the core's other thread. So nothing is checked here that can be settled
//! before a function comes into a cache: that the driver has an entry point to call, and that it does not call
//! itself by exported names, for which a call would have to be marked (`resolve::launches_are_direct`).

use core::mem::offset_of;

use crate::state::Page;
use crate::telemetry::LaneRow;
use crate::tls::Tls;

/// Offset of the cache's address in the thread's state.
pub(crate) const CACHE: usize = offset_of!(Tls, cache);

const _: () = {
    assert!(offset_of!(Tls, ready) == 0 && Page::FAST_OFFSET == 0);
    assert!(offset_of!(LaneRow, launches) == 0 && offset_of!(LaneRow, blocks) == 8);
    assert!(offset_of!(LaneRow, threads) == 16 && offset_of!(LaneRow, dynamic_shared) == 24);
};

/// The beginning of a shell: the thread is ready, the function has counters here; their address goes to
/// the stack. The function's handle is in `$function`. Free registers: rax, r10, r11.
macro_rules! launch_prologue {
    ($function:literal, $function32:literal) => {
        concat!(
            ".cfi_startproc\n",
            // Ready, and no launch budget? The thread's first word is the page's, and the budget's word is 0.
            "mov rax, qword ptr [rip + radrm_tls@GOTTPOFF]\n",
            "mov r10, qword ptr [rip + {page}]\n",
            "xor r10, qword ptr fs:[rax]\n",
            "or r10, qword ptr [rip + {control} + {budget}]\n",
            "jne 9f\n",
            // The function's place in the thread's cache.
            "mov r11, qword ptr fs:[rax + {cache}]\n",
            "imul r10d, ",
            $function32,
            ", {factor}\n",
            "shr r10d, {shift}\n",
            "cmp qword ptr [r11 + 8 * r10], ",
            $function,
            "\n",
            "jne 9f\n",
        )
    };
}

/// The end of a shell: `telemetry::Row::launch` after success. Operands: where counters, blocks, threads,
/// shared memory stand on the stack, and how much of the stack is to be given back.
macro_rules! launch_epilogue {
    () => {
        concat!(
            "test eax, eax\n",
            "jne 8f\n",
            "mov rcx, qword ptr [rsp + {at} + 16]\n",
            "mov rdx, qword ptr [rsp + {at} + 8]\n",
            "mov rsi, qword ptr [rsp + {at}]\n",
            "add qword ptr [rcx], 1\n",
            "add qword ptr [rcx + 8], rdx\n",
            "add qword ptr [rcx + 16], rsi\n",
            "cmp dword ptr [rsp + {shared}], 0\n",
            "jne 7f\n",
            "8:\n",
            "add rsp, {frame}\n",
            ".cfi_adjust_cfa_offset -{frame}\n",
            "ret\n",
            "7:\n",
            ".cfi_adjust_cfa_offset {frame}\n",
            "mov edi, dword ptr [rsp + {shared}]\n",
            "add qword ptr [rcx + 24], rdi\n",
            "add rsp, {frame}\n",
            ".cfi_adjust_cfa_offset -{frame}\n",
            "ret\n",
            "9:\n",
            "jmp {cold}\n",
            ".cfi_endproc\n",
        )
    };
}

/// Something kept over the call.
macro_rules! push {
    ($what:literal) => {
        concat!("push ", $what, "\n.cfi_adjust_cfa_offset 8\n")
    };
}

/// The body of a naked shell for the arguments of `cuLaunchKernel`: entry number, compiled shell, number
/// of arguments on the stack.
///
/// At entry: rdi function, rsi, rdx, rcx grid, r8, r9 block, then on the stack the block's third size,
/// the dynamic shared memory, and what is only passed on.
macro_rules! launch_shell {
    // With three words kept, five arguments leave the stack 8 off its alignment.
    ($id:literal, $cold:ident, 5) => {
        launch_shell!(@ $id, $cold, 5, 1, "mov rax, qword ptr [rsp + {frame} + 40]\nmov qword ptr [rsp + 32], rax")
    };
    ($id:literal, $cold:ident, 4) => {
        launch_shell!(@ $id, $cold, 4, 0, "")
    };
    (@ $id:literal, $cold:ident, $on_stack:literal, $padding:literal, $fifth:literal) => {
        core::arch::naked_asm!(
            launch_prologue!("rdi", "edi"),
            "mov r11, qword ptr [r11 + 8 * r10 + {rows}]",
            "sub rsp, {frame}",
            ".cfi_adjust_cfa_offset {frame}",
            "mov qword ptr [rsp + {at} + 16], r11",
            // Blocks of the grid, then threads of the grid. In a launch that can succeed the grid's second and
            // third size are below 2^16 and a block has at most 1024 threads: 32 bits hold either product.
            "mov eax, edx",
            "imul eax, ecx",
            "mov r10d, esi",
            "imul rax, r10",
            "mov qword ptr [rsp + {at} + 8], rax",
            "mov r10d, dword ptr [rsp + {frame} + 8]",
            "imul r10d, r8d",
            "imul r10d, r9d",
            "imul r10, rax",
            "mov qword ptr [rsp + {at}], r10",
            // The stack arguments, two with one store: each was stored on its own, so each is loaded on its own.
            "movq xmm0, qword ptr [rsp + {frame} + 8]",
            "movhps xmm0, qword ptr [rsp + {frame} + 16]",
            "movaps xmmword ptr [rsp], xmm0",
            "movq xmm1, qword ptr [rsp + {frame} + 24]",
            "movhps xmm1, qword ptr [rsp + {frame} + 32]",
            "movaps xmmword ptr [rsp + 16], xmm1",
            $fifth,
            "call qword ptr [rip + {real} + 8 * {id}]",
            launch_epilogue!(),
            page = sym crate::state::PAGE,
            control = sym crate::throttle::CONTROL,
            budget = const crate::throttle::BUDGET,
            real = sym crate::resolve::RADRM_REAL,
            cold = sym $cold,
            id = const $id,
            cache = const crate::launch_shell::CACHE,
            factor = const crate::kernels::cache::HASH_FACTOR,
            shift = const crate::kernels::cache::HASH_SHIFT,
            rows = const crate::kernels::cache::ROWS_OFFSET,
            at = const 8 * ($on_stack + $padding),
            frame = const 8 * ($on_stack + $padding + 3),
            // Beyond the frame and the return address: the second of the caller's arguments.
            shared = const 8 * ($on_stack + $padding + 3) + 16,
        )
    };
}

/// The body of a naked shell for the arguments of `cuLaunchKernelEx`: entry number, compiled shell.
///
/// At entry: rdi configuration, rsi function, then what is only passed on in rdx and rcx.
macro_rules! launch_ex_shell {
    ($id:literal, $cold:ident) => {
        core::arch::naked_asm!(
            launch_prologue!("rsi", "esi"),
            "test rdi, rdi",
            "je 9f",
            push!("qword ptr [r11 + 8 * r10 + {rows}]"),
            // As in `launch_shell`.
            "mov eax, dword ptr [rdi + {grid} + 4]",
            "imul eax, dword ptr [rdi + {grid} + 8]",
            "mov r10d, dword ptr [rdi + {grid}]",
            "imul rax, r10",
            push!("rax"),
            "mov r10d, dword ptr [rdi + {block}]",
            "imul r10d, dword ptr [rdi + {block} + 4]",
            "imul r10d, dword ptr [rdi + {block} + 8]",
            "imul r10, rax",
            push!("r10"),
            "mov eax, dword ptr [rdi + {dynamic}]",
            // Twice, for the stack's alignment.
            push!("rax"),
            push!("rax"),
            "call qword ptr [rip + {real} + 8 * {id}]",
            launch_epilogue!(),
            page = sym crate::state::PAGE,
            control = sym crate::throttle::CONTROL,
            budget = const crate::throttle::BUDGET,
            real = sym crate::resolve::RADRM_REAL,
            cold = sym $cold,
            id = const $id,
            cache = const crate::launch_shell::CACHE,
            factor = const crate::kernels::cache::HASH_FACTOR,
            shift = const crate::kernels::cache::HASH_SHIFT,
            rows = const crate::kernels::cache::ROWS_OFFSET,
            grid = const core::mem::offset_of!(CUlaunchConfig, gridDimX),
            block = const core::mem::offset_of!(CUlaunchConfig, blockDimX),
            dynamic = const core::mem::offset_of!(CUlaunchConfig, sharedMemBytes),
            at = const 16,
            frame = const 40,
            shared = const 0,
        )
    };
}
