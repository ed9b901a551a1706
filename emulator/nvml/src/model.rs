//! Formulas behind the figures that the machine does not keep.
//!
//! ```text
//! busy         = time with a kernel / wall time, over the window
//! memory busy  = busy / 2 + modelled copy time / wall time, at most 1
//! power        = idle + (limit - idle) * busy
//! energy       = idle * time + (limit - idle) * time with a kernel, since the machine was made
//! temperature  = 30 C + 45 K * busy
//! clock        = boost while busy, else 345 MHz
//! ```
//!
//! SM activity and occupancy are no formula: the machine's ledgers say what was at work on the multiprocessors
//! ([`radrm_emulator_machine::SmWork`]). Of what kernels read and write nothing is known, hence the half of `memory busy`.
//!
//! Where GPUs do not get on with the wall clock there is no such time: the modelled kernel time of all processes stands in
//! for it, at most all of the window, and the figures only tell that something was launched; SM activity is that time's then.
//!
//! The window reaches from one question to the next, at least [`WINDOW_NS`] and at most a second. The
//! first question of a program is answered by whether the GPU is busy at that moment.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use radrm_emulator_machine::{GpuSpec, MAX_GPUS, Machine, SmWork};

/// Shortest window (ns): two questions right after each other get the same answer.
pub const WINDOW_NS: u64 = 50_000_000;
/// Longest window (ns).
const MAX_WINDOW_NS: u64 = 1_000_000_000;
/// Graphics and SM clock of an idle GPU (MHz).
pub const IDLE_MHZ: u32 = 345;

/// Sums over all processes of a machine on one GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Time of the reading (CLOCK_MONOTONIC, ns).
    pub at_ns: u64,
    /// Time with a kernel (ns).
    pub kernels_ns: u64,
    /// Modelled copy time (ns).
    pub copies_ns: u64,
    /// Work on the multiprocessors.
    pub sm: SmWork,
    /// True if time is real: then the time with a kernel is of the wall clock, else the sum of their durations.
    pub is_real: bool,
}

impl Sums {
    /// Reads the sums of now.
    pub fn read(machine: &Machine, gpu: usize, now_ns: u64) -> Self {
        let totals = machine.totals(gpu);
        let worked = machine.worked_ns(gpu, now_ns);
        Self {
            at_ns: now_ns,
            kernels_ns: worked.unwrap_or(totals.busy_ns),
            copies_ns: totals.copy_ns,
            sm: machine.sm_work(gpu, now_ns),
            is_real: worked.is_some(),
        }
    }

    /// SM activity and occupancy in the time since `before`, each 0 to 1.
    pub fn sm_since(&self, before: &Self, spec: &GpuSpec) -> (f64, f64) {
        let work = self.sm.since(before.sm);
        let (share, _) = self.shares_since(before);
        let kernels = self.kernels_ns.saturating_sub(before.kernels_ns).max(1) as f64;
        // Modelled durations fill as much of the window as they are, and at most all of it.
        let wall = if self.is_real {
            self.at_ns.saturating_sub(before.at_ns).max(1) as f64
        } else {
            kernels / share.max(f64::MIN_POSITIVE)
        };
        let sms = f64::from(spec.sms.max(1));
        let warps = sms * f64::from((spec.max_threads_per_sm / 32).max(1));
        let part = |work: u64, most: f64| (work as f64 / wall / most).min(1.0);
        (part(work.active, sms), part(work.resident, warps))
    }

    /// Shares of the time since `before`: kernels, copies, each 0 to 1.
    pub fn shares_since(&self, before: &Self) -> (f64, f64) {
        let wall = self.at_ns.saturating_sub(before.at_ns).max(1) as f64;
        let share = |now: u64, then: u64| (now.saturating_sub(then) as f64 / wall).min(1.0);
        (share(self.kernels_ns, before.kernels_ns), share(self.copies_ns, before.copies_ns))
    }
}

/// Utilization of a GPU: shares from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Busy {
    /// Time with a kernel on the GPU.
    pub kernels: f64,
    /// Time with its memory at work.
    pub memory: f64,
    /// Time with a copy under way.
    pub copies: f64,
}

impl Busy {
    fn new(kernels: f64, copies: f64) -> Self {
        Self { kernels, memory: (kernels / 2.0 + copies).min(1.0), copies }
    }
}

static HISTORY: Mutex<[VecDeque<Sums>; MAX_GPUS]> = Mutex::new([const { VecDeque::new() }; MAX_GPUS]);

