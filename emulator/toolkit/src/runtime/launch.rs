//! Launches, attributes of kernels, occupancy.

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::cell::RefCell;
use std::ptr::null_mut;

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, In, Out};

use super::code::kernel;
pub use super::dim3::Dim3;
use super::{device, runtime};
use radrm_cuda_client as driver;

/// `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: CUstream,
    attributes: *mut c_void,
    count: c_uint,
}

/// `cudaFuncAttributes`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct FuncAttributes {
    shared: usize,
    constant: usize,
    local: usize,
    max_threads: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode: c_int,
    max_dynamic_shared: c_int,
    carveout: c_int,
    cluster: [c_int; 6],
    reserved: [c_int; 16],
}

/// Configuration between `<<<...>>>` and the launch.
#[derive(Clone, Copy)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: CUstream,
}

thread_local! {
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// The driver takes a kernel wherever it takes a function.
fn as_function(kernel: CUkernel) -> CUfunction {
    CUfunction(kernel.0)
}

fn launch(
    function: *const c_void,
    config: &Configuration,
    params: *mut *mut c_void,
    cooperative: bool,
) -> Answer {
    let Configuration { grid, block, shared, stream } = *config;
    let shared = c_uint::try_from(shared).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let kernel = kernel(function)?;
    let own = as_function(kernel);
    // SAFETY: the parameters are as the program's compiler made them for this kernel.
    unsafe {
        if cooperative {
            driver::cuLaunchCooperativeKernel(
                own, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, params,
            )?;
        } else {
            driver::cuLaunchKernel(
                own,
                grid.x,
                grid.y,
                grid.z,
                block.x,
                block.y,
                block.z,
                shared,
                stream,
                params,
                null_mut(),
            )?;
        }
    }
    super::known::launched();
    super::counts::launched(kernel.addr(), params);
    Ok(())
}

/// Keeps a launch's configuration until its parameters are there.
#[unsafe(no_mangle)]
pub extern "C" fn radrm___cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: CUstream,
) -> c_uint {
    crate::guarded(1, || {
        CONFIGURATIONS.with_borrow_mut(|stack| stack.push(Configuration { grid, block, shared, stream }));
        0
    })
}

