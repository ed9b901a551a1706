//! Everything that takes, moves or describes memory.
//!
//! One lock guards all of it: [`state::State`]. What is charged to the machine is charged under that lock
//! and before the memory is handed out.

pub mod advice;
pub mod array;
pub mod charge;
pub mod copy;
pub mod device;
pub mod free;
pub mod host;
pub mod ipc;
pub mod objects;
pub(crate) mod pages;
pub mod pool;
pub mod set;
pub mod space;
pub mod special;
pub mod state;
pub mod vmm;
mod zeros;
