//! Units and words that several crates share. No I/O, no state.

#![no_std]

extern crate alloc;

pub mod batch;
pub mod calendar;
pub mod kind;
pub mod machine_file;
pub mod program_kind;
pub mod random;
pub mod reason;
pub mod run;
pub mod signal;
pub mod step;
pub mod student;
pub mod units;
pub mod user;
pub mod written;

pub use kind::{KIND_COUNT, Kind};
pub use program_kind::ProgramKind;
pub use reason::reason;
pub use run::{Activity, HostMeter, HostUse, MemoryOrigin, PastRun};
pub use units::{Bytes, Millis, Nanos, Permille};
pub use user::UserId;
