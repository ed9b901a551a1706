//! Generates the runtime functions that hand their arguments to the driver as they are.

use std::fmt::Write as _;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=data/forwards.tsv");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libradrm_emulated_toolkit.so");
    // Calls inside the library stay inside it, whatever a preloaded library exports.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");

    let mut code = String::new();
    for line in include_str!("data/forwards.tsv").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[cuda, runtime, driver, count] = fields.as_slice() else { panic!("{line}: four fields") };
        let count: usize = count.parse().expect("a number of arguments");
        let own = if cuda == "13" { format!("radrm_{runtime}") } else { format!("radrm_{cuda}_{runtime}") };
        let list = |form: &dyn Fn(usize) -> String| (0..count).map(form).collect::<Vec<_>>().join(", ");
        let (parameters, arguments) = (list(&|i| format!("a{i}: usize")), list(&|i| format!("a{i}")));
        let types = list(&|_| "usize".to_owned());
        writeln!(
            code,
            "/// `{runtime}`: `{driver}` of the driver.\n#[unsafe(no_mangle)]\npub extern \"C\" fn {own}({parameters}) \
             -> c_int {{\n    static AT: Entry = Entry::new(c\"{driver}\");\n    call(|| {{\n        let \
             entry = AT.get()?;\n        // SAFETY: the entry point has these arguments, as the table says, and the \
             caller made them for it.\n        let result = unsafe {{\n            \
             core::mem::transmute::<*const c_void, unsafe extern \"C\" fn({types}) -> CUresult>(entry)({arguments})\n        \
             }};\n        checked(result)\n    }})\n}}"
        )
        .expect("into a String");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo")).join("forwards.rs");
    std::fs::write(out, code).expect("OUT_DIR is writable");
}
