//! The life of a process on one GPU, cut into spans.

use crate::model::{GpuIndex, KIND_COUNT, Process, Profile, TimelinePoint};
use crate::units::{Bytes, Nanos};
use std::collections::HashMap;

/// A span of a process's life in which it was busy (something changed) or
/// quiet (it held the same all the time).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) start: Nanos,
    /// Not part of the span.
    pub(crate) end: Nanos,
    /// Memory that was held when the span began.
    pub(crate) before: [Bytes; KIND_COUNT],
    /// Point of the timeline for the span; `None`: quiet, `before` holds on.
    pub(crate) point: Option<&'a TimelinePoint>,
}

impl Span<'_> {
    /// All kinds at the highest device total.
    pub(crate) fn kinds(&self) -> &[Bytes; KIND_COUNT] {
        self.point.map_or(&self.before, |point| &point.at_max)
    }
}

/// The end of a process that was not seen to end.
const NEVER: Nanos = Nanos(u64::MAX);

/// From when to when a process can have held memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) joined: Nanos,
    /// It was certainly there until then.
    pub(crate) alive_until: Nanos,
    /// It was certainly gone from then on: the driver had taken back what it
    /// held. The latest time there is if it still runs.
    pub(crate) gone_by: Nanos,
}

/// The lives of all processes, in their order.
pub(crate) fn lives(profile: &Profile) -> Vec<Life> {
    let mut joined: HashMap<u32, Vec<Nanos>> = HashMap::new();
    for process in &profile.processes {
        joined.entry(process.identity.pid).or_default().push(process.identity.joined);
    }
    let of = |process: &Process| {
        // A later process with the same id: the program that it became by exec, or an
        // unrelated one. In either case it was gone by then.
        let identity = &process.identity;
        let later = joined.get(&identity.pid).into_iter().flatten().filter(|t| **t > identity.joined);
        Life::of(process, profile, later.min().copied().unwrap_or(NEVER))
    };
    profile.processes.iter().map(of).collect()
}

impl Life {
    fn of(process: &Process, profile: &Profile, successor: Nanos) -> Life {
        let state = &process.state;
        let joined = process.identity.joined;
        let last = process.timelines.iter().filter_map(|timeline| timeline.points.last());
        let acted = last.clone().map(|point| point.t).max().unwrap_or(joined).max(joined);
        let Some(ended) = state.ended else {
            return Life { joined, alive_until: profile.last_state.max(acted), gone_by: successor };
        };
        // What was seen of a program after its successor joined was the latter.
        let alive_until = if process.seen_alive <= successor { process.seen_alive.min(ended) } else { acted };
        // What it did after its goodbye (handlers of exit) it did alive.
        let afterwards = last
            .filter(|point| point.t >= ended)
            .map(|point| Nanos(point.t.0.saturating_add(point.span.0)))
            .max();
        let gone_by = afterwards.unwrap_or(ended).min(successor);
        Life { joined, alive_until: alive_until.max(acted).min(gone_by), gone_by }
    }

    /// True if it was seen to end.
    pub(crate) fn is_over(&self) -> bool {
        self.gone_by != NEVER
    }
}

/// The spans of a process on a GPU, by time, without gaps from its first one
/// on. Empty if it has no timeline there.
pub(crate) fn spans<'a>(process: &'a Process, gpu: GpuIndex, life: Life) -> Vec<Span<'a>> {
    let points = process.timeline(gpu).map_or(&[][..], |timeline| &timeline.points);
    let mut spans: Vec<Span<'a>> = Vec::with_capacity(points.len());
    let mut before = [Bytes::ZERO; KIND_COUNT];
    for (index, point) in points.iter().enumerate() {
        // The grid is older than the process: its first span begins with it.
        let within = |t: Nanos| t > point.t && t.minus(point.t) < point.span;
        let start = if index == 0 && within(life.joined) { life.joined } else { point.t };
        let next = points.get(index + 1).map_or(life.gone_by, |next| next.t).min(life.gone_by);
        let after = Nanos(start.0.saturating_add(1));
        let end = Nanos(point.t.0.saturating_add(point.span.0)).min(next).max(after);
        spans.push(Span { start, end, before, point: Some(point) });
        before = point.last;
        if next > end {
            spans.push(Span { start: end, end: next, before, point: None });
        }
    }
    spans
}
