//! `radrm train`: a memory model from measured runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use radrm_collector::dataset::{self, Dataset, Filter, Origin, Row};
use radrm_estimator::memory::{MemoryModel, Network, Program, Run};
use radrm_lab::data::{self, Data};
use radrm_lab::estimated::Estimated;
use radrm_lab::kace::{KacePair, PartitionedSet};

use crate::error::{FileProblem, UsageError};
use crate::replay::input;
use crate::{Failure, print};

/// The flags as written.
#[derive(Args, Debug)]
pub struct Flags {
    /// Train on these measurements instead of the dataset, CSV or CSV.gz: runs (program,batch,peak_mib and optionally
    /// family,dry_run_mib), or GPUMemNet's files; may be repeated
    #[arg(long, value_name = "FILE")]
    csv: Vec<PathBuf>,
    /// Train on this database instead of the user's
    #[arg(long, value_name = "FILE", conflicts_with = "csv")]
    dataset: Option<PathBuf>,
    /// Coverage of the bounds, in per cent [default: 95]
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0, hide_default_value = true)]
    level: f64,
    /// Origin of the measurements, and their licence; it is kept in the model
    #[arg(long, value_name = "TEXT")]
    origin: Option<String>,
    /// Make a model for other sites than the one that was measured: bounds are wider where sites differ
    #[arg(long)]
    any_site: bool,
    /// The model
    #[arg(short, long, value_name = "MODEL")]
    output: PathBuf,
}

/// Measured runs and networks.
#[derive(Debug, Default)]
pub(crate) struct Measurements {
    pub(crate) programs: Vec<Program>,
    pub(crate) networks: Vec<Network>,
    /// Only evaluated: the scheduler learns how jobs share a GPU from what it sees itself.
    pub(crate) pairs: Vec<KacePair>,
    /// The same.
    pub(crate) partitions: Vec<PartitionedSet>,
    /// Only evaluated: other estimators' figures teach nothing.
    pub(crate) estimated: Vec<Estimated>,
}

/// First bytes of an SQLite database.
const SQLITE: &str = "SQLite format 3";

impl Measurements {
    /// Measurements of a dataset or a CSV file, by what it begins with.
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
        if input::beginning(path).starts_with(SQLITE) {
            return Self::of_dataset(path);
        }
        let found = data::read(&input::text(path)?).map_err(|error| FileProblem::from(error).of(path))?;
        Ok(match found {
            Data::Programs(programs) => Self { programs, ..Self::default() },
            Data::Networks(networks) => Self { networks, ..Self::default() },
            Data::Pairs(pairs) => Self { pairs, ..Self::default() },
            Data::Partitions(partitions) => Self { partitions, ..Self::default() },
            Data::Estimated(estimated) => Self { estimated, ..Self::default() },
        })
    }

    /// Runs on real GPUs that ended well, each with the dry run of the same program at the same batch size.
    fn of_dataset(path: &Path) -> Result<Self, Failure> {
        let rows = Dataset::open_existing(path)?.rows(&Filter::default())?;
        let mut dry_runs: BTreeMap<(&str, u32), Vec<&Row>> = BTreeMap::new();
        let mut newest: BTreeMap<(&str, &str, u32), &Row> = BTreeMap::new();
        let mut programs: BTreeMap<(&str, &str), Program> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.complete) {
            let (Some(key), Some(batch), Some(bytes)) =
                (row.program_key.as_deref(), row.batch, row.footprint_bytes)
            else {
                continue;
            };
            if row.origin == Origin::DryRun {
                dry_runs.entry((key, batch)).or_default().push(row);
            } else if row.emulated.is_none() && bytes > 0 {
                let model = row.gpu_model.as_deref().unwrap_or_default();
                newest.entry((key, model, batch)).or_insert(row);
                let program = programs.entry((key, model)).or_default();
                (program.name, program.family) = (key.to_owned(), key.to_owned());
                program.add(Run {
                    batch: f64::from(batch),
                    peak: bytes as f64,
                    tensors: None,
                    dry_run: None,
                });
            }
        }
        for ((key, model), program) in &mut programs {
            for run in &mut program.runs {
                let batch = run.batch as u32;
                let Some(real) = newest.get(&(*key, *model, batch)) else { continue };
                let mut dry_runs = dry_runs.get(&(*key, batch)).into_iter().flatten();
                let dry_run = dry_runs.find(|dry_run| real.is_real_run_of(dry_run));
                run.dry_run = dry_run.and_then(|row| row.footprint_bytes).map(|bytes| bytes as f64);
            }
        }
        if programs.is_empty() {
            return Err(FileProblem::NoMeasuredRuns.of(path));
        }
        Ok(Self { programs: programs.into_values().collect(), ..Self::default() })
    }
}

