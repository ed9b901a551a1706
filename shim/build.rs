//! Generates the exported entry points from the driver's table and `hooks.tsv`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use radrm_cuda_abi::table::{self, Arg, Flavour, Need, Row};

/// Point at which a hook's logic runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Around the real call, in a process that has joined its segment.
    Around,
    /// As `Around`, with the logic laid into the entry point.
    Hot,
    /// Around the real call, in every process.
    Early,
    /// As `Around`, behind two hand-written shells for the argument list of `cuLaunchKernel` or `cuLaunchKernelEx`:
    /// one for launches that are counted, and one for those that are only counted while others are timed.
    Launch,
    /// As `Around`, only in processes of a job with a quota; in others the real call is all there is. In a process that cannot
    /// join, logic of the same name with `_denied` behind it runs after the call.
    Quota,
    /// After the real call, which stays transparent to a forced unwind.
    After,
}

/// One line of `hooks.tsv`.
struct Hook {
    logic: String,
    kind: Kind,
    args: Vec<String>,
}

fn main() {
    println!("cargo::rerun-if-changed=hooks.tsv");
    println!("cargo::rerun-if-changed=build.rs");
    // Addresses of our own entry points must be ours even where the program exports the same names.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now,-z,relro");
    if !std::env::var("RUSTC_LINKER").is_ok_and(|linker| linker.contains("zig")) {
        // `src/start.rs` has what is needed of the start files. Zig's linker decides for itself which it takes.
        println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
        // What the loader writes begins with a page, so that it takes one page less. Zig's linker does not know the option.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments");
    }
    let hooks = read_hooks();
    let all = table::rows();
    for base in hooks.keys() {
        assert!(
            all.iter().any(|r| &r.base == base),
            "hooks.tsv: the driver's table has no base name `{base}`"
        );
    }
    let mut rows: Vec<&Row> = all.iter().filter(|r| is_wrapped(r, &hooks)).collect();
    rows.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let exports: String = rows.iter().map(|row| format!("{}\n", row.symbol)).collect();
    std::fs::write(out.join("exports.txt"), exports).expect("the build directory is writable");
    std::fs::write(out.join("entries.rs"), entries(&rows, &hooks)).expect("the build directory is writable");
    std::fs::write(out.join("shells.rs"), shells(&rows, &hooks)).expect("the build directory is writable");
}

/// Returns true if an entry point gets a shell.
fn is_wrapped(row: &Row, hooks: &BTreeMap<String, Hook>) -> bool {
    const SYNCHRONISE: [&str; 3] = ["cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"];
    if row.need == Need::NotExported {
        return false;
    }
    row.need.is_wrapped()
        || row.need == Need::MustResolve
        || hooks.contains_key(&row.base)
        || SYNCHRONISE.contains(&row.base.as_str())
}

/// Returns true if launches have shells written by hand, in x86-64 assembly. Elsewhere their compiled shells are the
/// exported functions.
fn has_hand_written_shells() -> bool {
    std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64")
}

/// Returns true if an entry point takes memory of a device; of those that a quota concerns the others give it back.
fn is_request(row: &Row) -> bool {
    let gives_back = ["Free", "Destroy", "Release"].iter().any(|word| row.base.contains(word));
    row.need == Need::MustEnforce && !gives_back
}

fn read_hooks() -> BTreeMap<String, Hook> {
    let text = std::fs::read_to_string("hooks.tsv").expect("hooks.tsv is readable");
    let mut hooks = BTreeMap::new();
    for line in text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
        let mut cells = line.split('\t');
        let base = cells.next().unwrap_or_default().trim().to_owned();
        let logic = cells.next().unwrap_or_else(|| panic!("hooks.tsv: `{base}` names no logic")).trim();
        let args = cells.next().unwrap_or_default();
        let args = args.split(',').map(|a| a.trim().to_owned()).filter(|a| !a.is_empty()).collect();
        let (kind, logic) = match logic.split_once(':').filter(|(_, rest)| !rest.starts_with(':')) {
            Some(("early", rest)) => (Kind::Early, rest),
            Some(("hot", rest)) => (Kind::Hot, rest),
            Some(("launch", rest)) => (Kind::Launch, rest),
            Some(("after", rest)) => (Kind::After, rest),
            Some(("quota", rest)) => (Kind::Quota, rest),
            Some((other, _)) => panic!("hooks.tsv: `{base}` has an unknown kind of hook `{other}`"),
            None => (Kind::Around, logic),
        };
        let twice = hooks.insert(base.clone(), Hook { logic: logic.to_owned(), kind, args }).is_some();
        assert!(!twice, "hooks.tsv: `{base}` stands twice");
    }
    hooks
}

