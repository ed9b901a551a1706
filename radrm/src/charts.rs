//! Line charts over time in pages, as SVG without a script.

use std::fmt::Write as _;

use radrm_analyzer::escaped;

/// Styles of pages with charts.
pub(crate) const STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:1160px;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right}td:first-child,th:first-child{text-align:left}\
th{border-bottom:1px solid #8888}svg{width:100%;height:auto}svg text{font-size:11px;fill:currentColor}\
.grid{stroke:#8884}.line{fill:none;stroke-width:1.5}.failed{stroke:#d33;stroke-width:1.5}rect{stroke:#fff6;stroke-width:.4}";

/// Width of all pictures.
pub(crate) const WIDTH: f64 = 1100.0;
/// Room for labels at the left.
pub(crate) const LEFT: f64 = 60.0;
const HEIGHT: f64 = 150.0;
/// Room at the right.
const RIGHT: f64 = 10.0;

/// A line of a chart.
pub(crate) struct Line {
    /// Its name in the legend.
    pub(crate) name: String,
    /// Begin and end of each piece of time, parts of the chart's time, and the mean over it, in order of time. Pieces that do
    /// not touch leave a gap.
    pub(crate) pieces: Vec<(f64, f64, f64)>,
}

/// Chart over time.
pub(crate) struct Chart<'a> {
    /// Quantity, with its unit.
    pub(crate) title: &'a str,
    /// Upper end of the scale, if all lines have one; else that of the highest value.
    pub(crate) most: Option<f64>,
    /// Vertical lines with their labels: part of the chart's time.
    pub(crate) marks: &'a [(f64, String)],
    /// Lines, in the order of the legend.
    pub(crate) lines: Vec<Line>,
}

/// Hours between two marks of a time of so many hours: at most 14 marks.
pub(crate) fn hours_between(hours: f64) -> f64 {
    let steps = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 24.0, 168.0, 720.0];
    steps.into_iter().find(|step| hours / step <= 14.0).unwrap_or(8760.0)
}

/// Place of a part of the time.
pub(crate) fn x(part: f64) -> f64 {
    LEFT + part * (WIDTH - LEFT - RIGHT)
}

/// Appends a chart; none where there is nothing to show.
pub(crate) fn draw(html: &mut String, chart: &Chart<'_>) {
    let values = || chart.lines.iter().flat_map(|line| &line.pieces).map(|piece| piece.2);
    if values().next().is_none() {
        return;
    }
    let most = chart.most.unwrap_or_else(|| nice(values().fold(0.0, f64::max)));
    let y = |value: f64| 6.0 + (1.0 - (value / most).clamp(0.0, 1.0)) * HEIGHT;
    let title = escaped(chart.title);
    let bottom = HEIGHT + 6.0;
    let _ = write!(
        html,
        r#"<h3>{title}</h3><svg viewBox="0 0 {WIDTH} {:.0}" role="img" aria-label="{title}">"#,
        bottom + 34.0
    );
    for (at, label) in chart.marks {
        let at = x(*at);
        let _ = write!(
            html,
            r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="0" y2="{bottom:.0}"/><text x="{at:.1}" y="{:.0}" text-anchor="middle">{}</text>"#,
            bottom + 14.0,
            escaped(label)
        );
    }
    for part in [0.0, 0.5, 1.0] {
        let at = y(most * part);
        let _ = write!(
            html,
            r#"<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{at:.1}" y2="{at:.1}"/><text x="4" y="{:.1}">{}</text>"#,
            at + 4.0,
            number(most * part)
        );
    }
    let mut left = LEFT;
    for (number, line) in chart.lines.iter().enumerate() {
        let colour = format!("hsl({} 60% 50%)", number * 137 % 360);
        let _ = write!(html, r#"<path class="line" stroke="{colour}" d="{}"/>"#, path(&line.pieces, y));
        let name = escaped(&line.name);
        let _ = write!(
            html,
            r#"<circle cx="{:.0}" cy="{:.0}" r="5" fill="{colour}"/><text x="{:.0}" y="{:.0}">{name}</text>"#,
            left + 5.0,
            bottom + 25.0,
            left + 14.0,
            bottom + 29.0
        );
        left += 30.0 + 7.0 * line.name.chars().count() as f64;
    }
    html.push_str("</svg>");
}

/// Steps through the pieces.
fn path(pieces: &[(f64, f64, f64)], y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    let mut end = f64::NEG_INFINITY;
    for (from, to, value) in pieces {
        let joins = (from - end).abs() < 1e-9;
        let word = if joins { 'L' } else { 'M' };
        let _ = write!(path, "{word}{:.1} {:.1}H{:.1}", x(*from), y(*value), x(*to));
        end = *to;
    }
    path
}

/// The next of 1, 2 and 5 times a power of ten.
fn nice(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= value).unwrap_or(value)
}

fn number(value: f64) -> String {
    if value == 0.0 || value >= 10.0 {
        return format!("{value:.0}");
    }
    let digits = if value < 0.1 { 4 } else { 2 };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_ends_at_a_round_number() {
        for (value, end) in [(0.0, 1.0), (0.7, 1.0), (1.1, 2.0), (19.0, 20.0), (38.0, 50.0), (0.03, 0.05)] {
            assert!((nice(value) - end).abs() < 1e-9, "{value}: {}", nice(value));
        }
    }

    #[test]
    fn a_gap_in_the_figures_is_a_gap_in_the_line() {
        let pieces = [(0.0, 0.1, 1.0), (0.1, 0.2, 2.0), (0.5, 0.6, 3.0)];
        let path = path(&pieces, |value| value);
        assert_eq!(path, "M60.0 1.0H163.0L163.0 2.0H266.0M575.0 3.0H678.0");
    }

    #[test]
    fn names_cannot_break_the_page_and_a_chart_of_nothing_is_none() {
        let mut html = String::new();
        let line = |pieces| Line { name: "<b>".into(), pieces };
        draw(&mut html, &Chart { title: "t", most: None, marks: &[], lines: vec![line(Vec::new())] });
        assert_eq!(html, "");
        let lines = vec![line(vec![(0.0, 1.0, 5.0)])];
        draw(&mut html, &Chart { title: "t", most: None, marks: &[(0.5, "<i>".into())], lines });
        assert!(html.contains("&lt;b&gt;") && html.contains("&lt;i&gt;") && html.contains("5.00"), "{html}");
        assert!(!html.contains("<b>") && !html.contains("<i>"), "{html}");
    }
}
