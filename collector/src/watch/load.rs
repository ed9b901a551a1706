//! Load of the GPUs and of the host: what samplers say goes into the profile.

use super::Watch;
use crate::activity::Reading;
use crate::dcgm::{Dcgm, DcgmSource};
use crate::host::{HostCounters, Usage};
use crate::nvml::NvmlSource;
use crate::source::{Brief, Source};
use radrm_profile::model::{GpuClock, GpuIndex, GpuTime, KernelActivity, NvmlSample, Process, Timings};
use radrm_profile::{Nanos, Record};
use std::time::Instant;

/// State of the queries to DCGM.
#[derive(Default)]
pub(super) struct Meters {
    source: DcgmSource,
    dcgm: Option<Dcgm>,
    /// NVML is not the system's.
    is_apart: bool,
    /// Reason that NVML does not measure.
    why: String,
}

impl Meters {
    /// An emulated machine has no DCGM, and that of the real one reports other GPUs.
    pub(super) fn new(dcgm: &DcgmSource, nvml: &NvmlSource) -> Meters {
        let is_apart = *dcgm == DcgmSource::System && *nvml != NvmlSource::System;
        let source = if is_apart { DcgmSource::Off } else { dcgm.clone() };
        Meters { source, is_apart, ..Meters::default() }
    }

    /// Ends DCGM's tool and thread; what it measured is taken before.
    pub(super) fn stop(&mut self) {
        self.dcgm = None;
    }
}

/// Reason that an emulated GPU has no load.
const NO_TIME: &str = "load, power and energy of the emulated GPUs: waiting for them takes no time \
                       (RADRM_EMULATOR_TIME=real lets them get on with the wall clock)";

impl<S: Source> Watch<S> {
    /// Takes the times of kernels away where nothing is computed.
    pub(super) fn drop_false_times(&self, process: &mut Process) {
        if self.output.profile.gpu_clock == GpuClock::Absent {
            process.timings = Timings {
                kernels: Vec::new(),
                gpu_time: GpuTime::default(),
                spans: Vec::new(),
                ..std::mem::take(&mut process.timings)
            };
            process.kernel_activity = KernelActivity {
                kernels: Nanos::ZERO,
                active: Nanos::ZERO,
                resident: Nanos::ZERO,
                ..process.kernel_activity
            };
        }
    }

    /// Says what the GPUs' time is, and what cannot be measured for it.
    pub(super) fn begin_load(&mut self, time: GpuClock) {
        if time != self.output.profile.gpu_clock {
            self.write(Record::GpuClock(time));
        }
        if time == GpuClock::Modelled {
            self.write(Record::Unmeasured(NO_TIME.to_owned()));
        }
    }

    /// Returns true if the host's time shows anything of what GPUs do.
    fn has_load(&self) -> bool {
        self.output.profile.gpu_clock.is_real()
    }

    /// A sample with nothing in it that only means something where GPUs take time.
    pub(super) fn without_false_load(&self, sample: NvmlSample) -> NvmlSample {
        if self.has_load() {
            return sample;
        }
        NvmlSample {
            utilization: None,
            memory_utilization: None,
            power_mw: None,
            temperature: None,
            ..sample
        }
    }

    /// Takes counters that were opened when the program started.
    pub(crate) fn count_host(&mut self, counters: HostCounters) {
        for clause in self.host.count(counters) {
            self.write(Record::Unmeasured(clause));
        }
    }

    /// Takes the kernel's figures of the end.
    pub(crate) fn used(&mut self, usage: Usage) {
        self.host.used(usage);
    }

    /// A GPU whose SM activity NVML does not report.
    pub(super) fn no_monitor(&mut self, gpu: GpuIndex, number: Option<u32>, why: String) {
        if !self.has_load() {
            return;
        }
        let mut gpus: Vec<(u32, GpuIndex)> =
            self.meters.dcgm.take().map(|dcgm| dcgm.gpus().to_vec()).unwrap_or_default();
        gpus.extend(number.map(|number| (number, gpu)));
        // The job's clock, for a thread that has no part in the job.
        let (now, since) = (self.source.now(), Instant::now());
        let clock = move || now + Nanos::from(since.elapsed());
        match Dcgm::start(&self.meters.source, gpus, clock) {
            Ok(dcgm) => {
                self.meters.dcgm = Some(dcgm);
                self.meters.why = why;
            }
            Err(_) if self.meters.is_apart => self.unmetered(gpu, &why, "an emulated machine has no DCGM"),
            Err(error) => self.unmetered(gpu, &why, &error.to_string()),
        }
    }

    fn unmetered(&mut self, gpu: GpuIndex, why: &str, reason: &str) {
        self.write(Record::Unmeasured(format!("SM activity of GPU {}: {why}, and {reason}", gpu.0)));
    }

    /// Hears what DCGM says.
    pub(super) fn hear_dcgm(&mut self) {
        let Some(dcgm) = &mut self.meters.dcgm else { return };
        let (readings, ended) = dcgm.readings();
        let gpus: Vec<GpuIndex> = dcgm.gpus().iter().map(|(_, gpu)| *gpu).collect();
        for reading in &readings {
            self.activity.add(reading);
        }
        if let Some(reason) = ended {
            self.meters.dcgm = None;
            let why = std::mem::take(&mut self.meters.why);
            for gpu in gpus {
                self.unmetered(gpu, &why, &format!("dcgmi says: {reason}"));
            }
        }
    }

    /// Adds a reading of NVML.
    pub(super) fn hear_load(&mut self, reading: &Reading) {
        if self.has_load() {
            self.activity.add(reading);
        }
    }

    /// Polls the host if it is due.
    pub(super) fn poll_host(&mut self, briefs: &[Brief], now: Nanos) {
        self.host.poll(now, briefs.iter().filter(|brief| brief.alive).filter_map(|brief| brief.pid));
    }

    /// Writes what is new; `last`: nothing follows.
    pub(super) fn write_load(&mut self, now: Nanos, last: bool) {
        let spans = if last {
            self.hear_dcgm();
            self.meters.dcgm = None;
            self.host.finish(now);
            self.activity.finish()
        } else {
            self.activity.take()
        };
        if !spans.is_empty() {
            self.write(Record::Activity(spans));
        }
        let news = self.host.news();
        if last || !news.spans.is_empty() {
            self.write(Record::Host(news));
        }
    }
}