/// The arguments that a hook takes from one form of its base name.
fn picked<'a>(row: &'a Row, hook: &Hook) -> Vec<&'a str> {
    hook.args
        .iter()
        .map(|choice| {
            choice
                .split('|')
                .find_map(|name| row.args.iter().find(|a| a.name == name))
                .map(|a| a.name.as_str())
                .unwrap_or_else(|| panic!("hooks.tsv: {} has no argument `{choice}`", row.symbol))
        })
        .collect()
}

/// An argument's name as a Rust identifier.
fn ident(name: &str) -> String {
    match name {
        "type" | "fn" | "ref" | "in" | "match" | "mod" | "move" | "use" | "loop" => format!("r#{name}"),
        _ => name.to_owned(),
    }
}

/// Table of the entry points: name, version, flavour and library of each.
fn entries(rows: &[&Row], hooks: &BTreeMap<String, Hook>) -> String {
    let mut out = String::new();
    let count = rows.len();
    let _ = writeln!(
        out,
        "/// Number of wrapped entry points.\npub(crate) const ENTRY_COUNT: usize = {count};\n"
    );
    let _ = writeln!(
        out,
        "/// All wrapped entry points, sorted by symbol.\npub(crate) static INFO: [Info; ENTRY_COUNT] = ["
    );
    // Offsets instead of addresses: the loader would have to write each address in every program that it takes this
    // library into.
    let mut names = String::new();
    let mut length = 0;
    for row in rows {
        let (name, base) = (length, row.base.len());
        length += row.symbol.len() + 1;
        assert!(row.symbol.starts_with(&row.base), "{} does not begin with {}", row.symbol, row.base);
        let _ = write!(names, "{}\\0", row.symbol);
        let flavour = match row.flavour {
            Flavour::Legacy => "Legacy",
            Flavour::Ptsz => "Ptsz",
            Flavour::Ptds => "Ptds",
        };
        let library = if row.is_nvml() { "Nvml" } else { "Cuda" };
        let _ = writeln!(
            out,
            "    Info {{ name: {name}, base: {base}, table_id: {2}, version: {0}, flavour: Flavour::{flavour}, \
             library: Library::{library}, is_request: {1} }},",
            row.version.unwrap_or(0),
            is_request(row),
            row.id,
        );
    }
    let _ = writeln!(
        out,
        "];\n\n/// Names of all of them, each with a zero behind it.\nstatic NAMES: &[u8] = b\"{names}\";\n"
    );
    let by_hand = rows
        .iter()
        .map(|row| has_hand_written_shells() && hooks.get(&row.base).is_some_and(|h| h.kind == Kind::Launch));
    let by_hand: Vec<String> =
        by_hand.enumerate().filter(|(_, is)| *is).map(|(id, _)| format!("EntryId({id})")).collect();
    let _ = writeln!(
        out,
        "/// Entry points whose shells are written by hand.\npub(crate) static BY_HAND: &[EntryId] = &[{}];\n",
        by_hand.join(", ")
    );
    out
}

