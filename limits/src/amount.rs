//! Amounts of memory as people write them.

use radrm_base::written::SIZE_UNITS;
use radrm_telemetry::ledger::{Amount, words};

use crate::LimitError;

/// The units of HAMi's variables, which are powers of 1024.
const HAMI_UNITS: [(char, u64); 3] = [('k', 1 << 10), ('m', 1 << 20), ('g', 1 << 30)];

/// Largest amount that is read, in words.
const ANY_GPU: &str = "any GPU has";

/// Digits after the point that are read.
const DECIMALS: u32 = 9;

/// Below this a number without a unit is taken for a slip: nothing on a GPU is that small.
const SMALLEST_PLAIN: u64 = 1 << 20;

/// Reads `10GiB`, `10Gi`, `1.5 GB`, `50%`, plain bytes, or `none`.
pub fn parse(text: &str) -> Result<Amount, LimitError> {
    parse_up_to(text, words::LARGEST, ANY_GPU)
}

/// Reads bytes as HAMi's variables state them: `3g`, `3000m`, `1048576k`, or plain bytes. `None`: 0, which is no limit there.
///
/// # Errors
/// [`LimitError::NoHamiAmount`], also for what HAMi reads as another amount than it seems to be (`3GiB`, `1.5g`, `010g`).
pub fn hami_bytes(text: &str) -> Result<Option<u64>, LimitError> {
    let bad = || LimitError::NoHamiAmount(text.to_owned());
    let unit = HAMI_UNITS.iter().find(|(letter, _)| text.ends_with([*letter, letter.to_ascii_uppercase()]));
    let number = if unit.is_some() { text.get(..text.len() - 1).ok_or_else(bad)? } else { text };
    let number = whole(number).ok_or_else(bad)?;
    match number.checked_mul(unit.map_or(1, |(_, factor)| *factor)) {
        Some(0) => Ok(None),
        Some(bytes @ 1..SMALLEST_PLAIN) if unit.is_none() => Err(LimitError::FewHamiBytes(bytes)),
        Some(bytes @ ..=words::LARGEST) => Ok(Some(bytes)),
        _ => Err(LimitError::TooLarge { text: text.to_owned(), bound: ANY_GPU.to_owned() }),
    }
}

/// Reads MiB as the variables of NVIDIA's container toolkit state them: `4096`. Gives bytes.
///
/// # Errors
/// [`LimitError::NoMebibytes`], also for 0.
pub fn toolkit_bytes(text: &str) -> Result<u64, LimitError> {
    let number = whole(text).filter(|number| *number > 0);
    let number = number.ok_or_else(|| LimitError::NoMebibytes(text.to_owned()))?;
    let bytes = number.checked_mul(1 << 20).filter(|bytes| *bytes <= words::LARGEST);
    bytes.ok_or_else(|| LimitError::TooLarge { text: text.to_owned(), bound: ANY_GPU.to_owned() })
}

/// Decimal digits; others read a leading 0 as the sign of another base.
fn whole(text: &str) -> Option<u64> {
    let is_decimal = text == "0" || !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_decimal)
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
    let factor = match SIZE_UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name)) {
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
            ("4Gi", 4 << 30),
            ("4096Mi", 4 << 30),
            ("1.5Gi", 3 << 29),
            ("2097152Ki", 2 << 30),
            ("1Ti", 1 << 40),
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
            ("", "is not an amount"),
            ("GiB", "is not an amount"),
            ("10XiB", "is not an amount"),
            ("4GBi", "write for instance 10GiB or 10Gi"),
            ("4Pi", "is not an amount"),
            ("1e9", "is not an amount"),
            ("-5GiB", "is not an amount"),
            ("1.2.3GiB", "is not an amount"),
            ("1.GiB", "is not an amount"),
            (".5GiB", "is not an amount"),
            ("10GiB x", "is not an amount"),
            ("10G", "write 10GiB or 10Gi (2^30 bytes each), or 10GB (10^9)"),
            ("10k", "write 10KiB or 10Ki (2^10 bytes each), or 10KB (10^3)"),
            ("10", "write 10GiB, 10MiB or 10%"),
            ("101%", "between 0% and 100%"),
            ("100.001%", "between 0% and 100%"),
            ("99999999999999999999%", "is not an amount"),
            ("2TiB", "more than any GPU"),
            ("99999999999999TiB", "more than any GPU"),
            ("18446744073709551615", "more than any GPU"),
            ("1\u{b2}GiB", "is not an amount"),
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
    fn hami_amounts_are_powers_of_1024() {
        for (text, expected) in [
            ("3g", Some(3 << 30)),
            ("3G", Some(3 << 30)),
            ("3000m", Some(3000 << 20)),
            ("1048576K", Some(1 << 30)),
            ("1073741824", Some(1 << 30)),
            ("512k", Some(512 << 10)),
            ("0", None),
            ("0m", None),
        ] {
            assert_eq!(hami_bytes(text), Ok(expected), "{text}");
        }
        for (text, part) in [
            ("", "write 3g, 3000m"),
            ("g", "write 3g, 3000m"),
            ("-3g", "write 3g, 3000m"),
            ("+3g", "write 3g, 3000m"),
            ("3GiB", "write 3g, 3000m"),
            ("1.5g", "write 3g, 3000m"),
            ("010g", "write 3g, 3000m"),
            ("0x10g", "write 3g, 3000m"),
            ("3 g", "write 3g, 3000m"),
            ("3gé", "write 3g, 3000m"),
            ("1024", "1024 bytes, which no program can work with: write 1024m"),
            ("2048g", "more than any GPU"),
            ("99999999999999g", "more than any GPU"),
        ] {
            let sentence = hami_bytes(text).unwrap_err().to_string();
            assert!(sentence.contains(part) && sentence.lines().count() <= 1, "{text}: {sentence}");
        }
    }

    #[test]
    fn toolkit_amounts_are_whole_mebibytes() {
        assert_eq!((toolkit_bytes("4096"), toolkit_bytes("1")), (Ok(4 << 30), Ok(1 << 20)));
        for text in ["", "0", "4Gi", "4096Mi", "1.5", "-1", "+1", "0x10", " 4"] {
            let sentence = toolkit_bytes(text).unwrap_err().to_string();
            assert!(sentence.contains("write 4096 for 4 GiB"), "{text}: {sentence}");
        }
        assert!(toolkit_bytes("9999999").unwrap_err().to_string().contains("more than any GPU"));
    }

    #[test]
    fn a_host_may_have_more_memory_than_a_gpu() {
        assert_eq!((host_bytes("4TiB"), host_bytes("3GB")), (Ok(4 << 40), Ok(3_000_000_000)));
        assert!(bytes("4TiB").is_err() && host_bytes("9000000TiB").is_err() && host_bytes("50%").is_err());
    }
}
