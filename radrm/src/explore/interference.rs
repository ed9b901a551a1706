//! Slowdown of runs by each other, as matrices: of sweeps, and of what radrmd observed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use radrm_collector::dataset::{Dataset, DatasetError, Row, program_name};
use radrm_sweep::report;
use radrm_sweep::statistics::Mean;
use radrm_sweep::store::Recorded;
use radrm_text::clean;
use serde::Serialize;

use crate::show::dataset::command_line;
use crate::sweep::company;

/// Text of the page where there is no matrix.
pub(super) const NONE: &str = "Nothing is known of it: give `radrm explore` the file of a sweep whose groups share a GPU, \
                               or the dataset of a radrmd that places jobs side by side.";
/// The newest observations of the daemon.
const MAX_OBSERVED: u32 = 2000;
/// Programs of a matrix.
const MAX_PROGRAMS: usize = 24;

/// A matrix: time beside others by that alone.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Matrix {
    title: String,
    /// Method by which it was obtained, as a sentence.
    how: &'static str,
    rows: Vec<String>,
    columns: Vec<String>,
    cells: Vec<Vec<Option<f64>>>,
}

/// Of a sweep by its name; `None` if no configuration of it ran alone and beside others.
pub(super) fn of_sweep((file, runs): &(PathBuf, Vec<Recorded>)) -> Option<Matrix> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let found = report::slowdowns(&report::configurations(runs));
    (!found.rows.is_empty()).then(|| Matrix {
        title: clean(&name).into_owned(),
        how: "Time beside others by that of the same work alone, mean of the sweep's repetitions.",
        rows: found.rows.iter().map(|row| clean(row).into_owned()).collect(),
        columns: found.columns.iter().map(|of| clean(&company(Some(of))).into_owned()).collect(),
        cells: found
            .cells
            .iter()
            .map(|row| row.iter().map(|cell| cell.map(|of| of.mean)).collect())
            .collect(),
    })
}

/// Of pairs of jobs that radrmd saw on one GPU, by GPU model.
pub(super) fn observed(dataset: &Dataset, rows: &[Row]) -> Result<Vec<Matrix>, DatasetError> {
    let mut models: BTreeMap<String, BTreeMap<(String, String), Vec<f64>>> = BTreeMap::new();
    for seen in dataset.sharing(MAX_OBSERVED)? {
        let [a, b] = seen.jobs.as_slice() else { continue };
        let pairs = models.entry(seen.gpu_model).or_default();
        for (of, beside) in [(a, b), (b, a)] {
            let speed = of.speed().filter(|speed| *speed > 0.0);
            let key = (of.program.clone(), beside.program.clone());
            pairs.entry(key).or_default().extend(speed.map(|speed| 1.0 / speed));
        }
    }
    // The newest run of each program shows what its key stands for.
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for row in rows {
        if let Some(key) = &row.program_key {
            names.entry(program_name(key, row.batch)).or_insert_with(|| command_line(row));
        }
    }
    let name =
        |program: &String| clean(names.get(program).unwrap_or(program)).chars().take(60).collect::<String>();
    let matrix = |(model, pairs): (String, BTreeMap<(String, String), Vec<f64>>)| {
        let of: BTreeSet<&String> = pairs.keys().map(|(of, _)| of).collect();
        let of: Vec<&String> = of.into_iter().take(MAX_PROGRAMS).collect();
        let cell =
            |a: &String, b: &String| Some(Mean::of(pairs.get(&(a.clone(), b.clone()))?.as_slice())?.mean);
        let cells: Vec<Vec<_>> = of.iter().map(|a| of.iter().map(|b| cell(a, b)).collect()).collect();
        cells.iter().flatten().any(Option::is_some).then(|| Matrix {
            title: format!("Jobs of radrmd on {}", clean(&model)),
            how: "Launch rate alone by launch rate beside the other, mean over what radrmd observed.",
            rows: of.iter().map(|of| name(of)).collect(),
            columns: of.iter().map(|of| format!("beside {}", name(of))).collect(),
            cells,
        })
    };
    Ok(models.into_iter().filter_map(matrix).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_collector::dataset::{SharedJob, Sharing};

    #[test]
    fn observed_pairs_are_means_by_model() {
        let folder = tempfile::tempdir().unwrap();
        let mut dataset = Dataset::open(&folder.path().join("d.db")).unwrap();
        let job = |program: &str, beside_per_s| SharedJob {
            program: program.into(),
            alone_per_s: 100.0,
            beside_per_s,
            ..SharedJob::default()
        };
        for (a, b) in [(50.0, 80.0), (25.0, 80.0)] {
            let jobs = vec![job("a", a), job("b", b)];
            dataset.add_sharing(&Sharing { gpu_model: "T4".into(), jobs, ..Sharing::default() }, 9).unwrap();
        }
        let alone = Sharing { gpu_model: "A2".into(), jobs: vec![job("a", 1.0)], ..Sharing::default() };
        dataset.add_sharing(&alone, 9).unwrap();
        let found = observed(&dataset, &[]).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].title.as_str(), &found[0].rows[..]),
            ("Jobs of radrmd on T4", &["a".into(), "b".into()][..])
        );
        assert_eq!(found[0].cells, [[None, Some(3.0)], [Some(1.25), None]]);
    }
}
