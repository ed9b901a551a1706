//! Links of the finished book that lead nowhere: to a page that is not in it, or to a heading that its page lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::Result;

use xtask::files::files_below;

/// Pages that repeat the others' links from another folder.
const REPEATED: [&str; 3] = ["print.html", "404.html", "toc.html"];

/// A line for each dead link of the book in this folder.
///
/// # Errors
/// The book cannot be read.
pub fn links(book: &Path) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    let mut files = BTreeSet::new();
    for (name, path) in files_below(book)? {
        if name.ends_with(".html") {
            pages.insert(PathBuf::from(&name), std::fs::read_to_string(path)?);
        }
        files.insert(PathBuf::from(name));
    }
    let anchors: BTreeMap<_, BTreeSet<&str>> =
        pages.iter().map(|(name, text)| (name, values(text, " id=\"").collect())).collect();
    let mut dead = Vec::new();
    for (name, text) in
        pages.iter().filter(|(name, _)| !REPEATED.iter().any(|page| Path::new(page) == **name))
    {
        for link in values(text, " href=\"").filter(|link| is_local(link)) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if path.is_empty() { name.clone() } else { beside(name, path) };
            let is_alive = match anchors.get(&to) {
                Some(known) => anchor.is_empty() || known.contains(anchor),
                None => files.contains(&to),
            };
            if !is_alive {
                dead.push(format!("{}: {link}", name.display()));
            }
        }
    }
    dead.dedup();
    Ok(dead)
}

/// The values of an attribute, which comes with a blank before it and a quotation mark behind it.
fn values<'t>(text: &'t str, attribute: &'t str) -> impl Iterator<Item = &'t str> {
    text.split(attribute).skip(1).filter_map(|rest| rest.split('"').next())
}

/// Returns true if a link leads to a file of the book.
fn is_local(link: &str) -> bool {
    let scheme = link.split([':', '/', '#', '?']).next().unwrap_or_default();
    !link.is_empty() && !link[scheme.len()..].starts_with(':')
}

/// The file that a page names from where it lies.
fn beside(page: &Path, path: &str) -> PathBuf {
    let mut file = page.parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir if file.pop() => {}
            // Above the book: a name that no file of it has.
            Component::ParentDir => file.push(".."),
            Component::Normal(name) => file.push(name),
            _ => {}
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_pages_and_headings_are_found() {
        let book = tempfile::tempdir().unwrap();
        std::fs::create_dir(book.path().join("how-to")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(book.path().join(name), text).unwrap();
        write(
            "a.html",
            "<h2 id=\"one\"></h2><a class=\"x\" href=\"#one\"> <a href=\"#two\"> <a href=\"how-to/b.html#three\"> \
             <a href=\"https://example.org/x#y\"> <a href=\"../bench/c.html\"> <link href=\"style.css\">",
        );
        write(
            "how-to/b.html",
            "<h2 id=\"three\"></h2> <a href=\"../a.html#one\"> <a href=\"../a.html#four\"> <a href=\"d.html\">",
        );
        write("style.css", "");
        write("print.html", "<a href=\"#nowhere\">");
        let dead = [
            "a.html: #two",
            "a.html: ../bench/c.html",
            "how-to/b.html: ../a.html#four",
            "how-to/b.html: d.html",
        ];
        assert_eq!(links(book.path()).unwrap(), dead);
    }
}