/// Utilization of a GPU since this program's last query.
pub fn busy(machine: &Machine, gpu: usize, now_ns: u64) -> Busy {
    let mut history = HISTORY.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(history) = history.get_mut(gpu) else { return Busy::default() };
    let now = Sums::read(machine, gpu, now_ns);
    // Of the former readings the youngest that is old enough and all younger ones are kept.
    while history.get(1).is_some_and(|s| s.at_ns + WINDOW_NS <= now_ns) {
        history.pop_front();
    }
    if history.front().is_some_and(|s| s.at_ns + MAX_WINDOW_NS < now_ns) {
        history.pop_front();
    }
    if history.back().is_none_or(|s| s.at_ns + WINDOW_NS <= now_ns) {
        history.push_back(now);
    }
    match history.front().filter(|s| s.at_ns + WINDOW_NS <= now_ns) {
        Some(before) => {
            let (kernels, copies) = now.shares_since(before);
            Busy::new(kernels, copies)
        }
        None if machine.load(gpu, now_ns, None).processes > 0 => Busy::new(1.0, 0.0),
        None => Busy::default(),
    }
}

/// Power (mW).
pub fn power_mw(spec: &GpuSpec, busy: f64) -> u32 {
    let (idle, limit) = (f64::from(spec.idle_power_w), f64::from(spec.power_w));
    ((idle + (limit - idle) * busy) * 1000.0) as u32
}

/// Energy since the machine was made (mJ).
pub fn energy_mj(spec: &GpuSpec, alive_ns: u64, kernels_ns: u64) -> u64 {
    let above = f64::from(spec.power_w.saturating_sub(spec.idle_power_w));
    // W * ns = 1e-6 mJ
    ((f64::from(spec.idle_power_w) * alive_ns as f64 + above * kernels_ns as f64) / 1e6) as u64
}

/// Temperature (degrees Celsius).
pub fn temperature(busy: f64) -> u32 {
    (30.0 + 45.0 * busy) as u32
}

/// Share as percent.
pub fn percent(share: f64) -> u32 {
    (share * 100.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> GpuSpec {
        radrm_emulator_machine::Models::known().unwrap().find("H200").unwrap().clone()
    }

    #[test]
    fn power_and_energy_agree() {
        let spec = spec();
        assert_eq!(power_mw(&spec, 0.0), spec.idle_power_w * 1000);
        assert_eq!(power_mw(&spec, 1.0), spec.power_w * 1000);
        let second = 1_000_000_000;
        assert_eq!(energy_mj(&spec, second, second), u64::from(spec.power_w) * 1000);
        assert_eq!(energy_mj(&spec, second, 0), u64::from(spec.idle_power_w) * 1000);
    }

    /// Work that was launched ahead has not run, and work that ran beside other work has not run twice.
    #[test]
    fn where_time_is_real_a_gpu_is_busy_while_it_has_work() {
        let machine = Machine::private(&radrm_emulator_machine::MachineSpec::parse("H200").unwrap()).unwrap();
        let process = machine.join().unwrap();
        let start = 1 << 40;
        process.set_work(0, machine.gpu_time(0, start) + 400_000, 1000);
        process.launched(0, 2, 900_000);
        let before = Sums::read(&machine, 0, start);
        let half = Sums::read(&machine, 0, start + 200_000);
        let after = Sums::read(&machine, 0, start + 1_000_000);
        assert_eq!((half.shares_since(&before).0, after.shares_since(&before).0), (1.0, 0.4));
    }

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let sums = |at_ns, kernels_ns, copies_ns| Sums { at_ns, kernels_ns, copies_ns, ..Sums::default() };
        let (before, after) = (sums(100, 50, 0), sums(200, 75, 500));
        assert_eq!(after.shares_since(&before), (0.25, 1.0));
        let again = sums(200, 0, 0);
        assert_eq!(again.shares_since(&before), (0.0, 0.0), "a slot that went to another process");
    }

    /// One kernel on a few multiprocessors is no busy GPU, though it is no idle one either.
    #[test]
    fn sm_activity_is_what_was_at_work_in_the_window() {
        let spec = spec();
        let (warps, wall) = (u64::from(spec.sms * spec.max_threads_per_sm / 32), 1_000);
        let work = |active, resident| SmWork { active, resident };
        let before = Sums { at_ns: 5_000, is_real: true, sm: work(70, 900), ..Sums::default() };
        let sms = u64::from(spec.sms);
        let sm = before.sm.and(work(sms * wall / 4, warps * wall / 8));
        let after = Sums { at_ns: 5_000 + wall, kernels_ns: 420, sm, ..before };
        assert_eq!((after.shares_since(&before).0, after.sm_since(&before, &spec)), (0.42, (0.25, 0.125)));
        // Twice the window's time was launched in it, with half of the multiprocessors.
        let sm = before.sm.and(work(sms * wall, 0));
        let modelled = Sums { kernels_ns: 2 * wall, sm, is_real: false, ..after };
        assert_eq!((modelled.shares_since(&before).0, modelled.sm_since(&before, &spec)), (1.0, (0.5, 0.0)));
        assert_eq!(before.sm_since(&before, &spec), (0.0, 0.0));
    }
}
