//! Activity of a GPU's multiprocessors: number at work, and number of their warps, up to any moment.
//!
//! A process knows when its kernels will run, in GPU time, as soon as it launches them, and what they take of the
//! multiprocessors meanwhile. It keeps that as a plan: spans of GPU time, each with a load, those of kernels that run
//! side by side added, but never more than the GPU has. For others it publishes the plan as a curve of sums over GPU time:
//!
//! ```text
//! active(v)   = integral of the multiprocessors with a block, up to GPU time v    (multiprocessors * ns)
//! resident(v) = integral of the warps on all of them                              (warps * ns)
//! ```
//!
//! The sums of a GPU are those of its processes. That holds however the processes share it: two that take turns get on at
//! half the rate, each with the GPU to itself for half of the time, so what both did in a time is half of what each does
//! alone, added. What was launched ahead counts when its time has come, and what a dead process
//! had still to do never does.

use std::collections::VecDeque;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use crate::layout::{CURVE_KNOTS, Curve};
use crate::machine::Machine;
use crate::process::Process;

/// Spans of a plan that are kept apart; beyond that the first ones are put together.
const SPANS: usize = 1 << 16;
/// Number of attempts of a reader that meets a writer. A writer that was killed must not stop a reader.
const READS: usize = 1000;

/// Load of the multiprocessors at a moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SmLoad {
    /// Multiprocessors that have a block.
    pub active: f64,
    /// Warps on all of them.
    pub resident: f64,
}

/// The same, summed over time: times ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SmWork {
    /// Of multiprocessors that had a block (multiprocessors * ns).
    pub active: u64,
    /// Of warps (warps * ns).
    pub resident: u64,
}

impl SmWork {
    /// Both together.
    pub fn and(self, other: Self) -> Self {
        let sum = u64::saturating_add;
        Self { active: sum(self.active, other.active), resident: sum(self.resident, other.resident) }
    }

    /// Work since `before`.
    pub fn since(self, before: Self) -> Self {
        let rest = u64::saturating_sub;
        Self { active: rest(self.active, before.active), resident: rest(self.resident, before.resident) }
    }
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, Default)]
struct Knot {
    at: u64,
    sum: SmLoad,
}

impl Knot {
    fn after(self, span: &Span, until: u64) -> Self {
        let ns = until.saturating_sub(self.at) as f64;
        let sum = SmLoad {
            active: self.sum.active + span.load.active * ns,
            resident: self.sum.resident + span.load.resident * ns,
        };
        Self { at: until, sum }
    }
}

/// A load, from the end of the span before.
#[derive(Clone, Copy, Debug)]
struct Span {
    until: u64,
    load: SmLoad,
}

/// One process's plan for one GPU.
#[derive(Debug)]
pub struct SmPlan {
    most: SmLoad,
    /// End and sums of the part that is over.
    past: Knot,
    spans: VecDeque<Span>,
    /// All of it, over or not.
    whole: SmLoad,
    /// Loads that were placed since all of the curve was published.
    placed: usize,
    /// GPU time up to which what was published is fine enough.
    fine_until: u64,
}

impl SmPlan {
    /// Of a GPU with so many multiprocessors, of so many warps each.
    pub fn new(sms: u32, warps: u32) -> Self {
        let most = SmLoad { active: f64::from(sms), resident: f64::from(sms) * f64::from(warps) };
        let (past, whole) = (Knot::default(), SmLoad::default());
        Self { most, past, spans: VecDeque::new(), whole, placed: 0, fine_until: 0 }
    }

    /// Takes note that GPU time has come to `now`.
    pub fn pass(&mut self, now: u64) {
        while let Some(span) = self.spans.front() {
            self.past = self.past.after(span, span.until.min(now).max(self.past.at));
            if span.until > now {
                return;
            }
            self.spans.pop_front();
        }
        self.past.at = self.past.at.max(now);
    }

