//! The shim exports exactly what it is meant to: one name too many changes a program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use radrm_cuda_abi::table::{self, Need, Row};
use xtask::shell;

use super::finding::Finding;

/// Exports of the shim besides driver entry points.
const BESIDES: [&str; 12] = [
    "dlsym",
    "dlvsym",
    "InitializeInjectionNvtx2",
    "__asan_default_options",
    "radrm_end",
    "radrm_is_recording",
    "radrm_join_failure",
    "radrm_mark",
    "radrm_memory",
    "radrm_pop",
    "radrm_push",
    "radrm_start",
];

/// Compares the library's exports with the table of entry points and the list of hooks.
pub fn check(root: &Path, library: &Path) -> Result<Vec<Finding>> {
    let hooks = root.join("shim/hooks.tsv");
    let hooks = fs::read_to_string(&hooks).with_context(|| format!("{}", hooks.display()))?;
    let symbols = shell::read(shell::command("nm").args(["-D", "--defined-only"]).arg(library))?;
    Ok(compare(&expected(&table::rows(), &hooks), &exported(&symbols)))
}

fn expected(rows: &[Row], hooks: &str) -> BTreeSet<String> {
    // The entry points that synchronise are seen too, though the table asks for no wrapper.
    let mut bases: BTreeSet<&str> =
        BTreeSet::from(["cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"]);
    let lines = hooks.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    bases.extend(lines.filter_map(|line| line.split('\t').next()).map(str::trim));
    rows.iter()
        .filter(|row| row.need != Need::NotExported)
        .filter(|row| {
            row.need.is_wrapped() || row.need == Need::MustResolve || bases.contains(row.base.as_str())
        })
        .map(|row| row.symbol.clone())
        .chain(BESIDES.map(str::to_owned))
        .collect()
}

fn exported(symbols: &str) -> BTreeSet<String> {
    symbols
        .lines()
        .filter_map(|line| line.split_whitespace().next_back())
        .map(|name| name.split('@').next().unwrap_or(name).to_owned())
        .collect()
}

fn compare(expected: &BTreeSet<String>, exported: &BTreeSet<String>) -> Vec<Finding> {
    let missing = expected.difference(exported).map(|name| format!("libradrm.so does not export {name}"));
    let further = exported.difference(expected).map(|name| format!("libradrm.so must not export {name}"));
    missing.chain(further).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_and_a_stray_export_are_found() {
        let expected = expected(&table::rows(), "# comment\ncuFuncGetName\tkernel::named\thfunc\n");
        assert!(expected.contains("cuMemAllocAsync_ptsz") && expected.contains("cuGetProcAddress_v2"));
        assert!(expected.contains("cuFuncGetName"), "hooks add entry points");
        assert!(!expected.contains("cuGetExportTable"), "export tables are never wrapped");
        let mut there = expected.clone();
        there.remove("dlsym");
        there.insert("malloc".to_owned());
        let found = compare(&expected, &there);
        assert_eq!(found, ["libradrm.so does not export dlsym", "libradrm.so must not export malloc"]);
    }

    #[test]
    fn names_are_taken_without_their_versions() {
        let text = "0000000000001000 T dlsym@@GLIBC_2.34\n0000000000002000 T cuInit\n";
        assert_eq!(exported(text), BTreeSet::from(["dlsym".to_owned(), "cuInit".to_owned()]));
    }
}
