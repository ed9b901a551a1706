//! Activity of a process over time.

use radrm_profile::model::{COPY_WAYS, GpuClock, KernelSpan, Process, Profile};
use radrm_profile::{Bytes, Nanos};
use serde::Serialize;
use std::collections::BTreeMap;

/// Launches and copies of a process over a span of time; between two windows it did nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WindowSummary {
    /// Start of the window.
    pub from_ns: Nanos,
    /// End of the window.
    pub to_ns: Nanos,
    /// Launches of kernels.
    pub launches: u64,
    /// Launches of graphs.
    pub graph_launches: u64,
    /// Launches of both kinds per second.
    pub launches_per_second: f64,
    /// Bytes of copies and memsets, by their calls.
    pub copied_bytes: Bytes,
    /// The same per second.
    pub copied_bytes_per_second: f64,
    /// Of these, copies and memsets apart, by the ways that were used, per second.
    pub copied_by_way_bytes_per_second: BTreeMap<&'static str, f64>,
    /// Threads of a launch, mean over the launches of kernels, those in graphs included; null without any.
    pub threads_per_launch: Option<f64>,
    /// Likewise blocks.
    pub blocks_per_launch: Option<f64>,
    /// Likewise registers of a thread.
    pub registers_per_thread: Option<f64>,
    /// Likewise static shared memory of a block.
    pub static_shared_bytes_per_block: Option<f64>,
    /// Likewise dynamic shared memory of a block.
    pub dynamic_shared_bytes_per_block: Option<f64>,
    /// GPU time of the kernels that were launched in the window over the window's length, estimated from the launches that
    /// were timed; above 1 where several run at a time, or launches are queued faster than they run. Null where none was
    /// timed.
    pub launched_gpu_time: Option<f64>,
    /// SM activity by those kernels (SMACT), as of one GPU, by the shapes of its launches and the times of those that were
    /// timed; null where none was.
    pub sm_active_share: Option<f64>,
    /// Likewise SM occupancy (SMOCC).
    pub sm_occupancy_share: Option<f64>,
}

impl WindowSummary {
    /// The figures of a span. Only where GPUs get on with the host's time are theirs set against it.
    pub(crate) fn of(span: &KernelSpan, time: GpuClock) -> WindowSummary {
        let KernelSpan { t, span, kernel_activity: work, .. } = *span;
        let shapes = work.shapes;
        let (seconds, length) = (span.as_secs_f64().max(1e-9), span.0.max(1) as f64);
        let filling = work.filling(span).filter(|_| time.is_real());
        WindowSummary {
            from_ns: t,
            to_ns: Nanos(t.0.saturating_add(span.0)),
            launches: work.launches,
            graph_launches: work.graph_launches,
            launches_per_second: work.launches.saturating_add(work.graph_launches) as f64 / seconds,
            copied_bytes: work.copied,
            copied_bytes_per_second: work.copied.0 as f64 / seconds,
            copied_by_way_bytes_per_second: COPY_WAYS
                .into_iter()
                .zip(work.ways)
                .filter(|(_, bytes)| !bytes.is_zero())
                .map(|(way, bytes)| (way, bytes.0 as f64 / seconds))
                .collect(),
            threads_per_launch: shapes.mean(|sum| sum.threads),
            blocks_per_launch: shapes.mean(|sum| sum.blocks),
            registers_per_thread: shapes.mean(|sum| sum.registers),
            static_shared_bytes_per_block: shapes.mean(|sum| sum.static_shared),
            dynamic_shared_bytes_per_block: shapes.mean(|sum| sum.dynamic_shared),
            launched_gpu_time: (work.kernels.0 > 0 && time.is_real()).then(|| work.kernels.0 as f64 / length),
            sm_active_share: filling.map(|filling| filling.active),
            sm_occupancy_share: filling.map(|filling| filling.resident),
        }
    }
}

pub(super) fn windows(profile: &Profile, process: &Process) -> Vec<WindowSummary> {
    let spans = profile.kernel_activity.iter().filter(|span| span.process == process.key);
    spans.map(|span| WindowSummary::of(span, profile.gpu_clock)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::{KernelActivity, Shapes};

    #[test]
    fn rates_are_those_of_the_window() {
        let work = KernelActivity {
            launches: 900,
            graph_launches: 100,
            copied: Bytes(4000),
            kernels: Nanos::from_millis(1000),
            active: Nanos::from_millis(500),
            resident: Nanos::from_millis(200),
            ways: [Bytes(3000), Bytes(0), Bytes(0), Bytes(0), Bytes(0), Bytes(0), Bytes(1000)],
            shapes: Shapes {
                launches: 1000,
                blocks: 4000,
                threads: 512_000,
                registers: 32_500,
                static_shared: 0,
                dynamic_shared: 48 << 10,
            },
        };
        let span = KernelSpan {
            t: Nanos::from_secs(3),
            span: Nanos::from_secs(2),
            kernel_activity: work,
            ..KernelSpan::default()
        };
        let of = |span: &KernelSpan| WindowSummary::of(span, GpuClock::Real);
        let window = of(&span);
        assert_eq!((window.from_ns, window.to_ns), (Nanos::from_secs(3), Nanos::from_secs(5)));
        assert_eq!((window.launches_per_second, window.copied_bytes_per_second), (500.0, 2000.0));
        assert_eq!(
            (window.launched_gpu_time, window.sm_active_share, window.sm_occupancy_share),
            (Some(0.5), Some(0.25), Some(0.1))
        );
        let by_way: Vec<_> = window.copied_by_way_bytes_per_second.into_iter().collect();
        assert_eq!(by_way, [("host_to_device", 1500.0), ("memset", 500.0)]);
        assert_eq!((window.threads_per_launch, window.blocks_per_launch), (Some(512.0), Some(4.0)));
        assert_eq!(window.registers_per_thread, Some(32.5));
        assert_eq!(
            (window.static_shared_bytes_per_block, window.dynamic_shared_bytes_per_block),
            (Some(0.0), Some(49.152))
        );
        let copied =
            of(&KernelSpan { kernel_activity: KernelActivity { shapes: Shapes::default(), ..work }, ..span });
        assert_eq!(copied.threads_per_launch, None);
        let counted =
            KernelActivity { kernels: Nanos::ZERO, active: Nanos::ZERO, resident: Nanos::ZERO, ..work };
        let window = of(&KernelSpan { kernel_activity: counted, ..span });
        assert_eq!((window.launched_gpu_time, window.sm_active_share), (None, None));
        // Where waiting for the GPU takes no time its time says nothing of the window.
        let modelled = WindowSummary::of(&span, GpuClock::Modelled);
        assert_eq!((modelled.launched_gpu_time, modelled.sm_active_share), (None, None));
        assert_eq!(modelled.launches_per_second, 500.0);
        // Spans and counts that no clock and no program has ever shown.
        let absurd =
            KernelActivity { launches: u64::MAX, graph_launches: u64::MAX, kernels: Nanos(u64::MAX), ..work };
        let window = of(&KernelSpan { t: Nanos(u64::MAX), span: Nanos(0), kernel_activity: absurd, ..span });
        assert!(
            window.launches_per_second.is_finite() && window.launched_gpu_time.is_some_and(f64::is_finite)
        );
    }
}
