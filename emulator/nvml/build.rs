//! Gives the library the name that programs look for, and writes the functions that no module writes, by
//! `data/functions.tsv`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=data");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");

    let mut written = BTreeSet::new();
    for entry in std::fs::read_dir("src").expect("sources are readable").flatten() {
        let text = std::fs::read_to_string(entry.path()).expect("sources are readable");
        // `fn nvmlName(`, and `also nvmlOther, nvmlThird;` for more names of one function.
        for line in text.lines().filter(|line| line.contains("fn nvml") || line.contains("also nvml")) {
            let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            written.extend(words.filter(|word| word.starts_with("nvml")).map(str::to_owned));
        }
    }
    let mut code = String::new();
    let listed = include_str!("data/functions.tsv").lines().filter(|line| !line.starts_with('#'));
    for (name, answer) in listed.map(|line| line.split_once('\t').unwrap_or((line, ""))) {
        if written.remove(name) {
            assert!(answer.is_empty(), "{name} is written here and has an answer in the table");
        } else if answer.is_empty() {
            writeln!(
                code,
                "#[unsafe(no_mangle)]\npub extern \"C\" fn {name}() -> Return {{ not_supported() }}"
            )
            .unwrap();
        } else {
            writeln!(
                code,
                "#[unsafe(no_mangle)]\npub extern \"C\" fn {name}(device: Device, out: Out<u32>) -> Return {{ \
                 constant(device, out, {answer}) }}"
            )
            .unwrap();
        }
    }
    assert!(written.is_empty(), "{written:?} are written here but not in the table");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo")).join("functions.rs");
    std::fs::write(out, code).expect("OUT_DIR is writable");
}
