//! Taking processes off their GPUs and bringing them back: `cuCheckpointProcess*`.
//!
//! [`radrm_emulator_machine`] does the operations; this module has the calls' arguments and codes.
//! Restoring onto other GPUs than before, and storage of the caller's own for the memory, are not modelled.

use core::ffi::c_int;
use std::time::Duration;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{CheckpointError, Machine};

use crate::api::entry;
use crate::util::ffi::{Answer, In, Out};

/// Writes entry points that get the machine. They need no `cuInit`, and no lock holds them back: they must work in a
/// process that locked itself.
macro_rules! controls {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) |$machine:pat_param| $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// Every pointer is null or points to what the interface's documentation asks for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
            entry::call_before_init(|driver| {
                let opened;
                let $machine = match driver {
                    Some(driver) => &driver.machine,
                    None => {
                        opened = Machine::from_environment().map_err(|_| CUDA_ERROR_NOT_INITIALIZED)?;
                        &opened
                    }
                };
                $body
            })
        }
    )*};
}

fn code(error: CheckpointError) -> CUresult {
    match error {
        CheckpointError::NoProcess => CUDA_ERROR_INVALID_VALUE,
        CheckpointError::NoDriver => CUDA_ERROR_NOT_INITIALIZED,
        CheckpointError::NotPermitted => CUDA_ERROR_OPERATING_SYSTEM,
        CheckpointError::WrongState => CUDA_ERROR_ILLEGAL_STATE,
        CheckpointError::Timeout => CUDA_ERROR_NOT_READY,
        CheckpointError::Unsupported | CheckpointError::Imported => CUDA_ERROR_NOT_SUPPORTED,
        CheckpointError::NoMemory => CUDA_ERROR_OUT_OF_MEMORY,
    }
}

fn process(pid: c_int) -> Answer<u32> {
    u32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// Reserved words must be zero, in arguments that need not be there.
fn reserved<T: Copy>(args: In<T>, words: impl FnOnce(T) -> bool) -> Answer {
    if args.is_null() || words(args.get()?) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

controls! {
    /// Checkpoint state of a process.
    fn cuCheckpointProcessGetState(pid: c_int, state: Out<CUprocessState>) |machine| {
        state.required()?;
        let found = machine.checkpoint_state(process(pid)?).map_err(code)?;
        state.set(CUprocessState(found as u32))
    }

    /// The thread of a process that must make the restore where a whole process is brought back: the first.
    fn cuCheckpointProcessGetRestoreThreadId(pid: c_int, thread: Out<c_int>) |machine| {
        thread.required()?;
        machine.checkpoint_state(process(pid)?).map_err(code)?;
        thread.set(pid)
    }

    /// Blocks further calls of a process when what is under way is done.
    fn cuCheckpointProcessLock(pid: c_int, args: In<CUcheckpointLockArgs>) |machine| {
        reserved(args, |args| args.reserved0 == 0 && args.reserved1 == [0; 7])?;
        let timeout = if args.is_null() { 0 } else { args.get()?.timeoutMs };
        let timeout = (timeout > 0).then(|| Duration::from_millis(u64::from(timeout)));
        machine.lock_process(process(pid)?, timeout).map_err(code)
    }

    /// Takes a locked process's memory off its GPUs.
    fn cuCheckpointProcessCheckpoint(pid: c_int, args: In<CUcheckpointCheckpointArgs>) |machine| {
        reserved(args, |args| args.reserved == [0; 8])?;
        machine.checkpoint_process(process(pid)?).map_err(code)
    }

    /// Brings a checkpointed process's memory back to the GPUs that it was on.
    fn cuCheckpointProcessRestore(pid: c_int, args: In<CUcheckpointRestoreArgs>) |machine| {
        reserved(args, |args| args.padding0 == 0 && args.reserved == [0; 5])?;
        if !args.is_null() {
            let args = args.get()?;
            let pairs = In::<CUcheckpointGpuPair>::from_raw(args.gpuPairs).list(args.gpuPairsCount as usize)?;
            if pairs.iter().any(|pair| pair.oldUuid.bytes != pair.newUuid.bytes) || !args.customStorageInfo_out.is_null() {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
        }
        machine.restore_process(process(pid)?).map_err(code)
    }

    /// Lets a locked process go on.
    fn cuCheckpointProcessUnlock(pid: c_int, args: In<CUcheckpointUnlockArgs>) |machine| {
        reserved(args, |args| args.reserved == [0; 8])?;
        machine.unlock_process(process(pid)?).map_err(code)
    }
}
