//! The list of suites: `data/peers.tsv`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const LIST: &str = include_str!("../../data/peers.tsv");

/// Origin of a suite's tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The installed package has them.
    Wheel,
    /// A wheel has them that is unpacked beside the environment.
    Unpacked,
    /// The source package has them.
    Sdist,
    /// Debian's source package has them.
    Debian,
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
    /// Origin of its tests.
    pub origin: Origin,
    /// Folder of the tests, in the package, or files of tests and `FILE::CLASS`, separated by spaces; of a crate the features
    /// that it is compiled with.
    pub tests: &'static str,
    /// Name of the Python environment; empty where there is none.
    pub environment: &'static str,
    /// Environment variable that the tests run with, `NAME=VALUE`; empty where there is none.
    pub variable: &'static str,
    /// Remark for the reader.
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
    let [name, package, version, from, tests, environment, variable, remark] = fields[..] else {
        bail!("{line:?} has {} fields and not 8", fields.len());
    };
    let origin = match (from, environment.is_empty()) {
        ("wheel", false) => Origin::Wheel,
        ("unpacked", false) => Origin::Unpacked,
        ("sdist", false) => Origin::Sdist,
        (from, false) if from.starts_with("debian:") => Origin::Debian,
        ("crate", true) => Origin::Crate,
        ("-", true) => Origin::Nowhere,
        _ => bail!("{line:?}: {from} in the environment {environment:?} is not known"),
    };
    Ok(Suite { name, package, version, origin, tests, environment, variable, remark })
}

impl Suite {
    /// Folder of its source below the folder that sources are fetched into.
    pub fn source(&self, work: &Path) -> PathBuf {
        work.join(format!("{}-{}", self.package, self.version))
    }

    /// Files of its tests, and classes of such files, below the folder of the package, by their names in the table; none where they are not there.
    pub fn files(&self, package: &Path) -> BTreeMap<String, PathBuf> {
        let folder = package.join(self.tests);
        if folder.is_dir() {
            let paths = files(&folder).unwrap_or_default();
            let named = paths
                .into_iter()
                .map(|path| (path.strip_prefix(&folder).unwrap_or(&path).display().to_string(), path));
            return named.collect();
        }
        let named = self.tests.split(' ').filter(|file| package.join(file_of(file)).is_file());
        named.map(|file| (file.rsplit('/').next().unwrap_or(file).to_owned(), package.join(file))).collect()
    }
}

/// The file of tests that are a file or a class of one.
fn file_of(tests: &str) -> &str {
    tests.split("::").next().unwrap_or(tests)
}

/// Files of tests below a folder, in the order of their names.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
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
    fn tests_are_a_folder_or_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("tests/deep")).unwrap();
        for file in ["tests/test_a.py", "tests/deep/test_b.py", "tests/other.py"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        let names = |tests| {
            let suite = Suite { tests, ..all().unwrap().remove(0) };
            suite.files(folder.path()).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(names("tests"), ["deep/test_b.py", "test_a.py"]);
        assert_eq!(names("tests/test_a.py::A tests/other.py tests/missing.py"), ["other.py", "test_a.py::A"]);
    }

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
