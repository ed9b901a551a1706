//! Activity of GPUs, from single readings to spans.

use crate::pace::span_length;
use radrm_profile::model::{GpuIndex, GpuSpan, Meter, Share};
use radrm_profile::{Bytes, Nanos};
use std::collections::BTreeMap;

/// Reading of a GPU at one moment. Percentages as NVML gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    pub(crate) t: Nanos,
    pub(crate) gpu: GpuIndex,
    pub(crate) utilization: Option<f64>,
    pub(crate) memory_utilization: Option<f64>,
    pub(crate) power_mw: Option<f64>,
    /// Since the driver was loaded.
    pub(crate) energy_mj: Option<u64>,
    pub(crate) temperature: Option<u32>,
    pub(crate) sm_clock_mhz: Option<f64>,
    pub(crate) memory_clock_mhz: Option<f64>,
    /// Bytes per second.
    pub(crate) pcie_from_gpu: Option<f64>,
    /// Bytes per second.
    pub(crate) pcie_to_gpu: Option<f64>,
    pub(crate) metered: Metered,
}

/// Figures of a performance monitor, per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Metered {
    pub(crate) meter: Meter,
    pub(crate) sm_active: Option<f64>,
    pub(crate) sm_occupancy: Option<f64>,
    pub(crate) tensor_active: Option<f64>,
    pub(crate) dram_active: Option<f64>,
    /// Not in profiles, where the utilisation shows the same.
    pub(crate) gr_active: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.sum += value;
            self.count += 1;
        }
    }

    fn get(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

/// The figures of an open span.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    start: Nanos,
    last: Nanos,
    samples: u32,
    temperature: Option<u32>,
    energy: Option<(u64, u64)>,
    meter: Meter,
    means: [Mean; 11],
}

impl Open {
    fn add(&mut self, reading: &Reading) {
        self.last = self.last.max(reading.t);
        self.samples = self.samples.saturating_add(1);
        self.temperature = self.temperature.max(reading.temperature);
        if let Some(energy) = reading.energy_mj {
            // A driver that was loaded anew counts from zero.
            let first = self.energy.map_or(energy, |(first, _)| first);
            self.energy = Some((first.min(energy), energy));
        }
        let metered = &reading.metered;
        if metered.meter != Meter::None {
            self.meter = metered.meter;
        }
        let values = [
            reading.utilization,
            reading.memory_utilization,
            metered.sm_active,
            metered.sm_occupancy,
            metered.tensor_active,
            metered.dram_active,
            reading.power_mw,
            reading.sm_clock_mhz,
            reading.memory_clock_mhz,
            reading.pcie_from_gpu,
            reading.pcie_to_gpu,
        ];
        for (mean, value) in self.means.iter_mut().zip(values) {
            mean.add(value);
        }
    }

    fn span(&self, gpu: GpuIndex, end: Nanos) -> GpuSpan {
        let share = |at: usize| self.means[at].get().and_then(Share::from_percent);
        // Figures of this kind are far from the limits of their types.
        let whole = |at: usize| self.means[at].get().map(|mean| mean.round().max(0.0) as u32);
        let bytes = |at: usize| self.means[at].get().map(|mean| Bytes(mean.round().max(0.0) as u64));
        GpuSpan {
            t: self.start,
            span: end.minus(self.start),
            gpu,
            samples: self.samples,
            utilization: share(0),
            memory_utilization: share(1),
            meter: self.meter,
            sm_active: share(2),
            sm_occupancy: share(3),
            tensor_active: share(4),
            dram_active: share(5),
            power_mw: whole(6),
            energy_mj: self.energy.map(|(first, last)| last - first),
            temperature: self.temperature,
            sm_clock_mhz: whole(7),
            memory_clock_mhz: whole(8),
            pcie_from_gpu: bytes(9),
            pcie_to_gpu: bytes(10),
        }
    }

