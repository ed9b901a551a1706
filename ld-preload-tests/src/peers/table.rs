//! `bench/PEERS.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::earlier::Earlier;
use super::outcome::{Class, Outcome};
use super::reasons;
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

Made by `cargo xtask peers` on emulated GPUs. Each file of tests, or class of one, runs in a process of its own, once on the emulated driver
alone and once under `radrm-run`; the outcomes are compared test by test. Emulated memory holds what is copied to it, but
kernels are not executed: a test that looks at what one computes fails, with the shim as without. A file with a difference is
run twice more; unsteady are tests of which a run without the shim then came to what one with it came to, as tests of times do.
Runs: how many such runs of each file, without a difference, followed each other; counts are of the last one.
";

const COLUMNS: &str = "
| suite | version | files | tests | passed | skipped | failed: needs computed values | not emulated | other | unsteady | differing | runs | last run |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

const DIFFERING: &str = "Differing";
const UNSTEADY: &str = "Unsteady";
const OTHER: &str = "Other failures";

/// A suite, the names of its files of tests, and the runs of those that were run.
pub type Ran = (Suite, Vec<String>, BTreeMap<String, Both>);

/// The page of all suites; those that were not run say why. `made` tells where and how they were run, a line each.
/// What `earlier` says of suites of which it has more files is kept.
pub fn page(suites: &[Ran], made: &[String], earlier: &Earlier) -> String {
    let mut page = HEAD.to_owned();
    let line = "write to a string";
    page.push('\n');
    made.iter().for_each(|text| writeln!(page, "- {text}").expect(line));
    page.push_str(COLUMNS);
    let rows: Vec<Vec<String>> = suites.iter().map(|ran| rows(ran, earlier)).collect();
    rows.iter().flatten().for_each(|row| writeln!(page, "{row}").expect(line));
    for section in [DIFFERING, UNSTEADY, OTHER] {
        let items: Vec<String> = suites.iter().flat_map(|ran| items(section, ran, earlier)).collect();
        if !items.is_empty() {
            writeln!(page, "\n## {section}\n").expect(line);
            if section == OTHER {
                page.push_str(
                    "Neither computed values nor something that is known not to be there, and why:\n\n",
                );
            }
            items.iter().for_each(|item| writeln!(page, "{item}").expect(line));
        }
    }
    page.push_str("\n## Not run\n\n| suite | package | why |\n|---|---|---|\n");
    for ((suite, ..), _) in suites.iter().zip(&rows).filter(|(_, rows)| rows.is_empty()) {
        let why = if suite.origin == Origin::Nowhere {
            suite.remark.to_owned()
        } else {
            format!("not run here; {}", suite.remark)
        };
        writeln!(page, "| {} | {} {} | {why} |", suite.name, suite.package, suite.version).expect(line);
    }
    page
}

/// Rows of a suite, and of those folders of it that were run more often than the whole.
fn rows((suite, files, runs): &Ran, earlier: &Earlier) -> Vec<String> {
    let version = suite.version;
    let whole = earlier
        .fuller_row(suite.name, version, runs.len())
        .map(str::to_owned)
        .or_else(|| (!runs.is_empty()).then(|| row(suite.name, version, files.len(), runs)));
    let folder = |name: &str| name.split_once('/').map(|(folder, _)| folder.to_owned());
    let times = |runs: &BTreeMap<String, Both>| runs.values().map(|run| run.runs).min().unwrap_or(0);
    let complete = runs.len() == files.len();
    let mut parts: BTreeMap<String, BTreeMap<String, Both>> = BTreeMap::new();
    for (name, run) in runs {
        if let Some(folder) = folder(name) {
            parts.entry(folder).or_default().insert(name.clone(), run.clone());
        }
    }
    parts.retain(|_, part| times(part) > if complete { times(runs) } else { 1 });
    let mut named: BTreeMap<String, String> = earlier
        .parts(suite.name)
        .filter_map(|name| Some((name.to_owned(), earlier.row(name, version)?.to_owned())))
        .collect();
    for (part, runs) in parts {
        let name = format!("{}: {part}", suite.name);
        let number = files.iter().filter(|file| folder(file).as_ref() == Some(&part)).count();
        let row = row(&name, version, number, &runs);
        named.insert(name, row);
    }
    whole.into_iter().chain(named.into_values()).collect()
}

