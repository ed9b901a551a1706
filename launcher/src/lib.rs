//! `radrm-run`: one program, watched.
//!
//! A launch has four phases, each of which consumes the one before: [`prepare::Prepared`] knows and checks what was
//! asked for, [`arm::Armed`] has brought limits, MPS and environment into force, [`spawn::Running`] has a program,
//! [`record::Finished`] knows how it ended. Until the program is started each phase undoes what it made when it is
//! dropped, so a [`error::LaunchError`] leaves nothing behind.

pub mod arm;
pub mod child;
pub mod cli;
pub mod dry_run;
pub mod emulated;
pub mod ending;
pub mod error;
pub mod inherited;
pub mod job_control;
pub mod layout;
pub mod leftovers;
pub mod place;
pub mod preload;
pub mod prepare;
pub mod record;
pub mod recording;
pub mod remarks;
pub mod report_file;
pub mod session;
pub mod signals;
pub mod spawn;
pub mod supervise;
pub mod witness;

/// The program's name in messages.
pub const NAME: &str = "radrm-run";
