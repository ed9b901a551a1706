//! Events in streams.

use std::collections::BTreeSet;
use std::sync::Arc;

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::stream::op::{Event, Mark, Op, Recording, not_in_callback};
use crate::engine::stream::state::{NON_BLOCKING, Sched, Sort};
use crate::util::ffi::Answer;

impl Sched {
    /// An event by handle.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn event(&mut self, handle: CUevent) -> Answer<&mut Event> {
        self.events.get_mut(&handle.addr()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Lets an event stand for the end of what a stream has now.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn record_event(&mut self, driver: &'static Driver, handle: CUevent, key: u64) -> Answer {
        let mark = Arc::new(Mark::default());
        self.event(handle)?.recording = Recording::Point(Arc::clone(&mark));
        self.enqueue(driver, key, Op::Mark(mark));
        Ok(())
    }

    /// Makes a stream wait for an event.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE.
    pub fn wait_event(&mut self, driver: &'static Driver, key: u64, handle: CUevent) -> Answer {
        if let Recording::Point(mark) = &self.event(handle)?.recording {
            let mark = Arc::clone(mark);
            self.enqueue(driver, key, Op::Wait(mark));
        }
        Ok(())
    }

    /// Lets an event stand for the end of what several streams of a context have now.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE for an event of another context, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if a stream
    /// captures, which invalidates that capture.
    pub fn record_all(
        &mut self,
        driver: &'static Driver,
        event: CUevent,
        context: u64,
        streams: &BTreeSet<u64>,
    ) -> Answer {
        not_in_callback()?;
        if self.event(event)?.context != context {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        self.none_captures(streams)?;
        let context = self.context(driver, context)?;
        // A stream of its own waits for all of them and records the event.
        let joined = self.add_stream((&context, None), Sort::Created, NON_BLOCKING, 0);
        for key in streams {
            let mark = Arc::new(Mark::default());
            self.enqueue(driver, *key, Op::Mark(Arc::clone(&mark)));
            self.enqueue(driver, joined, Op::Wait(mark));
        }
        self.record_event(driver, event, joined)?;
        self.close(joined);
        Ok(())
    }

    /// Makes all later work of several streams wait for an event, and that of streams which are made later in `of`: a
    /// context, or a green context by its view.
    ///
    /// # Errors
    /// CUDA_ERROR_INVALID_HANDLE; CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED for a captured event and if a stream captures,
    /// which invalidates the capture.
    pub fn wait_all(
        &mut self,
        driver: &'static Driver,
        event: CUevent,
        of: CUcontext,
        streams: &BTreeSet<u64>,
    ) -> Answer {
        not_in_callback()?;
        let recording = self.event(event)?.recording.clone();
        if let Recording::Captured { capture, .. } = recording {
            self.invalidate(capture);
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        self.none_captures(streams)?;
        streams.iter().try_for_each(|key| self.wait_event(driver, *key, event))?;
        let clock = &self.clock;
        self.barriers.retain(|(_, mark)| mark.reached().is_none_or(|moment| !clock.has_come(moment)));
        if let Recording::Point(mark) = recording {
            self.barriers.push((of.addr(), mark));
        }
        Ok(())
    }

    /// Fails if one of the streams captures, and invalidates its capture.
    fn none_captures(&mut self, streams: &BTreeSet<u64>) -> Answer {
        let captures: Vec<u64> = streams.iter().filter_map(|key| self.streams.get(key)?.capture).collect();
        if captures.is_empty() {
            return Ok(());
        }
        captures.into_iter().for_each(|id| self.invalidate(id));
        Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }
}

/// The point that an event stands for; `None` if it was never recorded.
pub(crate) fn point(state: &mut Sched, event: CUevent) -> Answer<Option<Arc<Mark>>> {
    match state.event(event)?.recording.clone() {
        Recording::Never => Ok(None),
        Recording::Point(mark) => Ok(Some(mark)),
        Recording::Captured { capture, .. } => {
            state.invalidate(capture);
            Err(CUDA_ERROR_CAPTURED_EVENT)
        }
    }
}

/// The events of a context that is gone.
pub fn context_destroyed(state: &mut Sched, context: u64) {
    state.events.retain(|_, event| event.context != context);
}

/// Keys of the streams for a wait that concerns one stream.
pub fn only(key: u64) -> BTreeSet<u64> {
    BTreeSet::from([key])
}
