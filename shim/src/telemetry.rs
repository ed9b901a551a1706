//! The telemetry crate's names as this crate uses them.
pub(crate) use radrm_telemetry::layout::{LANES, LaneRow};
pub(crate) use radrm_telemetry::*;
