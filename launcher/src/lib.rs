//! `radrm-run`: one program, watched.
//!
//! A launch has four phases, each of which consumes the one before: `prepare::Prepared` knows and checks what was
//! asked for, `arm::Armed` has brought limits, MPS and environment into force, `spawn::Running` has a program,
//! `record::Finished` knows how it ended. Until the program is started each phase undoes what it made when it is
//! dropped, so a `error::LaunchError` leaves nothing behind.
//!
//! `attend` takes the place of the last two phases where another program starts the processes.

mod agent;
mod arm;
mod attend;
mod child;
mod child_stack;
pub mod cli;
mod contexts;
pub mod dry_run;
mod emulated;
pub mod ending;
mod error;
mod filters;
mod hook;
pub mod inherited;
mod job_control;
pub mod later;
pub mod layout;
mod leftovers;
mod outer;
mod outside;
pub mod own_stack;
mod place;
mod preload;
mod prepare;
pub mod prices;
mod record;
mod recorder;
mod recording;
mod remarks;
pub mod report_file;
pub mod session;
mod signals;
mod spawn;
mod stacks;
mod status_line;
mod step_flags;
mod supervise;
mod temporary;
mod tensors;
pub mod training;
mod vfork;
mod witness;

pub use radrm_cuda_abi::init_failure;

/// The program's name in messages.
pub const NAME: &str = "radrm-run";
