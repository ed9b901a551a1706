//! Requests that the driver refused, or a quota.

use radrm_cuda_abi::*;

use super::{place, postmortem};
use crate::cx::Cx;
use crate::stacks;
use crate::telemetry::{Bypass, Event, EventKind, FailedRequest, GpuIndex, Kind, QuotaRefusal};

/// Figure that could not be found out.
const UNKNOWN: u64 = u64::MAX;

/// Records a refused request: what was asked for, where, and what was free at that moment.
///
/// Only an out-of-memory is a failed request; another refusal (a size of 0, a broken context) says
/// nothing about memory and is an event of its own. What was free is unknown where the request was for
/// another device than the current context's.
pub(super) fn record(
    cx: &Cx<'_>,
    gpu: Option<GpuIndex>,
    kind: Kind,
    bytes: u64,
    code: CUresult,
    quota: Option<QuotaRefusal>,
) {
    crate::errno::keep(|| {
        let writer = cx.writer();
        let ns = writer.now();
        let mut event = Event {
            gpu,
            memory: Some(kind),
            entry: cx.entry.table_id(),
            a: bytes,
            b: UNKNOWN,
            ..Event::new(EventKind::RequestFailed, ns)
        };
        event.c = u64::from(code.0);
        if code == CUDA_ERROR_OUT_OF_MEMORY {
            // The driver answers for the current context's device only.
            let answers = gpu.is_some() && place::current(cx).map(|p| p.gpu) == gpu;
            let info = cx.relaxed_capture(|| cx.driver().memory_info().filter(|_| answers));
            let (free, total) = info.map_or((UNKNOWN, UNKNOWN), |i| (i.free, i.total));
            event.b = free;
            match gpu {
                Some(gpu) => {
                    let entry = cx.entry.table_id();
                    let result = code.0;
                    let request = FailedRequest { ns, gpu, kind, entry, bytes, free, total, result, quota };
                    let site = stacks::refused(cx, &request);
                    writer.failed(&request);
                    postmortem::record(cx, &request, site);
                }
                None => cx.bypass(Bypass::NoContext),
            }
        }
        writer.event(&event);
    });
}
