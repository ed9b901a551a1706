//! The reference of the configuration files: each key with its doc comment, as the types have it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use syn::{Field, Fields, GenericArgument, ItemStruct, PathArguments, Type};

use super::attributes::{attribute, doc};

/// A configuration file: its path, the sources of its types, and the type of the whole.
const FILES: [(&str, &[&str], &str); 2] = [
    ("/etc/radrm/radrm.toml", &["limits/src/config.rs"], "Config"),
    (
        "/etc/radrm/radrmd.toml",
        &["daemon/src/config.rs", "daemon/src/hooks.rs", "scheduler-core/src/settings.rs"],
        "Config",
    ),
];

/// The page.
///
/// # Errors
/// A source is missing or is no Rust.
pub fn page(root: &Path) -> Result<String> {
    let mut page = String::from(
        "# Configuration\n\nA key that is not known is an error with file and line. What a key may say: \
         [limits](admin.md), [daemon](daemon.md).\n",
    );
    for (file, sources, whole) in FILES {
        let mut types = BTreeMap::new();
        for source in sources.iter().rev() {
            let text = fs::read_to_string(root.join(source)).with_context(|| (*source).to_owned())?;
            for item in syn::parse_file(&text).with_context(|| (*source).to_owned())?.items {
                // What a struct without named fields wraps is a value.
                if let syn::Item::Struct(item) = item
                    && matches!(item.fields, Fields::Named(_))
                {
                    types.insert(item.ident.to_string(), item);
                }
            }
        }
        let whole = types.get(whole).with_context(|| format!("{file}: {whole} is not in its sources"))?;
        let _ = writeln!(page, "\n## {file}");
        section(&mut page, &types, whole, "");
    }
    Ok(page)
}

/// A table of the keys of a type, then the tables below it.
fn section(page: &mut String, types: &BTreeMap<String, ItemStruct>, item: &ItemStruct, name: &str) {
    let kebab = attribute(&item.attrs, "rename_all").is_some_and(|value| value == "kebab-case");
    let mut tables = Vec::new();
    let mut rows = String::new();
    let Fields::Named(fields) = &item.fields else { return };
    for field in &fields.named {
        let Some(ident) = &field.ident else { continue };
        let key = attribute(&field.attrs, "rename").unwrap_or_else(|| ident.to_string());
        let key = if kebab { key.replace('_', "-") } else { key };
        let path = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
        match below(field, types) {
            Some((item, many)) => {
                let path = if many { format!("{path}.NAME") } else { path };
                tables.push((path, item, doc(&field.attrs)));
            }
            None => {
                let _ = writeln!(rows, "| `{key}` | {} |", doc(&field.attrs).replace('|', "\\|"));
            }
        }
    }
    if !rows.is_empty() {
        let _ = write!(page, "\n| key | is |\n|---|---|\n{rows}");
    }
    for (path, item, what) in tables {
        let _ = write!(page, "\n### `[{path}]`\n\n{what}\n");
        section(page, types, item, &path);
    }
}

/// The type of the table that a field is, if it is one, and whether there is one for each name.
fn below<'t>(field: &Field, types: &'t BTreeMap<String, ItemStruct>) -> Option<(&'t ItemStruct, bool)> {
    let Type::Path(path) = &field.ty else { return None };
    let last = path.path.segments.last()?;
    if let Some(item) = types.get(&last.ident.to_string()) {
        return Some((item, false));
    }
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    let Some(GenericArgument::Type(Type::Path(value))) = arguments.args.last() else { return None };
    let many = last.ident == "BTreeMap";
    types.get(&value.path.segments.last()?.ident.to_string()).map(|item| (item, many))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    #[test]
    fn every_key_of_the_example_files_is_in_the_reference() {
        let page = page(&shell::root()).unwrap();
        for part in [
            "| `mem-limit` | All jobs of the user together. |",
            "### `[user.NAME]`",
            "| `mem-limit-each` |",
            "| `active-thread-percentage` |",
            "### `[scheduler]`",
            "| `bytes_per_user` |",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let sample = fs::read_to_string(shell::root().join("contrib/config/radrm.toml")).unwrap();
        let keys = sample.lines().filter_map(|line| line.strip_prefix('#')?.split_once(" = "));
        for (key, _) in keys.filter(|(key, _)| !key.contains(' ')) {
            assert!(page.contains(&format!("| `{key}` |")), "{key}: {page}");
        }
        let undocumented = page.lines().find(|line| line.ends_with("|  |"));
        assert_eq!(undocumented, None, "a key without a doc comment");
    }
}
