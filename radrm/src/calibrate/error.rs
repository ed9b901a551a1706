//! Errors of a calibration.

use std::io;

use radrm_base::reason;
use thiserror::Error;

/// Reason that nothing was measured.
#[derive(Debug, Error)]
pub(crate) enum CalibrateError {
    #[error("{what}: {}", reason(source))]
    Io { what: &'static str, source: io::Error },
    #[error("NVML does not answer, so it is not known whether a GPU is idle: {0}")]
    NoNvml(String),
    #[error("GPU {0} is in use by {1} processes: calibrate while it is idle")]
    Busy(u32, usize),
    #[error(
        "at {0} % the program ended before its launches were counted: give a shorter --time or --warm-up"
    )]
    Ended(u8),
    #[error("at {0} % the program launched nothing for {1} s")]
    NoLaunches(u8, u64),
    #[error(
        "the rate at 100 % was {0:.1} launches a second before and {1:.1} after: something else ran, nothing is stored"
    )]
    Drift(f64, f64),
}

impl crate::error::CommandError for CalibrateError {}
