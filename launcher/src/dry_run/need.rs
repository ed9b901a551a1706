//! Need of a dry-run program on a real GPU: resolved as that of any job.

use std::fmt;
use std::path::PathBuf;

use radrm_base::UserId;
use radrm_collector::dataset::{self, Dataset, ProgramKey};
use radrm_need::{Asked, DryRun, Evidence, Features, Need, NeedResolver, Trained};
use radrm_profile::Profile;
use radrm_profile::findings::Findings;
use radrm_profile::model::Expected;

use crate::cli::RowTo;

/// A dry-run program, as its dataset's row and radrmd name it.
#[derive(Clone, Debug)]
pub struct DryRunJob {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Number of GPUs.
    pub gpus: u32,
    /// Samples in a batch.
    pub batch: Option<u32>,
    /// Its dry run.
    pub dry_run: DryRun,
}

/// Asks the node's radrmd for a need: it has the site's memory model, and what this node's jobs taught. `None` where no
/// radrmd answers.
#[derive(Clone, Copy)]
pub struct AskNode(pub fn(&DryRunJob) -> Option<Need>);

impl fmt::Debug for AskNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AskNode")
    }
}

/// Always equal: the function that is asked makes no difference between two plans.
impl PartialEq for AskNode {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for AskNode {}

/// The need of a program whose dry run succeeded; `None` if the dry run shows none. As for `radrm estimate`, a dataset
/// that is named is read whatever radrmd knows; without a dataset only the memory model that ships is asked.
#[must_use]
pub fn expected(profile: &Profile, to: &RowTo, node: Option<AskNode>) -> Option<Expected> {
    profile.dry_run.as_ref().filter(|figures| figures.out_of_memory == 0)?;
    let row = dataset::Row::of(profile, None, &Findings::default());
    let job = DryRunJob {
        command: profile.job.command.clone(),
        cwd: PathBuf::from(&profile.job.cwd),
        gpus: row.gpus_requested.unwrap_or(1),
        batch: row.batch,
        dry_run: dataset::dry_run_of(profile)?,
    };
    let by_node = match to {
        RowTo::Default => node.and_then(|AskNode(ask)| ask(&job)),
        RowTo::File(_) | RowTo::Nowhere => None,
    };
    if let Some(need) = by_node {
        return Some(record(&need, None, false));
    }
    let evidence = evidence(&job, UserId(row.uid), to);
    let job = evidence.features(Features { batch: job.batch, ..Features::default() });
    let need = NeedResolver::default().resolve(&job).memory?;
    Some(record(&need, evidence.corrected_on.clone(), evidence.emulated))
}

/// Evidence in the dataset that the dry run's row goes to. One that cannot be read has none, and is reported when
/// the row is added.
fn evidence(job: &DryRunJob, user: UserId, to: &RowTo) -> Evidence {
    let model = Trained::default();
    let path = match to {
        RowTo::Nowhere => None,
        RowTo::File(file) => Some(file.clone()),
        RowTo::Default => dataset::default_path(),
    };
    let program = ProgramKey::of(&job.command, &job.cwd, job.gpus);
    let dry_run = Some(&job.dry_run);
    let changed = dataset::last_change(&job.command, &job.cwd);
    let asked = Asked { program: &program, user, batch: job.batch, gpu_model: None, dry_run, changed };
    let dataset = path.and_then(|path| Dataset::open_existing(&path).ok());
    let found = dataset.and_then(|dataset| Evidence::of(&dataset, &asked, &model).ok());
    found.unwrap_or_else(|| Evidence::of_dry_run(job.dry_run.clone(), user, &model))
}

/// A need as the profile keeps it.
fn record(need: &Need, gpu_model: Option<String>, on_emulated: bool) -> Expected {
    let runs = need.source.dry_run().map_or(0, |(_, runs)| runs);
    let on = if on_emulated { ", on emulated GPUs" } else { "" };
    Expected {
        bytes: need.bytes.0,
        upper: need.no_bound().is_none().then_some(need.upper.0),
        confidence: need.confidence.filter(|_| need.no_bound().is_none()).map(radrm_base::Permille::fraction),
        runs: runs.into(),
        gpu_model: gpu_model.filter(|_| runs > 0),
        source: need.source.to_text(),
        basis: (!need.source.is_dry_run_alone()).then(|| format!("{}{on}", need.source)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use radrm_collector::dataset::{Origin, Row};
    use radrm_need::Source;
    use radrm_profile::model::Job;
    use radrm_profile::model::dry_run::{DryRunFigures, GpuFigures};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn figures(remarks: &[&str]) -> DryRunFigures {
        let gpu = |mib: u64| GpuFigures { held_peak: mib * MIB, ..GpuFigures::default() };
        DryRunFigures {
            gpus: vec![gpu(500), gpu(4000)],
            remarks: remarks.iter().map(|remark| (*remark).to_owned()).collect(),
            ..DryRunFigures::default()
        }
    }

    fn profile(figures: DryRunFigures) -> Profile {
        let job = Job { command: vec!["t".to_owned()], cwd: "/work".to_owned(), ..Job::default() };
        Profile { dry_run: Some(figures), ..Profile::new(job) }
    }

    fn row(program: &str, origin: Origin, mib: u64) -> Row {
        Row {
            origin,
            emulated: (origin == Origin::DryRun).then(|| "1xA100".to_owned()),
            gpu_model: Some(if origin == Origin::DryRun { "" } else { "A100" }.to_owned()),
            footprint_bytes: Some(mib * MIB),
            complete: true,
            outcome: "exited".into(),
            ..Row::of_command(&[program.to_owned()], Path::new("/work"), 0)
        }
    }

    /// Expected need of a dry run by a dataset with these rows.
    fn with(rows: &[Row], remarks: &[&str]) -> Expected {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.db");
        let mut dataset = Dataset::open(&path).unwrap();
        rows.iter().for_each(|row| _ = dataset.add(row, None).unwrap());
        expected(&profile(figures(remarks)), &RowTo::File(path), None).unwrap()
    }

    fn pairs(count: u64) -> Vec<Row> {
        let of = |n: u64| {
            let program = format!("t{n}");
            [row(&program, Origin::DryRun, 900 + 500 * n), row(&program, Origin::Measured, 1000 + 500 * n)]
        };
        (0..count).flat_map(of).collect()
    }

    #[test]
    fn runs_here_correct_the_figure_of_the_gpu_that_needs_most() {
        let shipped = with(&[], &[]);
        assert_eq!((shipped.runs, &shipped.gpu_model), (0, &None));
        assert!(shipped.bytes > 4000 * MIB && shipped.upper > Some(shipped.bytes), "{shipped:?}");
        let few = with(&pairs(9), &[]);
        assert!(few.bytes.abs_diff(4100 * MIB) < 40 * MIB && few.upper == shipped.upper, "{few:?}");
        let enough = with(&pairs(12), &[]);
        assert_eq!((enough.runs, enough.gpu_model.as_deref()), (12, Some("A100")));
        assert!(enough.upper.unwrap() < 4400 * MIB && enough.confidence > Some(0.9), "{enough:?}");
        assert_eq!(enough.basis, None);
    }

    #[test]
    fn a_figure_without_a_bound_gets_none() {
        let found = with(&pairs(12), &["no bound: torch.backends.cudnn.benchmark is on"]);
        assert_eq!(found.upper, None);
        let withheld = profile(DryRunFigures::default());
        assert_eq!(expected(&withheld, &RowTo::Nowhere, None), None, "figures that were withheld");
        let refused = profile(DryRunFigures { out_of_memory: 1, ..figures(&[]) });
        assert_eq!(expected(&refused, &RowTo::Nowhere, None), None);
    }

    #[test]
    fn a_measured_run_counts_more_than_the_dry_run() {
        let found = with(&[row("t", Origin::Measured, 4300)], &["no bound: of the dry run"]);
        assert_eq!((found.bytes, found.upper), (4300 * MIB, Some(4300 * MIB)));
        assert_eq!(Source::parse(&found.source), Some(Source::EqualRuns { runs: 1 }));
        assert_eq!(found.basis.as_deref(), Some("measured in an equal run"));
    }

    #[test]
    fn radrmd_is_asked_only_where_the_users_own_dataset_counts() {
        let ask = AskNode(|job| Some(Need::declared(job.dry_run.held)));
        let profile = profile(figures(&[]));
        let folder = tempfile::tempdir().unwrap();
        let of = |to| expected(&profile, &to, Some(ask)).unwrap().source;
        assert_eq!(of(RowTo::Default), Source::Declared.to_text());
        for to in [RowTo::Nowhere, RowTo::File(folder.path().join("none.db"))] {
            assert!(of(to).contains("dry_run"));
        }
    }
}
