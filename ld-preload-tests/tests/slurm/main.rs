//! The plug-in in a real Slurm: what holds for tasks, steps and jobs, and what is left behind.
//!
//! GPUs are emulated. They hold more than any grant, and their ledgers tell what was really taken.

mod accounting;
mod cluster;
mod containers;
mod cost;
mod enforcement;
mod engine;
mod faults;
mod fence;
mod jobs;
mod life;
mod needs;
mod retry;
mod rights;
mod store_faults;
