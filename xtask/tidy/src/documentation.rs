//! First lines of documentation, and names of bounds: `xtask/data/words/openings.txt` has both lists.
//!
//! The first line of a documentation comment names its item or says in the third person what the item does. A line that
//! opens with a question word names nothing. A bound is a `MAX_...` or `MIN_...`, a period an `..._INTERVAL`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::finding::Finding;
use xtask::sources;

const LISTS: &str = "xtask/data/words/openings.txt";

/// Rejected first words of documentation, and of constants' names.
#[derive(Default)]
struct Rejected {
    openings: BTreeSet<String>,
    bounds: BTreeSet<String>,
}

/// Finds documentation and constants of Rust files that begin with a rejected word.
///
/// # Errors
/// A file cannot be read.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let text = fs::read_to_string(root.join(LISTS)).context(LISTS)?;
    let rejected = parse(&text);
    let mut findings = Vec::new();
    for (file, text) in sources::texts(root, &[""])? {
        findings
            .extend(scan(&text, &rejected).into_iter().map(|(line, why)| format!("{file}:{line}: {why}")));
    }
    Ok(findings)
}

fn parse(text: &str) -> Rejected {
    let mut rejected = Rejected::default();
    for line in text.lines() {
        match line.split_once(':') {
            Some(("documentation", words)) => {
                rejected.openings.extend(words.split_whitespace().map(str::to_owned));
            }
            Some(("constants", words)) => {
                rejected.bounds.extend(words.split_whitespace().map(str::to_owned));
            }
            _ => {}
        }
    }
    rejected
}

/// The lines at fault, from 1, each with what to write instead.
fn scan(text: &str, rejected: &Rejected) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut before = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let marker = ["///", "//!"].into_iter().find(|marker| line.starts_with(*marker));
        if let (Some(marker), true) = (marker, marker != before) {
            let first =
                line[marker.len()..].split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty());
            let first = first.unwrap_or_default();
            if rejected.openings.contains(first) {
                found.push((index + 1, format!("documentation opens with \"{first}\": name the item")));
            }
        }
        before = marker;
        if let Some(name) = constant(line) {
            let first = name.split('_').next().unwrap_or_default();
            if rejected.bounds.contains(first) {
                found.push((index + 1, format!("{name}: write MAX_..., MIN_... or ..._INTERVAL")));
            }
        }
    }
    found
}

/// The name of the constant or static that a line defines.
fn constant(line: &str) -> Option<&str> {
    let line =
        line.strip_prefix("pub").map_or(line, |rest| rest.split_once(' ').map_or("", |(_, rest)| rest));
    let rest = line.strip_prefix("const ").or_else(|| line.strip_prefix("static "))?;
    let end = rest.find(|c: char| !c.is_ascii_uppercase() && c != '_' && !c.is_ascii_digit())?;
    (rest[end..].starts_with(':')).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        let rejected = parse("# words\ndocumentation: Which How\nconstants: MOST\n");
        scan(text, &rejected).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn documentation_that_opens_with_a_question_word_is_found() {
        assert_eq!(found("/// Which job.\nid: u8,\n//! How.\n"), [1, 3]);
        assert_eq!(found("/// Job.\n/// Which it is.\n// Which.\n/// However.\n"), Vec::<usize>::new());
        assert_eq!(found("    /// How many.\n    n: u8,\n\n    /// How far.\n    m: u8,"), [1, 4]);
    }

    #[test]
    fn a_bound_with_a_word_of_its_own_is_found() {
        for line in
            ["const MOST: u8 = 1;", "pub const MOST_JOBS: u8 = 1;", "    pub(crate) static MOST: u8 = 1;"]
        {
            assert_eq!(found(line), [1], "{line}");
        }
        for line in
            ["const ALMOST: u8 = 1;", "const fn most() {}", "let a = MOST;", "const MAX_MOST: u8 = 1;"]
        {
            assert_eq!(found(line), Vec::<usize>::new(), "{line}");
        }
    }
}
