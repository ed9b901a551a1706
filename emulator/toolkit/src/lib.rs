//! Emulated CUDA toolkit: the runtime and the libraries above the driver, as far as they shape memory.
//!
//! Programs never link this library by name. The stand-ins of `radrm-emulator-facade` do, and lead each
//! export of a CUDA library to the function of the same name here, with `radrm_` before it
//! (`radrm_12_` where CUDA 12 has another form).
//!
//! Everything that takes memory goes to the driver by its public interface, as a program's calls do: so the
//! shim sees it. Nothing is computed. Where a library tells its caller how much memory to bring, the
//! figure is the documented or measured one; [`notes`] keeps what was reached without semantics.
//!
//! | module | is |
//! |---|---|
//! | [`runtime`] | the CUDA runtime |
//! | [`notes`] | what the run has to know about the figures' trust |
//! | [`calls`] | calls for which libraries launch kernels of their own |
//! | [`handles`] | handles of the libraries, and the memory that belongs to them |
//! | [`blas`], [`dnn`], [`fft`], [`sparse`], [`sparse_lt`], [`solver`] | the mathematical libraries |
//! | [`nccl`] | communication between the processes of a job |
//! | [`tools`] | what is left: random numbers, compilers, profilers |
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

pub mod blas;
pub mod calls;
pub mod dnn;
pub mod fft;
pub mod handles;
pub mod nccl;
pub mod notes;
pub mod runtime;
pub mod solver;
pub mod sparse;
pub mod sparse_lt;
pub mod tools;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what stands behind an export; a panic ends as `failed` in the caller, never as an unwound C frame.
pub(crate) fn guarded<R>(failed: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(failed)
}
