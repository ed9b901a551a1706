//! Long texts.

/// Text in lines of at most so many characters, unless a word is longer.
#[must_use]
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let full = lines.last().is_some_and(|line| {
            !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width.max(20)
        });
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_are_no_longer_than_asked_for_and_lose_no_word() {
        let text = "Estimate GPU memory, activity and run time of a job from earlier runs";
        let lines = wrapped(text, 24);
        assert!(lines.iter().all(|line| line.chars().count() <= 24), "{lines:?}");
        assert_eq!(lines.join(" "), text);
        assert_eq!(wrapped("", 24), [""]);
        let word = "a-word-that-is-longer-than-its-line";
        assert_eq!(wrapped(&format!("see {word}"), 24), ["see", word]);
    }
}
