//! The calls of the CUDA driver that the demonstration makes, found as most frameworks find them: by dlopen.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::Library;

/// Address of device memory.
pub type DevicePointer = u64;
/// Something of the driver's that only its address names.
pub type Handle = *mut c_void;

/// Why the demonstration cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// There is no driver, or it lacks an entry point.
    #[error(transparent)]
    Library(#[from] libloading::Error),
    /// A call failed.
    #[error("{call}: {error}")]
    Call {
        /// The entry point.
        call: &'static str,
        /// The driver's name of the error.
        error: String,
    },
}

macro_rules! driver {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The driver's entry points.
        pub struct Driver {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
            _library: Library,
        }

        impl Driver {
            /// Loads and initialises the driver.
            ///
            /// # Errors
            /// There is no driver, or it has no GPU.
            pub fn open() -> Result<Self, DriverError> {
                // SAFETY: the driver's constructors have no conditions.
                let library = unsafe { Library::new("libcuda.so.1") }?;
                let driver = Self {
                    $(
                        // SAFETY: the signature is that of the driver's documentation.
                        $name: *unsafe { library.get($symbol) }?,
                    )*
                    _library: library,
                };
                driver.check("cuInit", |driver| {
                    // SAFETY: takes a number.
                    unsafe { (driver.init)(0) }
                })?;
                Ok(driver)
            }
        }
    };
}

driver! {
    init = b"cuInit\0" (c_uint);
    error_name = b"cuGetErrorName\0" (c_int, *mut *const c_char);
    count = b"cuDeviceGetCount\0" (*mut c_int);
    device = b"cuDeviceGet\0" (*mut c_int, c_int);
    retain = b"cuDevicePrimaryCtxRetain\0" (*mut Handle, c_int);
    use_context = b"cuCtxSetCurrent\0" (Handle);
    allocate = b"cuMemAlloc_v2\0" (*mut DevicePointer, usize);
    free = b"cuMemFree_v2\0" (DevicePointer);
    allocate_async = b"cuMemAllocAsync\0" (*mut DevicePointer, usize, Handle);
    free_async = b"cuMemFreeAsync\0" (DevicePointer, Handle);
    allocate_host = b"cuMemHostAlloc\0" (*mut Handle, usize, c_uint);
    free_host = b"cuMemFreeHost\0" (Handle);
    copy = b"cuMemcpyHtoDAsync_v2\0" (DevicePointer, *const c_void, usize, Handle);
    stream = b"cuStreamCreate\0" (*mut Handle, c_uint);
    wait = b"cuStreamSynchronize\0" (Handle);
    module = b"cuModuleLoadData\0" (*mut Handle, *const c_void);
    function = b"cuModuleGetFunction\0" (*mut Handle, Handle, *const c_char);
    launch = b"cuLaunchKernel\0" (
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut Handle, *mut Handle
    );
}

impl Driver {
    /// Makes a call, and names it with the driver's error if it fails.
    fn check(&self, what: &'static str, call: impl FnOnce(&Self) -> c_int) -> Result<(), DriverError> {
        let code = call(self);
        if code == 0 {
            return Ok(());
        }
        let mut name = ptr::null();
        // SAFETY: the place for the name is ours; what is written there is null or a constant.
        let name = unsafe {
            ((self.error_name)(code, &raw mut name) == 0 && !name.is_null()).then(|| CStr::from_ptr(name))
        };
        let error = name.map_or("an unknown error".into(), CStr::to_string_lossy).into_owned();
        Err(DriverError::Call { call: what, error })
    }

    /// As [`Self::check`], for a call that gives something.
    fn made<T>(
        &self,
        what: &'static str,
        empty: T,
        call: impl FnOnce(&Self, *mut T) -> c_int,
    ) -> Result<T, DriverError> {
        let mut made = empty;
        self.check(what, |driver| call(driver, &raw mut made))?;
        Ok(made)
    }

    /// Number of GPUs.
    pub fn devices(&self) -> Result<c_int, DriverError> {
        // SAFETY: writes a number to the place that it is given; the same for all calls below.
        self.made("cuDeviceGetCount", 0, |driver, place| unsafe { (driver.count)(place) })
    }

    /// Makes a GPU this thread's.
    pub fn use_device(&self, ordinal: c_int) -> Result<(), DriverError> {
        // SAFETY: as above.
        let device =
            self.made("cuDeviceGet", 0, |driver, place| unsafe { (driver.device)(place, ordinal) })?;
        let context = self.made("cuDevicePrimaryCtxRetain", ptr::null_mut(), |driver, place| {
            // SAFETY: as above.
            unsafe { (driver.retain)(place, device) }
        })?;
        // SAFETY: the context was retained just now, and is never released.
        self.check("cuCtxSetCurrent", |driver| unsafe { (driver.use_context)(context) })
    }

