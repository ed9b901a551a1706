//! How jobs on one GPU slow each other: the estimator's contention formula.

pub use radrm_estimator::interference::{Activity, Constants, speeds, speeds_into};
