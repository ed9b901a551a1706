//! Spans of time, sizes and percentages as people write them. All files and options read them by these rules.

use alloc::format;
use alloc::string::String;

/// Units of sizes: powers of 1024, as Kubernetes writes them too, and powers of 1000. A single letter stands for either,
/// depending on whom one asks, and is none. Case does not matter.
pub const SIZE_UNITS: [(&str, u64); 14] = [
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("ki", 1 << 10),
    ("mi", 1 << 20),
    ("gi", 1 << 30),
    ("ti", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("bytes", 1),
];

/// Units of spans, in ms.
const SPAN_UNITS: [(&str, f64); 9] = [
    ("ms", 1.0),
    ("s", 1_000.0),
    ("sec", 1_000.0),
    ("m", 60_000.0),
    ("min", 60_000.0),
    ("h", 3_600_000.0),
    ("d", 86_400_000.0),
    ("days", 86_400_000.0),
    ("w", 604_800_000.0),
];

/// The largest value that is read.
const LARGEST: f64 = 9e18;

/// A decimal number that is not negative, without an exponent.
fn number(text: &str) -> Option<f64> {
    let is_plain = text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| is_plain)
}

/// Nearest whole number; `None` where it is too large.
fn whole(value: f64) -> Option<u64> {
    (value < LARGEST).then_some((value + 0.5) as u64)
}

/// Where the number at the begin of a text ends.
fn end_of_number(text: &str) -> usize {
    text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len())
}

/// Bytes of a size such as `20GiB`, `1.5 TiB` or `20GB` (10^9 each); `None` for what is none, also without a unit.
#[must_use]
pub fn size(text: &str) -> Option<u64> {
    let (value, unit) = text.trim().split_at(end_of_number(text.trim()));
    let unit = unit.trim_start();
    let factor = SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1;
    whole(number(value)? * factor as f64)
}

/// Milliseconds of a span such as `90s`, `4h30m`, `30d`, `1.5h`, `1:30:00` or `1-12:00:00`; `None` for what is none, also
/// without a unit.
#[must_use]
pub fn span(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.contains([':', '-']) {
        return clock(text);
    }
    let (mut rest, mut sum) = (text, None);
    let mut last = f64::INFINITY;
    while !rest.is_empty() {
        let (value, behind) = rest.split_at(end_of_number(rest));
        let behind = behind.trim_start();
        let end = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let factor = SPAN_UNITS.iter().find(|(name, _)| *name == unit)?.1;
        // The larger unit comes first, and each once.
        if factor >= last {
            return None;
        }
        last = factor;
        sum = Some(sum.unwrap_or(0.0) + number(value)? * factor);
        rest = behind.trim_start();
    }
    whole(sum?)
}

/// `1:30:00`, `30:00`, `1-12`, `1-12:30` or `1-12:00:00`, as Slurm writes times.
fn clock(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(days.parse::<u64>().ok()?), clock),
        None => (None, text),
    };
    let mut parts = [0_u64; 3];
    let mut count = 0;
    for part in clock.split(':') {
        *parts.get_mut(count)? = part.parse().ok()?;
        count += 1;
    }
    let [first, second, third] = parts;
    let [hours, minutes, seconds] = match (days, count) {
        (Some(_), _) | (None, 3) => [first, second, third],
        (None, 2) => [0, first, second],
        _ => return None,
    };
    let sum = [(days.unwrap_or(0), 86_400_000_u64), (hours, 3_600_000), (minutes, 60_000), (seconds, 1_000)];
    sum.into_iter().try_fold(0, |sum: u64, (count, ms)| sum.checked_add(count.checked_mul(ms)?))
}

/// Per cent of `80%` or `80`.
///
/// # Errors
/// A sentence: it is none from 0 to 100, or it is a number up to 1 without the sign, which may be a fraction.
pub fn percent(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (value, has_sign) = text.strip_suffix('%').map_or((text, false), |value| (value.trim_end(), true));
    match number(value) {
        Some(value) if !has_sign && value > 0.0 && value <= 1.0 => {
            let whole = (value * 1e6 + 0.5) as u64 as f64 / 1e4;
            Err(format!("{value} may be {value} % or {whole} %: write {value}% or {whole}%"))
        }
        Some(value) if value <= 100.0 => Ok(value),
        _ => Err(format!("{text} is not a percentage from 0 to 100")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_1024_and_of_1000_are_told_apart() {
        for (text, bytes) in [
            ("20GiB", 20 << 30),
            ("20 gib", 20 << 30),
            ("20Gi", 20 << 30),
            ("20GB", 20_000_000_000),
            ("1.5 TiB", 3 << 39),
            ("500MB", 500_000_000),
            ("0MiB", 0),
            ("12B", 12),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in
            ["", "5", "5G", "GiB", "-1GiB", "+1GiB", "1e3GiB", "nanGiB", "9999999999TiB", "7%", ".GiB"]
        {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn spans_have_one_unit_or_several() {
        for (text, seconds) in [
            ("90s", 90),
            ("10min", 600),
            ("30m", 1800),
            ("1.5h", 5400),
            ("4h30m", 16_200),
            ("1d 4h", 100_800),
            ("30d", 2_592_000),
            ("2w", 1_209_600),
            ("1:30:00", 5400),
            ("30:00", 1800),
            ("1-12", 129_600),
            ("1-12:30", 131_400),
            ("1-12:00:00", 129_600),
        ] {
            assert_eq!(span(text), Some(seconds * 1000), "{text}");
        }
        assert_eq!(span("250ms"), Some(250));
        for text in ["", "5", "h", "-1h", "30m4h", "1h1h", "1:2:3:4", "nan s", "1e3s", "4 hours"] {
            assert_eq!(span(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_up_to_one_is_no_percentage_without_its_sign() {
        assert_eq!(percent("80"), Ok(80.0));
        assert_eq!(percent("0.8%"), Ok(0.8));
        assert_eq!(percent("12.5 %"), Ok(12.5));
        assert_eq!(percent("0"), Ok(0.0));
        assert_eq!(percent("0.8").unwrap_err(), "0.8 may be 0.8 % or 80 %: write 0.8% or 80%");
        for text in ["1", "1.0"] {
            assert!(percent(text).unwrap_err().contains("may be 1 % or 100 %"), "{text}");
        }
        for text in ["101", "-1", "nan", "", "%"] {
            assert!(percent(text).unwrap_err().contains("is not a percentage from 0 to 100"), "{text}");
        }
    }
}
