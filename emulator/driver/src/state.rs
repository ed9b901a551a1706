//! The process's driver: what `cuInit` makes, and what every call begins with.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

use radrm_cuda_abi::*;
use radrm_emulator_machine::{ENV_FAULTS, FaultPlan, GpuSpec, Machine, MachineError, Mark, Process};

use crate::context::Context;
use crate::device::{self, Device};
use crate::ffi::Answer;
use crate::memory::Memory;
use crate::{launch, stream};

/// Everything that this process has of the machine. Made once, by the first `cuInit` that succeeds.
pub struct Driver {
    /// The machine.
    pub machine: Machine,
    /// This process's slot on it.
    pub process: Process,
    /// What shall go wrong.
    pub faults: FaultPlan,
    /// Whether anything shall go wrong.
    pub faulty: bool,
    /// The devices that `CUDA_VISIBLE_DEVICES` leaves, by ordinal.
    pub devices: Vec<Device>,
    /// All contexts by handle.
    pub contexts: Registry<Context>,
    /// Everything about memory.
    pub memory: Memory,
    /// Whether device memory has real pages behind it (`RADRM_EMULATOR_BACKED=1`).
    pub backed: bool,
    /// Whether calls without semantics are named on standard error (`RADRM_EMULATOR_LOG=1`).
    pub log: bool,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// Set in a child of fork whose parent had a driver: such a child has none and cannot get one.
static FORKED: AtomicBool = AtomicBool::new(false);

impl Driver {
    fn new() -> Answer<Self> {
        let machine = Machine::from_environment().map_err(|e| match e {
            MachineError::Full(_) => CUDA_ERROR_OUT_OF_MEMORY,
            _ => CUDA_ERROR_NO_DEVICE,
        })?;
        let text = std::env::var(ENV_FAULTS).unwrap_or_default();
        // A plan that is not understood must not pass for no plan.
        let faults = FaultPlan::parse(&text).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let devices: Vec<Device> = device::visible(machine.spec(), visible.as_deref())
            .into_iter()
            .enumerate()
            .map(|(ordinal, gpu)| Device::new(machine.spec(), ordinal, gpu))
            .collect();
        if devices.is_empty() {
            return Err(CUDA_ERROR_NO_DEVICE);
        }
        let process = machine.join().map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        if launch::mps::is_client() {
            process.mark(Mark::Mps);
        }
        let on = |name: &str| std::env::var(name).is_ok_and(|v| v == "1");
        let backed = on("RADRM_EMULATOR_BACKED");
        Ok(Self {
            memory: Memory::new(&devices, backed),
            machine,
            process,
            faulty: !faults.is_empty(),
            faults,
            devices,
            contexts: Registry::default(),
            backed,
            log: on("RADRM_EMULATOR_LOG"),
        })
    }

    /// What `cuDriverGetVersion` says.
    pub fn version(&self) -> u32 {
        self.faults.driver.unwrap_or(self.machine.spec().driver_version)
    }

    /// A device by ordinal.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_DEVICE.
    pub fn device(&self, ordinal: CUdevice) -> Answer<&Device> {
        usize::try_from(ordinal).ok().and_then(|i| self.devices.get(i)).ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    /// Figures of a device.
    pub fn gpu_spec(&self, device: &Device) -> &GpuSpec {
        &self.machine.spec().gpu[device.gpu]
    }

    /// The calling thread's context, ready for work.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_CONTEXT if there is none, CUDA_ERROR_CONTEXT_IS_DESTROYED, or the error
    /// that broke it.
    pub fn current(&self) -> Answer<Arc<Context>> {
        let context = crate::context::current().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        context.check()?;
        Ok(context)
    }
}

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

/// What the environment says before `cuInit`: runtimes look entry points up first. Read once.
pub struct Early {
    /// Version of the driver.
    pub version: u32,
    /// What shall go wrong.
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

/// Runs one call: everything that all calls have in common is here.
#[inline]
pub fn call<const GATED: bool>(name: &'static str, work: impl FnOnce(&'static Driver) -> Answer) -> CUresult {
    let driver = match driver() {
        Ok(driver) => driver,
        Err(code) => return code,
    };
    if driver.faulty {
        if driver.faults.slow_ns > 0 {
            wait(driver.faults.slow_ns);
        }
        if driver.faults.missing.contains(name) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    // Host functions run as part of work that a lock waits for.
    let _inside = (GATED && stream::queue::not_in_callback().is_ok()).then(|| driver.process.enter());
    guarded(|| work(driver))
}

/// Runs a call that is allowed before `cuInit`; the driver is there if it was made.
pub fn call_before_init(work: impl FnOnce(Option<&'static Driver>) -> Answer) -> CUresult {
    guarded(|| work(driver().ok()))
}

fn guarded(work: impl FnOnce() -> Answer) -> CUresult {
    // A defect here must not unwind into a C caller.
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(Ok(())) => CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CUDA_ERROR_UNKNOWN,
    }
}

fn wait(ns: u64) {
    if ns >= 50_000 {
        std::thread::sleep(std::time::Duration::from_nanos(ns));
        return;
    }
    let start = std::time::Instant::now();
    while (start.elapsed().as_nanos() as u64) < ns {
        std::hint::spin_loop();
    }
}

/// A lock that a panic elsewhere does not poison.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

static NEXT_HANDLE: AtomicU64 = AtomicU64::new(1);

/// A handle's value: unique in the process, never an address that can be read.
pub fn new_handle() -> u64 {
    0x0000_6e00_0000_0000 + NEXT_HANDLE.fetch_add(1, Relaxed) * 0x40
}

/// Objects by handle.
pub struct Registry<T> {
    objects: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { objects: RwLock::new(HashMap::new()) }
    }
}

impl<T> Registry<T> {
    /// Keeps an object under a handle.
    pub fn insert(&self, handle: u64, object: Arc<T>) {
        self.objects.write().unwrap_or_else(std::sync::PoisonError::into_inner).insert(handle, object);
    }

    /// The object of a handle.
    pub fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.objects.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(&handle).cloned()
    }

    /// Takes an object out.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.objects.write().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&handle)
    }

    /// All objects, in no order.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.objects.read().unwrap_or_else(std::sync::PoisonError::into_inner).values().cloned().collect()
    }
}
