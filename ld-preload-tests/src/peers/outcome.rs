//! Outcomes of tests.

use std::collections::BTreeMap;

/// Outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passed, or failed as it says that it would.
    Passed,
    /// It did not run.
    Skipped,
    /// It failed, with the end of the reason.
    Failed(String),
    /// Its process ended in the middle of it.
    Crashed,
}

/// Class of a failure, by its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The test looks at what a kernel would have computed: kernels are not executed here.
    Values,
    /// The emulated driver says that it does not have something, or the runtime library is missing.
    NotEmulated,
    /// Anything else.
    Fault,
}

/// Parts of reasons which say that something is not there. Asked first: such a test often ends in an assertion.
const NOT_EMULATED: [&str; 14] = [
    "NOT_SUPPORTED",
    "not supported",
    "NotSupported",
    "CUDA_ERROR_NOT_FOUND",
    "cannot open shared object",
    "No supported GPU",
    "INVALID_IMAGE",
    "Unresolved extern",
    "NvvmSupportError",
    "ModuleNotFoundError",
    "fixture",
    "named symbol not found",
    "NVRTC is not installed",
    "Ninja is required",
];
/// Parts of reasons which compare values.
const VALUES: [&str; 12] = [
    "AssertionError",
    "assertion ",
    "assert ",
    "Mismatch",
    "DESIRED: ",
    "not equal",
    "not almost equal",
    "not greater",
    "is not true",
    "not found in",
    "not less",
    "not raised",
];

impl Outcome {
    /// Class of a failure; `None` for what is none.
    pub fn class(&self) -> Option<Class> {
        match self {
            Self::Passed | Self::Skipped => None,
            Self::Crashed => Some(Class::Fault),
            Self::Failed(reason) if NOT_EMULATED.iter().any(|part| reason.contains(part)) => {
                Some(Class::NotEmulated)
            }
            Self::Failed(reason) if VALUES.iter().any(|part| reason.contains(part)) => Some(Class::Values),
            Self::Failed(_) => Some(Class::Fault),
        }
    }

    /// Returns true if two runs of a test came to the same: reasons may name addresses, so only their class counts.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && self.class() == other.class()
    }
}

/// Reads what the plugin `clients/peers_report.py` wrote. A test that was started and has no outcome crashed.
pub fn parse(report: &str) -> BTreeMap<String, Outcome> {
    let mut outcomes = BTreeMap::new();
    for line in report.lines() {
        let mut fields = line.splitn(3, '\t');
        let (Some(test), Some(word)) = (fields.next(), fields.next()) else { continue };
        let outcome = match word {
            "passed" | "expected-failure" => Outcome::Passed,
            "skipped" => Outcome::Skipped,
            "failed" => Outcome::Failed(fields.next().unwrap_or_default().to_owned()),
            _ => Outcome::Crashed,
        };
        // What comes down after a failure does not hide it.
        if !matches!(outcomes.get(test), Some(Outcome::Failed(_))) {
            outcomes.insert(test.to_owned(), outcome);
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_without_outcome_crashed() {
        let report = "a\tstarted\t\na\tpassed\t\nb\tstarted\t\nb\tfailed\tAssertionError: 1 != 2\nb\tfailed\tteardown\n\
                      c\tstarted\t\nc\tskipped\t\nd\tstarted\t\n";
        let outcomes = parse(report);
        assert_eq!(outcomes["a"], Outcome::Passed);
        assert_eq!(outcomes["b"].class(), Some(Class::Values));
        assert_eq!(outcomes["c"], Outcome::Skipped);
        assert_eq!(outcomes["d"].class(), Some(Class::Fault));
    }

    #[test]
    fn failures_are_classed_by_their_reasons() {
        for (reason, class) in [
            ("AssertionError: Arrays are not equal", Class::Values),
            ("CudaAPIError: [801] CUDA_ERROR_NOT_SUPPORTED", Class::NotEmulated),
            ("AssertionError: call failed: CUDA_ERROR_NOT_SUPPORTED", Class::NotEmulated),
            ("src/a.rs:1:2: assertion `left == right` failed left: 0 right: 1", Class::Values),
            ("ValueError: invalid literal", Class::Fault),
        ] {
            assert_eq!(Outcome::Failed(reason.to_owned()).class(), Some(class), "{reason}");
        }
    }

    #[test]
    fn runs_differ_by_outcome_and_class() {
        let failed = |reason: &str| Outcome::Failed(reason.to_owned());
        assert!(failed("AssertionError: 0x1").is_like(&failed("AssertionError: 0x2")));
        assert!(!failed("AssertionError").is_like(&failed("ValueError")));
        assert!(!failed("AssertionError").is_like(&Outcome::Passed));
        assert!(!Outcome::Crashed.is_like(&failed("ValueError")));
    }
}
