//! Numbers for people.

/// A whole number with a comma at every third digit.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A mean: whole numbers without a fraction, small ones with one digit.
#[must_use]
pub fn mean(number: f64) -> String {
    if (number - number.round()).abs() < 0.05 || number >= 1000.0 {
        grouped(number.round() as u64)
    } else {
        format!("{number:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(mean(128.0), "128");
        assert_eq!(mean(1.25), "1.2");
        assert_eq!(mean(12345.6), "12,346");
    }
}
