//! The standard streams and the command lines of this project's programs.

pub mod output;
pub mod usage;
