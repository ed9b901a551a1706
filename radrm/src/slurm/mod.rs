//! Jobs for Slurm: `radrm sbatch`, and what tries them again after an out-of-memory.
//!
//! Slurm keeps queue, placement and history. These commands only call its own programs.

mod cluster;
mod error;
mod gres;
mod line;
mod programs;
pub mod retry;
mod script;
pub mod submit;

pub use error::SlurmError;
