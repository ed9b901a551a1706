//! The calls of the CUDA driver that the demonstration makes.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;

use radrm_cuda_abi::{CUcontext, CUdeviceptr, CUfunction, CUmodule, CUresult, CUstream};
use radrm_cuda_client as cuda;

/// Address of device memory.
pub type DevicePointer = CUdeviceptr;

/// Reason that the demonstration cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// There is no driver.
    #[error("{0}")]
    Library(&'static str),
    /// A call failed.
    #[error("{call}: {error}")]
    Call {
        /// The entry point.
        call: &'static str,
        /// The driver's name of the error.
        error: String,
    },
}

/// Names a call with the driver's error if it fails.
fn check(call: &'static str, answer: Result<(), CUresult>) -> Result<(), DriverError> {
    let Err(code) = answer else { return Ok(()) };
    let mut name = ptr::null();
    // SAFETY: the place for the name is ours; what is written there is null or a constant.
    let name = unsafe {
        (cuda::cuGetErrorName(code, &raw mut name).is_ok() && !name.is_null()).then(|| CStr::from_ptr(name))
    };
    let error = name.map_or("an unknown error".into(), CStr::to_string_lossy).into_owned();
    Err(DriverError::Call { call, error })
}

/// As [`check`], for a call that gives something.
fn made<T>(
    call: &'static str,
    empty: T,
    make: impl FnOnce(*mut T) -> Result<(), CUresult>,
) -> Result<T, DriverError> {
    let mut made = empty;
    check(call, make(&raw mut made))?;
    Ok(made)
}

/// The driver, started.
pub struct Driver(());

impl Driver {
    /// Loads and initialises the driver.
    ///
    /// # Errors
    /// There is no driver, or it has no GPU.
    pub fn open() -> Result<Self, DriverError> {
        cuda::load().map_err(DriverError::Library)?;
        // SAFETY: takes a number.
        check("cuInit", unsafe { cuda::cuInit(0) })?;
        Ok(Self(()))
    }

    /// Number of GPUs.
    pub fn devices(&self) -> Result<c_int, DriverError> {
        // SAFETY: writes a number to the place that it is given; the same for all calls below.
        made("cuDeviceGetCount", 0, |place| unsafe { cuda::cuDeviceGetCount(place) })
    }

    /// Makes a GPU this thread's.
    pub fn use_device(&self, ordinal: c_int) -> Result<(), DriverError> {
        // SAFETY: as above.
        let device = made("cuDeviceGet", 0, |place| unsafe { cuda::cuDeviceGet(place, ordinal) })?;
        let context = made("cuDevicePrimaryCtxRetain", CUcontext::NULL, |place| {
            // SAFETY: as above.
            unsafe { cuda::cuDevicePrimaryCtxRetain(place, device) }
        })?;
        // SAFETY: the context was retained just now, and is never released.
        check("cuCtxSetCurrent", unsafe { cuda::cuCtxSetCurrent(context) })
    }

    /// Device memory.
    pub fn allocate(&self, size: usize) -> Result<DevicePointer, DriverError> {
        // SAFETY: as above.
        made("cuMemAlloc", 0, |place| unsafe { cuda::cuMemAlloc_v2(place, size) })
    }

    /// Gives device memory back.
    pub fn free(&self, memory: DevicePointer) -> Result<(), DriverError> {
        // SAFETY: no kernel of the demonstration reads or writes memory.
        check("cuMemFree", unsafe { cuda::cuMemFree_v2(memory) })
    }

    /// Pinned memory of the host.
    pub fn allocate_host(&self, size: usize) -> Result<*mut c_void, DriverError> {
        // SAFETY: as above.
        made("cuMemHostAlloc", ptr::null_mut(), |place| unsafe { cuda::cuMemHostAlloc(place, size, 0) })
    }

    /// Gives pinned memory back.
    pub fn free_host(&self, memory: *mut c_void) -> Result<(), DriverError> {
        // SAFETY: all copies from it are over: their stream was waited for.
        check("cuMemFreeHost", unsafe { cuda::cuMemFreeHost(memory) })
    }

    /// A stream, with its work.
    pub fn stream(&self) -> Result<Stream, DriverError> {
        // SAFETY: as above.
        let handle =
            made("cuStreamCreate", CUstream::NULL, |place| unsafe { cuda::cuStreamCreate(place, 1) })?;
        Ok(Stream(handle))
    }

    /// A module of PTX, which must end with a zero.
    pub fn module(&self, ptx: &CStr) -> Result<CUmodule, DriverError> {
        made("cuModuleLoadData", CUmodule::NULL, |place| {
            // SAFETY: the text ends with a zero.
            unsafe { cuda::cuModuleLoadData(place, ptx.as_ptr().cast()) }
        })
    }

    /// A kernel of a module.
    pub fn kernel(&self, module: CUmodule, name: &CStr) -> Result<CUfunction, DriverError> {
        made("cuModuleGetFunction", CUfunction::NULL, |place| {
            // SAFETY: the module stays loaded.
            unsafe { cuda::cuModuleGetFunction(place, module, name.as_ptr()) }
        })
    }
}

/// A stream of the current GPU.
pub struct Stream(CUstream);

impl Stream {
    /// Device memory in the stream's order.
    pub fn allocate(&self, size: usize) -> Result<DevicePointer, DriverError> {
        made("cuMemAllocAsync", 0, |place| {
            // SAFETY: the stream lives.
            unsafe { cuda::cuMemAllocAsync(place, size, self.0) }
        })
    }

    /// Gives memory back in the stream's order.
    pub fn free(&self, memory: DevicePointer) -> Result<(), DriverError> {
        // SAFETY: the memory came from the same stream.
        check("cuMemFreeAsync", unsafe { cuda::cuMemFreeAsync(memory, self.0) })
    }

    /// Copies from pinned memory.
    pub fn copy(&self, to: DevicePointer, from: *const c_void, size: usize) -> Result<(), DriverError> {
        // SAFETY: both blocks have this size, and live until the stream was waited for.
        check("cuMemcpyHtoDAsync", unsafe { cuda::cuMemcpyHtoDAsync_v2(to, from, size, self.0) })
    }

    /// Launches a kernel without effects on two addresses.
    pub fn launch(
        &self,
        kernel: CUfunction,
        blocks: [c_uint; 2],
        threads: c_uint,
        mut on: [DevicePointer; 2],
    ) -> Result<(), DriverError> {
        let [x, y] = &mut on;
        let mut arguments: [*mut c_void; 2] = [(&raw mut *x).cast(), (&raw mut *y).cast()];
        // SAFETY: the kernels take two addresses, which the driver copies before it returns.
        check("cuLaunchKernel", unsafe {
            cuda::cuLaunchKernel(
                kernel,
                blocks[0],
                blocks[1],
                1,
                threads,
                1,
                1,
                0,
                self.0,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }

    /// Waits until all of it is done.
    pub fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives.
        check("cuStreamSynchronize", unsafe { cuda::cuStreamSynchronize(self.0) })
    }
}
