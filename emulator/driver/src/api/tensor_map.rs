//! Descriptions of tensors for the memory accelerator: kernels read them, and nothing is computed here. They are
//! zero, but arguments are looked at as the driver does, so that a program's mistake shows.

use core::ffi::{c_int, c_uint};

use radrm_cuda_abi::CUDA_ERROR_INVALID_VALUE;

use crate::util::ffi::{Answer, In, Out};

/// `CUtensorMap`: 128 bytes that only the hardware reads.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct TensorMap([u8; 128]);

/// Dimensions that a description may have.
const RANKS: core::ops::RangeInclusive<c_uint> = 1..=5;
/// The address of the tensor is a multiple of this.
const ALIGNMENT: u64 = 16;

fn encode(map: Out<TensorMap>, rank: c_uint, address: u64, dims: In<u64>) -> Answer {
    map.required()?;
    let right = RANKS.contains(&rank) && address != 0 && address.is_multiple_of(ALIGNMENT);
    if !right || dims.list(rank as usize)?.contains(&0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    map.set(TensorMap([0; 128]))
}

entry_points! {
    /// Describes a tensor that is read in boxes.
    fn cuTensorMapEncodeTiled(
        map: Out<TensorMap>, _data_type: c_int, rank: c_uint, address: u64, dims: In<u64>, _strides: In<u64>,
        _box_dims: In<u32>, _element_strides: In<u32>, _interleave: c_int, _swizzle: c_int, _promotion: c_int, _fill: c_int,
    ) |_driver| {
        encode(map, rank, address, dims)
    }

    /// Describes a tensor that is read as a convolution reads it.
    fn cuTensorMapEncodeIm2col(
        map: Out<TensorMap>, _data_type: c_int, rank: c_uint, address: u64, dims: In<u64>, _strides: In<u64>,
        _lower: In<c_int>, _upper: In<c_int>, _channels: u32, _pixels: u32, _element_strides: In<u32>,
        _interleave: c_int, _swizzle: c_int, _promotion: c_int, _fill: c_int,
    ) |_driver| {
        encode(map, rank, address, dims)
    }

    /// The same for tensors that are cut along one dimension.
    fn cuTensorMapEncodeIm2colWide(
        map: Out<TensorMap>, _data_type: c_int, rank: c_uint, address: u64, dims: In<u64>, _strides: In<u64>,
        _lower: c_int, _upper: c_int, _channels: u32, _pixels: u32, _element_strides: In<u32>, _interleave: c_int,
        _mode: c_int, _swizzle: c_int, _promotion: c_int, _fill: c_int,
    ) |_driver| {
        encode(map, rank, address, dims)
    }

    /// Gives a description another address.
    fn cuTensorMapReplaceAddress(map: Out<TensorMap>, address: u64) |_driver| {
        map.required()?;
        if address == 0 || !address.is_multiple_of(ALIGNMENT) { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(()) }
    }
}
