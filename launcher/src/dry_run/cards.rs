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
    /// Need, bytes: what the driver would hold, with the context constant of this card.
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
///
/// What was held there counts in full, code that was loaded included, so that no card is said to hold what the
/// same report says to be more than it has.
#[must_use]
pub fn fits(gpus: &[GpuOutcome]) -> Vec<Fit> {
    let Some(most) = gpus.iter().max_by_key(|gpu| gpu.held_peak) else { return Vec::new() };
    let Ok(models) = Models::known() else { return Vec::new() };
    let peak = most.phases.get(&Phase::Whole).copied().unwrap_or_default();
    let reserve = peak.reserved.saturating_sub(peak.allocated);
    let contexts = most.processes as u64;
    let besides_contexts = most.held_peak.saturating_sub(most.context_constant);
    let mut all: Vec<Fit> = models
        .gpu
        .iter()
        .map(|model| {
            let need = besides_contexts + contexts * model.context_bytes();
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

    /// So many MiB were held on a GPU with 400 MiB for each context.
    fn held(mib: u64, processes: usize) -> Vec<Fit> {
        let gpu = GpuOutcome {
            gpu: 0,
            name: String::new(),
            processes,
            phases: BTreeMap::new(),
            requested_peak: 1 << 30,
            held_peak: mib << 20,
            context: 0,
            context_constant: (processes as u64 * 400) << 20,
            context_origin: String::new(),
        };
        fits(&[gpu])
    }

    fn find<'a>(fits: &'a [Fit], card: &str) -> &'a Fit {
        fits.iter().find(|fit| fit.card == card).unwrap()
    }

    #[test]
    fn cards_come_by_size_and_count_their_own_context() {
        let fits = held(21 << 10, 2);
        assert!(fits.windows(2).all(|pair| pair[0].memory <= pair[1].memory));
        assert_eq!(find(&fits, "T4").verdict, Verdict::No);
        let a100 = find(&fits, "A100-40GB");
        assert_eq!((a100.verdict, a100.need >> 20), (Verdict::Yes, (21 << 10) + 2 * (420 - 400)));
    }

    /// A card of 40,960 MiB whose context takes 20 MiB more than the one that was emulated.
    #[test]
    fn a_card_with_less_than_was_held_does_not_fit() {
        let verdict = |mib| find(&held(mib, 1), "A100-40GB").verdict;
        assert_eq!(verdict(40_940), Verdict::Yes);
        assert_eq!(verdict(40_941), Verdict::No);
    }
}
