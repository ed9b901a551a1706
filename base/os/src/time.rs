//! The wall clock.

use std::time::{Duration, SystemTime};

/// Time since 1970; zero on a computer whose clock stands before it.
#[must_use]
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Time since 1970, ms.
#[must_use]
pub fn epoch_ms() -> u64 {
    u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
}

/// Time since 1970, ns.
#[must_use]
pub fn epoch_ns() -> u64 {
    u64::try_from(since_epoch().as_nanos()).unwrap_or(u64::MAX)
}
