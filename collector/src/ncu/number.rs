//! Numbers as Nsight Compute writes them: with signs between thousands, in the user's locale.

/// Mark before the fraction of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Point,
    Comma,
}

/// Returns true if the text is that of a value that was not measured.
pub(super) fn is_missing(text: &str) -> bool {
    let text = text.trim().trim_start_matches("(!)").trim();
    text.is_empty()
        || ["n/a", "nan", "-nan", "inf", "-inf", "-"].iter().any(|no| text.eq_ignore_ascii_case(no))
}

/// Mark that a number must have been written with; `None` if both could be, as in `1,234`.
pub(super) fn mark(text: &str) -> Option<Mark> {
    let last = text.rfind(['.', ','])?;
    let (mark, other) =
        if text[last..].starts_with('.') { (Mark::Point, Mark::Comma) } else { (Mark::Comma, Mark::Point) };
    let (whole, fraction) = (&text[..last], &text[last + 1..]);
    let sign = &text[last..=last];
    if whole.contains(sign) {
        // It stands more than once: between thousands.
        return Some(other);
    }
    let is_plain = !whole.contains(['.', ',']);
    let digits = whole.trim_start_matches('-').len();
    let is_group = is_plain && fraction.len() == 3 && (1..=3).contains(&digits) && !whole.starts_with('0');
    (!is_group).then_some(mark)
}

/// The number; `None` if it is none.
pub(super) fn parse(text: &str, mark: Mark) -> Option<f64> {
    let (fraction, thousands) = if mark == Mark::Point { ('.', ',') } else { (',', '.') };
    let is_between = |c: char| c == thousands || matches!(c, ' ' | '\'' | '\u{a0}' | '\u{202f}' | '\u{2019}');
    let plain: String = text
        .trim()
        .chars()
        .filter(|c| !is_between(*c))
        .map(|c| if c == fraction { '.' } else { c })
        .collect();
    plain.parse::<f64>().ok().filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_their_mark_where_only_one_is_possible() {
        for (text, expected) in [
            ("12.34", Some(Mark::Point)),
            ("12,34", Some(Mark::Comma)),
            ("1,215,000.00", Some(Mark::Point)),
            ("1.215.000,00", Some(Mark::Comma)),
            ("1,215,000", Some(Mark::Point)),
            ("1.215.000", Some(Mark::Comma)),
            ("0.123", Some(Mark::Point)),
            ("1234.567", Some(Mark::Point)),
            ("1,234", None),
            ("1.234", None),
            ("42", None),
        ] {
            assert_eq!(mark(text), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_read_with_their_mark() {
        assert_eq!(parse("1,215,000.50", Mark::Point), Some(1_215_000.5));
        assert_eq!(parse("1.215.000,50", Mark::Comma), Some(1_215_000.5));
        assert_eq!(parse("1 215\u{202f}000,5", Mark::Comma), Some(1_215_000.5));
        assert_eq!(parse("1e-3", Mark::Point), Some(0.001));
        assert_eq!(parse("12 %", Mark::Point), None);
        assert_eq!(parse("infinity", Mark::Point), None);
        assert!(is_missing(" (!) n/a") && is_missing("nan") && is_missing("") && !is_missing("0"));
    }
}
