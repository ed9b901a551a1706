//! A learned model as a file: small versioned JSON with what it was made from.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::boost::{Ensemble, Settings};
use crate::calibrate::{margin, out_of_group, score};
use crate::evaluate::{Outcome, Scores};
use crate::{Error, Table};

/// Version of the files that are written and read.
pub const VERSION: u64 = 1;

/// Longest text that is read as a model file, bytes.
pub const MAX_FILE: usize = 16 << 20;

/// Reads the text of a model file of one version, which may come from anywhere. What it says is not checked.
pub(crate) fn versioned<T: DeserializeOwned>(text: &str, known: u64) -> Result<T, Error> {
    #[derive(Deserialize)]
    struct Head {
        version: u64,
    }
    if text.len() > MAX_FILE {
        return Err(Error::Malformed(format!("it has more than {} MiB", MAX_FILE >> 20)));
    }
    let json = |error: serde_json::Error| Error::Json(error.to_string());
    let found = serde_json::from_str::<Head>(text).map_err(json)?.version;
    if found != known {
        return Err(Error::Version { found, known });
    }
    serde_json::from_str(text).map_err(json)
}

/// A learned model of a need: `estimate = physical * exp(trees)`, `bound = estimate * exp(margin)`.
///
/// `physical` is a column with a figure from physics (parameters and activations in bytes, a dry run), so the trees
/// learn only what it misses and need not extrapolate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    version: u64,
    /// Estimated quantity, with its unit.
    target: String,
    /// Names of the columns, in the order of a row.
    features: Vec<String>,
    /// The column that is corrected; without one the trees give the logarithm of the estimate.
    physical: Option<usize>,
    /// Origin of the rows.
    origin: String,
    /// Groups (families of programs) in the rows.
    groups: usize,
    /// Accuracy on groups that it had not seen; `rows` there is the number of rows it was made from.
    scores: Scores,
    /// Coverage of the bound, 0 to 1.
    level: f64,
    /// Logarithm of bound / estimate.
    margin: f64,
    trees: Ensemble,
}

/// Parameters of a training, beside the rows.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a> {
    /// Estimated quantity, with its unit.
    pub target: &'a str,
    /// Origin of the rows.
    pub origin: &'a str,
    /// The name of the column that is corrected.
    pub physical: Option<&'a str>,
    /// Coverage that the bound shall have, 0 to 1.
    pub level: f64,
    /// Parts of the groups that are held out in turn.
    pub folds: usize,
    /// Hyperparameters of the trees.
    pub settings: Settings,
}

impl Default for Recipe<'_> {
    fn default() -> Self {
        let settings = Settings::default();
        Self { target: "", origin: "", physical: None, level: 0.95, folds: 5, settings }
    }
}

/// An estimate and its bound, in the unit of the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure to expect.
    pub value: f64,
    /// The upper bound.
    pub bound: f64,
}

impl Model {
    /// Trains on rows with a measured value (above 0) and a group each, and calibrates on held-out groups.
    ///
    /// # Errors
    /// Too few rows to promise the level, or a value that is not above 0.
    pub fn train<G: Ord>(
        table: &Table,
        measured: &[f64],
        groups: &[G],
        recipe: &Recipe<'_>,
    ) -> Result<Self, Error> {
        Ok(Self::train_with_estimates(table, measured, groups, recipe)?.0)
    }

