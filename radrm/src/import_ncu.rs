//! `radrm import-ncu`: metrics that no meter gives, from a CSV file of Nsight Compute.

use std::path::{Path, PathBuf};

use clap::Args;
use radrm_analyzer::Summary;
use radrm_analyzer::profiled::{FoundBy, ImportSummary};
use radrm_collector::dataset::{Dataset, Features, Filter, Origin, Row};
use radrm_collector::ncu;
use radrm_profile::{Note, Profile, Record, Writer};
use radrm_text::{clean, fit};
use serde_json::json;

use crate::client::text::of_file;
use crate::error::{Failure, FileProblem};
use crate::show::dataset::{in_file, path};
use crate::show::report;
use crate::{print, print_json};

/// The most of a file that is read: some 8,000 launches of the details page with all sections. Values are kept until all
/// of them are known, in several times the room.
const MAX_BYTES: u64 = 128 << 20;
/// Kernels that are listed of each sort.
const LISTED: usize = 8;
/// Columns of a kernel's name.
const WIDTH: usize = 90;

/// Options of `radrm import-ncu`.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Output of `ncu --csv`: the raw page, the details page, or its summary by kernel
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The run of the same program: its number in `radrm dataset list`, or its profile [default: the newest run with a
    /// profile]
    #[arg(long, value_name = "RUN|PROFILE")]
    run: Option<String>,
    /// Another dataset than the user's
    #[arg(long, value_name = "FILE")]
    dataset: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The run that gets the metrics.
struct Target {
    profile: PathBuf,
    /// Its row, if the dataset has one.
    row: Option<Row>,
    /// The row, not the profile, was named.
    is_by_row: bool,
}

/// Imports a file. The profile is not touched before the file was understood and a kernel was found.
///
/// # Errors
/// One sentence: the file has no metrics, or the run cannot be found or written.
pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    let text = of_file(&flags.file, MAX_BYTES)?;
    let name = flags.file.file_name().unwrap_or_default().to_string_lossy();
    let metrics = ncu::read(&text, &name).map_err(|error| FileProblem::Ncu(error).of(&flags.file))?;
    drop(text);
    let dataset = path(flags.dataset.clone());
    let target = target(flags.run.as_deref(), dataset.as_deref().ok())?;
    let mut profile = report::open(&target.profile)?;
    let target = target.of(&profile)?;
    let problem = |problem: FileProblem| problem.of(&target.profile);
    if radrm_profile::is_being_written(&target.profile) {
        return Err(problem(FileProblem::StillWritten));
    }
    if profile.notes.iter().any(|note| matches!(note, Note::Truncated { .. })) {
        return Err(problem(FileProblem::CutOff));
    }
    let record = Record::KernelMetrics(Box::new(metrics));
    profile.apply(record.clone());
    let Some(found) = ImportSummary::of(&profile).filter(|summary| !summary.found.is_empty()) else {
        let launched = profile.processes.iter().any(|process| !process.kernels.is_empty());
        return Err(problem(if launched { FileProblem::OtherKernels } else { FileProblem::NoLaunches }));
    };
    let append = || {
        let mut writer = Writer::reopen(&target.profile)?;
        writer.append(&record)?;
        writer.sync()
    };
    append().map_err(|error| problem(FileProblem::Write(error)))?;
    let features = radrm_analyzer::findings(&Summary::from_profile(&profile)).features;
    if let (Some(row), Ok(dataset)) = (&target.row, &dataset) {
        update(dataset, row, &features)?;
    }
    let run = target.row.as_ref().map(|row| row.id);
    if flags.json {
        return print_json(&json!({ "profile": target.profile, "run": run, "import": found }));
    }
    print(&shown(&target, &found))
}

impl Target {
    /// A row that was written for this profile, and not for one that was there before.
    fn of(self, profile: &Profile) -> Result<Self, Failure> {
        let is_its = |row: &Row| row.start_unix_ns == profile.job.start_unix_ns;
        match self.row {
            Some(row) if !is_its(&row) && self.is_by_row => Err(Failure::ProfileReplaced(row.id)),
            row => Ok(Self { row: row.filter(is_its), ..self }),
        }
    }
}

