//! Work that is done through one door only: files of `/proc` and of users are opened by `radrm_os::untrusted`, and standard
//! streams are written by `radrm_text::output`, which escapes what acts on a terminal.
//!
//! A place that goes round a door stands in a list of `xtask/data`, with the number of such places in a source and the
//! reason that no other user chooses what is opened, or printed, there. Tests are left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};

use super::finding::Finding;
use super::modules::is_for_tests;
use xtask::sources;

/// A door, and the ways round it.
struct Door {
    /// Folders whose sources are checked.
    folders: &'static [&'static str],
    /// Last two names of paths.
    paths: &'static [(&'static str, &'static str)],
    /// Names of functions, of macros, and of what is imported.
    functions: &'static [&'static str],
    macros: &'static [&'static str],
    imports: &'static [&'static str],
    /// Verb of a finding: the work that the places do.
    does: &'static str,
    /// The way through the door.
    remedy: &'static str,
    /// The list of exceptions.
    list: &'static str,
}

const OPENS: Door = Door {
    folders: &["cluster", "collector/src", "daemon/src", "limits/src", "radrm/src"],
    paths: &[
        ("File", "open"),
        ("File", "options"),
        ("OpenOptions", "new"),
        ("fs", "open"),
        ("fs", "openat"),
        ("fs", "openat2"),
        ("fs", "read"),
        ("fs", "read_to_string"),
    ],
    functions: &[],
    macros: &[],
    imports: &[],
    does: "opens files",
    remedy: "open what another user may choose by radrm_os::untrusted",
    list: "xtask/data/opens.txt",
};

const PRINTS: Door = Door {
    folders: &[
        "analyzer",
        "attempt/src",
        "base",
        "clock/src",
        "cluster",
        "collector/src",
        "contrib/templates",
        "daemon/src",
        "estimator/src",
        "experiments",
        "lab/src",
        "launcher/src",
        "limits/src",
        "need/src",
        "profile/src",
        "protocol/src",
        "radrm/src",
        "scheduler-core/src",
    ],
    paths: &[("io", "stdout"), ("io", "stderr")],
    functions: &["bytes_to_stdout", "screen_to_stdout", "screen_to_stderr"],
    macros: &["print", "println", "eprint", "eprintln"],
    imports: &["stdout", "stderr"],
    does: "writes to standard streams",
    remedy: "print by radrm_text::output, which escapes what acts on a terminal",
    list: "xtask/data/prints.txt",
};

/// Finds places that go round a door, and exceptions that are none any more.
///
/// # Errors
/// A source or a list cannot be read.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = check_door(root, &OPENS)?;
    findings.extend(check_door(root, &PRINTS)?);
    Ok(findings)
}

fn check_door(root: &Path, door: &Door) -> Result<Vec<Finding>> {
    let known = parse(door, &fs::read_to_string(root.join(door.list)).context(door.list)?)?;
    let mut real = BTreeMap::new();
    for (place, text) in sources::texts(root, door.folders)? {
        let is_source = place.contains("/src/") && !place.ends_with("tests.rs");
        if !is_source || place.contains("/tests/") {
            continue;
        }
        let lines = scan(door, &text).with_context(|| place.clone())?;
        if !lines.is_empty() {
            real.insert(place, lines);
        }
    }
    Ok(compare(door, &real, &known))
}

/// Number of places by source.
fn parse(door: &Door, text: &str) -> Result<BTreeMap<String, usize>> {
    let list = door.list;
    let mut known = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut parts = line.splitn(3, ": ");
        let (Some(source), Some(count), Some(reason)) = (parts.next(), parts.next(), parts.next()) else {
            bail!("{list}: `{line}` is not `SOURCE: NUMBER: REASON`");
        };
        if reason.trim().is_empty() || known.insert(source.to_owned(), count.parse()?).is_some() {
            bail!("{list}: {source} has no reason, or stands there twice");
        }
    }
    Ok(known)
}

