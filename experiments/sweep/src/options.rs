//! Options of command lines.

use std::collections::BTreeMap;

/// The options of a command line with their values, `yes` for one without; of one that is there several times the last.
#[must_use]
pub fn options(words: &[String]) -> BTreeMap<&str, &str> {
    let is_option = |word: &str| {
        let name = word.trim_start_matches('-');
        name.len() < word.len() && name.starts_with(|first: char| first.is_alphabetic())
    };
    let mut found = BTreeMap::new();
    for (at, word) in words.iter().enumerate().filter(|(_, word)| is_option(word)) {
        let following = words.get(at + 1).map(String::as_str).filter(|next| !is_option(next));
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, value),
            None => (word.as_str(), following.unwrap_or("yes")),
        };
        found.insert(name, value);
    }
    found
}
