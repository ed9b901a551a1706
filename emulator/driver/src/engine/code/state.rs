//! Modules, functions, libraries and kernels by handle.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use radrm_cuda_abi::*;

use crate::models::function::Settings;
use crate::models::image::{Image, KernelInfo};
use crate::util::ffi::Answer;
use crate::util::handles::{Handles, Registry};
use crate::util::sync::lock;

/// All code of the process.
#[derive(Default)]
pub struct Code {
    /// All modules.
    pub modules: Registry<Module>,
    /// All functions that were asked for.
    pub functions: Registry<Function>,
    /// All libraries.
    pub libraries: Registry<Library>,
    /// All kernels of libraries that were asked for.
    pub kernels: Registry<Kernel>,
    /// Links under way.
    pub links: Registry<Link>,
    /// Bytes of code by context.
    pub loaded: Mutex<HashMap<u64, u64>>,
}

/// A link under way.
#[derive(Default)]
pub struct Link {
    /// Inputs that were added.
    pub inputs: Mutex<Vec<Vec<u8>>>,
    /// The result; lives as long as the link.
    pub output: Mutex<Option<Box<[u8]>>>,
}

/// Code that is loaded in one context.
pub struct Module {
    /// Its handle.
    pub handle: u64,
    /// Handle of its context.
    pub context: u64,
    /// Ordinal of the context's device.
    pub device: CUdevice,
    /// The loaded image.
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
    /// Description of the kernel in its image.
    pub info: KernelInfo,
    /// The name as C callers want it.
    pub name: CString,
    /// Settings that the program made.
    pub settings: Settings,
    /// State of the interface that CUDA 4.0 replaced.
    pub legacy: LegacyLaunch,
}

/// Launch configuration that `cuFuncSetBlockShape` and its like leave behind for `cuLaunch`.
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
    /// Description of the kernel in its image.
    pub info: KernelInfo,
    /// The name as C callers want it.
    pub name: CString,
    /// Settings that the program made.
    pub settings: Settings,
}

impl Code {
    /// The module of a handle.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn module(&self, handle: CUmodule) -> Answer<Arc<Module>> {
        self.modules.get(handle.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The function of a handle. A kernel's handle is none.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn function(&self, handle: CUfunction) -> Answer<Arc<Function>> {
        self.functions.get(handle.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The library of a handle.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn library(&self, handle: CUlibrary) -> Answer<Arc<Library>> {
        self.libraries.get(handle.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The kernel of a handle.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn kernel(&self, handle: CUkernel) -> Answer<Arc<Kernel>> {
        self.kernels.get(handle.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Function or kernel behind a handle that a launch or an occupancy query was given.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn launchable(&self, handle: CUfunction) -> Answer<Launchable> {
        if let Some(function) = self.functions.get(handle.addr()) {
            return Ok(Launchable::Function(function));
        }
        self.kernels.get(handle.addr()).map(Launchable::Kernel).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The function of a module by name, made when it is first asked for.
    ///
    /// # Errors
    /// CUDA_ERROR_NOT_FOUND.
    pub fn function_in(&self, handles: &Handles, module: &Module, name: &str) -> Answer<Arc<Function>> {
        let mut functions = lock(&module.functions);
        if let Some(function) = functions.get(name) {
            return Ok(Arc::clone(function));
        }
        let info = module.image.kernel(name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let function = Arc::new(Function {
            handle: handles.next(),
            module: module.handle,
            context: module.context,
            device: module.device,
            info,
            name: CString::new(name).unwrap_or_default(),
            settings: Settings::default(),
            legacy: LegacyLaunch::default(),
        });
        self.functions.insert(function.handle, Arc::clone(&function));
        functions.insert(name.to_owned(), Arc::clone(&function));
        Ok(function)
    }

    /// The kernel of a library by name, made when it is first asked for.
    ///
    /// # Errors
    /// CUDA_ERROR_NOT_FOUND.
    pub fn kernel_in(&self, handles: &Handles, library: &Library, name: &str) -> Answer<Arc<Kernel>> {
        let mut kernels = lock(&library.kernels);
        if let Some(kernel) = kernels.get(name) {
            return Ok(Arc::clone(kernel));
        }
        let info = library.image.kernel(name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let kernel = Arc::new(Kernel {
            handle: handles.next(),
            library: library.handle,
            info,
            name: CString::new(name).unwrap_or_default(),
            settings: Settings::default(),
        });
        self.kernels.insert(kernel.handle, Arc::clone(&kernel));
        kernels.insert(name.to_owned(), Arc::clone(&kernel));
        Ok(kernel)
    }
}

/// Target of a launch: a function, or a kernel in its place.
#[derive(Clone)]
pub enum Launchable {
    /// A function: bound to its context.
    Function(Arc<Function>),
    /// A kernel: runs in whatever context the stream has.
    Kernel(Arc<Kernel>),
}

impl Launchable {
    /// Handle as the caller knows it.
    pub fn handle(&self) -> u64 {
        match self {
            Self::Function(f) => f.handle,
            Self::Kernel(k) => k.handle,
        }
    }

    /// Description of the kernel in its image.
    pub fn info(&self) -> &KernelInfo {
        match self {
            Self::Function(f) => &f.info,
            Self::Kernel(k) => &k.info,
        }
    }

    /// Settings that the program made.
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
}