    /// Adds a load to what runs from `from` to `until`; what would have to run before that what is over was over, is not.
    pub fn place(&mut self, from: u64, until: u64, load: SmLoad) {
        let from = from.max(self.past.at);
        if until <= from {
            return;
        }
        for end in [from, until] {
            if self.spans.back().map_or(self.past.at, |span| span.until) < end {
                self.spans.push_back(Span { until: end, load: SmLoad::default() });
            }
        }
        let (first, behind) = (self.split(from), self.split(until));
        let mut begins = from;
        for span in self.spans.range_mut(first..behind) {
            let ns = (span.until - begins) as f64;
            let add = |there: &mut f64, more: f64, most: f64, whole: &mut f64| {
                let sum = (*there + more).min(most);
                *whole += (sum - *there) * ns;
                *there = sum;
            };
            add(&mut span.load.active, load.active, self.most.active, &mut self.whole.active);
            add(&mut span.load.resident, load.resident, self.most.resident, &mut self.whole.resident);
            begins = span.until;
        }
        self.placed += 1;
        while self.spans.len() > SPANS
            && let Some(one) = self.spans.pop_front()
            && let Some(other) = self.spans.front_mut()
        {
            let (a, b) = ((one.until - self.past.at) as f64, (other.until - one.until) as f64);
            let mean = |x: f64, y: f64| (x * a + y * b) / (a + b).max(1.0);
            other.load.active = mean(one.load.active, other.load.active);
            other.load.resident = mean(one.load.resident, other.load.resident);
        }
    }

    /// The span that begins at a moment in the plan, cut off if it has to be; one behind the last for the plan's end.
    fn split(&mut self, at: u64) -> usize {
        let index = self.spans.partition_point(|span| span.until <= at);
        let begins = if index == 0 { self.past.at } else { self.spans[index - 1].until };
        match self.spans.get(index) {
            Some(span) if begins < at => {
                self.spans.insert(index, Span { until: at, load: span.load });
                index + 1
            }
            _ => index,
        }
    }

    /// The last point of the curve.
    fn end(&self) -> Knot {
        Knot { at: self.spans.back().map_or(self.past.at, |span| span.until), sum: self.whole }
    }

    /// Points of the curve: all of them if they fit, else every so manieth.
    fn knots(&self) -> Vec<Knot> {
        let step = self.spans.len().div_ceil(CURVE_KNOTS - 1).max(1);
        let last = self.spans.len();
        let mut knot = self.past;
        let later = self.spans.iter().enumerate().filter_map(move |(index, span)| {
            knot = knot.after(span, span.until);
            ((index + 1) % step == 0 || index + 1 == last).then_some(knot)
        });
        std::iter::once(self.past).chain(later).collect()
    }
}

impl Process {
    /// Publishes a plan for a GPU. Only one thread at a time may do so.
    pub fn publish(&self, gpu: usize, plan: &mut SmPlan) {
        let Some(curve) = self.curve(gpu) else { return };
        let seq = curve.seq.load(Relaxed) | 1;
        curve.seq.store(seq, Relaxed);
        fence(Release); // a reader that sees a store below sees the odd number above
        // All of a long plan costs its length, and few loads more change little of it but its end.
        let used = (curve.used.load(Relaxed) as usize).min(CURVE_KNOTS);
        let is_fine = plan.past.at < plan.fine_until && plan.placed * 16 < plan.spans.len();
        if is_fine && used == CURVE_KNOTS {
            curve.set(used - 1, plan.end());
        } else {
            plan.fine_until = u64::MAX;
            let mut used = 0;
            for (index, knot) in plan.knots().into_iter().take(CURVE_KNOTS).enumerate() {
                curve.set(index, knot);
                used = index + 1;
                if used == CURVE_KNOTS / 4 {
                    plan.fine_until = knot.at;
                }
            }
            curve.used.store(used as u64, Relaxed);
            plan.placed = 0;
        }
        curve.seq.store(seq + 1, Release); // a reader of the even number sees the points
    }
}

