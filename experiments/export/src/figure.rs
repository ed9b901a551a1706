//! Figures of a run that are exported, and their name in each tracker: one row for each figure.

/// A figure. Its values are in base units: bytes, seconds, watts, joules, and shares from 0 to 1.
#[derive(Debug, PartialEq)]
pub struct Figure {
    /// Name at MLflow and in tables, with the unit as its last word; `GPU` stands for the GPU's index.
    pub name: &'static str,
    /// The unit of that name.
    pub scale: Scale,
    /// Name for OpenTelemetry: that of its semantic conventions for hardware, or one below `radrm.`.
    pub otel: &'static str,
    /// Unit there, in the notation of UCUM.
    pub unit: &'static str,
    /// Instrument there.
    pub kind: Kind,
    /// Extent of the value: one for the whole run, or a curve.
    pub extent: Extent,
}

/// Extent of a figure's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The whole run.
    Run,
    /// A moment of it.
    Moment,
}

/// From a base unit to the unit that a name states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The same.
    Base,
    /// Bytes to megabytes (1,000,000 bytes), as MLflow counts them.
    Megabytes,
    /// Shares to percent.
    Percent,
}

impl Scale {
    /// A value in that unit.
    #[must_use]
    pub fn of(self, value: f64) -> f64 {
        match self {
            Self::Base => value,
            Self::Megabytes => value / 1e6,
            Self::Percent => value * 100.0,
        }
    }
}

/// An instrument of OpenTelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value of the moment that does not add up.
    Gauge,
    /// A value of the moment that adds up over GPUs, as memory does.
    Level,
    /// A count since the run's start.
    Counter,
}

macro_rules! figures {
    ($($(#[$doc:meta])* $key:ident = $name:literal, $scale:ident, $otel:literal, $unit:literal, $kind:ident, $extent:ident;)*) => {
        $($(#[$doc])* pub const $key: Figure = Figure {
            name: $name, scale: Scale::$scale, otel: $otel, unit: $unit, kind: Kind::$kind, extent: Extent::$extent,
        };)*

        /// All of them.
        pub const ALL: &[Figure] = &[$($key),*];
    };
}

// Names that begin with `system/`, and with `hw.` or `radrm.device.`, are of the whole GPU, by any process on it; all others
// are of the run.
figures! {
    /// Duration of the run.
    RUN_TIME = "radrm/run_time_seconds", Base, "radrm.run.time", "s", Gauge, Run;
    /// Kernels and graphs that were launched.
    LAUNCHES = "radrm/launches", Base, "radrm.launches", "{launch}", Counter, Run;
    /// Requests for memory that were refused.
    REFUSED = "radrm/refused_requests", Base, "radrm.memory.refused_requests", "{request}", Counter, Run;
    /// Steps per second of the fastest process.
    STEPS = "radrm/steps_per_second", Base, "radrm.steps.rate", "{step}/s", Gauge, Run;
    /// Most memory that the run held on one GPU.
    RUN_PEAK = "radrm/peak_memory_megabytes", Megabytes, "radrm.memory.peak", "By", Gauge, Run;
    /// SM activity of the run's own: a tag names its origin.
    RUN_SM_ACTIVITY = "radrm/sm_activity_percentage", Percent, "radrm.sm.activity", "1", Gauge, Run;
    /// Energy of the run's own: a tag names its origin.
    RUN_ENERGY = "radrm/energy_joules", Base, "radrm.energy", "J", Gauge, Run;
    /// Most GPU memory that the run held.
    PEAK = "radrm/gpu_GPU_peak_memory_megabytes", Megabytes, "radrm.gpu.memory.peak", "By", Gauge, Run;
    /// SM activity by its launches alone; of runs that had the GPU to themselves.
    SM_ACTIVITY = "radrm/gpu_GPU_sm_activity_percentage", Percent, "radrm.gpu.sm.activity", "1", Gauge, Run;
    /// GPU memory that the run holds.
    MEMORY = "radrm/gpu_GPU_memory_megabytes", Megabytes, "radrm.gpu.memory.usage", "By", Level, Moment;
    /// SM activity of the GPU over the whole run.
    GPU_SM_ACTIVITY = "system/gpu_GPU_sm_activity_percentage", Percent, "radrm.device.sm.activity", "1", Gauge, Run;
    /// Energy of the GPU during the run.
    GPU_ENERGY = "system/gpu_GPU_energy_joules", Base, "hw.energy", "J", Counter, Run;
    /// GPU memory in use.
    GPU_MEMORY = "system/gpu_GPU_memory_usage_megabytes", Megabytes, "hw.gpu.memory.usage", "By", Level, Moment;
    /// GPU memory in use as a share.
    GPU_MEMORY_SHARE = "system/gpu_GPU_memory_usage_percentage", Percent, "hw.gpu.memory.utilization", "1", Gauge, Moment;
    /// Share of the time in which a kernel ran.
    GPU_UTILIZATION = "system/gpu_GPU_utilization_percentage", Percent, "hw.gpu.utilization", "1", Gauge, Moment;
    /// Power.
    GPU_POWER = "system/gpu_GPU_power_usage_watts", Base, "hw.power", "W", Gauge, Moment;
    /// SM activity at a time.
    GPU_SM_ACTIVE = "system/gpu_GPU_sm_active_percentage", Percent, "radrm.device.sm.active", "1", Gauge, Moment;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_state_whose_the_figure_is() {
        let names: BTreeSet<_> = ALL.iter().map(|figure| figure.name).collect();
        let otel: BTreeSet<_> = ALL.iter().map(|figure| figure.otel).collect();
        assert_eq!((names.len(), otel.len()), (ALL.len(), ALL.len()));
        for figure in ALL {
            let is_of_gpu = figure.name.starts_with("system/gpu_GPU_");
            assert!(is_of_gpu || figure.name.starts_with("radrm/"), "{}", figure.name);
            let otel = figure.otel.starts_with("hw.") || figure.otel.starts_with("radrm.device.");
            assert_eq!(otel, is_of_gpu, "{}", figure.otel);
            let scale = match figure.name.rsplit('_').next() {
                Some("megabytes") => Scale::Megabytes,
                Some("percentage") => Scale::Percent,
                _ => Scale::Base,
            };
            assert_eq!(figure.scale, scale, "{}", figure.name);
        }
    }
}
