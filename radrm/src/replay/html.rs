//! A page with who was on which GPU when, figures of all GPUs over time, and the jobs' completion times.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use radrm_analyzer::escaped;
use radrm_scheduler_core::Millis;
use radrm_scheduler_core::replay::{JobResult, Piece, TraceJob};

use super::Flags;
use super::jobs_out::rows;
use super::outcome::{Outcome, Traced};
use super::show::{cell, interval};
use crate::charts::{self, Chart, Line, STYLE, WIDTH};

const LANE: f64 = 13.0;
/// Bars in one picture; more would neither be seen nor be drawn in time.
const MAX_BARS: usize = 20_000;
/// GPUs in one picture.
const MAX_GPUS: usize = 64;

/// Programs in a legend.
const MAX_PROGRAMS: usize = 12;
/// Points of a distribution.
const MAX_POINTS: usize = 400;
/// Jobs in a table.
const MAX_ROWS: usize = 2000;

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
        distribution(&mut html, &own);
        curves(&mut html, &own, longest as f64, gpus.max(1) as f64);
        for outcome in own {
            let _ = write!(html, "<h3>{}</h3>", escaped(&outcome.policy.to_string()));
            picture(&mut html, outcome, &trace.jobs, longest as f64);
            legend(&mut html, &trace.jobs);
            jobs(&mut html, trace, outcome);
        }
    }
    html.push_str("</html>\n");
    html
}

/// Marks on a scale of so many hours.
fn marks(hours: f64) -> Vec<(f64, String)> {
    let step = charts::hours_between(hours);
    let mark = |n: u32| (f64::from(n) * step / hours, format!("{} h", f64::from(n) * step));
    (0..=(hours / step) as u32).map(mark).collect()
}

/// The part of the jobs that ended within a time of their submission, a line for each policy. Jobs that never ran are no part
/// of it.
fn distribution(html: &mut String, outcomes: &[&Outcome]) {
    let sorted = |outcome: &&Outcome| {
        let ran = outcome.first.jobs.iter().filter(|job| job.has_run());
        let mut hours: Vec<f64> = ran.map(JobResult::completion).map(in_hours).collect();
        hours.sort_by(f64::total_cmp);
        hours
    };
    let all: Vec<Vec<f64>> = outcomes.iter().map(sorted).collect();
    let longest = all.iter().filter_map(|hours| hours.last()).copied().fold(0.0, f64::max);
    if longest <= 0.0 {
        return;
    }
    let line = |(outcome, hours): (&&Outcome, &Vec<f64>)| {
        let pieces = steps(hours, longest);
        Line { name: outcome.policy.to_string(), pieces }
    };
    let lines = outcomes.iter().zip(&all).map(line).collect();
    let title = "Completion times: jobs that ended within so many hours of their submission, %";
    charts::draw(html, &Chart { title, most: Some(100.0), marks: &marks(longest), lines });
}

/// Steps of a distribution, in per cent, over parts of the longest time.
fn steps(sorted: &[f64], longest: f64) -> Vec<(f64, f64, f64)> {
    let count = sorted.len();
    let points = count.min(MAX_POINTS);
    let (mut pieces, mut from, mut value) = (Vec::new(), 0.0, 0.0);
    for ended in (1..=points).map(|point| point * count / points) {
        let to = sorted[ended - 1] / longest;
        if to > from {
            pieces.push((from, to, value));
            from = to;
        }
        value = ended as f64 / count as f64 * 100.0;
    }
    pieces.push((from, 1.0, value));
    pieces
}

fn in_hours(time: Millis) -> f64 {
    time.as_secs_f64() / 3600.0
}

/// Colours of the programs with the most jobs, and the mark of a failed attempt.
fn legend(html: &mut String, jobs: &[TraceJob]) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    jobs.iter().for_each(|job| *counts.entry(&job.name).or_default() += 1);
    let mut names: Vec<(&str, usize)> = counts.into_iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let more = names.len().saturating_sub(MAX_PROGRAMS);
    html.push_str("<p>A bar is a job on a GPU, and its colour the program:");
    for (name, count) in names.into_iter().take(MAX_PROGRAMS) {
        let _ = write!(
            html,
            r#" <span style="white-space:nowrap"><span style="color:hsl({} 55% 55%)">&#9632;</span> {} ({count})</span>"#,
            hue(name),
            escaped(name),
        );
    }
    if more > 0 {
        let _ = write!(html, ", and {more} more");
    }
    html.push_str(". <span style=\"color:#d33\">&#9633;</span> The attempt failed.</p>");
}

/// Results job by job, folded.
fn jobs(html: &mut String, trace: &Traced, outcome: &Outcome) {
    let heads = "<tr><th>job<th>submitted, h<th>start, h<th>end, h<th>GPUs<th>retries<th>out of memory<th>wait, h<th>completion, h";
    let _ = write!(html, "<details><summary>{} jobs</summary><table>{heads}", trace.jobs.len());
    let rows = rows(trace, outcome);
    let time = |time: Option<Millis>| time.map_or("-".to_owned(), |time| format!("{:.2}", in_hours(time)));
    for row in rows.iter().take(MAX_ROWS) {
        let devices: Vec<String> = row.devices.iter().map(u32::to_string).collect();
        let _ = write!(
            html,
            "<tr><td>{} {}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}",
            row.job,
            escaped(row.name),
            time(Some(row.submit)),
            time(row.start),
            time(row.end),
            if devices.is_empty() { format!("({})", row.gpus) } else { devices.join(", ") },
            row.retries,
            row.ooms,
            time(row.wait),
            time(row.completion),
        );
    }
    html.push_str("</table>");
    if rows.len() > MAX_ROWS {
        let _ = write!(html, "<p>{} more are not shown: --jobs-out has all.</p>", rows.len() - MAX_ROWS);
    }
    html.push_str("</details>");
}

/// Figures over time, a line for each policy, and the energy up to then.
fn curves(html: &mut String, outcomes: &[&Outcome], span: f64, gpus: f64) {
    let marks = marks(span / 3.6e6);
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

    #[test]
    fn a_distribution_has_a_step_for_each_time_at_which_jobs_ended() {
        let quarters = [(0.0, 0.25, 0.0), (0.25, 0.5, 25.0), (0.5, 1.0, 75.0), (1.0, 1.0, 100.0)];
        assert_eq!(steps(&[1.0, 2.0, 2.0, 4.0], 4.0), quarters);
        assert_eq!(steps(&[], 4.0), [(0.0, 1.0, 0.0)]);
        let many: Vec<f64> = (1..=100_000).map(f64::from).collect();
        let drawn = steps(&many, 100_000.0);
        assert!(drawn.len() <= MAX_POINTS + 1, "{}", drawn.len());
        assert_eq!(drawn.last(), Some(&(1.0, 1.0, 100.0)));
    }

    #[test]
    fn a_legend_names_the_programs_with_the_most_jobs() {
        let job = |name: String| TraceJob::new(name, Millis::ZERO, Millis::ZERO);
        let mut jobs: Vec<TraceJob> = (0..14).map(|n| job(format!("p{n:02}"))).collect();
        jobs.push(job("p13".into()));
        jobs.push(job("<i>".into()));
        let mut html = String::new();
        legend(&mut html, &jobs);
        assert!(
            html.contains("p13 (2)") && html.contains("&lt;i&gt; (1)") && !html.contains("<i>"),
            "{html}"
        );
        assert!(html.contains(", and 3 more"), "{html}");
    }
}
