//! Learning from measurements, and how far off predictions are for what was left out.

use std::collections::BTreeMap;

use radrm_estimator::boost::{Ensemble, Settings};
use radrm_estimator::evaluate::group_folds;
use radrm_estimator::{Error, Table};

use crate::features::{self, NAMES, RELATIVE};
use crate::roofline::{self, Physical};
use crate::work::{Kind, Work};
use crate::{Card, Learned};

/// Coverage of the bounds that are learned.
pub const LEVEL: f64 = 0.9;

/// Parts of the shapes that are left out in turn.
const FOLDS: usize = 5;

/// Rows of a card that count in trees for other cards.
const MAX_ROWS_OF_CARD: usize = 3000;
/// Rows up to which those of a card with few are repeated there, and how often at most.
const MIN_ROWS_OF_CARD: usize = 1000;
const MAX_REPEATS: usize = 10;

/// A measured operation.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The operation.
    pub work: Work,
    /// The card.
    pub card: Card,
    /// Group of shapes that are left out together.
    pub family: String,
    /// Measured time, seconds.
    pub seconds: f64,
    /// Part of it that the way of measuring adds to every operation, seconds; 0 in a CUDA graph.
    pub overhead: f64,
}

/// Samples of one kind with their rows.
#[derive(Clone)]
struct Rows {
    table: Table,
    relative: Table,
    target: Vec<f64>,
    cards: Vec<String>,
    families: Vec<String>,
    operand_bytes: Vec<u8>,
}

/// Physical time of a sample as it was measured.
fn as_measured(sample: &Sample) -> Option<Physical> {
    let mut physical = roofline::physical(&sample.work, &sample.card)?;
    physical.floor = physical.floor.max(sample.overhead);
    Some(physical)
}

impl Rows {
    fn of(kind: Kind, samples: &[Sample]) -> Result<Self, Error> {
        let mut rows = Self {
            table: Table::new(NAMES),
            relative: Table::new(NAMES.into_iter().take(RELATIVE)),
            target: Vec::new(),
            cards: Vec::new(),
            families: Vec::new(),
            operand_bytes: Vec::new(),
        };
        for sample in samples.iter().filter(|sample| sample.work.kind() == kind) {
            // A sample without a physical time cannot be learned from.
            let Some(physical) = as_measured(sample) else { continue };
            let row = features::row(&sample.work, &sample.card, &physical);
            rows.table.push(&row)?;
            rows.relative.push(&row[..RELATIVE])?;
            rows.target.push((sample.seconds / physical.time()).ln());
            rows.cards.push(sample.card.id.clone());
            rows.families.push(sample.family.clone());
            rows.operand_bytes.push(sample.work.types.operand.bytes() as u8);
        }
        Ok(rows)
    }

    fn cards(&self) -> Vec<&str> {
        let mut cards: Vec<&str> = self.cards.iter().map(String::as_str).collect();
        cards.sort_unstable();
        cards.dedup();
        cards
    }

    /// Rows for which a property of the card holds.
    fn where_card(&self, mut holds: impl FnMut(&str) -> bool) -> Vec<usize> {
        (0..self.target.len()).filter(|row| holds(&self.cards[*row])).collect()
    }

    /// Trees for cards that were not measured. A card with many rows counts by some of them, and rows of a card with
    /// few are repeated: each is one card, and none is most of the table.
    fn fit_other(&self, rows: &[usize], settings: &Settings) -> Result<Ensemble, Error> {
        let rows = &self.balanced(rows, MAX_ROWS_OF_CARD);
        let target: Vec<f64> = rows.iter().map(|row| self.target[*row]).collect();
        Ensemble::fit(&self.relative.select(rows), &target, settings)
    }

    /// Rows of which each card has at most `most`, and those of a card with few are repeated.
    fn balanced(&self, rows: &[usize], most: usize) -> Vec<usize> {
        let mut of_card: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for row in rows {
            of_card.entry(&self.cards[*row]).or_default().push(*row);
        }
        let chosen = of_card.into_values().flat_map(|rows| {
            let step = rows.len().div_ceil(most).max(1);
            let times = (MIN_ROWS_OF_CARD / rows.len().max(1)).clamp(1, MAX_REPEATS);
            let kept: Vec<usize> = rows.into_iter().step_by(step).collect();
            kept.repeat(times)
        });
        chosen.collect()
    }