fn row(name: &str, version: &str, files: usize, runs: &BTreeMap<String, Both>) -> String {
    let c = Counts::of(runs);
    let (values, missing, other) =
        (c.class(Class::Values), c.class(Class::NotEmulated), c.class(Class::Fault));
    let times = || runs.values().map(|run| run.runs);
    let times = match (times().min().unwrap_or(0), times().max().unwrap_or(0)) {
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    let last = runs.values().map(|run| run.made.as_str()).max().unwrap_or_default();
    format!(
        "| {name} | {version} | {} of {files} | {} | {} | {} | {values} | {missing} | {other} | {} | {} | {times} | {last} |",
        c.files, c.tests, c.passed, c.skipped, c.unsteady, c.differing
    )
}

/// Items of a suite in a section.
fn items(section: &str, (suite, _, runs): &Ran, earlier: &Earlier) -> Vec<String> {
    let mut items = if earlier.fuller_row(suite.name, suite.version, runs.len()).is_some() {
        earlier.items(section, suite.name).to_vec()
    } else {
        Vec::new()
    };
    let fresh = runs.values().flat_map(|run| match section {
        DIFFERING => differing(suite.name, run),
        UNSTEADY => run.unsteady.iter().map(|test| format!("- {}: `{test}`", suite.name)).collect(),
        _ => other_failures(suite.name, run),
    });
    let fresh: Vec<String> = fresh.collect();
    items.retain(|before| fresh.iter().all(|item| test_of(item) != test_of(before)));
    for item in fresh {
        if !items.contains(&item) {
            items.push(item);
        }
    }
    items
}

/// The test that an item is about.
fn test_of(item: &str) -> Option<&str> {
    item.split('`').nth(1)
}

fn differing(suite: &str, run: &Both) -> Vec<String> {
    let found = run.differences().into_iter();
    found
        .map(|(test, bare, shimmed)| format!("- {suite}: `{test}`: {bare:?}, with the shim {shimmed:?}"))
        .collect()
}

fn other_failures(suite: &str, run: &Both) -> Vec<String> {
    let failed = run.bare.iter().filter(|(_, outcome)| outcome.class() == Some(Class::Fault));
    failed
        .map(|(test, outcome)| {
            let said = match outcome {
                Outcome::Failed(said) => said,
                _ => "the process ended in the middle of it, or was ended for want of time",
            };
            let last: String = said.chars().rev().take(120).collect();
            let reason = last.chars().rev().collect::<String>().replace('|', "/").replace('`', "'");
            let why = reasons::of(suite, test, said).map(|why| format!(": **{why}**")).unwrap_or_default();
            format!("- {suite}: `{test}`: {reason}{why}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{outcome::parse, suites};

    fn ran(of: &str, files: &[&str], runs: &BTreeMap<String, Both>) -> Vec<Ran> {
        let suites = suites::all().unwrap().into_iter();
        suites
            .map(|suite| {
                let runs = if suite.name == of { runs.clone() } else { BTreeMap::new() };
                (suite, files.iter().map(|file| (*file).to_owned()).collect(), runs)
            })
            .collect()
    }

    #[test]
    fn the_page_counts_by_class_and_names_what_differs() {
        let bare = parse(
            "a\tpassed\t\nb\tfailed\tAssertionError\nc\tskipped\t\nd\tfailed\tNOT_SUPPORTED\ne\tfailed\todd\n",
        );
        let mut shimmed = bare.clone();
        shimmed.insert("a".into(), Outcome::Crashed);
        let made = "2026".to_owned();
        let runs = BTreeMap::from([("file".to_owned(), Both { bare, shimmed, made, ..Both::default() })]);
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
        let ran = ran("numba-cuda", &["file", "other"], &runs);
        let page = page(&ran, &["machine: this".to_owned()], &Earlier::default());
        assert!(page.contains("| 1 of 2 | 5 | 1 | 1 | 1 | 1 | 1 | 0 | 1 | 0 | 2026 |"), "{page}");
        assert!(page.contains("`a`: Some(Passed), with the shim Some(Crashed)"), "{page}");
        assert!(page.contains("| triton | ") && page.contains("\n- machine: this\n\n| suite"), "{page}");
    }

    #[test]
    fn a_part_that_was_run_more_often_has_its_own_row_and_the_whole_is_kept() {
        let run = |runs| Both {
            bare: parse("a\tpassed\t\n"),
            shimmed: parse("a\tpassed\t\n"),
            runs,
            ..Both::default()
        };
        let files = ["deep/x", "deep/y", "z"];
        let first =
            BTreeMap::from([("deep/x", 1), ("deep/y", 1), ("z", 1)].map(|(f, n)| (f.to_owned(), run(n))));
        let whole = page(&ran("numba-cuda", &files, &first), &[], &Earlier::default());
        assert!(whole.contains("| 3 of 3 | 3 |") && !whole.contains("numba-cuda: deep"), "{whole}");
        let part = BTreeMap::from([("deep/x", 2), ("deep/y", 3)].map(|(f, n)| (f.to_owned(), run(n))));
        let both = page(&ran("numba-cuda", &files, &part), &[], &Earlier::read(&whole));
        assert!(both.contains("| 3 of 3 | 3 |") && both.contains("| 2 of 2 | 2 |"), "{both}");
        assert!(both.contains("| 2 to 3 |"), "{both}");
        // Without results of its own, a page keeps all of the earlier one.
        let kept = page(&ran("cupy", &files, &BTreeMap::new()), &[], &Earlier::read(&both));
        assert_eq!(kept, both);
    }
}
