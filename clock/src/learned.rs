//! Learned efficiencies of one kind of work, and the bounds that they keep.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use radrm_estimator::Error;
use radrm_estimator::boost::Ensemble;

use crate::Card;
use crate::features::{self, NAMES, RELATIVE};
use crate::roofline::Physical;
use crate::work::{Kind, Precision, Work};

/// Efficiencies of one kind of work: `time = physical * exp(trees)`.
///
/// One set of trees predicts cards that were measured, another one all other cards. Errors of one card have one sign, so
/// bounds are made of cards and not of kernels: of a measured card from shapes that were left out, of another card from
/// the cards that were left out in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// Kind of work.
    pub kind: Kind,
    /// Sizes of an operand's number in memory that were measured, bytes.
    pub operand_bytes: Vec<u8>,
    /// Coverage of the bounds, 0 to 1.
    pub level: f64,
    /// Cards that were measured, with the logarithm of their bounds.
    pub own: BTreeMap<String, f64>,
    /// Logarithm of the bound for other cards.
    pub other: f64,
    pub(crate) own_trees: Ensemble,
    pub(crate) other_trees: Ensemble,
}

impl Learned {
    /// Predicted time in seconds, logarithm of its bound, and whether the card was measured. Returns `None` for types
    /// that were not measured.
    #[must_use]
    pub fn predict(&self, work: &Work, card: &Card, physical: &Physical) -> Option<(f64, f64, bool)> {
        if !self.knows(work.types.operand) {
            return None;
        }
        let row = features::row(work, card, physical);
        let (efficiency, margin, own) = match self.own.get(&card.id) {
            Some(margin) => (self.own_trees.predict(&row), *margin, true),
            None => (self.other_trees.predict(&row[..RELATIVE]), self.other, false),
        };
        let time = physical.time() * efficiency.exp();
        (time.is_finite() && time > 0.0).then_some((time, margin, own))
    }

    /// Returns true if operations with operands of this type were measured.
    #[must_use]
    pub fn knows(&self, operand: Precision) -> bool {
        // Single precision on tensor cores is a class of its own, which nothing here was measured in.
        // Collective operations are measured by their bytes.
        self.kind == Kind::Collective
            || operand != Precision::Tf32 && self.operand_bytes.contains(&(operand.bytes() as u8))
    }

    /// Number of trees, and of cards that were measured.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.own_trees.trees() + self.other_trees.trees(), self.own.len())
    }

    /// Checks a part of a clock that was read.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let margins = self.own.values().chain([&self.other]);
        if !(self.level > 0.0 && self.level < 1.0) {
            return Err(Error::Malformed(format!(
                "its level of {} does not lie between 0 and 1",
                self.level
            )));
        }
        if let Some(bad) = margins.into_iter().find(|margin| !(0.0..10.0).contains(*margin)) {
            return Err(Error::Malformed(format!("a bound of exp({bad}) is none")));
        }
        self.own_trees.check(NAMES.len())?;
        self.other_trees.check(RELATIVE)
    }
}
