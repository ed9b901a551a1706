//! The driver of a process: everything that it knows and holds.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard};

use radrm_cuda_abi::*;
use radrm_emulator_machine::{
    ENV_FAULTS, ENV_ORDER, FaultPlan, GpuSpec, Machine, MachineError, Mark, Process, time_is_real,
};

use crate::engine::code::state::{Code, Launchable};
use crate::engine::context::{self, Context};
use crate::engine::core_dump::CoreDumps;
use crate::engine::device::Device;
use crate::engine::green::{Green, Greens};
use crate::engine::launches::Launches;
use crate::engine::memory::state::Memory;
use crate::engine::stream::clock::Clock;
use crate::engine::stream::state::{Sched, Scheduler};
use crate::engine::texture::Objects;
use crate::engine::unsupported::Unsupported;
use crate::models::{devices, mps};
use crate::util::ffi::Answer;
use crate::util::handles::{Handles, Registry};
use crate::util::sync::lock;

/// Everything that this process has of the machine. Made once, by the first `cuInit` that succeeds.
pub struct Driver {
    /// The machine.
    pub machine: Machine,
    /// This process's slot on it.
    pub process: Process,
    /// Faults to inject.
    pub faults: FaultPlan,
    /// True if there is any fault to inject.
    pub faulty: bool,
    /// The devices that `CUDA_VISIBLE_DEVICES` leaves, by ordinal.
    pub devices: Vec<Device>,
    /// All contexts by handle.
    pub contexts: Registry<Context>,
    /// Green contexts.
    pub greens: Greens,
    /// Everything about memory.
    pub memory: Memory,
    /// Texture and surface objects.
    pub textures: Mutex<Objects>,
    /// Modules, libraries and what is in them.
    pub code: Code,
    /// Streams, events, captures and graphs.
    pub scheduler: Scheduler,
    /// State that all launches share.
    pub launches: Launches,
    /// Source of handle values.
    pub handles: Handles,
    /// Entry points without semantics that were called.
    pub unsupported: Unsupported,
    /// The process that a dry run was notified of, 0 if none.
    pub noted: AtomicU32,
    /// Core dump attributes of the process.
    pub core_dumps: Mutex<CoreDumps>,
    /// True if device memory has real pages behind it (`RADRM_EMULATOR_BACKED=1`).
    pub backed: bool,
    /// True if calls without semantics are named on standard error (`RADRM_EMULATOR_LOG=1`).
    pub log: bool,
}

impl Driver {
    pub(crate) fn new() -> Answer<Self> {
        let machine = Machine::from_environment().map_err(|e| match e {
            MachineError::Full(_) => CUDA_ERROR_OUT_OF_MEMORY,
            _ => CUDA_ERROR_NO_DEVICE,
        })?;
        let text = std::env::var(ENV_FAULTS).unwrap_or_default();
        // A plan that is not understood must not pass for no plan.
        let faults = FaultPlan::parse(&text).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let all = devices::numbered(machine.spec(), std::env::var(ENV_ORDER).ok().as_deref());
        let devices: Vec<Device> = devices::visible(machine.spec(), &all, visible.as_deref())
            .into_iter()
            .enumerate()
            .map(|(ordinal, gpu)| Device::new(machine.spec(), ordinal, gpu))
            .collect();
        if devices.is_empty() {
            return Err(CUDA_ERROR_NO_DEVICE);
        }
        let process = machine.join().map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        if mps::is_client() {
            process.mark(Mark::Mps);
        }
        let on = |name: &str| std::env::var(name).is_ok_and(|v| v == "1");
        let backed = on("RADRM_EMULATOR_BACKED");
        let handles = Handles::default();
        let clock = Clock::of(&machine, time_is_real());
        Ok(Self {
            memory: Memory::new(&devices, backed),
            code: Code::default(),
            scheduler: Scheduler::new(handles.clone(), clock),
            launches: Launches::new(time_is_real()),
            handles,
            unsupported: Unsupported::default(),
            noted: AtomicU32::new(0),
            machine,
            process,
            faulty: !faults.is_empty(),
            faults,
            devices,
            contexts: Registry::default(),
            greens: Greens::default(),
            textures: Mutex::default(),
            core_dumps: Mutex::new(CoreDumps::new()),
            backed,
            log: on("RADRM_EMULATOR_LOG"),
        })
    }

    /// Driver version that `cuDriverGetVersion` returns.
    pub fn version(&self) -> u32 {
        self.faults.driver.unwrap_or(self.machine.spec().driver_version)
    }

    /// Takes the scheduler's lock.
    pub fn sched(&self) -> MutexGuard<'_, Sched> {
        lock(&self.scheduler.state)
    }

    /// A device by ordinal.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_DEVICE.
    pub fn device(&self, ordinal: CUdevice) -> Answer<&Device> {
        usize::try_from(ordinal).ok().and_then(|i| self.devices.get(i)).ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    /// Multiprocessors of a device that this process sees.
    pub fn multiprocessors(&self, device: &Device) -> u32 {
        let spec = self.machine.spec();
        self.launches.seen(|| spec.uuid_text(device.gpu), spec.gpu[device.gpu].sms)
    }

    /// Figures of a device.
    pub fn gpu_spec(&self, device: &Device) -> &GpuSpec {
        &self.machine.spec().gpu[device.gpu]
    }

    /// Device that answers about a launch are about: the function's own, else the current context's.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_CONTEXT.
    pub fn device_of(&self, what: &Launchable) -> Answer<CUdevice> {
        match what {
            Launchable::Function(f) => Ok(f.device),
            Launchable::Kernel(_) => Ok(self.current()?.device),
        }
    }

    /// The calling thread's context, ready for work.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_CONTEXT if there is none, CUDA_ERROR_CONTEXT_IS_DESTROYED, or the error
    /// that broke it.
    pub fn current(&self) -> Answer<Arc<Context>> {
        self.current_part().map(|(context, _)| context)
    }

    /// As [`Self::current`], with the green context that the thread works in.
    ///
    /// # Errors
    /// As [`Self::current`]; CUDA_ERROR_CONTEXT_IS_DESTROYED for a green context that was destroyed.
    pub fn current_part(&self) -> Answer<(Arc<Context>, Option<Arc<Green>>)> {
        let top = context::top().ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if top.green.as_ref().is_some_and(|green| green.is_destroyed()) {
            return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        top.context.check()?;
        Ok((top.context, top.green))
    }
}

/// Returns true if one device can use another's memory: both are whole GPUs of the same model.
///
/// # Errors
/// CUDA_ERROR_INVALID_DEVICE.
pub fn can_access(driver: &Driver, device: CUdevice, peer: CUdevice) -> Answer<bool> {
    let (one, other) = (driver.device(device)?, driver.device(peer)?);
    let (a, b) = (driver.gpu_spec(one), driver.gpu_spec(other));
    Ok(device != peer && a.name == b.name && a.mig_profile.is_none() && b.mig_profile.is_none())
}
