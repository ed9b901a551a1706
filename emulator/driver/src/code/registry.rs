//! Modules, functions, libraries and kernels by handle.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex};

use radrm_cuda_abi::*;
use radrm_emulator_machine::GpuSpec;

use super::image::{Image, KernelInfo};
use super::occupancy_model::{SHARED_PER_BLOCK, SmLimits};
use crate::ffi::Answer;
use crate::state::{Driver, Registry, lock, new_handle};

/// All modules of the process.
pub static MODULES: LazyLock<Registry<Module>> = LazyLock::new(Registry::default);
/// All functions that were asked for.
pub static FUNCTIONS: LazyLock<Registry<Function>> = LazyLock::new(Registry::default);
/// All libraries.
pub static LIBRARIES: LazyLock<Registry<Library>> = LazyLock::new(Registry::default);
/// All kernels of libraries that were asked for.
pub static KERNELS: LazyLock<Registry<Kernel>> = LazyLock::new(Registry::default);

/// Code that is loaded in one context.
pub struct Module {
    /// Its handle.
    pub handle: u64,
    /// Handle of its context.
    pub context: u64,
    /// Ordinal of the context's device.
    pub device: CUdevice,
    /// What was loaded.
    pub image: Arc<Image>,
    /// Library that it belongs to, 0 if it was loaded as a module.
    pub library: u64,
    /// Functions handed out, by name.
    pub functions: Mutex<BTreeMap<String, Arc<Function>>>,
    /// Device memory of its variables: address and size, by name.
    pub globals: Mutex<HashMap<String, (CUdeviceptr, u64)>>,
    /// Code and variables, bytes.
    pub footprint: u64,
}

/// Settings of a function or kernel that a program can change.
#[derive(Debug)]
pub struct Settings {
    /// Most dynamic shared memory of a block, bytes; -1: the default.
    pub max_dynamic_shared: AtomicI32,
    /// Preferred share of shared memory, percent; -1: the driver's choice.
    pub carveout: AtomicI32,
    /// Attributes 11 to 15 (clusters), by number - 11.
    pub cluster: [AtomicI32; 5],
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_dynamic_shared: AtomicI32::new(-1),
            carveout: AtomicI32::new(-1),
            cluster: Default::default(),
        }
    }
}

/// A kernel in a module.
pub struct Function {
    /// Its handle.
    pub handle: u64,
    /// Handle of its module.
    pub module: u64,
    /// Handle of its context.
    pub context: u64,
    /// Ordinal of its device.
    pub device: CUdevice,
    /// What the image says.
    pub info: KernelInfo,
    /// The name as C callers want it.
    pub name: CString,
    /// What the program set.
    pub settings: Settings,
    /// State of the interface that CUDA 4.0 replaced.
    pub legacy: LegacyLaunch,
}

/// What `cuFuncSetBlockShape` and its like leave behind for `cuLaunch`.
#[derive(Debug)]
pub struct LegacyLaunch {
    /// Block shape.
    pub block: [AtomicU32; 3],
    /// Dynamic shared memory.
    pub shared: AtomicU32,
    /// Bytes of parameters.
    pub params: AtomicU64,
}

impl Default for LegacyLaunch {
    fn default() -> Self {
        Self {
            block: [AtomicU32::new(1), AtomicU32::new(1), AtomicU32::new(1)],
            shared: AtomicU32::new(0),
            params: AtomicU64::new(0),
        }
    }
}

/// Code that belongs to no context until a kernel of it is used in one.
pub struct Library {
    /// Its handle.
    pub handle: u64,
    /// The bytes that were loaded.
    pub image: Arc<Image>,
    /// Kernels handed out, by name.
    pub kernels: Mutex<BTreeMap<String, Arc<Kernel>>>,
    /// Its module in each context that used it: context -> module.
    pub modules: Mutex<HashMap<u64, Arc<Module>>>,
}

/// A kernel of a library.
pub struct Kernel {
    /// Its handle.
    pub handle: u64,
    /// Handle of its library.
    pub library: u64,
    /// What the image says.
    pub info: KernelInfo,
    /// The name as C callers want it.
    pub name: CString,
    /// What the program set.
    pub settings: Settings,
}

