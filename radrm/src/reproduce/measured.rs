//! Figures of published estimators and predictors on the measurements that were published with them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use radrm_estimator::memory::network::Split;
use radrm_lab::estimated::scores_by_estimator;
use radrm_lab::gpumemnet::classified;
use radrm_lab::kace::{Baseline, TrainedOn, baselines, by_training_size};

use super::tables::{Figure, Row};
use crate::Failure;
use crate::error::FileProblem;
use crate::train::Measurements;

/// Words before the number of pairs that a predictor learned from, and before the name of one that did not see the family.
const KNOWN: &str = "known ";
const UNSEEN: &str = "unseen ";

const MIB: f64 = 1_048_576.0;

/// Scores on KACE's pairs, which several rows share.
struct Pairs {
    unseen: Vec<Baseline>,
    known: Vec<TrainedOn>,
}

/// Measurements that were read.
#[derive(Default)]
pub(super) struct Measured {
    files: BTreeMap<PathBuf, Measurements>,
    pairs: BTreeMap<PathBuf, Pairs>,
}

impl Measured {
    /// Our figure of a row, from this file.
    ///
    /// # Errors
    /// The file cannot be read, or has other measurements than the row needs.
    pub(super) fn figure(&mut self, row: &Row<'_>, path: &Path) -> Result<f64, Failure> {
        let found = match row.figure {
            Figure::Buckets => self.buckets(path, row.options)?,
            Figure::TooLow => {
                let models = &read(&mut self.files, path)?.estimated;
                let scores = scores_by_estimator(models);
                scores.get(row.options).map(|scores| (scores.under * scores.rows as f64).round())
            }
            Figure::Sum => self.pairs(path)?.sum(row.options),
            Figure::Found => self.pairs(path)?.found(row.options),
            Figure::Replayed(_) | Figure::None => None,
        };
        found.ok_or_else(|| FileProblem::Nothing("measurements for this figure").of(path))
    }

    /// Networks in the right bucket, in per cent, by GPUMemNet's classifier, split by chance as it is published.
    fn buckets(&mut self, path: &Path, mib: &str) -> Result<Option<f64>, Failure> {
        let Ok(mib) = mib.parse::<f64>() else { return Ok(None) };
        let networks = &read(&mut self.files, path)?.networks;
        if networks.is_empty() {
            return Ok(None);
        }
        Ok(classified(networks, Split::Chance, mib * MIB).right.map(|right| right * 100.0))
    }

    fn pairs(&mut self, path: &Path) -> Result<&Pairs, Failure> {
        Ok(match self.pairs.entry(path.to_owned()) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(empty) => {
                let pairs = &read(&mut self.files, path)?.pairs;
                empty.insert(Pairs { unseen: baselines(pairs), known: by_training_size(pairs) })
            }
        })
    }
}

/// The measurements of a file, which is read once.
fn read<'m>(
    files: &'m mut BTreeMap<PathBuf, Measurements>,
    path: &Path,
) -> Result<&'m Measurements, Failure> {
    Ok(match files.entry(path.to_owned()) {
        Entry::Occupied(there) => there.into_mut(),
        Entry::Vacant(empty) => empty.insert(Measurements::of(path)?),
    })
}

impl Pairs {
    fn known(&self, options: &str) -> Option<&TrainedOn> {
        let pairs = options.strip_prefix(KNOWN)?.parse::<usize>().ok()?;
        self.known.iter().find(|of| of.pairs == pairs)
    }

    fn unseen(&self, options: &str) -> Option<&Baseline> {
        let name = options.strip_prefix(UNSEEN)?;
        self.unseen.iter().find(|of| of.name == name)
    }

    /// Per cent of the best partner's sum.
    fn sum(&self, options: &str) -> Option<f64> {
        let part = self.known(options).map(|of| of.part).or_else(|| Some(self.unseen(options)?.part));
        part.map(|part| part * 100.0)
    }

    /// Number of workloads, of all that there are.
    fn found(&self, options: &str) -> Option<f64> {
        let all = self.unseen.first()?.workloads as f64;
        let known = self.known(options).map(|of| of.best * all);
        known.or_else(|| Some(self.unseen(options)?.best as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::tables::{PUBLISHED, tables};

    #[test]
    fn estimates_that_are_too_low_are_counted_in_the_published_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.csv");
        let text = ",batch_size,Actual GPU memory,GPUMemNet ,FakeTensor,Horus\nvgg16,32,8222,16000,3121.3,21525.8\n\
            ,128,24408,24000,9894.4,82119.9\nBERT_base,32,20774,32000,-,17456.9\n";
        std::fs::write(&path, text).unwrap();
        let all = tables(PUBLISHED);
        let table = all.iter().find(|of| of.name == "gpumemnet-real-models").unwrap();
        let mut measured = Measured::default();
        let ours: Vec<f64> = table.rows.iter().map(|row| measured.figure(row, &path).unwrap()).collect();
        assert_eq!(ours, [1.0, 2.0, 1.0], "GPUMemNet, FakeTensor, Horus");
        let other = all.iter().flat_map(|of| &of.rows).find(|row| row.figure == Figure::Sum).unwrap();
        let why = measured.figure(other, &path).unwrap_err().to_string();
        assert!(why.ends_with("data.csv: there are no measurements for this figure in it"), "{why}");
    }

    #[test]
    fn a_row_of_pairs_finds_its_predictor() {
        let unseen = vec![
            Baseline {
                name: "linear regression".into(),
                error: Some(1.0),
                best: 7,
                workloads: 21,
                part: 0.795,
            },
            Baseline {
                name: "least memory held (MEMCAP)".into(),
                error: None,
                best: 5,
                workloads: 21,
                part: 0.793,
            },
        ];
        let known = vec![TrainedOn { pairs: 60, error: 0.4, best: 0.5, part: 0.93 }];
        let pairs = Pairs { unseen, known };
        for row in tables(PUBLISHED).iter().find(|of| of.name == "kace-partners").unwrap().rows.iter() {
            let ours = match row.figure {
                Figure::Sum => pairs.sum(row.options),
                _ => pairs.found(row.options),
            };
            assert!(ours.is_some(), "{row:?}");
        }
        assert_eq!(pairs.found("known 60"), Some(10.5));
        assert_eq!(pairs.sum("unseen linear regression"), Some(79.5));
        assert_eq!(pairs.sum("known 70"), None);
    }
}