    /// An empty span that begins where this one ends; energy goes on from there.
    fn next(&self, start: Nanos) -> Open {
        let energy = self.energy.map(|(_, last)| (last, last));
        Open { start, last: start, energy, ..Open::default() }
    }
}

/// Joins readings into spans.
#[derive(Debug, Default)]
pub(crate) struct SpanBuilder {
    open: BTreeMap<u8, Open>,
    ready: Vec<GpuSpan>,
}

impl SpanBuilder {
    /// Adds a reading: it is of the time up to its moment.
    pub(crate) fn add(&mut self, reading: &Reading) {
        let open =
            self.open.entry(reading.gpu.0).or_insert_with(|| Open { start: reading.t, ..Open::default() });
        open.add(reading);
        if open.last.minus(open.start) >= span_length(open.start) {
            self.ready.push(open.span(reading.gpu, open.last));
            *open = open.next(open.last);
        }
    }

    /// Spans that are over.
    pub(crate) fn take(&mut self) -> Vec<GpuSpan> {
        std::mem::take(&mut self.ready)
    }

    /// All spans: nothing follows.
    pub(crate) fn finish(&mut self) -> Vec<GpuSpan> {
        for (gpu, open) in std::mem::take(&mut self.open) {
            // A single reading has no length; it is better than none.
            if open.samples > 0 {
                let end = open.last.max(open.start + Nanos(1));
                self.ready.push(open.span(GpuIndex(gpu), end));
            }
        }
        self.ready.sort_by_key(|span| span.t);
        self.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(ms: u64, sm: Option<f64>, energy: u64) -> Reading {
        Reading {
            t: Nanos::from_millis(ms),
            utilization: Some(50.0),
            energy_mj: Some(energy),
            temperature: Some(40 + ms as u32 % 7),
            metered: Metered { meter: Meter::Gpm, sm_active: sm, ..Metered::default() },
            ..Reading::default()
        }
    }

    #[test]
    fn spans_follow_each_other_and_no_energy_is_lost() {
        let mut activity = SpanBuilder::default();
        // Ten readings a second for an hour, the energy counter does not start at zero.
        for i in 0..36_000u64 {
            activity.add(&reading(100 * i, (i % 2 == 0).then_some(80.0), 5_000_000 + 40 * i));
        }
        let spans = activity.finish();
        assert!((1_000..3_000).contains(&spans.len()), "{}", spans.len());
        assert!(spans.windows(2).all(|pair| pair[0].t + pair[0].span == pair[1].t));
        let energy: u64 = spans.iter().filter_map(|span| span.energy_mj).sum();
        assert_eq!(energy, 40 * 35_999);
        let last = &spans[spans.len() - 2];
        assert_eq!((last.sm_active, last.utilization), (Share::new(0.8), Share::new(0.5)));
        assert_eq!((last.meter, last.sm_occupancy), (Meter::Gpm, None));
        assert_eq!(last.temperature, Some(46));
    }

    #[test]
    fn a_counter_of_energy_that_starts_anew_takes_nothing_away() {
        let mut activity = SpanBuilder::default();
        for (ms, energy) in [(0, 900), (10, 1000), (20, 3), (30, 8)] {
            activity.add(&reading(ms, None, energy));
        }
        let spans = activity.finish();
        assert_eq!(spans.len(), 1);
        assert_eq!(spans[0].energy_mj, Some(5));
    }

    #[test]
    fn gpus_are_kept_apart_and_one_reading_is_better_than_none() {
        let mut activity = SpanBuilder::default();
        activity.add(&reading(0, Some(10.0), 0));
        activity.add(&Reading { gpu: GpuIndex(3), ..reading(0, Some(f64::NAN), 0) });
        let spans = activity.finish();
        let seen: Vec<_> = spans.iter().map(|span| (span.gpu.0, span.sm_active)).collect();
        assert_eq!(seen, [(0, Share::new(0.1)), (3, None)]);
    }
}
