//! Units and words that several crates share. No I/O, no state.

#![no_std]

extern crate alloc;

pub mod run;
pub mod units;

pub use run::{Activity, PastRun};
pub use units::{Bytes, Millis, Nanos, Permille};
