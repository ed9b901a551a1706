//! The runner's JUnit file.

/// A test that ran.
#[derive(Debug, PartialEq)]
pub struct Case {
    /// The program that has it, as the runner names it: package, and target after `::`.
    pub program: String,
    /// Its name in the program.
    pub name: String,
    /// From start to end, seconds; of the last try.
    pub seconds: f64,
}

/// Tests of a file as nextest writes it.
pub fn cases(text: &str) -> Vec<Case> {
    text.split("<testcase ").skip(1).filter_map(case).collect()
}

fn case(rest: &str) -> Option<Case> {
    let tag = rest.split_once('>')?.0;
    Some(Case {
        program: attribute(tag, "classname")?,
        name: attribute(tag, "name")?,
        seconds: attribute(tag, "time")?.parse().ok()?,
    })
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let begin = format!("{name}=\"");
    // `classname` ends in `name`.
    let at = tag.match_indices(&begin).map(|(at, _)| at).find(|at| *at == 0 || tag[..*at].ends_with(' '))?;
    let value = tag[at + begin.len()..].split_once('"')?.0;
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    Some(plain.iter().fold(value.to_owned(), |text, (from, to)| text.replace(from, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_read_with_their_programs_and_times() {
        let text = r#"<testsuites name="nextest-run" tests="2">
    <testsuite name="radrm-base" tests="1">
        <testcase name="a::b &lt;c&gt;" classname="radrm-base" timestamp="2026-11-29T04:00:00" time="0.012">
        </testcase>
    </testsuite>
    <testsuite name="radrm-preload-tests::dry_run" tests="1">
        <testcase name="order::x" classname="radrm-preload-tests::dry_run" time="18.338"><failure type="a"/></testcase>
    </testsuite>
</testsuites>"#;
        let case = |program: &str, name: &str, seconds| Case {
            program: program.to_owned(),
            name: name.to_owned(),
            seconds,
        };
        let expected =
            [case("radrm-base", "a::b <c>", 0.012), case("radrm-preload-tests::dry_run", "order::x", 18.338)];
        assert_eq!(cases(text), expected);
    }
}
