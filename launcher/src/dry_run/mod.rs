//! `radrm-run --dry-run`: how much GPU memory a program will need, found out without a GPU.
//!
//! The program runs as it is on an emulated machine, with stand-ins for CUDA's libraries. Its framework's
//! own allocator does what it always does; a few lines of Python that are loaded with the interpreter read its
//! figures. The figures are reported when the program has ended.
//!
//! | module | is |
//! |---|---|
//! | [`flags`] | the options |
//! | [`setup`] | stand-ins, the Python side, the environment |
//! | [`ranks`] | some ranks of a large job |
//! | [`files`] | the files that the program writes |
//! | [`installed`] | genuine libraries of the system that need no driver |
//! | [`notes`] | what the program's processes wrote down |
//! | [`outcome`] | the figures, and whether they can be trusted |
//! | [`caches`] | what a compiler keeps from one dry run to the next |
//! | [`cards`] | which GPUs the program fits on |
//! | [`need`] | what the program needs on a real GPU |
//! | [`stored`] | what of it goes into the profile |
//! | [`trackers`] | trackers of experiments send nothing |
//! | [`work`] | the work of one step, and its predicted time |
//! | [`trial`] | a dry run of which only the report is wanted |
//! | [`verdict`] | whether it fits on the card on which it ran |
//! | [`batch`] | the largest batch that fits |
//! | [`fits`] | which cards it fits on, by a run on each |
//! | [`answer`] | where the answer of several runs goes |
//! | [`kept`] | the profile of one of several runs |

mod answer;
pub mod batch;
mod caches;
pub mod cards;
pub mod files;
pub mod fits;
pub mod flags;
#[cfg(test)]
mod hooks;
pub mod installed;
pub mod kept;
pub mod need;
pub mod notes;
pub mod outcome;
pub mod ranks;
pub mod setup;
pub mod stored;
mod throughput;
mod trackers;
pub mod trial;
pub mod verdict;
pub mod work;

/// Prefix of a remark on why a GPU may take more than the figures.
pub(crate) use radrm_profile::model::dry_run::NO_BOUND;

pub use flags::{DryRun, Flags};
pub use setup::{Found, Setup};
