//! Sweeps: many runs of programs from one file.
//!
//! [`read`] turns a file into a [`Plan`]: groups of runs. It is pure but for the file itself, so an interrupted sweep
//! finds the same runs again. [`execute`] runs what is left of them: each by a [`supervisor`], a process of its own that
//! outlives a killed sweep, or as a [`job`] of [`radrmd`]. Sweep and supervisor meet in the files of an [`attempt`], and how
//! each run ended is in a [`store`].

pub mod attempt;
pub mod company;
pub mod early;
pub mod error;
pub mod execute;
pub mod expand;
pub mod figures;
pub mod folder;
pub mod job;
pub mod link;
pub mod machine;
pub mod metrics;
pub mod options;
mod own;
pub mod plan;
pub mod radrmd;
pub mod radt;
mod read;
pub mod report;
pub mod statistics;
pub mod stop;
pub mod store;
pub mod supervisor;
mod tensorboard;

pub use error::SweepError;
pub use plan::Plan;
pub use read::{Source, is_sweep, read};
