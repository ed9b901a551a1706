//! Tables whose columns line up.

use super::style::{Paint, grouped};

/// A column's title and side.
pub(crate) struct Head(pub(crate) &'static str, pub(crate) Side);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Puts a table down.
pub(crate) fn put(out: &mut String, heads: &[Head], rows: &[Vec<String>], paint: Paint) {
    for line in lines(heads, rows, paint) {
        out.push_str(&line);
        out.push('\n');
    }
}

/// Says how much of a list is not shown, if anything is not.
pub(crate) fn more(out: &mut String, hidden: u64) {
    if hidden > 0 {
        out.push_str(&format!("  ... {} more\n", grouped(hidden)));
    }
}

/// Lines with the head first; two spaces between columns, two before.
pub(crate) fn lines(heads: &[Head], rows: &[Vec<String>], paint: Paint) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heads[column].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: &[&str]| {
        let mut out = String::from(" ");
        for (column, cell) in cells.iter().enumerate().take(heads.len()) {
            let width = widths[column];
            out.push(' ');
            match heads[column].1 {
                Side::Left => out.push_str(&format!("{cell:<width$}")),
                Side::Right => out.push_str(&format!("{cell:>width$}")),
            }
            out.push(' ');
        }
        out.trim_end().to_owned()
    };
    let titles: Vec<&str> = heads.iter().map(|head| head.0).collect();
    let mut out = vec![paint.dim(&line(&titles))];
    for row in rows {
        out.push(line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    out
}
