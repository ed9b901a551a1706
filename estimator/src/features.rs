//! Features as plain data: rows of numbers under named columns.

use crate::Error;

/// Rows of numbers under named columns. NaN stands for a value that is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    names: Vec<String>,
    /// Row after row.
    values: Vec<f64>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), values: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// The row has another number of values than the table has columns, or one of them is infinite.
    pub fn push(&mut self, row: &[f64]) -> Result<(), Error> {
        if row.len() != self.names.len() {
            return Err(Error::Width { expected: self.names.len(), found: row.len() });
        }
        if let Some(at) = row.iter().position(|value| value.is_infinite()) {
            return Err(Error::NotFinite { what: self.names[at].clone(), row: self.len() });
        }
        self.values.extend_from_slice(row);
        Ok(())
    }

    /// Rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len() / self.names.len().max(1)
    }

    /// Returns true if there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Names of the columns, in order.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// A row.
    ///
    /// # Panics
    /// There is no such row.
    #[must_use]
    pub fn row(&self, at: usize) -> &[f64] {
        &self.values[at * self.names.len()..(at + 1) * self.names.len()]
    }

    /// The table of some rows, in the order given.
    ///
    /// # Panics
    /// There is no such row.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let values = rows.iter().flat_map(|at| self.row(*at)).copied().collect();
        Self { names: self.names.clone(), values }
    }
}
