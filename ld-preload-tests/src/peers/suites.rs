//! The list of suites: `data/peers.tsv`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const LIST: &str = include_str!("../../data/peers.tsv");

/// Where a suite's tests come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The installed package has them.
    Wheel,
    /// A wheel has them that is unpacked beside the environment.
    Unpacked,
    /// The source package has them.
    Sdist,
    /// They are compiled from a crate's source.
    Crate,
    /// No package has them.
    Nowhere,
}

/// A suite.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Name on the command line and in the table.
    pub name: &'static str,
    /// Package that it is of.
    pub package: &'static str,
    /// Version of it.
    pub version: &'static str,
    /// Where its tests come from.
    pub origin: Origin,
    /// Folder of the tests, in the package; of a crate the features that it is compiled with.
    pub tests: &'static str,
    /// Name of the Python environment; empty where there is none.
    pub environment: &'static str,
    /// What a reader should know.
    pub remark: &'static str,
}

/// All suites.
///
/// # Errors
/// A line of the list that is not understood.
pub fn all() -> Result<Vec<Suite>> {
    LIST.lines().filter(|line| !line.starts_with('#')).map(suite).collect()
}

fn suite(line: &'static str) -> Result<Suite> {
    let fields: Vec<&'static str> = line.split('\t').collect();
    let [name, package, version, from, tests, environment, remark] = fields[..] else {
        bail!("{line:?} has {} fields and not 7", fields.len());
    };
    let origin = match (from, environment.is_empty()) {
        ("wheel", false) => Origin::Wheel,
        ("unpacked", false) => Origin::Unpacked,
        ("sdist", false) => Origin::Sdist,
        ("crate", true) => Origin::Crate,
        ("-", true) => Origin::Nowhere,
        _ => bail!("{line:?}: {from} in the environment {environment:?} is not known"),
    };
    Ok(Suite { name, package, version, origin, tests, environment, remark })
}

impl Suite {
    /// Folder of its source below the folder that sources are fetched into.
    pub fn source(&self, work: &Path) -> PathBuf {
        work.join(format!("{}-{}", self.package, self.version))
    }
}

/// Files of tests below a folder, in the order of their names.
///
/// # Errors
/// The folder cannot be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if name.starts_with("test_") && name.ends_with(".py") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_suite_is_runnable_or_says_why_it_is_not() {
        let suites = all().unwrap();
        assert!(suites.iter().any(|suite| suite.origin == Origin::Wheel));
        for suite in suites {
            assert_eq!(suite.origin == Origin::Nowhere, suite.tests.is_empty(), "{}", suite.name);
            assert!(suite.origin != Origin::Nowhere || !suite.remark.is_empty(), "{}", suite.name);
        }
    }
}
