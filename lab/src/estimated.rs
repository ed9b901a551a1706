//! Estimates of memory beside measured peaks of real models, as GPUMemNet's authors publish them for their figure.

use std::collections::BTreeMap;

use csv::StringRecord;
use radrm_estimator::evaluate::{Outcome, Scores};

/// A training of a real model, with what estimators gave for it; MiB.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimated {
    /// Name of the model.
    pub name: String,
    /// The batch size.
    pub batch: f64,
    /// Measured peak.
    pub peak: f64,
    /// Estimates by the name of the estimator, in small letters.
    pub estimates: BTreeMap<String, f64>,
}

/// Names of the columns of measured peaks: as they are published, and by this project's rules.
const PEAKS: [&str; 2] = ["Actual GPU memory", "actual_mib"];
/// Names of the columns of batch sizes.
const BATCHES: [&str; 2] = ["batch_size", "batch"];
/// Estimators with columns of their own names.
const ESTIMATORS: [&str; 3] = ["gpumemnet", "faketensor", "horus"];

/// Reads the rows by their columns; `None`: they have other columns. A model without a name is that of the row before. Rows
/// without a peak are left out, and a field that is no number is no estimate.
#[must_use]
pub fn read_estimated<'a>(
    head: &StringRecord,
    rows: impl Iterator<Item = &'a StringRecord>,
) -> Option<Vec<Estimated>> {
    let at = |names: &[&str]| head.iter().position(|name| names.contains(&name));
    let (peak, batch) = (at(&PEAKS)?, at(&BATCHES)?);
    let model = at(&["", "model"])?;
    let estimators: Vec<(usize, String)> = head
        .iter()
        .enumerate()
        .filter_map(|(at, name)| Some((at, estimator(&name.to_ascii_lowercase())?.to_owned())))
        .collect();
    if estimators.is_empty() {
        return None;
    }
    let mut name = "";
    let mut found = Vec::new();
    for row in rows {
        let number =
            |at: usize| row.get(at)?.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
        name = row.get(model).filter(|name| !name.is_empty()).unwrap_or(name);
        let Some((peak, batch)) = number(peak).zip(number(batch)) else { continue };
        let estimates = estimators.iter().filter_map(|(at, of)| Some((of.clone(), number(*at)?))).collect();
        found.push(Estimated { name: name.to_owned(), batch, peak, estimates });
    }
    Some(found)
}

/// The estimator whose column has this name, in small letters.
fn estimator(column: &str) -> Option<&str> {
    let named = || column.strip_prefix("est_").map(|name| name.trim_end_matches("_mib"));
    ESTIMATORS.into_iter().find(|name| *name == column).or_else(named)
}

/// Scores of each estimator, whose estimate is its bound.
#[must_use]
pub fn scores_by_estimator(models: &[Estimated]) -> BTreeMap<&str, Scores> {
    let mut outcomes: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
    for model in models {
        for (name, estimate) in &model.estimates {
            let (measured, estimate) = (model.peak, *estimate);
            outcomes.entry(name).or_default().push(Outcome { measured, estimate, bound: estimate });
        }
    }
    outcomes.into_iter().map(|(name, of)| (name, Scores::of(of))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, read};

    #[test]
    fn the_published_table_and_one_by_our_names_are_read() {
        let published = ",batch_size,Actual GPU memory,GPUMemNet ,FakeTensor,Horus\nvgg16,32,8222,16000,3121.3,21525.8\n\
            ,128,24408,24000,-,82119.9\n";
        let ours = "model,batch,actual_mib,est_gpumemnet_mib,est_faketensor_mib,est_horus_mib\n\
            vgg16,32,8222,16000,3121.3,21525.8\nvgg16,128,24408,24000,,82119.9\n";
        for text in [published, ours] {
            let Ok(Data::Estimated(models)) = read(text) else { panic!("{text}") };
            let [first, second] = &models[..] else { panic!("{models:?}") };
            assert_eq!((first.name.as_str(), first.batch, first.peak), ("vgg16", 32.0, 8222.0));
            assert_eq!((second.name.as_str(), second.batch), ("vgg16", 128.0));
            assert_eq!(second.estimates.keys().collect::<Vec<_>>(), ["gpumemnet", "horus"]);
            let scores = scores_by_estimator(&models);
            let too_low = |name: &str| scores[name].under * scores[name].rows as f64;
            assert_eq!((too_low("gpumemnet"), too_low("faketensor"), too_low("horus")), (1.0, 1.0, 0.0));
        }
    }
}