/// The curve at a moment: straight between two points.
fn at(knots: &[[u64; 3]], moment: u64) -> SmWork {
    let work = |knot: &[u64; 3]| SmWork { active: knot[1], resident: knot[2] };
    let after = knots.partition_point(|knot| knot[0] <= moment);
    match (after.checked_sub(1).and_then(|before| knots.get(before)), knots.get(after)) {
        (Some(a), Some(b)) => {
            let part = (moment - a[0]) as f64 / b[0].saturating_sub(a[0]).max(1) as f64;
            let between = |a: u64, b: u64| a + (b.saturating_sub(a) as f64 * part) as u64;
            SmWork { active: between(a[1], b[1]), resident: between(a[2], b[2]) }
        }
        (Some(knot), None) | (None, Some(knot)) => work(knot),
        (None, None) => SmWork::default(),
    }
}

impl Curve {
    fn set(&self, index: usize, knot: Knot) {
        let values = [knot.at, knot.sum.active.round() as u64, knot.sum.resident.round() as u64];
        for (word, value) in self.knots[index].iter().zip(values) {
            word.store(value, Relaxed);
        }
    }

    /// Up to a moment, and not further than to where it was cut off.
    pub(crate) fn work(&self, moment: u64) -> SmWork {
        let mut knots = [[0; 3]; CURVE_KNOTS];
        let mut used = 0;
        for _ in 0..READS {
            let seq = self.seq.load(Acquire);
            used = (self.used.load(Relaxed) as usize).min(CURVE_KNOTS);
            for (knot, words) in knots.iter_mut().zip(&self.knots).take(used) {
                *knot = [0, 1, 2].map(|i: usize| words[i].load(Relaxed));
            }
            fence(Acquire); // partner: the Release fence of the writer
            if seq & 1 == 0 && self.seq.load(Relaxed) == seq {
                break;
            }
            std::hint::spin_loop();
        }
        let cut = match self.cut_at.load(Relaxed) {
            0 => u64::MAX,
            cut => cut,
        };
        let moment = if self.clocked.load(Relaxed) == 0 { u64::MAX } else { moment.min(cut) };
        at(&knots[..used], moment)
    }

    /// The process is gone: what it had still to do is not done.
    pub(crate) fn cut(&self, moment: u64) {
        let _ = self.cut_at.compare_exchange(0, moment.max(1), Relaxed, Relaxed);
    }

    /// Empties it and gives what was in it.
    pub(crate) fn take(&self) -> SmWork {
        let work = self.work(u64::MAX);
        let words = self.knots.iter().flatten().chain([&self.used, &self.clocked, &self.cut_at, &self.seq]);
        words.for_each(|word: &AtomicU64| word.store(0, Relaxed));
        work
    }
}

impl Machine {
    /// Work on a GPU's multiprocessors up to `now_ns` (CLOCK_MONOTONIC), of all processes that it ever had.
    /// Where GPUs do not get on with the wall clock: of all that was launched.
    pub fn sm_work(&self, gpu: usize, now_ns: u64) -> SmWork {
        let Some(timeline) = self.layout().timelines.get(gpu) else { return SmWork::default() };
        let gone = SmWork {
            active: timeline.gone_active.load(Relaxed),
            resident: timeline.gone_resident.load(Relaxed),
        };
        let moment = self.gpu_time(gpu, now_ns);
        let slots = self.layout().slots.iter().take(self.slots_used());
        slots.fold(gone, |sum, slot| sum.and(slot.ledgers[gpu].curve.work(moment)))
    }