fn compare(
    door: &Door,
    real: &BTreeMap<String, Vec<usize>>,
    known: &BTreeMap<String, usize>,
) -> Vec<Finding> {
    let Door { list, does, remedy, .. } = door;
    let mut findings = Vec::new();
    for (source, lines) in real {
        let allowed = known.get(source).copied().unwrap_or(0);
        let count = lines.len();
        if count > allowed {
            let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            findings.push(format!(
                "{source}: {does} in {count} places, {list} permits {allowed} (lines {}): {remedy}",
                lines.join(", ")
            ));
        }
    }
    for (source, allowed) in known {
        let count = real.get(source).map_or(0, Vec::len);
        if count < *allowed {
            findings.push(format!("{list}: {source} {does} in {count} places, not in {allowed}"));
        }
    }
    findings
}

/// Lines of the places that go round the door.
fn scan(door: &Door, text: &str) -> Result<Vec<usize>> {
    let mut scan = Scan { door, lines: Vec::new() };
    scan.visit_file(&syn::parse_file(text)?);
    Ok(scan.lines)
}

struct Scan<'d> {
    door: &'d Door,
    lines: Vec<usize>,
}

impl<'ast> Visit<'ast> for Scan<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut names = path.segments.iter().rev().map(|segment| segment.ident.to_string());
        let (last, before) = (names.next().unwrap_or_default(), names.next());
        let is_path =
            || self.door.paths.iter().any(|(of, name)| before.as_deref() == Some(of) && *name == last);
        if self.door.functions.contains(&last.as_str()) || is_path() {
            self.lines.extend(path.segments.last().map(|segment| segment.ident.span().start().line));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|segment| &segment.ident);
        let found = name.filter(|name| self.door.macros.iter().any(|known| **name == known));
        self.lines.extend(found.map(|name| name.span().start().line));
        // What it is given is looked at where it is a list of expressions.
        if let Ok(given) = call.parse_body_with(Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated) {
            given.iter().for_each(|expression| self.visit_expr(expression));
        }
        visit::visit_macro(self, call);
    }

    fn visit_use_name(&mut self, name: &'ast syn::UseName) {
        if self.door.imports.iter().any(|known| name.ident == known) {
            self.lines.push(name.ident.span().start().line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_open_a_file_is_found_with_its_line() {
        for text in [
            "fn f() {\n    std::fs::File::open(\"x\");\n}",
            "fn f() {\n    File::options().read(true);\n}",
            "fn f() {\n    let _ = fs::OpenOptions::new().read(true);\n}",
            "fn f() {\n    [\"x\"].map(fs::read_to_string);\n}",
            "impl A { fn f(&self) {\n    rustix::fs::openat(d, n, f, m);\n} }",
            "fn f() {\n    if let Ok(text) = std::fs::read(path) {}\n}",
        ] {
            assert_eq!(scan(&OPENS, text).unwrap(), [2], "{text}");
        }
    }

    #[test]
    fn each_way_to_a_standard_stream_is_found_with_its_line() {
        for text in [
            "fn f() {\n    println!(\"{name}\");\n}",
            "fn f() {\n    let _ = writeln!(std::io::stderr(), \"{name}\");\n}",
            "fn f() {\n    bytes_to_stdout(b\"x\");\n}",
            "fn f() {\n    output::screen_to_stderr(text);\n}",
            "\nuse std::io::{Write, stdout};\nfn f() { stdout().write_all(b\"x\"); }",
        ] {
            assert_eq!(scan(&PRINTS, text).unwrap(), [2], "{text}");
        }
        for text in [
            "fn f() { output::to_stdout(text); say(NAME, text); output.stdout.len(); command.stderr(Stdio::null()); }",
            "#[cfg(test)]\nmod tests { fn f() { eprintln!(\"skipped\"); } }",
        ] {
            assert!(scan(&PRINTS, text).unwrap().is_empty(), "{text}");
        }
    }

    #[test]
    fn the_door_tests_and_other_calls_are_left_alone() {
        for text in [
            "use std::fs::File;\nfn f() { untrusted::open(path); untrusted::read(path, 9); }",
            "#[cfg(test)]\nmod tests { fn f() { File::open(path); } }",
            "#[test]\nfn f() { fs::read(path); }",
            "fn f() { fs::read_dir(path); fs::metadata(path); Store::open(path); }",
        ] {
            assert!(scan(&OPENS, text).unwrap().is_empty(), "{text}");
        }
    }

    #[test]
    fn each_folder_of_each_door_is_checked() {
        let root = tempfile::tempdir().unwrap();
        for door in [&OPENS, &PRINTS] {
            let list = root.path().join(door.list);
            fs::create_dir_all(list.parent().unwrap()).unwrap();
            fs::write(list, "").unwrap();
            for folder in door.folders {
                let below = if folder.ends_with("src") { "" } else { "/src" };
                let folder = root.path().join(format!("{folder}{below}"));
                fs::create_dir_all(&folder).unwrap();
                let around = "fn f() { File::open(path); }\nfn g() { println!(\"{name}\"); }";
                fs::write(folder.join("new.rs"), around).unwrap();
                fs::write(folder.join("tests.rs"), around).unwrap();
            }
        }
        let findings = check(root.path()).unwrap();
        for (door, line) in [(&OPENS, 1), (&PRINTS, 2)] {
            let found = |folder: &&str| {
                let is_it = |text: &String| text.starts_with(*folder) && text.contains(door.does);
                findings
                    .iter()
                    .find(|text| is_it(text))
                    .is_some_and(|text| text.contains(&format!("(lines {line})")))
            };
            let missed: Vec<_> = door.folders.iter().filter(|folder| !found(folder)).collect();
            assert!(missed.is_empty(), "{missed:?} of {findings:?}");
        }
        assert!(!findings.iter().any(|text| text.contains("tests.rs")), "{findings:?}");
    }

    /// Crates that print nothing of other users: they are in the user's own process, or for developers.
    const APART: [&str; 7] =
        ["cuda-abi", "emulator", "kernels", "ld-preload-tests", "shim", "telemetry", "xtask"];

    #[test]
    fn no_crate_of_the_workspace_is_forgotten_by_the_door_for_printing() {
        let manifest = include_str!("../../../Cargo.toml");
        let (_, list) = manifest.split_once("members = [").unwrap();
        let (list, _) = list.split_once(']').unwrap();
        let members: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        let holds =
            |folder: &str, member: &str| Path::new(member).starts_with(folder.trim_end_matches("/src"));
        let is_known =
            |member: &&str| PRINTS.folders.iter().chain(&APART).any(|folder| holds(folder, member));
        let forgotten: Vec<_> = members.iter().copied().filter(|member| !is_known(member)).collect();
        assert!(members.len() > 40 && forgotten.is_empty(), "{forgotten:?} of {members:?}");
    }

    #[test]
    fn the_list_of_exceptions_is_exact_and_has_reasons() {
        let real = BTreeMap::from([("a.rs".to_owned(), vec![3, 8]), ("b.rs".to_owned(), vec![1])]);
        let found = |text: &str| compare(&OPENS, &real, &parse(&OPENS, text).unwrap());
        assert_eq!(found("# comment\na.rs: 2: own\nb.rs: 1: own\n"), [] as [&str; 0]);
        assert!(found("a.rs: 1: own\nb.rs: 1: own\n")[0].contains("2 places"));
        assert!(found("a.rs: 2: own\n")[0].starts_with("b.rs: opens files in 1 places"));
        assert!(found("a.rs: 2: own\nb.rs: 1: own\nc.rs: 1: own\n")[0].contains("c.rs opens files in 0"));
        assert!(parse(&OPENS, "a.rs: 2: \n").is_err() && parse(&OPENS, "a.rs: 2\n").is_err());
        assert!(parse(&OPENS, "a.rs: 1: x\na.rs: 1: y\n").is_err());
    }
}
