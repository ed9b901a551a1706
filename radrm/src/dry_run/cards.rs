//! Which GPUs a program fits on.

use radrm_emulator_machine::Models;
use serde::Serialize;

use super::outcome::{GpuOutcome, Phase};

/// Whether a program fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All that it took fits.
    Yes,
    /// What it had in use fits, what its allocator kept in reserve does not: the allocator gives its reserve back
    /// when memory runs short, and mostly that suffices.
    Tight,
    /// What it had in use does not fit.
    No,
}

/// A card.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Fit {
    /// Model.
    pub card: String,
    /// Whether the program fits.
    pub verdict: Verdict,
    /// Need, bytes: with the context constant of this card.
    pub need: u64,
    /// Memory of the card, bytes.
    pub memory: u64,
}

impl Fit {
    /// Need of the memory, percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        self.need as f64 / self.memory as f64 * 100.0
    }
}

/// All cards that are known, the smallest first, for the GPU of the run that needs most.
#[must_use]
pub fn fits(gpus: &[GpuOutcome]) -> Vec<Fit> {
    let Some(most) = gpus.iter().max_by_key(|gpu| gpu.requested_peak) else { return Vec::new() };
    let Ok(models) = Models::known() else { return Vec::new() };
    let peak = most.phases.get(&Phase::Whole).copied().unwrap_or_default();
    let reserve = peak.reserved.saturating_sub(peak.allocated);
    let contexts = most.processes as u64;
    let mut all: Vec<Fit> = models
        .gpu
        .iter()
        .map(|model| {
            let need = most.requested_peak + contexts * model.context_bytes();
            let memory = model.memory_bytes();
            Fit { card: model.id.clone(), verdict: verdict(need, reserve, memory), need, memory }
        })
        .collect();
    all.sort_by(|a, b| (a.memory, &a.card).cmp(&(b.memory, &b.card)));
    all
}

fn verdict(need: u64, reserve: u64, memory: u64) -> Verdict {
    if need <= memory {
        Verdict::Yes
    } else if need.saturating_sub(reserve) <= memory {
        Verdict::Tight
    } else {
        Verdict::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn reserve_makes_a_program_tight_and_not_too_large() {
        assert_eq!(verdict(100, 10, 100), Verdict::Yes);
        assert_eq!(verdict(101, 10, 100), Verdict::Tight);
        assert_eq!(verdict(111, 10, 100), Verdict::No);
    }

    #[test]
    fn cards_come_by_size_and_count_their_own_context() {
        let gpu = GpuOutcome {
            gpu: 0,
            name: String::new(),
            processes: 1,
            phases: BTreeMap::new(),
            requested_peak: 20 << 30,
            held_peak: 21 << 30,
            context: 1 << 30,
            context_origin: String::new(),
        };
        let fits = fits(&[gpu]);
        assert!(fits.windows(2).all(|pair| pair[0].memory <= pair[1].memory));
        let find = |card: &str| fits.iter().find(|fit| fit.card == card).map(|fit| fit.verdict);
        assert_eq!(find("T4"), Some(Verdict::No));
        assert_eq!(find("A100-40GB"), Some(Verdict::Yes));
        assert!(fits.iter().all(|fit| fit.need > 20 << 30));
    }
}
