//! Memory that the CUDA driver has locked: copies to a GPU read it in place and do not block the program.

use std::ffi::{CStr, c_int, c_uint, c_void};

type Register = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> c_int;
type Unregister = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `CU_MEMHOSTREGISTER_PORTABLE`, for all contexts, and `CU_MEMHOSTREGISTER_READ_ONLY`, for mappings that cannot be written.
const FLAGS: c_uint = 0x01 | 0x08;

/// A registration, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pin {
    start: *mut c_void,
    unregister: Unregister,
}

// SAFETY: the address is only handed to the driver, which any thread may call.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}

impl Pin {
    /// Registers memory. `None` where the program does not use CUDA, or not yet, or the driver does not take it: batches are
    /// read from pageable memory then.
    pub(crate) fn new(start: *mut u8, bytes: usize) -> Option<Self> {
        let (register, unregister) = (function(c"cuMemHostRegister_v2")?, function(c"cuMemHostUnregister")?);
        // SAFETY: these are the types of the driver's functions of these names.
        let (register, unregister) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Register>(register),
                std::mem::transmute::<*mut c_void, Unregister>(unregister),
            )
        };
        let start = start.cast();
        // SAFETY: the range is mapped and stays so until the registration is dropped.
        let code = unsafe { register(start, bytes, FLAGS) };
        (code == 0).then_some(Self { start, unregister })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // SAFETY: it was registered, and is still mapped. After the driver's end this is an error that changes nothing.
        unsafe { (self.unregister)(self.start) };
    }
}

/// A function of the driver that the program has loaded. Loading or initializing one is the program's affair.
fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: names that end with zeros; a library that was loaded before stays loaded after the close.
    unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if library.is_null() {
            return None;
        }
        let found = libc::dlsym(library, name.as_ptr());
        libc::dlclose(library);
        (!found.is_null()).then_some(found)
    }
}
