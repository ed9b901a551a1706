//! Extents of grids and blocks.

use core::ffi::c_uint;

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dim3 {
    /// Extent in x.
    pub x: c_uint,
    /// Extent in y.
    pub y: c_uint,
    /// Extent in z.
    pub z: c_uint,
}
