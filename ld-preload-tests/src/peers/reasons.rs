//! Reasons that tests fail on emulated GPUs, with the shim as without: `data/peers_reasons.tsv`.

const LIST: &str = include_str!("../../data/peers_reasons.tsv");

/// The reason of a failure by its suite, its test and what it says; `None` where none is known.
pub fn of(suite: &str, test: &str, failure: &str) -> Option<&'static str> {
    lines().find_map(|[suites, part, reason]| {
        let is_of = suites.strip_suffix('*').map_or(suites == suite, |start| suite.starts_with(start));
        (is_of && (test.contains(part) || failure.contains(part))).then_some(reason)
    })
}

fn lines() -> impl Iterator<Item = [&'static str; 3]> {
    LIST.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let fields: Vec<&'static str> = line.split('\t').collect();
        fields.try_into().unwrap_or_else(|_| panic!("not three fields: {line}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::suites;

    #[test]
    fn each_reason_is_of_a_suite_and_says_something() {
        let suites = suites::all().unwrap();
        for [of, part, reason] in lines() {
            let start = of.trim_end_matches('*');
            assert!(suites.iter().any(|suite| suite.name.starts_with(start)), "{of}");
            assert!(!part.is_empty() && reason.contains(' '), "{of}: {part}");
        }
    }

    #[test]
    fn a_failure_is_explained_by_its_test_or_its_words() {
        assert!(of("numba-cuda", "::A::b", "RuntimeError: NRT stats are disabled.").is_some());
        assert!(of("pytorch-async", "::TestCuda::test_graph_debugdump", "").is_some());
        assert!(of("pytorch", "::TestCuda::test_graph_debugdump", "").is_none());
        assert!(of("numba-cuda", "::A::b", "odd").is_none());
    }
}
