//! Spans of time as people write them.

use radrm_base::written;

/// A span in milliseconds; `None` for what is none: `90s`, `30m`, `4h30m`, `1d`, `1:30:00`, `1-12:00:00`, or minutes.
#[must_use]
pub fn milliseconds(text: &str) -> Option<u64> {
    let minutes = |text: &str| text.parse::<f64>().ok().filter(|value| (0.0..1e12).contains(value));
    written::span(text).or_else(|| Some((minutes(text.trim())? * 60_000.0).round() as u64))
}
