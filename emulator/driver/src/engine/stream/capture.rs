//! Stream capture.
//!
//! A capture turns what is submitted to its streams into nodes of a graph. The rules are those of the
//! CUDA programming guide:
//!
//! * It begins in one stream, other streams join by waiting for an event that was recorded in it, and
//!   they must have joined the first stream again when it ends there.
//! * The legacy stream cannot be captured, and cannot be used while a blocking stream of its context
//!   is ([`CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`]).
//! * Anything that waits for or asks after a capturing stream or a captured event fails.
//! * Calls that are "potentially unsafe" are prohibited while a capture is under way that the calling
//!   thread has to respect, see [`unsafe_call`].
//! * Each such offence invalidates the capture: its streams refuse everything until it is ended, and
//!   then there is no graph.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::graph::node::{Edge, NodeKind};
use crate::engine::stream::op::{Capture, Recording};
use crate::engine::stream::state::{Sched, Sort};
use crate::util::ffi::Answer;
use crate::util::thread::thread_number;

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(0) };
}

/// Sets the calling thread's mode and gives the one before.
pub fn exchange_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    CUstreamCaptureMode(MODE.try_with(|own| own.replace(mode.0)).unwrap_or(0))
}

/// Called by every call that is potentially unsafe during capture (allocations, waiting, queries of
/// events, loading of modules). It is prohibited, and invalidates the captures that prohibit it:
///
/// | thread's mode | because of |
/// |---|---|
/// | global (default) | a capture that this thread began and that is not relaxed; any thread's global one |
/// | thread-local | a capture that this thread began and that is not relaxed |
/// | relaxed | nothing |
///
/// # Errors
/// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
pub fn unsafe_call(driver: &Driver) -> Answer {
    // A capture that another thread begins at this moment may or may not be seen: both are legal.
    if driver.scheduler.captures.load(Relaxed) == 0 {
        return Ok(());
    }
    driver.sched().unsafe_call()
}

