//! Launches of fillers that wait while a request of the job beside them is under way.
//!
//! The engine is too slow for this: it looks at jobs a few times a second. So each job whose fillers launch between its
//! requests has a thread, which sleeps until one of its ranges begins or ends ([`radrm_telemetry::gate`]), asks
//! [`RequestHold`] until when launches wait, and writes that into the fillers' segments. Nothing is written for fillers
//! that the scheduler did not name.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use radrm_os::thread_time;
use radrm_scheduler_core::{LatencyTarget, MAX_HOLD_NS, Permille, RequestHold};
use radrm_telemetry::gate::{ARMED, MAX_AHEAD_NS, UNWATCHED};
use radrm_telemetry::{Segment, SlotInfo, monotonic_ns};

use crate::latency::{Kind, OpenSteps};

/// The longest sleep: a thread that is to end, and one that was not woken, sees so after it.
const SLEEP: Duration = Duration::from_millis(100);
/// The least time between two looks, so that a program with very many ranges does not keep the daemon busy.
const MIN_INTERVAL: Duration = Duration::from_micros(200);
/// Interval at which a job's processes are listed.
const LIST: Duration = Duration::from_millis(100);
const STACK: usize = 128 << 10;

// A time that lies farther ahead counts as damage, and would hold no launch.
const _: () = assert!(MAX_HOLD_NS <= MAX_AHEAD_NS);

/// Requests for which launches wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requests {
    pub(crate) target: LatencyTarget,
    pub(crate) kind: Kind,
    /// The part of the time in which launches never wait.
    pub(crate) floor: Permille,
}

/// The segments of the fillers, and until when the launches of each were last told to wait.
type Fillers = Arc<Mutex<BTreeMap<u64, (Segment, u64)>>>;

/// The thread of one job.
#[derive(Debug)]
struct Watcher {
    requests: Requests,
    fillers: Fillers,
    ends: Arc<AtomicBool>,
}

/// The threads of a node's jobs with requests, by job.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    watchers: BTreeMap<u64, Watcher>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        open_all(&mut self.fillers.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn open_all(fillers: &mut BTreeMap<u64, (Segment, u64)>) {
    for (segment, _) in std::mem::take(fillers).into_values() {
        // A segment that cannot be written any more is that of a job that is gone.
        let _ = segment.set_gate(0);
    }
}

impl Gates {
    /// Starts and ends threads so that just these jobs have one, each with its fillers. `segments` gives a job's segment
    /// where it is known.
    pub(crate) fn set<'s>(
        &mut self,
        wanted: &BTreeMap<u64, (Requests, Vec<u64>)>,
        segments: impl Fn(u64) -> Option<&'s Segment>,
    ) {
        self.watchers.retain(|job, watcher| {
            wanted.get(job).is_some_and(|(requests, _)| *requests == watcher.requests)
        });
        for (job, (requests, fillers)) in wanted {
            if !self.watchers.contains_key(job)
                && let Some(watcher) = segments(*job).and_then(|segment| Watcher::start(segment, requests))
            {
                self.watchers.insert(*job, watcher);
            }
            let Some(watcher) = self.watchers.get(job) else { continue };
            let mut known = watcher.fillers.lock().unwrap_or_else(PoisonError::into_inner);
            let mut gone = std::mem::take(&mut *known);
            for filler in fillers {
                let own = || Some((segments(*filler)?.try_clone().ok()?, 0));
                if let Some(own) = gone.remove(filler).or_else(own) {
                    known.insert(*filler, own);
                }
            }
            open_all(&mut gone);
        }
    }
}

impl Watcher {
    fn start(segment: &Segment, requests: &Requests) -> Option<Self> {
        let segment = segment.try_clone().ok()?;
        let watcher = Self { requests: requests.clone(), fillers: Fillers::default(), ends: Arc::default() };
        let (requests, fillers, ends) = (requests.clone(), watcher.fillers.clone(), watcher.ends.clone());
        let run = move || run(&segment, &requests, &fillers, &ends);
        thread::Builder::new().name("requests".into()).stack_size(STACK).spawn(run).ok()?;
        Some(watcher)
    }
}

/// Pause after a look that took so much processor time: a segment in which each of a thousand processes has open ranges takes a
/// quarter of a processor at most.
fn pause(took: Duration) -> Duration {
    (took * 3).max(MIN_INTERVAL)
}

fn run(segment: &Segment, requests: &Requests, fillers: &Fillers, ends: &AtomicBool) {
    let Ok(job) = segment.job() else { return };
    let mut hold = RequestHold::new(requests.target.limit_ns, requests.floor, monotonic_ns());
    let mut open = OpenSteps::default();
    let mut listed: Option<(Instant, Vec<SlotInfo>)> = None;
    while !ends.load(Ordering::Relaxed) {
        // Armed first: what begins after the ranges are read ends the sleep below.
        if segment.watch_ranges(ARMED).is_err() {
            break;
        }
        let slots = match listed.take().filter(|(then, _)| then.elapsed() < LIST) {
            Some(slots) => slots,
            None => (Instant::now(), segment.slots().unwrap_or_default()),
        };
        let before = thread_time();
        let began = open.latest(segment, &slots.1, &requests.target, requests.kind);
        let took = thread_time().saturating_sub(before);
        listed = Some(slots);
        let now = monotonic_ns();
        let until = hold.until(now, began.map(|ns| ns.saturating_add(job.created_mono_ns)));
        for (filler, told) in fillers.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
            if *told != until && filler.set_gate(until).is_ok() {
                *told = until;
            }
        }
        let sleep = match (until, hold.owed()) {
            (0, owed) if began.is_some() && owed > 0 => Duration::from_nanos(owed).min(SLEEP),
            (0, _) => SLEEP,
            (until, _) => Duration::from_nanos(until.saturating_sub(now)).min(SLEEP),
        };
        thread::sleep(pause(took));
        let ns = u64::try_from(sleep.max(MIN_INTERVAL).as_nanos()).unwrap_or(u64::MAX);
        if segment.wait_for_ranges(ns).is_err() {
            break;
        }
    }
    // Where the segment cannot be written, the job's ranges find no watch in it either.
    let _ = segment.watch_ranges(UNWATCHED);
    open_all(&mut fillers.lock().unwrap_or_else(PoisonError::into_inner));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_take_long_leave_the_processor_to_others() {
        for usual in [0, 20, 66] {
            assert_eq!(pause(Duration::from_micros(usual)), MIN_INTERVAL);
        }
        assert_eq!(pause(Duration::from_millis(80)), Duration::from_millis(240));
    }
}
