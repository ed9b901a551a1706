//! Reasons that a sweep cannot be read, run or reported, as one sentence.

use std::fmt;
use std::io;
use std::path::PathBuf;

use radrm_base::reason;
use radrm_protocol::ProtocolError;
use radrm_text::clean;
use thiserror::Error;

use crate::job::NotAJob;

/// Reason that a sweep cannot be read, run or reported.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum SweepError {
    #[error("{}: {}", path.display(), reason(source))]
    Io { path: PathBuf, source: io::Error },
    // It may quote another user's file.
    #[error("{}: {at}: {}", path.display(), clean(&what.to_string()))]
    Wrong { path: PathBuf, at: Place, what: Wrong },
    #[error("{}: a sweep is a file .toml of radrm, or a file .csv, .yaml or .yml of radT", .0.display())]
    Kind(PathBuf),
    #[error("{}: more than {most} MiB", path.display())]
    TooLarge { path: PathBuf, most: u64 },
    #[error("{}: not UTF-8 text", .0.display())]
    NotText(PathBuf),
    #[error("{}: there is no run in it", .0.display())]
    Empty(PathBuf),
    #[error("{} belongs to another user, or other users may write to it: move the sweep to a directory of your own", .0.display())]
    Foreign(PathBuf),
    #[error("another radrm sweep runs this file{}", .0.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Busy(Option<u32>),
    #[error("{}: {source}", path.display())]
    State { path: PathBuf, source: rusqlite::Error },
    #[error(
        "{}: the state has version {found}, this radrm knows version {known}: use the radrm that wrote it",
        path.display()
    )]
    Version { path: PathBuf, found: i64, known: i64 },
    #[error("{}: no sweep of this file was started", .0.display())]
    NoState(PathBuf),
    #[error("{program} cannot be started: {}", reason(source))]
    Start { program: String, source: io::Error },
    #[error(
        "run {}: this machine has no MIG instance of profile {profile}: create one with `nvidia-smi mig -cgi {profile} -C`, or change the collocation",
        clean(run)
    )]
    NoMig { run: String, profile: String },
    #[error("group {}: {why}; `--through self` runs the sweep without radrmd", clean(group))]
    NotAJob { group: String, why: NotAJob },
    #[error(
        "run {} cannot be a job of radrmd: {why}; `--through self` runs the sweep without radrmd",
        clean(run)
    )]
    Specification { run: String, why: Box<dyn std::error::Error> },
    #[error("{} a job of radrmd: {why}", if *.count == 1 { "1 run is".to_owned() } else { format!("each of {} runs is", .count) })]
    Absent { count: usize, why: ProtocolError },
    #[error(
        "run {} is job {job} of a radrmd, and the one that answers does not know it: name the other's socket with \
         --socket, or start the run again with --rerun",
        clean(run)
    )]
    UnknownJob { run: String, job: u64 },
    #[error("group {}: its runs are not in the sweep's state any more", clean(.0))]
    Unrecorded(String),
    #[error(transparent)]
    Radrmd(ProtocolError),
    #[error("{} changed while its sweep ran: its column Status is not updated", .0.display())]
    Changed(PathBuf),
    #[error("signals cannot be caught: {}", reason(.0))]
    Signals(#[source] io::Error),
    #[error("the table cannot be written: {0}")]
    Csv(#[from] csv::Error),
}

/// Place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: u64,
    /// A column's name, or its number from 1.
    pub column: Option<Column>,
}

/// A column of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// Of a table.
    Named(&'static str),
    /// Of a text, from 1.
    At(u64),
}

impl Place {
    /// A line as a whole.
    #[must_use]
    pub fn line(line: u64) -> Self {
        Self { line, column: None }
    }

    /// Place of a byte in a text.
    #[must_use]
    pub fn of_byte(text: &str, byte: usize) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let line = before.matches('\n').count() as u64 + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
        Self { line, column: Some(Column::At(column)) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        match &self.column {
            Some(Column::Named(name)) => write!(f, ", column {name}"),
            Some(Column::At(number)) => write!(f, ", column {number}"),
            None => Ok(()),
        }
    }
}