impl Sched {
    /// As [`unsafe_call`], under the lock.
    pub fn unsafe_call(&mut self) -> Answer {
        let (thread, mode) = (thread_number(), CUstreamCaptureMode(MODE.try_with(Cell::get).unwrap_or(0)));
        if mode == CU_STREAM_CAPTURE_MODE_RELAXED {
            return Ok(());
        }
        let mut prohibited = false;
        for capture in self.captures.values_mut() {
            let own = capture.thread == thread && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
            let global =
                mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
            if own || global {
                capture.valid = false;
                prohibited = true;
            }
        }
        if prohibited { Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Captures of blocking streams in a context: they forbid use of its legacy stream.
    fn blocking_captures(&self, context: u64) -> Vec<u64> {
        self.streams
            .values()
            .filter(|s| s.context == context && s.is_blocking())
            .filter_map(|s| s.capture)
            .collect()
    }

    /// Checks that a stream can take work, and returns the capture that takes it instead, if there is one.
    ///
    /// # Errors
    /// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT for the legacy stream while a blocking stream captures,
    /// which invalidates that capture; CUDA_ERROR_STREAM_CAPTURE_INVALIDATED.
    pub fn admit(&mut self, key: u64) -> Answer<Option<u64>> {
        if self.captures.is_empty() {
            return Ok(None);
        }
        let stream = self.stream(key)?;
        if stream.sort == Sort::Legacy {
            let hurt = self.blocking_captures(stream.context);
            return if hurt.is_empty() {
                Ok(None)
            } else {
                hurt.into_iter().for_each(|id| self.invalidate(id));
                Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
            };
        }
        match stream.capture {
            Some(id) if self.captures.get(&id).is_some_and(|c| c.valid) => Ok(Some(id)),
            Some(_) => Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            None => Ok(None),
        }
    }

    /// Fails for a stream that captures: called by what waits for it or asks after it.
    ///
    /// # Errors
    /// As [`Self::admit`], and CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, which invalidates the capture.
    pub fn not_capturing(&mut self, key: u64) -> Answer {
        match self.admit(key)? {
            None => Ok(()),
            Some(id) => {
                self.invalidate(id);
                Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// Makes a capture fail at its end.
    pub fn invalidate(&mut self, id: u64) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.valid = false;
        }
    }

    /// Records an operation of a stream as a node; gives the node.
    ///
    /// # Errors
    /// As [`crate::graph::Graphs::add`]; the capture is invalid then.
    pub fn record(&mut self, id: u64, key: u64, kind: NodeKind) -> Answer<u64> {
        let graph = self.captures.get(&id).ok_or(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?.graph;
        let before: Vec<Edge> = self.stream(key)?.frontier.iter().map(|node| Edge::plain(*node)).collect();
        match self.graphs.add(graph, &before, kind) {
            Ok(node) => {
                self.stream_mut(key)?.frontier = vec![node];
                Ok(node)
            }
            Err(error) => {
                self.invalidate(id);
                Err(error)
            }
        }
    }

    /// Begins a capture; `into` is a graph to extend and the nodes to begin behind.
    ///
    /// # Errors
    /// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED for the legacy stream, CUDA_ERROR_ILLEGAL_STATE for a
    /// stream that captures already.
    pub fn begin_capture(
        &mut self,
        driver: &Driver,
        key: u64,
        mode: CUstreamCaptureMode,
        into: Option<(u64, Vec<u64>)>,
    ) -> Answer {
        if mode.0 > CU_STREAM_CAPTURE_MODE_RELAXED.0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let stream = self.stream(key)?;
        if stream.sort == Sort::Legacy {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if stream.capture.is_some() {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        let into_existing = into.is_some();
        let (graph, frontier) = into.unwrap_or_else(|| (self.graphs.create(), Vec::new()));
        let id = self.new_id();
        let stream = self.stream_mut(key)?;
        stream.capture = Some(id);
        stream.frontier = frontier;
        let streams = BTreeSet::from([key]);
        let capture = Capture {
            id,
            mode,
            thread: thread_number(),
            origin: key,
            graph,
            into_existing,
            valid: true,
            streams,
            left: Vec::new(),
        };
        self.captures.insert(id, capture);
        driver.scheduler.captures.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Ends the capture of a stream and gives its graph.
    ///
    /// # Errors
    /// CUDA_ERROR_ILLEGAL_STATE if the stream does not capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED if
    /// it is not the stream in which the capture began, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD; the
    /// capture is over with CUDA_ERROR_STREAM_CAPTURE_INVALIDATED or CUDA_ERROR_STREAM_CAPTURE_UNJOINED.
    pub fn end_capture(&mut self, driver: &Driver, key: u64) -> Answer<u64> {
        let id = self.stream(key)?.capture.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        let capture = self.captures.get(&id).ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.origin != key {
            self.invalidate(id);
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != thread_number() {
            return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let (graph, valid) = (capture.graph, capture.valid);
        let joined = self.is_joined(id, key);
        let existing = self.drop_capture(driver, id);
        if valid && joined {
            return Ok(graph);
        }
        if !existing {
            self.graphs.destroy(&driver.memory, graph);
        }
        Err(if valid { CUDA_ERROR_STREAM_CAPTURE_UNJOINED } else { CUDA_ERROR_STREAM_CAPTURE_INVALIDATED })
    }

    /// Returns true if the last work of all other streams stands before the end of the first one.
    fn is_joined(&self, id: u64, origin: u64) -> bool {
        let Some(capture) = self.captures.get(&id) else { return false };
        let Some(first) = self.streams.get(&origin) else { return false };
        let before = self.graphs.ancestors(capture.graph, &first.frontier);
        let others = capture.streams.iter().filter(|key| **key != origin);
        let ends = others.filter_map(|key| self.streams.get(key)).flat_map(|s| &s.frontier);
        ends.chain(&capture.left).all(|node| before.contains(node))
    }

    /// Ends a capture without a graph being wanted; says whether its graph was there before it.
    pub fn drop_capture(&mut self, driver: &Driver, id: u64) -> bool {
        let Some(capture) = self.captures.remove(&id) else { return false };
        driver.scheduler.captures.fetch_sub(1, Relaxed);
        for key in &capture.streams {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.capture = None;
                stream.frontier.clear();
            }
        }
        capture.into_existing
    }

    /// A capturing stream is destroyed. The capture is over if it began there, and else goes on: what the stream
    /// did last must still be joined.
    pub fn abandon(&mut self, driver: &Driver, key: u64) {
        let Some(id) = self.streams.get(&key).and_then(|s| s.capture) else { return };
        if self.captures.get(&id).is_some_and(|c| c.origin == key) {
            let graph = self.captures.get(&id).map(|c| c.graph);
            if !self.drop_capture(driver, id)
                && let Some(graph) = graph
            {
                self.graphs.destroy(&driver.memory, graph);
            }
        } else if let Some(capture) = self.captures.get_mut(&id) {
            capture.streams.remove(&key);
            capture.left.extend(self.streams.get(&key).into_iter().flat_map(|s| &s.frontier));
        }
    }

    /// Makes a stream wait for an event that was recorded in a capture: it joins that capture.
    ///
    /// # Errors
    /// CUDA_ERROR_CAPTURED_EVENT if that capture is over, CUDA_ERROR_STREAM_CAPTURE_MERGE if the
    /// stream is part of another one, which ends both; CUDA_ERROR_STREAM_CAPTURE_IMPLICIT for the
    /// legacy stream.
    pub fn join_capture(&mut self, key: u64, recording: &Recording) -> Answer {
        let Recording::Captured { capture: id, nodes } = recording else { return Ok(()) };
        if !self.captures.contains_key(id) {
            return Err(CUDA_ERROR_CAPTURED_EVENT);
        }
        let own = self.admit(key)?;
        if self.stream(key)?.sort == Sort::Legacy {
            self.invalidate(*id);
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        if let Some(other) = own.filter(|other| other != id) {
            self.invalidate(other);
            self.invalidate(*id);
            return Err(CUDA_ERROR_STREAM_CAPTURE_MERGE);
        }
        let Some(capture) = self.captures.get_mut(id).filter(|c| c.valid) else {
            return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        };
        capture.streams.insert(key);
        let stream = self.stream_mut(key)?;
        stream.capture = Some(*id);
        for node in nodes {
            if !stream.frontier.contains(node) {
                stream.frontier.push(*node);
            }
        }
        Ok(())
    }

    /// State of a stream with respect to capture.
    ///
    /// # Errors
    /// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT for the legacy stream while a blocking stream captures.
    pub fn capture_status(&self, key: u64) -> Answer<(CUstreamCaptureStatus, Option<&Capture>)> {
        let stream = self.stream(key)?;
        if stream.sort == Sort::Legacy && !self.blocking_captures(stream.context).is_empty() {
            return Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
        Ok(match stream.capture.and_then(|id| self.captures.get(&id)) {
            None => (CU_STREAM_CAPTURE_STATUS_NONE, None),
            Some(capture) if capture.valid => (CU_STREAM_CAPTURE_STATUS_ACTIVE, Some(capture)),
            Some(capture) => (CU_STREAM_CAPTURE_STATUS_INVALIDATED, Some(capture)),
        })
    }
}
