//! Writes the driver's prototypes as the macro `entries` reads them.

use std::fmt::Write as _;
use std::path::PathBuf;

use radrm_cuda_abi::table::{self, Need};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut code = String::from("entries! {\n");
    for row in table::rows().iter().filter(|row| !row.is_nvml() && row.need != Need::NotExported) {
        // A name such as `type` is a keyword here.
        let args = row.args.iter().map(|arg| format!("r#{}: {}", arg.name, arg.rust_type()));
        let args = args.collect::<Vec<_>>().join(", ");
        writeln!(code, "    fn {}({args});", row.symbol).expect("into a String");
    }
    code.push_str("}\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    std::fs::write(out.join("entries.rs"), code).expect("OUT_DIR is writable");
}
