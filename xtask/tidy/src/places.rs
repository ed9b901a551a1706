//! The two documents for contributors name only files and names of the code that are there, and every crate.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use xtask::sources;

use super::additions::has_word;
use super::finding::Finding;

const MAP: &str = "ARCHITECTURE.md";
const DOCUMENTS: [&str; 2] = [MAP, "CONTRIBUTING.md"];

/// Longest map of the workspace, bytes: what a newcomer reads in ten minutes.
const MAX_MAP_BYTES: usize = 15_000;

/// Finds names of files and of the code that are gone, crates that the map leaves out, and a map that is too long.
///
/// # Errors
/// A document or a source cannot be read.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for document in DOCUMENTS {
        let text = read(root, document)?;
        let gone = gone_files(root, &text).into_iter().chain(gone_names(root, &text)?);
        findings.extend(gone.map(|name| format!("{document}: {name} is not there")));
    }
    let map = read(root, MAP)?;
    if map.len() > MAX_MAP_BYTES {
        findings.push(format!("{MAP} has {} bytes, at most {MAX_MAP_BYTES}", map.len()));
    }
    let members = members(&read(root, "Cargo.toml")?)?;
    let left_out = members.iter().filter(|member| {
        let group = member.split_once('/').map(|(folder, _)| format!("{folder}/*"));
        // A crate inside another one's folder belongs to it.
        let parent = member.split_once('/').map(|(folder, _)| folder.to_owned());
        !named(&map).any(|name| {
            name == member.as_str() || Some(name) == group.as_deref() || Some(name) == parent.as_deref()
        })
    });
    findings.extend(left_out.map(|member| format!("{MAP}: {member} is not in the table of crates")));
    Ok(findings)
}

fn read(root: &Path, name: &str) -> Result<String> {
    fs::read_to_string(root.join(name)).with_context(|| name.to_owned())
}

/// Texts between backquotes.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(quoted)
}

fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Files and folders that a text names and that are gone: by their paths from the root, or, behind such a path in the same
/// line, by their names in its folder.
fn gone_files<'a>(root: &Path, text: &'a str) -> Vec<&'a str> {
    let mut gone = Vec::new();
    for line in text.lines() {
        let mut folder = None;
        for name in quoted(line) {
            let is_source = name.ends_with(".rs") && name.chars().all(is_of_path);
            let path = root.join(name);
            if is_place(root, name) || (is_source && name.contains('/')) {
                if !path.exists() {
                    gone.push(name);
                }
                folder = if path.is_dir() { Some(path) } else { path.parent().map(Path::to_path_buf) };
            } else if is_source && folder.as_ref().is_some_and(|folder| !folder.join(name).exists()) {
                gone.push(name);
            }
        }
    }
    // Boxes of a diagram have no backquotes.
    let mut is_diagram = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_diagram = line == "```mermaid";
        } else if is_diagram {
            let words = line.split(|letter: char| !is_of_path(letter));
            gone.extend(words.filter(|word| is_place(root, word) && !root.join(word).exists()));
        }
    }
    gone
}

/// Names of the code that a text has and no source: `Type::item` anywhere, types and names with underscores in backquotes.
fn gone_names<'a>(root: &Path, text: &'a str) -> Result<BTreeSet<&'a str>> {
    let is_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let items = text.split(|letter: char| !is_of_name(letter) && letter != ':');
    let items = items.map(|name| name.trim_matches(':')).filter(|name| name.contains("::"));
    let is_item = |name: &&str| {
        let is_type = name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
        name.chars().all(is_of_name) && (is_type || name.contains('_'))
    };
    let mut names: BTreeSet<&str> = items.chain(named(text).filter(is_item)).collect();
    for path in sources::below(root, &[".rs"])? {
        if names.is_empty() {
            break;
        }
        let source = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let has = |word: &str| source.contains(word) && has_word(&source, word);
        names.retain(|name| match name.rsplit_once("::") {
            Some((owner, item)) => !(is_of(&path, &source, owner) && has(item)),
            None => !has(name),
        });
    }
    Ok(names)
}