    fn fit_own(&self, rows: &[usize], settings: &Settings) -> Result<Ensemble, Error> {
        let rows = &self.balanced(rows, usize::MAX);
        let target: Vec<f64> = rows.iter().map(|row| self.target[*row]).collect();
        Ensemble::fit(&self.table.select(rows), &target, settings)
    }

    /// Scores of a card's rows by trees that learned from `learn`.
    fn other_scores(&self, learn: &[usize], card: &str, settings: &Settings) -> Result<Vec<f64>, Error> {
        let trees = self.fit_other(learn, settings)?;
        let rows = self.where_card(|other| other == card);
        Ok(rows.iter().map(|row| self.target[*row] - trees.predict(self.relative.row(*row))).collect())
    }

    /// Scores of all rows by trees that did not see their family.
    fn own_scores(&self, settings: &Settings) -> Result<Vec<f64>, Error> {
        let folds = group_folds(&self.families, FOLDS);
        let mut scores = vec![f64::NAN; self.target.len()];
        for fold in 0..FOLDS {
            let (held, learn): (Vec<usize>, Vec<usize>) =
                (0..folds.len()).partition(|row| folds[*row] == fold);
            if held.is_empty() || learn.is_empty() {
                continue;
            }
            let trees = self.fit_own(&learn, settings)?;
            for row in held {
                scores[row] = self.target[row] - trees.predict(self.table.row(row));
            }
        }
        Ok(scores)
    }
}

/// Trees of a kind: `own` for measured cards, `other` for all others.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Trees for measured cards.
    pub own: Settings,
    /// Trees for other cards.
    pub other: Settings,
}

/// Trees of each kind that is learned. The shipped file has room for about 12,000 leaves.
#[must_use]
pub fn recipe(kind: Kind) -> Recipe {
    let settings = |trees, leaves, rate, min_rows| Settings {
        trees,
        leaves,
        rate,
        min_rows,
        shrink: 5.0,
        ..Settings::default()
    };
    match kind {
        Kind::Gemm => Recipe { own: settings(300, 13, 0.2, 10), other: settings(60, 8, 0.1, 60) },
        Kind::AttentionPrefill | Kind::AttentionDecode => {
            Recipe { own: settings(110, 9, 0.18, 8), other: settings(30, 8, 0.1, 60) }
        }
        Kind::GemmSimt => Recipe { own: settings(110, 10, 0.18, 8), other: settings(30, 8, 0.1, 60) },
        Kind::Convolution => Recipe { own: settings(110, 10, 0.15, 8), other: settings(40, 8, 0.1, 60) },
        _ => Recipe { own: settings(60, 8, 0.15, 8), other: settings(30, 6, 0.1, 60) },
    }
}

/// The factor that a part `level` of scores stays within, up or down, as a logarithm: the conformal rank, or the largest
/// score where there are too few for it.
#[must_use]
pub fn spread(scores: &[f64], level: f64) -> f64 {
    let mut sizes: Vec<f64> = scores.iter().map(|score| score.abs()).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    let rank = ((sizes.len() + 1) as f64 * level).ceil() as usize;
    sizes.get(rank.clamp(1, sizes.len().max(1)) - 1).copied().unwrap_or(f64::INFINITY)
}

/// Scores of one card.
#[derive(Clone, Debug)]
pub struct CardScores {
    /// The card.
    pub card: String,
    /// Logarithm of measured / predicted, and of the bound that was stated for it.
    pub rows: Vec<(f64, f64)>,
}

impl CardScores {
    /// `|predicted / measured - 1|` at a rank, 0 to 1.
    #[must_use]
    pub fn error(&self, rank: f64) -> f64 {
        let mut errors: Vec<f64> = self.rows.iter().map(|(score, _)| ((-score).exp() - 1.0).abs()).collect();
        errors.sort_unstable_by(f64::total_cmp);
        errors
            .get(((errors.len() as f64 * rank) as usize).min(errors.len().max(1) - 1))
            .copied()
            .unwrap_or(0.0)
    }

    /// Part of the rows within the bound.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        let kept = self.rows.iter().filter(|(score, margin)| score.abs() <= *margin).count();
        kept as f64 / self.rows.len().max(1) as f64
    }

    /// Mean factor of the bound.
    #[must_use]
    pub fn factor(&self) -> f64 {
        let sum: f64 = self.rows.iter().map(|(_, margin)| margin).sum();
        (sum / self.rows.len().max(1) as f64).exp()
    }
}