    /// [`Model::train`], and the estimate of each row by a model that did not see its group.
    ///
    /// # Errors
    /// See [`Model::train`].
    pub fn train_with_estimates<G: Ord>(
        table: &Table,
        measured: &[f64],
        groups: &[G],
        recipe: &Recipe<'_>,
    ) -> Result<(Self, Vec<f64>), Error> {
        for (what, found) in [("measured values", measured.len()), ("groups", groups.len())] {
            if found != table.len() {
                return Err(Error::Length { what, expected: table.len(), found });
            }
        }
        let physical = recipe.physical.map(|name| {
            let at = table.names().iter().position(|column| column == name);
            at.ok_or(Error::Setting("the column that is corrected is not in the table"))
        });
        let physical = physical.transpose()?;
        let base = |row: usize| physical.map_or(1.0, |at| table.row(row)[at]);
        let target: Vec<f64> = (0..table.len()).map(|row| (measured[row] / base(row)).ln()).collect();
        let fit = |rows: &[usize]| {
            let target: Vec<f64> = rows.iter().map(|row| target[*row]).collect();
            Ensemble::fit(&table.select(rows), &target, &recipe.settings)
        };
        let estimates = out_of_group(groups, recipe.folds.max(2), |learn, estimate| {
            let trees = fit(learn)?;
            let of = |row: &usize| base(*row) * trees.predict(table.row(*row)).exp();
            Ok::<_, Error>(estimate.iter().map(of).collect())
        })?;
        let scores: Vec<f64> = measured.iter().zip(&estimates).map(|(y, e)| score(*y, *e)).collect();
        let margin = margin(&scores, recipe.level).ok_or(Error::TooFew {
            what: "rows",
            needed: (1.0 / (1.0 - recipe.level)) as usize,
            found: table.len(),
        })?;
        let outcomes = measured.iter().zip(&estimates).map(|(measured, estimate)| Outcome {
            measured: *measured,
            estimate: *estimate,
            bound: estimate * margin.exp(),
        });
        let mut names: Vec<&G> = groups.iter().collect();
        names.sort_unstable();
        names.dedup();
        let model = Self {
            version: VERSION,
            target: recipe.target.to_owned(),
            features: table.names().to_vec(),
            physical,
            origin: recipe.origin.to_owned(),
            groups: names.len(),
            scores: Scores::of(outcomes),
            level: recipe.level,
            margin,
            trees: fit(&(0..table.len()).collect::<Vec<_>>())?,
        };
        Ok((model, estimates))
    }

    /// The estimate for a row with the columns of [`Model::features`]; `None` if the row has another number of values
    /// or lacks the figure that is corrected.
    #[must_use]
    pub fn estimate(&self, row: &[f64]) -> Option<Estimate> {
        if row.len() != self.features.len() {
            return None;
        }
        let base = self.physical.map_or(1.0, |at| row[at]);
        let value = base * self.trees.predict(row).exp();
        (value.is_finite() && value > 0.0).then(|| Estimate { value, bound: value * self.margin.exp() })
    }

    /// Names of the columns of a row, in order.
    #[must_use]
    pub fn features(&self) -> &[String] {
        &self.features
    }

    /// Accuracy on groups that the training had not seen.
    #[must_use]
    pub fn scores(&self) -> &Scores {
        &self.scores
    }

    /// Coverage of the bound, 0 to 1.
    #[must_use]
    pub fn level(&self) -> f64 {
        self.level
    }