/// The run that is named, or the newest one.
fn target(named: Option<&str>, dataset: Option<&Path>) -> Result<Target, Failure> {
    let rows = || -> Result<Vec<Row>, Failure> {
        let Some(path) = dataset.filter(|path| path.exists()) else { return Ok(Vec::new()) };
        let rows = Dataset::open_existing(path).and_then(|dataset| dataset.rows(&Filter::default()));
        rows.map_err(|error| in_file(path, error))
    };
    let Some(named) = named else {
        let newest =
            rows()?.into_iter().find(|row| row.origin != Origin::DryRun && row.profile_path.is_some());
        let row = newest.ok_or(Failure::NoRecordedRun)?;
        return of_row(row);
    };
    match named.parse::<i64>() {
        Ok(id) if !Path::new(named).exists() => {
            let row = rows()?.into_iter().find(|row| row.id == id).ok_or(Failure::NoRun(id))?;
            of_row(row)
        }
        _ => {
            let profile = PathBuf::from(named);
            let same = profile.canonicalize().unwrap_or_else(|_| profile.clone());
            let is_same = |row: &Row| {
                let path = row.profile_path.as_ref().map(PathBuf::from);
                path.is_some_and(|path| path.canonicalize().unwrap_or(path) == same)
            };
            // A file that was written over belongs to the newest of its rows.
            Ok(Target { row: rows()?.into_iter().find(is_same), profile, is_by_row: false })
        }
    }
}

fn of_row(row: Row) -> Result<Target, Failure> {
    let profile = row.profile_path.clone().ok_or(Failure::NoProfileOf(row.id))?;
    Ok(Target { profile: profile.into(), row: Some(row), is_by_row: true })
}

/// The row says of the run what its profile says.
fn update(dataset: &Path, row: &Row, features: &Features) -> Result<(), Failure> {
    // In a dry run nothing is computed.
    let activity = if row.origin == Origin::DryRun { [None; 3] } else { features.activity() };
    let update = || Dataset::open(dataset)?.update_features(row.id, features, activity);
    update().map_err(|error| in_file(dataset, error))
}

fn shown(target: &Target, found: &ImportSummary) -> String {
    let run = target
        .row
        .as_ref()
        .map_or_else(|| "no run of the dataset".to_owned(), |row| format!("run {}", row.id));
    let mut out = format!(
        "{} ({run}): {} of {} kernels found in {}, with {:.1} % of the launches",
        target.profile.display(),
        found.found.len(),
        found.kernels,
        clean(&found.file),
        found.launches_share * 100.0,
    );
    if let Some(share) = found.time_share {
        out.push_str(&format!(" and {:.1} % of the GPU time", share * 100.0));
    }
    let by = |by: FoundBy| found.found.iter().filter(|kernel| kernel.by == by).count();
    out.push_str(&format!(
        "\n  by name {}, by signature {}, by the function's name alone {}\n",
        by(FoundBy::Name),
        by(FoundBy::Signature),
        by(FoundBy::Function)
    ));
    let mut list = |title: &str, lines: Vec<String>| {
        if lines.is_empty() {
            return;
        }
        out.push_str(&format!("{title} ({})\n", lines.len()));
        lines.iter().take(LISTED).for_each(|line| out.push_str(&format!("  {line}\n")));
        if lines.len() > LISTED {
            out.push_str(&format!("  ... and {} more; --json has all\n", lines.len() - LISTED));
        }
    };
    let missing = found.missing.iter().map(|kernel| {
        format!(
            "{:5.1} % of the launches  {}",
            kernel.launches_share * 100.0,
            fit(&clean(&kernel.name), WIDTH)
        )
    });
    list("kernels of the run without metrics", missing.collect());
    let never = found.never_launched.iter().map(|name| fit(&clean(name), WIDTH));
    list("kernels of the file that the run never launched", never.collect());
    out.push_str("`radrm report --features` shows the features\n");
    out
}
