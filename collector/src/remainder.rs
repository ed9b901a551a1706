//! NVML's figure of a process against what was accounted: contexts, loaded
//! code, memory of libraries.

use crate::source::Brief;
use radrm_profile::model::{GpuIndex, NvmlSample, ProcessKey, Remainder};
use radrm_profile::{Bytes, Nanos};
use std::collections::{BTreeMap, HashMap};

/// Exact comparisons that wait at most to be taken.
const EXACT: usize = 4096;

/// Differences beyond an account that changes count as one within this: the driver hands out memory in steps of 2 MiB.
const STEP: u64 = 2 << 20;

/// Largest number of such differences that are counted.
const BUSY: usize = 64;

/// Comparisons so far.
#[derive(Debug, Default)]
pub(crate) struct Remainders {
    known: HashMap<(ProcessKey, GpuIndex), Known>,
    exact: Vec<Exact>,
}

/// A comparison of two figures of the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exact {
    pub(crate) pid: u32,
    pub(crate) gpu: GpuIndex,
    /// Memory beyond the account, according to NVML.
    pub(crate) beyond: Bytes,
}

#[derive(Debug, Default)]
struct Known {
    remainder: Remainder,
    /// The account did not change around the sample, so the two figures are
    /// of the same moment.
    quiet: bool,
    /// Memory that NVML may have reported beyond the account while it changed, in steps of [`STEP`], and how often.
    busy: BTreeMap<u64, u32>,
}

impl Known {
    /// A sample of a moment at which the account was one of `held` or between them. What is beyond the account hardly
    /// changes: what most of such samples agree on counts, and of equal ones the newest.
    fn take_busy(&mut self, t: Nanos, nvml: Bytes, held: impl Iterator<Item = Bytes>) {
        // The last counts where nothing else tells: the smaller difference, as a block that was just released is no context.
        let mut held: Vec<Bytes> = held.collect();
        held.sort_by_key(|accounted| (*accounted <= nvml, *accounted));
        for accounted in held {
            let step = nvml.minus(accounted).0 / STEP;
            if self.busy.len() == BUSY && !self.busy.contains_key(&step) {
                continue;
            }
            let times = self.busy.entry(step).or_default();
            *times += 1;
            let times = *times;
            if self.busy.values().all(|others| *others <= times) {
                self.remainder = Remainder { t, nvml, accounted, ..self.remainder };
            }
        }
    }
}

/// Accounts at the poll before the samples and at the one after them.
pub(crate) struct Around<'a> {
    pub(crate) before: &'a [Brief],
    pub(crate) before_t: Nanos,
    pub(crate) after: &'a [Brief],
}

impl Remainders {
    /// Compares a sample with the accounts around it. Only this job's
    /// processes stay in the sample; the others are summed up.
    pub(crate) fn compare(&mut self, sample: &mut NvmlSample, around: &Around<'_>) {
        let mut others = Bytes::ZERO;
        let mut others_count = 0;
        let gpu = sample.gpu;
        let t = sample.t;
        sample.processes.retain(|entry| {
            // A process id may have had several owners; the newest is alive.
            let of_pid = |brief: &&Brief| brief.pid == Some(entry.pid);
            let alive = |brief: &&Brief| brief.alive;
            let after = around.after.iter().filter(of_pid).find(alive).or(around.after.iter().rfind(of_pid));
            let Some(after) = after else {
                others = others + entry.used.unwrap_or_default();
                others_count += 1;
                return false;
            };
            if let Some(nvml) = entry.used {
                let before = around.before.iter().find(|brief| brief.key == after.key);
                self.note(entry.pid, after, before.filter(|_| around.before_t <= t), gpu, t, nvml);
            }
            true
        });
        sample.others = others;
        sample.others_count = others_count;
    }

    fn note(
        &mut self,
        pid: u32,
        after: &Brief,
        before: Option<&Brief>,
        gpu: GpuIndex,
        t: Nanos,
        nvml: Bytes,
    ) {
        let accounted = held(after, gpu);
        let quiet = before.is_some_and(|b| held(b, gpu) == accounted && b.changes == after.changes);
        let known = self.known.entry((after.key, gpu)).or_default();
        known.remainder.gpu = gpu;
        known.remainder.nvml_peak = known.remainder.nvml_peak.max(nvml);
        if quiet && after.alive && nvml >= accounted && self.exact.len() < EXACT {
            self.exact.push(Exact { pid, gpu, beyond: nvml.minus(accounted) });
        }
        // A comparison that is exact is worth more than a newer one.
        if quiet {
            known.remainder = Remainder { t, nvml, accounted, ..known.remainder };
            known.quiet = true;
        } else if !known.quiet {
            let earlier = before.map(|before| held(before, gpu)).filter(|earlier| *earlier != accounted);
            known.take_busy(t, nvml, earlier.into_iter().chain([accounted]));
        }
    }

    /// The exact comparisons since the last call, the oldest first.
    pub(crate) fn take_exact(&mut self) -> Vec<Exact> {
        std::mem::take(&mut self.exact)
    }

    /// Comparisons of one process.
    pub(crate) fn of(&self, key: ProcessKey) -> Vec<Remainder> {
        let mut found: Vec<Remainder> =
            self.known.iter().filter(|((k, _), _)| *k == key).map(|(_, known)| known.remainder).collect();
        found.sort_by_key(|remainder| remainder.gpu);
        found
    }

