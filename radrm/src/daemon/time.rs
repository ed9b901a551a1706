//! The time of the day, which is also the scheduler's.

use std::time::{SystemTime, UNIX_EPOCH};

use radrm_scheduler_core::Millis;

/// Milliseconds since 1970.
pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
