//! Memory that running steps hold now, from their recorders' segments and from NVML.

use std::collections::BTreeMap;

use radrm_emulator_machine::ENV_MACHINE;
use radrm_limits::jobs::{self, Job};
use radrm_os::Process;
use radrm_telemetry::GpuIndex;

use super::record::{Key, Steps};
use crate::gpus::{Gpus, Sample};

/// By the word that the plug-in gives to a recorder, which any process may give itself: the file of the step, which
/// root wrote, says whose job it is.
const WORD: &str = "--step-of=slurm-";

/// Bytes on each GPU, by UUID, for each step that runs. Where several steps of a job run, a recorder is not known to be
/// that of one of them; its figures go to the first, and sums of the job are right.
pub(super) fn running(
    steps: &Steps,
    samples: &[Sample],
    gpus: &Gpus,
) -> BTreeMap<Key, BTreeMap<String, u64>> {
    let mut found: BTreeMap<Key, BTreeMap<String, u64>> = BTreeMap::new();
    for job in jobs::all() {
        if !is_here(&job, gpus) {
            continue;
        }
        let Some(number) = job.launched.then(|| number(job.launcher)).flatten() else { continue };
        let Some(key) = steps.of(number, job.uid).into_iter().next() else { continue };
        let used = found.entry(key).or_default();
        for (uuid, bytes) in held(&job, samples, gpus) {
            let sum = used.entry(uuid).or_insert(0);
            *sum = sum.saturating_add(bytes);
        }
    }
    found
}

/// Returns true if a job uses the GPUs of this daemon. Steps of other clusters on the same computer have the same
/// numbers, and emulated GPUs of other machines the same UUIDs.
fn is_here(job: &Job, gpus: &Gpus) -> bool {
    match &gpus.machine {
        Some(machine) => job.is_on(Some(machine)),
        None => job.variable(ENV_MACHINE).is_none(),
    }
}

fn number(launcher: u32) -> Option<u32> {
    let command = Process(launcher).command();
    let words = command.split(" -- ").next()?;
    words.split(' ').find_map(|word| word.strip_prefix(WORD))?.parse().ok()
}

/// The larger of what the processes counted and what NVML reports of them.
fn held(job: &Job, samples: &[Sample], gpus: &Gpus) -> BTreeMap<String, u64> {
    let segment = &job.segment;
    let of_segment = segment.gpus().unwrap_or_default();
    let uuid = |index: GpuIndex| {
        let bytes = of_segment.iter().find(|gpu| gpu.index == index)?.uuid;
        gpus.list.iter().find(|gpu| gpu.bytes == bytes).map(|gpu| gpu.uuid.clone())
    };
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let slots = job.running();
    for slot in &slots {
        for (index, bytes) in segment.totals(slot).unwrap_or_default() {
            if let Some(uuid) = uuid(index) {
                let sum = sums.entry(uuid).or_insert(0);
                *sum = sum.saturating_add(bytes);
            }
        }
    }
    for sample in samples {
        let is_own = |pid: u32| slots.iter().any(|slot| slot.pid == Some(pid));
        let reported: u64 =
            sample.processes.iter().filter(|(pid, _)| is_own(*pid)).map(|(_, bytes)| bytes).sum();
        if reported > 0 {
            let counted = sums.entry(sample.uuid.clone()).or_insert(0);
            *counted = reported.max(*counted);
        }
    }
    sums
}