/// The entry points, and the table of their addresses.
fn shells(rows: &[&Row], hooks: &BTreeMap<String, Hook>) -> String {
    let mut out = String::new();
    let (mut wrappers, mut symbols) = (String::new(), String::new());
    for (id, row) in rows.iter().enumerate() {
        let _ = writeln!(wrappers, "    \".long {{_{id}}} - .\",");
        let _ = writeln!(symbols, "    _{id} = sym {},", row.symbol);
    }
    let _ = writeln!(
        out,
        "core::arch::global_asm!(\n    \".pushsection .rodata.radrm_wrappers,\\\"a\\\"\",\n    \".balign 4\",\n    \
         \".globl RADRM_WRAPPERS\",\n    \".hidden RADRM_WRAPPERS\",\n    \"RADRM_WRAPPERS:\",\n{wrappers}    \
         \".popsection\",\n{symbols});\n"
    );
    for (id, row) in rows.iter().enumerate() {
        if row.is_nvml() {
            nvml_shell(&mut out, id, row, hooks.get(&row.base));
        } else {
            driver_shell(&mut out, id, row, hooks.get(&row.base));
        }
    }
    out
}

/// The logic gets the real function and all arguments, and calls it or not. Like the real function the
/// shell is transparent to a forced unwind.
fn nvml_shell(out: &mut String, id: usize, row: &Row, hook: Option<&Hook>) {
    let symbol = &row.symbol;
    let logic = hook.map(|hook| &hook.logic).unwrap_or_else(|| panic!("hooks.tsv: no logic for {symbol}"));
    let Arguments { params, types, names } = Arguments::of(row);
    let _ = write!(
        out,
        "#[cfg_attr(not(test), unsafe(no_mangle))]\n\
         unsafe extern \"C-unwind\" fn {symbol}({params}) -> nvmlReturn_t {{\n    \
             let Some(real) = shell::real(EntryId({id})) else {{ return crate::resolve::no_nvml() }};\n    \
             // SAFETY: the address is NVML's own function of this name, whose prototype this is.\n    \
             let real = unsafe {{ core::mem::transmute::<*mut (), unsafe extern \"C-unwind\" fn({types}) -> nvmlReturn_t>(real) }};\n    \
             // SAFETY: the arguments are the program's, under NVML's contract for them.\n    \
             unsafe {{ crate::{logic}(real, {names}) }}\n}}\n\n"
    );
}

/// An entry point's parameters as they are spelled in a shell.
struct Arguments {
    params: String,
    types: String,
    names: String,
}

impl Arguments {
    fn of(row: &Row) -> Self {
        let each = |part: fn(&Arg) -> String| row.args.iter().map(part).collect::<Vec<_>>().join(", ");
        Self {
            params: each(|a| format!("{}: {}", ident(&a.name), a.rust_type())),
            types: each(Arg::rust_type),
            names: each(|a| ident(&a.name)),
        }
    }
}

