//! `radrm stats --html`: figures of jobs and curves of GPUs, as one page.

use std::fmt::Write as _;

use radrm_analyzer::escaped;
use radrm_protocol::wire::{CurvePoint, CurvesRow, GpuCurve, StatsRow};

use super::stats::{figures, gpu_cells};
use super::text::time;
use crate::charts::{self, Chart, Line};

/// A figure over time: its title, and its value at a point.
type Curve = (&'static str, fn(&CurvePoint) -> Option<f64>);

const CURVES: [Curve; 3] = [
    ("GPU memory in use, GiB", |point| Some(point.mean_used / f64::from(1 << 30))),
    ("SM activity, %", |point| point.mean_smact.map(|part| part * 100.0)),
    ("Power, W", |point| point.mean_power_w),
];

/// The page. `now_ms`: end of the curves, ms since 1970; `since_ms` the length of time that was asked for, `None`: all.
pub(super) fn page(stats: &StatsRow, curves: &CurvesRow, now_ms: u64, since_ms: Option<u64>) -> String {
    let of = since_ms.map_or("all time".to_owned(), |span| format!("the last {}", time(span)));
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>radrm stats</title><style>{}</style>\
         <h1>Jobs and GPUs of {of}</h1>",
        charts::STYLE
    );
    if let Some(spec) = &stats.emulated {
        let _ = write!(
            html,
            "<p><strong>GPUs are emulated ({})</strong>: their SM activity, power and energy are not measured.</p>",
            escaped(spec)
        );
    }
    html.push_str("<table><tr><th>jobs<th>");
    for (name, value) in figures(stats) {
        let _ = write!(html, "<tr><td>{}<td>{}", escaped(name), escaped(&value));
    }
    html.push_str(
        "</table><h2>GPUs</h2><table><tr><th>GPU<th>mean memory<th>mean SM activity<th>mean power<th>energy",
    );
    for gpu in &stats.gpus {
        let [uuid, cells @ ..] = gpu_cells(gpu);
        let _ = write!(html, "<tr><td>{}", escaped(&uuid));
        cells.iter().for_each(|cell| {
            let _ = write!(html, "<td>{}", escaped(cell));
        });
    }
    html.push_str("</table>");
    let begin = curves.from_ms;
    let span = now_ms.saturating_sub(begin).max(curves.step_ms).max(1) as f64;
    let marks = marks(span);
    let part = |at: u64| (at.saturating_mul(curves.step_ms) as f64 / span).min(1.0);
    for (title, value) in CURVES {
        let line = |gpu: &GpuCurve| Line {
            name: name(gpu),
            pieces: gpu
                .points
                .iter()
                .filter_map(|point| Some((part(point.at), part(point.at + 1), value(point)?)))
                .collect(),
        };
        let lines = curves.gpus.iter().map(line).collect();
        charts::draw(&mut html, &Chart { title, most: None, marks: &marks, lines });
    }
    let sum = |gpu: &GpuCurve| {
        let mut sum = 0.0;
        let mut add = |point: &CurvePoint| {
            sum += point.energy_mj?;
            Some((part(point.at), part(point.at + 1), sum))
        };
        Line { name: name(gpu), pieces: gpu.points.iter().filter_map(&mut add).collect() }
    };
    let lines = curves.gpus.iter().map(sum).collect();
    charts::draw(
        &mut html,
        &Chart { title: "Energy since the left end, MJ", most: None, marks: &marks, lines },
    );
    if curves.gpus.is_empty() {
        html.push_str("<p>radrmd has no figures of GPUs of that time.</p>");
    } else {
        let _ = write!(html, "<p>Each step is a mean over {}.</p>", time(curves.step_ms));
    }
    html.push_str("</html>\n");
    html
}

fn name(gpu: &GpuCurve) -> String {
    gpu.index.map_or_else(|| gpu.gpu.clone(), |index| format!("GPU {index}"))
}

/// Times before now, for a time of so many ms that ends now.
fn marks(span: f64) -> Vec<(f64, String)> {
    let hours = span / 3.6e6;
    let step = charts::hours_between(hours);
    let label = |before: f64| match before {
        0.0 => "now".to_owned(),
        days if days >= 48.0 => format!("-{} d", days / 24.0),
        hours => format!("-{hours} h"),
    };
    let count = (hours / step).floor() as u32;
    (0..=count)
        .rev()
        .map(|n| f64::from(n) * step)
        .map(|before| (1.0 - before / hours, label(before)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_protocol::wire::GpuStats;

    const HOUR: u64 = 3_600_000;

    fn curves() -> CurvesRow {
        let point = |at| CurvePoint {
            at,
            mean_used: 8.0 * f64::from(1 << 30),
            mean_smact: Some(0.25),
            mean_power_w: Some(300.0),
            energy_mj: Some(1.08),
            ..CurvePoint::default()
        };
        let points = vec![point(0), point(1), point(3)];
        let gpu = GpuCurve { gpu: "GPU-a".into(), index: Some(3), total: 80 << 30, points };
        CurvesRow { from_ms: 100 * HOUR, step_ms: HOUR, gpus: vec![gpu], emulated: None }
    }

    #[test]
    fn a_page_has_the_figures_of_the_text_and_a_curve_of_each_kind() {
        let gpu = GpuStats { gpu: "GPU-a".into(), energy_mj: Some(3.24), ..GpuStats::default() };
        let stats = StatsRow { jobs: 12, succeeded: 11, failed: 1, gpus: vec![gpu], ..StatsRow::default() };
        let html = page(&stats, &curves(), 104 * HOUR, Some(4 * HOUR));
        let titles =
            ["GPU memory in use, GiB", "SM activity, %", "Power, W", "Energy since the left end, MJ"];
        for part in titles.into_iter().chain(["<td>12", "3.240 MJ", "GPU 3", ">-4 h<", ">now<"]) {
            assert!(html.contains(part), "{part}: {html}");
        }
        // Its energy has come to 3.24 MJ of 5 by the end: two lines up to the gap, and one behind it.
        assert!(html.contains("M60.0 123.6H317.5L317.5 91.2H575.0M832.5 58.8H1090.0"), "{html}");
    }

    #[test]
    fn emulated_gpus_have_a_label_and_no_curves_of_what_is_not_measured() {
        let mut curves = curves();
        for point in &mut curves.gpus[0].points {
            (point.mean_smact, point.mean_power_w, point.energy_mj) = (None, None, None);
        }
        let stats = StatsRow { emulated: Some("1xH200".into()), ..StatsRow::default() };
        let html = page(&stats, &curves, 104 * HOUR, None);
        assert!(html.contains("emulated (1xH200)") && html.contains("GPU memory in use"), "{html}");
        assert!(!html.contains("Power, W") && !html.contains("<h3>SM activity"), "{html}");
        let none = page(&StatsRow::default(), &CurvesRow::default(), HOUR, None);
        assert!(none.contains("no figures of GPUs"), "{none}");
    }
}
