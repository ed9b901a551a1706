//! Units: a number of bytes, and a span or point of time.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::Add;

/// A number of bytes. Additions saturate: figures that come out of a damaged
/// file or a torn counter must never abort the program that shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// From kibibytes (1024 bytes).
    pub const fn from_kib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 10))
    }

    /// From mebibytes (1024 KiB).
    pub const fn from_mib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 20))
    }

    /// From gibibytes (1024 MiB).
    pub const fn from_gib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 30))
    }

    /// The plain number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// True for zero bytes.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `self - other`, or zero if `other` is larger.
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

/// For people: `512 B`, `1.50 KiB`, `5.67 GiB`. Three digits that say
/// something; bytes below one KiB are exact.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 1023.95 would be shown as "1024.0": that is the next unit's 1.00.
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let digits = if value < 9.995 {
            2
        } else if value < 1023.95 {
            1
        } else {
            0
        };
        f.pad(&format!("{value:.digits$} {}", UNITS[unit]))
    }
}

/// Nanoseconds. In a profile a point of time counts from the job's start on
/// the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time zero: the job's start.
    pub const ZERO: Nanos = Nanos(0);

    /// From microseconds.
    pub const fn from_micros(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000))
    }

    /// From milliseconds.
    pub const fn from_millis(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000_000))
    }

    /// From seconds.
    pub const fn from_secs(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000_000_000))
    }

    /// The plain number of nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// As seconds; exact to the nanosecond up to about 100 days.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self - other`, or zero if `other` is later.
    pub const fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(d: std::time::Duration) -> Nanos {
        Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

/// For people: `850 ns`, `12.3 ms`, `4.20 s`, `3 min 07 s`, `2 h 05 min`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        let text = if n < 1_000 {
            format!("{n} ns")
        } else if n < 999_950 {
            format!("{:.1} us", n as f64 / 1e3)
        } else if n < 999_950_000 {
            format!("{:.1} ms", n as f64 / 1e6)
        } else if n < 9_995_000_000 {
            format!("{:.2} s", n as f64 / 1e9)
        } else if n < 59_950_000_000 {
            format!("{:.1} s", n as f64 / 1e9)
        } else {
            let seconds = n.saturating_add(500_000_000) / 1_000_000_000;
            let (d, h, m, s) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
            if d > 0 {
                format!("{d} d {h:02} h")
            } else if h > 0 {
                format!("{h} h {m:02} min")
            } else {
                format!("{m} min {s:02} s")
            }
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_three_digits() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (10 << 20, "10.0 MiB"),
            ((1 << 20) - 1, "1.00 MiB"),
            (6_085_436_211, "5.67 GiB"),
            (141 << 30, "141.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Bytes(n).to_string(), text);
        }
    }

    #[test]
    fn times_change_unit_without_a_jump() {
        for (n, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (12_340, "12.3 us"),
            (999_999, "1.0 ms"),
            (999_999_999, "1.00 s"),
            (9_999_999_999, "10.0 s"),
            (59_999_999_999, "1 min 00 s"),
            (187_000_000_000, "3 min 07 s"),
            (7_500_000_000_000, "2 h 05 min"),
            (90_000_000_000_000, "1 d 01 h"),
        ] {
            assert_eq!(Nanos(n).to_string(), text);
        }
        assert!(Nanos(u64::MAX).to_string().ends_with(" h"));
    }
}
