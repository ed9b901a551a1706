//! `bench/PEERS.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::outcome::{Class, Outcome};
use super::run::Both;
use super::suites::{Origin, Suite};

/// Counts of one suite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files of tests.
    pub files: usize,
    /// Tests.
    pub tests: usize,
    /// Passed without the shim.
    pub passed: usize,
    /// Skipped without the shim.
    pub skipped: usize,
    /// Failed without the shim, by class.
    pub failed: [usize; 3],
    /// Once not the same with the shim, but alike in a further run.
    pub unsteady: usize,
    /// Not the same with the shim.
    pub differing: usize,
}

impl Counts {
    /// Counts the runs of a suite's files.
    pub fn of(runs: &BTreeMap<String, Both>) -> Self {
        let mut counts = Self { files: runs.len(), ..Self::default() };
        for run in runs.values() {
            counts.unsteady += run.unsteady.len();
            counts.differing += run.differences().len();
            for outcome in run.bare.values() {
                counts.tests += 1;
                match (outcome, outcome.class()) {
                    (Outcome::Skipped, _) => counts.skipped += 1,
                    (_, None) => counts.passed += 1,
                    (_, Some(class)) => counts.failed[class as usize] += 1,
                }
            }
        }
        counts
    }

    fn class(&self, class: Class) -> usize {
        self.failed[class as usize]
    }
}

const HEAD: &str = "# Other projects' test suites, with and without the shim

Made by `cargo xtask peers` on emulated GPUs. Each file of tests runs in a process of its own, once on the emulated driver
alone and once under `radrm-run`; the outcomes are compared test by test. Emulated memory holds what is copied to it, but
kernels are not executed: a test that looks at what one computes fails, with the shim as without. A file with a difference is
run twice more; unsteady are tests of which a run without the shim then came to what one with it came to, as tests of times do.
";

const COLUMNS: &str = "
| suite | version | files | tests | passed | skipped | failed: needs computed values | not emulated | other | unsteady | differing |
|---|---|---|---|---|---|---|---|---|---|---|
";

/// A suite, the number of its files of tests, and the runs of those that were run.
pub type Ran = (Suite, usize, BTreeMap<String, Both>);

/// The page of all suites; those that were not run say why. `made` tells where and when the last of them were run, a
/// line each.
pub fn page(suites: &[Ran], made: &[String]) -> String {
    let mut page = HEAD.to_owned();
    let line = "write to a string";
    page.push('\n');
    made.iter().for_each(|text| writeln!(page, "- {text}").expect(line));
    page.push_str(COLUMNS);
    for (suite, files, runs) in suites.iter().filter(|(.., runs)| !runs.is_empty()) {
        let c = Counts::of(runs);
        let (values, missing, other) =
            (c.class(Class::Values), c.class(Class::NotEmulated), c.class(Class::Fault));
        writeln!(
            page,
            "| {} | {} | {} of {files} | {} | {} | {} | {values} | {missing} | {other} | {} | {} |",
            suite.name, suite.version, c.files, c.tests, c.passed, c.skipped, c.unsteady, c.differing
        )
        .expect(line);
    }
    let differing = suites.iter().flat_map(|(suite, _, runs)| {
        runs.values().flat_map(move |run| run.differences()).map(move |found| (suite.name, found))
    });
    let lines: Vec<String> = differing
        .map(|(suite, (test, bare, shimmed))| {
            format!("- {suite}: `{test}`: {bare:?}, with the shim {shimmed:?}\n")
        })
        .collect();
    if !lines.is_empty() {
        page.push_str("\n## Differing\n\n");
        lines.iter().for_each(|text| page.push_str(text));
    }
    let unsteady: Vec<String> = suites
        .iter()
        .flat_map(|(suite, _, runs)| {
            runs.values().flat_map(move |run| run.unsteady.iter().map(move |test| (suite, test)))
        })
        .map(|(suite, test)| format!("- {}: `{test}`\n", suite.name))
        .collect();
    if !unsteady.is_empty() {
        page.push_str("\n## Unsteady\n\n");
        unsteady.iter().for_each(|text| page.push_str(text));
    }
    page.push_str(
        "\n## Other failures\n\nNeither computed values nor something that is known not to be there:\n\n",
    );
    for (suite, _, runs) in suites {
        for (test, outcome) in runs.values().flat_map(|run| &run.bare) {
            if outcome.class() == Some(Class::Fault) {
                let reason = match outcome {
                    Outcome::Failed(reason) => {
                        let last: String = reason.chars().rev().take(120).collect();
                        last.chars().rev().collect::<String>().replace('|', "/").replace('`', "'")
                    }
                    _ => "the process ended in the middle of it, or was ended for want of time".to_owned(),
                };
                writeln!(page, "- {}: `{test}`: {reason}", suite.name).expect(line);
            }
        }
    }
    page.push_str("\n## Not run\n\n| suite | package | why |\n|---|---|---|\n");
    for (suite, ..) in suites.iter().filter(|(.., runs)| runs.is_empty()) {
        let why = if suite.origin == Origin::Nowhere {
            suite.remark.to_owned()
        } else {
            format!("not run here; {}", suite.remark)
        };
        writeln!(page, "| {} | {} {} | {why} |", suite.name, suite.package, suite.version).expect(line);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{outcome::parse, suites};

    #[test]
    fn the_page_counts_by_class_and_names_what_differs() {
        let bare = parse(
            "a\tpassed\t\nb\tfailed\tAssertionError\nc\tskipped\t\nd\tfailed\tNOT_SUPPORTED\ne\tfailed\todd\n",
        );
        let mut shimmed = bare.clone();
        shimmed.insert("a".into(), Outcome::Crashed);
        let runs = BTreeMap::from([("file".to_owned(), Both { bare, shimmed, ..Both::default() })]);
        let counts = Counts::of(&runs);
        let expected = Counts {
            files: 1,
            tests: 5,
            passed: 1,
            skipped: 1,
            failed: [1, 1, 1],
            unsteady: 0,
            differing: 1,
        };
        assert_eq!(counts, expected);
        let suites: Vec<_> = suites::all()
            .unwrap()
            .into_iter()
            .map(|suite| {
                let runs = if suite.name == "numba-cuda" { runs.clone() } else { BTreeMap::new() };
                (suite, 2, runs)
            })
            .collect();
        let page = page(&suites, &["date: today".to_owned()]);
        assert!(page.contains("| 1 of 2 | 5 | 1 | 1 | 1 | 1 | 1 | 0 | 1 |"), "{page}");
        assert!(page.contains("`a`: Some(Passed), with the shim Some(Crashed)"), "{page}");
        assert!(page.contains("| triton | ") && page.contains("\n- date: today\n\n| suite"), "{page}");
    }
}
