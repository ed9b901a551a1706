//! Tables whose columns line up.

use super::style::Paint;

/// A column's title and side.
pub(crate) struct Head(pub(crate) &'static str, pub(crate) Side);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
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
