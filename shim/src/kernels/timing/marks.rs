//! Pairs of events around launches, and the times between them.
//!
//! A mark is a pair of events of one context. It is taken for a launch, is out until the GPU has come past
//! both events, and is then free again. All of it is a fixed table of words that change hands by one
//! exchange each: no lock, and a thread that dies with a mark in hand costs that mark.
//!
//! A context that was destroyed behind our back (the CUDA runtime resets devices through a private table)
//! takes its events along, and its handle comes back; so a mark is only touched by a thread in whose context
//! it was made, known by the context's number, which never comes back.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use radrm_cuda_abi::*;

use super::Timing;
use super::samples::stream_word;
use super::strata::Shape;
use super::table::{CAPTURED, EMPTY, FREE, MARKS, Mark, Marks, OUT, TAKEN};
use crate::capture;
use crate::cx::Cx;
use crate::entries::{EntryId, Flavour};
use crate::errno;
use crate::graph;
use crate::memory;
use crate::telemetry::{Bypass, Filling, GpuIndex, KernelId, KernelsMode, LaunchSample, Stratum};

/// Marks of one context while only some launches are timed: more launches than that are seldom queued.
const PER_CONTEXT: usize = 64;
/// Marks that are queried with each timing.
const MAX_QUERIED: usize = 2;
/// Marks that are queried when the program has waited for the GPU.
pub(super) const ALL: usize = MARKS;

/// A context as marks know it.
#[derive(Clone, Copy)]
pub(crate) struct Here {
    pub(crate) context: u64,
    pub(crate) instance: u64,
    gpu: GpuIndex,
}

/// A mark whose first event is recorded.
pub(crate) struct Begun<'m> {
    mark: &'m Mark,
    /// Captures that had begun before.
    captures: u64,
}

/// A mark whose both events are recorded.
pub(crate) struct Ended<'m>(&'m Mark);

impl Mark {
    /// The launch between the events: its duration and the time from the context's origin to its end are known.
    fn sample(
        &self,
        cx: &Cx<'_>,
        here: Here,
        stratum: Option<Stratum>,
        seen_ns: u64,
        (duration, end): (f64, Option<f64>),
    ) -> LaunchSample {
        let block = self.block.load(Ordering::Relaxed);
        LaunchSample {
            launched_ns: self.launched.load(Ordering::Relaxed),
            seen_ns,
            duration_ns: duration as u64,
            end_ns: end.map(|ns| ns as u64),
            context: here.instance as u16,
            gpu: here.gpu,
            stream: self.stream.load(Ordering::Relaxed),
            kernel: stratum.map_or(KernelId::OTHER, |stratum| cx.writer().kernel_of(stratum)),
            is_graph: stratum.is_none(),
            blocks: self.blocks.load(Ordering::Relaxed),
            threads: block as u16,
            dynamic_shared: (block >> 32) as u32,
        }
    }

    fn is_of(&self, here: Here) -> bool {
        self.context.load(Ordering::Relaxed) == here.context
            && self.instance.load(Ordering::Relaxed) == here.instance
    }
}

/// Bit offset of a plan's serial number in a mark's last word: above the GPU (8 bits) and two shares of 2047.
const SERIAL_SHIFT: u32 = 32;
const SHARES: u64 = 2046;

/// Share of the GPU that a launch fills, in 22 bits above the GPU's number; 0: not known.
fn word_of(filling: Option<Filling>) -> u64 {
    let share = |share: f64| (share.clamp(0.0, 1.0) * SHARES as f64) as u64 + 1;
    filling.map_or(0, |f| share(f.active) << 8 | share(f.resident) << 20)
}

fn filling_of(word: u64) -> Option<Filling> {
    let share = |word: u64| Some(((word & 0x7ff).checked_sub(1)?) as f64 / SHARES as f64);
    Some(Filling { active: share(word >> 8)?, resident: share(word >> 20)? })
}

fn event(word: &AtomicU64) -> CUevent {
    CUevent(word.load(Ordering::Relaxed) as *mut c_void)
}

