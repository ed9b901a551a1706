//! The report for a person at a terminal.

mod answer;
pub(crate) mod dry_run;
mod features;
pub(crate) mod load;
pub(crate) mod oom;
pub(crate) mod ranges;
pub(crate) mod sections;
pub(crate) mod stacks;
pub(crate) mod step;
pub(crate) mod tensors;

use crate::model::Summary;
use radrm_text::{Paint, clean};

/// The form of the text.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// Colour by ANSI sequences.
    pub color: bool,
    /// Show the memory of every GPU over time.
    pub timeline: bool,
    /// Show what each process takes of each resource, with how it was obtained.
    pub features: bool,
    /// Columns of the terminal; the report uses at least 60.
    pub width: usize,
    /// Path of the profile, which the report names at its end.
    pub profile_path: Option<String>,
    /// Kernels to list.
    pub kernels: usize,
}

impl Default for TextOptions {
    fn default() -> TextOptions {
        TextOptions {
            color: false,
            timeline: false,
            features: false,
            width: 100,
            profile_path: None,
            kernels: 10,
        }
    }
}

impl TextOptions {
    /// Columns that are used: a narrower terminal breaks lines, in a wider one eyes get lost.
    pub(crate) fn columns(&self) -> usize {
        self.width.clamp(60, 200)
    }
}

/// The summary as text. `profile` gives the memory over time.
pub fn text(profile: &radrm_profile::Profile, summary: &Summary, options: &TextOptions) -> String {
    let report = sections::Report {
        profile,
        summary,
        paint: Paint { color: options.color },
        width: options.columns(),
        options,
    };
    let mut out = String::new();
    report.headline(&mut out);
    report.answer(&mut out);
    if summary.nothing_seen() {
        report.no_program(&mut out);
    }
    for gpu in &summary.gpus {
        report.gpu(&mut out, gpu);
    }
    report.ranges(&mut out);
    report.tensors(&mut out);
    report.stacks(&mut out);
    report.processes(&mut out);
    report.kernels(&mut out);
    report.features(&mut out);
    report.host(&mut out);
    report.limits(&mut out);
    report.failures(&mut out);
    report.postmortems(&mut out);
    report.dry_run(&mut out);
    report.notes(&mut out);
    if let Some(path) = &options.profile_path {
        out.push_str(&format!("\nprofile: {}\n", clean(path)));
    }
    out
}
