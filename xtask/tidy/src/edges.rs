//! The map of which crate may use which, as data, compared with what `cargo metadata` knows.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;
use xtask::shell;

use super::finding::Finding;

/// Normal dependencies inside the workspace: `crate: may use...`. A crate that is not listed here
/// must be added, so that no crate joins the map unnoticed.
const MAY_USE: &str = include_str!("../../data/edges.txt");

/// Outside crates that must never come into the program that is watched, not even indirectly.
const NEVER_IN_SHIM: [&str; 9] =
    ["serde", "tracing", "tokio", "dashmap", "cudarc", "anyhow", "log", "crossbeam-epoch", "parking_lot"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
    workspace_members: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
    target: Option<String>,
}

impl Kind {
    /// A dependency of the product: neither of tests or build scripts, nor of the model checker's build.
    fn is_normal(&self) -> bool {
        self.kind.is_none() && self.target.as_deref() != Some("cfg(loom)")
    }
}

/// Finds edges that the map does not have, and those that only the map has.
pub fn check() -> Result<Vec<Finding>> {
    // For this platform: what only other systems or the model checker need is left out.
    let host = shell::read(shell::command("rustc").args(["--print", "host-tuple"]))?;
    let arguments = ["metadata", "--format-version", "1", "--filter-platform", host.trim()];
    let text = shell::read(shell::cargo().args(arguments))?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata")?;
    let mut findings = Graph::new(&metadata).compare(&parse(MAY_USE));
    // Its own tree, with the features that it asks for itself: the map above has those of the whole workspace.
    let arguments = ["tree", "-p", "radrm-shim", "--edges", "normal", "--prefix", "none"];
    findings.extend(forbidden_in_shim(&shell::read(shell::cargo().args(arguments))?));
    Ok(findings)
}

fn forbidden_in_shim(tree: &str) -> Vec<Finding> {
    let reached: BTreeSet<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let found = NEVER_IN_SHIM.iter().filter(|name| reached.contains(**name));
    found.map(|name| format!("radrm-shim must not use {name}, not even indirectly")).collect()
}

/// Normal (not build, not test) dependencies by name.
struct Graph {
    members: BTreeSet<String>,
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn new(metadata: &Metadata) -> Self {
        let names: BTreeMap<&str, &str> =
            metadata.packages.iter().map(|package| (&*package.id, &*package.name)).collect();
        let name = |id: &str| names.get(id).copied().unwrap_or_default().to_owned();
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in &metadata.resolve.nodes {
            let normal = node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(Kind::is_normal));
            uses.entry(name(&node.id)).or_default().extend(normal.map(|dep| name(&dep.pkg)));
        }
        Self { members: metadata.workspace_members.iter().map(|id| name(id)).collect(), uses }
    }

    fn compare(&self, allowed: &BTreeMap<String, BTreeSet<String>>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for member in &self.members {
            let Some(may) = allowed.get(member) else {
                findings.push(format!("{member} does not stand in xtask/data/edges.txt"));
                continue;
            };
            if may.contains("*") {
                continue;
            }
            for used in self.uses.get(member).into_iter().flatten() {
                if self.members.contains(used) && !may.contains(used) {
                    findings.push(format!("{member} must not use {used}"));
                }
            }
            for stale in
                may.iter().filter(|used| !self.uses.get(member).is_some_and(|uses| uses.contains(*used)))
            {
                findings.push(format!("{member} does not use {stale}: remove it from xtask/data/edges.txt"));
            }
        }
        let gone = allowed.keys().filter(|name| !self.members.contains(*name));
        findings.extend(gone.map(|name| format!("{name} is no crate: remove it from xtask/data/edges.txt")));
        findings
    }
}

fn parse(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    text.lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once(':'))
        .map(|(name, may)| (name.trim().to_owned(), may.split_whitespace().map(str::to_owned).collect()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &str, members: &[&str]) -> Graph {
        Graph { members: members.iter().map(|name| (*name).to_owned()).collect(), uses: parse(edges) }
    }

    #[test]
    fn an_edge_that_the_map_does_not_have_is_found() {
        let real = graph("a: b c serde\nb:\nc:", &["a", "b", "c"]);
        assert_eq!(real.compare(&parse("a: b\nb:\nc:")), ["a must not use c"]);
        assert_eq!(real.compare(&parse("a: *\nb:\nc:")), Vec::<String>::new());
        assert_eq!(real.compare(&parse("a: *\nb:")), ["c does not stand in xtask/data/edges.txt"]);
    }

    #[test]
    fn an_edge_that_only_the_map_has_is_found() {
        let real = graph("a: b\nb:", &["a", "b"]);
        assert_eq!(
            real.compare(&parse("a: b\nb: a\nd: a")),
            [
                "b does not use a: remove it from xtask/data/edges.txt",
                "d is no crate: remove it from xtask/data/edges.txt"
            ]
        );
    }

    #[test]
    fn nothing_forbidden_reaches_the_shim_through_others() {
        let found = forbidden_in_shim("radrm-shim v0.1.0 (/here)\nradrm-base v0.1.0\nserde v1.0.0\n");
        assert_eq!(found, ["radrm-shim must not use serde, not even indirectly"]);
    }
}
