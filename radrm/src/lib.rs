//! The command `radrm`: what was recorded is shown, limits are changed, and the daemon is asked.

pub mod audit;
pub mod client;
pub mod quota;
pub mod replay;
pub mod show;

/// The program's name in messages.
pub const NAME: &str = "radrm";

/// Something went wrong that is not the command line's fault: exit code 1.
pub type Failure = String;
