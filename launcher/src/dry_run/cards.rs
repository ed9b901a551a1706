//! GPUs on which a program fits.

use radrm_emulator_machine::{GpuSpec, Models};
use radrm_profile::model::dry_run::{DryRunFigures, Expected, Fit, Phase, Verdict};

use super::outcome;
use super::verdict::{Evidence, Judged};

/// All cards that are known, the smallest first, for the GPU of the run that needs the largest amount.
///
/// Memory that was held there counts in full, code that was loaded included, so that no card is said to hold what
/// the same report says to be more than it has. A card of another architecture is `no` where not even the tensors
/// fit, which need as much on every card, and `unknown` elsewhere. Where the emulated card had too little for the
/// allocator's reserve, what the program would have taken of more is not known; where it ran out of memory, nothing
/// is.
#[must_use]
pub fn fits(figures: &DryRunFigures) -> Vec<Fit> {
    let ran_short = figures.retries > 0;
    let known = figures.out_of_memory == 0;
    let largest = figures.gpus.iter().filter(|_| known).max_by_key(|gpu| gpu.held_peak);
    let Some(largest) = largest else { return Vec::new() };
    let Ok(models) = Models::known() else { return Vec::new() };
    let peak = largest.phases.get(&Phase::Whole).copied().unwrap_or_default();
    let reserve = peak.reserved.saturating_sub(peak.allocated);
    let contexts = largest.processes as u64;
    let besides_contexts = largest.held_peak.saturating_sub(largest.context_constant);
    let mut all: Vec<Fit> = models
        .gpu
        .iter()
        .map(|model| {
            let need = besides_contexts + contexts * model.context_bytes();
            let (memory, usable) = (model.memory_bytes(), model.cuda_memory_bytes());
            let verdict = if model.capability() == largest.capability {
                verdict(need, reserve, usable, ran_short)
            } else if peak.allocated + contexts * model.context_bytes() > usable {
                Verdict::No
            } else {
                Verdict::Unknown
            };
            let why = remark(verdict).map(str::to_owned);
            Fit { card: model.id.clone(), verdict, why, need, memory, seconds: None }
        })
        .collect();
    all.sort_by(|a, b| (a.memory, &a.card).cmp(&(b.memory, &b.card)));
    all
}

/// The same cards when the need on a real GPU is known. A card on which the program ran keeps the verdict of that run.
#[must_use]
pub fn bounded(fits: &[Fit], figures: Option<&DryRunFigures>, expected: &Expected) -> Vec<Fit> {
    let Ok(models) = Models::known() else { return fits.to_vec() };
    let usable =
        |card: &str| models.gpu.iter().find(|model| model.id == card).map(GpuSpec::cuda_memory_bytes);
    let remarks = figures.into_iter().flat_map(|figures| &figures.remarks).map(String::as_str);
    let stopped = outcome::stopped(remarks);
    let largest =
        figures.into_iter().flat_map(|figures| &figures.gpus).map(|gpu| gpu.held_peak).max().unwrap_or(0);
    let bound = |fit: &Fit| {
        let fit = fit.clone();
        let (Verdict::Yes, None, Some(usable)) = (fit.verdict, fit.seconds, usable(&fit.card)) else {
            return fit;
        };
        let evidence = Evidence {
            held: fit.need,
            // The card's own context is in the need.
            upper: expected.upper.map(|upper| (upper + fit.need).saturating_sub(largest)),
            steps: figures.map_or(0, |figures| figures.steps),
            stopped,
            ..Evidence::default()
        };
        let Judged { verdict, why } = evidence.judge(usable);
        Fit { verdict, why, ..fit }
    };
    fits.iter().map(bound).collect()
}

fn remark(verdict: Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Yes | Verdict::No | Verdict::Partly => None,
        Verdict::Tight => Some("only if the allocator gives its reserve back"),
        Verdict::Unknown => Some("another architecture, estimate only: try --fits"),
    }
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
    use super::*;
    use radrm_profile::model::dry_run::{GpuFigures, Peak};
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
        let gpu = GpuFigures { phases: BTreeMap::from([(Phase::Whole, tensors)]), ..gpu(21 << 10, 1) };
        assert_eq!(find(&super::fits(&figures(gpu)), "T4").verdict, Verdict::No);
    }

    #[test]
    fn what_ran_out_of_memory_fits_nowhere() {
        let out = DryRunFigures { out_of_memory: 1, ..figures(gpu(9 << 10, 1)) };
        assert_eq!(fits(&out), []);
    }

    fn figures(gpu: GpuFigures) -> DryRunFigures {
        DryRunFigures { gpus: vec![gpu], ..DryRunFigures::default() }
    }

    /// So many MiB were held on a GPU with 400 MiB for each context.
    fn held(mib: u64, processes: usize) -> Vec<Fit> {
        fits(&figures(gpu(mib, processes)))
    }

    fn gpu(mib: u64, processes: usize) -> GpuFigures {
        GpuFigures {
            capability: (8, 0),
            processes,
            held_peak: mib << 20,
            context_constant: (processes as u64 * 400) << 20,
            ..GpuFigures::default()
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

    /// A card of 40,960 MiB, of which CUDA shows 40,448, whose context takes 20 MiB more than the one that was emulated.
    #[test]
    fn a_card_with_less_than_was_held_does_not_fit() {
        let verdict = |mib| find(&held(mib, 1), "A100-40GB").verdict;
        assert_eq!(verdict(40_428), Verdict::Yes);
        assert_eq!(verdict(40_429), Verdict::No);
    }
}
