//! No crate has a large cycle of modules: files that use each other have to be changed together.
//!
//! These count:
//! - A module is a file; modules inside a file belong to it.
//! - A file uses the file that defines what it names. A re-export is followed to the definition and is no use of its
//!   own, and neither is `mod x;`.
//! - Tests do not count.
//!
//! Cycles of at most [`MAX_FILES`] files are left alone.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::finding::Finding;
use super::modules::{Crate, Edges};
use xtask::sources;

const MAX_FILES: usize = 3;

/// Files of which each uses each other, if only indirectly.
struct Cycle {
    files: BTreeSet<usize>,
    /// The shortest way around, with the line of each use.
    around: Vec<(usize, usize)>,
}

/// Finds cycles of too many files.
///
/// # Errors
/// A source cannot be read.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let described = |target: &Target| {
        let cycles = large(&target.edges);
        cycles.iter().map(|cycle| describe(root, &target.sources, cycle)).collect::<Vec<_>>()
    };
    Ok(targets(root)?.iter().flat_map(described).collect())
}

/// Prints every use inside of large cycles, for those who break them.
pub fn print(root: &Path) -> Result<()> {
    for Target { name, sources: target, edges, .. } in targets(root)? {
        for cycle in large(&edges) {
            println!("{name}: {} files", cycle.files.len());
            for ((from, to), line) in edges.iter() {
                if cycle.files.contains(from) && cycle.files.contains(to) {
                    let [from, to] = [from, to].map(|file| sources::shown(root, &target.files[*file]));
                    println!("  {from}:{line} uses {to}");
                }
            }
        }
    }
    Ok(())
}

/// A library or a program of the workspace.
struct Target {
    /// Path of its first file from the root.
    name: String,
    sources: Crate,
    /// The uses that count.
    edges: Edges,
}

fn targets(root: &Path) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for manifest in sources::below(root, &["Cargo.toml"])? {
        let folder = manifest.with_file_name("src");
        let mut firsts: Vec<PathBuf> = ["lib.rs", "main.rs"].map(|name| folder.join(name)).into();
        let programs = folder.join("bin");
        if programs.is_dir() {
            firsts.extend(sources::below(&programs, &[".rs"])?);
        }
        for first in firsts.into_iter().filter(|first| first.is_file()) {
            let sources = Crate::read(&first)?;
            targets.push(Target { name: sources::shown(root, &first), edges: sources.edges(), sources });
        }
    }
    Ok(targets)
}

/// The strongly connected parts of more than [`MAX_FILES`] files.
fn large(edges: &Edges) -> Vec<Cycle> {
    let files: BTreeSet<usize> = edges.keys().flat_map(|(from, to)| [*from, *to]).collect();
    let mut placed = BTreeSet::new();
    let mut found = Vec::new();
    for start in files {
        if placed.contains(&start) {
            continue;
        }
        let (after, before) = (reached(start, edges, false), reached(start, edges, true));
        let files: BTreeSet<usize> = after.intersection(&before).copied().collect();
        placed.extend(files.iter().copied());
        if files.len() > MAX_FILES {
            let around = files.iter().filter_map(|file| shortest(*file, edges)).min_by_key(Vec::len);
            found.push(Cycle { files, around: around.unwrap_or_default() });
        }
    }
    found
}

fn reached(start: usize, edges: &Edges, backwards: bool) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(file) = waiting.pop() {
        for (from, to) in edges.keys() {
            let (from, to) = if backwards { (to, from) } else { (from, to) };
            if *from == file && reached.insert(*to) {
                waiting.push(*to);
            }
        }
    }
    reached
}

