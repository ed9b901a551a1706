//! The functions of the CUDA driver that memory on a GPU needs.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_ushort, c_void};
use std::sync::OnceLock;

use crate::Error;
use crate::message::Uuid;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Location {
    kind: c_uint,
    id: c_int,
}

impl Location {
    pub(super) fn device(id: c_int) -> Self {
        Self { kind: 1, id }
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Access {
    pub location: Location,
    pub flags: c_uint,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Properties {
    kind: c_uint,
    handle_types: c_uint,
    location: Location,
    windows: *mut c_void,
    compression: u8,
    rdma: u8,
    usage: c_ushort,
    reserved: [u8; 4],
}

impl Properties {
    /// Memory of a GPU that can be exported as a file descriptor.
    pub(super) fn exportable(ordinal: c_int) -> Self {
        Self {
            kind: 1,
            handle_types: super::POSIX_FD,
            location: Location::device(ordinal),
            windows: std::ptr::null_mut(),
            compression: 0,
            rdma: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }
}

macro_rules! functions {
    ($($field:ident: $name:literal($($argument:ty),*);)*) => {
        /// The driver's functions, by what they do here.
        #[derive(Debug)]
        pub(super) struct Functions {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            fn find(library: *mut c_void) -> Result<Self, &'static CStr> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the library is open, the name ends with a zero.
                        let found = unsafe { libc::dlsym(library, $name.as_ptr()) };
                        if found.is_null() {
                            return Err($name);
                        }
                        // SAFETY: this is the type of the driver's function of this name.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    init: c"cuInit"(c_uint);
    count: c"cuDeviceGetCount"(*mut c_int);
    uuid: c"cuDeviceGetUuid_v2"(*mut Uuid, c_int);
    attribute: c"cuDeviceGetAttribute"(*mut c_int, c_int, c_int);
    error_name: c"cuGetErrorName"(c_int, *mut *const c_char);
    retain: c"cuDevicePrimaryCtxRetain"(*mut usize, c_int);
    give_back: c"cuDevicePrimaryCtxRelease_v2"(c_int);
    push: c"cuCtxPushCurrent_v2"(usize);
    pop: c"cuCtxPopCurrent_v2"(*mut usize);
    granularity: c"cuMemGetAllocationGranularity"(*mut usize, *const Properties, c_uint);
    create: c"cuMemCreate"(*mut u64, usize, *const Properties, c_ulonglong);
    release: c"cuMemRelease"(u64);
    reserve: c"cuMemAddressReserve"(*mut u64, usize, usize, u64, c_ulonglong);
    unreserve: c"cuMemAddressFree"(u64, usize);
    map: c"cuMemMap"(u64, usize, usize, u64, c_ulonglong);
    unmap: c"cuMemUnmap"(u64, usize);
    set_access: c"cuMemSetAccess"(u64, usize, *const Access, usize);
    export: c"cuMemExportToShareableHandle"(*mut c_void, u64, c_uint, c_ulonglong);
    import: c"cuMemImportFromShareableHandle"(*mut u64, usize, c_uint);
    allocate: c"cuMemAlloc_v2"(*mut u64, usize);
    free: c"cuMemFree_v2"(u64);
    copy: c"cuMemcpyAsync"(u64, u64, usize, usize);
    stream_create: c"cuStreamCreate"(*mut usize, c_uint);
    stream_destroy: c"cuStreamDestroy_v2"(usize);
    stream_wait: c"cuStreamWaitEvent"(usize, usize, c_uint);
    stream_finish: c"cuStreamSynchronize"(usize);
    event_create: c"cuEventCreate"(*mut usize, c_uint);
    event_record: c"cuEventRecord"(usize, usize);
    event_query: c"cuEventQuery"(usize);
    event_destroy: c"cuEventDestroy_v2"(usize);
}

impl Functions {
    /// An error with the driver's name for its code.
    pub(super) fn error(&self, what: &'static str, code: c_int) -> Error {
        let mut name = std::ptr::null();
        // SAFETY: the out-parameter lives for the call; the name is a constant of the driver.
        let known = unsafe { (self.error_name)(code, &raw mut name) == 0 && !name.is_null() };
        let error = if known {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            format!("error {code}")
        };
        Error::Cuda { what, error }
    }

    pub(super) fn done(&self, what: &'static str, code: c_int) -> Result<(), Error> {
        if code == 0 { Ok(()) } else { Err(self.error(what, code)) }
    }
}

/// The driver, initialized, and how many GPUs the program sees.
pub(super) fn ready() -> Result<(&'static Functions, c_int), Error> {
    static FOUND: OnceLock<Result<Functions, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        // SAFETY: a name that ends with a zero. The library stays open: its functions are kept.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err("there is no CUDA driver (libcuda.so.1)".into());
        }
        Functions::find(library).map_err(|name| format!("the CUDA driver has no {}", name.to_string_lossy()))
    });
    let cuda = found.as_ref().map_err(|why| Error::Gpu(why.clone()))?;
    let mut count = 0;
    // SAFETY: the out-parameter lives for the call.
    let code = unsafe {
        match (cuda.init)(0) {
            0 => (cuda.count)(&raw mut count),
            code => code,
        }
    };
    if code != 0 {
        return Err(Error::Gpu(format!("the CUDA driver cannot be used: {}", cuda.error("", code).reason())));
    }
    Ok((cuda, count))
}
