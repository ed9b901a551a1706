//! The reference of the profile file and of the JSON of a report: each record and key with its doc comment, as the types
//! have it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use syn::{Fields, GenericArgument, Item, ItemEnum, ItemStruct, PathArguments, Type};
use xtask::files::files_below;

use super::attributes::{attribute, doc, has};

/// A page about one type and all that it holds.
pub struct Page {
    /// Its file in the book.
    pub name: &'static str,
    head: &'static str,
    /// Folders of the sources. Of two types of one name that of the later folder counts.
    sources: &'static [&'static str],
    whole: &'static str,
}

/// The pages.
pub const PAGES: [Page; 2] = [
    Page {
        name: "profile-file.md",
        head: "\
# The profile file

`radrm-run` appends to `PROGRAM.PID.radrm` while the program runs. A reader takes what is there: a file that ends inside a frame is
whole up to there. Numbers are little-endian.

```text
head, 16 bytes:  magic[8] = 89 52 41 44 52 4d 0a 1a  version u32  crc32(magic, version) u32
frame:           length u32  type u32  crc32(length, type, payload) u32  payload[length]
```

A payload is one of the records below in the standard configuration of bincode 2: numbers as variable-length integers, fields in
the order of the tables. `profile/src/codec.rs` has the number of each type of frame. A record whose fields change gets a new number, and
a reader passes over numbers that it does not know. For programs in other languages use [`radrm report --json`](report-json.md): its keys
stay. Times are nanoseconds since the job's start.
",
        sources: &["profile/src"],
        whole: "Record",
    },
    Page {
        name: "report-json.md",
        head: "\
# JSON of a report

What `radrm report --json` and `radrm-run --json` print. Within one number of `schema` keys may be added; none is renamed, removed or changes its
unit. A key whose value would be null or an empty list may be left out. What each feature in `features` is: [Metrics](metrics.md).
",
        sources: &["profile/src", "analyzer/src/model"],
        whole: "Summary",
    },
];

/// A type with names.
enum Named {
    Struct(ItemStruct),
    Enum(ItemEnum),
}

impl Page {
    /// The page as Markdown.
    ///
    /// # Errors
    /// A source is missing or is no Rust.
    pub fn text(&self, root: &Path) -> Result<String> {
        let mut types = BTreeMap::new();
        for folder in self.sources {
            for (_, file) in
                files_below(&root.join(folder))?.into_iter().filter(|(name, _)| name.ends_with(".rs"))
            {
                let text = fs::read_to_string(&file)?;
                for item in syn::parse_file(&text).with_context(|| file.display().to_string())?.items {
                    match item {
                        Item::Struct(item) => drop(types.insert(item.ident.to_string(), Named::Struct(item))),
                        Item::Enum(item) => drop(types.insert(item.ident.to_string(), Named::Enum(item))),
                        _ => {}
                    }
                }
            }
        }
        let mut page = self.head.to_owned();
        let mut open = VecDeque::from([self.whole.to_owned()]);
        let mut seen: BTreeSet<String> = open.iter().cloned().collect();
        while let Some(name) = open.pop_front() {
            let named = types.get(&name).with_context(|| format!("{name} is not in its sources"))?;
            for below in section(&mut page, &types, &name, named) {
                if seen.insert(below.clone()) {
                    open.push_back(below);
                }
            }
        }
        Ok(page)
    }
}

/// The table of a type. Gives the types that it names.
fn section(page: &mut String, types: &BTreeMap<String, Named>, name: &str, named: &Named) -> Vec<String> {
    let mut names = Vec::new();
    let row = |page: &mut String, key: &str, ty: &str, text: &str| {
        let _ = writeln!(page, "| `{key}` | {ty} | {} |", plain(text).replace('|', "\\|"));
    };
    match named {
        Named::Struct(item) => {
            let _ = write!(page, "\n## {name}\n\n{}\n", plain(&doc(&item.attrs)));
            let _ = write!(page, "\n| key | type | is |\n|---|---|---|\n");
            for field in item.fields.iter().filter(|field| !has(&field.attrs, "skip")) {
                let key = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                let ty = shown(&field.ty, types, &mut names);
                row(page, &key, &ty, &doc(&field.attrs));
            }
        }
        Named::Enum(item) => {
            let _ = write!(page, "\n## {name}\n\n{}\n", plain(&doc(&item.attrs)));
            let _ = write!(page, "\n| one of | with | is |\n|---|---|---|\n");
            let snake = attribute(&item.attrs, "rename_all").is_some_and(|value| value == "snake_case");
            for variant in &item.variants {
                let key = variant.ident.to_string();
                let key = if snake { snake_case(&key) } else { key };
                let with: Vec<_> = match &variant.fields {
                    Fields::Named(fields) => {
                        let named = |field: &syn::Field| {
                            let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                            format!("`{name}`: {}", shown(&field.ty, types, &mut names))
                        };
                        fields.named.iter().map(named).collect()
                    }
                    fields => fields.iter().map(|field| shown(&field.ty, types, &mut names)).collect(),
                };
                row(page, &key, &with.join(", "), &doc(&variant.attrs));
            }
        }
    }
    names
}

