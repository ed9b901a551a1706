//! The CUDA driver's binary interface as data and plain types.
//!
//! Three things live here and nowhere else:
//!
//! * [`handles`] and [`structs`]: the `repr(C)` types that cross the interface. Enumerations of the
//!   C headers are newtypes over integers, never Rust enums: a newer driver may hand over a value
//!   that this crate has no name for, and that must stay a number.
//! * [`result`]: `CUresult` and the codes this project acts on; [`nvml`]: the few types of NVML's.
//! * [`init_failure`]: what a failed `cuInit` means, and its remedy.
//! * `table` (feature `table`): the list of entry points, from which the shim's wrappers, the
//!   emulator's exports and the tests' expectations are generated.
//!
//! The names follow the C headers, so that a reader can look each of them up in NVIDIA's
//! documentation; that is why the style lints on names are off.
#![cfg_attr(not(any(test, feature = "table")), no_std)]
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

pub mod handles;
pub mod init_failure;
pub mod nvml;
pub mod result;
pub mod structs;
#[cfg(feature = "table")]
pub mod table;

pub use handles::*;
pub use nvml::*;
pub use result::*;
pub use structs::*;
