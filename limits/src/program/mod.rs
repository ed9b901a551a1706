//! Start of a program: its environment, the libraries put into it, and whether it will take them.

pub mod elf;
pub mod environment;
pub mod given;
pub mod kernels;
pub mod libraries;
pub mod sanitizers;
pub mod target;
