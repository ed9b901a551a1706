//! How a process's launches filled its GPU.
//!
//! What a launch keeps active follows from its shape. That is reckoned where the launch is made, with what the driver
//! says of its occupancy, and the profile has the sums ([`radrm_profile::model::Work`]); here they are set
//! against time.

use radrm_profile::model::{Filling, Process};

/// Over the time from a process's first timed launch to the end of its last. `Err`: why it is not known.
pub(crate) fn of_process(process: &Process) -> Result<Filling, &'static str> {
    let [span] = process.timings.spans.as_slice() else {
        return Err("launches were timed on no GPU, or on several");
    };
    process.work.filling(span.span).ok_or("the driver did not tell how launches fill the GPU")
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::Nanos;
    use radrm_profile::model::{GpuIndex, TimedSpan, Work};

    #[test]
    fn an_estimate_is_a_share_of_the_time_on_one_gpu() {
        let span = |gpu| TimedSpan { gpu: GpuIndex(gpu), span: Nanos(1000) };
        let mut process = Process::default();
        process.work =
            Work { kernels: Nanos(400), active: Nanos(200), resident: Nanos(25), ..Work::default() };
        assert!(of_process(&process).is_err_and(|why| why.contains("on no GPU")));
        process.timings.spans = vec![span(1)];
        assert_eq!(of_process(&process), Ok(Filling { active: 0.2, resident: 0.025 }));
        process.timings.spans.push(span(2));
        assert!(of_process(&process).is_err());
        process.timings.spans.truncate(1);
        process.work.active = Nanos::ZERO;
        assert!(of_process(&process).is_err_and(|why| why.contains("did not tell")));
    }
}