fn driver_shell(out: &mut String, id: usize, row: &Row, hook: Option<&Hook>) {
    let symbol = &row.symbol;
    let Arguments { params, types, names } = Arguments::of(row);
    // Passive entries stay transparent to a forced unwind (a cancelled thread).
    let abi = if hook.is_some_and(|h| h.kind != Kind::After) { "C" } else { "C-unwind" };
    let by_hand = has_hand_written_shells() && hook.is_some_and(|h| h.kind == Kind::Launch);
    if by_hand {
        // Six arguments come in registers, the others on the stack.
        let (counted, timed) = match row.args.len() {
            4 => (
                format!("launch_ex_shell!({id}, {symbol}_timed)"),
                format!("timed_ex_shell!({id}, {symbol}_cold)"),
            ),
            n => (
                format!("launch_shell!({id}, {symbol}_timed, {})", n - 6),
                format!("timed_shell!({id}, {symbol}_cold, {})", n - 6),
            ),
        };
        let _ = write!(
            out,
            "#[unsafe(naked)]\n\
             #[cfg_attr(not(test), unsafe(no_mangle))]\n\
             unsafe extern \"C\" fn {symbol}({params}) -> CUresult {{\n    \
                 {counted}\n}}\n\n\
             #[unsafe(naked)]\n\
             unsafe extern \"C\" fn {symbol}_timed({params}) -> CUresult {{\n    \
                 crate::kernels::timing::shell::{timed}\n}}\n\n"
        );
    }
    let by_quota = hook.is_some_and(|h| h.kind == Kind::Quota);
    if by_quota {
        let _ = write!(
            out,
            "#[cfg_attr(not(test), unsafe(no_mangle))]\n\
             unsafe extern \"C\" fn {symbol}({params}) -> CUresult {{\n    \
                 let Some(real) = shell::unlimited(EntryId({id})) else {{\n        \
                     // SAFETY: the program's own call, passed on.\n        \
                     return unsafe {{ {symbol}_cold({names}) }};\n    \
                 }};\n    \
                 // SAFETY: the address is the driver's own function of this name, whose prototype this is.\n    \
                 let real = unsafe {{ core::mem::transmute::<*mut (), unsafe extern \"C\" fn({types}) -> CUresult>(real) }};\n    \
                 // SAFETY: the program's own call, passed on.\n    \
                 unsafe {{ real({names}) }}\n}}\n\n"
        );
    }
    let head = match by_hand || by_quota {
        true => format!("#[cold]\n#[inline(never)]\nunsafe extern \"{abi}\" fn {symbol}_cold"),
        false => format!("#[cfg_attr(not(test), unsafe(no_mangle))]\nunsafe extern \"{abi}\" fn {symbol}"),
    };
    let _ = write!(
        out,
        "{head}({params}) -> CUresult {{\n    \
             const ENTRY: EntryId = EntryId({id});\n    \
             let Some(real) = shell::real(ENTRY) else {{ return shell::absent(ENTRY) }};\n    \
             // SAFETY: the address is the driver's own function of this name, whose prototype this is.\n    \
             let real = unsafe {{ core::mem::transmute::<*mut (), unsafe extern \"{abi}\" fn({types}) -> CUresult>(real) }};\n"
    );
    match hook {
        None => {
            let _ = write!(
                out,
                "    crate::passive::count(ENTRY);\n    \
                 // SAFETY: the program's own call, passed on.\n    \
                 unsafe {{ real({names}) }}\n}}\n\n"
            );
        }
        Some(hook) => {
            let logic = &hook.logic;
            let picked: Vec<String> = picked(row, hook).into_iter().map(ident).collect();
            let picked = picked.join(", ");
            let _ = match hook.kind {
                Kind::After => write!(
                    out,
                    "    // SAFETY: the program's own call, passed on.\n    \
                         let result = unsafe {{ real({names}) }};\n    \
                         // SAFETY: the arguments are the program's, under the driver's contract for them.\n    \
                         shell::after(ENTRY, |cx| unsafe {{ crate::{logic}(cx, result, {picked}) }});\n    \
                         result\n}}\n\n"
                ),
                Kind::Quota => write!(
                    out,
                    "    let result = shell::hooked(\n        \
                         ENTRY,\n        \
                         // SAFETY: the program's own call, passed on.\n        \
                         move || unsafe {{ real({names}) }},\n        \
                         // SAFETY: the arguments are the program's, under the driver's contract for them.\n        \
                         |cx, call| unsafe {{ crate::{logic}(cx, call, {picked}) }},\n    \
                     );\n    \
                     if crate::quota::deny::applies() {{\n        \
                         // SAFETY: as above; the call was made.\n        \
                         unsafe {{ crate::{logic}_denied(result, {picked}) }};\n    \
                     }}\n    \
                     result\n}}\n\n"
                ),
                kind => {
                    let (runner, call) = match kind {
                        Kind::Early => ("early", "call"),
                        Kind::Hot => ("hot", "|| call.make()"),
                        _ => ("hooked", "call"),
                    };
                    write!(
                        out,
                        "    shell::{runner}(\n        \
                             ENTRY,\n        \
                             // SAFETY: the program's own call, passed on.\n        \
                             move || unsafe {{ real({names}) }},\n        \
                             // SAFETY: the arguments are the program's, under the driver's contract for them.\n        \
                             |cx, call| unsafe {{ crate::{logic}(cx, {call}, {picked}) }},\n    \
                         )\n}}\n\n"
                    )
                }
            };
        }
    }
}
