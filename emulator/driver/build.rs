//! Generates the exports that no module writes itself, and the table for `cuGetProcAddress`.
//!
//! Implemented entry points are found by their definitions: `fn cuName(` in the crate's sources.
//! Everything else of the list of entry points is generated:
//!
//! * a name in `data/aliases.tsv` calls the entry point beside it;
//! * a `_ptsz` or `_ptds` form whose legacy form exists calls that, the null stream replaced by the
//!   per-thread stream;
//! * the rest answers CUDA_ERROR_NOT_SUPPORTED, and before `cuInit` what `data/before_init.tsv` says.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use radrm_cuda_abi::table::{Flavour, Need, Row, rows};

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=data");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Calls inside the library stay inside it, whatever a preloaded library exports.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");

    let mut written = BTreeSet::new();
    scan(Path::new("src"), &mut written);
    let aliases = pairs(include_str!("data/aliases.tsv"));
    let mut before_init = pairs(include_str!("data/before_init.tsv"));
    before_init.sort_unstable();
    let rows: Vec<Row> = rows()
        .into_iter()
        .filter(|r| !r.is_nvml() && r.need != Need::NotExported && r.symbol.starts_with("cu"))
        .filter(|r| !r.symbol.starts_with("cuda"))
        .collect();
    let known: BTreeSet<&str> = rows.iter().map(|r| r.symbol.as_str()).collect();
    if let Some(stray) = written.iter().find(|name| !known.contains(name.as_str())) {
        panic!("{stray} is written here but is not in the list of entry points");
    }

    let mut code = String::from("use core::ffi::*;\nuse radrm_cuda_abi::*;\n\n");
    let mut unsupported = Vec::new();
    let mut declared = String::new();
    for row in &rows {
        let symbol = row.symbol.as_str();
        let written_or_alias = |name: &str| -> Option<&str> {
            let target = aliases.iter().find(|(from, _)| *from == name).map_or(name, |(_, to)| to);
            written.get(name).or_else(|| written.get(target)).map(String::as_str)
        };
        let legacy = symbol.strip_suffix("_ptsz").or_else(|| symbol.strip_suffix("_ptds"));
        if written.contains(symbol) {
            // Only the table needs them.
            if row.version.is_some() {
                writeln!(declared, "        pub safe fn {symbol}();").unwrap();
            }
        } else if let Some(target) = written_or_alias(symbol) {
            forward(&mut code, row, target, false);
        } else if let Some(target) = legacy.and_then(written_or_alias) {
            forward(&mut code, row, target, true);
        } else {
            writeln!(
                code,
                "/// Has no semantics here.\n#[unsafe(no_mangle)]\npub extern \"C\" fn {symbol}() -> CUresult {{ \
                 unsupported({}) }}",
                unsupported.len()
            )
            .unwrap();
            unsupported.push(symbol);
        }
    }
    writeln!(code, "\n/// Names of the entry points without semantics.\npub static UNSUPPORTED: [&str; {}] = {unsupported:?};", unsupported.len())
        .unwrap();
    writeln!(code, "/// Answers before `cuInit` that are not \"not initialized\", by name.\npub static BEFORE_INIT: [(&str, u32); {}] = [", before_init.len()).unwrap();
    before_init.iter().for_each(|(name, answer)| writeln!(code, "    ({name:?}, {answer}),").unwrap());
    code.push_str("];\n");
    table(&mut code, &rows, &written, &declared);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo")).join("exports.rs");
    std::fs::write(out, code).expect("OUT_DIR is writable");
}

/// The lines of a table of two columns.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('\t')).collect()
}

/// Collects the names of the entry points that the sources under `folder` define.
fn scan(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("sources are readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            scan(&path, names);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).expect("sources are readable");
            for line in text.lines().filter(|l| !l.trim_start().starts_with("//")) {
                for (at, _) in line.match_indices("fn cu") {
                    let name: String = line[at + 3..]
                        .chars()
                        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                        .collect();
                    if name.as_bytes().get(2).is_some_and(u8::is_ascii_uppercase) {
                        names.insert(name);
                    }
                }
            }
        }
    }
}

fn forward(code: &mut String, row: &Row, target: &str, per_thread: bool) {
    let symbol = &row.symbol;
    let list = |f: &dyn Fn(&radrm_cuda_abi::table::Arg) -> String| {
        row.args.iter().map(f).collect::<Vec<_>>().join(", ")
    };
    let name = |a: &radrm_cuda_abi::table::Arg| match a.name.as_str() {
        keyword @ ("fn" | "type" | "in" | "ref" | "mod" | "use" | "move") => format!("{keyword}_"),
        name => name.to_owned(),
    };
    let parameters = list(&|a| format!("{}: {}", name(a), a.rust_type()));
    let mut before = String::new();
    let arguments = list(&|a| match (per_thread, a.rust_type().as_str()) {
        (true, "CUstream") => format!("per_thread({})", name(a)),
        (true, "*const CUlaunchConfig") => format!("core::ptr::from_ref(&{}_copy).cast()", name(a)),
        _ => name(a),
    });
    for arg in row.args.iter().filter(|a| per_thread && a.rust_type() == "*const CUlaunchConfig") {
        let name = &arg.name;
        writeln!(
            before,
            "    if {name}.is_null() {{ return CUDA_ERROR_INVALID_VALUE; }}\n    // SAFETY: not null, and the caller \
             promises a configuration.\n    let mut {name}_copy = unsafe {{ *{name} }};\n    {name}_copy.hStream = \
             per_thread({name}_copy.hStream);"
        )
        .unwrap();
    }
    let (open, close) = if row.flavour == Flavour::Ptds { ("in_per_thread(||", ")") } else { ("", "") };
    writeln!(
        code,
        "/// Form of `{target}`.\n///\n/// # Safety\n/// As for `{target}`.\n#[unsafe(no_mangle)]\npub unsafe extern \
         \"C\" fn {symbol}({parameters}) -> CUresult {{\n    unsafe extern \"C\" {{ fn {target}({parameters}) -> \
         CUresult; }}\n{before}    // SAFETY: same arguments, same contract.\n    {open} unsafe {{ \
         {target}({arguments}) }} {close}\n}}"
    )
    .unwrap();
}

/// The table behind `cuGetProcAddress`: rows with a version, sorted by base name.
fn table(code: &mut String, rows: &[Row], written: &BTreeSet<String>, declared: &str) {
    writeln!(code, "mod written {{\n    unsafe extern \"C\" {{\n{declared}    }}\n}}").unwrap();
    let mut versioned: Vec<&Row> = rows.iter().filter(|r| r.version.is_some()).collect();
    versioned.sort_by(|a, b| a.base.cmp(&b.base));
    writeln!(
        code,
        "/// Entry points by base name, version and flavour.\npub static TABLE: [Entry; {}] = [",
        versioned.len()
    )
    .unwrap();
    for row in versioned {
        let flavour = u8::from(row.flavour != Flavour::Legacy);
        let place = if written.contains(&row.symbol) { "written::" } else { "" };
        writeln!(
            code,
            "    Entry {{ base: {:?}, version: {}, per_thread: {}, symbol: {:?}, address: {place}{} as *const () }},",
            row.base,
            row.version.unwrap_or(0),
            flavour == 1,
            row.symbol,
            row.symbol
        )
        .unwrap();
    }
    code.push_str("];\n");
}
