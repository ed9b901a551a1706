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

/// Whether a terminal acts on the character, or shows nothing for it.
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
            let fitted = fit(&text, columns);
            prop_assert!(fitted.width() <= columns);
            prop_assert!(shown.starts_with(fitted.trim_end_matches('…')) || shown == fitted);
        }
    }
}