/// A type in words, with a link to its own table.
fn shown(ty: &Type, types: &BTreeMap<String, Named>, names: &mut Vec<String>) -> String {
    let mut inner = |ty: &Type| shown(ty, types, names);
    match ty {
        Type::Array(array) => format!("list of {}", inner(&array.elem)),
        Type::Reference(reference) => inner(&reference.elem),
        Type::Tuple(tuple) => tuple.elems.iter().map(inner).collect::<Vec<_>>().join(" and "),
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return String::new() };
            let arguments: Vec<&Type> = match &last.arguments {
                PathArguments::AngleBracketed(list) => list.args.iter().filter_map(argument).collect(),
                _ => Vec::new(),
            };
            let name = last.ident.to_string();
            match (name.as_str(), arguments.as_slice()) {
                ("Option", [value]) => format!("{}, or null", inner(value)),
                ("Box", [value]) => inner(value),
                ("Vec", [value]) => format!("list of {}", inner(value)),
                ("BTreeMap", [key, value]) => format!("{} by {}", inner(value), inner(key)),
                ("String" | "str" | "Untrusted", _) => "text".to_owned(),
                ("bool", _) => "true or false".to_owned(),
                ("Bytes", _) => "bytes".to_owned(),
                ("Nanos", _) => "ns".to_owned(),
                _ => match types.get(&name) {
                    // What wraps one value without a name is that value.
                    Some(Named::Struct(item)) if matches!(item.fields, Fields::Unnamed(_)) => {
                        item.fields.iter().map(|field| inner(&field.ty)).collect::<Vec<_>>().join(" and ")
                    }
                    Some(_) => {
                        let link = format!("[{name}](#{})", name.to_lowercase());
                        names.push(name);
                        link
                    }
                    None if name.starts_with(['u', 'i', 'f']) => "number".to_owned(),
                    None => format!("`{name}`"),
                },
            }
        }
        _ => String::new(),
    }
}

fn argument(argument: &GenericArgument) -> Option<&Type> {
    match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

/// Text of a doc comment without links to other items: a page has no place for these.
pub fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((name, after)) = after.split_once("`]") else { break };
        plain.push_str(before);
        let _ = write!(plain, "`{}`", name.trim_start_matches("crate::").trim_start_matches("super::"));
        // Where the link leads, if it says so.
        rest = match after.strip_prefix('(').and_then(|link| link.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    plain + rest
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    #[test]
    fn every_key_of_a_report_and_every_record_of_a_profile_is_described() {
        let [file, json] = PAGES.map(|page| page.text(&shell::root()).unwrap());
        for part in [
            "| `Job` | [Job](#job) | The job; the first frame of every profile. |",
            "| `program_sha256` | list of number, or null |",
            "see `Record::ProgramDigest`",
            "\n## Timings\n",
        ] {
            assert!(file.contains(part), "{part}: {file}");
        }
        for part in [
            "| `emulated` | text, or null |",
            "| `processes` | list of [ProcessSummary](#processsummary) |",
            "`modelled`",
        ] {
            assert!(json.contains(part), "{part}: {json}");
        }
        for page in [&file, &json] {
            let undocumented: Vec<_> = page.lines().filter(|line| line.ends_with("|  |")).collect();
            assert!(undocumented.is_empty(), "without a doc comment: {undocumented:?}");
            let strange: Vec<_> =
                page.lines().filter(|line| line.contains("| `") && line.contains("[`")).collect();
            assert!(strange.is_empty(), "links of the sources: {strange:?}");
        }
    }

    #[test]
    fn links_of_doc_comments_become_names() {
        assert_eq!(plain("as [`crate::Job`] has it, [`x`](y)."), "as `Job` has it, `x`.");
        assert_eq!(plain("a [`b"), "a [`b");
        assert_eq!(snake_case("OutOfMemory"), "out_of_memory");
    }
}
