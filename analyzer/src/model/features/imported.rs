//! Figures that follow from a profiler's file: means over kernels, and what they are over time.

use super::super::LoadSummary;
use super::super::profiled::DURATION;
use super::known::{BY_LAUNCHES, Known};
use super::{Found, Origin};

/// Reason that a figure is missing if no profiler's file was imported, with the remedy.
const NOT_IMPORTED: &str =
    "no meter (NVML, GPM, DCGM) reports it: `radrm import-ncu` adds it from Nsight Compute";

impl Known<'_> {
    /// A metric while the process's kernels run: their mean, weighed by GPU time where launches were timed, else by
    /// launches and how long the profiled ones took.
    pub(super) fn of_kernels(&self, metric: &str) -> Found {
        self.mean(&[metric])
    }

    /// A mean of shares that are multiplied (per cent), or of one metric.
    fn mean(&self, metrics: &[&str]) -> Found {
        self.recorded()?;
        let profiled = self.profiled.ok_or(NOT_IMPORTED)?;
        let file = &profiled.imported.file;
        let value = |name: &str| {
            let mut values = metrics.iter().map(|metric| profiled.metric(name, metric));
            let first = values.next()??;
            values.try_fold(first, |product, value| Some(product * value? / 100.0))
        };
        let duration = |name: &str| profiled.metric(name, DURATION).filter(|duration| *duration > 0.0);
        let found: Vec<_> = self
            .kernels
            .iter()
            .filter_map(|(kernel, weight)| Some((value(&kernel.name)?, *weight, duration(&kernel.name))))
            .collect();
        let covered: f64 = found.iter().map(|(_, weight, _)| weight).sum();
        let all: f64 = self.kernels.iter().map(|(_, weight)| weight).sum();
        if covered <= 0.0 {
            return Err(format!("of none of its kernels {file} has it").into());
        }
        let is_timed =
            self.weighed_by == BY_LAUNCHES && found.iter().all(|(.., duration)| duration.is_some());
        let (mut sum, mut weights) = (0.0, 0.0);
        for (value, weight, duration) in found {
            let weight = weight * duration.filter(|_| is_timed).unwrap_or(1.0);
            (sum, weights) = (sum + value * weight, weights + weight);
        }
        let by = if is_timed { "by launches and the profiled ones' time" } else { self.weighed_by };
        let share = covered / all * 100.0;
        let of = if self.weighed_by == BY_LAUNCHES { "launches" } else { "GPU time" };
        let tool = &profiled.imported.tool;
        let how = format!("by {tool} ({file}), weighed {by}; kernels with {share:.1} % of {of}");
        Ok((sum / weights, Origin::Imported, how))
    }

    /// A share of the time in use, per cent: the mean while kernels run times the part of the time in which they do.
    pub(super) fn over_time(&self, metrics: &[&str]) -> Found {
        let (mean, origin, how) = self.mean(metrics)?;
        let (busy, _, part) = self.kernel_time().or_else(|_| self.by_nvml(|load| load.utilization_share))?;
        Ok((
            mean * busy / 100.0,
            origin,
            format!("{how}; times {busy:.1} % of the time with kernels ({part})"),
        ))
    }

    /// Per cent by GPM or DCGM, else from a profiler's file.
    pub(super) fn metered_or(&self, value: fn(&LoadSummary) -> Option<f64>, metrics: &[&str]) -> Found {
        let metered = self.metered(value);
        if metered.is_ok() || self.profiled.is_none() { metered } else { self.over_time(metrics) }
    }
}
