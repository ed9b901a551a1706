//! Meaning of an export without a function of its own.

use std::sync::LazyLock;

const TABLE: &str = include_str!("../data/semantics.tsv");

/// Effect of calling an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// This function of the toolkit does it, as it does for others of its kind.
    Call(&'static str),
    /// It computes something that no figure depends on: it succeeds, and nothing is computed.
    Done,
    /// Nothing is known about it: it is counted and answers that it is not supported.
    Missing {
        /// "Not supported" in the library's own codes.
        status: i32,
    },
}

struct Line {
    stem: &'static str,
    pattern: &'static str,
    meaning: Meaning,
}

static LINES: LazyLock<Vec<Line>> = LazyLock::new(|| {
    TABLE
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .filter_map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let meaning = match fields.get(2)?.split_once('=') {
                Some(("missing", status)) => Meaning::Missing { status: status.parse().ok()? },
                Some(("call", function)) => Meaning::Call(function),
                _ => Meaning::Done,
            };
            Some(Line { stem: fields[0], pattern: fields[1], meaning })
        })
        .collect()
});

/// The meaning of an export: that of the first line that fits it.
pub(crate) fn meaning(stem: &str, export: &str) -> Meaning {
    LINES
        .iter()
        .find(|line| line.stem == stem && fits(line.pattern, export))
        .map_or(Meaning::Missing { status: 801 }, |line| line.meaning)
}

/// Returns true if a name fits a pattern in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|tail| {
            (0..=tail.len()).any(|at| tail.is_char_boundary(at) && fits(rest, &tail[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::libraries;

    #[test]
    fn stars_stand_for_anything() {
        assert!(fits("cublas*gemm*", "cublasSgemm_v2"));
        assert!(fits("*", ""));
        assert!(!fits("cublasGet*", "cublasSetStream_v2"));
        assert!(!fits("cublasGet", "cublasGetStream"));
    }

    #[test]
    fn every_library_has_lines_and_every_line_is_understood() {
        let written = TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
        assert_eq!(LINES.len(), written);
        for library in libraries() {
            assert!(LINES.iter().any(|line| line.stem == library.stem), "{}", library.stem);
        }
        for line in LINES.iter() {
            let of_it: Vec<_> = libraries().iter().filter(|library| library.stem == line.stem).collect();
            assert!(!of_it.is_empty(), "{} is not a library", line.stem);
            let used = of_it.iter().flat_map(|l| &l.exports).any(|name| fits(line.pattern, name));
            assert!(used, "{}\t{} fits nothing", line.stem, line.pattern);
        }
    }

    #[test]
    fn a_query_is_never_taken_for_a_computation() {
        // A size that is never written would be taken from the caller's stack.
        for library in libraries() {
            for name in &library.exports {
                let lower = name.to_ascii_lowercase();
                let asks = ["buffersize", "workspace", "getsize", "estimate"]
                    .iter()
                    .any(|word| lower.contains(word));
                let sets = lower.contains("setworkspace")
                    || lower.contains("destroy")
                    || lower.contains("setsharedworkspace");
                if asks && !sets {
                    let meaning = meaning(&library.stem, name);
                    let computes =
                        matches!(meaning, Meaning::Call(function) if function.starts_with("work_"));
                    assert!(
                        meaning != Meaning::Done && !computes,
                        "{name} of {} would leave its out-parameters unwritten",
                        library.soname
                    );
                }
            }
        }
    }
}
