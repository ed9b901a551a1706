//! Units: bytes, points and spans of time, thousandths.
//!
//! Everything that decides is an integer, so that a replay on one node takes the decisions that a daemon on
//! another one took. Arithmetic saturates: figures of a damaged file or a torn counter must never abort the
//! program that shows them.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::iter::Sum;
use core::ops::Add;

#[cfg(feature = "serde")]
use serde::de::{self, Unexpected, Visitor};
#[cfg(feature = "serde")]
use serde::{Deserialize, Deserializer, Serialize};

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(transparent))]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);
    /// More than any device has.
    pub const MAX: Self = Self(u64::MAX);

    /// From kibibytes (1024 bytes).
    #[must_use]
    pub const fn from_kib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 10))
    }

    /// From mebibytes (1024 KiB).
    #[must_use]
    pub const fn from_mib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 20))
    }

    /// From gibibytes (1024 MiB).
    #[must_use]
    pub const fn from_gib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 30))
    }

    /// The plain number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole mebibytes, rounded up.
    #[must_use]
    pub const fn mib(self) -> u64 {
        self.0.div_ceil(1 << 20)
    }

    /// True for zero bytes.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `self + other`, at most [`Bytes::MAX`].
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// `self - other`, or zero if `other` is larger.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// A share of it, rounded down; it may be more than the whole.
    #[must_use]
    pub fn part(self, share: Permille) -> Self {
        Self(u64::try_from(u128::from(self.0) * u128::from(share.0) / 1000).unwrap_or(u64::MAX))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.plus(other)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Self::plus)
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(transparent))]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time zero: the job's start.
    pub const ZERO: Nanos = Nanos(0);

    /// From microseconds.
    #[must_use]
    pub const fn from_micros(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000))
    }

    /// From milliseconds.
    #[must_use]
    pub const fn from_millis(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000_000))
    }

    /// From seconds.
    #[must_use]
    pub const fn from_secs(n: u64) -> Nanos {
        Nanos(n.saturating_mul(1_000_000_000))
    }

    /// The plain number of nanoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// As seconds; exact to the nanosecond up to about 100 days.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self - other`, or zero if `other` is later.
    #[must_use]
    pub const fn minus(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl From<core::time::Duration> for Nanos {
    fn from(d: core::time::Duration) -> Nanos {
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
            long(n / 1_000_000)
        };
        f.pad(&text)
    }
}

/// Seconds and more in at most two units, rounded to the smaller one.
fn long(ms: u64) -> String {
    let rounded = |unit: u64| ms.saturating_add(unit / 2) / unit;
    let (seconds, minutes, hours) = (rounded(1000), rounded(60_000), rounded(3_600_000));
    match (seconds, minutes) {
        (0..60, _) => format!("{seconds} s"),
        (60..3600, _) => format!("{} min {:02} s", seconds / 60, seconds % 60),
        (_, 0..1440) => format!("{} h {:02} min", minutes / 60, minutes % 60),
        _ => format!("{} d {:02} h", hours / 24, hours % 24),
    }
}

/// Milliseconds: a span, or a point of time counted from an origin that the caller keeps
/// (a replay's begin, or 1970). The core only compares and subtracts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(transparent))]
pub struct Millis(pub u64);

impl Millis {
    /// Time zero, or no time at all.
    pub const ZERO: Self = Self(0);
    /// Never.
    pub const MAX: Self = Self(u64::MAX);

    /// From seconds.
    #[must_use]
    pub const fn from_secs(n: u64) -> Self {
        Self(n.saturating_mul(1000))
    }

    /// From minutes.
    #[must_use]
    pub const fn from_mins(n: u64) -> Self {
        Self(n.saturating_mul(60_000))
    }

    /// The plain number of milliseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// As seconds, for reports.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// `self + span`, at most [`Millis::MAX`].
    #[must_use]
    pub const fn plus(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// `self - earlier`, or zero if that is later.
    #[must_use]
    pub const fn minus(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// For people: `850 ms`, `42 s`, `12 min 05 s`, `3 h 20 min`.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.0 < 1000 { format!("{} ms", self.0) } else { long(self.0) };
        f.pad(&text)
    }
}

/// Thousandths of a whole: a GPU's SM activity, a share of its SMs. May exceed 1000 where shares
/// or activities of several jobs are added up.
///
/// Read as a number of thousandths (`800`) or as text in per cent (`"80%"`); written as a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize), serde(transparent))]
pub struct Permille(pub u32);

impl Permille {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// All of it.
    pub const WHOLE: Self = Self(1000);

