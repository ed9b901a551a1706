//! Handles of the libraries: small objects that programs pass around, and the memory that belongs to
//! them.

use core::ffi::c_int;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use radrm_cuda_abi::{CUDA_ERROR_INVALID_HANDLE, CUdeviceptr};
use radrm_emulator_ffi::{Answer, In, Out};

use crate::runtime;
use radrm_cuda_client as driver;

/// Objects of one kind by handle. Handles are numbers that no address has, so that a stale or foreign
/// one is told instead of followed.
pub struct Registry<T> {
    objects: LazyLock<Mutex<(u64, HashMap<u64, T>)>>,
}

/// Handles lie 16 bytes apart in the first, never mapped page range above this.
const FIRST: u64 = 0x5000;

impl<T> Registry<T> {
    /// Without objects.
    pub const fn new() -> Self {
        Self { objects: LazyLock::new(|| Mutex::new((FIRST, HashMap::new()))) }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, HashMap<u64, T>)> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an object.
    pub fn add(&self, object: T) -> u64 {
        let mut all = self.lock();
        all.0 += 16;
        let handle = all.0;
        all.1.insert(handle, object);
        handle
    }

    /// Works on an object.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE if there is none of that handle.
    pub fn with<R>(&self, handle: u64, work: impl FnOnce(&mut T) -> R) -> Answer<R> {
        self.lock().1.get_mut(&handle).map(work).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Takes an object out.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE if there is none of that handle.
    pub fn remove(&self, handle: u64) -> Answer<T> {
        self.lock().1.remove(&handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Device memory that a library takes for itself.
#[derive(Debug, Default)]
pub struct OwnMemory {
    blocks: Vec<CUdeviceptr>,
}

impl OwnMemory {
    /// Takes `bytes` on the thread's device.
    ///
    /// # Errors
    /// What the driver says.
    pub fn take(&mut self, bytes: usize) -> Answer<CUdeviceptr> {
        runtime::device::ready()?;
        let mut address = 0;
        if bytes > 0 {
            // SAFETY: a place for the address.
            unsafe { driver::cuMemAlloc_v2(&raw mut address, bytes)? };
            self.blocks.push(address);
        }
        Ok(address)
    }

    /// Gives everything back. At the end of a process the driver may be gone: that is not an error.
    pub fn give_back(&mut self) {
        for address in self.blocks.drain(..) {
            // SAFETY: no pointers.
            let _ = unsafe { driver::cuMemFree_v2(address) };
        }
    }
}

/// Attributes that a program sets on a descriptor: bytes by number.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    values: HashMap<i32, Vec<u8>>,
}

impl Attributes {
    /// Keeps an attribute.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE if there is no value.
    pub fn set(&mut self, id: i32, value: In<u8>, bytes: usize) -> Answer {
        self.values.insert(id, value.list(bytes)?);
        Ok(())
    }

    /// Writes an attribute, or zeros if it was never set, and how much that is.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_VALUE if there is no room.
    pub fn get(&self, id: i32, out: Out<u8>, bytes: usize, written: Out<usize>) -> Answer {
        let value = self.values.get(&id);
        let len = value.map_or(bytes, Vec::len);
        written.set_if_wanted(len);
        if bytes == 0 {
            return Ok(());
        }
        for index in 0..bytes.min(len) {
            out.set_at(index, value.map_or(0, |value| value[index]))?;
        }
        Ok(())
    }

    /// An attribute as a number; 0 if it was never set.
    pub fn number(&self, id: i32) -> u64 {
        let Some(value) = self.values.get(&id) else { return 0 };
        value.iter().take(8).rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
    }
}

/// Runs a library's function: its codes differ, so the caller says what a failure is.
pub(crate) fn library_call(codes: fn(u32) -> c_int, body: impl FnOnce() -> Answer) -> c_int {
    let failed = radrm_cuda_abi::CUDA_ERROR_UNKNOWN;
    match crate::guarded(Err(failed), body) {
        Ok(()) => 0,
        Err(code) => codes(code.0),
    }
}

/// Writes a library's functions: `fn radrm_NAME(arguments) { body }`, whose body gives an [`Answer`]; `codes`
/// makes the library's status of a driver's code.
macro_rules! library {
    ($codes:path; $($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// Every pointer is null or points to what the interface's documentation asks for.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> core::ffi::c_int {
            $crate::handles::library_call($codes, || $body)
        }
    )*};
}
pub(crate) use library;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_good_until_it_is_removed() {
        let registry = Registry::new();
        let (a, b) = (registry.add(1), registry.add(2));
        assert_ne!(a, b);
        assert_eq!(registry.with(b, |value| *value), Ok(2));
        assert_eq!(registry.remove(a), Ok(1));
        assert_eq!(registry.with(a, |value| *value), Err(CUDA_ERROR_INVALID_HANDLE));
        assert_eq!(registry.with(0, |value| *value), Err(CUDA_ERROR_INVALID_HANDLE));
    }

    #[test]
    fn attributes_come_back_as_they_were_set_and_are_zero_before() {
        let mut attributes = Attributes::default();
        let value = 0x1_0000_0002_u64;
        attributes.set(7, In::of(&value).cast(), 8).unwrap();
        assert_eq!(attributes.number(7), value);
        assert_eq!(attributes.number(8), 0);
        let (mut out, mut written) = (u64::MAX, 0);
        attributes.get(8, Out::of(&mut out).cast(), 8, Out::of(&mut written)).unwrap();
        assert_eq!((out, written), (0, 8));
        attributes.get(7, Out::of(&mut out).cast(), 8, Out::of(&mut written)).unwrap();
        assert_eq!((out, written), (value, 8));
    }
}
