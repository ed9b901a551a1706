//! A page with who was on which GPU when, and figures of all GPUs over time.

use std::fmt::Write as _;

use radrm_analyzer::escaped;
use radrm_scheduler_core::replay::{Piece, TraceJob};

use super::Flags;
use super::outcome::{Outcome, Traced};
use super::show::{cell, interval};
use crate::charts::{self, Chart, Line, STYLE, WIDTH};

const LANE: f64 = 13.0;
/// Bars in one picture; more would neither be seen nor be drawn in time.
const MAX_BARS: usize = 20_000;
/// GPUs in one picture.
const MAX_GPUS: usize = 64;

/// A figure of all GPUs over time: its title, and its value by the number of GPUs.
type Curve = (&'static str, fn(&Piece, f64) -> f64);

const CURVES: [Curve; 3] = [
    ("GPU memory in use, mean of all GPUs, GiB", |piece, gpus| piece.memory / gpus / f64::from(1 << 30)),
    ("SM activity, mean of all GPUs, %", |piece, gpus| piece.smact / gpus * 100.0),
    ("Power of all GPUs, W", |piece, _| piece.watts),
];

/// The page. `gpus`: number of GPUs, instances left out.
pub(super) fn page(traces: &[Traced], outcomes: &[Outcome], order: &Flags, gpus: usize) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>radrm replay</title><style>{STYLE}</style>\
         <h1>Replay on {}</h1>",
        escaped(&order.gpus)
    );
    for (number, trace) in traces.iter().enumerate() {
        let _ = write!(html, "<h2>{}: {} jobs</h2>", escaped(&trace.name), trace.jobs.len());
        html.push_str("<table><tr><th>policy<th>makespan, h<th>mean JCT, h<th>OOMs<th>energy, MJ");
        let own: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.trace == number).collect();
        for outcome in &own {
            let _ = write!(
                html,
                "<tr><td>{}<td>{}<td>{}<td>{}<td>{}",
                escaped(&outcome.policy.to_string()),
                cell(interval(outcome, |m| m.makespan_s / 3600.0), 2),
                cell(interval(outcome, |m| m.jct_mean_s / 3600.0), 2),
                cell(interval(outcome, |m| m.ooms), 1),
                cell(interval(outcome, |m| m.energy_mj), 2),
            );
        }
        let _ = write!(
            html,
            "<tr><td>(bound)<td>{:.2}<td>{:.2}<td><td></table>",
            trace.bounds.makespan_s / 3600.0,
            trace.bounds.jct_mean_s / 3600.0
        );
        let longest = own.iter().map(|outcome| outcome.first.makespan.0).max().unwrap_or(1).max(1);
        curves(&mut html, &own, longest as f64, gpus.max(1) as f64);
        for outcome in own {
            let _ = write!(html, "<h3>{}</h3>", escaped(&outcome.policy.to_string()));
            picture(&mut html, outcome, &trace.jobs, longest as f64);
        }
    }
    html.push_str("</html>\n");
    html
}

/// Figures over time, a line for each policy, and the energy up to then.
fn curves(html: &mut String, outcomes: &[&Outcome], span: f64, gpus: f64) {
    let hours = span / 3.6e6;
    let step = charts::hours_between(hours);
    let mark = |n: u32| (f64::from(n) * step / hours, format!("{} h", f64::from(n) * step));
    let marks: Vec<(f64, String)> = (0..=(hours / step) as u32).map(mark).collect();
    let part = |piece: &Piece| {
        let part = |time: u64| (time as f64 / span).min(1.0);
        (part(piece.from.0), part(piece.to.0))
    };
    let mut draw = |title, value: &dyn Fn(&Piece, &mut f64) -> f64| {
        let line = |outcome: &&Outcome| {
            let mut sum = 0.0;
            let of = |piece: &Piece| {
                let (from, to) = part(piece);
                (from, to, value(piece, &mut sum))
            };
            let pieces = outcome.first.curve.pieces().iter().map(of).collect();
            Line { name: outcome.policy.to_string(), pieces }
        };
        let lines = outcomes.iter().map(line).collect();
        charts::draw(html, &Chart { title, most: None, marks: &marks, lines });
    };
    for (title, value) in CURVES {
        draw(title, &|piece, _| value(piece, gpus));
    }
    draw("Energy of all GPUs so far, MJ", &|piece, sum| {
        *sum += piece.watts * piece.to.minus(piece.from).as_secs_f64() / 1e6;
        *sum
    });
}

