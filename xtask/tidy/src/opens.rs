//! Programs that run as root, or for other users, open files of `/proc` and of users by `radrm_os::untrusted` only.
//!
//! A file that is opened otherwise stands in `xtask/data/opens.txt`, with the number of such places in a source and the
//! reason: what it opens is chosen by no other user. Tests are left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use syn::visit::{self, Visit};

use super::finding::Finding;
use super::modules::is_for_tests;
use xtask::sources;

/// Crates whose sources are checked.
const FOLDERS: [&str; 5] = ["cluster", "collector/src", "daemon/src", "limits/src", "radrm/src"];

/// Last two names of paths that open a file.
const OPENS: [(&str, &str); 8] = [
    ("File", "open"),
    ("File", "options"),
    ("OpenOptions", "new"),
    ("fs", "open"),
    ("fs", "openat"),
    ("fs", "openat2"),
    ("fs", "read"),
    ("fs", "read_to_string"),
];

const KNOWN: &str = "xtask/data/opens.txt";

/// Finds files that are opened without the door, and exceptions that are none any more.
///
/// # Errors
/// A source or the list cannot be read.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let known = parse(&fs::read_to_string(root.join(KNOWN)).context(KNOWN)?)?;
    let mut real = BTreeMap::new();
    for folder in FOLDERS {
        for file in sources::below(&root.join(folder), &[".rs"])? {
            let place = sources::shown(root, &file);
            let is_source = place.contains("/src/") && !place.ends_with("tests.rs");
            if !is_source || place.contains("/tests/") {
                continue;
            }
            let lines = scan(&fs::read_to_string(&file)?).with_context(|| place.clone())?;
            if !lines.is_empty() {
                real.insert(place, lines);
            }
        }
    }
    Ok(compare(&real, &known))
}

/// Number of places by source.
fn parse(text: &str) -> Result<BTreeMap<String, usize>> {
    let mut known = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut parts = line.splitn(3, ": ");
        let (Some(source), Some(count), Some(reason)) = (parts.next(), parts.next(), parts.next()) else {
            bail!("{KNOWN}: `{line}` is not `SOURCE: NUMBER: REASON`");
        };
        if reason.trim().is_empty() || known.insert(source.to_owned(), count.parse()?).is_some() {
            bail!("{KNOWN}: {source} has no reason, or stands there twice");
        }
    }
    Ok(known)
}

fn compare(real: &BTreeMap<String, Vec<usize>>, known: &BTreeMap<String, usize>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (source, lines) in real {
        let allowed = known.get(source).copied().unwrap_or(0);
        let count = lines.len();
        if count > allowed {
            let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            findings.push(format!(
                "{source}: opens files in {count} places, {KNOWN} permits {allowed} (lines {}): open what another user \
                 may choose by radrm_os::untrusted",
                lines.join(", ")
            ));
        }
    }
    for (source, allowed) in known {
        let count = real.get(source).map_or(0, Vec::len);
        if count < *allowed {
            findings.push(format!("{KNOWN}: {source} opens files in {count} places, not in {allowed}"));
        }
    }
    findings
}

/// Lines on which a file is opened without the door.
fn scan(text: &str) -> Result<Vec<usize>> {
    let mut scan = Scan(Vec::new());
    scan.visit_file(&syn::parse_file(text)?);
    Ok(scan.0)
}

struct Scan(Vec<usize>);

impl<'ast> Visit<'ast> for Scan {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut names = path.segments.iter().rev().map(|segment| segment.ident.to_string());
        if let (Some(last), Some(before)) = (names.next(), names.next())
            && OPENS.iter().any(|(of, name)| *of == before && *name == last)
        {
            self.0.extend(path.segments.last().map(|segment| segment.ident.span().start().line));
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_open_a_file_is_found_with_its_line() {
        for text in [
            "fn f() {\n    std::fs::File::open(\"x\");\n}",
            "fn f() {\n    File::options().read(true);\n}",
            "fn f() {\n    let _ = fs::OpenOptions::new().read(true);\n}",
            "fn f() {\n    [\"x\"].map(fs::read_to_string);\n}",
            "impl A { fn f(&self) {\n    rustix::fs::openat(d, n, f, m);\n} }",
            "fn f() {\n    if let Ok(text) = std::fs::read(path) {}\n}",
        ] {
            assert_eq!(scan(text).unwrap(), [2], "{text}");
        }
    }

    #[test]
    fn the_door_tests_and_other_calls_are_left_alone() {
        for text in [
            "use std::fs::File;\nfn f() { untrusted::open(path); untrusted::read(path, 9); }",
            "#[cfg(test)]\nmod tests { fn f() { File::open(path); } }",
            "#[test]\nfn f() { fs::read(path); }",
            "fn f() { fs::read_dir(path); fs::metadata(path); Store::open(path); }",
        ] {
            assert!(scan(text).unwrap().is_empty(), "{text}");
        }
    }

    #[test]
    fn the_list_of_exceptions_is_exact_and_has_reasons() {
        let real = BTreeMap::from([("a.rs".to_owned(), vec![3, 8]), ("b.rs".to_owned(), vec![1])]);
        let found = |text: &str| compare(&real, &parse(text).unwrap());
        assert_eq!(found("# comment\na.rs: 2: own\nb.rs: 1: own\n"), [] as [&str; 0]);
        assert!(found("a.rs: 1: own\nb.rs: 1: own\n")[0].contains("2 places"));
        assert!(found("a.rs: 2: own\n")[0].starts_with("b.rs: opens files in 1 places"));
        assert!(found("a.rs: 2: own\nb.rs: 1: own\nc.rs: 1: own\n")[0].contains("c.rs opens files in 0"));
        assert!(parse("a.rs: 2: \n").is_err() && parse("a.rs: 2\n").is_err());
        assert!(parse("a.rs: 1: x\na.rs: 1: y\n").is_err());
    }
}
