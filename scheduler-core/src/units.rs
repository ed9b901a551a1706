//! Units: bytes, points and spans of time, thousandths.
//!
//! Everything that decides is an integer, so that a replay on one machine
//! takes the decisions that a daemon on another one took.

use std::fmt;
use std::iter::Sum;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A number of bytes. Additions saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);
    /// More than any device has.
    pub const MAX: Self = Self(u64::MAX);

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

    /// `self + other`, at most [`Bytes::MAX`].
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// `self - other`, or zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Self::plus)
    }
}

/// For people: `512 MiB`, `17.4 GiB`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.0 >> 20;
        if mib < 1024 {
            f.pad(&format!("{mib} MiB"))
        } else {
            // Tenths, rounded down: free memory is never shown as more than there is.
            let tenths = self.0 / ((1 << 30) / 10);
            f.pad(&format!("{}.{} GiB", tenths / 10, tenths % 10))
        }
    }
}

/// Milliseconds: a span, or a point of time counted from an origin that the caller keeps
/// (a replay's begin, or 1970). The core only compares and subtracts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
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
        let s = self.0 / 1000;
        let text = match s {
            0 => format!("{} ms", self.0),
            1..60 => format!("{s} s"),
            60..3600 => format!("{} min {:02} s", s / 60, s % 60),
            3600..86_400 => format!("{} h {:02} min", s / 3600, s / 60 % 60),
            _ => format!("{} d {:02} h", s / 86_400, s / 3600 % 24),
        };
        f.pad(&text)
    }
}

/// Thousandths of a whole: a GPU's SM activity, a share of its SMs. May exceed 1000 where shares
/// or activities of several jobs are added up.
///
/// Read as a number of thousandths (`800`) or as text in per cent (`"80%"`); written as a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
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

impl<'de> Deserialize<'de> for Permille {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Part)
    }
}

/// Reads a [`Permille`].
struct Part;

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
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(Bytes::from_mib(512).to_string(), "512 MiB");
        assert_eq!(Bytes::from_gib(40).to_string(), "40.0 GiB");
        assert_eq!(Bytes::from_mib(17_900).to_string(), "17.4 GiB");
        assert_eq!(Bytes(1).mib(), 1);
        assert_eq!(Millis(850).to_string(), "850 ms");
        assert_eq!(Millis::from_secs(725).to_string(), "12 min 05 s");
        assert_eq!(Millis::from_mins(200).to_string(), "3 h 20 min");
        assert_eq!(Permille(625).to_string(), "62.5 %");
        assert_eq!(Permille::from_fraction(f64::NAN), Permille::ZERO);
        assert_eq!(Permille::from_fraction(0.8213), Permille(821));
    }

    #[test]
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
}
