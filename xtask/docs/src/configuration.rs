//! The reference of the configuration files: each key with its type, its default and its doc comment, as the types have it.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use syn::{Expr, Field, Fields, GenericArgument, ItemStruct, PathArguments, PathSegment, Type};

use super::attributes::{attribute, doc};
use super::sources::{Sources, Values};
use super::types::plain;

/// A configuration file: its path, the sources of its types, and the type of the whole.
const FILES: [(&str, &[&str], &str); 2] = [
    ("/etc/radrm/radrm.toml", &["limits/src/config.rs"], "Config"),
    (
        "/etc/radrm/radrmd.toml",
        &[
            "daemon/src/config.rs",
            "daemon/src/dry_run/settings.rs",
            "daemon/src/hooks.rs",
            "daemon/src/metrics.rs",
            "daemon/src/mps/settings.rs",
            "daemon/src/reservations.rs",
            "daemon/src/slurm/settings.rs",
            "daemon/src/user_limits.rs",
            "scheduler-core/src/settings.rs",
            "scheduler-core/src/sharing_mode.rs",
            "scheduler-core/src/ladder.rs",
            "scheduler-core/src/policy/name.rs",
            "estimator/src/interference/formula.rs",
            "base/units/src/run.rs",
        ],
        "Config",
    ),
];

/// Value in a file, in words, of each type that reads itself.
const VALUES: [(&str, &str); 13] = [
    ("String", "text"),
    ("PathBuf", "path, as text"),
    ("bool", "`true` or `false`"),
    ("u8", "whole number"),
    ("u16", "whole number"),
    ("u32", "whole number"),
    ("u64", "whole number"),
    ("i32", "whole number, also negative"),
    ("f64", "number"),
    ("Bytes", "bytes, whole number, or text such as `\"5GiB\"`"),
    ("Millis", "ms, whole number, or text such as `\"90s\"`, `\"10min\"` or `\"4h\"`"),
    ("Permille", "thousandths, or text such as `\"80%\"`"),
    ("Percentage", "percent, whole number from 1 to 100"),
];

/// The same for text with a form of its own.
const TEXTS: [(&str, &str); 6] = [
    ("NameList", "list of names, or text with commas"),
    ("LocalTime", "text: `\"2026-12-24 08:00\"`, or a date alone"),
    ("Text", "text: `\"10GiB\"`, `\"50%\"` of each GPU, by GPU `\"0=60GiB,1=20GiB\"`"),
    ("Context", "text: `\"auto\"`, or an amount such as `\"300MiB\"`"),
    ("Mode", "text: an octal mode such as `\"0640\"`"),
    ("Protocol", "text: `\"2\"` or `\"3\"`"),
];

/// The page.
///
/// # Errors
/// A source is missing or is no Rust, or a type has no words.
pub fn page(root: &Path) -> Result<String> {
    let mut page = String::from(
        "# Configuration\n\nA key that is not known is an error with file and line. Keys that a file leaves out keep \
         their defaults. How they work together: [limits](admin.md), [daemon](daemon.md).\n",
    );
    for (file, sources, whole) in FILES {
        let sources = Sources::read(root, sources)?;
        let item =
            sources.structs.get(whole).with_context(|| format!("{file}: {whole} is not in its sources"))?;
        let _ = writeln!(page, "\n## {file}");
        let defaults = sources.defaults.get(whole).cloned().unwrap_or_default();
        section(&mut page, &sources, item, "", &defaults)?;
    }
    Ok(page)
}

/// A table of the keys of a type, then the tables below it.
fn section(
    page: &mut String,
    sources: &Sources,
    item: &ItemStruct,
    name: &str,
    defaults: &Values,
) -> Result<()> {
    let kebab = attribute(&item.attrs, "rename_all").is_some_and(|value| value == "kebab-case");
    let mut tables = Vec::new();
    let (mut rows, mut lists) = (String::new(), String::new());
    let Fields::Named(fields) = &item.fields else { return Ok(()) };
    for field in &fields.named {
        let Some(ident) = &field.ident else { continue };
        let key = attribute(&field.attrs, "rename").unwrap_or_else(|| ident.to_string());
        let key = if kebab { key.replace('_', "-") } else { key };
        let path = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
        let default = defaults.get(&ident.to_string());
        match below(field, sources) {
            Some((item, form)) => {
                let path = match form {
                    Below::One => path,
                    Below::Named => format!("{path}.NAME"),
                    Below::List => {
                        let text = plain(&doc(&field.attrs)).replace('|', "\\|");
                        let _ = writeln!(rows, "| `{key}` | list of tables, below | `[]` | {text} |");
                        format!("[{path}]")
                    }
                };
                tables.push((path, item, doc(&field.attrs), default));
            }
            None => {
                let segment = last(&field.ty).with_context(|| format!("the type of {path}"))?;
                let ty = shown(segment, sources, &mut lists, &key)
                    .with_context(|| format!("the type of {path}"))?;
                let default = stated(segment, default, sources);
                let text = plain(&doc(&field.attrs)).replace('|', "\\|");
                let _ = writeln!(rows, "| `{key}` | {ty} | {default} | {text} |");
            }
        }
    }
    if !rows.is_empty() {
        let _ = write!(page, "\n| key | type | default | is |\n|---|---|---|---|\n{rows}{lists}");
    }
    for (path, item, what, default) in tables {
        let _ = write!(page, "\n### `[{path}]`\n\n{}\n", plain(&what));
        if default.is_some_and(|value| sources.value(value).is_some_and(|text| text == "not set")) {
            page.push_str("Not there by default; with it all of its keys must be there.\n");
        }
        let values = match default {
            Some(value) => sources.table(value),
            None => sources.defaults.get(&item.ident.to_string()).cloned().unwrap_or_default(),
        };
        section(page, sources, item, &path, &values)?;
    }
    Ok(())
}

