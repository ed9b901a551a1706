//! Amounts of memory and times in files of settings: `"5GiB"` and `"90s"`, or plain bytes and milliseconds.

use std::fmt;

use serde::de::{self, Deserializer, Unexpected, Visitor};

use crate::units::{Bytes, Millis};

const SIZES: [(&str, f64); 5] = [
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("B", 1.0),
];
const SPANS: [(&str, f64); 5] =
    [("ms", 1.0), ("min", 60_000.0), ("s", 1000.0), ("h", 3_600_000.0), ("d", 86_400_000.0)];

/// The number in front of one of these units, in the unit with the factor 1. Numbers that are no `u64` are none.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let text = text.trim();
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), factor)))?;
    let is_plain = number.starts_with(|c: char| c.is_ascii_digit())
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value = number.parse::<f64>().ok().filter(|_| is_plain)? * factor;
    (value < 9e18).then_some(value.round() as u64)
}

/// `5GiB` or `1.5 TiB`: powers of 1024.
pub(crate) fn bytes_of(text: &str) -> Option<Bytes> {
    with_unit(text, &SIZES).map(Bytes)
}

struct Unit {
    units: &'static [(&'static str, f64)],
    expected: &'static str,
}

impl Visitor<'_> for Unit {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        with_unit(text, self.units).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// Reads bytes: a number, or text such as `"5GiB"`.
///
/// # Errors
/// The deserializer's; a text without a known unit.
pub fn plain_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(Unit {
        units: &SIZES,
        expected: "bytes such as 5368709120, or text such as \"5GiB\"",
    })
}

/// Reads [`Bytes`] like [`plain_bytes`].
pub(crate) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    plain_bytes(from).map(Bytes)
}

/// Reads a time: milliseconds, or text such as `"90s"`, `"10min"`, `"4h"`.
pub(crate) fn millis<'de, D: Deserializer<'de>>(from: D) -> Result<Millis, D::Error> {
    let unit = Unit {
        units: &SPANS,
        expected: "milliseconds such as 90000, or text such as \"90s\", \"10min\" or \"4h\"",
    };
    from.deserialize_any(unit).map(Millis)
}

/// Likewise, or none.
pub(crate) fn some_millis<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Millis>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(transparent)]
    struct Time(#[serde(deserialize_with = "millis")] Millis);
    let time: Option<Time> = serde::Deserialize::deserialize(from)?;
    Ok(time.map(|Time(time)| time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_and_nothing_else() {
        for (text, expected) in [
            ("5GiB", Some(5 << 30)),
            ("1.5 GiB", Some(3 << 29)),
            ("0MiB", Some(0)),
            ("12B", Some(12)),
            ("2TiB", Some(2 << 40)),
        ] {
            assert_eq!(bytes_of(text), expected.map(Bytes), "{text}");
        }
        for text in [
            "",
            "5",
            "GiB",
            "-1GiB",
            "+1GiB",
            "1e3GiB",
            "5GB",
            "5gib",
            "nanGiB",
            "99999999999TiB",
            "7%",
            ".GiB",
        ] {
            assert_eq!(bytes_of(text), None, "{text}");
        }
        for (text, ms) in
            [("90s", 90_000), ("10min", 600_000), ("250ms", 250), ("1.5h", 5_400_000), ("1d", 86_400_000)]
        {
            assert_eq!(with_unit(text, &SPANS), Some(ms), "{text}");
        }
    }
}