    /// Estimated quantity, with its unit.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The model as the text of a file.
    ///
    /// # Errors
    /// A value cannot be written: it cannot happen for a model that was trained or read.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string(self).map_err(|error| Error::Json(error.to_string()))
    }

    /// Reads a model file, which may come from anywhere: each index, number and size is checked.
    ///
    /// # Errors
    /// Another version, or what is wrong with the file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let model: Self = versioned(text, VERSION)?;
        model.check()?;
        Ok(model)
    }

    /// Checks that a learned model that was read does not contradict itself.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let malformed = |why: String| Err(Error::Malformed(why));
        if self.version != VERSION {
            return malformed(format!(
                "it has a model of version {}, this program reads version {VERSION}",
                self.version
            ));
        }
        if self.features.is_empty() || self.features.len() > 1000 {
            return malformed(format!("it has {} features, 1 to 1000 are read", self.features.len()));
        }
        if let Some(at) = self.physical.filter(|at| *at >= self.features.len()) {
            return malformed(format!("it corrects feature {at} of {}", self.features.len()));
        }
        if !(self.level > 0.0 && self.level < 1.0) {
            return malformed(format!("its level of {} does not lie between 0 and 1", self.level));
        }
        if !self.margin.is_finite() {
            return malformed("its margin is not a finite number".into());
        }
        self.trees.check(self.features.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> Model {
        let mut table = Table::new(["bytes", "kind"]);
        let (mut measured, mut groups) = (Vec::new(), Vec::new());
        for n in 0..240u32 {
            let row = [1000.0 + f64::from(n * 37 % 211), f64::from(n % 3)];
            table.push(&row).unwrap();
            measured.push(row[0] * (1.0 + 0.5 * row[1]));
            groups.push(n % 12);
        }
        let settings = Settings { trees: 60, rate: 0.2, ..Settings::default() };
        let recipe = Recipe {
            target: "memory, bytes",
            origin: "a test",
            physical: Some("bytes"),
            settings,
            ..Recipe::default()
        };
        Model::train(&table, &measured, &groups, &recipe).unwrap()
    }

    #[test]
    fn a_model_survives_its_file() {
        let model = model();
        let text = model.to_json().unwrap();
        let read = Model::parse(&text).unwrap();
        assert_eq!(model, read);
        let estimate = read.estimate(&[5000.0, 2.0]).unwrap();
        assert!((estimate.value / 10_000.0 - 1.0).abs() < 0.02 && estimate.bound >= estimate.value * 0.99);
        assert_eq!(read.estimate(&[5000.0]), None);
        assert_eq!(read.estimate(&[f64::NAN, 1.0]), None);
        assert_eq!((read.scores().rows, read.groups), (240, 12));
    }

    #[test]
    fn untrusted_files_are_refused_in_one_sentence() {
        let text = model().to_json().unwrap();
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut refuses = |path: &[&str], with: serde_json::Value, sentence: &str| {
            let old = value.clone();
            let mut at = &mut value;
            for step in path {
                at = match step.parse::<usize>() {
                    Ok(index) => &mut at[index],
                    Err(_) => &mut at[*step],
                };
            }
            *at = with;
            let error = Model::parse(&value.to_string()).unwrap_err().to_string();
            assert!(error.contains(sentence), "{error}");
            assert!(!error.contains('\n'));
            value = old;
        };
        let json = |text: &str| serde_json::from_str(text).unwrap();
        refuses(&["version"], json("2"), "has version 2, this program reads version 1");
        refuses(&["trees", "trees", "0"], json("[]"), "tree 0: it has 0 nodes");
        let first = ["trees", "trees", "0", "0"];
        refuses(&first, json("[2, 0.5, 1, 2]"), "splits feature 2 of 2");
        refuses(&first, json("[0, 0.5, 0, 2]"), "node 0 has 0 as a child");
        refuses(&first, json("[0, 0.5, 1, 1]"), "node 0 has 1 as a child");
        refuses(&first, json("[0, 0.5, 1, 4000000000]"), "node 0 has 4000000000 as a child");
        refuses(&["trees", "trees", "0"], json("[1.0, 2.0]"), "node 1 has no parent");
        refuses(&["physical"], json("7"), "corrects feature 7 of 2");
        refuses(&["level"], json("1.5"), "does not lie between 0 and 1");
        refuses(&["features"], json("[]"), "0 features");
        refuses(&["trees", "more"], json("1"), "not a model file");
        let infinite = text.replacen("\"margin\":", "\"margin\":1e999,\"was\":", 1);
        assert!(Model::parse(&infinite).unwrap_err().to_string().contains("not a model file"));
        for text in ["", "[]", "{}", "{\"version\":-1}", "{\"version\":1}"] {
            assert!(Model::parse(text).is_err(), "{text}");
        }
        let long = format!("{{\"version\":1}}{}", " ".repeat(MAX_FILE));
        assert!(Model::parse(&long).unwrap_err().to_string().contains("16 MiB"));
    }
}
