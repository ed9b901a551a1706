//! The picture of a GPU's memory over time, as SVG that stands in the page.
//! Colours come from the page's style sheet, so that they follow its theme.

mod load;

pub(crate) use load::{Line, load};

use radrm_profile::model::{GpuIndex, Kind, Profile};
use radrm_profile::steps::{Column, Step, columns};
use radrm_profile::{Bytes, Nanos};
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 30.0;

/// Columns of the picture: about two units of its width each.
const COLUMNS: usize = 435;

/// Spans that show their figures under the pointer; fewer than columns, since
/// each costs some hundred bytes of the page.
const HINTS: usize = 87;

/// Mean width of a character of a label.
const CHARACTER: f64 = 6.6;

/// The picture, or nothing if no memory was ever held.
pub(crate) fn memory(profile: &Profile, gpu: GpuIndex, steps: &[Step]) -> Option<String> {
    let end = profile.duration().max(steps.last().map_or(Nanos::ZERO, |step| step.t)).max(Nanos(1));
    let columns = columns(steps, end, COLUMNS);
    let nvml = nvml_points(profile, gpu);
    let highest = columns.iter().map(|column| column.total.0).max().unwrap_or(0);
    if highest == 0 {
        return None;
    }
    let top = nvml.iter().filter_map(|point| point.1).max().map_or(0, Bytes::get).max(highest);
    let picture = Picture { end: end.0 as f64, top: top as f64 * 1.04 };

    let mut svg = String::new();
    let _ = write!(
        svg,
        r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Memory of GPU {} over {end}; peak {}">"#,
        gpu.0,
        Bytes(highest)
    );
    picture.grid(&mut svg);
    picture.bands(&mut svg, &columns);
    picture.nvml_line(&mut svg, &nvml);
    picture.refusals(&mut svg, profile, gpu);
    picture.hints(&mut svg, steps, end);
    svg.push_str("</svg>");
    Some(svg)
}

/// What NVML reports that this job holds, over time; `None` where it lists none of its processes.
fn nvml_points(profile: &Profile, gpu: GpuIndex) -> Vec<(Nanos, Option<Bytes>)> {
    let samples = profile.samples.iter().filter(|sample| sample.gpu == gpu);
    samples.map(|s| (s.t, s.processes.iter().filter_map(|p| p.used).reduce(|a, b| a + b))).collect()
}

struct Picture {
    end: f64,
    top: f64,
}

