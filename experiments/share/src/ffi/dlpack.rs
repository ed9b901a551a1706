//! Arrays on a GPU as DLPack capsules, which frameworks read without a copy.
//!
//! A capsule keeps the Python object that its batch's memory belongs to. Frameworks let it go on any thread, also on one
//! that does not hold the interpreter's lock, so that is done here and not in Python.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// A Python object.
pub type Object = *mut c_void;

type Destructor = unsafe extern "C" fn(Object);

/// Functions of the interpreter, which the Python package passes: a library need not be linked with one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Interpreter {
    is_initialized: unsafe extern "C" fn() -> c_int,
    ensure: unsafe extern "C" fn() -> c_int,
    release: unsafe extern "C" fn(c_int),
    hold: unsafe extern "C" fn(Object),
    let_go: unsafe extern "C" fn(Object),
    capsule_new: unsafe extern "C" fn(*mut c_void, *const c_char, Option<Destructor>) -> Object,
    capsule_is: unsafe extern "C" fn(Object, *const c_char) -> c_int,
    capsule_pointer: unsafe extern "C" fn(Object, *const c_char) -> *mut c_void,
}

static INTERPRETER: OnceLock<Interpreter> = OnceLock::new();

/// Name of a capsule that no framework has taken.
const NAME: &CStr = c"dltensor";

/// `kDLCUDA`.
const CUDA: i32 = 2;

/// Most dimensions, as in a description.
const MAX_DIMENSIONS: usize = crate::description::MAX_DIMENSIONS;

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_kind: i32,
    device: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    offset: u64,
}

/// `DLManagedTensor`, and what it points to.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
    numbers: [i64; 2 * MAX_DIMENSIONS],
    owner: Object,
}

/// Description of an array for [`radrm_share_dlpack`].
#[repr(C)]
#[derive(Debug)]
pub struct Described {
    address: u64,
    device: i32,
    dimensions: i32,
    /// Lengths, then strides in elements.
    numbers: *const i64,
    code: u8,
    bits: u8,
}

/// Takes the interpreter's functions, once.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_share_interpreter(interpreter: &Interpreter) {
    let _ = INTERPRETER.set(*interpreter);
}

/// A capsule for an array, which keeps an object until the framework lets it go; null with an exception of Python's, or if
/// the call is not valid.
///
/// # Safety
/// The caller holds the interpreter's lock, the object is one of Python's, and `numbers` has two for each dimension.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_share_dlpack(described: &Described, owner: Object) -> Object {
    let made = catch_unwind(AssertUnwindSafe(|| {
        let interpreter = INTERPRETER.get()?;
        let count = usize::try_from(described.dimensions).ok().filter(|count| *count <= MAX_DIMENSIONS)?;
        let mut numbers = [0; 2 * MAX_DIMENSIONS];
        for (number, to) in numbers.iter_mut().enumerate().take(2 * count) {
            // SAFETY: the caller's promise.
            *to = unsafe { *described.numbers.add(number) };
        }
        let tensor = Tensor {
            data: described.address as *mut c_void,
            device_kind: CUDA,
            device: described.device,
            dimensions: described.dimensions,
            code: described.code,
            bits: described.bits,
            lanes: 1,
            shape: null_mut(),
            strides: null_mut(),
            offset: 0,
        };
        let deleter: unsafe extern "C" fn(*mut Managed) = delete;
        let managed = Managed { tensor, context: null_mut(), deleter: Some(deleter), numbers, owner };
        let managed = Box::into_raw(Box::new(managed));
        // SAFETY: the box is alive and not shared yet; the object is the caller's, whose thread holds the lock.
        unsafe {
            let start = (&raw mut (*managed).numbers).cast::<i64>();
            (*managed).tensor.shape = start;
            (*managed).tensor.strides = start.add(count);
            (interpreter.hold)(owner);
            let capsule = (interpreter.capsule_new)(managed.cast(), NAME.as_ptr(), Some(unused));
            if capsule.is_null() {
                delete(managed);
            }
            Some(capsule)
        }
    }));
    made.ok().flatten().unwrap_or(null_mut())
}

/// Lets the owner go. On any thread.
unsafe extern "C" fn delete(managed: *mut Managed) {
    let Some(interpreter) = INTERPRETER.get().filter(|_| !managed.is_null()) else { return };
    // SAFETY: frameworks call this once for each tensor that `radrm_share_dlpack` made of a box.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: the interpreter's own rules: nothing is let go after its end, and only with its lock.
    unsafe {
        if (interpreter.is_initialized)() != 0 {
            let state = (interpreter.ensure)();
            (interpreter.let_go)(managed.owner);
            (interpreter.release)(state);
        }
    }
}

/// A capsule goes: with its tensor, if no framework has taken that.
unsafe extern "C" fn unused(capsule: Object) {
    let Some(interpreter) = INTERPRETER.get() else { return };
    // SAFETY: the interpreter calls this with its lock and a capsule of `radrm_share_dlpack`.
    unsafe {
        if (interpreter.capsule_is)(capsule, NAME.as_ptr()) != 0 {
            delete((interpreter.capsule_pointer)(capsule, NAME.as_ptr()).cast());
        }
    }
}
