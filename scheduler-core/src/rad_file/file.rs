//! A `.rad` file's content.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// In which form a file was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A script with `#RADRM` lines.
    Ours,
    /// The thesis's printed form.
    Printed,
    /// The form that the thesis's code reads.
    Positional,
    /// A script that begins with `#!` and has no options.
    Plain,
}

/// Command line or script of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Run {
    /// A line for the shell, after a set-up line such as `conda activate ENV`.
    Line {
        /// The set-up, if there is one.
        setup: Option<String>,
        /// The command.
        command: String,
    },
    /// The whole file is a script.
    Script {
        /// Its text.
        text: String,
    },
}

/// A `.rad` file's content. What it does not say is `None`, or empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RadFile {
    /// The form it was in.
    pub form: Form,
    /// Command line or script to run.
    pub run: Run,
    /// File with the model's summary.
    pub model: Option<String>,
    /// Dataset.
    pub dataset: Option<String>,
    /// Samples in a batch.
    pub batch: Option<u32>,
    /// No neighbours.
    pub exclusive: bool,
    /// GPUs at the same time.
    pub gpus: u16,
    /// Peak of an equal run on each GPU.
    pub measured: Option<Bytes>,
    /// Estimates by name.
    pub estimates: BTreeMap<String, Bytes>,
    /// Options of our form, in their order.
    pub options: Vec<RadOption>,
}

/// Error in a file: the line, from 1, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct RadError {
    /// Counted from 1.
    pub line: usize,
    /// One sentence.
    pub what: String,
}

/// An option, as it stands there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RadOption {
    /// Its line, from 1.
    pub line: usize,
    /// `--NAME` or `--NAME=VALUE`.
    pub word: String,
}

impl RadOption {
    /// `--NAME`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.word.split_once('=').map_or(self.word.as_str(), |(name, _)| name)
    }
}

pub(super) fn wrong<T>(line: usize, what: impl Into<String>) -> Result<T, RadError> {
    Err(RadError { line, what: what.into() })
}

impl RadFile {
    pub(super) fn new(form: Form, run: Run) -> Self {
        Self {
            form,
            run,
            model: None,
            dataset: None,
            batch: None,
            exclusive: false,
            gpus: 1,
            measured: None,
            estimates: BTreeMap::new(),
            options: Vec::new(),
        }
    }
}
