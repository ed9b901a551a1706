//! The node's GPUs, as polled.

use std::collections::BTreeSet;

use radrm_protocol::wire::GpuRow;
use radrm_scheduler_core::Permille;

use crate::gpus::{Gpus, Poll, Sample, Unmanaged};
use crate::metrics::JobMemory;

#[derive(Debug)]
pub(super) struct Monitor {
    gpus: Gpus,
    samples: Vec<Sample>,
    /// UUIDs of GPUs that are gone.
    lost: BTreeSet<String>,
    /// Processes past the shim, in words.
    unmanaged: BTreeSet<String>,
}

impl Monitor {
    pub(super) fn new(gpus: Gpus) -> Self {
        Self { gpus, samples: Vec::new(), lost: BTreeSet::new(), unmanaged: BTreeSet::new() }
    }

    pub(super) fn gpus(&self) -> &Gpus {
        &self.gpus
    }

    pub(super) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    pub(super) fn polled(&mut self, poll: Poll) {
        self.lost = poll.lost.into_iter().collect();
        self.samples = poll.samples;
    }

    /// Takes the findings of an audit; gives those that are new.
    pub(super) fn audited(&mut self, found: Vec<Unmanaged>) -> Vec<String> {
        let words: BTreeSet<String> = found.into_iter().map(|found| found.words).collect();
        let news = words.difference(&self.unmanaged).cloned().collect();
        self.unmanaged = words;
        news
    }

    pub(super) fn unaccounted(&self) -> u64 {
        self.unmanaged.len() as u64
    }

    /// The GPUs, with the memory that jobs hold.
    pub(super) fn rows(&self, memory: &[JobMemory]) -> Vec<GpuRow> {
        let row = |(at, gpu): (usize, &radrm_os::nvml::Gpu)| {
            let sample = self.samples.iter().find(|sample| sample.uuid == gpu.uuid);
            let part =
                |at: usize| Some(Permille::from_fraction(sample.and_then(|sample| sample.activity)?[at]).0);
            let used = sample.map_or(0, |sample| sample.used);
            let of_jobs = || memory.iter().filter(|job| job.uuid == gpu.uuid);
            let held: u64 = of_jobs().map(|job| job.bytes).sum();
            GpuRow {
                index: gpu.index.unwrap_or_else(|| u32::try_from(at).unwrap_or(u32::MAX)),
                uuid: gpu.uuid.clone(),
                model: gpu.name.clone(),
                total: gpu.total,
                used,
                foreign: used.saturating_sub(held),
                smact: part(0),
                smocc: part(1),
                drama: part(2),
                utilization: sample.and_then(|sample| sample.utilization),
                power_mw: sample.and_then(|sample| sample.power_mw),
                energy_mj: sample.and_then(|sample| sample.energy_mj),
                lost: self.lost.contains(&gpu.uuid),
                job_count: u32::try_from(of_jobs().count()).unwrap_or(u32::MAX),
                ..GpuRow::default()
            }
        };
        self.gpus.list.iter().enumerate().map(row).collect()
    }
}
