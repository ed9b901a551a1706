//! A GPU's time, shared by the processes that have work on it.
//!
//! Processes with work at the same time all get on at the same rate, which is 1 while the GPU has room for all of
//! them. Each asks for a share of it, its weight: the share of the multiprocessors under MPS, else all of it, because
//! without MPS the driver runs one process at a time, in slices that are short against what is looked at here.
//!
//! ```text
//! rate     = 1 if the weights of those with work sum to at most 1, else 1 / sum
//! GPU time = integral of the rate over the wall clock
//! ```
//!
//! Work that is begun at GPU time `v` and takes `d` alone is done at `v + d`, whatever else comes or goes meanwhile. So a
//! process publishes one number for a GPU, the GPU time up to which it has work, and from all these numbers anybody
//! can carry the GPU time on from the last moment at which a process did. The process that moves that moment on by
//! an exchange owns the time in between and adds what the GPU got on by: no lock, and a process that is killed
//! in between costs the others this little stretch. What a dead process has left to do is taken away when it
//! is noticed to be dead, and never more than shares the GPU with others' work.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::layout::MAX_GPUS;
use crate::machine::Machine;
use crate::process::Process;

/// The whole of a GPU, in the unit of weights.
pub const WHOLE: u32 = 1000;

/// Time by which GPU time gets on from `from` in `wall` ns, and the part of `wall` that has work, ns.
/// `work`: of each process, the GPU time up to which it has work, and its weight.
fn gain(from: u64, wall: u64, work: &mut Vec<(u64, u32)>) -> (u64, u64) {
    work.retain(|(until, _)| *until > from);
    work.sort_unstable();
    let mut total: u64 = work.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let (mut now, whole) = (from, wall);
    let mut wall = wall;
    for (until, weight) in work {
        let slow = total.max(u64::from(WHOLE));
        // Wall time to the moment at which this process is done.
        let takes = (u128::from(*until - now) * u128::from(slow)).div_ceil(u128::from(WHOLE));
        if takes >= u128::from(wall) {
            let last = (u128::from(wall) * u128::from(WHOLE) / u128::from(slow)) as u64;
            return (now - from + last, whole);
        }
        wall -= takes as u64;
        now = *until;
        total -= u64::from(*weight);
    }
    (now - from + wall, whole - wall)
}

impl Machine {
    /// A GPU's time at `now_ns` (CLOCK_MONOTONIC), ns.
    pub fn gpu_time(&self, gpu: usize, now_ns: u64) -> u64 {
        let layout = self.layout();
        let Some(timeline) = layout.timelines.get(gpu) else { return now_ns };
        loop {
            let at = timeline.at_ns.load(Relaxed);
            if at >= now_ns {
                return timeline.passed_ns.load(Relaxed);
            }
            // AcqRel: who moves on from here sees what was added for the time before, unless that is still to come.
            if timeline.at_ns.compare_exchange(at, now_ns, AcqRel, Relaxed).is_err() {
                continue;
            }
            let from = timeline.passed_ns.load(Relaxed);
            let mut work = self.work_on(gpu, from);
            if work.len() > 1 {
                self.reap_rarely(now_ns);
            }
            let (gained, worked) = if at == 0 { (0, 0) } else { gain(from, now_ns - at, &mut work) };
            timeline.worked_ns.fetch_add(worked, Relaxed);
            return timeline.passed_ns.fetch_add(gained, AcqRel) + gained;
        }
    }

    /// Wall time up to `now_ns` (CLOCK_MONOTONIC) in which a GPU had work, ns; `None` if no process has ever said until when
    /// it has: where time is not real no process does.
    pub fn worked_ns(&self, gpu: usize, now_ns: u64) -> Option<u64> {
        let passed = self.gpu_time(gpu, now_ns);
        let worked = self.layout().timelines.get(gpu)?.worked_ns.load(Relaxed);
        (worked > 0 || self.demand(gpu, passed) > 0).then_some(worked)
    }

    /// The sum of the weights of the processes that have work on a GPU after GPU time `after`.
    pub fn demand(&self, gpu: usize, after: u64) -> u64 {
        self.work_on(gpu, after).iter().map(|(_, weight)| u64::from(*weight)).sum()
    }

    fn work_on(&self, gpu: usize, after: u64) -> Vec<(u64, u32)> {
        let layout = self.layout();
        let (Some(until), Some(weight)) = (layout.work_until.get(gpu), layout.work_weight.get(gpu)) else {
            return Vec::new();
        };
        let words = until.iter().zip(weight).take(self.slots_used());
        words
            .map(|(until, weight)| (until.load(Relaxed), weight.load(Relaxed) as u32))
            .filter(|(until, _)| *until > after)
            .collect()
    }
}

