//! An addition touches as few files as "How to add" in CONTRIBUTING.md says.
//!
//! `xtask/data/additions.txt` has an item of each kind and the files that name it. A file names an item if its code, tests and
//! comments left out, has the name as a word, or if it has the item's name itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::finding::Finding;
use xtask::sources;

const LIST: &str = "xtask/data/additions.txt";

/// Finds items that are named in other files than the list says.
///
/// # Errors
/// A source or the list cannot be read.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let list = fs::read_to_string(root.join(LIST)).context(LIST)?;
    let mut items = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (name, files) = line.split_once(':').with_context(|| format!("{LIST}: {line}"))?;
        let listed: BTreeSet<String> = files.split_whitespace().map(str::to_owned).collect();
        items.push((name, listed, BTreeSet::new()));
    }
    for path in sources::below(root, &[".rs"])? {
        let file = sources::shown(root, &path);
        if is_test(&file) {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| file.clone())?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        for (name, _, found) in &mut items {
            if stem == name.to_lowercase() || has_word(&text, name) {
                found.insert(file.clone());
            }
        }
    }
    let mut findings = Vec::new();
    for (name, listed, found) in &items {
        let more = found.difference(listed).map(|file| {
            format!(
                "{file} names {name}, which an addition of its kind would not touch ({LIST}, CONTRIBUTING.md)"
            )
        });
        let fewer = listed.difference(found).map(|file| format!("{LIST}: {file} does not name {name}"));
        findings.extend(more.chain(fewer));
    }
    Ok(findings)
}

fn is_test(file: &str) -> bool {
    file.ends_with("tests.rs") || file.split('/').any(|part| part == "tests")
}

/// Returns true if the code of a file has this word; its tests stand at its end.
pub(super) fn has_word(text: &str, word: &str) -> bool {
    let code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    let mut code = code.filter(|line| !line.trim_start().starts_with("//"));
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.any(|line| line.split(|letter: char| !is_part(letter)).any(|part| part == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Findings in a tree of these files, with this list.
    fn findings(list: &str, files: &[(&str, &str)]) -> Vec<Finding> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files.iter().copied().chain([(LIST, list)]) {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        check(dir.path()).unwrap()
    }

    #[test]
    fn an_item_that_is_named_in_one_file_more_is_a_finding() {
        let files = [
            ("a/src/list.rs", "mod x; Name,"),
            ("a/src/name.rs", "//! Of that name."),
            ("a/src/other.rs", "// Name\nlet names = Named;\n#[cfg(test)]\nmod tests { use Name; }"),
            ("a/tests/all.rs", "Name"),
        ];
        let list = "# Kinds\nName: a/src/list.rs a/src/name.rs\n";
        assert_eq!(findings(list, &files), Vec::<Finding>::new());
        let more = [&files[..], &[("b/src/lib.rs", "fn f() { Name::f() }")]].concat();
        let found = findings(list, &more);
        assert!(found.len() == 1 && found[0].starts_with("b/src/lib.rs names Name"), "{found:?}");
        let found = findings("Name: a/src/list.rs a/src/name.rs a/src/other.rs\n", &files);
        assert_eq!(found, ["xtask/data/additions.txt: a/src/other.rs does not name Name"]);
    }
}
