//! Tables with named columns.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

/// A row of a table.
pub struct Row {
    columns: Rc<HashMap<String, usize>>,
    values: csv::StringRecord,
}

impl Row {
    /// A cell.
    pub fn text(&self, column: &str) -> &str {
        let at = self.columns.get(column).unwrap_or_else(|| panic!("no column {column}"));
        self.values.get(*at).unwrap_or("")
    }

    /// A cell as a number; NaN if it is none.
    pub fn number(&self, column: &str) -> f64 {
        self.text(column).parse().unwrap_or(f64::NAN)
    }
}

/// Rows of a file.
pub fn read(path: &Path) -> Vec<Row> {
    let text = super::text(path);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names = reader.headers().expect("a header").clone();
    let columns = Rc::new(names.iter().enumerate().map(|(at, name)| (name.to_owned(), at)).collect());
    reader
        .records()
        .map(|record| Row { columns: Rc::clone(&columns), values: record.expect("a row") })
        .collect()
}
