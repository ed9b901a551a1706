//! Pointers as C callers of the emulated libraries hand them over.
//!
//! [`In`] and [`Out`] look like plain pointers in the interface. They are made only by C callers, who
//! promise what the interface's documentation promises: the pointer is null, or it points to as many
//! values as the call says. Null is an ordinary error here, never a crash.

use core::ffi::{CStr, c_char};

use radrm_cuda_abi::{CUDA_ERROR_INVALID_VALUE, CUresult};

/// What a driver call comes to: a value, or the code that the caller gets.
pub type Answer<T = ()> = Result<T, CUresult>;

/// Where a caller wants a result.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// The same place for another type, which the call's other arguments name.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// A place that lives on this side.
    pub fn of(place: &mut T) -> Self {
        Self(place)
    }

    /// Whether the caller does not want the result.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes the result.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE if the pointer is null.
    pub fn set(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and then a C caller promises room for a value (see the module).
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the result if it is wanted.
    pub fn set_if_wanted(self, value: T) {
        let _ = self.set(value);
    }

    /// Fails if the caller gave no place for the result.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE if the pointer is null.
    pub fn required(self) -> Answer {
        if self.0.is_null() { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
    }

    /// Writes the `index`-th of several results.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE if the pointer is null.
    pub fn set_at(self, index: usize, value: T) -> Answer {
        self.required()?;
        // SAFETY: not null, and a C caller promises room for as many values as the call says.
        unsafe { self.0.add(index).write_unaligned(value) };
        Ok(())
    }

    /// The pointer itself.
    pub fn raw(self) -> *mut T {
        self.0
    }
}

/// Where a caller keeps an argument.
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

    /// Whether the caller gave none.
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
pub struct Text(*const c_char);

impl Text {
    /// Reads the text; bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE if the pointer is null.
    pub fn get(self) -> Answer<String> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and then a C caller promises a text that ends with NUL.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// Writes a text with its NUL into `len` bytes, cut to what fits.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE if there is no room at all.
pub fn set_text(out: Out<c_char>, len: i32, text: &str) -> Answer {
    let room = usize::try_from(len).ok().filter(|n| *n > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let cut = text.len().min(room - 1);
    for (i, byte) in text.bytes().take(cut).enumerate() {
        out.set_at(i, byte as c_char)?;
    }
    out.set_at(cut, 0)
}
