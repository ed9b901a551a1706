//! The C header of the driver interface, made from the table.
//!
//! Types that the programs look into stand in `programs/cuda_types.h`; everything else is opaque
//! behind a pointer and a plain number by value.

use std::{collections::BTreeSet, fmt::Write as _};

use radrm_cuda_abi::table::{Flavour, Need, Row, rows};

const TYPES: &str = include_str!("../programs/cuda_types.h");
/// Words of C that stand in prototypes.
const WORDS: [&str; 10] =
    ["const", "void", "unsigned", "int", "char", "long", "float", "size_t", "short", "struct"];

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}

/// Rows that have a prototype to declare.
pub fn declared() -> Vec<Row> {
    rows()
        .into_iter()
        .filter(|r| !r.is_nvml() && r.need != Need::NotExported && r.group != "graphics-interop")
        .collect()
}

/// Text of `cuda_api.h`.
pub fn text() -> String {
    let known: BTreeSet<&str> = words(TYPES).collect();
    let rows = declared();
    let (mut opaque, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for arg in rows.iter().flat_map(|r| &r.args) {
        let by_value = !arg.c_type.contains('*');
        for word in words(&arg.c_type).filter(|w| !WORDS.contains(w) && !known.contains(w)) {
            if by_value {
                numbers.insert(word.to_owned())
            } else {
                opaque.insert(word.to_owned())
            };
        }
    }
    let mut out =
        String::from("/* Made from the table of entry points. */\n#pragma once\n#include \"cuda_types.h\"\n");
    for name in &numbers {
        writeln!(out, "typedef unsigned int {name};").expect("write to a string");
    }
    for name in opaque.difference(&numbers) {
        writeln!(out, "typedef struct {name}_opaque {name};").expect("write to a string");
    }
    for row in &rows {
        let args: Vec<String> = row.args.iter().map(|a| format!("{} {}", a.c_type, a.name)).collect();
        let args = if args.is_empty() { "void".to_owned() } else { args.join(", ") };
        writeln!(out, "CUresult {}({args});", row.symbol).expect("write to a string");
    }
    out.push_str(
        "static const struct api_row { const char *symbol, *base; int version, per_thread; } api_rows[]\n\
         __attribute__((unused)) = {\n",
    );
    for row in &rows {
        if let Some(version) = row.version {
            let per_thread = u8::from(row.flavour != Flavour::Legacy);
            writeln!(out, "    {{\"{}\", \"{}\", {version}, {per_thread}}},", row.symbol, row.base)
                .expect("write to a string");
        }
    }
    out.push_str("    {0, 0, 0, 0},\n};\n");
    out
}