/// Returns true if a source defines the type, or is a file of the module.
fn is_of(path: &Path, source: &str, owner: &str) -> bool {
    let name = owner.rsplit("::").next().unwrap_or(owner);
    if name.starts_with(char::is_lowercase) {
        let folder = path.parent().and_then(Path::file_name);
        return [path.file_stem(), folder].into_iter().flatten().any(|part| part == name);
    }
    ["struct", "enum", "trait"].iter().any(|kind| {
        let definition = format!("{kind} {name}");
        source.match_indices(&definition).any(|(at, _)| {
            let next = source[at + definition.len()..].chars().next();
            next.is_none_or(|next| !next.is_alphanumeric() && next != '_')
        })
    })
}

fn is_of_path(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '/' | '.' | '_' | '-')
}

/// Returns true if a name is meant as a file or folder of this tree.
fn is_place(root: &Path, name: &str) -> bool {
    name.chars().all(is_of_path) && name.split_once('/').is_some_and(|(folder, _)| root.join(folder).is_dir())
}

/// The folders of the workspace's crates.
fn members(manifest: &str) -> Result<Vec<String>> {
    let table: toml::Table = manifest.parse().context("Cargo.toml")?;
    let list = table.get("workspace").and_then(|workspace| workspace.get("members")?.as_array());
    let names = list.into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned));
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_gone_files_and_unlisted_crates_are_findings() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        for folder in ["shim/src", "emulator/driver", "base/os", "tests/part"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        write("shim/src/lib.rs", "");
        write(
            "Cargo.toml",
            "[workspace]\nmembers = [\"shim\", \"emulator/driver\", \"base/os\", \"tests/part\"]\n",
        );
        write(
            "ARCHITECTURE.md",
            "`shim` and `shim/src/lib.rs`, `shim/gone.rs`\n`emulator/*`, `tests`, `a/b`\n",
        );
        write("CONTRIBUTING.md", "`cargo test -p shim/x`, `shim/src/`, `shim/old/`");
        assert_eq!(
            check(dir.path()).unwrap(),
            [
                "ARCHITECTURE.md: shim/gone.rs is not there",
                "CONTRIBUTING.md: shim/old/ is not there",
                "ARCHITECTURE.md: base/os is not in the table of crates",
            ]
        );
    }

    #[test]
    fn names_that_no_source_has_are_findings() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("Cargo.toml", "[workspace]\nmembers = []\n");
        write(
            "core/src/rules.rs",
            "pub trait Rules { fn rank(&self); }\nenum EventKind { Made }\nfn holds_after_kill() {}",
        );
        write("core/src/event/mod.rs", "pub enum Event { Came }\n// Event::Went, Gone\nfn told() {}");
        write(
            "ARCHITECTURE.md",
            "`Rules`, `Rules::rank`, Event::Came, `event::told`, `holds_after_kill`, `Gone`, `Event::Went`\n\
             ```mermaid\n  K->>O: Event::Made, core/src/<br/>, core/old/<br/>read/write\n```\n",
        );
        write(
            "CONTRIBUTING.md",
            "`core/src/rules.rs`, `rules.rs` there, `name.rs` there, in `core/src/event/`, its `mod.rs`, `event/x.rs`\n\
             `any.rs`, `is_gone_since`, cargo test --test all",
        );
        let gone = |document: &str, name: &str| format!("{document}.md: {name} is not there");
        assert_eq!(
            check(dir.path()).unwrap(),
            [
                gone("ARCHITECTURE", "core/old/"),
                gone("ARCHITECTURE", "Event::Made"),
                gone("ARCHITECTURE", "Event::Went"),
                gone("ARCHITECTURE", "Gone"),
                gone("CONTRIBUTING", "name.rs"),
                gone("CONTRIBUTING", "event/x.rs"),
                gone("CONTRIBUTING", "is_gone_since"),
            ]
        );
    }

    #[test]
    fn a_map_that_takes_long_to_read_is_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Cargo.toml"), "[workspace]\nmembers = []\n").unwrap();
        fs::write(dir.path().join("CONTRIBUTING.md"), "").unwrap();
        fs::write(dir.path().join("ARCHITECTURE.md"), "x".repeat(MAX_MAP_BYTES + 1)).unwrap();
        assert_eq!(check(dir.path()).unwrap(), ["ARCHITECTURE.md has 15001 bytes, at most 15000"]);
    }
}
