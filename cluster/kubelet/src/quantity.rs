//! Amounts as Kubernetes writes them: `10Gi`, `1500M`, `1e9`.

/// Powers of 1024.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Powers of 1000, from a billionth on.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Index of `""` in [`DECIMAL`].
const ONE: i32 = 3;
/// More digits are no amount of memory.
const DIGITS: usize = 24;

/// Whole bytes of an amount, rounded down: a limit may not be above what was granted. `None`: it is none, or one that
/// no GPU has.
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > DIGITS || fraction.contains('.') {
        return None;
    }
    let value: u128 = digits.parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    let scaled = match BINARY.iter().position(|known| !known.is_empty() && *known == unit) {
        Some(power) => {
            value.checked_mul(1 << (10 * power))?.checked_div(10_u128.checked_pow(places.unsigned_abs())?)?
        }
        None => {
            let exponent = match DECIMAL.iter().position(|known| *known == unit) {
                Some(power) => 3 * (i32::try_from(power).ok()? - ONE),
                None => unit.strip_prefix(['e', 'E'])?.parse().ok().filter(|known: &i32| known.abs() < 30)?,
            };
            let shift = 10_u128.checked_pow((exponent - places).unsigned_abs())?;
            if exponent >= places { value.checked_mul(shift)? } else { value.checked_div(shift)? }
        }
    };
    u64::try_from(scaled).ok()
}

/// Bytes as Kubernetes itself writes them, so that what it returns is what it was sent.
#[must_use]
pub fn text(bytes: u64) -> String {
    let power =
        (1..BINARY.len()).rev().find(|power| bytes > 0 && bytes.trailing_zeros() as usize >= 10 * power);
    let power = power.unwrap_or(0);
    format!("{}{}", bytes >> (10 * power), BINARY.get(power).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_kubernetes_reads_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("10737418240", Some(10 << 30)),
            ("10Gi", Some(10 << 30)),
            ("1.5Gi", Some(3 << 29)),
            ("81920Mi", Some(80 << 30)),
            ("80G", Some(80_000_000_000)),
            ("1e9", Some(1_000_000_000)),
            ("2E3", Some(2000)),
            ("2E", Some(2_000_000_000_000_000_000)),
            ("1500m", Some(1)),
            ("999m", Some(0)),
            ("0.1k", Some(100)),
            (".5Ki", Some(512)),
            ("5.", Some(5)),
            ("", None),
            ("Gi", None),
            ("-1", None),
            ("1GiB", None),
            ("1..5", None),
            ("1.5.2", None),
            ("1e99", None),
            ("99999999999999999999999999", None),
            ("16Ei", None),
            ("1\u{660}", None),
            ("é", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn an_amount_comes_back_as_it_was_written() {
        for (bytes, expected) in
            [(0, "0"), (1, "1"), (1023, "1023"), (80 << 30, "80Gi"), (81_113 << 20, "81113Mi")]
        {
            assert_eq!(text(bytes), expected);
            assert_eq!(super::bytes(&text(bytes)), Some(bytes));
        }
    }
}
