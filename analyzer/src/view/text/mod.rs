//! The report for a person at a terminal.

pub(crate) mod answer;
mod choice;
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
    /// Show all sections of a dry run's report, and all rows; other reports always have them.
    pub full: bool,
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
            full: false,
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
    report.own(&mut out);
    let is_short = report.is_short();
    let mut left_out = Vec::new();
    let mut detail = |out: &mut String, name: &'static str, write: &dyn Fn(&mut String)| {
        let mut section = String::new();
        write(&mut section);
        match is_short && !section.is_empty() {
            true => left_out.push(name),
            false => out.push_str(&section),
        }
    };
    detail(&mut out, "the driver's counters", &|out| {
        summary.gpus.iter().for_each(|gpu| report.gpu(out, gpu))
    });
    detail(&mut out, "phases", &|out| report.ranges(out));
    report.tensors(&mut out);
    match summary.tensors.iter().all(|process| process.gpus.is_empty()) {
        true => report.stacks(&mut out),
        // The driver's allocations are those of the framework's pools.
        false => detail(&mut out, "the driver's allocations by line", &|out| report.stacks(out)),
    }
    detail(&mut out, "processes", &|out| report.processes(out));
    detail(&mut out, "kernels", &|out| report.kernels(out));
    report.features(&mut out);
    detail(&mut out, "host", &|out| report.host(out));
    report.limits(&mut out);
    report.failures(&mut out);
    report.postmortems(&mut out);
    report.dry_run(&mut out);
    report.notes(&mut out);
    if !left_out.is_empty() {
        let path = options.profile_path.as_deref();
        let how = match path {
            Some(path) => format!("radrm report --full {}", clean(path)),
            None => "a profile (-o FILE) and radrm report --full FILE".to_owned(),
        };
        out.push_str(&format!("\nnot shown: {}; to see all: {how}\n", left_out.join(", ")));
    }
    if let Some(path) = &options.profile_path {
        out.push_str(&format!("\nprofile: {}\n", clean(path)));
    }
    out
}
