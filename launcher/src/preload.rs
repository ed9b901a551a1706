//! Decision on whether the shim goes into the program, and its reason.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use radrm_limits::LimitError;
use radrm_limits::program::environment::Environment;
use radrm_limits::program::libraries;
use radrm_limits::program::target::{self, Visibility};
use radrm_limits::start::QUOTA_VARIABLE;

use crate::error::{LaunchError, shown};

/// The shim, and how far it reaches into the program.
pub struct Preload {
    /// The library, or why there is none.
    shim: Result<PathBuf, LimitError>,
    visibility: Visibility,
}

impl Preload {
    /// Of the file that will be executed, if it is known.
    pub(crate) fn choose(program: Option<&Path>) -> Self {
        let shim =
            libraries::find(libraries::SHIM).and_then(|file| libraries::check_preload(&file).map(|()| file));
        Self { shim, visibility: program.map_or(Visibility::Full, target::examine) }
    }

    /// The library to preload.
    pub(crate) fn shim(&self) -> Option<&Path> {
        match self.visibility {
            Visibility::Nothing(_) => None,
            Visibility::Full | Visibility::OnlyChildren(_) => self.shim.as_deref().ok(),
        }
    }

    /// Reason that the emulated libraries could not reach the program.
    pub(crate) fn hinders_emulation(&self) -> Option<&str> {
        self.visibility.reason()
    }

    /// Returns true if the shim can keep a limit. `reaches_all`: it has to be in the program itself, and not only in what that
    /// starts.
    ///
    /// # Errors
    /// It cannot reach the program.
    pub(crate) fn keeps(
        &self,
        what: &'static str,
        reaches_all: bool,
        word: &OsStr,
        environment: &Environment,
    ) -> Result<(), LaunchError> {
        let reason = if switched_off(environment) {
            "RADRM_DISABLE is set".to_owned()
        } else if let Err(reason) = &self.shim {
            reason.to_string()
        } else if let Some(reason) = self.visibility.reason().filter(|_| reaches_all) {
            format!("it {reason}")
        } else {
            return Ok(());
        };
        Err(LaunchError::Unlimited { what, program: shown(word), reason })
    }

    /// Clauses for the job's profile on what of the job cannot be read.
    pub(crate) fn unseen(
        &self,
        word: &OsStr,
        program: Option<&Path>,
        environment: &Environment,
    ) -> Vec<String> {
        let real = |path: &Path| path.canonicalize().ok();
        let nested = program.and_then(real).is_some_and(|file| env::current_exe().ok() == Some(file));
        let word = shown(word);
        if switched_off(environment) {
            return vec!["RADRM_DISABLE is set".to_owned()];
        }
        match (&self.shim, &self.visibility) {
            (Err(reason), _) => vec![reason.to_string()],
            _ if nested => vec![format!("{word} keeps a record of its own of what it runs")],
            (_, Visibility::Full) => Vec::new(),
            (_, Visibility::OnlyChildren(reason)) => {
                vec![format!("{word} {reason}, so only programs that it starts can be")]
            }
            (_, Visibility::Nothing(reason)) => vec![format!("{word} {reason}")],
        }
    }

    /// Sentences on what of the program will not be counted.
    pub(crate) fn remarks(&self, program: &OsStr, environment: &Environment) -> Vec<String> {
        let program = shown(program);
        if switched_off(environment) {
            return vec![format!("RADRM_DISABLE is set, so nothing that {program} does is counted")];
        }
        let mut remarks = Vec::new();
        if let Err(reason) = &self.shim {
            remarks.push(format!("nothing that {program} does will be counted: {reason}"));
            return remarks;
        }
        match &self.visibility {
            Visibility::Full => {}
            Visibility::OnlyChildren(reason) => remarks
                .push(format!("{program} will not be counted, only programs that it starts: it {reason}")),
            Visibility::Nothing(reason) => {
                remarks.push(format!("{program} will not be counted, nor what it starts: it {reason}"));
            }
        }
        if inside_limits(environment) {
            remarks.push(
                "this job is inside one with a limit and is counted there: it has no report of its own"
                    .to_owned(),
            );
        } else if environment.get("RADRM_SEGMENT").is_some_and(|value| !value.is_empty()) {
            remarks.push("this job is inside another one, which will not see it".to_owned());
        }
        remarks
    }
}

/// Returns true if this runs inside a job with a limit.
pub(crate) fn inside_limits(environment: &Environment) -> bool {
    let set = |name| environment.get(name).is_some_and(|value| !value.is_empty());
    set(QUOTA_VARIABLE) && set("RADRM_SEGMENT")
}

/// Returns true if the user switched the shim off.
fn switched_off(environment: &Environment) -> bool {
    environment.get("RADRM_DISABLE").is_some_and(|value| !value.is_empty() && value != b"0")
}
