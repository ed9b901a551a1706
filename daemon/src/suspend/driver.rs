//! The driver's calls, from a library that is opened when it is needed.

use std::ffi::{c_int, c_uint};
use std::path::Path;

use libloading::{Library, Symbol};
use radrm_cuda_abi::*;

use crate::error::DaemonError;

/// The first version of the driver's interface (`cuDriverGetVersion`) with these calls: driver 570.
pub(super) const FIRST: u32 = 12_080;

/// Operation on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// With a time in ms, never without end.
    Lock(u32),
    Checkpoint,
    Restore,
    Unlock,
}

/// The part of a driver that suspends processes.
pub(super) trait Driver {
    /// The state of a process.
    fn state(&self, pid: u32) -> Result<CUprocessState, CUresult>;
    /// Brings it to another.
    fn act(&self, act: Act, pid: u32) -> Result<(), CUresult>;
}

type GetState = unsafe extern "C" fn(c_int, *mut CUprocessState) -> CUresult;
type Lock = unsafe extern "C" fn(c_int, *mut CUcheckpointLockArgs) -> CUresult;
type Checkpoint = unsafe extern "C" fn(c_int, *mut CUcheckpointCheckpointArgs) -> CUresult;
type Restore = unsafe extern "C" fn(c_int, *mut CUcheckpointRestoreArgs) -> CUresult;
type Unlock = unsafe extern "C" fn(c_int, *mut CUcheckpointUnlockArgs) -> CUresult;

/// The real driver, or the emulated one.
pub(super) struct Loaded {
    get_state: GetState,
    lock: Lock,
    checkpoint: Checkpoint,
    restore: Restore,
    unlock: Unlock,
    /// Library in which the functions lie.
    _library: Library,
}

impl Loaded {
    /// Opens the driver, and starts it: a restore needs persistence mode or this.
    pub(super) fn open(path: &Path) -> Result<Self, DaemonError> {
        let failed = |error: libloading::Error| DaemonError::by(path, "", error);
        // SAFETY: the driver's own library, whose initialisers every program with CUDA runs.
        let library = unsafe { Library::new(path) }.map_err(failed)?;
        // SAFETY: the types are those of the driver's prototypes.
        let loaded = unsafe {
            let init: Symbol<'_, unsafe extern "C" fn(c_uint) -> CUresult> =
                library.get(b"cuInit\0").map_err(failed)?;
            let result = init(0);
            if !result.is_ok() {
                return Err(DaemonError::CuInit(name(result)));
            }
            Self {
                get_state: *library.get::<GetState>(b"cuCheckpointProcessGetState\0").map_err(failed)?,
                lock: *library.get::<Lock>(b"cuCheckpointProcessLock\0").map_err(failed)?,
                checkpoint: *library.get::<Checkpoint>(b"cuCheckpointProcessCheckpoint\0").map_err(failed)?,
                restore: *library.get::<Restore>(b"cuCheckpointProcessRestore\0").map_err(failed)?,
                unlock: *library.get::<Unlock>(b"cuCheckpointProcessUnlock\0").map_err(failed)?,
                _library: library,
            }
        };
        Ok(loaded)
    }
}

impl Driver for Loaded {
    fn state(&self, pid: u32) -> Result<CUprocessState, CUresult> {
        let mut state = CU_PROCESS_STATE_RUNNING;
        // SAFETY: room for a state.
        let result = unsafe { (self.get_state)(pid.cast_signed(), &raw mut state) };
        if result.is_ok() { Ok(state) } else { Err(result) }
    }

    fn act(&self, act: Act, pid: u32) -> Result<(), CUresult> {
        let pid = pid.cast_signed();
        // SAFETY: arguments are null, which is allowed, or live over the call.
        let result = unsafe {
            match act {
                Act::Lock(ms) => {
                    let mut args = CUcheckpointLockArgs { timeoutMs: ms.max(1), ..Default::default() };
                    (self.lock)(pid, &raw mut args)
                }
                Act::Checkpoint => (self.checkpoint)(pid, std::ptr::null_mut()),
                Act::Restore => (self.restore)(pid, std::ptr::null_mut()),
                Act::Unlock => (self.unlock)(pid, std::ptr::null_mut()),
            }
        };
        if result.is_ok() { Ok(()) } else { Err(result) }
    }
}

/// A code by its name, as far as it has one here.
pub(super) fn name(code: CUresult) -> String {
    let known = RESULTS.iter().find(|(known, ..)| *known == code);
    known.map_or_else(|| format!("code {}", code.0), |(_, name, _)| (*name).to_owned())
}
