//! No file grows beyond what a person keeps in mind.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::ratchet::{Numbers, Ratchet};
use super::{Finding, sources};

const MAX_LINES: usize = 500;

/// Longer files of old, with their lines.
pub const LISTED: &str = "xtask/data/lengths.txt";

/// Finds source files that are too long, and entries of the list that are larger than needed.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let ratchet = Ratchet::read(&root.join(LISTED))?;
    let now = numbers(root)?;
    let mut findings = Vec::new();
    for (file, lines) in &now {
        if !ratchet.allows(file, lines) {
            let allowed = ratchet.listed(file).first().unwrap_or(&MAX_LINES);
            findings.push(format!("{file}: {} lines, more than {allowed}", lines[0]));
        }
    }
    findings.extend(
        ratchet
            .loose(&now)
            .map(|file| format!("{LISTED}: {file} is shorter now: run `cargo xtask tidy --tighten`")),
    );
    Ok(findings)
}

/// The lines of each file that is too long.
pub fn numbers(root: &Path) -> Result<Numbers> {
    let mut numbers = Numbers::new();
    for file in sources::below(root, &[".rs", ".c", ".h", ".py"])? {
        let lines = fs::read_to_string(&file)?.lines().count();
        if lines > MAX_LINES {
            numbers.insert(sources::shown(root, &file), vec![lines]);
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_one_line_too_many_is_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("xtask/data")).unwrap();
        fs::write(dir.path().join(LISTED), "known.rs: 600\nshrunk.rs: 600\n").unwrap();
        fs::create_dir(dir.path().join("target")).unwrap();
        for (name, lines) in [
            ("fits.rs", MAX_LINES),
            ("long.rs", MAX_LINES + 1),
            ("known.rs", 601),
            ("shrunk.rs", 599),
            ("target/made.rs", 9999),
        ] {
            fs::write(dir.path().join(name), "\n".repeat(lines)).unwrap();
        }
        let shorter = "xtask/data/lengths.txt: shrunk.rs is shorter now: run `cargo xtask tidy --tighten`";
        let long = ["known.rs: 601 lines, more than 600", "long.rs: 501 lines, more than 500", shorter];
        assert_eq!(check(dir.path()).unwrap(), long);
    }
}
