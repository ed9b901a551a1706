//! Work again and again, with its times on host and GPU.

use std::time::{Duration, Instant};

use anyhow::Result;
use cudarc::driver::{CudaEvent, sys::CUevent_flags};

use crate::{code::Gpu, known::Known, size::Size};

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Does `step` again and again, `size.rounds` times or, if --seconds is given, for so long, and times it on
/// host and GPU. Gives the number of rounds.
pub fn repeat(gpu: &Gpu, size: Size, known: &mut Known, mut step: impl FnMut() -> Result<()>) -> Result<u64> {
    let event =
        || -> Result<CudaEvent> { Ok(gpu.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?) };
    gpu.stream.synchronize()?;
    let (began, from) = (monotonic_ns(), event()?);
    let (mut done, mut issuing) = (0_u64, Duration::ZERO);
    loop {
        // So many launches at a time that a look at the clock costs nothing beside them, and so few that the
        // end is not missed by long: what is queued is waited for.
        let batch = match size.seconds {
            Some(_) => 16,
            None => size.rounds,
        };
        let start = Instant::now();
        for _ in 0..batch {
            step()?;
        }
        issuing += start.elapsed();
        done += batch as u64;
        let Some(seconds) = size.seconds else { break };
        gpu.stream.synchronize()?;
        if (monotonic_ns() - began) as f64 * 1e-9 >= seconds {
            break;
        }
    }
    let to = event()?;
    gpu.stream.synchronize()?;
    known.span_ns = Some([began, monotonic_ns()]);
    known.gpu_seconds = Some(f64::from(from.elapsed_ms(&to)?) * 1e-3);
    known.issue_seconds = Some(issuing.as_secs_f64());
    Ok(done)
}
