//! The machine, from `nvmlInit` to `nvmlShutdown`.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use radrm_emulator_machine::monotonic_ns as now_ns;
use radrm_emulator_machine::{GpuSpec, Machine};

use crate::api::*;

struct Open {
    machine: Machine,
    references: u64,
}

static OPEN: Mutex<Option<Open>> = Mutex::new(None);

fn open() -> MutexGuard<'static, Option<Open>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the machine, or takes one more reference to it.
///
/// # Errors
/// DRIVER_NOT_LOADED if there is no machine.
pub fn init() -> Answer {
    let mut open = open();
    if let Some(open) = open.as_mut() {
        open.references += 1;
        return Ok(());
    }
    let machine = Machine::from_environment().map_err(|_| ERROR_DRIVER_NOT_LOADED)?;
    *open = Some(Open { machine, references: 1 });
    Ok(())
}

/// Gives a reference back; as in the genuine library there may be none.
///
/// # Errors
/// None.
pub fn shutdown() -> Answer {
    let mut open = open();
    if let Some(held) = open.as_mut() {
        held.references -= 1;
        if held.references == 0 {
            *open = None;
        }
    }
    Ok(())
}

/// The machine.
///
/// # Errors
/// UNINITIALIZED.
pub fn machine() -> Answer<Machine> {
    open().as_ref().map(|open| open.machine.clone()).ok_or(ERROR_UNINITIALIZED)
}

/// `nvmlDevice_t`: names a GPU of the machine, and is no address.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device(usize);

const FIRST: usize = 0x6e76_6d6c_0000;
const STEP: usize = 0x40;

impl Device {
    /// The handle of a GPU.
    pub fn new(gpu: usize) -> Self {
        Self(FIRST + gpu * STEP)
    }

    /// Number of the GPU on the machine.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for what is not a handle, GPU_IS_LOST.
    pub fn gpu(self, machine: &Machine) -> Answer<usize> {
        let distance = self.0.checked_sub(FIRST).ok_or(ERROR_INVALID_ARGUMENT)?;
        let gpu = distance / STEP;
        if distance % STEP != 0 || gpu >= machine.gpu_count() {
            return Err(ERROR_INVALID_ARGUMENT);
        }
        if machine.is_lost(gpu) { Err(ERROR_GPU_IS_LOST) } else { Ok(gpu) }
    }

    /// Figures of the GPU.
    ///
    /// # Errors
    /// As [`Self::gpu`].
    pub fn spec(self, machine: &Machine) -> Answer<&GpuSpec> {
        machine.gpu(self.gpu(machine)?).ok_or(ERROR_INVALID_ARGUMENT)
    }
}
