//! Generates the functions whose meaning is a line of a table: those of the runtime that hand their arguments
//! to the driver as they are, and those that tell the size of a workspace.

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
    write("forwards.rs", &code);
    write("workspaces.rs", &workspaces());
}

fn write(name: &str, code: &str) {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo")).join(name);
    std::fs::write(out, code).expect("OUT_DIR is writable");
}

/// Lines of one function stand together: each writes one of its results.
fn workspaces() -> String {
    println!("cargo::rerun-if-changed=data/workspaces.tsv");
    let lines: Vec<Vec<&str>> = include_str!("data/workspaces.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect())
        .collect();
    let mut code = String::new();
    for group in lines.chunk_by(|a, b| a[0] == b[0]) {
        let (name, count) = (group[0][0], group[0][1].parse::<usize>().expect("a number of arguments"));
        let parameters: Vec<String> = (0..count).map(|i| format!("a{i}: usize")).collect();
        let used: Vec<String> = (0..count).map(|i| format!("a{i}")).collect();
        let mut body = String::new();
        for line in group {
            let &[_, _, out, size, of, unit] = line.as_slice() else { panic!("{name}: six fields") };
            let (place, kind) = out.split_once(':').expect("place and type of the result");
            let value = if size == "none" {
                "-1".to_owned()
            } else {
                format!("checked::<{kind}>({})?", formula(size))
            };
            if size != "none" && size != "0" && of != "host" {
                writeln!(
                    body,
                    "        notes::guess({:?}, ({}).saturating_mul({unit}));",
                    format!(
                        "workspace of {of} ({})",
                        if name.starts_with("cusolver") { "cuSOLVER" } else { "cuSPARSE" }
                    ),
                    formula(size)
                )
                .expect("into a String");
            }
            writeln!(body, "        out::<{kind}>(a{place}, {value})?;").expect("into a String");
        }
        writeln!(
            code,
            "/// `{name}`: the sizes of its table.\n#[unsafe(no_mangle)]\n#[allow(clippy::too_many_arguments)]\npub extern \"C\" fn radrm_{name}({}) -> c_int {{\n    let _ = ({},);\n    library_call(status, || {{\n{body}        Ok(())\n    }})\n}}",
            parameters.join(", "),
            used.join(", ")
        )
        .expect("into a String");
    }
    code
}

/// A size as Rust: letters become the functions of `src/solver.rs`.
fn formula(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        if letter.is_ascii_lowercase() {
            let mut place = String::new();
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                place.push(digit);
            }
            write!(out, "sizes::{letter}(a{place})").expect("into a String");
        } else {
            out.push(letter);
        }
    }
    out
}
