//! Events, for interposers that time launches. With `RADRM_INSTANT_EVENT_NS=N` every call takes `N` ns, as a
//! driver's do. Any two events are 3 us apart: less than a launch takes, so a loop of launches is bound
//! by them.

use core::{
    ffi::{c_uint, c_void},
    sync::atomic::{AtomicU64, Ordering},
};
use std::time::{Duration, Instant};

use radrm_cuda_abi::*;

use crate::entry::put;

/// Time between any two events, ms.
const APART: f32 = 0.003;

static COST_NS: AtomicU64 = AtomicU64::new(0);
static MADE: AtomicU64 = AtomicU64::new(0);

/// Reads what the environment asks for.
pub fn read_event_options() {
    let asked = std::env::var("RADRM_INSTANT_EVENT_NS").ok().and_then(|text| text.parse().ok());
    COST_NS.store(asked.unwrap_or(0), Ordering::Relaxed);
}

fn spend() {
    let cost = Duration::from_nanos(COST_NS.load(Ordering::Relaxed));
    if !cost.is_zero() {
        let begin = Instant::now();
        while begin.elapsed() < cost {
            core::hint::spin_loop();
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut CUevent, _flags: c_uint) -> CUresult {
    unlike_others!("cuEventCreate");
    spend();
    let number = MADE.fetch_add(1, Ordering::Relaxed) + 1;
    // SAFETY: the caller's out-parameter.
    unsafe { put(event, CUevent((number << 4) as *mut c_void)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(_event: CUevent, _stream: CUstream) -> CUresult {
    unlike_others!("cuEventRecord");
    spend();
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(_event: CUevent) -> CUresult {
    unlike_others!("cuEventQuery");
    spend();
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(ms: *mut f32, _start: CUevent, _end: CUevent) -> CUresult {
    unlike_others!("cuEventElapsedTime_v2");
    spend();
    // SAFETY: the caller's out-parameter.
    unsafe { put(ms, APART) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetId(_context: CUcontext, id: *mut u64) -> CUresult {
    unlike_others!("cuCtxGetId");
    // SAFETY: the caller's out-parameter.
    unsafe { put(id, 1) }
}
