//! Launches and copies of processes over time.

use super::ProcessKey;
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// The ways of copies, and memsets, by their names.
pub const COPY_WAYS: [&str; 7] =
    ["host_to_device", "device_to_host", "device_to_device", "peer", "host_to_host", "unspecified", "memset"];

/// Launches and copies, and what the launches' kernels took. Times are estimated from the launches that were timed;
/// where none was they are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelActivity {
    /// Launches of kernels.
    pub launches: u64,
    /// Launches of graphs.
    pub graph_launches: u64,
    /// Bytes of copies and memsets.
    pub copied: Bytes,
    /// The same by way, in the order of [`COPY_WAYS`].
    pub ways: [Bytes; COPY_WAYS.len()],
    /// Shapes of the launches, the kernels in graphs included.
    pub shapes: Shapes,
    /// Time that kernels took on the GPU.
    pub kernels: Nanos,
    /// The same, each launch's times the share of the multiprocessors that it kept active.
    pub active: Nanos,
    /// The same, each launch's times the share of resident warps.
    pub resident: Nanos,
}

/// Shapes of launches, each added up over all of them: divided by their number they are means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shapes {
    /// Launches of kernels, those in graphs included.
    pub launches: u64,
    /// Blocks.
    pub blocks: u64,
    /// Threads.
    pub threads: u64,
    /// Registers of a thread.
    pub registers: u64,
    /// Static shared memory of a block, bytes.
    pub static_shared: u64,
    /// Dynamic shared memory of a block, bytes.
    pub dynamic_shared: u64,
}

impl Shapes {
    fn zip(self, other: Shapes, with: fn(u64, u64) -> u64) -> Shapes {
        Shapes {
            launches: with(self.launches, other.launches),
            blocks: with(self.blocks, other.blocks),
            threads: with(self.threads, other.threads),
            registers: with(self.registers, other.registers),
            static_shared: with(self.static_shared, other.static_shared),
            dynamic_shared: with(self.dynamic_shared, other.dynamic_shared),
        }
    }

    /// Mean of one of the sums; `None` where nothing was launched.
    pub fn mean(&self, sum: fn(&Shapes) -> u64) -> Option<f64> {
        (self.launches > 0).then(|| sum(self) as f64 / self.launches as f64)
    }
}

impl KernelActivity {
    /// Returns true if nothing was done.
    pub fn is_none(&self) -> bool {
        *self == KernelActivity::default()
    }

    fn zip(self, other: KernelActivity, with: fn(u64, u64) -> u64) -> KernelActivity {
        KernelActivity {
            launches: with(self.launches, other.launches),
            graph_launches: with(self.graph_launches, other.graph_launches),
            copied: Bytes(with(self.copied.0, other.copied.0)),
            ways: std::array::from_fn(|way| Bytes(with(self.ways[way].0, other.ways[way].0))),
            shapes: self.shapes.zip(other.shapes, with),
            kernels: Nanos(with(self.kernels.0, other.kernels.0)),
            active: Nanos(with(self.active.0, other.active.0)),
            resident: Nanos(with(self.resident.0, other.resident.0)),
        }
    }

    /// Both together.
    pub fn and(self, other: KernelActivity) -> KernelActivity {
        self.zip(other, u64::saturating_add)
    }

    /// Increase since another; an estimate that was put lower since is no less than nothing.
    pub fn since(self, before: KernelActivity) -> KernelActivity {
        self.zip(before, u64::saturating_sub)
    }
}

/// Time of kernels on the GPU, an estimate: what later launches show can lower it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuTime {
    /// Time that kernels took; of those beside each other both.
    pub kernels: Nanos,
    /// The same, each launch's times the share of the multiprocessors that it kept active.
    pub active: Nanos,
    /// The same, each launch's times the share of resident warps.
    pub resident: Nanos,
}

/// Share of a GPU that was filled over a time, each field 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Filling {
    /// Share of the multiprocessors that had work, mean over the time: SM activity.
    pub active: f64,
    /// Share of the warps that the multiprocessors can hold that were there: SM occupancy.
    pub resident: f64,
}

impl GpuTime {
    /// Both together.
    pub fn and(self, other: GpuTime) -> GpuTime {
        let sum = |a: Nanos, b: Nanos| Nanos(a.0.saturating_add(b.0));
        GpuTime {
            kernels: sum(self.kernels, other.kernels),
            active: sum(self.active, other.active),
            resident: sum(self.resident, other.resident),
        }
    }

    /// Share of a GPU that these kernels filled over a time: the sum over its kernels of GPU time times share, over
    /// that time. An estimate: the shares follow from the shapes of launches and from the occupancy that the driver
    /// reports, the times from the launches that were timed, and whatever runs beside each other is added. `None` where
    /// no launch was timed, or the driver reports no occupancy.
    pub fn filling(self, time: Nanos) -> Option<Filling> {
        let share = |part: Nanos| (part.0 as f64 / time.0 as f64).min(1.0);
        (self.active.0 > 0 && time.0 > 0)
            .then(|| Filling { active: share(self.active), resident: share(self.resident) })
    }
}

impl KernelActivity {
    /// Time that kernels took on the GPU.
    pub fn gpu_time(self) -> GpuTime {
        GpuTime { kernels: self.kernels, active: self.active, resident: self.resident }
    }

    /// As [`GpuTime::filling`].
    pub fn filling(self, time: Nanos) -> Option<Filling> {
        self.gpu_time().filling(time)
    }
}

/// Kernel activity of a process over a span of time. In a gap between spans it did nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSpan {
    /// Key of the process.
    pub process: ProcessKey,
    /// Start of the span.
    pub t: Nanos,
    /// Length of the span.
    pub span: Nanos,
    /// Kernel activity of the process.
    pub kernel_activity: KernelActivity,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_and_what_is_added_up_agree() {
        let work = |n: u64| KernelActivity {
            launches: n,
            graph_launches: 2 * n,
            copied: Bytes(3 * n),
            kernels: Nanos(4 * n),
            active: Nanos(5 * n),
            resident: Nanos(6 * n),
            ways: [Bytes(7 * n); COPY_WAYS.len()],
            shapes: Shapes { launches: 8 * n, registers: 9 * n, ..Shapes::default() },
        };
        assert_eq!(work(5).since(work(2)).and(work(2)), work(5));
        assert!(work(2).since(work(5)).is_none());
        let most = work(u64::MAX / 9).and(work(u64::MAX / 9));
        assert_eq!((most.resident, most.shapes.registers), (Nanos(u64::MAX), u64::MAX));
    }
    #[test]
    fn a_gpu_is_filled_by_what_its_kernels_kept_active() {
        let work = KernelActivity {
            kernels: Nanos(400),
            active: Nanos(200),
            resident: Nanos(25),
            ..KernelActivity::default()
        };
        assert_eq!(work.filling(Nanos(1000)), Some(Filling { active: 0.2, resident: 0.025 }));
        assert_eq!(
            work.filling(Nanos(100)),
            Some(Filling { active: 1.0, resident: 0.25 }),
            "never more than all"
        );
        // Where kernels ran but nothing is known of their shares, nothing is known.
        assert_eq!(KernelActivity { active: Nanos::ZERO, ..work }.filling(Nanos(1000)), None);
        assert_eq!(work.filling(Nanos::ZERO), None);
    }
}
