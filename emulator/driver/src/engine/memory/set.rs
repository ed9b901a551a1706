//! Memsets.

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::memory::copy::host_view;
use crate::util::ffi::Answer;

/// A memset: `rows` rows of `width` elements of `element` bytes, `pitch` bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// First byte.
    pub address: u64,
    /// Distance of rows.
    pub pitch: u64,
    /// Value of an element.
    pub value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u32,
    /// Elements of a row.
    pub width: u64,
    /// Rows.
    pub rows: u64,
}

impl Set {
    fn span(&self) -> Option<u64> {
        let width = self.width.checked_mul(self.element.into())?;
        self.pitch.checked_mul(self.rows - 1)?.checked_add(width)
    }
}

/// Checks a memset and does it, as far as there are pages. No time is taken.
///
/// # Errors
/// CUDA_ERROR_INVALID_VALUE.
pub fn fill(driver: &'static Driver, device: CUdevice, set: &Set) -> Answer {
    if let Some(first) = checked(driver, device, set)? {
        write(first, set);
    }
    Ok(())
}

pub(crate) fn checked(driver: &'static Driver, device: CUdevice, set: &Set) -> Answer<Option<*mut u8>> {
    let narrow = set.rows > 1 && set.pitch < set.width.saturating_mul(set.element.into());
    if !set.address.is_multiple_of(set.element.into()) || narrow {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if set.width == 0 || set.rows == 0 {
        return Ok(None);
    }
    let state_knows = driver.memory.lock().blocks.find(set.address).is_some();
    if !state_knows {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    host_view(driver, device, set.address, set.span().ok_or(CUDA_ERROR_INVALID_VALUE)?)
}

pub(crate) fn write(first: *mut u8, set: &Set) {
    let bytes = set.value.to_le_bytes();
    let element = set.element as usize;
    for row in 0..set.rows {
        // SAFETY: the whole range was looked up and has pages.
        let row = unsafe {
            std::slice::from_raw_parts_mut(
                first.add((row * set.pitch) as usize),
                set.width as usize * element,
            )
        };
        if bytes[..element].iter().all(|b| *b == bytes[0]) {
            row.fill(bytes[0]);
        } else {
            row.chunks_exact_mut(element).for_each(|place| place.copy_from_slice(&bytes[..element]));
        }
    }
}
