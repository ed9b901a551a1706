//! cuSPARSELt: products with matrices of 2:4 sparsity. Descriptions, which the caller keeps, hold what is asked of
//! them later: shapes and types.
//!
//! A matrix of 2:4 sparsity stores half of its elements, and 2 bits for each that say where it stood (4 bits for
//! each of 4 bytes, where one of two is kept): 9/16 of the dense bytes for 2-byte elements, 10/16 for 1-byte ones.

use core::ffi::{c_char, c_int};

use radrm_cuda_abi::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED};
use radrm_emulator_ffi::{Answer, In, Out};

use crate::handles::library;
use crate::notes;
use crate::runtime;
use crate::solver::{cuda_type, status};

const VERSION: [c_int; 3] = [0, 8, 1];
/// `cusparseLtMatmulAlgAttribute_t`: the largest number of a way to compute.
const MAX_ID: c_int = 1;

/// Beginning of every description; the caller's structures are larger.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Description {
    rows: u64,
    columns: u64,
    /// Bytes of an element.
    element: u64,
    /// 1 if half of the elements are zero by structure, else 0.
    structured: u64,
}

impl Description {
    /// Bytes of the elements that are kept, and of where they stood.
    fn compressed(&self) -> u64 {
        let kept = self.rows.saturating_mul(self.columns).div_ceil(2);
        let bits = if self.element >= 4 { 4 } else { 2 };
        kept.saturating_mul(self.element).saturating_add(kept.saturating_mul(bits).div_ceil(8))
    }
}

/// A product: its sparse operand and its result.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Product {
    sparse: Description,
    result: Description,
}

fn describe(out: Out<Description>, rows: i64, columns: i64, kind: c_int, structured: bool) -> Answer {
    out.required()?;
    let size = |value| u64::try_from(value).ok().filter(|value| *value > 0).ok_or(CUDA_ERROR_INVALID_VALUE);
    let (rows, columns) = (size(rows)?, size(columns)?);
    out.set(Description { rows, columns, element: cuda_type(kind), structured: structured.into() })
}

fn sizes(own: Description, out: Out<usize>, buffer: Out<usize>) -> Answer {
    if own.structured == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = own.compressed();
    // The documentation names no size of the buffer; what is written through it is no more than the result.
    notes::guess("buffer for compressing to 2:4 sparsity (cuSPARSELt)", bytes);
    let bytes = usize::try_from(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    out.set(bytes)?;
    buffer.set(bytes)
}

library! { status;
    /// Makes a handle: nothing is kept in it.
    fn radrm_cusparseLtInit(handle: Out<u64>) {
        runtime::memory::device_now()?;
        handle.set(1)
    }

    /// Version of the library.
    fn radrm_cusparseLtGetVersion(_handle: u64, out: Out<c_int>) {
        out.set(VERSION[0] * 10000 + VERSION[1] * 100 + VERSION[2])
    }

    /// A part of the version.
    fn radrm_cusparseLtGetProperty(part: c_int, out: Out<c_int>) {
        out.set(*usize::try_from(part).ok().and_then(|part| VERSION.get(part)).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Describes a dense matrix.
    fn radrm_cusparseLtDenseDescriptorInit(
        _handle: u64, out: Out<Description>, rows: i64, columns: i64, _ld: i64, _alignment: u32, kind: c_int, _order: c_int,
    ) {
        describe(out, rows, columns, kind, false)
    }

    /// Describes a matrix of 2:4 sparsity.
    fn radrm_cusparseLtStructuredDescriptorInit(
        _handle: u64, out: Out<Description>, rows: i64, columns: i64, _ld: i64, _alignment: u32, kind: c_int, _order: c_int,
        sparsity: c_int,
    ) {
        if sparsity != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        describe(out, rows, columns, kind, true)
    }

    /// Describes a product; the first operand or the second is sparse.
    fn radrm_cusparseLtMatmulDescriptorInit(
        _handle: u64, out: Out<Product>, _op_a: c_int, _op_b: c_int, a: In<Description>, b: In<Description>,
        _c: In<Description>, d: In<Description>, _compute: c_int,
    ) {
        out.required()?;
        let (a, b) = (a.get()?, b.get()?);
        let sparse = if a.structured != 0 { a } else { b };
        out.set(Product { sparse, result: d.get()? })
    }

    /// Plans a product.
    fn radrm_cusparseLtMatmulPlanInit(_handle: u64, plan: Out<Product>, product: In<Product>, _way: u64) {
        plan.set(product.get()?)
    }

    /// A property of a way to compute: there is one way, without parts that are summed later.
    fn radrm_cusparseLtMatmulAlgGetAttribute(_handle: u64, _way: u64, attribute: c_int, out: Out<c_int>, bytes: usize) {
        if bytes >= 4 {
            out.set(c_int::from(attribute == MAX_ID))?;
        }
        Ok(())
    }

    /// Workspace of a product: not documented. A sum of the result in single precision is what parts of it would want.
    fn radrm_cusparseLtMatmulGetWorkspace(_handle: u64, plan: In<Product>, out: Out<usize>) {
        let result = plan.get()?.result;
        let bytes = result.rows.saturating_mul(result.columns).saturating_mul(4);
        notes::guess("workspace of a product with 2:4 sparsity (cuSPARSELt)", bytes);
        out.set(usize::try_from(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Bytes of a compressed matrix, and of the buffer for compressing it.
    fn radrm_cusparseLtSpMMACompressedSize(_handle: u64, plan: In<Product>, out: Out<usize>, buffer: Out<usize>) {
        sizes(plan.get()?.sparse, out, buffer)
    }

    /// The same without a product.
    fn radrm_cusparseLtSpMMACompressedSize2(_handle: u64, matrix: In<Description>, out: Out<usize>, buffer: Out<usize>) {
        sizes(matrix.get()?, out, buffer)
    }
}

/// A status in words: those of cuSPARSE.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cusparseLtGetErrorName(status: c_int) -> *const c_char {
    crate::sparse::radrm_cusparseGetErrorName(status)
}

/// A status at length.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cusparseLtGetErrorString(status: c_int) -> *const c_char {
    crate::sparse::radrm_cusparseGetErrorName(status)
}

// The caller's structures have 512 bytes.
const _: () = assert!(size_of::<Product>() <= 512);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_matrix_has_the_documented_share() {
        let share = |element| {
            let own = Description { rows: 64, columns: 128, element, structured: 1 };
            (own.compressed() * 16, 64 * 128 * element)
        };
        for (element, sixteenths) in [(2, 9), (1, 10), (4, 9)] {
            let (compressed, dense) = share(element);
            assert_eq!(compressed, sixteenths * dense, "{element} bytes");
        }
    }

    #[test]
    fn a_dense_matrix_is_not_compressed() {
        let dense = Description { rows: 4, columns: 4, element: 2, structured: 0 };
        let (mut one, mut two) = (0, 0);
        assert_eq!(sizes(dense, Out::of(&mut one), Out::of(&mut two)), Err(CUDA_ERROR_INVALID_VALUE));
    }
}
