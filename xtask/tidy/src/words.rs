//! Words that say too little or mean something else in this field stay out of names, messages and documents.
//!
//! The words stand in `xtask/data/words/rejected.txt`, each with what to write instead. They are found as whole words and
//! as parts of `snake_case` and `CamelCase` names, in upper and lower case.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::finding::Finding;
use xtask::sources;

const FOLDER: &str = "xtask/data/words/";
const ENDINGS: [&str; 9] = [".rs", ".md", ".py", ".txt", ".toml", ".c", ".h", ".html", ".snap"];

/// A rejected word, and where.
struct Found {
    file: String,
    line: usize,
    word: String,
}

/// Finds rejected words, and allowed places that nothing needs.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let rejected = rejected(root)?;
    let (found, unused) = scan(root, &rejected)?;
    let unused = unused.into_iter().map(|entry| format!("{FOLDER}allowed.txt: nothing needs `{entry}`"));
    let found = found.into_iter().map(|Found { file, line, word }| {
        let instead = rejected.get(&word).map_or("", String::as_str);
        format!("{file}:{line}: \"{word}\": write {instead}")
    });
    Ok(unused.chain(found).collect())
}

/// The rejected words with what to write instead.
fn rejected(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut words = BTreeMap::new();
    for line in list(root, "rejected.txt")? {
        let (names, instead) = line.split_once(':').with_context(|| format!("{line}: no colon"))?;
        for name in names.split_whitespace() {
            words.insert(name.to_owned(), instead.trim().to_owned());
        }
    }
    Ok(words)
}

fn list(root: &Path, name: &str) -> Result<Vec<String>> {
    let file = root.join(FOLDER).join(name);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

/// All rejected words of the workspace, and the allowed places that nothing needs.
fn scan(root: &Path, rejected: &BTreeMap<String, String>) -> Result<(Vec<Found>, Vec<String>)> {
    let allowed = list(root, "allowed.txt")?;
    let mut used = BTreeSet::new();
    let mut found = Vec::new();
    let mut files = sources::below(root, &ENDINGS)?;
    let hidden = root.join(".config/nextest.toml");
    files.extend(hidden.is_file().then_some(hidden));
    for path in files {
        let file = sources::shown(root, &path);
        if file.starts_with(FOLDER) {
            continue;
        }
        let bytes = fs::read(&path).with_context(|| file.clone())?;
        for (index, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            for word in words(line).into_iter().filter(|word| rejected.contains_key(word)) {
                let excuse = allowed.iter().position(|entry| {
                    entry.split_once(": ").is_some_and(|(place, text)| place == file && line.contains(text))
                });
                match excuse {
                    Some(entry) => _ = used.insert(entry),
                    None => found.push(Found { file: file.clone(), line: index + 1, word }),
                }
            }
        }
    }
    let unused = allowed.iter().enumerate().filter(|(index, _)| !used.contains(index));
    Ok((found, unused.map(|(_, entry)| entry.clone()).collect()))
}

/// The words of a line in lower case, names taken apart: `LiveBlock` and `live_block` are two words each.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in line.split(|c: char| !c.is_ascii_alphabetic()).filter(|run| !run.is_empty()) {
        let bytes = run.as_bytes();
        let mut start = 0;
        for at in 1..bytes.len() {
            let after_lower = bytes[at - 1].is_ascii_lowercase() && bytes[at].is_ascii_uppercase();
            let before_lower = bytes[at - 1].is_ascii_uppercase()
                && bytes[at].is_ascii_uppercase()
                && bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
            if after_lower || before_lower {
                words.push(run[start..at].to_ascii_lowercase());
                start = at;
            }
        }
        words.push(run[start..].to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_at_underscores_and_capitals() {
        for (line, expected) in [
            ("fn gadget_of(x: &LiveGadget)", "fn gadget of x live gadget"),
            ("const FROBS_2: HTTPServer", "const frobs http server"),
            ("// Snark's; e.g. frobkeeping", "snark s e g frobkeeping"),
            ("suppresses a wug", "suppresses a wug"),
            ("müßig", "m ig"),
        ] {
            assert_eq!(words(line).join(" "), expected.trim_start_matches("// "), "{line}");
        }
    }

    /// A workspace whose rejected words are "frobs" and "snark".
    fn workspace(files: &[(&str, &str)], allowed: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let words = "# words\nfrobs frob: accounting\nsnark: the role\n";
        let data = [("rejected.txt", words), ("allowed.txt", allowed)];
        let data = data.map(|(name, text)| (format!("{FOLDER}{name}"), text));
        let data = data.iter().map(|(name, text)| (name.as_str(), *text));
        for (name, text) in files.iter().copied().chain(data) {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn a_rejected_word_is_found_with_its_place_and_a_better_one() {
        let files =
            [("a/src/x.rs", "let x = 1;\nstruct Frobs;"), ("README.md", "SNARK"), ("a/b.bin", "frobs")];
        let found = check(workspace(&files, "").path()).unwrap();
        assert_eq!(
            found,
            ["README.md:1: \"snark\": write the role", "a/src/x.rs:2: \"frobs\": write accounting"]
        );
    }

    #[test]
    fn an_allowed_place_is_that_text_in_that_file_and_must_be_needed() {
        let files = [("a/x.rs", "user(\"snark\")\nfor snark"), ("a/y.rs", "user(\"snark\")")];
        let dir = workspace(&files, "a/x.rs: \"snark\"\na/x.rs: \"frobs\"\n");
        let found = check(dir.path()).unwrap();
        let expected = [
            "xtask/data/words/allowed.txt: nothing needs `a/x.rs: \"frobs\"`",
            "a/x.rs:2: \"snark\": write the role",
            "a/y.rs:1: \"snark\": write the role",
        ];
        assert_eq!(found, expected);
    }
}
