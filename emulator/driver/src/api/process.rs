//! The process's driver: where it is made, and how entry points get it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use radrm_cuda_abi::*;
use radrm_emulator_machine::{ENV_FAULTS, FaultPlan, Machine};

use crate::engine::driver::Driver;
use crate::util::ffi::Answer;
use crate::util::sync::lock;

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// Set in a child of fork whose parent had a driver: such a child has none and cannot get one.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Makes the driver, or says why not.
///
/// # Errors
/// CUDA_ERROR_NOT_INITIALIZED in a child of fork, CUDA_ERROR_NO_DEVICE and the like.
pub fn init() -> Answer<&'static Driver> {
    static MAKING: Mutex<()> = Mutex::new(());
    if FORKED.load(Relaxed) {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let _making = lock(&MAKING);
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let driver = Driver::new()?;
    // SAFETY: the handler only stores to a static.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    Ok(DRIVER.get_or_init(|| driver))
}

/// Driver version and faults from the environment, for calls before `cuInit`.
/// Runtimes look up entry points first. Read once.
pub struct Early {
    /// Version of the driver.
    pub version: u32,
    /// Faults to inject.
    pub faults: FaultPlan,
}

/// See [`Early`].
pub fn early() -> &'static Early {
    static EARLY: OnceLock<Early> = OnceLock::new();
    EARLY.get_or_init(|| {
        let text = std::env::var(ENV_FAULTS).unwrap_or_default();
        let faults = FaultPlan::parse(&text).unwrap_or_default();
        let machine = || Machine::from_environment().ok().map(|m| m.spec().driver_version);
        Early { version: faults.driver.or_else(machine).unwrap_or(DEFAULT_VERSION), faults }
    })
}

/// Version of the driver where no machine can be read.
const DEFAULT_VERSION: u32 = 13000;

extern "C" fn forked() {
    if DRIVER.get().is_some() {
        FORKED.store(true, Relaxed);
    }
}

/// The driver.
///
/// # Errors
/// CUDA_ERROR_NOT_INITIALIZED before `cuInit`, and in a child made by fork.
#[inline]
pub fn driver() -> Answer<&'static Driver> {
    if FORKED.load(Relaxed) {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    DRIVER.get().ok_or(CUDA_ERROR_NOT_INITIALIZED)
}
