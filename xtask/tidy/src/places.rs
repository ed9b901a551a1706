//! The two documents for contributors name only files that are there, and every crate.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::finding::Finding;

const MAP: &str = "ARCHITECTURE.md";
const DOCUMENTS: [&str; 2] = [MAP, "CONTRIBUTING.md"];

/// Longest map of the workspace, bytes: what a newcomer reads in ten minutes.
const MAX_MAP_BYTES: usize = 15_000;

/// Finds names of files that are gone, crates that the map leaves out, and a map that is too long.
///
/// # Errors
/// A document cannot be read.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for document in DOCUMENTS {
        let text = read(root, document)?;
        let gone = named(&text).filter(|name| is_place(root, name) && !root.join(name).exists());
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
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Returns true if a name is meant as a file or folder of this tree.
fn is_place(root: &Path, name: &str) -> bool {
    let is_plain = name.chars().all(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'));
    is_plain && name.split_once('/').is_some_and(|(folder, _)| root.join(folder).is_dir())
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
    fn a_map_that_takes_long_to_read_is_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Cargo.toml"), "[workspace]\nmembers = []\n").unwrap();
        fs::write(dir.path().join("CONTRIBUTING.md"), "").unwrap();
        fs::write(dir.path().join("ARCHITECTURE.md"), "x".repeat(MAX_MAP_BYTES + 1)).unwrap();
        assert_eq!(check(dir.path()).unwrap(), ["ARCHITECTURE.md has 15001 bytes, at most 15000"]);
    }
}