    /// Forgets a process that is saved.
    pub(crate) fn forget(&mut self, key: ProcessKey) {
        self.known.retain(|(k, _), _| *k != key);
    }
}

fn held(brief: &Brief, gpu: GpuIndex) -> Bytes {
    brief.held.iter().find(|(index, _)| *index == gpu.0).map_or(Bytes::ZERO, |(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::ProcessUse;

    fn brief(slot: u32, pid: u32, alive: bool, held: u64) -> Brief {
        let key = ProcessKey { slot, generation: 1 };
        Brief { key, pid: Some(pid), alive, held: vec![(0, Bytes(held))], changes: held }
    }

    fn sample(t: u64, uses: &[(u32, u64)]) -> NvmlSample {
        let processes = uses.iter().map(|&(pid, used)| ProcessUse { pid, used: Some(Bytes(used)) }).collect();
        NvmlSample { t: Nanos(t), processes, ..NvmlSample::default() }
    }

    #[test]
    fn unmanaged_processes_are_summed_up() {
        let mut sample = sample(5, &[(1, 100), (2, 30), (3, 7)]);
        let after = [brief(0, 1, true, 60)];
        let around = Around { before: &after, before_t: Nanos(1), after: &after };
        let mut remainders = Remainders::default();
        remainders.compare(&mut sample, &around);
        assert_eq!(sample.processes.len(), 1);
        assert_eq!((sample.others, sample.others_count), (Bytes(37), 2));
        let found = remainders.of(after[0].key);
        assert_eq!((found[0].bytes(), found[0].nvml_peak), (40, Bytes(100)));
        remainders.forget(after[0].key);
        assert_eq!(remainders.of(after[0].key), []);
    }

    #[test]
    fn a_quiet_comparison_beats_a_newer_busy_one() {
        let (low, high) = ([brief(0, 1, true, 60)], [brief(0, 1, true, 90)]);
        let mut remainders = Remainders::default();
        let mut at = |t, nvml, before: &[Brief], after: &[Brief]| {
            let around = Around { before, before_t: Nanos(t - 1), after };
            remainders.compare(&mut sample(t, &[(1, nvml)]), &around);
            remainders.of(low[0].key)[0]
        };
        assert_eq!(at(10, 200, &low, &high).bytes(), 110);
        assert_eq!(at(20, 100, &low, &low).bytes(), 40);
        let kept = at(30, 900, &low, &high);
        assert_eq!((kept.bytes(), kept.t, kept.nvml_peak), (40, Nanos(20), Bytes(900)));
        assert_eq!(at(40, 120, &high, &high).bytes(), 30);
        let beyond: Vec<_> = remainders.take_exact().iter().map(|exact| exact.beyond.0).collect();
        assert_eq!(beyond, [40, 30], "only what was quiet is exact");
        assert_eq!(remainders.take_exact(), []);
    }

    #[test]
    fn what_most_busy_comparisons_agree_on_counts() {
        const MIB: u64 = 1 << 20;
        let (low, high) = ([brief(0, 1, true, 0)], [brief(0, 1, true, 256 * MIB)]);
        let mut remainders = Remainders::default();
        let mut at = |nvml: u64, before: &[Brief], after: &[Brief]| {
            let around = Around { before, before_t: Nanos(1), after };
            remainders.compare(&mut sample(5, &[(1, nvml * MIB)]), &around);
            remainders.of(low[0].key)[0].bytes() / i128::from(MIB)
        };
        // A context of 420 MiB; a block of 256 MiB comes and goes.
        let changed = [Brief { changes: 7, ..high[0].clone() }];
        assert_eq!(at(420, &low, &high), 164, "the first alone cannot tell");
        assert_eq!(at(676, &low, &high), 420);
        assert_eq!(at(676, &high, &low), 420, "the newest would be 676");
        assert_eq!(at(420, &changed, &high), 420, "two changes");
    }

    #[test]
    fn a_released_block_is_no_context() {
        let (low, high) = ([brief(0, 1, true, 0)], [brief(0, 1, true, 2816)]);
        for (nvml, beyond) in [(2816 + 420, 420), (420, 420)] {
            let mut remainders = Remainders::default();
            let around = Around { before: &high, before_t: Nanos(1), after: &low };
            remainders.compare(&mut sample(5, &[(1, nvml)]), &around);
            assert_eq!(remainders.of(low[0].key)[0].bytes(), beyond, "{nvml}");
        }
    }

    #[test]
    fn a_total_that_came_back_to_what_it_was_is_not_quiet() {
        let before = [brief(0, 1, true, 60)];
        let after = [Brief { changes: before[0].changes + 2, ..brief(0, 1, true, 60) }];
        let mut remainders = Remainders::default();
        let around = Around { before: &before, before_t: Nanos(1), after: &after };
        remainders.compare(&mut sample(5, &[(1, 900)]), &around);
        assert_eq!(remainders.take_exact(), []);
    }

    #[test]
    fn a_process_id_that_is_used_again_belongs_to_the_living() {
        let both = [brief(0, 1, false, 500), brief(1, 1, true, 60)];
        let around = Around { before: &both, before_t: Nanos(1), after: &both };
        let mut remainders = Remainders::default();
        remainders.compare(&mut sample(5, &[(1, 100)]), &around);
        assert_eq!(remainders.of(both[0].key), []);
        assert_eq!(remainders.of(both[1].key)[0].bytes(), 40);
    }
}
