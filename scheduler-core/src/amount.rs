//! Amounts of memory and times in files of settings: `"5GiB"` and `"90s"`, or plain bytes and milliseconds.

use std::fmt;

use serde::de::{self, Deserializer, Unexpected, Visitor};

use radrm_base::written;

use crate::units::{Bytes, Millis};

/// `5GiB`, `1.5 TiB` or `20GB`.
pub(crate) fn bytes_of(text: &str) -> Option<Bytes> {
    written::size(text).map(Bytes)
}

struct Unit {
    read: fn(&str) -> Option<u64>,
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
        (self.read)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// Reads bytes: a number, or text such as `"5GiB"`.
///
/// # Errors
/// The deserializer's; a text without a known unit.
pub fn plain_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(Unit {
        read: written::size,
        expected: "bytes such as 5368709120, or text such as \"5GiB\" or \"5GB\"",
    })
}

/// Reads [`Bytes`] like [`plain_bytes`].
pub(crate) fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    plain_bytes(from).map(Bytes)
}

/// Reads a time: milliseconds, or text such as `"90s"`, `"10min"`, `"4h"`.
///
/// # Errors
/// The deserializer's; a text without a known unit.
pub fn millis<'de, D: Deserializer<'de>>(from: D) -> Result<Millis, D::Error> {
    let unit = Unit {
        read: written::span,
        expected: "milliseconds such as 90000, or text such as \"90s\", \"4h30m\" or \"30d\"",
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
    fn settings_take_amounts_and_times_as_people_write_them() {
        #[derive(serde::Deserialize)]
        struct Settings {
            #[serde(deserialize_with = "bytes")]
            memory: Bytes,
            #[serde(deserialize_with = "millis")]
            time: Millis,
        }
        let read = |memory: &str, time: &str| {
            let text = format!("{{\"memory\": {memory}, \"time\": {time}}}");
            serde_json::from_str::<Settings>(&text)
                .map(|of| (of.memory.0, of.time.0))
                .map_err(|e| e.to_string())
        };
        assert_eq!(read("\"5GiB\"", "\"90s\""), Ok((5 << 30, 90_000)));
        assert_eq!(read("\"20GB\"", "\"4h30m\""), Ok((20_000_000_000, 16_200_000)));
        assert_eq!(read("7", "\"30d\""), Ok((7, 2_592_000_000)));
        assert!(read("\"5\"", "1").unwrap_err().contains("text such as \"5GiB\""));
        assert!(read("5", "\"1\"").unwrap_err().contains("text such as \"90s\""));
    }
}
