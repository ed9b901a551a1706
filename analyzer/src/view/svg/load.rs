//! The picture of a GPU's load over time, below that of its memory and on the same axis.

use super::{LEFT, Picture, RIGHT, WIDTH};
use crate::view::columns;
use radrm_profile::Nanos;
use radrm_profile::model::{GpuIndex, GpuSpan, Profile, Share};
use std::fmt::Write;

const HEIGHT: f64 = 120.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 8.0;

/// Columns of the picture.
const COLUMNS: usize = 290;

/// One line of the picture.
pub(crate) struct Line {
    /// Its class in the style sheet.
    pub(crate) class: &'static str,
    /// Its name.
    pub(crate) label: &'static str,
}

/// A line and the figure that it shows.
type Shown = (&'static str, &'static str, fn(&GpuSpan) -> Option<Share>);

/// What is drawn, as far as it was measured; the last only where SM activity was not.
const LINES: [Shown; 4] = [
    ("sm_active", "SMs active", |span| span.sm_active),
    ("dram_active", "memory bandwidth", |span| span.dram_active),
    ("tensor_active", "tensor cores", |span| span.tensor_active),
    ("utilization", "a kernel ran", |span| span.utilization),
];

/// The picture and its key, or nothing if no load was measured.
pub(crate) fn load(profile: &Profile, gpu: GpuIndex) -> Option<(String, Vec<Line>)> {
    let end = profile.duration().max(Nanos(1));
    let picture = Picture { end: end.0 as f64, top: 1.0 };
    let y = |share: f64| HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Load of GPU {} over {end}">"#,
        gpu.0
    );
    for share in [0.0, 0.5, 1.0] {
        let _ = write!(
            svg,
            r#"<line class="grid" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{:.0} %</text>"#,
            WIDTH - RIGHT,
            LEFT - 8.0,
            y(share) + 4.0,
            share * 100.0,
            y = y(share),
        );
    }
    let mut key = Vec::new();
    for (class, label, value) in LINES {
        if class == "utilization" && key.iter().any(|line: &Line| line.class == "sm_active") {
            continue;
        }
        let columns = columns::gpu(profile, gpu, COLUMNS, value);
        let mut path = String::new();
        let mut pen_is_down = false;
        for (at, share) in columns.iter().enumerate() {
            let x = |column: usize| picture.x(Nanos((end.0 as f64 * column as f64 / COLUMNS as f64) as u64));
            match share {
                Some(share) if pen_is_down => {
                    let _ = write!(path, "V{:.1}H{:.1}", y(*share), x(at + 1));
                }
                Some(share) => {
                    let _ = write!(path, "M{:.1} {:.1}H{:.1}", x(at), y(*share), x(at + 1));
                }
                None => {}
            }
            pen_is_down = share.is_some();
        }
        if !path.is_empty() {
            let _ = write!(svg, r#"<path class="load {class}" d="{path}"/>"#);
            key.push(Line { class, label });
        }
    }
    svg.push_str("</svg>");
    (!key.is_empty()).then_some((svg, key))
}
