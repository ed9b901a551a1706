//! The node's GPUs, as polled.

use std::collections::BTreeSet;

use radrm_protocol::wire::GpuRow;

use crate::gpu_numbers::number;
use crate::gpus::{Gpus, Poll, Sample, Unmanaged, row};
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
        let of_gpu = |(at, gpu): (usize, &radrm_os::nvml::Gpu)| {
            let sample = self.samples.iter().find(|sample| sample.uuid == gpu.uuid);
            let of_jobs = || memory.iter().filter(|job| job.uuid == gpu.uuid);
            let held: u64 = of_jobs().map(|job| job.bytes).sum();
            let row = row(gpu, number(&self.gpus.list, at), sample);
            GpuRow {
                foreign: row.used.unwrap_or(held).saturating_sub(held),
                lost: self.lost.contains(&gpu.uuid),
                job_count: u32::try_from(of_jobs().count()).unwrap_or(u32::MAX),
                ..row
            }
        };
        self.gpus.list.iter().enumerate().map(of_gpu).collect()
    }
}
