//! Links of the documents lead to what is there, and the book has a place for each page.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;
use xtask::files::files_below;
use xtask_docs::GENERATED;

use super::finding::Finding;

/// Documents beside the pages of the book.
const DOCUMENTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];

/// The book's table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Finds links that lead nowhere, and pages that the book leaves out.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut listed = BTreeSet::new();
    let pages: Vec<_> = match root.join("docs").is_dir() {
        true => {
            // Pictures are no pages.
            let names = files_below(&root.join("docs"))?.into_keys().filter(|name| name.ends_with(".md"));
            names.map(|name| format!("docs/{name}")).collect()
        }
        false => Vec::new(),
    };
    for document in DOCUMENTS.into_iter().chain(pages.iter().map(String::as_str)) {
        let path = root.join(document);
        if !path.is_file() {
            findings.push(format!("{document} is missing"));
            continue;
        }
        let folder = path.parent().unwrap_or(root);
        for (number, target, heading) in targets(&fs::read_to_string(&path)?) {
            let to = if target.is_empty() { path.clone() } else { folder.join(&target) };
            if !to.exists() && !is_generated(root, &to) {
                findings.push(format!("{document}:{number}: {target} is not there"));
            } else if !heading.is_empty() && to.extension().is_some_and(|kind| kind == "md") && to.exists() {
                let text = fs::read_to_string(&to)?;
                if !anchors(&text).contains(&heading) {
                    findings.push(format!("{document}:{number}: no heading for {target}#{heading}"));
                }
            }
            if document.starts_with("docs/") && leaves(document, &target) {
                findings.push(format!("{document}:{number}: {target} is not a page of the book"));
            }
            if document == SUMMARY {
                listed.insert(format!("docs/{target}"));
            }
        }
    }
    let left_out = pages.iter().filter(|page| *page != SUMMARY && !listed.contains(*page));
    findings.extend(left_out.map(|page| format!("{SUMMARY}: {page} has no place in the book")));
    Ok(findings)
}

/// Returns true if a target lies outside of the folder of the book.
fn leaves(document: &str, target: &str) -> bool {
    let depth = document.matches('/').count() - 1;
    target.split('/').take_while(|part| *part == "..").count() > depth
}

/// Returns true if a page is generated together with the book.
fn is_generated(root: &Path, page: &Path) -> bool {
    let folder = page.parent().and_then(|folder| folder.canonicalize().ok());
    let name = page.file_name().unwrap_or_default();
    folder == root.join("docs").canonicalize().ok() && GENERATED.iter().any(|page| *page == name)
}

/// The names by which links know the headings of a page: those of GitHub and of the book.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let name: String = heading
            .trim()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .flat_map(|c| if c == ' ' { '-' } else { c }.to_lowercase())
            .collect();
        let again = (1..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(again).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

/// The lines of a page outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((index + 1, line))
    })
}

/// The local targets of `[text](target#heading)` with their line numbers and headings.
fn targets(text: &str) -> Vec<(usize, String, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let Some(end) = rest.find(')') else { break };
            let link = rest[..end].split(' ').next().unwrap_or_default();
            let (target, heading) = link.split_once('#').unwrap_or((link, ""));
            let remote = target.contains("://") || target.starts_with("mailto:");
            if !link.is_empty() && !remote {
                found.push((number, target.to_owned(), heading.to_owned()));
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
        let expected = [(1, "shim/src/lib.rs", ""), (1, "x.md", "part"), (5, "", "here"), (6, "f.md", "")];
        let owned = expected.map(|(line, name, heading)| (line, name.to_owned(), heading.to_owned()));
        assert_eq!(targets(text), owned);
    }

    #[test]
    fn headings_have_the_names_that_links_use() {
        let text = "# `radrm top`: a view\n```\n# no heading\n```\n## A b-c\n## A b-c\n#none\n";
        assert_eq!(
            anchors(text),
            BTreeSet::from(["a-b-c", "a-b-c-1", "radrm-top-a-view"].map(str::to_owned))
        );
    }

    #[test]
    fn a_dead_link_and_a_missing_document_are_findings() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("README.md"), "[x](nowhere.md)").unwrap();
        let found = check(dir.path()).unwrap();
        let missing = DOCUMENTS[1..].iter().map(|name| format!("{name} is missing"));
        let expected: Vec<_> =
            std::iter::once("README.md:1: nowhere.md is not there".to_owned()).chain(missing).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_page_points_from_its_own_folder_and_has_a_place_in_the_book() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("docs/how-to")).unwrap();
        for name in DOCUMENTS {
            fs::write(dir.path().join(name), "").unwrap();
        }
        for (file, text) in [
            ("docs/SUMMARY.md", "- [a](a.md)\n- [c](commands.md)\n"),
            (
                "docs/a.md",
                "# A page\n[b](how-to/b.md#none) [a](#a-page) [a](#b) [c](commands.md#x) ![p](picture.png) ![q](gone.png)",
            ),
            (
                "docs/how-to/b.md",
                "[a](../a.md) [a](a.md) [c](../commands.md) [c](../none.md)\n[r](../../README.md)",
            ),
        ] {
            fs::write(dir.path().join(file), text).unwrap();
        }
        fs::write(dir.path().join("docs/picture.png"), b"\x89PNG").unwrap();
        assert_eq!(
            check(dir.path()).unwrap(),
            [
                "docs/a.md:2: no heading for how-to/b.md#none",
                "docs/a.md:2: no heading for #b",
                "docs/a.md:2: gone.png is not there",
                "docs/how-to/b.md:1: a.md is not there",
                "docs/how-to/b.md:1: ../none.md is not there",
                "docs/how-to/b.md:2: ../../README.md is not a page of the book",
                "docs/SUMMARY.md: docs/how-to/b.md has no place in the book",
            ]
        );
    }
}