fn last(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

/// The last of a type's arguments: what an option or a list holds, and what a map has for each name.
fn inner(segment: &PathSegment) -> Option<&PathSegment> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    match arguments.args.last()? {
        GenericArgument::Type(ty) => last(ty),
        _ => None,
    }
}

/// Number of times that a table is in a file.
enum Below {
    One,
    /// Once for each name.
    Named,
    /// Any number of times.
    List,
}

/// The type of the table that a field is, if it is one.
fn below<'t>(field: &Field, sources: &'t Sources) -> Option<(&'t ItemStruct, Below)> {
    let segment = last(&field.ty)?;
    if let Some(item) = sources.structs.get(&segment.ident.to_string()) {
        return Some((item, Below::One));
    }
    let item = sources.structs.get(&inner(segment)?.ident.to_string())?;
    let form = match segment.ident.to_string().as_str() {
        "BTreeMap" => Below::Named,
        "Vec" => Below::List,
        _ => Below::One,
    };
    Some((item, form))
}

/// A type in words. What an enum may be goes to `lists`, below the table.
fn shown(segment: &PathSegment, sources: &Sources, lists: &mut String, key: &str) -> Result<String> {
    let name = segment.ident.to_string();
    match (name.as_str(), inner(segment)) {
        ("Option", Some(value)) => return shown(value, sources, lists, key),
        ("Vec", Some(value)) => return Ok(format!("list; each {}", shown(value, sources, lists, key)?)),
        _ => {}
    }
    if let Some((_, words)) = VALUES.iter().chain(&TEXTS).find(|(ty, _)| *ty == name) {
        return Ok((*words).to_owned());
    }
    let Some(values) = sources.enums.get(&name) else { bail!("{name} has no words") };
    let _ = write!(lists, "\n`{key}`:\n\n");
    for (value, what) in values {
        let _ = writeln!(lists, "- `\"{value}\"`: {}", plain(what));
    }
    Ok("text, one of those below".to_owned())
}

/// The default in words.
fn stated(segment: &PathSegment, default: Option<&Expr>, sources: &Sources) -> String {
    match default {
        Some(value) => sources.value(value).unwrap_or_else(|| "depends on the user".to_owned()),
        // Of a type whose default is derived.
        None if segment.ident == "Option" => "not set".to_owned(),
        None if segment.ident == "PathBuf" => "`\"\"`".to_owned(),
        None if segment.ident == "bool" => "`false`".to_owned(),
        None if segment.ident == "Vec" => "`[]`".to_owned(),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;
    use std::fs;

    /// The row of a key below a heading.
    fn row<'p>(page: &'p str, heading: &str, key: &str) -> &'p str {
        let (_, after) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}"));
        let section = after.split("\n##").next().unwrap_or_default();
        let found = section.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
        found.unwrap_or_else(|| panic!("{heading}: {key}"))
    }

    #[test]
    fn every_key_of_the_example_files_is_in_the_reference() {
        let page = page(&shell::root()).unwrap();
        for part in ["| not set | All jobs of the user together. |", "### `[user.NAME]`", "### `[scheduler]`"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
        let sample = fs::read_to_string(shell::root().join("contrib/config/radrm.toml")).unwrap();
        let keys = sample.lines().filter_map(|line| line.strip_prefix('#')?.split_once(" = "));
        for (key, _) in keys.filter(|(key, _)| !key.contains(' ')) {
            assert!(page.contains(&format!("| `{key}` |")), "{key}: {page}");
        }
        for end in ["|  |", "| none |"] {
            let wanting = page.lines().find(|line| line.ends_with(end));
            assert_eq!(wanting, None, "a key without a doc comment");
        }
        assert!(!page.contains("None`"), "a value of Rust and of no file: {page}");
    }

    /// The file that ships states the defaults, as a test of the daemon proves.
    #[test]
    fn defaults_are_those_of_the_file_that_ships() {
        let page = page(&shell::root()).unwrap();
        let sample = fs::read_to_string(shell::root().join("contrib/config/radrmd.toml")).unwrap();
        let mut heading = "## /etc/radrm/radrmd.toml".to_owned();
        // Tables of the other file have the same names.
        let page = &page[page.find(&heading).unwrap() - 1..];
        let mut seen = 0;
        for line in
            sample.lines().filter_map(|line| line.strip_prefix('#').filter(|line| !line.starts_with(' ')))
        {
            let Some((key, value)) = line.split_once(" = ") else {
                heading = format!("### `{line}`");
                continue;
            };
            let row = row(page, &heading, key);
            let depends = row.contains("| depends on the user |") && matches!(key, "socket" | "state");
            // A text that is empty where the type has none.
            let is_none = value == "\"\"" && row.contains("| not set |");
            assert!(depends || is_none || row.contains(&format!("| `{value}`")), "{key} = {value}: {row}");
            seen += 1;
        }
        assert!(seen > 25, "{seen}");
    }

    #[test]
    fn values_of_enums_and_constants_of_tables_are_listed() {
        let page = page(&shell::root()).unwrap();
        for part in [
            "- `\"best-fit\"`: The least memory left over.",
            "- `\"min-free\"`: It joins others",
            "- `\"opentelemetry\"`: ",
            "| `ladder` | list; each text, one of those below | `[\"more\", \"emptier\", \"exclusive\"]` |",
            "| `exponent` | whole number | `6` |",
            "| `learn_after` | ms, whole number, or text such as `\"90s\"`, `\"10min\"` or `\"4h\"` | `120000` (2 min) |",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
