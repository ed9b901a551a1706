//! What the programs `radrm-run` and `radrm` are made of.
//!
//! `run` starts one program with the shim in it, keeps out of its way, and
//! records what it did with the GPUs; `show` prints what was recorded.

pub mod audit;
pub mod client;
pub mod daemon;
pub mod dry_run;
pub mod limits;
pub mod mps;
pub mod quota;
pub mod replay;
pub mod run;
pub mod show;
pub mod usage;

pub mod output;
pub mod report_file;
