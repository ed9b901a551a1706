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
    /// The card is of another architecture than the emulated one, so kernels, workspaces and supported types differ:
    /// only a run on it can tell.
    Unknown,
}

impl Verdict {
    /// As reports show it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Tight => "tight",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }
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
/// same report says to be more than it has. A card of another architecture is `no` where not even the tensors fit,
/// which need as much on every card, and `unknown` elsewhere. `ran_short`: the emulated card had too little for the
/// allocator's reserve, so what the program would have taken of more is not known.
#[must_use]
pub fn fits(gpus: &[GpuOutcome], ran_short: bool) -> Vec<Fit> {
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
            let verdict = if model.capability() == most.capability {
                verdict(need, reserve, memory, ran_short)
            } else if peak.allocated + contexts * model.context_bytes() > memory {
                Verdict::No
            } else {
                Verdict::Unknown
            };
            Fit { card: model.id.clone(), verdict, need, memory }
        })
        .collect();
    all.sort_by(|a, b| (a.memory, &a.card).cmp(&(b.memory, &b.card)));
    all
}

fn verdict(need: u64, reserve: u64, memory: u64, ran_short: bool) -> Verdict {
    if need <= memory && !ran_short {
        Verdict::Yes
    } else if need.saturating_sub(reserve) <= memory {
        Verdict::Tight
    } else {
        Verdict::No
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Peak;
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn reserve_makes_a_program_tight_and_not_too_large() {
        assert_eq!(verdict(100, 10, 100, false), Verdict::Yes);
        assert_eq!(verdict(100, 10, 100, true), Verdict::Tight, "it had to give its reserve back");
        assert_eq!(verdict(101, 10, 100, false), Verdict::Tight);
        assert_eq!(verdict(111, 10, 100, false), Verdict::No);
    }

    #[test]
    fn another_architecture_is_never_said_to_fit() {
        let fits = held(9 << 10, 1);
        assert_eq!(find(&fits, "A100-80GB").verdict, Verdict::Yes);
        for other in ["T4", "V100-16GB", "H200", "B200"] {
            assert_eq!(find(&fits, other).verdict, Verdict::Unknown, "{other}");
        }
        // Tensors are as large everywhere.
        let tensors = Peak { allocated: 20 << 30, reserved: 20 << 30 };
        let gpu = GpuOutcome { phases: BTreeMap::from([(Phase::Whole, tensors)]), ..gpu(21 << 10, 1) };
        assert_eq!(find(&super::fits(&[gpu], false), "T4").verdict, Verdict::No);
    }

    /// So many MiB were held on a GPU with 400 MiB for each context.
    fn held(mib: u64, processes: usize) -> Vec<Fit> {
        fits(&[gpu(mib, processes)], false)
    }

    fn gpu(mib: u64, processes: usize) -> GpuOutcome {
        GpuOutcome {
            gpu: 0,
            name: String::new(),
            capability: (8, 0),
            processes,
            phases: BTreeMap::new(),
            requested_peak: 1 << 30,
            held_peak: mib << 20,
            context: 0,
            context_constant: (processes as u64 * 400) << 20,
            context_origin: String::new(),
        }
    }

    fn find<'a>(fits: &'a [Fit], card: &str) -> &'a Fit {
        fits.iter().find(|fit| fit.card == card).unwrap()
    }

    #[test]
    fn cards_come_by_size_and_count_their_own_context() {
        let fits = held(21 << 10, 2);
        assert!(fits.windows(2).all(|pair| pair[0].memory <= pair[1].memory));
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