impl Picture {
    fn x(&self, t: Nanos) -> f64 {
        LEFT + (t.0 as f64 / self.end).min(1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, bytes: u64) -> f64 {
        HEIGHT - BOTTOM - (bytes as f64 / self.top).min(1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn grid(&self, svg: &mut String) {
        let step = byte_step(self.top);
        let mut value = 0u64;
        while (value as f64) <= self.top {
            let y = self.y(value);
            let (from, to, label) = (LEFT, WIDTH - RIGHT, Bytes(value));
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{from}" x2="{to}" y1="{y:.1}" y2="{y:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT - 8.0,
                y + 4.0,
                tick(label)
            );
            let Some(next) = value.checked_add(step) else { break };
            value = next;
        }
        let step = time_step(self.end);
        let mut value = 0u64;
        while value as f64 <= self.end {
            let x = self.x(Nanos(value));
            let anchor = if x > WIDTH - 40.0 { "end" } else { "middle" };
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{:.1}" y2="{:.1}"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 5.0,
                HEIGHT - BOTTOM + 19.0,
                time_tick(Nanos(value), step)
            );
            let Some(next) = value.checked_add(step) else { break };
            value = next;
        }
    }

    /// The kinds of device memory, one on top of the other.
    fn bands(&self, svg: &mut String, columns: &[Column]) {
        let mut below = vec![0u64; columns.len()];
        let mut labels = String::new();
        for kind in Kind::DEVICE {
            let above: Vec<u64> = columns
                .iter()
                .zip(&below)
                .map(|(column, below)| below.saturating_add(column.kinds[kind.index()].0))
                .collect();
            if above != below {
                let _ = write!(
                    svg,
                    r#"<path class="kind {}" d="{}"/>"#,
                    kind.key(),
                    self.band(columns, &below, &above)
                );
                self.label(&mut labels, kind, columns, &below, &above);
            }
            below = above;
        }
        svg.push_str(&labels);
    }

    /// Along the upper edge in steps, and back along the lower one.
    fn band(&self, columns: &[Column], below: &[u64], above: &[u64]) -> String {
        let right = |at: usize| columns.get(at + 1).map_or(WIDTH - RIGHT, |next| self.x(next.t));
        let mut path = String::new();
        let mut last = f64::NAN;
        for (at, column) in columns.iter().enumerate() {
            let y = self.y(above[at]);
            if at == 0 {
                let _ = write!(path, "M{:.1} {y:.1}", self.x(column.t));
            } else if (y - last).abs() >= 0.05 {
                let _ = write!(path, "H{:.1}V{y:.1}", self.x(column.t));
            }
            last = y;
        }
        let _ = write!(path, "H{:.1}", WIDTH - RIGHT);
        last = f64::NAN;
        for at in (0..columns.len()).rev() {
            let y = self.y(below[at]);
            if last.is_nan() {
                let _ = write!(path, "V{y:.1}");
            } else if (y - last).abs() >= 0.05 {
                let _ = write!(path, "H{:.1}V{y:.1}", right(at));
            }
            last = y;
        }
        let _ = write!(path, "H{LEFT:.1}Z");
        path
    }

    /// The kind's name inside its band, where the band is thick and long
    /// enough: colour is not the only key.
    fn label(&self, svg: &mut String, kind: Kind, columns: &[Column], below: &[u64], above: &[u64]) {
        const THICK: f64 = 17.0;
        let thickness = |at: usize| self.y(below[at]) - self.y(above[at]);
        let needed = kind.label().chars().count() as f64 * CHARACTER + 8.0;
        // The longest run of columns in which one horizontal line of text
        // stays inside the band.
        let mut best: Option<(f64, f64, f64)> = None;
        let mut at = 0;
        while at < columns.len() {
            if thickness(at) < THICK {
                at += 1;
                continue;
            }
            let from = at;
            let (mut floor, mut ceiling) = (self.y(below[at]), self.y(above[at]));
            while at < columns.len() {
                let (f, c) = (floor.min(self.y(below[at])), ceiling.max(self.y(above[at])));
                if f - c < THICK {
                    break;
                }
                (floor, ceiling) = (f, c);
                at += 1;
            }
            let (x1, x2) = (self.x(columns[from].t), columns.get(at).map_or(WIDTH - RIGHT, |c| self.x(c.t)));
            if x2 - x1 >= needed && best.is_none_or(|(width, ..)| x2 - x1 > width) {
                best = Some((x2 - x1, (x1 + x2) / 2.0, (floor + ceiling) / 2.0));
            }
        }
        if let Some((_, x, y)) = best {
            let _ = write!(
                svg,
                r#"<text class="inside" x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                y + 4.0,
                kind.label()
            );
        }
    }

    /// A line from sample to sample, broken where NVML lists no process of the job, or was not asked for much longer
    /// than usual.
    fn nvml_line(&self, svg: &mut String, points: &[(Nanos, Option<Bytes>)]) {
        let mut pauses: Vec<Nanos> = points.windows(2).map(|pair| pair[1].0.minus(pair[0].0)).collect();
        pauses.sort_unstable();
        let longest =
            pauses.get(pauses.len() / 2).map_or(Nanos(u64::MAX), |usual| Nanos(usual.0.saturating_mul(5)));
        let (mut path, mut height, mut before) = (String::new(), None, Nanos::ZERO);
        for &(t, bytes) in points {
            let x = self.x(t);
            if height.is_some() && t.minus(before) > longest {
                let _ = write!(path, "H{:.1}", self.x(before));
                height = None;
            }
            match (height, bytes.map(|bytes| self.y(bytes.0))) {
                (None, Some(y)) => _ = write!(path, "M{x:.1} {y:.1}"),
                (Some(last), Some(y)) if f64::abs(y - last) >= 0.3 => _ = write!(path, "H{x:.1}V{y:.1}"),
                (Some(_), None) => _ = write!(path, "H{x:.1}"),
                _ => {
                    before = t;
                    continue;
                }
            }
            height = bytes.map(|bytes| self.y(bytes.0));
            before = t;
        }
        if height.is_some() {
            let _ = write!(path, "H{:.1}", self.x(before));
        }
        if !path.is_empty() {
            let _ = write!(svg, r#"<path class="nvml" d="{path}"/>"#);
        }
    }

    fn refusals(&self, svg: &mut String, profile: &Profile, gpu: GpuIndex) {
        let failures = profile.processes.iter().flat_map(|process| &process.state.failures);
        for failure in failures.filter(|failure| failure.gpu == gpu) {
            let x = self.x(failure.t);
            let free = failure.free.map_or(String::new(), |free| format!(", {free} free"));
            let _ = write!(
                svg,
                r#"<g class="refused"><title>{}: {} refused at {}{free}</title><line x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{:.1}"/><path d="M{:.1} {:.1}h12l-6 10z"/></g>"#,
                escaped(&failure.call),
                failure.size,
                failure.t,
                HEIGHT - BOTTOM,
                x - 6.0,
                TOP - 12.0,
            );
        }
    }

    /// Invisible columns that show their figures under the pointer.
    fn hints(&self, svg: &mut String, steps: &[Step], end: Nanos) {
        let columns = columns(steps, end, HINTS);
        svg.push_str(r#"<g class="hints">"#);
        for (at, column) in columns.iter().enumerate() {
            if column.total.is_zero() {
                continue;
            }
            let x = self.x(column.t);
            let right = columns.get(at + 1).map_or(WIDTH - RIGHT, |next| self.x(next.t));
            let _ = write!(
                svg,
                r#"<rect x="{x:.1}" y="{TOP}" width="{:.1}" height="{:.1}"><title>{}: {}"#,
                right - x,
                HEIGHT - TOP - BOTTOM,
                column.t,
                column.total
            );
            for kind in Kind::ALL {
                let bytes = column.kinds[kind.index()];
                if !bytes.is_zero() {
                    let _ = write!(svg, "\n{} {bytes}", kind.label());
                }
            }
            svg.push_str("</title></rect>");
        }
        svg.push_str("</g>");
    }
}

/// A power of two, or its half as much again, that gives three to six lines.
fn byte_step(top: f64) -> u64 {
    let mut step = 1u64;
    while top / step as f64 > 5.0 && step < 1 << 62 {
        step <<= 1;
    }
    step
}

/// A round span of time that gives four to ten marks.
fn time_step(end: f64) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    const STEPS: [u64; 13] = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];
    if end < 5.0 * SECOND as f64 {
        // 1, 2, 5, 10, 20, 50... nanoseconds.
        let mut power = 1u64;
        loop {
            for step in [power, 2 * power, 5 * power] {
                if end / step as f64 <= 8.0 {
                    return step;
                }
            }
            power *= 10;
        }
    }
    for step in STEPS {
        if end / (step * SECOND) as f64 <= 10.0 {
            return step * SECOND;
        }
    }
    let mut step = 7200 * SECOND;
    while end / step as f64 > 10.0 {
        step = step.saturating_mul(2);
    }
    step
}

/// A size at an axis: no digits that say nothing.
fn tick(bytes: Bytes) -> String {
    let text = bytes.to_string();
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

fn time_tick(t: Nanos, step: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    if t.0 == 0 {
        return "0".into();
    }
    if step < SECOND {
        // Milliseconds below one second, else seconds with the digits of the step.
        let trim = |text: String| text.trim_end_matches('0').trim_end_matches('.').to_owned();
        return if t.0 < SECOND {
            if step < 1_000_000 { format!("{} us", t.0 / 1_000) } else { format!("{} ms", t.0 / 1_000_000) }
        } else {
            format!("{} s", trim(format!("{:.3}", t.as_secs_f64())))
        };
    }
    let s = t.0 / SECOND;
    match step / SECOND {
        0..60 if s < 60 => format!("{s} s"),
        0..3600 if s < 3600 => format!("{}:{:02} min", s / 60, s % 60),
        _ => format!("{}:{:02} h", s / 3600, s / 60 % 60),
    }
}

/// Text as it may stand in SVG and HTML.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_few_round_marks() {
        for top in [1.0, 100.0, 3e6, 5e9, 141.0 * 1073741824.0, 1e19] {
            let marks = top / byte_step(top) as f64;
            assert!(marks <= 5.1, "{top}: {marks}");
        }
        for end in [
            1u64,
            900,
            1_000_000,
            70_000_000,
            4_000_000_000,
            5_000_000_000,
            61_000_000_000,
            3_600_000_000_000,
            2_592_000_000_000_000,
        ] {
            let marks = end / time_step(end as f64);
            assert!(marks <= 10, "{end}: {marks}");
        }
        assert_eq!(tick(Bytes::from_gib(2)), "2 GiB");
        assert_eq!(tick(Bytes::from_mib(512)), "512 MiB");
        assert_eq!(tick(Bytes(0)), "0 B");
        assert_eq!(time_tick(Nanos::from_secs(90), 30_000_000_000), "1:30 min");
        assert_eq!(time_tick(Nanos::from_millis(1500), 500_000_000), "1.5 s");
        assert_eq!(time_tick(Nanos::from_millis(20), 10_000_000), "20 ms");
    }

    #[test]
    fn the_line_of_nvml_is_broken_where_it_reported_nothing() {
        let line = |points: &[(u64, Option<u64>)]| {
            let points: Vec<_> = points.iter().map(|(t, bytes)| (Nanos(*t), bytes.map(Bytes))).collect();
            let mut svg = String::new();
            Picture { end: 100.0, top: 100.0 }.nvml_line(&mut svg, &points);
            svg.matches('M').count()
        };
        let steady: Vec<_> = (0..10).map(|t| (t * 10, Some(50))).collect();
        assert_eq!(line(&steady), 1);
        assert_eq!(line(&[(0, Some(5)), (10, None), (20, None), (30, Some(5)), (40, Some(7))]), 2);
        assert_eq!(line(&[(0, Some(5)), (1, Some(5)), (2, Some(5)), (90, Some(5)), (91, Some(5))]), 2);
        assert_eq!((line(&[(0, None)]), line(&[])), (0, 0));
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("<a&\"'\x1b"), "&lt;a&amp;&quot;&#39;\u{fffd}");
    }
}
