//! The short way of a launch of which only counts are kept, while launches are timed; by hand, for the reasons that
//! `launch_shell` gives.
//!
//! Where the thread is ready and the launch's stratum is in its cache and not due, make the call, count the launch
//! down and add to the counters if it succeeds; in all other cases jump on to the compiled shell. A
//! [`strata::StrataCache`] is known to a thread only once calls need not be marked
//! (`resolve::launches_are_direct`).
//!
//! Values that are kept over the call stand below the stack pointer until it is certain that the call is made here:
//! entry, blocks and threads of the grid, from the return address downwards.
//!
//! [`strata::StrataCache`]: super::strata::StrataCache

use core::mem::offset_of;

use crate::tls::Tls;

/// Offset of the address of the thread's strata in its state.
pub(crate) const STRATA: usize = offset_of!(Tls, strata);

/// The beginning of a shell: the thread is ready, the job has no launch budget. The strata's address comes to r11.
macro_rules! timed_prologue {
    () => {
        concat!(
            ".cfi_startproc\n",
            // Ready, and no launch budget?
            "mov rax, qword ptr [rip + radrm_tls@GOTTPOFF]\n",
            "mov r10, qword ptr [rip + {page}]\n",
            "xor r10, qword ptr fs:[rax]\n",
            "or r10, qword ptr [rip + {control} + {budget}]\n",
            "jne 9f\n",
            "mov r11, qword ptr fs:[rax + {strata}]\n",
        )
    };
}

/// With the function's handle in `$function`, the grid's blocks in rax and its threads in r10: finds the
/// stratum's entry, which is not due, and makes room on the stack.
macro_rules! timed_entry {
    ($function:literal, $function32:literal) => {
        concat!(
            "mov qword ptr [rsp - 16], rax\n",
            "mov qword ptr [rsp - 24], r10\n",
            // `SizeClass::of_threads`, `strata::StrataCache::entry`.
            "bsr rax, r10\n",
            "je 9f\n",
            "inc eax\n",
            "mov r10d, eax\n",
            "xor r10d, ",
            $function32,
            "\n",
            "imul r10d, r10d, {factor}\n",
            "shr r10d, {shift}\n",
            "shl r10d, {entry_shift}\n",
            "add r11, r10\n",
            // `strata::Entry::is`, `strata::Entry::is_due`.
            "inc eax\n",
            "shl rax, {class_shift}\n",
            "xor rax, ",
            $function,
            "\n",
            "cmp rax, qword ptr [r11 + {key}]\n",
            "jne 9f\n",
            "cmp qword ptr [r11 + {left}], 1\n",
            "jbe 9f\n",
            "mov qword ptr [rsp - 8], r11\n",
            "sub rsp, {frame}\n",
            ".cfi_adjust_cfa_offset {frame}\n",
        )
    };
}

/// The end of a shell: `strata::Entry::launched` after success.
macro_rules! timed_epilogue {
    () => {
        concat!(
            "test eax, eax\n",
            "jne 8f\n",
            "mov r11, qword ptr [rsp + {frame} - 8]\n",
            "mov rdx, qword ptr [rsp + {frame} - 16]\n",
            "mov rsi, qword ptr [rsp + {frame} - 24]\n",
            "mov rcx, qword ptr [r11 + {row}]\n",
            "sub qword ptr [r11 + {left}], 1\n",
            "mov edi, dword ptr [rsp + {shared}]\n",
            "add qword ptr [rcx], 1\n",
            "add qword ptr [rcx + 8], rdx\n",
            "add qword ptr [rcx + 16], rsi\n",
            "add qword ptr [rcx + 24], rdi\n",
            "8:\n",
            "add rsp, {frame}\n",
            ".cfi_adjust_cfa_offset -{frame}\n",
            "ret\n",
            "9:\n",
            "jmp {cold}\n",
            ".cfi_endproc\n",
        )
    };
}