    /// Device memory.
    pub fn allocate(&self, size: usize) -> Result<DevicePointer, DriverError> {
        // SAFETY: as above.
        self.made("cuMemAlloc", 0, |driver, place| unsafe { (driver.allocate)(place, size) })
    }

    /// Gives device memory back.
    pub fn free(&self, memory: DevicePointer) -> Result<(), DriverError> {
        // SAFETY: no kernel of the demonstration reads or writes memory.
        self.check("cuMemFree", |driver| unsafe { (driver.free)(memory) })
    }

    /// Pinned memory of the host.
    pub fn allocate_host(&self, size: usize) -> Result<Handle, DriverError> {
        // SAFETY: as above.
        self.made("cuMemHostAlloc", ptr::null_mut(), |driver, place| unsafe {
            (driver.allocate_host)(place, size, 0)
        })
    }

    /// Gives pinned memory back.
    pub fn free_host(&self, memory: Handle) -> Result<(), DriverError> {
        // SAFETY: all copies from it are over: their stream was waited for.
        self.check("cuMemFreeHost", |driver| unsafe { (driver.free_host)(memory) })
    }

    /// A stream, with its work.
    pub fn stream(&self) -> Result<Stream<'_>, DriverError> {
        // SAFETY: as above.
        let handle = self
            .made("cuStreamCreate", ptr::null_mut(), |driver, place| unsafe { (driver.stream)(place, 1) })?;
        Ok(Stream { driver: self, handle })
    }

    /// A module of PTX, which must end with a zero.
    pub fn module(&self, ptx: &CStr) -> Result<Handle, DriverError> {
        self.made("cuModuleLoadData", ptr::null_mut(), |driver, place| {
            // SAFETY: the text ends with a zero.
            unsafe { (driver.module)(place, ptx.as_ptr().cast()) }
        })
    }

    /// A kernel of a module.
    pub fn kernel(&self, module: Handle, name: &CStr) -> Result<Handle, DriverError> {
        self.made("cuModuleGetFunction", ptr::null_mut(), |driver, place| {
            // SAFETY: the module stays loaded.
            unsafe { (driver.function)(place, module, name.as_ptr()) }
        })
    }
}

/// A stream of the current GPU.
pub struct Stream<'d> {
    driver: &'d Driver,
    handle: Handle,
}

impl Stream<'_> {
    /// Device memory in the stream's order.
    pub fn allocate(&self, size: usize) -> Result<DevicePointer, DriverError> {
        self.driver.made("cuMemAllocAsync", 0, |driver, place| {
            // SAFETY: the stream lives.
            unsafe { (driver.allocate_async)(place, size, self.handle) }
        })
    }

    /// Gives memory back in the stream's order.
    pub fn free(&self, memory: DevicePointer) -> Result<(), DriverError> {
        // SAFETY: the memory came from the same stream.
        self.driver.check("cuMemFreeAsync", |driver| unsafe { (driver.free_async)(memory, self.handle) })
    }

    /// Copies from pinned memory.
    pub fn copy(&self, to: DevicePointer, from: Handle, size: usize) -> Result<(), DriverError> {
        // SAFETY: both blocks have this size, and live until the stream was waited for.
        self.driver.check("cuMemcpyHtoDAsync", |driver| unsafe { (driver.copy)(to, from, size, self.handle) })
    }

    /// Launches a kernel without effects on two addresses.
    pub fn launch(
        &self,
        kernel: Handle,
        blocks: [c_uint; 2],
        threads: c_uint,
        mut on: [DevicePointer; 2],
    ) -> Result<(), DriverError> {
        let [x, y] = &mut on;
        let mut arguments: [Handle; 2] = [(&raw mut *x).cast(), (&raw mut *y).cast()];
        self.driver.check("cuLaunchKernel", |driver| {
            // SAFETY: the kernels take two addresses, which the driver copies before it returns.
            unsafe {
                (driver.launch)(
                    kernel,
                    blocks[0],
                    blocks[1],
                    1,
                    threads,
                    1,
                    1,
                    0,
                    self.handle,
                    arguments.as_mut_ptr(),
                    ptr::null_mut(),
                )
            }
        })
    }

    /// Waits until all of it is done.
    pub fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives.
        self.driver.check("cuStreamSynchronize", |driver| unsafe { (driver.wait)(self.handle) })
    }
}
