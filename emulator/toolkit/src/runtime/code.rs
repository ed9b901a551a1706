//! Kernels and variables that a program registers when it is loaded.
//!
//! A program with CUDA code hands over its fat binaries before `main`, with the names of all kernels and
//! variables in them. Nothing is loaded then, as with the genuine runtime's lazy loading: a fat binary
//! becomes a library of the driver when the first of its kernels is asked for.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::collections::HashMap;
use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, RwLock};

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, Out};

use super::dim3::Dim3;
use super::runtime;
use radrm_cuda_client as driver;

/// A fat binary that the program brought. It lives as long as the process: kernels point to it.
pub struct FatBinary {
    image: *const c_void,
    library: Mutex<CUlibrary>,
    gone: AtomicBool,
}

// SAFETY: the image is constant data of the program; everything else is behind locks.
unsafe impl Send for FatBinary {}
// SAFETY: as for `Send`.
unsafe impl Sync for FatBinary {}

struct Kernel {
    binary: &'static FatBinary,
    name: *const c_char,
    /// Handle of the driver, once it was asked for.
    handle: AtomicU64,
}

// SAFETY: the name is constant data of the program.
unsafe impl Send for Kernel {}
// SAFETY: as for `Send`.
unsafe impl Sync for Kernel {}

struct Variable {
    binary: &'static FatBinary,
    name: CString,
    size: usize,
    address: Option<CUdeviceptr>,
}

static KERNELS: LazyLock<RwLock<HashMap<usize, Kernel>>> = LazyLock::new(RwLock::default);
static VARIABLES: LazyLock<Mutex<HashMap<usize, Variable>>> = LazyLock::new(Mutex::default);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FatBinary {
    fn library(&self) -> Answer<CUlibrary> {
        let mut library = lock(&self.library);
        if library.is_null() {
            // SAFETY: the program's fat binary, no options.
            unsafe {
                driver::cuLibraryLoadData(
                    &raw mut *library,
                    self.image,
                    null_mut(),
                    null_mut(),
                    0,
                    null_mut(),
                    null_mut(),
                    0,
                )?;
            }
        }
        Ok(*library)
    }
}

/// The driver's kernel behind the address of a host function. What is no such address is taken for a
/// kernel of the driver itself: the interface allows both.
pub(super) fn kernel(function: *const c_void) -> Answer<CUkernel> {
    if function.is_null() {
        return Err(CUresult(98));
    }
    let kernels = KERNELS.read().unwrap_or_else(PoisonError::into_inner);
    let Some(kernel) = kernels.get(&(function as usize)) else {
        return Ok(CUkernel(function.cast_mut()));
    };
    // Relaxed: the handle is a number that the driver's own lock guards.
    let known = kernel.handle.load(Ordering::Relaxed);
    if known != 0 {
        return Ok(CUkernel(known as *mut c_void));
    }
    let library = kernel.binary.library()?;
    let mut handle = CUkernel::NULL;
    // SAFETY: a place for the handle, and the name that the program registered.
    unsafe { driver::cuLibraryGetKernel(&raw mut handle, library, kernel.name)? };
    kernel.handle.store(handle.addr(), Ordering::Relaxed);
    // SAFETY: the name that the program registered.
    super::counts::learn(handle.addr(), &unsafe { CStr::from_ptr(kernel.name) }.to_string_lossy());
    Ok(handle)
}

/// The host function that stands for a kernel of the driver; the kernel itself if there is none.
pub(super) fn host_function(kernel: u64) -> *mut c_void {
    let kernels = KERNELS.read().unwrap_or_else(PoisonError::into_inner);
    kernels
        .iter()
        .find(|(_, own)| own.handle.load(Ordering::Relaxed) == kernel)
        .map_or(kernel as *mut c_void, |(function, _)| *function as *mut c_void)
}

/// Forgets the driver's handles: the contexts that they were of are gone.
pub(super) fn forget() {
    for kernel in KERNELS.read().unwrap_or_else(PoisonError::into_inner).values() {
        kernel.handle.store(0, Ordering::Relaxed);
        *lock(&kernel.binary.library) = CUlibrary::NULL;
    }
    for variable in lock(&VARIABLES).values_mut() {
        variable.address = None;
    }
}

/// Address and size of a variable, by the address of its shadow on the host.
pub(super) fn variable(shadow: *const c_void) -> Answer<(CUdeviceptr, usize)> {
    let mut variables = lock(&VARIABLES);
    let variable = variables.get_mut(&(shadow as usize)).ok_or(CUresult(13))?;
    if let Some(address) = variable.address {
        return Ok((address, variable.size));
    }
    let (mut address, mut bytes) = (0, 0);
    let library = variable.binary.library()?;
    // SAFETY: places for the results and a C string.
    let found = unsafe {
        driver::cuLibraryGetGlobal(&raw mut address, &raw mut bytes, library, variable.name.as_ptr())
    };
    if found.is_err() {
        // Fat binaries that are compressed do not show their variables to the emulated driver: the
        // program said how large each is, and a module of that one variable is the same memory.
        address = placed(variable)?;
    }
    variable.address = Some(address);
    Ok((address, variable.size))
}

