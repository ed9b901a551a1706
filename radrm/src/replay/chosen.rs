//! Policies that a command line names: those of this project, a file in Python, and a policy of the calling program.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use radrm_scheduler_core::{Planner, Policy};

use super::ReplayError;

/// Makes a policy of the calling program, anew for each replay.
pub type OwnPolicy<'a> = &'a dyn Fn() -> Box<dyn Planner>;

/// Name of the calling program's policy.
const OWN: &str = "own";

/// A policy by its name, or where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Chosen {
    /// One of this project.
    Named(Policy),
    /// A file with `place(view)`.
    Python(PathBuf),
    /// That of the calling program.
    Own,
}

impl Chosen {
    /// The policy of this project, if it is one.
    pub(super) fn named(&self) -> Option<Policy> {
        match self {
            Self::Named(policy) => Some(*policy),
            Self::Python(_) | Self::Own => None,
        }
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(policy) => policy.fmt(f),
            Self::Python(file) => file.display().fmt(f),
            Self::Own => f.write_str(OWN),
        }
    }
}

/// Policies in the order asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Policies(pub(super) Vec<Chosen>);

impl FromStr for Policies {
    type Err = ReplayError;
    fn from_str(text: &str) -> Result<Self, ReplayError> {
        if text == "all" {
            return Ok(Self(Policy::ALL.map(Chosen::Named).to_vec()));
        }
        let read = |name: &str| match name.trim() {
            "all" => Err(ReplayError::AllAlone(text.to_owned())),
            OWN => Ok(Chosen::Own),
            file if file.ends_with(".py") => Ok(Chosen::Python(file.into())),
            name => name
                .parse()
                .map(Chosen::Named)
                .map_err(|why| ReplayError::NoPolicy { name: name.to_owned(), why }),
        };
        text.split(',').map(read).collect::<Result<_, _>>().map(Self)
    }
}

/// Error of a program that has no policy of its own.
pub(super) fn no_own() -> Option<ReplayError> {
    let why = OWN.parse::<Policy>().err()?;
    Some(ReplayError::NoPolicy { name: OWN.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_files_and_all_are_read() {
        let policies = |text: &str| text.parse().map(|Policies(all)| all).map_err(|error| error.to_string());
        assert_eq!(policies("all"), Ok(Policy::ALL.map(Chosen::Named).to_vec()));
        let [rr, aware] = [Policy::RoundRobin, Policy::Aware].map(Chosen::Named);
        assert_eq!(policies("rr, aware"), Ok(vec![rr, aware.clone()]));
        assert_eq!(policies("a/my.py,aware"), Ok(vec![Chosen::Python("a/my.py".into()), aware]));
        assert!(
            policies("fastest")
                .is_err_and(|why| why.contains("no policy fastest") && why.ends_with("such as my_policy.py"))
        );
        assert!(policies("aware,all").is_err_and(|why| why.contains("all stands alone")));
    }
}
