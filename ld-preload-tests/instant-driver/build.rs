//! Generates an export for every entry point of the table that is not written by hand, and the
//! list from which `cuGetProcAddress` answers.

use std::{collections::HashSet, env, fmt::Write as _, fs, path::Path};

use radrm_cuda_abi::table::{Flavour, Need, rows};

/// Files whose `extern "C"` functions are written by hand.
const BY_HAND: [&str; 4] = ["src/entry.rs", "src/memory.rs", "src/code.rs", "src/event.rs"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // A driver means its own functions, whatever is preloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");

    let mut by_hand = HashSet::new();
    for file in BY_HAND {
        println!("cargo:rerun-if-changed={file}");
        let text = fs::read_to_string(file).expect(file);
        for line in text.lines() {
            if let Some(rest) = line.trim_start().strip_prefix("pub unsafe extern \"C\" fn ") {
                by_hand.insert(rest.split('(').next().unwrap_or("").to_owned());
            }
        }
    }

    let rows: Vec<_> = rows().into_iter().filter(|r| !r.is_nvml() && r.need != Need::NotExported).collect();
    for name in &by_hand {
        assert!(rows.iter().any(|r| r.symbol == *name), "{name} is written by hand but is not in the table");
    }

    let mut out = String::new();
    for row in rows.iter().filter(|r| !by_hand.contains(&r.symbol)) {
        writeln!(out, "instant!({});", row.symbol).expect("write to a string");
    }
    let mut table: Vec<_> = rows.iter().filter_map(|r| r.version.map(|v| (r, v))).collect();
    table.sort_by(|a, b| (&a.0.base, a.1, a.0.flavour).cmp(&(&b.0.base, b.1, b.0.flavour)));
    writeln!(out, "/// Entry points by base name, version and flavour.\npub static ENTRIES: &[Entry] = &[")
        .expect("write to a string");
    for (row, version) in table {
        writeln!(
            out,
            "    Entry {{ base: c\"{}\", version: {version}, per_thread: {}, function: {} as *const () }},",
            row.base,
            row.flavour != Flavour::Legacy,
            row.symbol
        )
        .expect("write to a string");
    }
    out.push_str("];\n");
    let to = Path::new(&env::var("OUT_DIR").expect("OUT_DIR")).join("generated.rs");
    fs::write(to, out).expect("generated.rs");
}