/// The shortest way from a file back to itself: files with the lines on which they use the next.
fn shortest(start: usize, edges: &Edges) -> Option<Vec<(usize, usize)>> {
    let mut ways = VecDeque::from([vec![(start, 0)]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let (last, _) = *way.last()?;
        for ((_, to), line) in edges.range((last, 0)..(last + 1, 0)) {
            let mut way = way.clone();
            way.last_mut()?.1 = *line;
            if *to == start {
                return Some(way);
            }
            if seen.insert(*to) {
                way.push((*to, 0));
                ways.push_back(way);
            }
        }
    }
    None
}

fn describe(root: &Path, target: &Crate, cycle: &Cycle) -> Finding {
    let name = |file: usize| sources::shown(root, &target.files[file]);
    let mut text = format!("{}: a cycle of {} modules", name(0), cycle.files.len());
    let _ = write!(text, " (allowed: {MAX_FILES}); the shortest way around:");
    for (file, line) in &cycle.around {
        let _ = write!(text, " {}:{line} ->", name(*file));
    }
    let first = cycle.around.first().map(|(file, _)| name(*file)).unwrap_or_default();
    let all: Vec<String> = cycle.files.iter().map(|file| name(*file)).collect();
    let _ = write!(text, " {first}; all: {}", all.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A package of these files.
    fn package(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files.iter().copied().chain([("p/Cargo.toml", "")]) {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    /// Four files around: a uses b, b uses c, c uses d, and d uses a as the text says.
    fn around(last: &str) -> [(&str, &str); 5] {
        [
            ("p/src/lib.rs", "mod a; mod b; mod c; mod d;"),
            ("p/src/a.rs", "use crate::b::B;\npub struct A(B);"),
            ("p/src/b.rs", "pub struct B(super::c::C);"),
            ("p/src/c.rs", "pub type C = Vec<crate::d::D>;"),
            ("p/src/d.rs", last),
        ]
    }

    fn circle(last: &str) -> Vec<Finding> {
        check(package(&around(last)).path()).unwrap()
    }

    #[test]
    fn a_large_cycle_is_found_with_its_shortest_way() {
        let found = circle("pub enum D {}\nimpl D {\n    fn a(&self) { crate::a::A::new(); }\n}");
        assert_eq!(
            found,
            ["p/src/lib.rs: a cycle of 4 modules (allowed: 3); the shortest way around: p/src/a.rs:1 -> \
              p/src/b.rs:1 -> p/src/c.rs:1 -> p/src/d.rs:3 -> p/src/a.rs; \
              all: p/src/a.rs, p/src/b.rs, p/src/c.rs, p/src/d.rs"]
        );
    }

    #[test]
    fn every_way_to_name_a_module_closes_the_cycle() {
        for last in [
            "use crate::a; pub struct D; fn f(_: a::A) {}",
            "use crate::a as other; pub struct D; fn f() -> Option<other::A> { None }",
            "use super::{a::{self, A}}; pub struct D;",
            "use super::a::*; pub struct D(A);",
            "pub struct D; fn f() { println!(\"{}\", crate::a::A::X); }",
            "pub struct D; mod inner { use super::super::a::A; }",
            "pub struct D; impl From<u8> for D { fn from(_: u8) -> Self { use crate::a::A; D } }",
            "pub struct D; impl crate::a::A {}",
        ] {
            assert_eq!(circle(last).len(), 1, "{last}");
        }
    }

    #[test]
    fn what_is_no_use_closes_no_cycle() {
        for last in [
            "pub struct D;",
            "pub struct D; #[cfg(test)] mod tests { use crate::a::A; }",
            "pub struct D; #[cfg(all(test, unix))] use crate::a::A;",
            "pub(in crate::a) struct D;",
            "/// See [`crate::a::A`].\npub struct D;",
            "pub struct D; const A: &str = \"crate::a::A\";",
            "pub struct D; use a::A;",
            "pub struct D; use std::a::A;",
        ] {
            assert_eq!(circle(last), Vec::<String>::new(), "{last}");
        }
    }

    fn folder(front: &str, a: &str) -> usize {
        let files = [
            ("p/src/lib.rs", "mod m;"),
            ("p/src/m/mod.rs", front),
            ("p/src/m/a.rs", a),
            ("p/src/m/b.rs", "pub struct B(super::C);"),
            ("p/src/m/c.rs", "pub struct C(super::D);"),
            ("p/src/m/d.rs", "use super::A;\npub struct D(A);"),
        ];
        check(package(&files).path()).unwrap().len()
    }

    #[test]
    fn a_facade_hides_no_cycle_and_makes_none() {
        let facade = "mod a; mod b; mod c; mod d; pub use a::A; pub(crate) use {b::*, c::C, d::D};";
        assert_eq!(folder(facade, "pub struct A;"), 0);
        assert_eq!(folder(facade, "pub struct A(super::B);"), 1);
    }

    #[test]
    fn what_a_module_takes_from_its_submodules_counts() {
        let front =
            "mod a; mod b; mod c; mod d; use a::A; use b::B; use d::D;\npub struct C; pub struct E(A, B, D);";
        assert_eq!(folder(front, "pub struct A(super::C);"), 1);
        assert_eq!(folder(front, "pub struct A;"), 0);
    }
}