/// The calling thread's context.
pub(crate) fn here(cx: &Cx<'_>) -> Option<Here> {
    let place = memory::place::current(cx)?;
    let instance = match cx.driver().ctx_get_id() {
        Some(ask) => {
            let mut number = 0;
            // SAFETY: the current context, and an out-parameter that lives over the call.
            let answer = unsafe { ask(CUcontext(place.context as *mut c_void), &raw mut number) };
            answer.is_ok().then_some(number)?
        }
        // Drivers before CUDA 12: what we have seen of contexts that ended has to do.
        None => memory::place::deaths(),
    };
    Some(Here { context: place.context, instance, gpu: place.gpu })
}

pub(crate) fn record(cx: &Cx<'_>, entry: EntryId, event: CUevent, stream: CUstream) -> bool {
    let record = match entry.flavour() {
        Flavour::Legacy => cx.driver().event_record(),
        Flavour::Ptsz | Flavour::Ptds => cx.driver().event_record_ptsz(),
    };
    // SAFETY: our own event; the stream is the program's, which the driver checks.
    record.is_some_and(|record| unsafe { record(event, stream) }.is_ok())
}

impl Marks {
    /// Records the first event of a launch that follows, where it may be timed.
    pub(crate) fn begin(&self, cx: &Cx<'_>, stream: CUstream, is_first: bool) -> Option<Begun<'_>> {
        let timing = &cx.page.kernels.timing;
        let from = cx.writer().now();
        let all = timing.mode() == KernelsMode::All;
        if !all && !timing.budget.allows(from, is_first) {
            return None;
        }
        // SeqCst: a capture that begins after this has raised the number that `end` compares, or is seen here.
        let captures = timing.captures.load(Ordering::SeqCst);
        if capture::under_way(cx.page) {
            return None;
        }
        let most = if all { MARKS } else { PER_CONTEXT };
        let mark = errno::keep(|| capture::always_relaxed(|| self.open(cx, stream, most, from)));
        timing.pay(cx, from);
        Some(Begun { mark: mark?, captures })
    }

    fn open(&self, cx: &Cx<'_>, stream: CUstream, most: usize, from: u64) -> Option<&Mark> {
        if !capture::is_idle(cx.entry, stream) {
            return None;
        }
        let here = here(cx)?;
        let mark = self.take(cx, here, most)?;
        self.set_origin(cx, here, stream);
        if !record(cx, cx.entry, event(&mark.start), stream) {
            mark.leave(FREE);
            return None;
        }
        mark.serial.store(u64::from(here.gpu.number()), Ordering::Relaxed);
        mark.launched.store(from, Ordering::Relaxed);
        let thread = core::ptr::from_ref(cx.tls()).addr() as u64;
        let word = stream_word(stream, cx.entry.flavour(), here.context, thread);
        mark.stream.store(word, Ordering::Relaxed);
        Some(mark)
    }

    /// A free mark of a context; a new one while it has fewer than `most`.
    fn take(&self, cx: &Cx<'_>, here: Here, most: usize) -> Option<&Mark> {
        let mut own = 0;
        let used = self.used.load(Ordering::Relaxed);
        for mark in self.marks.iter().take(used) {
            let state = mark.state.load(Ordering::Acquire);
            if state == EMPTY || mark.context.load(Ordering::Relaxed) != here.context {
                continue;
            }
            if mark.is_of(here) {
                own += 1;
                if state == FREE && mark.pass(FREE, TAKEN) {
                    return Some(mark);
                }
            } else if state != TAKEN {
                // The handle is another context's by now, and the events are gone.
                mark.pass(state, EMPTY);
            }
        }
        if own >= most {
            return None;
        }
        let (number, mark) = self.marks.iter().enumerate().find(|(_, mark)| mark.pass(EMPTY, TAKEN))?;
        self.used.fetch_max(number + 1, Ordering::Relaxed);
        for place in [&mark.start, &mark.end] {
            let Some(made) = make_event(cx) else {
                mark.leave(EMPTY);
                return None;
            };
            place.store(made.addr(), Ordering::Relaxed);
        }
        mark.context.store(here.context, Ordering::Relaxed);
        mark.instance.store(here.instance, Ordering::Relaxed);
        Some(mark)
    }

    /// Records an event at the first timing in a context: from there on its span of use counts.
    fn set_origin(&self, cx: &Cx<'_>, here: Here, stream: CUstream) {
        // 0 is a free place, and the number of no context.
        let own = here.instance + 1;
        for origin in &self.origins {
            match origin.instance.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    if let Some(made) = make_event(cx).filter(|made| record(cx, cx.entry, *made, stream)) {
                        origin.event.store(made.addr(), Ordering::Release);
                    }
                    return;
                }
                Err(there) if there == own => return,
                Err(_) => {}
            }
        }
    }

    fn origin(&self, here: Here) -> Option<CUevent> {
        let own = self.origins.iter().find(|o| o.instance.load(Ordering::Acquire) == here.instance + 1)?;
        let event = CUevent(own.event.load(Ordering::Acquire) as *mut c_void);
        (!event.is_null()).then_some(event)
    }

    /// Queries up to `most` marks that are out, in the thread's context.
    pub(super) fn harvest(&self, cx: &Cx<'_>, most: usize) {
        let used = self.used.load(Ordering::Relaxed);
        if used == 0 || capture::under_way(cx.page) {
            return;
        }
        errno::keep(|| {
            capture::always_relaxed(|| {
                let Some(here) = here(cx) else { return };
                let begin = self.cursor.load(Ordering::Relaxed);
                let mut seen = 0;
                for n in 0..used {
                    let number = (begin + n) % used;
                    let Some(mark) = self.marks.get(number) else { return };
                    let is_out = mark.state.load(Ordering::Relaxed) == OUT && mark.is_of(here);
                    if is_out && mark.pass(OUT, TAKEN) {
                        mark.leave(self.query(cx, here, mark));
                        seen += 1;
                        if seen == most {
                            self.cursor.store((number + 1) % used, Ordering::Relaxed);
                            return;
                        }
                    }
                }
            });
        });
    }

    /// Asks for the time of a mark in hand; gives its next state.
    fn query(&self, cx: &Cx<'_>, here: Here, mark: &Mark) -> u64 {
        let Some(ask) = cx.driver().event_query() else { return FREE };
        // SAFETY: our own event, in its own context.
        match unsafe { ask(event(&mark.end)) } {
            CUDA_SUCCESS => {}
            CUDA_ERROR_NOT_READY => return OUT,
            _ => {
                cx.writer().timing_lost();
                return CAPTURED;
            }
        }
        let Some(ns) = elapsed(cx, event(&mark.start), event(&mark.end)) else {
            cx.writer().timing_lost();
            return FREE;
        };
        let (what, weight) = (mark.what.load(Ordering::Relaxed), mark.weight.load(Ordering::Relaxed));
        let word = mark.serial.load(Ordering::Relaxed);
        let serial = word >> SERIAL_SHIFT;
        // SAFETY: a mark that is out without a serial number holds a stratum's address.
        let stratum = if serial == 0 { unsafe { Stratum::from_ptr(what as *const _) } } else { None };
        match stratum {
            Some(stratum) if !stratum.timed(weight, ns, 0.0) => cx.writer().timing_lost(),
            Some(stratum) => {
                if let Some(filling) = filling_of(word) {
                    stratum.placed(weight, ns, filling);
                }
            }
            None => graph::timing::timed(cx, what, serial, ns, weight),
        }
        let span = self.origin(here).and_then(|origin| elapsed(cx, origin, event(&mark.end)));
        if let Some(span) = span {
            cx.writer().timed_span(here.gpu, span as u64);
        }
        let timing = &cx.page.kernels.timing;
        timing.samples.put(cx.writer(), |now| mark.sample(cx, here, stratum, now, (ns, span)));
        FREE
    }

    /// A context has ended.
    pub(super) fn forget(&self, context: CUcontext) {
        for mark in self.marks.iter().take(self.used.load(Ordering::Relaxed)) {
            let state = mark.state.load(Ordering::Acquire);
            if state != TAKEN && mark.context.load(Ordering::Relaxed) == context.addr() {
                mark.pass(state, EMPTY);
            }
        }
    }
}