impl Module {
    /// The module of a handle.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn of(handle: CUmodule) -> Answer<Arc<Self>> {
        MODULES.get(handle.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The function of a name, made when it is first asked for.
    ///
    /// # Errors
    /// CUDA_ERROR_NOT_FOUND.
    pub fn function(&self, name: &str) -> Answer<Arc<Function>> {
        let mut functions = lock(&self.functions);
        if let Some(function) = functions.get(name) {
            return Ok(Arc::clone(function));
        }
        let info = self.image.kernel(name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let function = Arc::new(Function {
            handle: new_handle(),
            module: self.handle,
            context: self.context,
            device: self.device,
            info,
            name: CString::new(name).unwrap_or_default(),
            settings: Settings::default(),
            legacy: LegacyLaunch::default(),
        });
        FUNCTIONS.insert(function.handle, Arc::clone(&function));
        functions.insert(name.to_owned(), Arc::clone(&function));
        Ok(function)
    }
}

impl Function {
    /// The function of a handle. A kernel's handle is none.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn of(handle: CUfunction) -> Answer<Arc<Self>> {
        FUNCTIONS.get(handle.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}

impl Library {
    /// The library of a handle.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn of(handle: CUlibrary) -> Answer<Arc<Self>> {
        LIBRARIES.get(handle.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The kernel of a name, made when it is first asked for.
    ///
    /// # Errors
    /// CUDA_ERROR_NOT_FOUND.
    pub fn kernel(&self, name: &str) -> Answer<Arc<Kernel>> {
        let mut kernels = lock(&self.kernels);
        if let Some(kernel) = kernels.get(name) {
            return Ok(Arc::clone(kernel));
        }
        let info = self.image.kernel(name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let kernel = Arc::new(Kernel {
            handle: new_handle(),
            library: self.handle,
            info,
            name: CString::new(name).unwrap_or_default(),
            settings: Settings::default(),
        });
        KERNELS.insert(kernel.handle, Arc::clone(&kernel));
        kernels.insert(name.to_owned(), Arc::clone(&kernel));
        Ok(kernel)
    }
}

impl Kernel {
    /// The kernel of a handle.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn of(handle: CUkernel) -> Answer<Arc<Self>> {
        KERNELS.get(handle.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}

/// What a launch was given: a function, or a kernel in its place.
#[derive(Clone)]
pub enum Launchable {
    /// A function: bound to its context.
    Function(Arc<Function>),
    /// A kernel: runs in whatever context the stream has.
    Kernel(Arc<Kernel>),
}

/// What stands behind a handle that a launch or an occupancy query was given.
///
/// # Errors
/// CUDA_ERROR_INVALID_HANDLE.
pub fn launchable(handle: CUfunction) -> Answer<Launchable> {
    if let Some(function) = FUNCTIONS.get(handle.addr()) {
        return Ok(Launchable::Function(function));
    }
    KERNELS.get(handle.addr()).map(Launchable::Kernel).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

impl Launchable {
    /// Handle as the caller knows it.
    pub fn handle(&self) -> u64 {
        match self {
            Self::Function(f) => f.handle,
            Self::Kernel(k) => k.handle,
        }
    }

    /// What the image says.
    pub fn info(&self) -> &KernelInfo {
        match self {
            Self::Function(f) => &f.info,
            Self::Kernel(k) => &k.info,
        }
    }

    /// What the program set.
    pub fn settings(&self) -> &Settings {
        match self {
            Self::Function(f) => &f.settings,
            Self::Kernel(k) => &k.settings,
        }
    }

    /// Handle of the context that it is bound to, if it is.
    pub fn context(&self) -> Option<u64> {
        match self {
            Self::Function(f) => Some(f.context),
            Self::Kernel(_) => None,
        }
    }

    /// Device that answers are about: the function's own, else the current context's.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_CONTEXT.
    pub fn device(&self, driver: &Driver) -> Answer<CUdevice> {
        match self {
            Self::Function(f) => Ok(f.device),
            Self::Kernel(_) => Ok(driver.current()?.device),
        }
    }
}

/// The figures of a device's multiprocessors.
pub fn limits(gpu: &GpuSpec) -> SmLimits {
    SmLimits {
        threads: gpu.max_threads_per_sm,
        blocks: gpu.max_blocks_per_sm,
        registers: gpu.registers_per_sm,
        shared: gpu.shared_per_sm_kib << 10,
        shared_per_block_optin: gpu.shared_per_block_optin_kib << 10,
        major: gpu.capability().0,
    }
}

/// Most threads of a block of a kernel on a device: what its registers allow, and its own bound.
pub fn max_threads(info: &KernelInfo, gpu: &GpuSpec) -> u32 {
    let by_registers = limits(gpu).threads_by_registers(info.registers);
    info.max_threads.map_or(by_registers, |bound| by_registers.min(bound))
}

/// Dynamic shared memory that a block may have at present, bytes.
pub fn max_dynamic_shared(info: &KernelInfo, settings: &Settings) -> u32 {
    match settings.max_dynamic_shared.load(Relaxed) {
        set @ 0.. => set as u32,
        _ => SHARED_PER_BLOCK.saturating_sub(info.shared),
    }
}

/// Value of a function attribute.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for an unknown attribute.
pub fn attribute(
    info: &KernelInfo,
    image: &Image,
    settings: &Settings,
    gpu: &GpuSpec,
    attribute: CUfunction_attribute,
) -> Answer<i32> {
    let (major, minor) = gpu.capability();
    let here = major * 10 + minor;
    let value = match attribute.0 {
        0 => max_threads(info, gpu),
        1 => info.shared,
        2 => u32::try_from(image.constants).unwrap_or(u32::MAX),
        3 => info.local,
        4 => info.registers,
        5 => {
            if image.is_ptx {
                image.arch
            } else {
                here
            }
        }
        6 => {
            if image.is_ptx || image.arch == 0 {
                here
            } else {
                image.arch
            }
        }
        7 => 0,
        8 => max_dynamic_shared(info, settings),
        9 => return Ok(settings.carveout.load(Relaxed)),
        10 => 0,
        11..=15 => return Ok(settings.cluster[attribute.0 as usize - 11].load(Relaxed)),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    Ok(i32::try_from(value).unwrap_or(i32::MAX))
}

/// Sets a function attribute.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE for an attribute that cannot be set, or a value out of its range.
pub fn set_attribute(
    info: &KernelInfo,
    settings: &Settings,
    gpu: &GpuSpec,
    attribute: CUfunction_attribute,
    value: i32,
) -> Answer {
    match attribute {
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let most = (gpu.shared_per_block_optin_kib << 10).saturating_sub(info.shared);
            if value < 0 || value as u32 > most {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            settings.max_dynamic_shared.store(value, Relaxed);
        }
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
            if !(-1..=100).contains(&value) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            settings.carveout.store(value, Relaxed);
        }
        CUfunction_attribute(id @ 11..=15) => {
            if gpu.capability().0 < 9 || value < 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            settings.cluster[id as usize - 11].store(value, Relaxed);
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}
