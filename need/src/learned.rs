//! Memory of networks with such layers, by the learned model of the estimator.

use radrm_estimator::memory::Network;

use super::{Estimator, Features, Need, Source, Trained};
use radrm_base::{Bytes, Permille};

/// Estimates from the summary of a network; only of networks within the range of those that were measured.
#[derive(Clone, Debug, Default)]
pub struct LearnedEstimate(pub Trained);

impl Estimator for LearnedEstimate {
    fn name(&self) -> &'static str {
        "learned from networks"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        let summary = job.summary.filter(|summary| summary.shape.depth > 0)?;
        let batch = job.batch.or(summary.batch)?;
        let (parameters, activations) = (summary.parameters, summary.activations);
        let network = Network {
            shape: summary.shape,
            parameters: parameters as f64,
            activations: activations as f64,
            batch: f64::from(batch),
            ..Network::default()
        };
        let model = self.0.get();
        let (bytes, upper) = model.from_network(&network)?;
        let level = Permille::from_fraction(model.level());
        let source = Source::Networks { parameters, activations, batch };
        Some(Need::new(Bytes(bytes as u64), Bytes(upper as u64), Some(level), source))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ModelSummary;
    use super::*;

    #[test]
    fn a_network_like_those_measured_is_estimated_and_no_other() {
        let mut summary = ModelSummary { parameters: 0, ..ModelSummary::default() };
        for _ in 0..6 {
            summary.shape.add("Linear", 2000, 4_002_000);
            summary.shape.add("ReLU", 2000, 0);
        }
        (summary.parameters, summary.activations) = (6 * 4_002_000, 12 * 2000);
        let of = |summary: &ModelSummary, batch| {
            LearnedEstimate::default().memory(&Features {
                batch: Some(batch),
                summary: Some(summary),
                ..Features::default()
            })
        };
        let need = of(&summary, 256).unwrap();
        assert!(
            (1500..2500).contains(&need.bytes.mib()) && need.upper > need.bytes && !need.enforce,
            "{need}"
        );
        assert!(need.to_string().contains("24012000 parameters"), "{need}");
        assert_eq!(of(&summary, 1 << 20), None, "no such batch was measured");
        assert_eq!(of(&ModelSummary { parameters: 7_000_000_000, ..summary.clone() }, 256), None);
        let bare = ModelSummary { shape: Default::default(), ..summary };
        assert_eq!(of(&bare, 256), None, "a summary without layers");
    }
}