pub(crate) fn make_event(cx: &Cx<'_>) -> Option<CUevent> {
    let make = cx.driver().event_create()?;
    let mut made = CUevent::NULL;
    // SAFETY: the out-parameter lives over the call; no flags: an event that keeps the time.
    let answer = unsafe { make(&raw mut made, 0) };
    if !answer.is_ok() {
        cx.bypass(Bypass::HelperFailed);
    }
    (answer.is_ok() && !made.is_null()).then_some(made)
}

/// Time between two events that the GPU has come past, ns.
pub(crate) fn elapsed(cx: &Cx<'_>, start: CUevent, end: CUevent) -> Option<f64> {
    let ask = cx.driver().event_elapsed_v2().or_else(|| cx.driver().event_elapsed())?;
    let mut milliseconds = 0.0;
    // SAFETY: the out-parameter lives over the call, both events are ours.
    let answer = unsafe { ask(&raw mut milliseconds, start, end) };
    (answer.is_ok() && milliseconds >= 0.0).then_some(f64::from(milliseconds) * 1e6)
}

impl Timing {
    /// Notes what the host has spent since `from`.
    fn pay(&self, cx: &Cx<'_>, from: u64) {
        let ns = cx.writer().now().saturating_sub(from);
        // And what cannot be seen here: the program goes on with colder caches. Measured on launches that are 4 us
        // apart.
        let ns = ns + ns / 2;
        cx.writer().timing_cost(self.budget.spent(ns));
    }
}