    /// From a fraction of one; what is not a number or negative is zero.
    #[must_use]
    pub fn from_fraction(fraction: f64) -> Self {
        // A cast from float saturates, and sends NaN to zero.
        Self((fraction * 1000.0 + 0.5) as u32)
    }

    /// From whole per cents.
    #[must_use]
    pub const fn from_percent(percent: u32) -> Self {
        Self(percent.saturating_mul(10))
    }

    /// As a fraction of one.
    #[must_use]
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 1000.0
    }

    /// `self + other`, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

#[cfg(feature = "serde")]
impl<'de> Deserialize<'de> for Permille {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Part)
    }
}

#[cfg(feature = "serde")]
/// Reads a [`Permille`].
struct Part;

#[cfg(feature = "serde")]
impl Visitor<'_> for Part {
    type Value = Permille;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("thousandths such as 800, or text in per cent such as \"80%\"")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Permille, E> {
        let part = u32::try_from(number).map(Permille);
        part.map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Permille, E> {
        let part = u32::try_from(number).map(Permille);
        part.map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Permille, E> {
        let percent = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        let part = percent.map(|percent| Permille::from_fraction(percent / 100.0));
        part.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// For people: `62.5 %`.
impl fmt::Display for Permille {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(10) {
            f.pad(&format!("{} %", self.0 / 10))
        } else {
            f.pad(&format!("{}.{} %", self.0 / 10, self.0 % 10))
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(Bytes(1).mib(), 1);
        assert_eq!(Millis(850).to_string(), "850 ms");
        assert_eq!(Millis::from_secs(725).to_string(), "12 min 05 s");
        assert_eq!(Millis::from_mins(200).to_string(), "3 h 20 min");
        assert_eq!(Permille(625).to_string(), "62.5 %");
        assert_eq!(Permille::from_fraction(f64::NAN), Permille::ZERO);
        assert_eq!(Permille::from_fraction(0.8213), Permille(821));
    }

    #[test]
    fn durations_are_rounded_and_not_cut() {
        for (ms, text) in [
            (999, "999 ms"),
            (1_500, "2 s"),
            (59_999, "1 min 00 s"),
            (3_599_600, "1 h 00 min"),
            (7_499_999, "2 h 05 min"),
            (86_399_999, "1 d 00 h"),
            (100_000_000, "1 d 04 h"),
        ] {
            assert_eq!(Millis(ms).to_string(), text, "{ms}");
            assert!(ms < 60_000 || Nanos(ms * 1_000_000).to_string() == text, "{ms}");
        }
    }

    #[test]
    #[cfg(feature = "serde")]
    fn parts_are_read_as_thousandths_or_as_text_in_per_cent() {
        let read = |text: &str| serde_json::from_str::<Permille>(text).map_err(|error| error.to_string());
        for (text, part) in [
            ("800", 800),
            ("\"80%\"", 800),
            ("\"12.5 %\"", 125),
            ("1700", 1700),
            ("\"100%\"", 1000),
            ("0", 0),
        ] {
            assert_eq!(read(text), Ok(Permille(part)), "{text}");
        }
        for text in ["\"80\"", "\"%\"", "\"101%\"", "\"-1%\"", "\"nan%\"", "-1", "0.8", "5000000000", "[1]"] {
            assert!(read(text).unwrap_err().contains("expected thousandths such as 800"), "{text}");
        }
        assert_eq!(serde_json::to_string(&Permille(800)).unwrap(), "800");
    }

    #[test]
    fn sums_saturate() {
        assert_eq!(Bytes::MAX.plus(Bytes(1)), Bytes::MAX);
        assert_eq!(Millis::MAX.plus(Millis(1)), Millis::MAX);
        assert_eq!(Bytes(1).minus(Bytes(2)), Bytes::ZERO);
    }

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
