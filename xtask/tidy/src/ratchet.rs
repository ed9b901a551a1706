//! Numbers that may only become smaller: what broke a convention before the convention was checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Numbers by subject, as `subject: number number`, and the comment at the head of the file.
#[derive(Debug, PartialEq)]
pub struct Ratchet {
    comment: String,
    numbers: Numbers,
}

/// Numbers by subject, the largest first.
pub type Numbers = BTreeMap<String, Vec<usize>>;

impl Ratchet {
    /// Reads a file of `xtask/data`.
    ///
    /// # Errors
    /// It cannot be read, or a line is neither a comment nor `subject: number number`.
    pub fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        Self::parse(&text).with_context(|| file.display().to_string())
    }

    pub fn parse(text: &str) -> Result<Self> {
        let mut comment = String::new();
        let mut numbers = Numbers::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if line.starts_with('#') {
                comment.push_str(line);
                comment.push('\n');
                continue;
            }
            let Some((subject, listed)) = line.split_once(':') else { bail!("{line}: no colon") };
            let mut listed: Vec<usize> = listed
                .split_whitespace()
                .map(str::parse)
                .collect::<Result<_, _>>()
                .with_context(|| line.to_owned())?;
            listed.sort_unstable_by(|a, b| b.cmp(a));
            if numbers.insert(subject.trim().to_owned(), listed).is_some() {
                bail!("{line}: listed twice");
            }
        }
        Ok(Self { comment, numbers })
    }

    /// The numbers of a subject: none if it is not listed.
    pub fn listed(&self, subject: &str) -> &[usize] {
        self.numbers.get(subject).map_or(&[], Vec::as_slice)
    }

    /// Whether neither the largest number nor the sum is more than listed: a part of what is listed may become
    /// smaller or fall apart.
    pub fn allows(&self, subject: &str, now: &[usize]) -> bool {
        let listed = self.listed(subject);
        now.iter().max() <= listed.iter().max() && now.iter().sum::<usize>() <= listed.iter().sum()
    }

    /// Subjects that are better now than their entries say.
    pub fn loose<'a>(&'a self, now: &'a Numbers) -> impl Iterator<Item = &'a str> {
        self.numbers
            .iter()
            .filter(|(subject, listed)| {
                let now = now.get(*subject).map_or(&[][..], Vec::as_slice);
                now != **listed && self.allows(subject, now)
            })
            .map(|(subject, _)| subject.as_str())
    }

    /// Takes over what became better, and nothing else.
    pub fn tighten(&mut self, now: &Numbers) {
        let loose: Vec<String> = self.loose(now).map(str::to_owned).collect();
        for subject in loose {
            match now.get(&subject) {
                Some(now) => self.numbers.insert(subject, now.clone()),
                None => self.numbers.remove(&subject),
            };
        }
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let mut text = self.comment.clone();
        for (subject, numbers) in &self.numbers {
            let numbers = numbers.iter().map(|number| format!(" {number}")).collect::<String>();
            text.push_str(&format!("{subject}:{numbers}\n"));
        }
        text
    }
}

/// Tightens a file of `xtask/data`.
///
/// # Errors
/// It cannot be read or written.
pub fn tighten(file: &Path, now: &Numbers) -> Result<()> {
    let mut ratchet = Ratchet::read(file)?;
    ratchet.tighten(now);
    fs::write(file, ratchet.text()).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# head\na: 9 4\nb: 5\n";

    fn now(text: &str) -> Numbers {
        Ratchet::parse(text).unwrap().numbers
    }

    #[test]
    fn a_number_may_shrink_or_split_but_not_grow() {
        let ratchet = Ratchet::parse(TEXT).unwrap();
        for (numbers, allowed) in [
            (&[9, 4][..], true),
            (&[5, 4, 4], true),
            (&[], true),
            (&[10], false),
            (&[9, 5], false),
            (&[7, 7], false),
        ] {
            assert_eq!(ratchet.allows("a", numbers), allowed, "{numbers:?}");
        }
        assert!(ratchet.allows("not listed", &[]));
        assert!(!ratchet.allows("not listed", &[1]));
    }

    #[test]
    fn tightening_takes_over_what_is_better_and_nothing_else() {
        let mut ratchet = Ratchet::parse(TEXT).unwrap();
        assert_eq!(ratchet.text(), TEXT);
        let now = now("a: 6 4\nb: 7\nc: 8\n");
        assert_eq!(ratchet.loose(&now).collect::<Vec<_>>(), ["a"]);
        ratchet.tighten(&now);
        assert_eq!(ratchet.text(), "# head\na: 6 4\nb: 5\n");
        ratchet.tighten(&Numbers::new());
        assert_eq!(ratchet.text(), "# head\n");
    }

    #[test]
    fn a_line_that_is_neither_comment_nor_numbers_is_an_error() {
        for text in ["a 4", "a: x", "<<<<<<< HEAD", "a: 1\na: 2"] {
            assert!(Ratchet::parse(text).is_err(), "{text}");
        }
    }
}
