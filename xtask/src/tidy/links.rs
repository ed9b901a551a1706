//! What README and ARCHITECTURE point to is there.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::Finding;

const DOCUMENTS: [&str; 2] = ["README.md", "ARCHITECTURE.md"];

/// Finds links and paths in backticks that lead nowhere.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for document in DOCUMENTS {
        let path = root.join(document);
        if !path.is_file() {
            findings.push(format!("{document} is missing"));
            continue;
        }
        let text = fs::read_to_string(path)?;
        for (number, target) in targets(&text) {
            if !root.join(&target).exists() {
                findings.push(format!("{document}:{number}: {target} is not there"));
            }
        }
    }
    Ok(findings)
}

/// The local targets of `[text](target)` with their line numbers, code blocks left out.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let Some(end) = rest.find(')') else { break };
            let target = rest[..end].split(['#', ' ']).next().unwrap_or_default();
            let remote = target.contains("://") || target.starts_with("mailto:");
            if !target.is_empty() && !remote {
                found.push((index + 1, target.to_owned()));
            }
            rest = &rest[end..];
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_links_are_found_and_others_left_alone() {
        let text = "[a](shim/src/lib.rs) and [b](x.md#part \"t\")\n```\n[c](in/code)\n```\n\
                    [d](https://example.org/x) [e](#here)\n[f](f.md)";
        let expected = [(1, "shim/src/lib.rs"), (1, "x.md"), (6, "f.md")];
        assert_eq!(targets(text), expected.map(|(line, name)| (line, name.to_owned())));
    }

    #[test]
    fn a_dead_link_and_a_missing_document_are_findings() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("README.md"), "[x](nowhere.md)").unwrap();
        let found = check(dir.path()).unwrap();
        assert_eq!(found, ["README.md:1: nowhere.md is not there", "ARCHITECTURE.md is missing"]);
    }
}
