//! Jobs that share GPUs, and launch rates of programs alone.

use std::collections::{BTreeMap, BTreeSet};

use radrm_scheduler_core::Program;

/// Programs whose rate alone is kept.
const MAX_PROGRAMS: usize = 4096;

/// Observations so far.
#[derive(Debug, Default)]
pub(super) struct Companies {
    /// Jobs on each GPU, and true if their rates were reported.
    on: BTreeMap<String, (BTreeSet<u64>, bool)>,
    /// Launches in a second by programs that were alone.
    alone: BTreeMap<Program, f64>,
}

/// Company of the jobs on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acquaintance {
    /// There are less than two jobs.
    Alone,
    /// These jobs were not together there before.
    New,
    /// They were, and their rates were not reported yet.
    Unreported,
    /// Their rates were reported.
    Reported,
}

impl Companies {
    /// Takes note of the jobs that are on a GPU.
    pub(super) fn meet(&mut self, gpu: &str, jobs: BTreeSet<u64>) -> Acquaintance {
        if jobs.len() < 2 {
            self.on.remove(gpu);
            return Acquaintance::Alone;
        }
        let seen = self.on.entry(gpu.to_owned()).or_default();
        match seen {
            (before, _) if *before != jobs => {
                *seen = (jobs, false);
                Acquaintance::New
            }
            (_, false) => Acquaintance::Unreported,
            (_, true) => Acquaintance::Reported,
        }
    }

    /// The rates of the jobs on a GPU were reported.
    pub(super) fn was_reported(&mut self, gpu: &str) {
        if let Some((_, is_reported)) = self.on.get_mut(gpu) {
            *is_reported = true;
        }
    }

    /// Launches in a second by a program that was alone.
    pub(super) fn alone_rate(&self, program: Program) -> Option<f64> {
        self.alone.get(&program).copied()
    }

    #[cfg(test)]
    pub(super) fn recalls(&self, program: &str, rate: f64) -> bool {
        self.alone.get(&Program::named(program)) == Some(&rate)
    }

    /// Keeps rates of programs that were alone, as far as there is room.
    pub(super) fn keep(&mut self, rates: impl Iterator<Item = (Program, f64)>) {
        for (program, rate) in rates {
            if self.alone.len() < MAX_PROGRAMS || self.alone.contains_key(&program) {
                self.alone.insert(program, rate);
            }
        }
    }
}
