//! Events in streams.

use std::collections::BTreeSet;
use std::sync::Arc;

use radrm_cuda_abi::*;

use crate::engine::driver::Driver;
use crate::engine::stream::op::{Event, Mark, Op, Recording};
use crate::engine::stream::state::Sched;
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
