//! Entries of an earlier `bench/PEERS.md` on suites that were run elsewhere, or to the end there.

use std::collections::BTreeMap;

/// A page as lines of its table and its lists.
#[derive(Debug, Default)]
pub struct Earlier {
    rows: BTreeMap<String, String>,
    items: BTreeMap<(String, String), Vec<String>>,
}

impl Earlier {
    /// Reads a page.
    pub fn read(page: &str) -> Self {
        let mut earlier = Self::default();
        let mut section = String::new();
        for line in page.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                title.clone_into(&mut section);
            } else if let (true, Some(name)) = (section.is_empty(), cell(line, 0)) {
                earlier.rows.insert(name.to_owned(), line.to_owned());
            } else if let Some((suite, _)) = line.strip_prefix("- ").and_then(|item| item.split_once(": ")) {
                earlier.items.entry((section.clone(), suite.to_owned())).or_default().push(line.to_owned());
            }
        }
        earlier
    }

    /// The row of a suite of this version.
    pub fn row(&self, suite: &str, version: &str) -> Option<&str> {
        let row = self.rows.get(suite)?;
        (cell(row, 1) == Some(version)).then_some(row)
    }

    /// The row of a suite that had more than `files` files of tests run.
    pub fn fuller_row(&self, suite: &str, version: &str, files: usize) -> Option<&str> {
        let row = self.row(suite, version)?;
        let ran: usize = cell(row, 2)?.split(' ').next()?.parse().ok()?;
        (ran > files).then_some(row)
    }

    /// Names of rows of a suite's parts.
    pub fn parts(&self, suite: &str) -> impl Iterator<Item = &str> {
        let of = format!("{suite}: ");
        self.rows.keys().filter(move |name| name.starts_with(&of)).map(String::as_str)
    }

    /// Items of a suite in a section.
    pub fn items(&self, section: &str, suite: &str) -> &[String] {
        self.items.get(&(section.to_owned(), suite.to_owned())).map_or(&[], Vec::as_slice)
    }
}

fn cell(line: &str, number: usize) -> Option<&str> {
    line.strip_prefix('|')?.split('|').nth(number).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Head\n\n- date: today\n\n| suite | version | files |\n|---|---|---|\n\
                        | a | 1.0 | 3 of 4 | 9 |\n| a: deep | 1.0 | 1 of 1 | 2 |\n\n\
                        ## Unsteady\n\n- a: `x`: why\n- b: `y`\n";

    #[test]
    fn a_row_is_kept_of_the_same_version_with_more_files() {
        let earlier = Earlier::read(PAGE);
        assert_eq!(earlier.fuller_row("a", "1.0", 2), Some("| a | 1.0 | 3 of 4 | 9 |"));
        assert_eq!(earlier.fuller_row("a", "1.0", 3), None);
        assert_eq!(earlier.fuller_row("a", "1.1", 0), None);
        assert_eq!(earlier.parts("a").collect::<Vec<_>>(), ["a: deep"]);
    }

    #[test]
    fn items_are_kept_by_section_and_suite() {
        let earlier = Earlier::read(PAGE);
        assert_eq!(earlier.items("Unsteady", "a"), ["- a: `x`: why"]);
        assert!(earlier.items("Differing", "a").is_empty());
        assert!(earlier.items("", "date").len() == 1);
    }
}
