//! Amounts of memory as people write them.

use radrm_telemetry::ledger::{Amount, words};

use crate::LimitError;

/// The units: powers of 1024 and of 1000. A single letter stands for either, depending on whom one
/// asks, and is not accepted.
const UNITS: [(&str, u64); 10] = [
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("bytes", 1),
];

/// Digits after the point that are read.
const DECIMALS: u32 = 9;

/// Below this a number without a unit is taken for a slip: nothing on a GPU is that small.
const SMALLEST_PLAIN: u64 = 1 << 20;

/// Reads `10GiB`, `1.5 GB`, `50%`, plain bytes, or `none`.
pub fn parse(text: &str) -> Result<Amount, LimitError> {
    parse_up_to(text, words::LARGEST, "any GPU has")
}

/// Reads bytes of a GPU's memory: `10GiB`.
///
/// # Errors
/// As [`parse`], and [`LimitError::NotBytes`].
pub fn bytes(text: &str) -> Result<u64, LimitError> {
    bytes_of(text, parse(text)?)
}

/// Reads bytes of a host's memory, of which there may be more than of any GPU's.
///
/// # Errors
/// As [`bytes`].
pub fn host_bytes(text: &str) -> Result<u64, LimitError> {
    bytes_of(text, parse_up_to(text, i64::MAX.unsigned_abs(), "any machine has")?)
}

fn bytes_of(text: &str, amount: Amount) -> Result<u64, LimitError> {
    match amount {
        Amount::Bytes(bytes) => Ok(bytes),
        _ => Err(LimitError::NotBytes(text.to_owned())),
    }
}

/// The same up to `most` bytes, which is what `who` says.
fn parse_up_to(text: &str, most: u64, who: &str) -> Result<Amount, LimitError> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("none") {
        return Ok(Amount::Unlimited);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim();
    let bad = || LimitError::NoAmount(text.to_owned());
    let (whole, decimals) = digits(number).ok_or_else(bad)?;
    if unit == "%" {
        return percent(whole, decimals).ok_or_else(|| LimitError::NoShare(text.to_owned()));
    }
    let factor = match UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name)) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None => return Err(unknown_unit(text, number, unit).unwrap_or_else(bad)),
    };
    let bytes = u128::from(whole) * u128::from(factor)
        + u128::from(decimals) * u128::from(factor) / u128::from(10_u64.pow(DECIMALS));
    let bytes = u64::try_from(bytes).ok().filter(|bytes| *bytes <= most);
    let bytes = bytes.ok_or_else(|| LimitError::TooLarge { text: text.to_owned(), bound: who.to_owned() })?;
    if unit.is_empty() && (1..SMALLEST_PLAIN).contains(&bytes) {
        return Err(LimitError::TooSmall(text.to_owned()));
    }
    Ok(Amount::Bytes(bytes))
}

/// The part before the point, and the part behind it in units of 10^-9.
fn digits(text: &str) -> Option<(u64, u64)> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let shown = decimals.get(..DECIMALS as usize).unwrap_or(decimals);
    if whole.is_empty() || shown.is_empty() || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let missing = DECIMALS - u32::try_from(shown.len()).ok()?;
    Some((whole.parse().ok()?, shown.parse::<u64>().ok()? * 10_u64.pow(missing)))
}

fn percent(whole: u64, decimals: u64) -> Option<Amount> {
    let hundredths = whole.checked_mul(100)?.checked_add(decimals / 10_u64.pow(DECIMALS - 2))?;
    let over = hundredths == 10_000 && !decimals.is_multiple_of(10_u64.pow(DECIMALS - 2));
    u32::try_from(hundredths).ok().filter(|share| *share <= 10_000 && !over).map(Amount::PerMyriad)
}

fn unknown_unit(text: &str, number: &str, unit: &str) -> Option<LimitError> {
    let letter = unit.chars().next().filter(|_| unit.len() == 1)?.to_ascii_uppercase();
    let power = "KMGT".find(letter)? + 1;
    Some(LimitError::AmbiguousUnit { text: text.to_owned(), number: number.to_owned(), letter, power })
}

