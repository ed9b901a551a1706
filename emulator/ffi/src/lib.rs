//! Pointers as C callers of the emulated libraries hand them over.
//!
//! [`In`] and [`Out`] look like plain pointers in the interface. They are made only by C callers, who
//! promise what the interface's documentation promises: the pointer is null, or it points to as many
//! values as the call says. Null is an ordinary error here, never a crash. Each library has a code of its own
//! for that error ([`Code`]); the driver's is the usual one.

use core::ffi::{CStr, c_char};
use core::marker::PhantomData;

use radrm_cuda_abi::{CUDA_ERROR_INVALID_VALUE, CUresult};

/// Result of a driver call: a value, or the code that the caller gets.
pub type Answer<T = ()> = Result<T, CUresult>;

/// The codes of a library.
pub trait Code {
    /// An argument that cannot be, a null pointer for instance.
    const INVALID: Self;
}

impl Code for CUresult {
    const INVALID: Self = CUDA_ERROR_INVALID_VALUE;
}

/// Pointer to the place in which a caller wants a result, and sometimes gives something too.
#[repr(transparent)]
pub struct Out<T, E = CUresult>(*mut T, PhantomData<E>);

impl<T, E> Clone for Out<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, E> Copy for Out<T, E> {}

impl<T, E: Code> Out<T, E> {
    /// The place behind a pointer.
    ///
    /// # Safety
    /// The pointer is null, or there is room for as many values as the call says.
    pub const unsafe fn at(place: *mut T) -> Self {
        Self(place, PhantomData)
    }

    /// The same place for another type, which the call's other arguments name.
    pub fn cast<U>(self) -> Out<U, E> {
        Out(self.0.cast(), PhantomData)
    }

    /// A place that lives on this side.
    pub fn of(place: &mut T) -> Self {
        Self(place, PhantomData)
    }

    /// Returns true if the pointer is null: the caller does not want the result.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Fails if the caller gave no place for the result.
    ///
    /// # Errors
    /// [`Code::INVALID`] if the pointer is null.
    pub fn required(self) -> Result<(), E> {
        if self.0.is_null() { Err(E::INVALID) } else { Ok(()) }
    }

    /// Writes the result.
    ///
    /// # Errors
    /// [`Code::INVALID`] if the pointer is null.
    pub fn set(self, value: T) -> Result<(), E> {
        self.set_at(0, value)
    }

    /// Writes the result if it is wanted.
    pub fn set_if_wanted(self, value: T) {
        let _ = self.set(value);
    }

    /// Writes the `index`-th of several results.
    ///
    /// # Errors
    /// [`Code::INVALID`] if the pointer is null.
    pub fn set_at(self, index: usize, value: T) -> Result<(), E> {
        self.required()?;
        // SAFETY: not null, and then a C caller promises room for as many values as the call says.
        unsafe { self.0.add(index).write_unaligned(value) };
        Ok(())
    }

    /// Reads what the caller left there.
    ///
    /// # Errors
    /// [`Code::INVALID`] if the pointer is null.
    pub fn get(self) -> Result<T, E>
    where
        T: Copy,
    {
        self.required()?;
        // SAFETY: not null, and then a C caller promises a value.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The same, `count` values further on.
    pub fn after(self, count: usize) -> Self {
        // SAFETY: a C caller promises room for as many values as the call says.
        Self(unsafe { self.0.add(count) }, PhantomData)
    }

    /// The pointer itself.
    pub fn raw(self) -> *mut T {
        self.0
    }
}

/// Pointer to the place in which a caller keeps an argument.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// The same place for another type, which the call's other arguments name.
    pub fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }

    /// A value that lives on this side.
    pub fn of(value: &T) -> Self {
        Self(value)
    }

    /// A pointer that stands in another argument.
    pub fn from_raw(place: *const T) -> Self {
        Self(place)
    }

    /// Returns true if the pointer is null: the caller gave no argument.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Reads the argument.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE if the pointer is null.
    pub fn get(self) -> Answer<T> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and then a C caller promises a value (see the module).
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Reads `count` arguments; none if `count` is 0.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE if the pointer is null and `count` is not 0.
    pub fn list(self, count: usize) -> Answer<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and a C caller promises as many values as the call says.
        Ok((0..count).map(|i| unsafe { self.0.add(i).read_unaligned() }).collect())
    }

    /// The pointer itself.
    pub fn raw(self) -> *const T {
        self.0
    }
}

/// A text that a caller hands over.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text<E = CUresult>(*const c_char, PhantomData<E>);

impl<E: Code> Text<E> {
    /// Reads the text; bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// [`Code::INVALID`] if the pointer is null.
    pub fn get(self) -> Result<String, E> {
        if self.0.is_null() {
            return Err(E::INVALID);
        }
        // SAFETY: not null, and then a C caller promises a text that ends with NUL.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// Writes a text with its NUL into `len` bytes, cut to what fits.
///
/// # Errors
/// [`Code::INVALID`] if there is no room at all.
pub fn set_text<E: Code>(out: Out<c_char, E>, len: impl TryInto<usize>, text: &str) -> Result<(), E> {
    let room = len.try_into().ok().filter(|n| *n > 0).ok_or(E::INVALID)?;
    let cut = text.len().min(room - 1);
    for (i, byte) in text.bytes().take(cut).enumerate() {
        out.set_at(i, byte as c_char)?;
    }
    out.set_at(cut, 0)
}
