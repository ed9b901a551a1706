//! Time, energy and cost of a whole training, from the predicted time of one of its steps.

use std::collections::BTreeMap;

use radrm_profile::model::step::{StepLimit, StepTime};
use serde::Serialize;

use super::DryRunSummary;

/// A training that a user thinks of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Training {
    /// Number of its optimizer steps.
    pub steps: u64,
    /// Prices of cards.
    pub prices: Prices,
}

/// Cost of an hour on each card.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices {
    /// Name of the currency; empty if none was named.
    pub currency: String,
    /// Price of an hour by card.
    pub per_hour: BTreeMap<String, f64>,
}

/// Predicted figures of a whole training.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TrainingSummary {
    /// Number of its optimizer steps.
    pub steps: u64,
    /// Number of GPUs that it takes at once: those that held memory, or the ranks of the job. Energy and cost are those of all.
    pub gpus: u64,
    /// Currency of the costs, as the file of prices names it; empty: none.
    pub currency: String,
    /// By card, in the order of `step.cards`.
    pub cards: Vec<TrainingTime>,
}

/// Predicted figures of a whole training on cards of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TrainingTime {
    /// Card.
    pub card: String,
    /// Time, s.
    pub seconds: Predicted,
    /// Energy of the GPUs, J; `None` where the GPU does not set the pace or operations have no time. Its ends are the lowest and
    /// the highest power that was measured of busy cards, without a coverage.
    pub joules: Option<Predicted>,
    /// Cost, if the card has a price.
    pub cost: Option<Predicted>,
}

/// A predicted figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Predicted {
    /// Expected figure; `None` if only a lower end is known.
    pub expected: Option<f64>,
    /// Lower end.
    pub low: f64,
    /// Upper end; `None` if there is none.
    pub high: Option<f64>,
}

impl Predicted {
    fn times(self, factor: f64) -> Self {
        let scaled = |figure: f64| figure * factor;
        Self { expected: self.expected.map(scaled), low: scaled(self.low), high: self.high.map(scaled) }
    }
}

impl TrainingSummary {
    /// Figures of a training whose steps are those of a dry run; `None` if it has no predicted step.
    pub(super) fn of(training: &Training, dry_run: &DryRunSummary) -> Option<Self> {
        let step = dry_run.step.as_ref()?;
        let with_memory = dry_run.figures.gpus.iter().filter(|gpu| gpu.held_peak > 0).count() as u64;
        let gpus = dry_run.ranks.as_ref().map_or(with_memory, |ranks| u64::from(ranks.world)).max(1);
        Some(Self::on(training, gpus, &step.cards))
    }

    /// Figures on these cards.
    #[must_use]
    pub fn on(training: &Training, gpus: u64, cards: &[StepTime]) -> Self {
        let Training { steps, prices } = training;
        let cards = cards.iter().map(|step| TrainingTime::of(step, *steps, gpus, prices)).collect();
        Self { steps: *steps, gpus, currency: prices.currency.clone(), cards }
    }

    /// Figures on a card.
    #[must_use]
    pub fn on_card(&self, card: &str) -> Option<&TrainingTime> {
        self.cards.iter().find(|of| of.card == card)
    }
}

impl TrainingTime {
    fn of(step: &StepTime, steps: u64, gpus: u64, prices: &Prices) -> Self {
        let (steps, gpus) = (steps as f64, gpus as f64);
        let seconds = Predicted { expected: step.seconds, low: step.low, high: step.high }.times(steps);
        // A card that waits draws less, by an amount that nothing here says.
        let is_known = step.limit == StepLimit::Gpu && step.without_time == 0;
        let [expected, low, high] = step.joules;
        let joules = Predicted { expected: Some(expected), low, high: Some(high) }.times(steps * gpus);
        let price = prices.per_hour.get(&step.card);
        Self {
            card: step.card.clone(),
            seconds,
            joules: (is_known && expected > 0.0).then_some(joules),
            cost: price.map(|price| seconds.times(price * gpus / 3600.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::{DryRunFigures, DryRunRanks, PredictedStep};

    fn card(limit: StepLimit, seconds: Option<f64>) -> StepTime {
        StepTime {
            card: "H100-80GB".to_owned(),
            seconds,
            low: 0.15,
            high: seconds.map(|_| 0.225),
            limit,
            joules: [111.0, 90.0, 125.0],
            ..StepTime::default()
        }
    }

    fn training() -> Training {
        let per_hour = BTreeMap::from([("H100-80GB".to_owned(), 3.5)]);
        Training { steps: 28_000, prices: Prices { currency: "USD".to_owned(), per_hour } }
    }

    fn near(figure: f64, other: f64) -> bool {
        (figure / other - 1.0).abs() < 1e-9
    }

    #[test]
    fn time_energy_and_cost_grow_with_the_steps() {
        let of = TrainingSummary::on(&training(), 1, &[card(StepLimit::Gpu, Some(0.18))]);
        let found = of.on_card("H100-80GB").unwrap();
        assert!(near(found.seconds.expected.unwrap(), 5040.0) && near(found.seconds.low, 4200.0));
        assert!(near(found.joules.unwrap().expected.unwrap(), 3_108_000.0));
        let cost = found.cost.unwrap();
        assert!(near(cost.expected.unwrap(), 4.9) && near(cost.high.unwrap(), 6.125), "{cost:?}");
        assert_eq!(of.on_card("T4"), None);
    }

    #[test]
    fn a_step_with_a_lower_end_only_has_no_energy_and_a_lowest_cost() {
        let of = TrainingSummary::on(&training(), 1, &[card(StepLimit::Unclear, None)]);
        let found = &of.cards[0];
        assert_eq!((found.seconds.expected, found.seconds.high, found.joules), (None, None, None));
        let cost = found.cost.unwrap();
        assert!(cost.expected.is_none() && near(cost.low, 0.15 * 28_000.0 / 3600.0 * 3.5));
    }

    #[test]
    fn a_card_without_a_price_has_no_cost() {
        let free = Training { prices: Prices::default(), ..training() };
        assert_eq!(TrainingSummary::on(&free, 1, &[card(StepLimit::Gpu, Some(0.18))]).cards[0].cost, None);
    }

    #[test]
    fn energy_and_cost_are_those_of_all_ranks() {
        let cards = vec![card(StepLimit::Gpu, Some(0.18))];
        let step = PredictedStep { cards, ..PredictedStep::default() };
        let ranks = DryRunRanks { world: 64, ..DryRunRanks::default() };
        let figures = DryRunFigures::default();
        let one = DryRunSummary { figures, step: Some(step), ..DryRunSummary::default() };
        let many = DryRunSummary { ranks: Some(ranks), ..one.clone() };
        let [one, many] = [one, many].map(|dry_run| TrainingSummary::of(&training(), &dry_run).unwrap());
        assert_eq!((one.gpus, many.gpus), (1, 64));
        let cost = |of: &TrainingSummary| of.cards[0].cost.unwrap().low;
        assert!(near(cost(&many), 64.0 * cost(&one)) && many.cards[0].seconds == one.cards[0].seconds);
    }
}