/// Trains and writes.
///
/// # Errors
/// [`Failure`]: measurements cannot be read or are too few, or the model cannot be written.
pub(crate) fn run(flags: Flags) -> Result<(), Failure> {
    let Flags { csv, dataset, level, origin, any_site, output } = flags;
    if !(50.0..100.0).contains(&level) {
        return Err(UsageError::Level(level).into());
    }
    let files = match csv.is_empty() {
        true => vec![dataset.or_else(dataset::default_path).ok_or(Failure::NoDataset)?],
        false => csv,
    };
    let mut all = Measurements::default();
    for file in &files {
        let found = Measurements::of(file)?;
        all.programs.extend(found.programs);
        all.networks.extend(found.networks);
    }
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let origin = origin.unwrap_or_else(|| names.join(", "));
    let level = level / 100.0;
    let model = match any_site {
        true => MemoryModel::for_any_site(&all.programs, &all.networks, level, &origin),
        false => MemoryModel::for_this_site(&all.programs, level, &origin),
    };
    let text = model.and_then(|model| model.to_json());
    let text = text.map_err(|error| FileProblem::from(error).of(&files[0]))?;
    write(&output, &text)?;
    let runs: usize = all.programs.iter().map(|program| program.runs.len()).sum();
    let (programs, networks) = (all.programs.len(), all.networks.len());
    print(&format!("{}: {runs} runs of {programs} programs, {networks} networks\n", output.display()))
}

/// In place of an older file in one step: a daemon may read it at any time.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|error| FileProblem::from(error).of(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate;

    fn flags(csv: &[&Path], output: &Path) -> Flags {
        Flags {
            csv: csv.iter().map(|path| path.to_path_buf()).collect(),
            dataset: None,
            level: 95.0,
            origin: None,
            any_site: false,
            output: output.to_owned(),
        }
    }

    /// Runs of so many programs at three batch sizes, each holding 500 MiB beside its own.
    fn runs(programs: u32) -> String {
        let mut text = "program,batch,peak_mib\n".to_owned();
        for program in 0..programs {
            for batch in [8, 16, 32] {
                text += &format!("p{program},{batch},{}\n", 500 + (10 + program) * (batch + 4));
            }
        }
        text
    }

    #[test]
    fn a_sites_model_is_trained_read_and_evaluated() {
        let dir = tempfile::tempdir().unwrap();
        let [csv, out] = ["runs.csv", "model.json"].map(|name| dir.path().join(name));
        std::fs::write(&csv, runs(40)).unwrap();
        run(flags(&[&csv], &out)).unwrap();
        let model = MemoryModel::parse(&std::fs::read_to_string(&out).unwrap()).unwrap();
        assert!(model.origin().ends_with("runs.csv"));
        let report = evaluate::report(&csv, Some(&model)).unwrap();
        let one = report.iter().find(|row| row.known.starts_with("1 own run")).unwrap();
        assert!(one.scores.rows == 240 && one.scores.under < 0.06 && one.scores.over < 0.2, "{}", one.scores);
    }

    #[test]
    fn too_few_runs_are_one_sentence_and_leave_the_old_model() {
        let dir = tempfile::tempdir().unwrap();
        let [csv, out] = ["runs.csv", "model.json"].map(|name| dir.path().join(name));
        std::fs::write(&csv, runs(3)).unwrap();
        std::fs::write(&out, "old").unwrap();
        let why = run(flags(&[&csv], &out)).unwrap_err().to_string();
        assert!(
            why.contains("3 programs with runs at two batch sizes or more are too few: at least 10")
                && why.lines().count() == 1,
            "{why}"
        );
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "old");
        let none = run(flags(&[&dir.path().join("none.csv")], &out)).unwrap_err().to_string();
        assert!(none.contains("none.csv") && none.contains("No such file"), "{none}");
        let level = Flags { level: 100.0, ..flags(&[&csv], &out) };
        assert!(matches!(run(level), Err(Failure::Usage(_))));
    }

    #[test]
    fn a_dataset_gives_measured_runs_with_their_dry_runs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.db");
        let mut dataset = Dataset::open(&path).unwrap();
        for (origin, batch, gib, complete) in [
            (Origin::Measured, 8, 4_u64, true),
            (Origin::Measured, 8, 5, true),
            (Origin::DryRun, 8, 3, true),
            (Origin::Measured, 16, 9, false),
            (Origin::Emulated, 32, 9, true),
        ] {
            let emulated = (origin != Origin::Measured).then(|| "1xT4".to_owned());
            let command = ["t".to_owned(), "--bs".to_owned(), batch.to_string()];
            let of = Row::of_command(&command, Path::new("/work"), 1);
            let row = Row { origin, emulated, footprint_bytes: Some(gib << 30), complete, ..of };
            dataset.add(&row, None).unwrap();
        }
        drop(dataset);
        let found = Measurements::of(&path).unwrap();
        let [program] = &found.programs[..] else { panic!("{found:?}") };
        let gib = f64::from(1 << 30);
        let run = Run { batch: 8.0, peak: 5.0 * gib, tensors: None, dry_run: Some(3.0 * gib) };
        assert_eq!(program.runs, [run]);
    }

    #[test]
    fn a_dataset_of_emulated_runs_alone_says_that_they_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.db");
        let of = Row::of_command(&["t".to_owned(), "--bs".to_owned(), "8".to_owned()], Path::new("/work"), 1);
        let emulated = Some("1xT4".to_owned());
        let row =
            Row { origin: Origin::Emulated, emulated, footprint_bytes: Some(1 << 30), complete: true, ..of };
        Dataset::open(&path).unwrap().add(&row, None).unwrap();
        let why = Measurements::of(&path).unwrap_err().to_string();
        assert!(why.contains("runs on emulated GPUs do not count") && why.lines().count() == 1, "{why}");
    }
}