impl Process {
    /// Says that this process has work on a GPU at least up to this GPU time ([`Machine::gpu_time`]), for which it asks for
    /// such a share of it, 1 to [`WHOLE`].
    pub fn set_work(&self, gpu: usize, until: u64, weight: u32) {
        let layout = self.machine().layout();
        if gpu < MAX_GPUS {
            self.clocked(gpu);
            layout.work_weight[gpu][self.slot_index()].store(u64::from(weight.clamp(1, WHOLE)), Relaxed);
            layout.work_until[gpu][self.slot_index()].fetch_max(until, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::MachineSpec;

    fn gain_of(wall: u64, work: &[(u64, u32)]) -> u64 {
        gain(1_000, wall, &mut work.to_vec()).0
    }

    #[test]
    fn time_with_work_is_told_from_time_without() {
        let worked = |wall, work: &[(u64, u32)]| gain(1_000, wall, &mut work.to_vec()).1;
        assert_eq!(worked(500, &[]), 0);
        assert_eq!(worked(500, &[(1_200, WHOLE)]), 200);
        assert_eq!(worked(500, &[(1_100, WHOLE), (1_150, WHOLE)]), 250, "at half the rate up to 1100");
        assert_eq!(worked(500, &[(9_000, WHOLE), (9_000, WHOLE)]), 500);
        // Where time is not real it is not known until when a process has work.
        let machine = Machine::private(&MachineSpec::parse("H200").unwrap()).unwrap();
        let process = machine.join().unwrap();
        let start = 1 << 40;
        process.launched(0, 1, 1_000_000);
        assert_eq!((machine.worked_ns(0, start), machine.worked_ns(0, start + 500)), (None, None));
        process.set_work(0, machine.gpu_time(0, start + 500) + 300, WHOLE);
        assert_eq!(machine.worked_ns(0, start + 500), Some(0));
        assert_eq!(machine.worked_ns(0, start + 1_500), Some(300));
    }

    #[test]
    fn time_passes_at_the_wall_clocks_rate_while_there_is_room() {
        assert_eq!(gain_of(500, &[]), 500);
        assert_eq!(gain_of(500, &[(9_000, WHOLE)]), 500);
        assert_eq!(gain_of(500, &[(9_000, 300), (9_000, 700)]), 500);
        assert_eq!(gain_of(500, &[(900, WHOLE), (999, WHOLE), (9_000, WHOLE)]), 500, "done before");
    }

    #[test]
    fn processes_that_ask_for_more_than_there_is_get_on_alike() {
        assert_eq!(gain_of(500, &[(9_000, WHOLE), (9_000, WHOLE)]), 250);
        assert_eq!(gain_of(600, &[(9_000, 500), (9_000, 500), (9_000, 500)]), 400);
    }

    #[test]
    fn who_is_done_leaves_the_rest_to_the_others() {
        // Both up to 1100 in 200 ns, then one of them alone.
        assert_eq!(gain_of(500, &[(1_100, WHOLE), (9_000, WHOLE)]), 100 + 300);
        assert_eq!(gain_of(500, &[(1_100, WHOLE), (1_150, WHOLE)]), 400, "and the GPU is idle");
        assert_eq!(gain_of(450, &[(1_100, WHOLE), (1_100, WHOLE), (1_200, WHOLE)]), 100 + 100 + 50);
    }

    #[test]
    fn steps_of_any_size_give_the_same() {
        let work = [(1_700, WHOLE), (2_900, 400), (5_000, WHOLE), (7_777, 900)];
        let whole = gain_of(20_000, &work);
        for step in [1_000, 2_500, 5_000] {
            let mut now = 1_000;
            for _ in 0..20_000 / step {
                now += gain(now, step, &mut work.to_vec()).0;
            }
            assert!((now - 1_000).abs_diff(whole) < 20, "{step}: {} and not {whole}", now - 1_000);
        }
    }

    #[test]
    fn processes_share_a_gpus_time_and_a_dead_ones_work_goes() {
        let machine = Machine::private(&MachineSpec::parse("2xH200").unwrap()).unwrap();
        let (one, other) = (machine.join().unwrap(), machine.join().unwrap());
        let start = 1 << 40;
        assert_eq!(machine.gpu_time(0, start), 0);
        assert_eq!(machine.gpu_time(0, start + 100), 100);
        one.set_work(0, 1_000_000, WHOLE);
        other.set_work(0, 1_000_000, WHOLE);
        assert_eq!(machine.gpu_time(0, start + 300), 200);
        assert_eq!(machine.gpu_time(0, start + 200), 200, "never back");
        assert_eq!(machine.demand(0, 200), 2 * u64::from(WHOLE));
        assert_eq!(machine.demand(1, 200), 0, "each GPU has its own");
        drop(other);
        assert_eq!(machine.gpu_time(0, start + 400), 300, "a process that is gone has no work");
    }
}
