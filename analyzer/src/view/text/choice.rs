//! The cards on which a program takes least time and costs least, by prediction.

use radrm_profile::model::Fit;
use radrm_profile::model::dry_run::Verdict;
use radrm_profile::model::step::StepTime;
use radrm_text::clean;

use super::step::{long, predicted};
use crate::model::{Predicted, TrainingSummary};

/// Least time and least cost among the cards that hold the program, a line each. A card whose bound overlaps is named: which of the two
/// is better is not known then. None where fewer than two of them have a figure.
pub(super) fn lines(fits: &[&Fit], steps: &[StepTime], training: Option<&TrainingSummary>) -> Vec<String> {
    let holds = |card: &str| {
        let fit = fits.iter().find(|fit| fit.card == card);
        fit.is_some_and(|fit| !matches!(fit.verdict, Verdict::No | Verdict::Unknown))
    };
    let step = |time: &StepTime| Predicted { expected: time.seconds, low: time.low, high: time.high };
    let (mut times, mut costs) = (Vec::new(), Vec::new());
    for time in steps.iter().filter(|time| holds(&time.card)) {
        let on = training.and_then(|training| training.on_card(&time.card));
        times.push((time.card.as_str(), on.map_or_else(|| step(time), |on| on.seconds)));
        costs.extend(on.and_then(|on| on.cost).map(|cost| (time.card.as_str(), cost)));
    }
    let currency = training.map_or("", |training| training.currency.as_str());
    let time = least("time", &times, long);
    let cost = least("cost", &costs, |_| (1.0, currency));
    time.into_iter().chain(cost).collect()
}

/// The least of these, and those that may be less.
fn least<'a>(what: &str, all: &[(&str, Predicted)], unit: impl Fn(f64) -> (f64, &'a str)) -> Option<String> {
    let expected = |(_, of): &&(&str, Predicted)| of.expected.is_some();
    let known = all.iter().filter(expected);
    let (card, best) = known
        .min_by(|(_, a), (_, b)| a.expected.partial_cmp(&b.expected).unwrap_or(std::cmp::Ordering::Equal))?;
    if all.len() < 2 {
        return None;
    }
    let high = best.high.unwrap_or(f64::INFINITY);
    let near = all.iter().filter(|(other, of)| other != card && of.low < high);
    let near: Vec<&str> = near.map(|(other, _)| *other).collect();
    let overlap = match near.len() {
        0 => String::new(),
        1 => format!("; the bound of {} overlaps", near[0]),
        _ => format!("; the bounds of {} overlap", near.join(", ")),
    };
    let figure = predicted(best, &unit(best.expected.unwrap_or(best.low)));
    Some(clean(&format!("least {what}, predicted: {card}, {figure}{overlap}")).into_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::{Prices, Training};

    fn fit(card: &str, verdict: Verdict) -> Fit {
        Fit { card: card.to_owned(), verdict, why: None, need: 1, memory: 2, seconds: Some(1.0) }
    }

    fn step(card: &str, [low, seconds, high]: [f64; 3]) -> StepTime {
        StepTime {
            card: card.to_owned(),
            seconds: Some(seconds),
            low,
            high: Some(high),
            ..StepTime::default()
        }
    }

    #[test]
    fn the_least_time_and_cost_are_named_with_the_cards_whose_bounds_overlap() {
        let fits = [
            fit("FAST", Verdict::Yes),
            fit("NEAR", Verdict::Tight),
            fit("CHEAP", Verdict::Partly),
            fit("SMALL", Verdict::No),
        ];
        let fits: Vec<&Fit> = fits.iter().collect();
        let steps = [
            step("SMALL", [0.01, 0.02, 0.03]),
            step("FAST", [0.09, 0.1, 0.12]),
            step("NEAR", [0.11, 0.14, 0.16]),
            step("CHEAP", [0.3, 0.36, 0.4]),
        ];
        let prices = [("FAST", 10.0), ("NEAR", 9.0), ("CHEAP", 1.0)];
        let per_hour = prices.map(|(card, price)| (card.to_owned(), price)).into();
        let training = Training { steps: 40_000, prices: Prices { currency: "USD".to_owned(), per_hour } };
        let training = TrainingSummary::on(&training, 1, &steps);
        assert_eq!(
            lines(&fits, &steps, Some(&training)),
            [
                "least time, predicted: FAST, 1.11 h (1.00 to 1.33); the bound of NEAR overlaps",
                "least cost, predicted: CHEAP, 4.00 USD (3.33 to 4.44)",
            ]
        );
        assert_eq!(
            lines(&fits, &steps, None),
            ["least time, predicted: FAST, 100 ms (90.0 to 120); the bound of NEAR overlaps"]
        );
        let unpriced =
            Training { steps: 1, prices: Prices { per_hour: BTreeMap::new(), ..Prices::default() } };
        let unpriced = TrainingSummary::on(&unpriced, 1, &steps);
        assert_eq!(lines(&fits, &steps, Some(&unpriced)).len(), 1);
    }

    #[test]
    fn a_card_with_a_lower_end_only_may_be_the_better_one() {
        let fits = [fit("A", Verdict::Yes), fit("B", Verdict::Yes)];
        let fits: Vec<&Fit> = fits.iter().collect();
        let at_least = StepTime { card: "B".to_owned(), low: 0.05, ..StepTime::default() };
        let steps = [step("A", [0.09, 0.1, 0.12]), at_least.clone()];
        assert_eq!(
            lines(&fits, &steps, None),
            ["least time, predicted: A, 100 ms (90.0 to 120); the bound of B overlaps"]
        );
        assert!(lines(&fits, &[at_least], None).is_empty());
    }
}
