//! `bench/TESTS.md`: where the time of `cargo xtask test` went.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::junit::Case;
use super::phases::Phase;

/// Tests that are listed by name.
const SLOWEST: usize = 40;

/// Times of a program's tests, seconds.
#[derive(Default)]
struct Program<'a> {
    tests: usize,
    sum: f64,
    longest: Option<&'a Case>,
}

/// The page; `machine` says where and when.
pub fn page(machine: &str, phases: &[Phase], cases: &[Case]) -> String {
    let mut text = format!(
        "# Where the time of the tests goes\n\n\
         Made by `cargo xtask test --times`: {machine}.\n\n\
         Processor time is that of all programs that a phase started and awaited; jobs that a daemon of a test started \
         and left behind are not in it.\n\n\
         | phase | seconds | processor seconds |\n|---|---:|---:|\n"
    );
    let mut row = |name: &str, elapsed: Duration, processors: Duration| {
        let _ = writeln!(text, "| {name} | {:.0} | {:.0} |", elapsed.as_secs_f64(), processors.as_secs_f64());
    };
    for phase in phases {
        row(phase.name, phase.elapsed, phase.processors);
    }
    row("all", phases.iter().map(|it| it.elapsed).sum(), phases.iter().map(|it| it.processors).sum());

    let mut programs: BTreeMap<&str, Program> = BTreeMap::new();
    for case in cases {
        let of = programs.entry(&case.program).or_default();
        of.tests += 1;
        of.sum += case.seconds;
        if of.longest.is_none_or(|longest| longest.seconds < case.seconds) {
            of.longest = Some(case);
        }
    }
    let mut programs: Vec<_> = programs.into_iter().collect();
    programs.sort_by(|(_, a), (_, b)| b.sum.total_cmp(&a.sum));
    text += "\nSeconds of a test are from its start to its end: waiting, and what ran beside it, included.\n\n\
             | test program | tests | seconds, added up | longest test | seconds |\n|---|---:|---:|---|---:|\n";
    for (name, of) in programs {
        let (longest, seconds) =
            of.longest.map_or(("", 0.0), |longest| (longest.name.as_str(), longest.seconds));
        let _ = writeln!(text, "| {name} | {} | {:.1} | {longest} | {seconds:.1} |", of.tests, of.sum);
    }

    let mut slowest: Vec<&Case> = cases.iter().collect();
    slowest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    text += "\n| slowest test | program | seconds |\n|---|---|---:|\n";
    for case in slowest.into_iter().take(SLOWEST) {
        let _ = writeln!(text, "| {} | {} | {:.1} |", case.name, case.program, case.seconds);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_programs_and_tests_stand_in_the_order_of_their_times() {
        let case = |program: &str, name: &str, seconds| Case {
            program: program.to_owned(),
            name: name.to_owned(),
            seconds,
        };
        let phase = |name, elapsed, processors| Phase {
            name,
            elapsed: Duration::from_secs(elapsed),
            processors: Duration::from_secs(processors),
        };
        let page = page(
            "here",
            &[phase("build", 70, 130), phase("tests", 40, 20)],
            &[case("a", "short", 1.0), case("b", "long", 9.0), case("a", "longer", 2.5)],
        );
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
        let expected = [
            "| phase | seconds | processor seconds |",
            "| build | 70 | 130 |",
            "| tests | 40 | 20 |",
            "| all | 110 | 150 |",
            "| test program | tests | seconds, added up | longest test | seconds |",
            "| b | 1 | 9.0 | long | 9.0 |",
            "| a | 2 | 3.5 | longer | 2.5 |",
            "| slowest test | program | seconds |",
            "| long | b | 9.0 |",
            "| longer | a | 2.5 |",
            "| short | a | 1.0 |",
        ];
        assert_eq!(rows, expected);
        assert!(page.contains("Made by `cargo xtask test --times`: here."), "{page}");
    }
}
