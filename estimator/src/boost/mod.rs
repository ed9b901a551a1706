//! Gradient boosting of regression trees: squared and pinball loss.
//!
//! Trees grow best split first over histograms of binned features (Friedman, Annals of Statistics 29(5), 2001;
//! histograms as in LightGBM, NeurIPS 2017). There is no chance in it: the same rows in the same order give the same
//! trees.

mod bins;
mod grow;
mod tree;

use serde::{Deserialize, Serialize};

use crate::{Error, Table};
use bins::Binned;

pub use tree::{Node, Tree};

/// Loss that is minimized.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Squared error: the mean.
    Squared,
    /// Pinball loss: this quantile, between 0 and 1.
    Pinball(f64),
}

/// Hyperparameters of the trees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The loss.
    pub loss: Loss,
    /// Number of trees.
    pub trees: usize,
    /// Part of each tree's correction that is taken.
    pub rate: f64,
    /// Most leaves of a tree.
    pub leaves: usize,
    /// Fewest rows in a leaf.
    pub min_rows: usize,
    /// Added to a leaf's number of rows: draws the corrections of small leaves towards 0.
    pub shrink: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { loss: Loss::Squared, trees: 300, rate: 0.05, leaves: 16, min_rows: 10, shrink: 1.0 }
    }
}

/// The most trees that are grown or read.
pub const MAX_TREES: usize = 5000;

/// The most leaves of a tree.
pub const MAX_LEAVES: usize = 256;

/// A sum of trees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ensemble {
    /// The prediction before the first tree.
    base: f64,
    trees: Vec<Tree>,
}

impl Ensemble {
    /// Grows trees for a target of each row.
    ///
    /// # Errors
    /// No rows, as many targets as rows are missing, a target that is not finite, or a setting outside of its range.
    pub fn fit(table: &Table, target: &[f64], settings: &Settings) -> Result<Self, Error> {
        let rows = table.len();
        if rows == 0 {
            return Err(Error::TooFew { what: "rows", needed: 1, found: 0 });
        }
        if target.len() != rows {
            return Err(Error::Length { what: "targets", expected: rows, found: target.len() });
        }
        if let Some(row) = target.iter().position(|value| !value.is_finite()) {
            return Err(Error::NotFinite { what: "target".into(), row });
        }
        settings.check()?;
        let base = match settings.loss {
            Loss::Squared => target.iter().sum::<f64>() / rows as f64,
            Loss::Pinball(level) => quantile(&mut target.to_vec(), level),
        };
        let binned = Binned::of(table);
        let mut left: Vec<f64> = target.iter().map(|value| value - base).collect();
        let mut trees = Vec::with_capacity(settings.trees);
        for _ in 0..settings.trees {
            let tree = grow::tree(&binned, &mut left, settings);
            // A single leaf can only repeat the base: nothing is left to learn.
            if tree.is_leaf() && settings.loss == Loss::Squared {
                break;
            }
            trees.push(tree);
        }
        Ok(Self { base, trees })
    }

    /// The prediction for a row with the columns of the table it was fitted to; 0 for columns that are missing.
    #[must_use]
    pub fn predict(&self, row: &[f64]) -> f64 {
        self.base + self.trees.iter().map(|tree| tree.value(row)).sum::<f64>()
    }

    /// Checks trees that come from a file: finite values, features under `features`, and nodes that form a tree.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self, features: usize) -> Result<(), Error> {
        if !self.base.is_finite() {
            return Err(Error::Malformed("the base of the trees is not a finite number".into()));
        }
        if self.trees.len() > MAX_TREES {
            return Err(Error::Malformed(format!(
                "it has {} trees, at most {MAX_TREES} are read",
                self.trees.len()
            )));
        }
        for (at, tree) in self.trees.iter().enumerate() {
            tree.check(features).map_err(|why| Error::Malformed(format!("tree {at}: {why}")))?;
        }
        Ok(())
    }

    /// The same trees with numbers of four digits: their file is half as long.
    #[must_use]
    pub fn rounded(mut self) -> Self {
        self.base = tree::rounded(self.base);
        self.trees.iter_mut().for_each(Tree::round);
        self
    }

    /// Trees.
    #[must_use]
    pub fn trees(&self) -> usize {
        self.trees.len()
    }
}

impl Settings {
    fn check(&self) -> Result<(), Error> {
        let level = match self.loss {
            Loss::Squared => 0.5,
            Loss::Pinball(level) => level,
        };
        if !(level > 0.0 && level < 1.0) {
            return Err(Error::Setting("the quantile of the pinball loss must lie between 0 and 1"));
        }
        if self.trees > MAX_TREES || !(2..=MAX_LEAVES).contains(&self.leaves) {
            return Err(Error::Setting("at most 5000 trees with 2 to 256 leaves are grown"));
        }
        if !(self.rate > 0.0 && self.rate <= 1.0 && self.shrink >= 0.0 && self.shrink.is_finite()) {
            return Err(Error::Setting("the rate must lie in (0, 1], and shrink must not be negative"));
        }
        Ok(())
    }
}

/// The value below which a part `level` of the values lies, by the nearest rank. It reorders the values.
fn quantile(values: &mut [f64], level: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let rank = ((values.len() as f64 * level).ceil() as usize).clamp(1, values.len()) - 1;
    *values.select_nth_unstable_by(rank, f64::total_cmp).1
}

#[cfg(test)]
mod tests;
