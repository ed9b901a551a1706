//! Errors of making or opening a machine.

use std::path::PathBuf;

use radrm_base::reason;

/// Failure to make, open or describe a machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The description is not understood.
    #[error("emulated machine `{spec}`: {reason}")]
    Spec {
        /// Description that was given.
        spec: String,
        /// Reason that it is not understood.
        reason: String,
    },
    /// The file system refused.
    #[error("emulated machine {path}: {}", reason(source))]
    Io {
        /// File that was touched.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is not a machine, or one of another version.
    #[error("emulated machine {path}: {reason}")]
    Foreign {
        /// File that was opened.
        path: PathBuf,
        /// Reason that the file was not accepted.
        reason: String,
    },
    /// All process slots belong to living processes.
    #[error("emulated machine: more than {0} living processes")]
    Full(usize),
}

impl MachineError {
    pub(crate) fn io(path: &std::path::Path, source: impl Into<std::io::Error>) -> Self {
        Self::Io { path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn spec(spec: &str, reason: impl Into<String>) -> Self {
        Self::Spec { spec: spec.to_owned(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_reported_without_the_systems_number() {
        let error = MachineError::io("x.toml".as_ref(), std::io::Error::from_raw_os_error(2));
        assert_eq!(error.to_string(), "emulated machine x.toml: No such file or directory");
    }
}
