//! Context of a hooked call: where it is and what it may use.

use crate::capture;
use crate::driver::Driver;
use crate::entries::EntryId;
use crate::state::Page;
use crate::telemetry::{self, Event, EventKind, GpuIndex};
use crate::tls::Tls;
use radrm_cuda_abi::*;

/// Context of one hooked call. Its existence means that the process has joined its segment and that
/// the thread's state is valid.
pub(crate) struct Cx<'c> {
    /// The entry point that was called.
    pub(crate) entry: EntryId,
    pub(crate) page: &'static Page,
    tls: &'c Tls,
}

impl<'c> Cx<'c> {
    #[inline(always)]
    pub(crate) fn new(entry: EntryId, page: &'static Page, tls: &'c Tls) -> Self {
        Self { entry, page, tls }
    }

    /// The segment's writer.
    #[inline(always)]
    pub(crate) fn writer(&self) -> &telemetry::Writer {
        self.page.writer()
    }

    /// The calling thread's state.
    #[inline(always)]
    pub(crate) fn tls(&self) -> &'c Tls {
        self.tls
    }

    /// The driver's helper functions.
    pub(crate) fn driver(&self) -> &'static Driver {
        crate::driver::get()
    }

    /// Returns true if work put into `stream` by this entry point is captured rather than run.
    #[inline(always)]
    pub(crate) fn capturing(&self, stream: CUstream) -> bool {
        capture::under_way(self.page) && capture::is_capturing(self.entry, stream)
    }

    /// Runs driver queries of our own without disturbing a capture that another thread may have
    /// under way.
    pub(crate) fn relaxed_capture<R>(&self, work: impl FnOnce() -> R) -> R {
        capture::relaxed(self.page, work)
    }

    /// Notes a rare event.
    #[cold]
    pub(crate) fn event(&self, kind: EventKind, gpu: Option<GpuIndex>, a: u64, b: u64) {
        let writer = self.writer();
        let entry = self.entry.table_id();
        let tid = self.tls().lane.get().map_or_else(crate::thread::id, |lane| lane.thread());
        writer.event(&Event { gpu, entry, tid, a, b, ..Event::new(kind, writer.now()) });
    }

    /// Counts a reason for not acting.
    #[cold]
    pub(crate) fn bypass(&self, reason: telemetry::Bypass) {
        self.writer().bypass(reason);
    }
}
