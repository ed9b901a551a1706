//! Puts the lists of exports into one table.

use std::fmt::Write as _;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=data/exports");
    let folder =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("data/exports");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the lists are there")
        .map(|entry| entry.expect("the lists are readable").path())
        .collect();
    files.sort();
    let mut code = String::from("const LISTS: &[(&str, &str)] = &[\n");
    for file in files {
        let soname = file.file_stem().expect("a list has a name").to_string_lossy();
        writeln!(code, "    ({soname:?}, include_str!({:?})),", file.display().to_string())
            .expect("into a String");
    }
    code.push_str("];\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo")).join("lists.rs");
    std::fs::write(out, code).expect("OUT_DIR is writable");
}
