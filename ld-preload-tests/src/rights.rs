//! The tables of `docs/security.md` beside the files of a running system: each file has a row, with its owner and mode.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

/// A file that the page describes.
struct Row {
    /// Its place, with the name of a folder in front; `*` stands for any part of a name.
    pattern: String,
    owners: Vec<String>,
    mode: u32,
}

/// The rows of one section.
pub struct Rights {
    rows: Vec<Row>,
}

impl Rights {
    /// Reads a section of the page.
    ///
    /// # Panics
    /// If it has no rows, or one that is not understood.
    pub fn of(section: &str) -> Self {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
        Self::parse(&fs::read_to_string(page).expect("docs/security.md"), section)
    }

    fn parse(page: &str, section: &str) -> Self {
        let (_, rest) = page.split_once(&format!("\n## {section}\n")).expect("the section");
        let text = rest.split("\n## ").next().unwrap_or(rest);
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let rows: Vec<Row> = rows
            .map(|line| {
                let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                let [_, file, owner, mode, ..] = cells[..] else { panic!("{line}") };
                Row {
                    pattern: file.trim_matches('`').to_owned(),
                    owners: owner.split(", ").map(str::to_owned).collect(),
                    mode: u32::from_str_radix(mode, 8).unwrap_or_else(|_| panic!("{line}")),
                }
            })
            .collect();
        assert!(!rows.is_empty(), "{section} has no rows");
        Self { rows }
    }

    /// Compares the rows with all files in these folders. `names` has the name by which the page calls each folder (or
    /// file), `owners` the user ids that the page's words for owners stand for.
    ///
    /// # Panics
    /// If a file has no row, another owner or mode than its row says, or if none is there of a row in `expected`.
    #[track_caller]
    pub fn assert(&self, names: &[(&str, &Path)], owners: &[(&str, u32)], expected: &[&str]) {
        let mut all = Vec::new();
        for (name, path) in names {
            list((*name).to_owned(), path, &mut all);
        }
        self.assert_files(&all, owners, expected);
    }

    /// The same of single files and folders, whatever else is in those.
    ///
    /// # Panics
    /// As [`Rights::assert`].
    #[track_caller]
    pub fn assert_alone(&self, names: &[(&str, &Path)], owners: &[(&str, u32)], expected: &[&str]) {
        let found = |path: &Path| fs::symlink_metadata(path).ok();
        let files = names.iter().filter_map(|(name, path)| Some(((*name).to_owned(), found(path)?)));
        self.assert_files(&files.collect::<Vec<_>>(), owners, expected);
    }

    #[track_caller]
    fn assert_files(&self, files: &[(String, fs::Metadata)], owners: &[(&str, u32)], expected: &[&str]) {
        let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
        for (name, found) in files {
            self.compare(name, found, owners, &mut seen, &mut wrong);
        }
        let missing = expected.iter().filter(|pattern| !seen.contains(**pattern));
        wrong.extend(missing.map(|pattern| format!("{pattern}: no such file was seen")));
        assert!(wrong.is_empty(), "docs/security.md and the system differ:\n{}", wrong.join("\n"));
    }

    fn compare<'r>(
        &'r self,
        name: &str,
        found: &fs::Metadata,
        owners: &[(&str, u32)],
        seen: &mut BTreeSet<&'r str>,
        wrong: &mut Vec<String>,
    ) {
        let mode = found.mode() & 0o7777;
        match self.rows.iter().find(|row| matches(row.pattern.as_bytes(), name.as_bytes())) {
            None => wrong.push(format!("{name}: has no row (owner {}, mode {mode:04o})", found.uid())),
            Some(row) => {
                seen.insert(&row.pattern);
                let is_owner = |word: &String| owners.contains(&(word.as_str(), found.uid()));
                if !row.owners.iter().any(is_owner) {
                    wrong.push(format!(
                        "{name}: belongs to {}, not to {}",
                        found.uid(),
                        row.owners.join(", ")
                    ));
                }
                if row.mode != mode {
                    wrong.push(format!("{name}: has mode {mode:04o}, not {:04o}", row.mode));
                }
            }
        }
    }
}

/// A file or folder, and all that is in it.
fn list(name: String, path: &Path, all: &mut Vec<(String, fs::Metadata)>) {
    // A file may go at any moment.
    let Ok(found) = fs::symlink_metadata(path) else { return };
    let is_dir = found.is_dir();
    all.push((name.clone(), found));
    if is_dir {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let below = String::from_utf8_lossy(entry.file_name().as_bytes()).into_owned();
            list(format!("{name}/{below}"), &entry.path(), all);
        }
    }
}

/// Returns true if a place has the form of a pattern, in which `*` stands for any bytes but `/`.
fn matches(pattern: &[u8], place: &[u8]) -> bool {
    match (pattern.split_first(), place.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            let longest = place.iter().position(|byte| *byte == b'/').unwrap_or(place.len());
            (0..=longest).any(|taken| matches(rest, &place[taken..]))
        }
        (Some((a, pattern)), Some((b, place))) => a == b && matches(pattern, place),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n\n## One\n\n| file | owner | mode | lock |\n|---|---|---|---|\n| `RUN` | user | 0700 | none |\n\
                        | `RUN/a-*` | root, user | 0600 | user |\n\n## Two\n\n| `RUN/b` | user | 0600 | none |\n";

    #[test]
    #[should_panic(expected = "RUN/b: has no row")]
    fn a_file_without_a_row_in_its_section_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b"), "").unwrap();
        let own = fs::metadata(folder.path()).unwrap().uid();
        Rights::parse(PAGE, "One").assert(&[("RUN", folder.path())], &[("user", own)], &[]);
    }

    #[test]
    #[should_panic(expected = "RUN/a-1: has mode 0640, not 0600")]
    fn another_mode_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a-1");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        let own = fs::metadata(folder.path()).unwrap().uid();
        Rights::parse(PAGE, "One").assert(&[("RUN", folder.path())], &[("user", own)], &[]);
    }

    #[test]
    fn a_star_is_a_part_of_one_name() {
        for (pattern, place, is_so) in [
            ("RUN/a-*", "RUN/a-1", true),
            ("RUN/*/b*", "RUN/x/b", true),
            ("RUN/*", "RUN/x/b", false),
            ("RUN/a-*", "RUN/b-1", false),
            ("RUN", "RUN/x", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), place.as_bytes()), is_so, "{pattern} {place}");
        }
    }
}
