//! Lower bounds that no scheduler can beat under the interference model.
//! They hold whatever the scheduler knows of the future.
//!
//! Under [`Constants`](crate::Constants) with capacity C, jobs on a device get at most C of SM
//! activity together: sum a_i s_i <= C, and no job runs faster than alone. So
//!
//! - the last job ends no earlier than its arrival and its own run time, and no earlier than the
//!   work `sum a_i p_i gpus_i` of all jobs that arrive from some time on takes m devices at C;
//! - the sum of completion times is no less than that of one machine of speed m C that does the same
//!   work by the shortest remaining work first (preemptive; Schrage 1968 proves it optimal), and
//!   no less than if all ran at once, each alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::trace::TraceJob;
use crate::interference::Activity;

/// Lower bounds, in s.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Bounds {
    /// Of the time from the first arrival to the last end.
    pub makespan_s: f64,
    /// Of the mean time from submission to end.
    pub jct_mean_s: f64,
}

/// Lower bounds of a trace on `devices` devices that give at most `capacity` of SM activity each.
/// `assumed` is the activity of jobs whose own is not known.
#[must_use]
pub fn bounds(trace: &[TraceJob], devices: usize, capacity: f64, assumed: Activity) -> Bounds {
    let Some(first) = trace.iter().map(|job| job.arrival).min() else { return Bounds::default() };
    let speed = devices.max(1) as f64 * capacity;
    let work = |job: &TraceJob| {
        let smact = job.activity.map_or_else(|| job.share.unwrap_or(assumed.smact), |own| own.smact);
        job.duration.as_secs_f64() * smact.fraction() * f64::from(job.gpus)
    };
    let arrival = |job: &TraceJob| job.arrival.minus(first).as_secs_f64();
    let alone = trace.iter().map(|job| arrival(job) + job.duration.as_secs_f64()).fold(0.0, f64::max);
    let mut order: Vec<&TraceJob> = trace.iter().collect();
    order.sort_by_key(|job| job.arrival);
    let mut crowded = 0.0f64;
    let mut later = 0.0;
    for job in order.iter().rev() {
        later += work(job);
        crowded = crowded.max(arrival(job) + later / speed);
    }
    // One fast machine, the shortest remaining work first. Work in integers of 1/1000, so that the
    // heap has an order.
    let units = |seconds: f64| (seconds * 1000.0) as u64;
    let mut heap: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let (mut now, mut sum) = (0.0f64, 0.0f64);
    let mut next = order.iter().peekable();
    while next.peek().is_some() || !heap.is_empty() {
        if heap.is_empty()
            && let Some(job) = next.peek()
        {
            now = now.max(arrival(job));
        }
        while let Some(job) = next.next_if(|job| arrival(job) <= now) {
            heap.push(Reverse(units(work(job))));
        }
        let Some(Reverse(left)) = heap.pop() else { continue };
        let end = now + left as f64 / 1000.0 / speed;
        match next.peek() {
            Some(job) if arrival(job) < end => {
                let done = (arrival(job) - now) * speed;
                heap.push(Reverse(left.saturating_sub(units(done))));
                now = arrival(job);
            }
            _ => {
                now = end;
                sum += now;
            }
        }
    }
    let arrivals: f64 = trace.iter().map(arrival).sum();
    let alone_sum: f64 = trace.iter().map(|job| job.duration.as_secs_f64()).sum();
    Bounds {
        makespan_s: alone.max(crowded),
        jct_mean_s: (sum - arrivals).max(alone_sum) / trace.len() as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Millis, Permille};

    fn job(arrival: u64, seconds: u64, smact: u32) -> TraceJob {
        let activity = Activity { smact: Permille(smact), ..Activity::default() };
        let (arrival, duration) = (Millis::from_secs(arrival), Millis::from_secs(seconds));
        TraceJob { activity: Some(activity), ..TraceJob::new("x", arrival, duration) }
    }

    #[test]
    fn bounds_of_small_traces_are_known() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 0.01, "{a} {b}");
        // One device, two jobs that fill it: one after the other, the short one first.
        let two = bounds(&[job(0, 100, 1000), job(0, 10, 1000)], 1, 1.0, Activity::default());
        close(two.makespan_s, 110.0);
        close(two.jct_mean_s, (10.0 + 110.0) / 2.0);
        // Light ones fit beside each other: only their own run time counts.
        let light = bounds(&[job(0, 100, 100), job(0, 10, 100)], 1, 1.0, Activity::default());
        close(light.makespan_s, 100.0);
        close(light.jct_mean_s, 55.0);
        // A short one that comes late interrupts.
        let late = bounds(&[job(0, 100, 1000), job(50, 10, 1000)], 1, 1.0, Activity::default());
        close(late.makespan_s, 110.0);
        close(late.jct_mean_s, (110.0 + 10.0) / 2.0);
    }
}