impl<'m> Begun<'m> {
    /// Records the second event, after the launch.
    pub(crate) fn end(self, cx: &Cx<'_>, stream: CUstream, launched: bool) -> Option<Ended<'m>> {
        let timing = &cx.page.kernels.timing;
        let from = cx.writer().now();
        let mark = self.mark;
        let recorded = launched
            && errno::keep(|| capture::always_relaxed(|| record(cx, cx.entry, event(&mark.end), stream)));
        // A capture that another thread began meanwhile may have got an event of ours.
        let in_capture = timing.captures.load(Ordering::SeqCst) != self.captures
            && !errno::keep(|| capture::is_idle(cx.entry, stream));
        if in_capture || !recorded {
            mark.leave(if in_capture { CAPTURED } else { FREE });
            timing.pay(cx, from);
            return None;
        }
        timing.marks.harvest(cx, MAX_QUERIED);
        timing.budget.timing();
        timing.pay(cx, from);
        Some(Ended(mark))
    }
}

impl Ended<'_> {
    fn out(self, what: u64, serial: u64, weight: u64, filling: Option<Filling>, shape: Option<Shape>) {
        let mark = self.0;
        let threads =
            |shape: Shape| shape.threads.checked_div(shape.blocks).unwrap_or(0).min(u16::MAX.into());
        let block = shape.map_or(0, |s| threads(s) | s.shared.min(u32::MAX.into()) << 32);
        mark.blocks.store(shape.map_or(0, |shape| shape.blocks), Ordering::Relaxed);
        mark.block.store(block, Ordering::Relaxed);
        let gpu = mark.serial.load(Ordering::Relaxed) & 0xff;
        mark.what.store(what, Ordering::Relaxed);
        mark.weight.store(weight, Ordering::Relaxed);
        mark.serial.store(serial << SERIAL_SHIFT | word_of(filling) | gpu, Ordering::Relaxed);
        mark.leave(OUT);
    }

    /// The time is that of a launch which stands for `weight` launches of a stratum.
    pub(crate) fn publish(self, stratum: Stratum, weight: u64, filling: Option<Filling>, shape: Shape) {
        stratum.begin();
        self.out(stratum.as_ptr().addr() as u64, 0, weight, filling, Some(shape));
    }

    /// The time is that of a graph's launch.
    pub(crate) fn publish_graph(self, plan: u64, serial: u64, weight: u64) {
        self.out(plan, serial, weight, None, None);
    }

    /// Nothing is recorded.
    pub(crate) fn forget(self) {
        self.0.leave(FREE);
    }
}
