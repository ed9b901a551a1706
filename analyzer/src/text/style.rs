//! Colour, and names that cannot do harm.

/// Puts ANSI sequences around text, or does not.
#[derive(Clone, Copy)]
pub(crate) struct Paint {
    pub(crate) color: bool,
}

impl Paint {
    fn wrap(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    pub(crate) fn warn(self, text: &str) -> String {
        self.wrap("33", text)
    }
}

/// A name as it may go to a terminal: what programs call their kernels and
/// files must not move the cursor.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A whole number with a comma at every third digit.
pub(crate) fn grouped(number: u64) -> String {
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
pub(crate) fn mean(number: f64) -> String {
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

    #[test]
    fn names_cannot_move_the_cursor() {
        assert_eq!(clean("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
