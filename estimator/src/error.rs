//! Errors of training or reading a learned model.

/// Error in training data or in a model file; each message is one sentence.
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
        /// Name of the items that are too few or too many.
        what: &'static str,
        /// Rows.
        expected: usize,
        /// Number that was given.
        found: usize,
    },
    /// Too few rows to learn from.
    #[error("{found} {what} are too few: at least {needed} are needed")]
    TooFew {
        /// Kind of rows of which there are too few.
        what: &'static str,
        /// The least that are enough.
        needed: usize,
        /// Number that was given.
        found: usize,
    },
    /// Too few rows to learn from some and to estimate the others.
    #[error("{found} {what} are too few: at least {needed} are needed, as one in {folds} is held out")]
    TooFewToHoldOut {
        /// Kind of rows of which there are too few.
        what: &'static str,
        /// The least that may be enough.
        needed: usize,
        /// Number that was given.
        found: usize,
        /// Parts, of which each is held out once.
        folds: usize,
    },
    /// A value that arithmetic cannot go on with.
    #[error("{what} of row {row} is not a finite number")]
    NotFinite {
        /// Name of the value.
        what: String,
        /// The row, counted from 0.
        row: usize,
    },
    /// A setting outside of its range.
    #[error("{0}")]
    Setting(&'static str),
    /// The text is not a model file at all.
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
