//! cuFFT: plans and their workspaces.
//!
//! Documentation says that the work area is mostly as large as the data of one transform for sizes whose
//! prime factors are at most 127, and several times as large for others (Bluestein's algorithm, whose length
//! is the next power of two above twice the size). That is told, as an upper bound.

use core::ffi::{c_int, c_void};

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, In, Out};

use crate::handles::{OwnMemory, Registry, library};
use crate::notes;

/// A plan.
#[derive(Debug)]
struct Plan {
    memory: OwnMemory,
    automatic: bool,
    size: usize,
}

static PLANS: Registry<Plan> = Registry::new();

/// A driver's code as a result of cuFFT.
fn status(code: u32) -> c_int {
    match CUresult(code) {
        CUDA_ERROR_INVALID_HANDLE => 1,
        CUDA_ERROR_OUT_OF_MEMORY => 2,
        CUDA_ERROR_INVALID_VALUE => 4,
        CUDA_ERROR_NOT_SUPPORTED => 16,
        _ => 5,
    }
}

/// Bytes of a complex number of a transform's type (`cufftType`).
fn complex_of_type(kind: c_int) -> u64 {
    // C2C, R2C, C2R are of single precision, Z2Z, D2Z, Z2D of double.
    if matches!(kind, 0x69 | 0x6a | 0x6c) { 16 } else { 8 }
}

/// Largest prime factor.
fn largest_factor(mut number: u64) -> u64 {
    let (mut largest, mut factor) = (1, 2);
    while factor * factor <= number {
        while number.is_multiple_of(factor) {
            largest = factor;
            number /= factor;
        }
        factor += 1;
    }
    largest.max(number)
}

/// Workspace of a transform.
fn work_area(lengths: &[u64], batch: u64, complex: u64) -> u64 {
    let data: u64 = lengths.iter().product::<u64>().saturating_mul(batch).saturating_mul(complex);
    let longest = lengths
        .iter()
        .filter(|length| largest_factor(**length) > 127)
        .map(|length| (2 * length).next_power_of_two().div_ceil(*length))
        .max();
    data.saturating_mul(longest.map_or(1, |times| times + 1))
}

fn make(plan: u64, lengths: &[u64], batch: u64, complex: u64, out: Out<usize>) -> Answer {
    if lengths.contains(&0) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = work_area(lengths, batch, complex);
    notes::guess("work area of a Fourier transform (cuFFT)", bytes);
    let size = usize::try_from(bytes).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    PLANS.with(plan, |own| {
        own.size = size;
        if own.automatic { own.memory.take(size).map(|_| ()) } else { Ok(()) }
    })??;
    out.set_if_wanted(size);
    Ok(())
}

fn create(out: Out<c_int>) -> Answer<u64> {
    out.required()?;
    let handle = PLANS.add(Plan { memory: OwnMemory::default(), automatic: true, size: 0 });
    out.set(c_int::try_from(handle).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)?;
    Ok(handle)
}

fn handle(plan: c_int) -> u64 {
    u64::from(plan.cast_unsigned())
}

fn lengths<T: Copy + TryInto<u64>>(list: In<T>, rank: c_int) -> Answer<Vec<u64>> {
    let rank = usize::try_from(rank).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    list.list(rank)?.into_iter().map(|n| n.try_into().map_err(|_| CUDA_ERROR_INVALID_VALUE)).collect()
}

fn count(value: c_int) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

