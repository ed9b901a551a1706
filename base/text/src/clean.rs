//! Text that users choose (job names, commands, names of kernels and GPUs), as it may reach a terminal.

use std::borrow::Cow;
use std::fmt::Write;

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The text with everything that a terminal acts on, or does not show, written as an escape such as
/// `\u{202e}`.
///
/// A name with such characters could move the cursor of the administrator who lists the jobs, reverse the text
/// around it, or resemble another name.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    let Some((at, _)) = text.char_indices().find(|(_, c)| is_hidden(*c)) else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(&text[..at]);
    for c in text[at..].chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_hidden(c) => _ = write!(out, "\\u{{{:x}}}", u32::from(c)),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Text of several lines for a standard stream: line feeds, tabs and sequences that only choose a colour stay, and all
/// else that [`clean`] escapes is written as in JSON, `\u202e`, so that JSON stays what it was.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let acts = |c: char| is_hidden(c) && c != '\n' && c != '\t';
    let Some((at, _)) = text.char_indices().find(|(_, c)| acts(*c)) else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len() + 16);
    let (mut rest, mut left) = text.split_at(at);
    out.push_str(rest);
    while let Some(c) = left.chars().next() {
        let length = colour(left).unwrap_or(0);
        if length > 0 || !acts(c) {
            (rest, left) = left.split_at(length.max(c.len_utf8()));
            out.push_str(rest);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
        left = &left[c.len_utf8()..];
    }
    Cow::Owned(out)
}

/// Length of the sequence that the text begins with, if it only chooses a colour or weight that can be read.
fn colour(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\x1b[")?;
    let codes = &codes[..codes.find(|c: char| c != ';' && !c.is_ascii_digit())?];
    let is_legible =
        |code: &str| matches!(code.parse(), Ok(0..=4_u8 | 7 | 22..=24 | 27 | 31..=37 | 39 | 91..=97));
    let length = "\x1b[".len() + codes.len();
    (text[length..].starts_with('m') && codes.split(';').all(is_legible)).then_some(length + 1)
}

/// A cell of a CSV file: cleaned, and marked as text by an apostrophe where a spreadsheet would take it for a formula.
#[must_use]
pub fn csv_cell(text: &str) -> Cow<'_, str> {
    let cell = clean(text);
    let is_formula = cell.len() > 1 && cell.starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err();
    if is_formula { Cow::Owned(format!("'{cell}")) } else { cell }
}

/// The text as [`clean`] gives it, cut to so many columns of a terminal; the mark of the cut is one of them.
#[must_use]
pub fn fit(text: &str, columns: usize) -> String {
    let text = clean(text);
    if text.width() <= columns {
        return text.into_owned();
    }
    let mut room = columns.saturating_sub(1);
    let kept = text.chars().take_while(|c| {
        let left = room.checked_sub(c.width().unwrap_or(0));
        room = left.unwrap_or(0);
        left.is_some()
    });
    kept.chain(['…']).collect()
}

/// Returns true if a terminal acts on the character, or shows nothing for it.
fn is_hidden(c: char) -> bool {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator, Unassigned};
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    match c {
        // Letters and marks without a picture of their own (Default_Ignorable_Code_Point outside Cf).
        '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' => true,
        '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}' => true,
        _ => {
            matches!(c.general_category(), Control | Format | LineSeparator | ParagraphSeparator | Unassigned)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_cannot_steer_or_mislead_a_terminal() {
        assert_eq!(clean("a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(clean("train\u{202e}gpj.exe"), "train\\u{202e}gpj.exe");
        assert_eq!(clean("ro\u{200b}ot"), "ro\\u{200b}ot");
        let ranges = ['\0'..='\u{1f}', '\u{7f}'..='\u{9f}', '\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}'];
        let more =
            ['\u{2060}'..='\u{206f}', '\u{ad}'..='\u{ad}', '\u{61c}'..='\u{61c}', '\u{feff}'..='\u{feff}'];
        for c in ranges.into_iter().chain(more).flatten() {
            assert!(!clean(&format!("a{c}b")).contains(c), "{:x}", u32::from(c));
        }
    }

    #[test]
    fn text_of_all_scripts_stays_as_it_is() {
        for text in
            ["", "train.py --lr 1e-3", "обучение", "学習ジョブ", "مهمة", "e\u{301}tude", "🚀 \\ \"x\""]
        {
            assert!(matches!(clean(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn printed_text_keeps_lines_and_colours_and_nothing_else_that_acts() {
        let same = "a\tb\n\x1b[1;31mbad\x1b[0m 学習\n";
        assert!(matches!(printable(same), Cow::Borrowed(_) | Cow::Owned(_)) && printable(same) == same);
        for (text, shown) in [
            ("a\x1b[2Jb", "a\\u001b[2Jb"),
            ("a\x1b]0;title\x07b", "a\\u001b]0;title\\u0007b"),
            ("\x1b[8mhidden", "\\u001b[8mhidden"),
            ("\x1b[38;5;0mhidden", "\\u001b[38;5;0mhidden"),
            ("\x1b[1", "\\u001b[1"),
            ("over\rwritten\u{9b}2J", "over\\u000dwritten\\u009b2J"),
            ("\u{202e}gpj \u{e0041}", "\\u202egpj \\udb40\\udc41"),
        ] {
            assert_eq!(printable(text), shown, "{text:?}");
        }
    }

    #[test]
    fn a_cell_is_no_formula() {
        for (text, cell) in [
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("+1+1", "'+1+1"),
            ("-2+3", "'-2+3"),
            ("-0.5", "-0.5"),
            ("+1e-3", "+1e-3"),
            ("-", "-"),
            ("a=b", "a=b"),
            ("a\r\n=b", "a\\r\\n=b"),
            ("\t=b", "\\t=b"),
        ] {
            assert_eq!(csv_cell(text), cell);
        }
    }

    #[test]
    fn a_cut_counts_columns_of_the_terminal() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdef", 4), "abc…");
        assert_eq!(fit("学習ジョブ", 10), "学習ジョブ");
        assert_eq!(fit("学習ジョブ", 8), "学習ジ…");
        assert_eq!(fit("学習ジョブ", 9), "学習ジョ…");
        assert_eq!(fit("abc", 0), "…");
    }

    proptest! {
        #[test]
        fn whatever_the_text_only_visible_characters_remain(text in any::<String>(), columns in 1..40_usize) {
            let shown = clean(&text);
            prop_assert!(!shown.chars().any(is_hidden), "{shown:?}");
            prop_assert!(!shown.chars().any(char::is_control));
            prop_assert_eq!(&clean(&shown), &shown);
            prop_assert_eq!(&printable(&shown), &shown);
            let printed = printable(&text);
            prop_assert_eq!(&printable(&printed), &printed);
            let fitted = fit(&text, columns);
            prop_assert!(fitted.width() <= columns);
            prop_assert!(shown.starts_with(fitted.trim_end_matches('…')) || shown == fitted);
        }
    }
}
