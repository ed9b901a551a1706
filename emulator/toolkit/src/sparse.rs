//! cuSPARSE: descriptions of matrices. How much workspace an operation wants is in `data/workspaces.tsv`.

use core::ffi::{CStr, c_char, c_int};

use radrm_cuda_abi::CUDA_ERROR_INVALID_VALUE;
use radrm_emulator_ffi::{Answer, Out};

use crate::handles::{Registry, library};
use crate::notes;
use crate::solver::status;

/// A matrix or vector as it is described; handles and parameters are without size.
#[derive(Clone, Copy, Debug, Default)]
struct Matrix {
    rows: u64,
    columns: u64,
    stored: u64,
    stream: u64,
}

static OBJECTS: Registry<Matrix> = Registry::new();

/// Elements that a matrix stores.
pub(crate) fn stored(handle: u64) -> u64 {
    OBJECTS.with(handle, |own| own.stored).unwrap_or(0)
}

/// Rows of a matrix.
pub(crate) fn rows(handle: u64) -> u64 {
    OBJECTS.with(handle, |own| own.rows).unwrap_or(0)
}

fn add(out: Out<u64>, rows: u64, columns: u64, stored: u64) -> Answer {
    out.required()?;
    out.set(OBJECTS.add(Matrix { rows, columns, stored, stream: 0 }))
}

/// A number of elements that depends on the data: the sum of both operands' is an upper bound for sums, and
/// what products of matrices with few elements in each row come to.
fn of_both(one: u64, other: u64) -> u64 {
    notes::note(notes::Kind::Fill, "elements of a sparse result (cuSPARSE): the sum of both operands'");
    one + other
}

library! { status;
    /// Makes a handle, a description without size, or parameters.
    fn radrm_cusparse_create(out: Out<u64>) {
        add(out, 0, 0, 0)
    }

    /// Destroys any of them.
    fn radrm_cusparse_destroy(object: u64) {
        if object == 0 {
            return Ok(());
        }
        OBJECTS.remove(object).map(|_| ())
    }

    /// Describes a matrix in coordinate form.
    fn radrm_cusparseCreateCoo(
        out: Out<u64>, rows: u64, columns: u64, stored: u64, _r: u64, _c: u64, _v: u64, _index: c_int, _base: c_int,
        _kind: c_int,
    ) {
        add(out, rows, columns, stored)
    }

    /// Describes a matrix in compressed form, by rows or columns.
    fn radrm_cusparse_create_compressed(
        out: Out<u64>, rows: u64, columns: u64, stored: u64, _o: u64, _i: u64, _v: u64, _offsets: c_int, _index: c_int,
        _base: c_int, _kind: c_int,
    ) {
        add(out, rows, columns, stored)
    }

    /// Describes a dense matrix.
    fn radrm_cusparse_create_dense(
        out: Out<u64>, rows: u64, columns: u64, _lead: u64, _values: u64, _kind: c_int, _order: c_int,
    ) {
        add(out, rows, columns, rows.saturating_mul(columns))
    }

    /// Describes a dense vector.
    fn radrm_cusparse_create_vector(out: Out<u64>, size: u64, _values: u64, _kind: c_int) {
        add(out, size, 1, size)
    }

    /// Size of a sparse matrix.
    fn radrm_cusparseSpMatGetSize(matrix: u64, rows: Out<u64>, columns: Out<u64>, stored: Out<u64>) {
        let own = OBJECTS.with(matrix, |own| *own)?;
        rows.set_if_wanted(own.rows);
        columns.set_if_wanted(own.columns);
        stored.set_if_wanted(own.stored);
        Ok(())
    }

    /// Sets the stream.
    fn radrm_cusparseSetStream(handle: u64, stream: u64) {
        OBJECTS.with(handle, |own| own.stream = stream)
    }

    /// The stream.
    fn radrm_cusparseGetStream(handle: u64, out: Out<u64>) {
        out.set(OBJECTS.with(handle, |own| own.stream)?)
    }

    /// Version of the library.
    fn radrm_cusparseGetVersion(_handle: u64, out: Out<c_int>) {
        out.set(12904)
    }

    /// A part of the version.
    fn radrm_cusparseGetProperty(part: c_int, out: Out<c_int>) {
        out.set(*usize::try_from(part).ok().and_then(|part| [12, 9, 4].get(part)).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    /// The second size of a product of sparse matrices, and the size of its result.
    fn radrm_cusparseSpGEMM_compute(
        _handle: u64, _a: c_int, _b: c_int, _alpha: u64, a: u64, b: u64, _beta: u64, c: u64, _kind: c_int, _way: c_int,
        _product: u64, bytes: Out<usize>, buffer: u64,
    ) {
        bytes.required()?;
        let both = stored(a) + stored(b);
        notes::guess("workspace of sparse product (cuSPARSE)", both * 24);
        bytes.set(usize::try_from(both * 24).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)?;
        if buffer != 0 {
            let result = of_both(stored(a), stored(b));
            OBJECTS.with(c, |own| own.stored = result)?;
        }
        Ok(())
    }

    /// Elements of a sum of sparse matrices.
    fn radrm_cusparseXcsrgeam2Nnz(
        _handle: u64, _m: c_int, _n: c_int, _da: u64, nnz_a: c_int, _ra: u64, _ca: u64, _db: u64, nnz_b: c_int,
        _rb: u64, _cb: u64, _dc: u64, _rc: u64, total: Out<c_int>, _workspace: u64,
    ) {
        let count = |value: c_int| u64::try_from(value).unwrap_or(0);
        total.set(c_int::try_from(of_both(count(nnz_a), count(nnz_b))).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)
    }
}

const NAMES: &[(c_int, &CStr)] = &[
    (0, c"CUSPARSE_STATUS_SUCCESS"),
    (1, c"CUSPARSE_STATUS_NOT_INITIALIZED"),
    (2, c"CUSPARSE_STATUS_ALLOC_FAILED"),
    (3, c"CUSPARSE_STATUS_INVALID_VALUE"),
    (7, c"CUSPARSE_STATUS_INTERNAL_ERROR"),
    (10, c"CUSPARSE_STATUS_NOT_SUPPORTED"),
];

/// Name of a status.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cusparseGetErrorName(status: c_int) -> *const c_char {
    NAMES
        .iter()
        .find(|(code, _)| *code == status)
        .map_or(c"unrecognized error code", |(_, name)| name)
        .as_ptr()
}

/// A status in words: its name.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_cusparseGetErrorString(status: c_int) -> *const c_char {
    radrm_cusparseGetErrorName(status)
}
