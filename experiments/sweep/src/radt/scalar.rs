//! Scalars of YAML as radT passes them to a program: what Python prints of the value that YAML 1.1 gives them.

/// The text that Python's `str` gives of a plain scalar.
pub(super) fn printed(plain: &str) -> String {
    match plain {
        "" | "~" | "null" | "Null" | "NULL" => return "None".to_owned(),
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return "True".to_owned(),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return "False".to_owned();
        }
        _ => {}
    }
    integer(plain).or_else(|| float(plain)).unwrap_or_else(|| plain.to_owned())
}

/// A whole number: decimal, or in base 2, 8 or 16 by its prefix.
fn integer(text: &str) -> Option<String> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let digits = rest.replace('_', "");
    let of_base = |digits: &str, base| {
        i128::from_str_radix(digits, base).ok().filter(|_| !digits.starts_with(['+', '-']))
    };
    let value = match digits.as_bytes() {
        [b'0'] => 0,
        [b'0', b'x', ..] => of_base(&digits[2..], 16)?,
        [b'0', b'b', ..] => of_base(&digits[2..], 2)?,
        [b'0', ..] => of_base(&digits[1..], 8)?,
        [b'1'..=b'9', ..] if rest.starts_with(|first: char| first.is_ascii_digit()) => of_base(&digits, 10)?,
        _ => return None,
    };
    Some(if value == 0 { "0".to_owned() } else { format!("{sign}{value}") })
}

/// A number with a point; `1e-3` without one is a text in YAML 1.1.
fn float(text: &str) -> Option<String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { "-" } else { "" };
    match unsigned {
        ".inf" | ".Inf" | ".INF" => return Some(format!("{sign}inf")),
        ".nan" | ".NaN" | ".NAN" if unsigned == text => return Some("nan".to_owned()),
        _ => {}
    }
    let (number, exponent) = unsigned
        .split_once(['e', 'E'])
        .map_or((unsigned, None), |(number, exponent)| (number, Some(exponent)));
    let (whole, part) = number.split_once('.')?;
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let has_digits = [whole, part].iter().any(|text| text.bytes().any(|byte| byte.is_ascii_digit()));
    // The exponent has a sign there.
    let is_signed = |text: &str| {
        text.strip_prefix(['+', '-'])
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    if !has_digits
        || whole.starts_with('_')
        || !are_digits(whole)
        || !are_digits(part)
        || !exponent.is_none_or(is_signed)
    {
        return None;
    }
    text.replace('_', "").parse().ok().map(python)
}

/// A number as Python prints it: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
fn python(value: f64) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() { "-0.0".to_owned() } else { "0.0".to_owned() };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent @ -4..=15 => {
            let plain = format!("{value}");
            if exponent >= 0 && !plain.contains('.') { format!("{plain}.0") } else { plain }
        }
        exponent => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_printed_as_python_prints_them() {
        // Left: in the file; right: `str(yaml.safe_load(left))` of PyYAML 6.
        for (plain, expected) in [
            ("128", "128"),
            ("+5", "5"),
            ("-5", "-5"),
            ("1_000", "1000"),
            ("0x1F", "31"),
            ("010", "8"),
            ("0b11", "3"),
            ("08", "08"),
            ("0.001", "0.001"),
            ("0.10", "0.1"),
            ("1.0", "1.0"),
            ("1.", "1.0"),
            (".5", "0.5"),
            ("1.0e-5", "1e-05"),
            ("1.5e+20", "1.5e+20"),
            ("1e-3", "1e-3"),
            ("1.0e5", "1.0e5"),
            ("1.0e+5", "100000.0"),
            ("123456789012345678.0", "1.2345678901234568e+17"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("true", "True"),
            ("no", "False"),
            ("~", "None"),
            ("adam", "adam"),
            ("1.2.3", "1.2.3"),
            (".inf", "inf"),
            ("-", "-"),
            ("_1", "_1"),
            (".", "."),
        ] {
            assert_eq!(printed(plain), expected, "{plain}");
        }
    }
}
