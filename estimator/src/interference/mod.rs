//! Interference: how much jobs on one GPU slow each other.
//!
//! A speed is a job's rate beside others against its rate alone, 0 to 1. [`Predictor`] is the one interface: the
//! residents of a GPU in, each one's speed with an interval out. A [`Learner`] makes one from what was observed.

mod company;
mod compose;
mod effects;
mod fit;
mod formula;
mod host;
mod learner;
mod memo;
mod nested;
mod predictor;
mod shares;
mod sum;

pub use company::{Company, Resident};
pub use compose::{both, compose, join, settle};
pub use effects::{Effects, Program};
pub use fit::fit;
pub use formula::{Constants, pair_speeds, speeds, speeds_into};
pub use host::{HostLoad, HostSpec, host_speeds};
pub use learner::Learner;
pub use memo::Companies;
pub use predictor::{Predictor, Speed, Spread};
pub use radrm_base::Activity;
pub use shares::ShareCurve;
pub use sum::PairSum;
