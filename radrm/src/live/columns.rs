//! Lists in a terminal: whole columns, of which a narrow one does without some.

use radrm_text::{Column, Table, clean, fit};

/// A column of a list of rows.
pub(crate) struct Listed<R> {
    pub(crate) title: &'static str,
    pub(crate) column: fn(String) -> Column,
    pub(crate) cell: fn(&R) -> String,
}

/// Titles, then a line for each row. A narrow terminal does without the columns of `spared`, the first of these first; the one by
/// which is sorted stays.
pub(crate) fn list<R>(
    all: &[Listed<R>],
    spared: &[&str],
    rows: &[&R],
    sorted: &str,
    columns: usize,
) -> Vec<String> {
    let mut listed: Vec<&Listed<R>> = all.iter().collect();
    let mut spared = spared.iter().filter(|title| **title != sorted);
    loop {
        let title = |of: &Listed<R>| {
            (of.column)(if of.title == sorted { format!("{}v", of.title) } else { of.title.to_owned() })
        };
        let mut table = Table::new(listed.iter().map(|of| title(of))).within(columns, 12);
        for row in rows {
            table.row(listed.iter().map(|of| (of.cell)(row)));
        }
        let lines = table.lines();
        let is_too_wide = lines.iter().any(|line| line.chars().count() > columns);
        match spared.next() {
            Some(title) if is_too_wide => listed.retain(|of| of.title != *title),
            _ => return lines.iter().map(|line| fit(line, columns)).collect(),
        }
    }
}

/// A text in lines of a terminal's width: nothing of it is cut.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let text = &*clean(text);
    // Characters of other scripts may be two columns wide.
    let most = if text.is_ascii() { columns } else { columns / 2 }.max(1);
    if text.chars().count() <= most {
        return vec![fit(text, columns)];
    }
    let mut lines = Vec::new();
    for line in radrm_text::wrapped(text, most) {
        let characters: Vec<char> = line.chars().collect();
        let pieces = characters.chunks(most).map(|piece| fit(&piece.iter().collect::<String>(), columns));
        lines.extend(pieces);
    }
    lines
}

/// A part of a page that begins with this line, or as far below as there is something; the line at which it begins.
pub(crate) fn scrolled(page: &[String], scroll: usize, room: usize) -> (usize, &[String]) {
    let first = scroll.min(page.len().saturating_sub(room));
    (first, page.get(first..page.len().min(first + room)).unwrap_or_default())
}

/// A whole screen, drawn over the one before: nothing flickers. What is above the foot is cut or filled up.
pub(crate) fn screen(mut out: Vec<String>, foot: &str, columns: usize, lines: usize) -> String {
    out.truncate(lines.saturating_sub(2).max(1));
    out.resize(lines.saturating_sub(1).max(1), String::new());
    out.push(format!("\x1b[2m{}\x1b[0m", fit(foot, columns)));
    format!("\x1b[H{}\x1b[K\x1b[J", out.join("\x1b[K\n"))
}

/// The lines of a list on a screen, the chosen one marked and in sight.
pub(crate) fn with_choice(table: &[String], at: usize, columns: usize, room: usize) -> Vec<String> {
    let rows = room.saturating_sub(1).max(1);
    let first = (at + 1).saturating_sub(rows);
    let head = table.first().map(|head| format!("\x1b[1m{head}\x1b[0m"));
    let lines = table.iter().skip(1).enumerate().skip(first).take(rows);
    // Padded, so that the whole line is marked.
    let marked = lines.map(|(row, line)| match row == at {
        true => format!("\x1b[7m{line:<columns$}\x1b[0m"),
        false => line.clone(),
    });
    head.into_iter().chain(marked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_text_loses_nothing() {
        let text = format!("job 7 waits for {} and 学習 of alice", "x".repeat(100));
        for columns in [20, 33, 80] {
            let lines = wrapped(&text, columns);
            assert!(lines.iter().all(|line| line.chars().count() <= columns), "{lines:?}");
            let bare = |text: &str| text.replace(' ', "");
            assert_eq!(bare(&lines.concat()), bare(&text), "at {columns}");
        }
        assert_eq!(wrapped("", 80), [""]);
    }

    #[test]
    fn a_page_is_scrolled_to_its_end_and_no_further() {
        let page: Vec<String> = (0..10).map(|line| line.to_string()).collect();
        assert_eq!(scrolled(&page, 3, 4), (3, &page[3..7]));
        assert_eq!(scrolled(&page, 99, 4), (6, &page[6..]));
        assert_eq!(scrolled(&page, 5, 20), (0, &page[..]));
        assert_eq!(scrolled(&[], 5, 20), (0, &[][..]));
    }
}
