//! Why training or reading a model fails.

/// What is wrong with training data or with a model file; each message is one sentence.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A row has another number of values than there are columns.
    #[error("a row has {found} values, the table has {expected} columns")]
    Width {
        /// Columns of the table.
        expected: usize,
        /// Values of the row.
        found: usize,
    },
    /// As many targets or groups as rows are needed.
    #[error("{found} {what} for {expected} rows")]
    Length {
        /// What there are too few or too many of.
        what: &'static str,
        /// Rows.
        expected: usize,
        /// Those that were given.
        found: usize,
    },
    /// Too few rows to learn from.
    #[error("{found} {what} are too few: at least {needed} are needed")]
    TooFew {
        /// What there are too few of.
        what: &'static str,
        /// The least that are enough.
        needed: usize,
        /// Those that were given.
        found: usize,
    },
    /// A value that arithmetic cannot go on with.
    #[error("{what} of row {row} is not a finite number")]
    NotFinite {
        /// Which value.
        what: String,
        /// The row, counted from 0.
        row: usize,
    },
    /// A setting outside of its range.
    #[error("{0}")]
    Setting(&'static str),
    /// The text is no model file at all.
    #[error("the text is not a model file: {0}")]
    Json(String),
    /// A version that this program cannot read.
    #[error("the model file has version {found}, this program reads version {known}")]
    Version {
        /// Version in the file.
        found: u64,
        /// Version that can be read.
        known: u64,
    },
    /// A model file that contradicts itself.
    #[error("the model file is malformed: {0}")]
    Malformed(String),
}
