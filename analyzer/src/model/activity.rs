//! SM activity and energy of a run as one figure each, for tables that have one column for them.

use super::{GpuSummary, OwnSummary, Summary};

/// SM activity while a run was on its GPUs, as one figure for all that it used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Activity {
    /// By any program on these GPUs, 0 to 1, and the meter: `gpm` or `dcgm`.
    pub metered: Option<(f64, &'static str)>,
    /// By the run's own launches, from their shapes and times, 0 to 1. Launches take longer beside other programs, so it is
    /// too high there.
    pub launched: Option<f64>,
}

impl Summary {
    /// SM activity of the run, as means of the GPUs that it used.
    #[must_use]
    pub fn activity(&self) -> Activity {
        let metered = self.used_gpus().filter_map(|gpu| {
            let load = gpu.load.as_ref()?;
            Some((load.sm_active_share?, load.meter?))
        });
        let metered: Vec<_> = metered.collect();
        let meter = metered.first().map(|(_, meter)| *meter);
        let shares: Vec<f64> = metered.iter().map(|(share, _)| *share).collect();
        let launched = self.used_gpus().filter_map(|gpu| gpu.estimate?.sm_active_share);
        Activity { metered: mean(&shares).zip(meter), launched: mean(&launched.collect::<Vec<_>>()) }
    }

    /// Energy of the GPUs that the run used while it was there, by any program on them, J.
    #[must_use]
    pub fn gpu_energy_j(&self) -> Option<f64> {
        let energy = self.used_gpus().filter_map(|gpu| gpu.load.as_ref()?.energy_mj);
        let joules = energy.fold(0, u64::saturating_add) as f64 / 1000.0;
        (joules > 0.0).then_some(joules)
    }

    /// Returns true if a process outside the run was seen on a GPU that it used: figures of whole GPUs are not the run's own then.
    #[must_use]
    pub fn has_others(&self) -> bool {
        let others =
            |gpu: &GpuSummary| gpu.nvml.as_ref().is_some_and(|nvml| !nvml.others_peak_bytes.is_zero());
        self.used_gpus().any(others)
    }

    /// Highest memory on one GPU by the run's calls, bytes, which is exact: a context is in NVML's figure only where a sample
    /// met the run.
    #[must_use]
    pub fn peak_bytes(&self) -> Option<u64> {
        self.gpus.iter().map(|gpu| gpu.peak_bytes.0).max().filter(|peak| *peak > 0)
    }

    /// Steps per second of the fastest process.
    #[must_use]
    pub fn steps_per_s(&self) -> Option<f64> {
        let steps = self.ranges.iter().flat_map(|ranges| &ranges.steps).map(|steps| steps.per_second);
        steps.filter(|rate| rate.is_finite()).reduce(f64::max)
    }

    /// The same with figures that are the run's own, as the sweep knows them that it is part of.
    #[must_use]
    pub fn with_own(self, own: Option<OwnSummary>) -> Self {
        Self { own, ..self }
    }

    fn used_gpus(&self) -> impl Iterator<Item = &GpuSummary> {
        self.gpus.iter().filter(|gpu| gpu.used())
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EstimateSummary, LoadSummary, NvmlSummary};
    use radrm_profile::Bytes;
    use radrm_profile::model::{Job, Profile};

    fn gpu(peak: u64, metered: Option<f64>, launched: Option<f64>) -> GpuSummary {
        let load = LoadSummary {
            sm_active_share: metered,
            meter: metered.map(|_| "gpm"),
            energy_mj: Some(1500),
            ..LoadSummary::default()
        };
        let estimate = EstimateSummary { sm_active_share: launched, ..EstimateSummary::default() };
        GpuSummary {
            peak_bytes: Bytes(peak),
            load: Some(load),
            estimate: Some(estimate),
            ..GpuSummary::default()
        }
    }

    #[test]
    fn a_run_has_one_figure_of_the_gpus_that_it_used() {
        let mut summary = Summary::from_profile(&Profile::new(Job::default()));
        assert_eq!((summary.activity(), summary.gpu_energy_j()), (Activity::default(), None));
        assert_eq!(summary.peak_bytes(), None);
        summary.gpus = vec![
            gpu(5, Some(0.5), Some(0.25)),
            gpu(7, Some(0.75), None),
            // It is there, and the run did not use it.
            gpu(0, Some(1.0), Some(1.0)),
        ];
        let expected = Activity { metered: Some((0.625, "gpm")), launched: Some(0.25) };
        assert_eq!((summary.activity(), summary.gpu_energy_j()), (expected, Some(3.0)));
        assert_eq!(summary.peak_bytes(), Some(7));
        let others = NvmlSummary { others_peak_bytes: Bytes(1), ..NvmlSummary::default() };
        summary.gpus[2].nvml = Some(others.clone());
        assert!(!summary.has_others(), "on a GPU that it did not use");
        summary.gpus[0].nvml = Some(others);
        assert!(summary.has_others());
    }
}