library! { status;
    /// Makes a plan.
    fn radrm_cufftCreate(out: Out<c_int>) {
        create(out).map(|_| ())
    }

    /// Destroys a plan, with its work area.
    fn radrm_cufftDestroy(plan: c_int) {
        PLANS.remove(handle(plan))?.memory.give_back();
        Ok(())
    }

    /// Says who brings the work area.
    fn radrm_cufftSetAutoAllocation(plan: c_int, automatic: c_int) {
        PLANS.with(handle(plan), |own| own.automatic = automatic != 0)
    }

    /// Takes the caller's work area: the plan's own goes back.
    fn radrm_cufftSetWorkArea(plan: c_int, _area: u64) {
        PLANS.with(handle(plan), |own| own.memory.give_back())
    }

    /// Size of the work area.
    fn radrm_cufftGetSize(plan: c_int, out: Out<usize>) {
        out.set(PLANS.with(handle(plan), |own| own.size)?)
    }

    /// Prepares transforms of any number of dimensions.
    fn radrm_cufftXtMakePlanMany(
        plan: c_int, rank: c_int, n: In<i64>, _in: *const c_void, _is: i64, _id: i64, kind: c_int, _on: *const c_void,
        _os: i64, _od: i64, _out_kind: c_int, batch: i64, out: Out<usize>, execution: c_int,
    ) {
        // Complex types of `cudaDataType`: half 6, single 4, double 5; real ones need as much.
        let complex = match execution {
            5 | 1 => 16,
            6 | 2 | 14 | 15 => 4,
            _ => 8,
        };
        let _ = kind;
        make(handle(plan), &lengths(n, rank)?, u64::try_from(batch).unwrap_or(0), complex, out)
    }

    /// Prepares transforms of any number of dimensions.
    fn radrm_cufftMakePlanMany(
        plan: c_int, rank: c_int, n: In<c_int>, _in: *const c_void, _is: c_int, _id: c_int, _on: *const c_void,
        _os: c_int, _od: c_int, kind: c_int, batch: c_int, out: Out<usize>,
    ) {
        make(handle(plan), &lengths(n, rank)?, count(batch), complex_of_type(kind), out)
    }

    /// Prepares transforms of any number of dimensions.
    fn radrm_cufftMakePlanMany64(
        plan: c_int, rank: c_int, n: In<i64>, _in: *const c_void, _is: i64, _id: i64, _on: *const c_void, _os: i64,
        _od: i64, kind: c_int, batch: i64, out: Out<usize>,
    ) {
        let batch = u64::try_from(batch).unwrap_or(0);
        make(handle(plan), &lengths(n, rank)?, batch, complex_of_type(kind), out)
    }

    /// Makes and prepares transforms of any number of dimensions.
    fn radrm_cufftPlanMany(
        plan: Out<c_int>, rank: c_int, n: In<c_int>, _in: *const c_void, _is: c_int, _id: c_int, _on: *const c_void,
        _os: c_int, _od: c_int, kind: c_int, batch: c_int,
    ) {
        let lengths = lengths(n, rank)?;
        let mut size = 0;
        make(create(plan)?, &lengths, count(batch), complex_of_type(kind), Out::of(&mut size))
    }

    /// Prepares transforms of one dimension.
    fn radrm_cufftMakePlan1d(plan: c_int, n: c_int, kind: c_int, batch: c_int, out: Out<usize>) {
        make(handle(plan), &[count(n)], count(batch), complex_of_type(kind), out)
    }

    /// Prepares a transform of two dimensions.
    fn radrm_cufftMakePlan2d(plan: c_int, nx: c_int, ny: c_int, kind: c_int, out: Out<usize>) {
        make(handle(plan), &[count(nx), count(ny)], 1, complex_of_type(kind), out)
    }

    /// Prepares a transform of three dimensions.
    fn radrm_cufftMakePlan3d(plan: c_int, nx: c_int, ny: c_int, nz: c_int, kind: c_int, out: Out<usize>) {
        make(handle(plan), &[count(nx), count(ny), count(nz)], 1, complex_of_type(kind), out)
    }

    /// Makes and prepares transforms of one dimension.
    fn radrm_cufftPlan1d(plan: Out<c_int>, n: c_int, kind: c_int, batch: c_int) {
        let mut size = 0;
        make(create(plan)?, &[count(n)], count(batch), complex_of_type(kind), Out::of(&mut size))
    }

    /// Makes and prepares a transform of two dimensions.
    fn radrm_cufftPlan2d(plan: Out<c_int>, nx: c_int, ny: c_int, kind: c_int) {
        let mut size = 0;
        make(create(plan)?, &[count(nx), count(ny)], 1, complex_of_type(kind), Out::of(&mut size))
    }

    /// Makes and prepares a transform of three dimensions.
    fn radrm_cufftPlan3d(plan: Out<c_int>, nx: c_int, ny: c_int, nz: c_int, kind: c_int) {
        let mut size = 0;
        let lengths = [count(nx), count(ny), count(nz)];
        make(create(plan)?, &lengths, 1, complex_of_type(kind), Out::of(&mut size))
    }

    /// Version of the library.
    fn radrm_cufftGetVersion(out: Out<c_int>) {
        out.set(12500)
    }

    /// A part of the version.
    fn radrm_cufftGetProperty(part: c_int, out: Out<c_int>) {
        out.set(*usize::try_from(part).ok().and_then(|part| [12, 5, 0].get(part)).ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_large_primes_want_more() {
        assert_eq!(largest_factor(1024), 2);
        assert_eq!(largest_factor(2 * 127), 127);
        assert_eq!(largest_factor(131), 131);
        assert_eq!(work_area(&[64, 64], 4, 8), 4 * 64 * 64 * 8);
        // 131: the next power of two above 262 is 512, four times as long.
        assert_eq!(work_area(&[131], 1, 8), 131 * 8 * 5);
    }
}
