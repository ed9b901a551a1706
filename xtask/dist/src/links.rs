//! Links of the README where it does not lie at the root of the source tree.

use std::collections::BTreeSet;

/// The README beside the documents of a package, which lie in one folder: links to files of the source tree lead to
/// these, or are words where there is no such file.
pub fn beside(readme: &str, documents: &BTreeSet<&str>) -> String {
    moved(readme, |target| {
        let (path, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
        let path = path.strip_prefix("docs/").unwrap_or(path);
        documents.contains(path).then(|| format!("{path}{anchor}"))
    })
}

/// The README where no file is beside it.
pub fn alone(readme: &str) -> String {
    moved(readme, |_| None)
}

/// Markdown whose links to files lead to where `place` says, and are their words alone where it says nothing.
fn moved(text: &str, place: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    // Backticks that a piece of code began with: as many end it.
    let mut code = None;
    let mut rest = text;
    while let Some(start) = rest.find(['`', '[']) {
        let (before, here) = rest.split_at(start);
        out.push_str(before);
        if here.starts_with('`') {
            let ticks = here.len() - here.trim_start_matches('`').len();
            code = if code == Some(ticks) { None } else { code.or(Some(ticks)) };
            out.push_str(&here[..ticks]);
            rest = &here[ticks..];
            continue;
        }
        let link = here[1..].split_once("](").and_then(|(words, behind)| {
            let (target, behind) = behind.split_once(')')?;
            let is_file = !target.starts_with('#') && !target.contains(':');
            (is_file && !words.contains(['[', ']'])).then_some((words, target, behind))
        });
        match link.filter(|_| code.is_none()) {
            Some((words, target, behind)) => {
                match place(target) {
                    Some(target) => out.push_str(&format!("[{words}]({target})")),
                    None => {
                        // A picture that is not there leaves its description.
                        let kept = out.strip_suffix('!').map_or(out.len(), str::len);
                        out.truncate(kept);
                        out.push_str(words);
                    }
                }
                rest = behind;
            }
            None => {
                out.push('[');
                rest = &here[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use xtask::{files::files_below, shell};

    fn readme() -> String {
        std::fs::read_to_string(shell::root().join("README.md")).unwrap()
    }

    /// Targets of the links to files.
    fn targets(text: &str) -> Vec<String> {
        let found = std::cell::RefCell::new(Vec::new());
        moved(text, |target| {
            found.borrow_mut().push(target.to_owned());
            None
        });
        found.into_inner()
    }

    #[test]
    fn links_in_a_package_lead_to_files_of_the_package() {
        let pages = files_below(&shell::root().join("docs")).unwrap();
        let mut shipped: BTreeSet<&str> = pages.keys().map(String::as_str).collect();
        shipped.extend(xtask_docs::GENERATED);
        shipped.extend(["LICENSE-APACHE", "LICENSE-MIT"]);
        let all = targets(&readme());
        let kept = targets(&beside(&readme(), &shipped));
        assert!(kept.iter().all(|target| shipped.contains(target.as_str())), "{kept:?}");
        assert!(
            kept.contains(&"install.md".to_owned()) && kept.contains(&"how-to/find-a-leak.md".to_owned())
        );
        let lost: Vec<_> = all.iter().filter(|target| target.starts_with("docs/")).collect();
        assert!(all.len() > kept.len() && lost.len() + 2 == kept.len(), "{all:?} {kept:?}");
    }

    #[test]
    fn a_description_without_files_has_words_in_the_place_of_links() {
        let text = alone(&readme());
        assert_eq!(targets(&text), [""; 0]);
        assert!(!text.contains("](docs/") && text.contains("docs/install.md"), "{text}");
    }

    #[test]
    fn code_and_links_to_elsewhere_stay() {
        let text = "a [b](c.md#d), `[b](c.md)` [x] [e](https://example.org/a.md) [f](#g)\n```\n[b](c.md)\n```\n[h\ni](j)";
        let expected =
            "a [b](k.md#d), `[b](c.md)` [x] [e](https://example.org/a.md) [f](#g)\n```\n[b](c.md)\n```\nh\ni";
        let place = |target: &str| target.strip_prefix("c.md").map(|anchor| format!("k.md{anchor}"));
        assert_eq!(moved(text, place), expected);
    }

    #[test]
    fn a_picture_that_is_not_packed_leaves_its_description() {
        let text = "![a run](docs/run.png) ![b](https://example.org/b.png)";
        assert_eq!(alone(text), "a run ![b](https://example.org/b.png)");
        assert_eq!(beside(text, &BTreeSet::from(["run.png"])), text.replace("docs/", ""));
    }
}