/// Scores of each card when its own shapes are left out by family, and when the whole card is left out. No bound has
/// seen what it is checked on.
///
/// # Errors
/// Samples of fewer than three cards, or values that arithmetic cannot go on with.
pub fn evaluate(kind: Kind, samples: &[Sample]) -> Result<(Vec<CardScores>, Vec<CardScores>), Error> {
    let rows = Rows::of(kind, samples)?;
    let recipe = recipe(kind);
    let cards = rows.cards();
    if cards.len() < 3 {
        return Err(Error::TooFew { what: "cards", needed: 3, found: cards.len() });
    }
    let all = rows.own_scores(&recipe.own)?;
    let folds = group_folds(&rows.families, FOLDS);
    let own = cards.iter().map(|card| {
        let members = rows.where_card(|other| other == *card);
        let of = |fold: usize, inside: bool| -> Vec<f64> {
            let chosen = members.iter().filter(|row| (folds[**row] == fold) == inside);
            chosen.map(|row| all[*row]).collect()
        };
        // The bound of a fold comes from the other folds.
        let rows = (0..FOLDS).flat_map(|fold| {
            let margin = spread(&of(fold, false), OWN_LEVEL);
            of(fold, true).into_iter().map(move |score| (score, margin))
        });
        CardScores { card: (*card).to_owned(), rows: rows.collect() }
    });
    let own: Vec<CardScores> = own.collect();
    let mut other = Vec::new();
    for card in &cards {
        let learn = rows.where_card(|one| one != *card);
        let scores = rows.other_scores(&learn, card, &recipe.other)?;
        let margin = other_margin(&rows, &recipe, Some(card))?;
        let rows = scores.into_iter().map(|score| (score, margin)).collect();
        other.push(CardScores { card: (*card).to_owned(), rows });
    }
    Ok((own, other))
}

/// Level of the bounds of measured cards on left-out shapes: above [`LEVEL`], as families differ more than their rows.
const OWN_LEVEL: f64 = 0.92;

/// Level of the bounds of other cards, over the pooled cards that are left out: above [`LEVEL`], as a card may be worse than
/// those. Chosen on the coverage of the cards that `evaluate` leaves out.
const OTHER_LEVEL: f64 = 0.97;

/// The bound for a card that was not measured: that of the cards that are left out in turn, each of which weighs alike.
fn other_margin(rows: &Rows, recipe: &Recipe, without: Option<&str>) -> Result<f64, Error> {
    let mut weighted = Vec::new();
    let cards: Vec<&str> = rows.cards().into_iter().filter(|card| Some(*card) != without).collect();
    for card in &cards {
        let learn = rows.where_card(|one| one != *card && Some(one) != without);
        let scores = rows.other_scores(&learn, card, &recipe.other)?;
        let weight = 1.0 / (cards.len() * scores.len().max(1)) as f64;
        weighted.extend(scores.into_iter().map(|score| (score.abs(), weight)));
    }
    weighted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = OTHER_LEVEL;
    let reached = weighted.iter().find(|(_, weight)| {
        left -= weight;
        left <= 0.0
    });
    Ok(reached.or(weighted.last()).map_or(0.0, |(score, _)| *score))
}

/// Learns a kind from all samples of it.
///
/// # Errors
/// Samples of fewer than two cards, or values that arithmetic cannot go on with.
pub fn learn(kind: Kind, samples: &[Sample]) -> Result<Learned, Error> {
    let rows = Rows::of(kind, samples)?;
    let recipe = recipe(kind);
    let cards = rows.cards();
    if cards.len() < 2 {
        return Err(Error::TooFew { what: "cards", needed: 2, found: cards.len() });
    }
    let scores = rows.own_scores(&recipe.own)?;
    let mut own = BTreeMap::new();
    for card in &cards {
        let of_card: Vec<f64> = rows.where_card(|one| one == *card).iter().map(|row| scores[*row]).collect();
        own.insert((*card).to_owned(), rounded(spread(&of_card, OWN_LEVEL)));
    }
    let everything: Vec<usize> = (0..rows.target.len()).collect();
    let mut operand_bytes = rows.operand_bytes.clone();
    operand_bytes.sort_unstable();
    operand_bytes.dedup();
    Ok(Learned {
        kind,
        operand_bytes,
        level: LEVEL,
        own,
        other: rounded(other_margin(&rows, &recipe, None)?),
        own_trees: rows.fit_own(&everything, &recipe.own)?.rounded(),
        other_trees: rows.fit_other(&everything, &recipe.other)?.rounded(),
    })
}

fn rounded(margin: f64) -> f64 {
    (margin * 1000.0).ceil() / 1000.0
}
