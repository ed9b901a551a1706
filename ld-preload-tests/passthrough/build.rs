//! Generates a forwarding export for every entry point that a shim wraps.

use std::{env, fmt::Write as _, fs, path::Path};

use radrm_cuda_abi::table::rows;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let rows: Vec<_> = rows().into_iter().filter(|r| !r.is_nvml() && r.need.is_wrapped()).collect();
    let mut out = String::new();
    for (id, row) in rows.iter().enumerate() {
        assert!(
            !row.args.iter().any(|a| a.rust_type() == "f32"),
            "{}: the first call does not keep floating-point arguments",
            row.symbol
        );
        writeln!(out, "forward!({}, {id});", row.symbol).expect("write to a string");
    }
    writeln!(out, "/// What is forwarded.\npub static FORWARDS: [Forward; {}] = [", rows.len())
        .expect("write");
    for row in &rows {
        writeln!(out, "    Forward {{ name: c\"{0}\", wrapper: {0} as *const () }},", row.symbol)
            .expect("write");
    }
    out.push_str("];\n");
    let to = Path::new(&env::var("OUT_DIR").expect("OUT_DIR")).join("generated.rs");
    fs::write(to, out).expect("generated.rs");
}
