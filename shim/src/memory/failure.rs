//! Requests that the driver refused.

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::telemetry::{FailedRequest, GpuIndex, Kind};

/// Records a refused request: what was asked for, where, and what was free at that moment.
///
/// Free memory is asked for after an out-of-memory only; after another error the driver may be in no
/// state to answer, and the figure would explain nothing.
pub(super) fn record(cx: &Cx<'_>, gpu: Option<GpuIndex>, kind: Kind, bytes: u64, code: CUresult) {
    crate::errno::keep(|| {
        let info = if code == CUDA_ERROR_OUT_OF_MEMORY {
            cx.relaxed_capture(|| cx.driver().memory_info()).unwrap_or_default()
        } else {
            Default::default()
        };
        cx.writer().failed(&FailedRequest {
            gpu,
            kind,
            entry: cx.entry.0,
            bytes,
            free: info.free,
            total: info.total,
            code: code.0,
        });
    });
}
