//! Virtual time.
//!
//! Every stream has a clock: the moment at which the work that it was given will be done. The host
//! has one too. Work starts when its stream and everything that it depends on are done, but not before
//! the host asked for it; waiting for a stream brings the host's clock up to the stream's.
//!
//! * `instant` (default): one clock, in nanoseconds since the driver was made; the host's moves only by waiting (and as
//!   [`super::ask`] says).
//!   A program runs as fast as it can; what it measures with events is the sum of the modelled
//!   durations, the same in every run. Neighbours that are busy at a launch make it longer.
//! * `real` (`RADRM_EMULATOR_TIME=real`): streams live in the time of their GPU
//!   ([`radrm_emulator_machine::Machine::gpu_time`]), which gets on with the wall clock and slower while the
//!   processes on the GPU want more than there is of it: they take turns, or under MPS share its
//!   multiprocessors. Waiting sleeps. What events measure is wall time: the clock remembers how its
//!   GPUs' times went with it for about the last [`KNOTS`] x [`KNOT_NS`]. Streams of one process do
//!   not slow each other.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use radrm_emulator_machine::{Machine, WHOLE};

use crate::util::time::monotonic_ns;

/// Moments at which wall time and a GPU's time were seen together that are kept.
const KNOTS: usize = 1 << 16;
/// Shortest wall time between two of them (ns).
const KNOT_NS: u64 = 50_000;

/// A moment in the time of a GPU (ns). Where time is not real all GPUs have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// GPU on the machine.
    pub gpu: usize,
    /// Its time.
    pub ns: u64,
}

/// The host's clock.
pub enum Clock {
    /// Moves by waiting only (ns).
    Instant(u64),
    /// The wall clock.
    Real(Real),
}

/// Real time, and how the times of the GPUs went with the wall clock.
#[derive(Default)]
pub struct Real {
    /// The GPUs; without one their times are the wall clock's.
    pub(crate) machine: Option<Machine>,
    pub(crate) courses: RefCell<BTreeMap<usize, Course>>,
}

impl Real {
    /// A GPU's time now (ns).
    fn now(&self, gpu: usize) -> u64 {
        let wall = monotonic_ns();
        let time = self.machine.as_ref().map_or(wall, |machine| machine.gpu_time(gpu, wall));
        self.courses.borrow_mut().entry(gpu).or_default().seen(wall, time);
        time
    }
}

impl Clock {
    /// The clock of a machine.
    pub fn of(machine: &Machine, real: bool) -> Self {
        if real {
            Self::Real(Real { machine: Some(machine.clone()), courses: RefCell::default() })
        } else {
            Self::Instant(0)
        }
    }

    /// A GPU's time now (ns).
    pub fn now(&self, gpu: usize) -> u64 {
        match self {
            Self::Instant(now) => *now,
            Self::Real(real) => real.now(gpu),
        }
    }

    /// Returns true if waiting takes no time.
    pub fn is_instant(&self) -> bool {
        matches!(self, Self::Instant(_))
    }

    /// Returns true if a moment has come.
    pub fn has_come(&self, moment: Moment) -> bool {
        moment.ns <= self.now(moment.gpu)
    }

    /// Waits until a moment: gives a time that the caller has to sleep for, and then ask again; zero when it has come.
    #[must_use]
    pub fn wait_until(&mut self, moment: Moment) -> Duration {
        match self {
            Self::Instant(now) => {
                *now = (*now).max(moment.ns);
                Duration::ZERO
            }
            // No GPU's time gets on faster than the wall clock.
            Self::Real(_) => Duration::from_nanos(moment.ns.saturating_sub(self.now(moment.gpu))),
        }
    }

    /// A moment in the time of another GPU: exact if it has come, else as if both GPUs' times went alike from now on.
    pub fn on(&self, gpu: usize, moment: Moment) -> u64 {
        match self {
            Self::Real(_) if gpu != moment.gpu => {
                self.now(gpu) + moment.ns.saturating_sub(self.now(moment.gpu))
            }
            _ => moment.ns,
        }
    }

    /// Time by which a GPU's time gets on in `wall` ns at its present rate, ns.
    pub fn of_wall(&self, gpu: usize, wall: u64) -> u64 {
        match self {
            Self::Real(real @ Real { machine: Some(machine), .. }) => {
                let demand = machine.demand(gpu, real.now(gpu)).max(u64::from(WHOLE));
                wall.saturating_mul(u64::from(WHOLE)) / demand
            }
            _ => wall,
        }
    }