runtime! {
    /// Gives the last configuration back.
    bare radrm___cudaPopCallConfiguration(
        grid: Out<Dim3>, block: Out<Dim3>, shared: Out<usize>, stream: Out<CUstream>,
    ) {
        let last = CONFIGURATIONS.with_borrow_mut(Vec::pop).ok_or(CUresult(52))?;
        grid.set(last.grid)?;
        block.set(last.block)?;
        shared.set(last.shared)?;
        stream.set(last.stream)
    }

    /// Launches a kernel.
    with_context radrm_cudaLaunchKernel(
        function: *const c_void, grid: Dim3, block: Dim3, params: *mut *mut c_void, shared: usize, stream: CUstream,
    ) {
        launch(function, &Configuration { grid, block, shared, stream }, params, false)
    }

    /// Launches a kernel; the null stream is the thread's own.
    with_context radrm_cudaLaunchKernel_ptsz(
        function: *const c_void, grid: Dim3, block: Dim3, params: *mut *mut c_void, shared: usize, stream: CUstream,
    ) {
        let stream = if stream.is_null() { CU_STREAM_PER_THREAD } else { stream };
        launch(function, &Configuration { grid, block, shared, stream }, params, false)
    }

    /// Launches a kernel that `__cudaGetKernel` gave.
    with_context radrm___cudaLaunchKernel(
        kernel: *const c_void, grid: Dim3, block: Dim3, params: *mut *mut c_void, shared: usize, stream: CUstream,
    ) {
        launch(kernel, &Configuration { grid, block, shared, stream }, params, false)
    }

    /// Launches a kernel that `__cudaGetKernel` gave; the null stream is the thread's own.
    with_context radrm___cudaLaunchKernel_ptsz(
        kernel: *const c_void, grid: Dim3, block: Dim3, params: *mut *mut c_void, shared: usize, stream: CUstream,
    ) {
        let stream = if stream.is_null() { CU_STREAM_PER_THREAD } else { stream };
        launch(kernel, &Configuration { grid, block, shared, stream }, params, false)
    }

    /// Launches a kernel whose blocks all run at once.
    with_context radrm_cudaLaunchCooperativeKernel(
        function: *const c_void, grid: Dim3, block: Dim3, params: *mut *mut c_void, shared: usize, stream: CUstream,
    ) {
        launch(function, &Configuration { grid, block, shared, stream }, params, true)
    }

    /// Launches a kernel with attributes.
    with_context radrm_cudaLaunchKernelExC(
        config: In<LaunchConfig>, function: *const c_void, params: *mut *mut c_void,
    ) {
        let config = driver_config(&config.get()?)?;
        // SAFETY: the parameters are as the program's compiler made them for this kernel.
        unsafe { driver::cuLaunchKernelEx(&raw const config, as_function(kernel(function)?), params, null_mut())? };
        super::known::launched();
        Ok(())
    }

    /// Attributes of a kernel.
    with_context radrm_cudaFuncGetAttributes(out: Out<FuncAttributes>, function: *const c_void) {
        out.required()?;
        let (kernel, device) = (kernel(function)?, device::device()?);
        let get = |attribute| -> Answer<c_int> {
            let mut value = 0;
            // SAFETY: a place for the value.
            unsafe { driver::cuKernelGetAttribute(&raw mut value, attribute, kernel, device)? };
            Ok(value)
        };
        let bytes = |attribute| -> Answer<usize> { Ok(usize::try_from(get(attribute)?).unwrap_or(0)) };
        out.set(FuncAttributes {
            shared: bytes(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            constant: bytes(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?,
            local: bytes(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            max_threads: get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            registers: get(CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            ptx_version: get(CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
            binary_version: get(CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
            cache_mode: get(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA)?,
            max_dynamic_shared: get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
            carveout: get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)?,
            ..FuncAttributes::default()
        })
    }

    /// Sets an attribute of a kernel.
    with_context radrm_cudaFuncSetAttribute(function: *const c_void, attribute: c_uint, value: c_int) {
        let kernel = kernel(function)?;
        // SAFETY: no pointers.
        unsafe {
            driver::cuKernelSetAttribute(CUfunction_attribute(attribute), value, kernel, device::device()?)
        }
    }

    /// Sets an attribute of a kernel on a device.
    with_context radrm_cudaKernelSetAttributeForDevice(
        kernel: CUkernel, attribute: c_uint, value: c_int, device: c_int,
    ) {
        // SAFETY: no pointers.
        unsafe { driver::cuKernelSetAttribute(CUfunction_attribute(attribute), value, kernel, device) }
    }

    /// Preference between cache and shared memory.
    with_context radrm_cudaFuncSetCacheConfig(function: *const c_void, _config: c_uint) {
        kernel(function).map(|_| ())
    }

    /// Has no effect on any device that there is.
    with_context radrm_cudaFuncSetSharedMemConfig(function: *const c_void, _config: c_uint) {
        kernel(function).map(|_| ())
    }

    /// Name of a kernel.
    with_context radrm_cudaFuncGetName(name: *mut *const c_char, function: *const c_void) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuKernelGetName(name, kernel(function)?) }
    }

    /// Place of a parameter.
    with_context radrm_cudaFuncGetParamInfo(
        function: *const c_void, index: usize, offset: *mut usize, size: *mut usize,
    ) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuKernelGetParamInfo(kernel(function)?, index, offset, size) }
    }

    /// Blocks of a kernel that a multiprocessor can hold.
    with_context radrm_cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: *const c_void, block: c_int, shared: usize,
    ) {
        let own = as_function(kernel(function)?);
        // SAFETY: as the caller promises.
        unsafe { driver::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, own, block, shared, 0) }
    }

    /// Blocks of a kernel that a multiprocessor can hold.
    with_context radrm_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int, function: *const c_void, block: c_int, shared: usize, flags: c_uint,
    ) {
        let own = as_function(kernel(function)?);
        // SAFETY: as the caller promises.
        unsafe { driver::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, own, block, shared, flags) }
    }

    /// Dynamic shared memory that a block may have.
    with_context radrm_cudaOccupancyAvailableDynamicSMemPerBlock(
        bytes: *mut usize, function: *const c_void, blocks: c_int, block: c_int,
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            driver::cuOccupancyAvailableDynamicSMemPerBlock(bytes, as_function(kernel(function)?), blocks, block)
        }
    }

    /// Clusters that the device can hold.
    with_context radrm_cudaOccupancyMaxActiveClusters(
        count: *mut c_int, function: *const c_void, config: In<LaunchConfig>,
    ) {
        let config = driver_config(&config.get()?)?;
        // SAFETY: as the caller promises.
        unsafe {
            driver::cuOccupancyMaxActiveClusters(count, as_function(kernel(function)?), &raw const config)
        }
    }

    /// The largest cluster that a kernel can have.
    with_context radrm_cudaOccupancyMaxPotentialClusterSize(
        size: *mut c_int, function: *const c_void, config: In<LaunchConfig>,
    ) {
        let config = driver_config(&config.get()?)?;
        // SAFETY: as the caller promises.
        unsafe {
            driver::cuOccupancyMaxPotentialClusterSize(size, as_function(kernel(function)?), &raw const config)
        }
    }
}

fn driver_config(config: &LaunchConfig) -> Answer<CUlaunchConfig> {
    Ok(CUlaunchConfig {
        gridDimX: config.grid.x,
        gridDimY: config.grid.y,
        gridDimZ: config.grid.z,
        blockDimX: config.block.x,
        blockDimY: config.block.y,
        blockDimZ: config.block.z,
        sharedMemBytes: c_uint::try_from(config.shared).map_err(|_| CUDA_ERROR_INVALID_VALUE)?,
        hStream: config.stream,
        attrs: config.attributes,
        numAttrs: config.count,
    })
}

const _: () = assert!(size_of::<FuncAttributes>() == 144);
const _: () = assert!(size_of::<LaunchConfig>() == 56);
