//! Taking processes off their GPUs and bringing them back: `cuCheckpointProcess*`.
//!
//! What happens is [`radrm_emulator_machine`]'s; here are the calls' arguments and codes. Restoring onto
//! other GPUs than before, and storage of the caller's own for the memory, are not modelled.

use core::ffi::c_int;
use std::time::Duration;

use radrm_cuda_abi::*;
use radrm_emulator_machine::CheckpointError;

use crate::util::ffi::{Answer, In, Out};

/// Whether an entry point is one of these: they must work in a process that locked itself.
pub const fn controls(name: &str) -> bool {
    const PREFIX: &[u8] = b"cuCheckpoint";
    let name = name.as_bytes();
    let mut at = 0;
    while at < PREFIX.len() {
        if at >= name.len() || name[at] != PREFIX[at] {
            return false;
        }
        at += 1;
    }
    true
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

entry_points! {
    /// How far a process's checkpoint is.
    fn cuCheckpointProcessGetState(pid: c_int, state: Out<CUprocessState>) |driver| {
        state.required()?;
        let found = driver.machine.checkpoint_state(process(pid)?).map_err(code)?;
        state.set(CUprocessState(found as u32))
    }

    /// The thread of a process that must make the restore where a whole process is brought back: the first.
    fn cuCheckpointProcessGetRestoreThreadId(pid: c_int, thread: Out<c_int>) |driver| {
        thread.required()?;
        driver.machine.checkpoint_state(process(pid)?).map_err(code)?;
        thread.set(pid)
    }

    /// Blocks further calls of a process when what is under way is done.
    fn cuCheckpointProcessLock(pid: c_int, args: In<CUcheckpointLockArgs>) |driver| {
        reserved(args, |args| args.reserved0 == 0 && args.reserved1 == [0; 7])?;
        let timeout = if args.is_null() { 0 } else { args.get()?.timeoutMs };
        let timeout = (timeout > 0).then(|| Duration::from_millis(u64::from(timeout)));
        driver.machine.lock_process(process(pid)?, timeout).map_err(code)
    }

    /// Takes a locked process's memory off its GPUs.
    fn cuCheckpointProcessCheckpoint(pid: c_int, args: In<CUcheckpointCheckpointArgs>) |driver| {
        reserved(args, |args| args.reserved == [0; 8])?;
        driver.machine.checkpoint_process(process(pid)?).map_err(code)
    }

    /// Brings a checkpointed process's memory back to the GPUs that it was on.
    fn cuCheckpointProcessRestore(pid: c_int, args: In<CUcheckpointRestoreArgs>) |driver| {
        reserved(args, |args| args.padding0 == 0 && args.reserved == [0; 5])?;
        if !args.is_null() {
            let args = args.get()?;
            let pairs = In::<CUcheckpointGpuPair>::from_raw(args.gpuPairs).list(args.gpuPairsCount as usize)?;
            if pairs.iter().any(|pair| pair.oldUuid.bytes != pair.newUuid.bytes) || !args.customStorageInfo_out.is_null() {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
        }
        driver.machine.restore_process(process(pid)?).map_err(code)
    }

    /// Lets a locked process go on.
    fn cuCheckpointProcessUnlock(pid: c_int, args: In<CUcheckpointUnlockArgs>) |driver| {
        reserved(args, |args| args.reserved == [0; 8])?;
        driver.machine.unlock_process(process(pid)?).map_err(code)
    }
}