    /// The same of one process, living or dead, while its ledger is kept.
    pub fn sm_work_of(&self, pid: u32, gpu: usize, now_ns: u64) -> SmWork {
        let moment = self.gpu_time(gpu, now_ns);
        let slots = self.layout().slots.iter().take(self.slots_used());
        slots
            .filter(|slot| slot.pid.load(Relaxed) == pid)
            .filter_map(|slot| Some(slot.ledgers.get(gpu)?.curve.work(moment)))
            .fold(SmWork::default(), SmWork::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::MachineSpec;

    fn load(active: u32) -> SmLoad {
        SmLoad { active: f64::from(active), resident: f64::from(active) * 8.0 }
    }

    /// Multiprocessors at work in each 100 ns, as a picture of the plan.
    fn picture(plan: &SmPlan) -> Vec<u64> {
        let knots: Vec<_> =
            plan.knots().iter().map(|k| [k.at, k.sum.active as u64, k.sum.resident as u64]).collect();
        (0..10).map(|n| (at(&knots, (n + 1) * 100).active - at(&knots, n * 100).active) / 100).collect()
    }

    #[test]
    fn what_runs_side_by_side_is_added_up_to_what_there_is() {
        let mut plan = SmPlan::new(100, 64);
        plan.place(100, 400, load(40));
        plan.place(300, 600, load(30));
        plan.place(200, 300, load(90));
        plan.place(700, 800, load(5));
        assert_eq!(picture(&plan), [0, 40, 100, 70, 30, 30, 0, 5, 0, 0]);
        plan.pass(350);
        plan.place(0, 500, load(1));
        plan.pass(900);
        assert!(plan.spans.is_empty());
        assert_eq!(plan.past.sum.active, 4000.0 + 10_000.0 + 7000.0 + 6000.0 + 500.0 + 150.0);
        assert_eq!(plan.past.at, 900);
    }

    #[test]
    fn a_long_plan_is_told_in_few_points_and_loses_nothing() {
        let machine = Machine::private(&MachineSpec::parse("H200").unwrap()).unwrap();
        let process = machine.join().unwrap();
        let mut plan = SmPlan::new(132, 64);
        for n in 0..1_000_000_u64 {
            plan.place(n * 100, n * 100 + 50, load(1 + (n % 64) as u32));
            assert!(plan.spans.len() <= SPANS);
            process.publish(0, &mut plan);
        }
        process.set_work(0, machine.gpu_time(0, 1 << 40) + 100_000_000, 1000);
        for (ms, share) in [(25, 0.25), (50, 0.5), (75, 0.75), (90, 0.9)] {
            let work = machine.sm_work(0, (1 << 40) + ms * 1_000_000);
            let truth = 1_000_000.0 * 50.0 * 32.5 * share;
            assert!((work.active as f64 / truth - 1.0).abs() < 0.01, "{ms} ms: {work:?}, {truth} in truth");
        }
        plan.pass(100_000_000);
        process.publish(0, &mut plan);
        let work = machine.sm_work(0, (1 << 40) + 200_000_000);
        assert_eq!(work, SmWork { active: 50 * 32_500_000, resident: 8 * 50 * 32_500_000 });
    }

    #[test]
    fn a_gpu_has_the_work_of_all_and_what_the_dead_did() {
        let machine = Machine::private(&MachineSpec::parse("H200").unwrap()).unwrap();
        let start = 1 << 40;
        let begin = |active| {
            let process = machine.join().unwrap();
            let now = machine.gpu_time(0, start);
            let mut plan = SmPlan::new(132, 64);
            plan.place(now, now + 1_000, load(active));
            process.publish(0, &mut plan);
            process.set_work(0, now + 1_000, 1000);
            process
        };
        let (one, _other) = (begin(10), begin(30));
        // They take turns: each has got on by 250 ns.
        assert_eq!(machine.sm_work(0, start + 500).active, 250 * 40);
        drop(one);
        machine.gpu_time(0, start + 800);
        assert_eq!(machine.sm_work(0, start + 800).active, 250 * 40 + 300 * 30);
        // Its place goes to others in the end, what it did stays.
        let before = machine.sm_work(0, start + 800);
        for slot in machine.layout().slots.iter().take(1) {
            machine.retire(slot);
        }
        assert_eq!(machine.sm_work(0, start + 800), before);
    }
}
