//! Dependencies that a package declares and none of its sources names.
//!
//! A dependency counts as used where its name, as Rust writes it, stands in a file of the package: also in a comment, in
//! a test or in what a macro makes. What is found is unused for certain.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::finding::Finding;
use xtask::sources;

const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Finds the unused dependencies of each package below `root`.
///
/// # Errors
/// A manifest or a source cannot be read.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let manifests = sources::below(root, &["Cargo.toml"])?;
    let folders: BTreeSet<&Path> = manifests.iter().filter_map(|file| file.parent()).collect();
    let mut findings = Vec::new();
    for manifest in &manifests {
        let text = fs::read_to_string(manifest).with_context(|| manifest.display().to_string())?;
        let parsed: Table = toml::from_str(&text).with_context(|| manifest.display().to_string())?;
        let (Some(folder), true) = (manifest.parent(), parsed.contains_key("package")) else { continue };
        let words = words_of(folder, &folders)?;
        for (kind, name) in declared(&parsed) {
            if !words.contains(&name.replace('-', "_")) {
                let manifest = sources::shown(root, manifest);
                findings.push(format!("{manifest}: [{kind}] {name}: no source names it"));
            }
        }
    }
    Ok(findings)
}

/// The dependencies that a manifest declares, those of single platforms included, by kind.
fn declared(manifest: &Table) -> Vec<(&'static str, String)> {
    let platforms = manifest.get("target").and_then(Value::as_table);
    let platforms = platforms.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut declared = Vec::new();
    for table in platforms.chain([manifest]) {
        for kind in KINDS {
            let names = table.get(kind).and_then(Value::as_table).into_iter().flat_map(Table::keys);
            declared.extend(names.map(|name| (kind, name.clone())));
        }
    }
    declared
}

/// The words in the sources of one package; a package inside of its folder is another one.
fn words_of(folder: &Path, packages: &BTreeSet<&Path>) -> Result<BTreeSet<String>> {
    let mut words = BTreeSet::new();
    for file in sources::below(folder, &[".rs"])? {
        if owner(&file, packages).as_deref() != Some(folder) {
            continue;
        }
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let names = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        words.extend(names.map(str::to_owned));
    }
    Ok(words)
}

/// The innermost package folder that holds a file.
fn owner(file: &Path, packages: &BTreeSet<&Path>) -> Option<PathBuf> {
    file.ancestors().skip(1).find(|folder| packages.contains(folder)).map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = "[package]\nname = \"p\"\n[dependencies]\none = \"1\"\ntwo-words = \"1\"\nthree = \"1\"\n\
                        [target.'cfg(unix)'.dev-dependencies]\nfour = \"1\"\n";
        let files = [
            ("p/Cargo.toml", manifest),
            ("p/src/lib.rs", "use one::One;\nfn f() { two_words::f() }"),
            ("p/inner/Cargo.toml", "[package]\nname = \"inner\"\n"),
            ("p/inner/src/lib.rs", "use three::Three;"),
            ("Cargo.toml", "[workspace.dependencies]\nfive = \"1\"\n"),
        ];
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(
            check(dir.path()).unwrap(),
            [
                "p/Cargo.toml: [dev-dependencies] four: no source names it",
                "p/Cargo.toml: [dependencies] three: no source names it"
            ]
        );
    }
}