    /// The host's time of a moment that has come (ns).
    pub fn on_host(&self, moment: Moment) -> f64 {
        match self {
            Self::Instant(_) => moment.ns as f64,
            Self::Real(real) => real
                .courses
                .borrow()
                .get(&moment.gpu)
                .map_or(moment.ns as f64, |course| course.wall(moment.ns)),
        }
    }
}

/// Course of a GPU's time against the wall clock.
#[derive(Debug, Default)]
pub struct Course {
    /// Wall time and GPU time.
    pub(crate) knots: VecDeque<(u64, u64)>,
}

impl Course {
    fn seen(&mut self, wall: u64, time: u64) {
        let known = self.knots.len();
        if known > 1 {
            let (before, last) = (self.knots[known - 2], self.knots[known - 1]);
            // At the wall clock's rate two knots say all there is; else none that is too close.
            let steady = |a: (u64, u64), b: (u64, u64)| b.0.wrapping_sub(a.0) == b.1.wrapping_sub(a.1);
            let is_straight = steady(before, last) && steady(last, (wall, time));
            if wall <= last.0 {
                return;
            }
            if is_straight || last.0 - before.0 < KNOT_NS {
                self.knots.pop_back();
            }
        }
        if known >= KNOTS {
            self.knots.pop_front();
        }
        self.knots.push_back((wall, time));
    }

    fn wall(&self, time: u64) -> f64 {
        let (Some(first), Some(last)) = (self.knots.front(), self.knots.back()) else { return time as f64 };
        if time >= last.1 {
            return (last.0 + (time - last.1)) as f64;
        }
        if time < first.1 {
            return first.0 as f64 - (first.1 - time) as f64;
        }
        let after = self.knots.partition_point(|knot| knot.1 <= time).clamp(1, self.knots.len() - 1);
        let (a, b) = (self.knots[after - 1], self.knots[after]);
        a.0 as f64 + (time - a.1) as f64 * (b.0 - a.0) as f64 / (b.1 - a.1).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Moment {
        Moment { gpu: 0, ns }
    }

    #[test]
    fn an_instant_clock_moves_by_waiting_only() {
        let mut clock = Clock::Instant(5);
        assert!(!clock.has_come(at(100)) && clock.has_come(at(5)));
        assert_eq!((clock.wait_until(at(100)), clock.now(0)), (Duration::ZERO, 100));
        assert_eq!((clock.wait_until(at(50)), clock.now(0)), (Duration::ZERO, 100));
    }

    #[test]
    fn a_real_clock_says_how_long_to_sleep() {
        let mut clock = Clock::Real(Real::default());
        let far = clock.now(0) + 3_600_000_000_000;
        assert!(!clock.has_come(at(far)) && clock.has_come(at(0)));
        assert!(clock.wait_until(at(far)) > Duration::from_secs(3000));
    }

    #[test]
    fn moments_of_a_gpu_have_a_wall_time() {
        let mut course = Course::default();
        // Alone, then beside another one at half the rate, then alone.
        for (wall, time) in
            [(1_000_000, 500), (1_600_000, 600_500), (1_800_000, 700_500), (2_000_000, 800_500)]
        {
            course.seen(wall, time);
        }
        course.seen(2_600_000, 1_400_500);
        for (time, wall) in
            [(500, 1.0e6), (300_500, 1.3e6), (650_500, 1.7e6), (800_500, 2.0e6), (1_000_500, 2.2e6)]
        {
            assert_eq!(course.wall(time), wall, "{time}");
        }
        assert_eq!(course.wall(1_500_500), 2.7e6);
        assert_eq!(course.wall(0), 999_500.0);
    }

    #[test]
    fn a_steady_course_is_short_and_a_long_one_bounded() {
        let mut course = Course::default();
        (0..1_000_000).for_each(|n| course.seen(n * 1_000, n * 1_000));
        assert_eq!(course.knots.len(), 2);
        (1..1_000_000).for_each(|n| course.seen(1_000_000_000 + n * 60_000, 1_000_000_000 + n * 30_000));
        assert!(course.knots.len() <= KNOTS);
    }
}
