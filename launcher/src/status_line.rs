//! `radrm-run --live`: one line at the bottom of the terminal while the program runs.
//!
//! The line is outside of the region that scrolls, so the program's output stays above it. A program that draws whole
//! screens draws over it.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use radrm_profile::Bytes;
use radrm_telemetry::{ProcessSnapshot, Segment};
use radrm_text::fit;
use radrm_text::number::grouped;
use radrm_text::output;
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

/// Between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// A lower terminal has no line to spare.
const MIN_ROWS: u16 = 4;

/// The line, while the terminal has room for it.
#[derive(Debug, Default)]
pub struct StatusLine {
    before: Option<(Instant, Totals)>,
    /// Rows of the terminal in which a line stands.
    rows: Option<u16>,
}

/// The figures of a moment, all processes and GPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    held: u64,
    launches: u64,
    refused: u64,
}

impl StatusLine {
    /// A line on standard error; `None` where that is not a terminal.
    #[must_use]
    pub fn new() -> Option<Self> {
        std::io::stderr().is_terminal().then(Self::default)
    }

    /// Draws the line again when it is due.
    pub fn poll(&mut self, segment: &Segment) {
        let now = Instant::now();
        if self.before.is_some_and(|(then, _)| now.duration_since(then) < LINE_INTERVAL) {
            return;
        }
        let Ok(processes) = segment.processes() else { return };
        let totals = Totals::of(&processes);
        let text = totals.text(self.before.map(|(then, before)| (now.duration_since(then), before)));
        self.before = Some((now, totals));
        self.draw(&text);
    }

    fn draw(&mut self, text: &str) {
        let terminal = std::io::stderr();
        let Ok(size) = tcgetwinsize(&terminal) else { return };
        // A program in the background that writes can be stopped for it.
        let in_foreground = tcgetpgrp(&terminal) == Ok(getpgrp());
        if size.ws_row < MIN_ROWS || !in_foreground {
            return;
        }
        let rows = size.ws_row;
        let mut out = String::new();
        if self.rows != Some(rows) {
            // The cursor may stand in the row that no longer scrolls: one row down and up again scrolls what is there,
            // and leaves the column. To set the region moves the cursor, so that it is saved and brought back.
            let region = rows - 1;
            out.push_str(&format!("\x1bD\x1b7\x1b[1;{region}r\x1b8\x1b[1A"));
            self.rows = Some(rows);
        }
        let text = fit(text, usize::from(size.ws_col).saturating_sub(1));
        out.push_str(&format!("\x1b7\x1b[{rows};1H\x1b[K\x1b[7m{text}\x1b[0m\x1b8"));
        output::screen_to_stderr(&out);
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if let Some(rows) = self.rows {
            output::screen_to_stderr(&format!("\x1b7\x1b[{rows};1H\x1b[K\x1b[r\x1b8"));
        }
    }
}

impl Totals {
    fn of(processes: &[ProcessSnapshot]) -> Self {
        let mut sum = Self::default();
        for process in processes {
            let launches = process.launches().saturating_add(process.graph_launches);
            sum.launches = sum.launches.saturating_add(launches);
            sum.refused = sum.refused.saturating_add(process.failures);
            for account in process.accounts.iter().filter(|_| process.is_running()) {
                sum.held = sum.held.saturating_add(account.total_now);
            }
        }
        sum
    }

    /// With the rates since `before`.
    fn text(self, before: Option<(Duration, Self)>) -> String {
        let mut text = format!("radrm: {} of GPU memory", Bytes(self.held));
        if let Some((time, before)) = before {
            let seconds = time.as_secs_f64().max(1e-3);
            let growth = (self.held as f64 - before.held as f64) / seconds;
            let launches = self.launches.saturating_sub(before.launches) as f64 / seconds;
            if growth.abs() >= 1.0 {
                let sign = if growth < 0.0 { "-" } else { "+" };
                text.push_str(&format!(", {sign}{}/s", Bytes(growth.abs() as u64)));
            }
            text.push_str(&format!(", {} launches/s", grouped(launches.round() as u64)));
        }
        if self.refused > 0 {
            let noun = if self.refused == 1 { "request" } else { "requests" };
            text.push_str(&format!(", {} refused {noun}", grouped(self.refused)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_what_is_held_and_rates_since_the_last() {
        let before = Totals { held: 1 << 30, launches: 100, refused: 0 };
        let now = Totals { held: 3 << 30, launches: 5100, refused: 2 };
        assert_eq!(now.text(None), "radrm: 3.00 GiB of GPU memory, 2 refused requests");
        assert_eq!(
            now.text(Some((Duration::from_secs(2), before))),
            "radrm: 3.00 GiB of GPU memory, +1.00 GiB/s, 2,500 launches/s, 2 refused requests"
        );
        assert_eq!(
            before.text(Some((Duration::ZERO, before))),
            "radrm: 1.00 GiB of GPU memory, 0 launches/s"
        );
    }
}