fn placed(variable: &Variable) -> Answer<CUdeviceptr> {
    let name = variable.name.to_string_lossy();
    let text = format!(
        ".version 7.0\n.target sm_50\n.address_size 64\n.visible .global .align 16 .b8 {name}[{}];\n",
        variable.size.max(1)
    );
    let text = CString::new(text).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let (mut module, mut address, mut bytes) = (CUmodule::NULL, 0, 0);
    // SAFETY: text that ends with NUL, places for the results; the module stays loaded.
    unsafe {
        driver::cuModuleLoadData(&raw mut module, text.as_ptr().cast())?;
        driver::cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, variable.name.as_ptr())?;
    }
    Ok(address)
}

/// Takes a fat binary. The handle is a pointer that the program does not look behind.
///
/// # Safety
/// `image` is the structure that the compiler places in a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm___cudaRegisterFatBinary(image: *const c_void) -> *const FatBinary {
    crate::guarded(null(), || {
        Box::leak(Box::new(FatBinary {
            image,
            library: Mutex::new(CUlibrary::NULL),
            gone: AtomicBool::new(false),
        }))
    })
}

/// All kernels of a fat binary were named.
#[unsafe(no_mangle)]
pub extern "C" fn radrm___cudaRegisterFatBinaryEnd(_binary: *const FatBinary) {}

/// The program is being unloaded. Kernels may still be launched by destructors that run later, so the
/// names stay until the process ends.
///
/// # Safety
/// `binary` came from `__cudaRegisterFatBinary`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm___cudaUnregisterFatBinary(binary: *const FatBinary) {
    if !binary.is_null() {
        // SAFETY: it is never freed. Relaxed: a flag for debuggers, nothing follows from it.
        unsafe { (*binary).gone.store(true, Ordering::Relaxed) };
    }
}

/// Reports whether a module could be loaded: it always can, later.
#[unsafe(no_mangle)]
pub extern "C" fn radrm___cudaInitModule(_binary: *const FatBinary) -> c_char {
    1
}

/// Takes a kernel's name.
///
/// # Safety
/// `binary` came from `__cudaRegisterFatBinary`; the names are constant data of the program.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn radrm___cudaRegisterFunction(
    binary: *const FatBinary,
    function: *const c_void,
    _device_function: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_size: *mut Dim3,
    _grid_size: *mut Dim3,
    _warp_size: *mut c_int,
) {
    crate::guarded((), || {
        if binary.is_null() || name.is_null() {
            return;
        }
        // SAFETY: it is never freed.
        let binary = unsafe { &*binary };
        let kernel = Kernel { binary, name, handle: AtomicU64::new(0) };
        KERNELS.write().unwrap_or_else(PoisonError::into_inner).insert(function as usize, kernel);
    });
}

/// Takes a variable's name and size.
///
/// # Safety
/// As `__cudaRegisterFunction`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn radrm___cudaRegisterVar(
    binary: *const FatBinary,
    shadow: *const c_void,
    _device_address: *mut c_char,
    name: *const c_char,
    _external: c_int,
    size: usize,
    _constant: c_int,
    _global: c_int,
) {
    crate::guarded((), || {
        if binary.is_null() || name.is_null() {
            return;
        }
        // SAFETY: it is never freed; the name is a C string.
        let (binary, name) = unsafe { (&*binary, CStr::from_ptr(name).to_owned()) };
        lock(&VARIABLES).insert(shadow as usize, Variable { binary, name, size, address: None });
    });
}

/// Takes a managed variable: the program's pointer to it is set when its address is asked for.
///
/// # Safety
/// As `__cudaRegisterFunction`.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn radrm___cudaRegisterManagedVar(
    binary: *const FatBinary,
    shadow: *const *const c_void,
    device_address: *mut c_char,
    name: *const c_char,
    external: c_int,
    size: usize,
    constant: c_int,
    global: c_int,
) {
    // SAFETY: as the caller promises.
    unsafe {
        radrm___cudaRegisterVar(
            binary,
            shadow.cast(),
            device_address,
            name,
            external,
            size,
            constant,
            global,
        );
    }
}

/// Takes a variable of the host that kernels read: there is nothing to do for it.
#[unsafe(no_mangle)]
pub extern "C" fn radrm___cudaRegisterHostVar(
    _binary: *const FatBinary,
    _name: *const c_char,
    _address: *mut c_void,
    _size: usize,
) {
}

runtime! {
    /// The driver's kernel behind a host function.
    bare radrm___cudaGetKernel(out: Out<CUkernel>, function: *const c_void) {
        out.required()?;
        super::device::ready()?;
        out.set(kernel(function)?)
    }

    /// The driver's kernel behind a host function.
    with_context radrm_cudaGetKernel(out: Out<CUkernel>, function: *const c_void) {
        out.required()?;
        out.set(kernel(function)?)
    }

    /// The driver's function behind a host function.
    with_context radrm_cudaGetFuncBySymbol(out: Out<CUfunction>, function: *const c_void) {
        out.required()?;
        let mut found = CUfunction::NULL;
        // SAFETY: a place for the function.
        unsafe { driver::cuKernelGetFunction(&raw mut found, kernel(function)?)? };
        out.set(found)
    }

    /// Address of a variable.
    with_context radrm_cudaGetSymbolAddress(out: Out<CUdeviceptr>, shadow: *const c_void) {
        out.required()?;
        out.set(variable(shadow)?.0)
    }

    /// Size of a variable.
    with_context radrm_cudaGetSymbolSize(out: Out<usize>, shadow: *const c_void) {
        out.required()?;
        out.set(variable(shadow)?.1)
    }
}