/// Bars over time, one row for each GPU, as many lanes in it as jobs were there at once.
fn picture(html: &mut String, outcome: &Outcome, jobs: &[TraceJob], span: f64) {
    let first = jobs.first().map_or(0, |job| job.arrival.0);
    let mut bars = outcome.first.bars.clone();
    bars.sort_by_key(|bar| (bar.device, bar.from, bar.job));
    let left_out = bars.len().saturating_sub(MAX_BARS);
    bars.truncate(MAX_BARS);
    // Only GPUs that were used have a row: with MIG the undivided ones never are.
    let mut rows: Vec<(u32, Vec<u64>)> = Vec::new();
    let mut placed = Vec::new();
    for bar in bars {
        if rows.last().is_none_or(|row| row.0 != bar.device) {
            if rows.len() == MAX_GPUS {
                break;
            }
            rows.push((bar.device, Vec::new()));
        }
        let Some((_, lanes)) = rows.last_mut() else { break };
        let lane = lanes.iter().position(|until| *until <= bar.from.0).unwrap_or(lanes.len());
        if lane == lanes.len() {
            lanes.push(0);
        }
        lanes[lane] = bar.to.0;
        placed.push((rows.len() - 1, lane, bar));
    }
    let mut tops = Vec::new();
    let mut y = 4.0;
    for (_, lanes) in &rows {
        tops.push(y);
        y += LANE * lanes.len() as f64 + 6.0;
    }
    let x = |time: f64| charts::x(time / span);
    let _ = write!(
        html,
        r#"<svg viewBox="0 0 {WIDTH} {:.0}" role="img" aria-label="Jobs on GPUs over time">"#,
        y + 22.0
    );
    let step = charts::hours_between(span / 3.6e6);
    let mut hour = 0.0;
    while hour * 3.6e6 <= span {
        let at = x(hour * 3.6e6);
        let _ = write!(
            html,
            r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="0" y2="{y:.0}"/><text x="{at:.1}" y="{:.0}" text-anchor="middle">{hour} h</text>"#,
            y + 14.0
        );
        hour += step;
    }
    for ((device, _), top) in rows.iter().zip(&tops) {
        let number = outcome.first.devices.get(*device as usize).map_or(*device, |id| id.0);
        let _ = write!(html, r#"<text x="4" y="{:.1}">GPU {number}</text>"#, top + 10.0);
    }
    for (row, lane, bar) in placed {
        let job = &jobs[bar.job as usize];
        let (from, to) =
            (x(bar.from.0.saturating_sub(first) as f64), x(bar.to.0.saturating_sub(first) as f64));
        let _ = write!(
            html,
            r#"<rect{} x="{from:.1}" y="{:.1}" width="{:.1}" height="{:.1}" fill="hsl({} 55% 55%)"><title>job {} {}{}: {} on this GPU, {} alone</title></rect>"#,
            if bar.failed { " class=\"failed\"" } else { "" },
            tops[row] + LANE * lane as f64,
            (to - from).max(0.6),
            LANE - 1.0,
            hue(&job.name),
            bar.job + 1,
            escaped(&job.name),
            if bar.failed { " (failed)" } else { "" },
            bar.to.minus(bar.from),
            job.duration,
        );
    }
    html.push_str("</svg>");
    if left_out > 0 {
        let _ = write!(html, "<p>{left_out} more are not shown.</p>");
    }
}

/// The same colour for all runs of a program.
fn hue(name: &str) -> u32 {
    name.bytes().fold(17u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte))) % 360
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_traces_cannot_break_the_page() {
        assert_eq!(escaped("<b>&\"\u{1}"), "&lt;b&gt;&amp;&quot;\u{fffd}");
        assert_eq!(hue("a"), hue("a"));
    }
}
