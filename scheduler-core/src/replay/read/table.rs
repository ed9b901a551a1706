//! A text as a table: columns by name.

use std::collections::BTreeMap;
use std::io::Read;

use csv::{Reader, ReaderBuilder, StringRecord};

use super::error::ReadError;
use crate::units::{Bytes, Millis};

/// Columns by name.
pub(in crate::replay) struct Table {
    columns: BTreeMap<String, usize>,
    pub(in crate::replay) rows: Vec<StringRecord>,
}

impl Table {
    pub(in crate::replay) fn read(text: &str) -> Result<Self, ReadError> {
        Self::of(ReaderBuilder::new().trim(csv::Trim::All).flexible(false).from_reader(text.as_bytes()))
    }

    pub(in crate::replay) fn of(mut reader: Reader<impl Read>) -> Result<Self, ReadError> {
        let columns = reader
            .headers()?
            .iter()
            .enumerate()
            .map(|(at, name)| (name.trim_start_matches('\u{feff}').to_owned(), at));
        let columns = columns.collect();
        let rows = reader.records().collect::<Result<Vec<_>, _>>()?;
        Ok(Self { columns, rows })
    }

    pub(in crate::replay) fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// Checks that there are these columns.
    pub(in crate::replay) fn require(&self, columns: &[&str]) -> Result<(), ReadError> {
        match missing(columns, |column| self.has(column)) {
            None => Ok(()),
            Some((one, 1)) => Err(ReadError::Column(one)),
            Some((several, _)) => Err(ReadError::Columns(several)),
        }
    }

    pub(in crate::replay) fn text<'a>(
        &self,
        row: &'a StringRecord,
        column: &str,
    ) -> Result<&'a str, ReadError> {
        let at = self.columns.get(column).ok_or_else(|| ReadError::Column(column.to_owned()))?;
        Ok(row.get(*at).unwrap_or_default())
    }

    /// A number that is not negative; `None` if the field is empty.
    pub(in crate::replay) fn number(
        &self,
        row: &StringRecord,
        column: &str,
    ) -> Result<Option<f64>, ReadError> {
        let value = self.text(row, column)?;
        if value.is_empty() {
            return Ok(None);
        }
        match value.parse::<f64>() {
            Ok(number) if number.is_finite() && number >= 0.0 => Ok(Some(number)),
            _ => Err(ReadError::Value {
                line: row.position().map_or(0, csv::Position::line),
                column: column.to_owned(),
                value: value.to_owned(),
                wanted: "number that is not negative",
            }),
        }
    }
}

/// The columns that are not there, in words, and their number; `None`: there are all.
pub(super) fn missing(columns: &[&str], has: impl Fn(&str) -> bool) -> Option<(String, usize)> {
    let missing: Vec<&str> = columns.iter().copied().filter(|column| !has(column)).collect();
    let words = match missing.as_slice() {
        [] => return None,
        [one] => (*one).to_owned(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    };
    Some((words, missing.len()))
}

/// A time in seconds, as tables have it.
pub(super) fn seconds(value: f64) -> Millis {
    Millis((value * 1000.0).round() as u64)
}

pub(in crate::replay) fn mib(value: f64) -> Bytes {
    Bytes((value * f64::from(1 << 20)) as u64)
}

/// The columns with estimates, and whose those are: names are of small letters, however a table or a paper writes them.
pub(in crate::replay) fn estimators(table: &Table) -> Vec<(String, String)> {
    let of = |column: &String| {
        Some((column.clone(), column.strip_prefix("est_")?.trim_end_matches("_mib").to_ascii_lowercase()))
    };
    table.columns.keys().filter_map(of).collect()
}
