//! `radrm-run`: one program, watched.

pub mod child;
pub mod cli;
pub mod dry_run;
pub mod emulated;
pub mod ending;
pub mod inherited;
pub mod layout;
pub mod leftovers;
pub mod place;
pub mod recording;
pub mod remarks;
pub mod report_file;
pub mod session;
pub mod signals;
pub mod supervise;
pub mod witness;

/// The program's name in messages.
pub const NAME: &str = "radrm-run";
