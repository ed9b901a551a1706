//! Horus's formula (Yeung et al., IEEE TPDS 2021): `(B*A + P) + (B*G) + d`.

use super::{Estimator, Features, Need, Source, measured};
use radrm_base::Bytes;

/// The formula with its constants: batch B, activations A and gradients G of a sample, parameters
/// P, all in values of `value_bytes`; d is what a process holds before the first layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horus {
    /// Bytes of a value: 4 for fp32.
    pub value_bytes: u64,
    /// Context, libraries, allocator.
    pub startup: Bytes,
}

impl Default for Horus {
    fn default() -> Self {
        Self { value_bytes: 4, startup: Bytes::from_mib(600) }
    }
}

impl Estimator for Horus {
    fn name(&self) -> &'static str {
        "Horus's formula"
    }

    fn memory(&self, job: &Features<'_>) -> Option<Need> {
        let model = job.summary?;
        let batch = job.batch.or(model.batch)?;
        // The formula has a gradient for each activation.
        let values = u64::from(batch)
            .saturating_mul(model.activations)
            .saturating_mul(2)
            .saturating_add(model.parameters);
        let bytes = Bytes(values.saturating_mul(self.value_bytes)).plus(self.startup);
        let (parameters, activations) = (model.parameters, model.activations);
        let source = Source::Formula { parameters, activations, batch, startup: self.startup };
        // It is its own bound.
        Some(Need::new(bytes, bytes, Some(measured::HORUS), source))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ModelSummary;
    use super::*;

    #[test]
    fn the_formula_is_the_published_one() {
        let model = ModelSummary { parameters: 1000, activations: 50, ..ModelSummary::default() };
        let horus = Horus { value_bytes: 4, startup: Bytes(7) };
        let of = |batch, summary| {
            horus.memory(&Features { batch, summary, ..Features::default() }).map(|need| need.bytes)
        };
        assert_eq!(of(Some(8), Some(&model)), Some(Bytes((8 * 50 + 1000) * 4 + (8 * 50) * 4 + 7)));
        assert_eq!(of(None, Some(&model)), None, "no batch size anywhere");
        assert_eq!(of(Some(8), None), None);
        let huge = ModelSummary { parameters: u64::MAX, ..model.clone() };
        assert_eq!(of(Some(u32::MAX), Some(&huge)), Some(Bytes::MAX));
    }
}