/// The body of a naked shell for the arguments of `cuLaunchKernel`: entry number, compiled shell, number
/// of arguments on the stack. Registers as in `launch_shell`.
macro_rules! timed_shell {
    // With three words kept, five arguments leave the stack 8 off its alignment.
    ($id:literal, $cold:ident, 5) => {
        $crate::kernels::timing::shell::timed_shell!(
            @ $id, $cold, 9, "mov rax, qword ptr [rsp + {frame} + 40]\nmov qword ptr [rsp + 32], rax"
        )
    };
    ($id:literal, $cold:ident, 4) => {
        $crate::kernels::timing::shell::timed_shell!(@ $id, $cold, 7, "")
    };
    (@ $id:literal, $cold:ident, $words:literal, $fifth:literal) => {
        core::arch::naked_asm!(
            $crate::kernels::timing::shell::timed_prologue!(),
            // As in `launch_shell`.
            "mov eax, edx",
            "imul eax, ecx",
            "mov r10d, esi",
            "imul rax, r10",
            "mov r10d, dword ptr [rsp + 8]",
            "imul r10d, r8d",
            "imul r10d, r9d",
            "imul r10, rax",
            $crate::kernels::timing::shell::timed_entry!("rdi", "edi"),
            "movq xmm0, qword ptr [rsp + {frame} + 8]",
            "movhps xmm0, qword ptr [rsp + {frame} + 16]",
            "movaps xmmword ptr [rsp], xmm0",
            "movq xmm1, qword ptr [rsp + {frame} + 24]",
            "movhps xmm1, qword ptr [rsp + {frame} + 32]",
            "movaps xmmword ptr [rsp + 16], xmm1",
            $fifth,
            "call qword ptr [rip + {real} + 8 * {id}]",
            $crate::kernels::timing::shell::timed_epilogue!(),
            page = sym crate::state::PAGE,
            control = sym crate::throttle::CONTROL,
            budget = const crate::throttle::BUDGET,
            real = sym crate::resolve::RADRM_REAL,
            cold = sym $cold,
            id = const $id,
            strata = const crate::kernels::timing::shell::STRATA,
            factor = const crate::kernels::cache::HASH_FACTOR,
            shift = const crate::kernels::timing::strata::HASH_SHIFT,
            entry_shift = const crate::kernels::timing::strata::ENTRY_SHIFT,
            class_shift = const crate::kernels::timing::strata::CLASS_SHIFT,
            key = const crate::kernels::timing::strata::KEY_AT,
            left = const crate::kernels::timing::strata::LEFT_AT,
            row = const crate::kernels::timing::strata::ROW_AT,
            frame = const 8 * $words,
            // Beyond the frame and the return address: the second of the caller's arguments.
            shared = const 8 * $words + 16,
        )
    };
}

/// The body of a naked shell for the arguments of `cuLaunchKernelEx`: entry number, compiled shell.
macro_rules! timed_ex_shell {
    ($id:literal, $cold:ident) => {
        core::arch::naked_asm!(
            $crate::kernels::timing::shell::timed_prologue!(),
            "test rdi, rdi",
            "je 9f",
            "mov eax, dword ptr [rdi + {dynamic}]",
            "mov dword ptr [rsp - 32], eax",
            "mov eax, dword ptr [rdi + {grid} + 4]",
            "imul eax, dword ptr [rdi + {grid} + 8]",
            "mov r10d, dword ptr [rdi + {grid}]",
            "imul rax, r10",
            "mov r10d, dword ptr [rdi + {block}]",
            "imul r10d, dword ptr [rdi + {block} + 4]",
            "imul r10d, dword ptr [rdi + {block} + 8]",
            "imul r10, rax",
            $crate::kernels::timing::shell::timed_entry!("rsi", "esi"),
            "call qword ptr [rip + {real} + 8 * {id}]",
            $crate::kernels::timing::shell::timed_epilogue!(),
            page = sym crate::state::PAGE,
            control = sym crate::throttle::CONTROL,
            budget = const crate::throttle::BUDGET,
            real = sym crate::resolve::RADRM_REAL,
            cold = sym $cold,
            id = const $id,
            strata = const crate::kernels::timing::shell::STRATA,
            factor = const crate::kernels::cache::HASH_FACTOR,
            shift = const crate::kernels::timing::strata::HASH_SHIFT,
            entry_shift = const crate::kernels::timing::strata::ENTRY_SHIFT,
            class_shift = const crate::kernels::timing::strata::CLASS_SHIFT,
            key = const crate::kernels::timing::strata::KEY_AT,
            left = const crate::kernels::timing::strata::LEFT_AT,
            row = const crate::kernels::timing::strata::ROW_AT,
            grid = const core::mem::offset_of!(CUlaunchConfig, gridDimX),
            block = const core::mem::offset_of!(CUlaunchConfig, blockDimX),
            dynamic = const core::mem::offset_of!(CUlaunchConfig, sharedMemBytes),
            // Entry, blocks, threads, shared memory; and the stack's alignment.
            frame = const 40,
            shared = const 8,
        )
    };
}

pub(crate) use {timed_entry, timed_epilogue, timed_ex_shell, timed_prologue, timed_shell};
