//! Predicted throughput of the values that a search for the largest batch has tried.

use radrm_profile::model::PredictedStep;
use serde::Serialize;
use serde_json::Value;

/// Values that are named.
const MAX_NAMED: usize = 8;
/// Part of the highest throughput from which on more samples gain little.
const NEARLY: f64 = 0.95;

/// Samples a second with a value, if the value is the number of samples of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Throughput {
    /// The value.
    #[serde(skip)]
    pub value: u64,
    /// Card of the prediction.
    #[serde(skip)]
    pub card: String,
    /// Expected samples a second; `None` where the step's time has a lower end only.
    pub expected: Option<f64>,
    /// Samples a second at most, by the lower end of the step's time.
    pub most: f64,
}

impl Throughput {
    /// Of a run, by the figures of its report; `None` if it has no predicted step.
    pub fn of(value: u64, figures: &Value) -> Option<Self> {
        let step: PredictedStep = serde_json::from_value(figures.get("step")?.clone()).ok()?;
        let time = step.on(&step.card)?;
        let rate = |seconds: f64| (seconds > 0.0).then(|| value as f64 / seconds);
        Some(Self {
            value,
            expected: time.seconds.and_then(rate),
            most: rate(time.low)?,
            card: step.card.clone(),
        })
    }

    fn words(&self) -> String {
        match self.expected {
            Some(expected) => format!("{} {}", self.value, digits(expected)),
            None => format!("{} at most {}", self.value, digits(self.most)),
        }
    }
}

fn digits(rate: f64) -> String {
    if rate >= 100.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

/// The values with their throughput, and the one from which on it hardly grows, as one sentence.
pub fn sentence(option: &str, all: &[Throughput]) -> Option<String> {
    let mut all: Vec<&Throughput> = all.iter().collect();
    all.sort_by_key(|of| of.value);
    let card = &all.first()?.card;
    let named: Vec<String> = all.iter().rev().take(MAX_NAMED).rev().map(|of| of.words()).collect();
    let expected: Option<Vec<f64>> = all.iter().map(|of| of.expected).collect();
    let end = expected.filter(|rates| rates.len() > 1).map(|rates| {
        let best = rates.iter().copied().fold(0.0, f64::max);
        let enough = rates.iter().position(|rate| *rate >= NEARLY * best).unwrap_or(0);
        let value = all[enough].value;
        match enough + 1 == rates.len() {
            true => format!("; it grows up to {value}"),
            false => format!("; from {value} on it grows by less than 5 %"),
        }
    });
    Some(format!(
        "samples a second by {option}, predicted on {card}: {}{}",
        named.join(", "),
        end.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(value: u64, seconds: Option<f64>) -> Throughput {
        let rate = |seconds: f64| value as f64 / seconds;
        Throughput { value, card: "A10".to_owned(), expected: seconds.map(rate), most: rate(0.1) }
    }

    #[test]
    fn the_value_from_which_on_throughput_hardly_grows_is_named() {
        let tried = [run(32, Some(0.21)), run(8, Some(0.1)), run(16, Some(0.11)), run(24, Some(0.16))];
        assert_eq!(
            sentence("--batch", &tried).unwrap(),
            "samples a second by --batch, predicted on A10: 8 80.0, 16 145, 24 150, 32 152; from 16 on it grows by less \
             than 5 %"
        );
        assert!(sentence("--batch", &tried[..2]).unwrap().ends_with("it grows up to 32"));
        assert_eq!(sentence("--batch", &[]), None);
    }

    #[test]
    fn a_lower_end_of_time_is_an_upper_end_of_throughput() {
        let words = sentence("--batch", &[run(8, None), run(16, Some(0.2))]).unwrap();
        assert_eq!(words, "samples a second by --batch, predicted on A10: 8 at most 80.0, 16 80.0");
    }

    #[test]
    fn throughput_is_that_of_the_card_of_the_run() {
        let step = PredictedStep {
            card: "T4".to_owned(),
            cards: [("A10", 1.0), ("T4", 2.0)]
                .map(|(card, low)| radrm_profile::model::step::StepTime {
                    card: card.to_owned(),
                    low,
                    ..Default::default()
                })
                .to_vec(),
            ..PredictedStep::default()
        };
        let of = Throughput::of(64, &json!({ "step": step })).unwrap();
        assert_eq!((of.card.as_str(), of.expected, of.most), ("T4", None, 32.0));
        assert_eq!(Throughput::of(64, &json!({})), None);
    }
}