/// An amount in the largest unit in which it is exact, so that what is shown can be typed again.
#[must_use]
pub fn shown(amount: Amount) -> String {
    match amount {
        Amount::Unlimited => "none".to_owned(),
        Amount::Bytes(0) => "0".to_owned(),
        Amount::Bytes(bytes) => {
            let unit = [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
            let decimal = [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000)];
            let exact = |(_, factor): &&(&str, u64)| bytes.is_multiple_of(*factor);
            match unit.iter().find(exact).or_else(|| decimal.iter().find(exact)) {
                Some((name, factor)) => format!("{}{name}", bytes / factor),
                None => bytes.to_string(),
            }
        }
        Amount::PerMyriad(share) if share.is_multiple_of(100) => format!("{}%", share / 100),
        Amount::PerMyriad(share) if share.is_multiple_of(10) => {
            format!("{}.{}%", share / 100, share / 10 % 10)
        }
        Amount::PerMyriad(share) => format!("{}.{:02}%", share / 100, share % 100),
    }
}

/// Bytes for people: `9.8 GiB`.
#[must_use]
pub fn rounded(bytes: u64) -> String {
    radrm_base::Bytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_exact() {
        for (text, bytes) in [
            ("10GiB", 10 << 30),
            ("10 GiB", 10 << 30),
            ("10gib", 10 << 30),
            ("10GB", 10_000_000_000),
            ("500MiB", 500 << 20),
            ("1.5GiB", 3 << 29),
            ("0.1GiB", 107_374_182),
            ("1048576", 1 << 20),
            ("7b", 7),
            ("0", 0),
            ("1TiB", 1 << 40),
            ("123456789KiB", 123_456_789 << 10),
        ] {
            assert_eq!(parse(text), Ok(Amount::Bytes(bytes)), "{text}");
        }
        for (text, share) in [("50%", 5000), ("12.5%", 1250), ("33.33 %", 3333), ("100%", 10_000), ("0%", 0)]
        {
            assert_eq!(parse(text), Ok(Amount::PerMyriad(share)), "{text}");
        }
        assert_eq!(parse("none"), Ok(Amount::Unlimited));
    }

    #[test]
    fn what_is_no_amount_is_told_in_one_sentence() {
        for (text, part) in [
            ("", "is no amount"),
            ("GiB", "is no amount"),
            ("10XiB", "is no amount"),
            ("-5GiB", "is no amount"),
            ("1.2.3GiB", "is no amount"),
            ("1.GiB", "is no amount"),
            (".5GiB", "is no amount"),
            ("10GiB x", "is no amount"),
            ("10G", "write 10GiB (2^30 bytes each) or 10GB (10^9)"),
            ("10k", "write 10KiB (2^10 bytes each) or 10KB (10^3)"),
            ("10", "write 10GiB, 10MiB or 10%"),
            ("101%", "between 0% and 100%"),
            ("100.001%", "between 0% and 100%"),
            ("99999999999999999999%", "is no amount"),
            ("2TiB", "more than any GPU"),
            ("99999999999999TiB", "more than any GPU"),
            ("18446744073709551615", "more than any GPU"),
            ("1\u{b2}GiB", "is no amount"),
        ] {
            let sentence = parse(text).unwrap_err().to_string();
            assert!(sentence.contains(part) && sentence.lines().count() <= 1, "{text}: {sentence}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_shown_can_be_typed_again(bytes in (1_u64 << 20)..words::LARGEST, share in 0_u32..=10_000, shift in 0_u32..40) {
            for amount in [Amount::Bytes(bytes), Amount::Bytes((bytes >> shift << shift).max(1 << 20)), Amount::PerMyriad(share)] {
                proptest::prop_assert_eq!(parse(&shown(amount)), Ok(amount));
            }
        }

        #[test]
        fn no_text_is_too_odd(text in "\\PC*") {
            if let Err(error) = parse(&text) {
                proptest::prop_assert!(!error.to_string().is_empty());
            }
        }
    }

    #[test]
    fn a_host_may_have_more_memory_than_a_gpu() {
        assert_eq!((host_bytes("4TiB"), host_bytes("3GB")), (Ok(4 << 40), Ok(3_000_000_000)));
        assert!(bytes("4TiB").is_err() && host_bytes("9000000TiB").is_err() && host_bytes("50%").is_err());
    }
}
