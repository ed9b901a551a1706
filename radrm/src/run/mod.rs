//! `radrm-run`: one program, watched.

pub mod child;
pub mod cli;
pub mod elf;
pub mod emulated;
pub mod ending;
pub mod environment;
pub mod inherited;
pub mod kernels;
pub mod leftovers;
pub mod libraries;
pub mod place;
pub mod recording;
pub mod session;
pub mod signals;
pub mod supervise;
pub mod target;
pub mod witness;