/// Error at a place of a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum Wrong {
    #[error("there is no column {0}")]
    NoColumn(&'static str),
    #[error("the column {0} stands there twice")]
    ColumnTwice(String),
    #[error("the row has {found} cells, the header {expected}")]
    Cells { found: usize, expected: usize },
    #[error("the cell is empty")]
    EmptyCell,
    #[error("`{0}` is not a whole number")]
    Number(String),
    #[error("`{0}` names no GPU: write 0, 0+1 or a UUID")]
    Device(String),
    #[error("`{0}` is no collocation: write -, MPS or a MIG profile such as 3g.20gb")]
    Collocation(String),
    #[error("there is no listener {0}")]
    Listener(String),
    #[error("{0}")]
    Csv(String),
    #[error("{0}")]
    Yaml(String),
    #[error("there is no field {0}")]
    NoField(&'static str),
    #[error("the field {0} stands there twice")]
    FieldTwice(String),
    #[error("{what} is expected here")]
    Expected { what: &'static str },
    #[error("anchors and aliases are not supported: write the value out")]
    Alias,
    #[error("more than one document")]
    Documents,
    #[error("{0}")]
    Toml(String),
    #[error("the command is empty")]
    NoCommand,
    #[error("the command's quotes are not closed")]
    Quotes,
    #[error("{{{0}}} names no axis; a brace itself is written twice")]
    NoAxis(String),
    #[error("a brace is not closed; a brace itself is written twice")]
    Brace,
    #[error("the axis {0} changes nothing: write {{{0}}} in the command or in the environment")]
    Unused(String),
    #[error("an axis cannot be called {0}, which is a setting of a run")]
    Reserved(String),
    #[error("the axis {0} has no values")]
    NoValues(String),
    #[error("the axis {axis} has the value {value} twice")]
    ValueTwice { axis: String, value: String },
    #[error("a value is a text, a number or true or false")]
    NoValue,
    #[error("`from` must be below `to`, and with `log` above 0")]
    Range,
    #[error("a range without `step` is for a random search: add `step`, or `search = \"random\"`")]
    Continuous,
    #[error("a `step` must be above 0 and give at most {0} values")]
    Step(u64),
    #[error("a random search needs `samples`")]
    NoSamples,
    #[error("`{0}` is for a random search: add `search = \"random\"`")]
    OnlyRandom(&'static str),
    #[error("the ranges give fewer than {0} different samples")]
    FewSamples(u64),
    #[error("more than {0} runs")]
    TooMany(u64),
    #[error("at least 1 is needed")]
    Zero,
    #[error("`{0}` is no time: write 90s, 30m, 2h or 1-12:00:00")]
    Time(String),
    #[error("{0}")]
    Limit(String),
    #[error("member {member} does not state {axis}, which another member states")]
    MemberAxis { member: usize, axis: String },
    #[error("`{0}` names no metric that programs log: write NAME:min or NAME:max")]
    Metric(String),
    #[error("`reduction` is for `halving`, and at least 2")]
    Reduction,
    #[error("early stopping ends single runs: it cannot be used with runs that start together")]
    EarlyTogether,
    #[error("a group has no members")]
    NoMembers,
    #[error("there is another group of the name {0}")]
    GroupTwice(String),
    #[error("the name is empty, or has characters other than letters, digits, `-` and `_`")]
    Name,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_of_a_foreign_file_does_not_reach_the_terminal_as_it_is() {
        let what = Wrong::Number("1\u{1b}[2J".to_owned());
        let error = SweepError::Wrong { path: "t.csv".into(), at: Place::line(2), what };
        assert_eq!(error.to_string(), "t.csv: line 2: `1\\u{1b}[2J` is not a whole number");
    }
}
