//! Reasons that a text is not a trace.

/// A replay of more devices is a slip of the pen.
pub const MAX_DEVICES: usize = 1_000_000;

/// Reason that a text is not a trace.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No known form.
    #[error(
        "this is not a trace that is known: its first line is \"{0}\" (thesis CSV, CARMA's scripts, openb pods, PAI tasks, \
         run times, SWF, Philly's JSON, Helios and `sacct --parsable2` are)"
    )]
    Unknown(String),
    /// More devices than are replayed.
    #[error("there are more than {MAX_DEVICES} GPUs in it")]
    TooManyDevices,
    /// Not CSV.
    #[error("{0}")]
    Csv(#[from] csv::Error),
    /// Not the JSON that is expected.
    #[error("{0}")]
    Json(serde_json::Error),
    /// A value is wrong.
    #[error("line {line}: {column} is \"{value}\", which is not a {wanted}")]
    Value {
        /// Counted from 1.
        line: u64,
        /// The column's name.
        column: String,
        /// Text that stands there.
        value: String,
        /// Description of the expected value.
        wanted: &'static str,
    },
    /// A table that has a part of a form's columns.
    #[error("it has columns of {form} and lacks {lacking}; docs/trace-columns.md has all, with their units")]
    Nearly {
        /// The form.
        form: &'static str,
        /// The missing columns, in words.
        lacking: String,
    },
    /// A column is missing.
    #[error("the column {0} is missing")]
    Column(String),
    /// Several columns are missing.
    #[error("the columns {0} are missing")]
    Columns(String),
    /// There are no jobs.
    #[error("there are no jobs in it{0}")]
    Empty(String),
}
