//! Memory of the device that a stream-ordered request may make its pool take, reserved under the quota before
//! the driver is asked.
//!
//! The driver does not say beforehand whether a pool will grow, nor by how much: it takes whole steps. So
//! the next step is reserved for the time of the call, and what the pool has really taken is charged
//! after it. A request that fits into what the pool holds already goes on without a reservation; if
//! fragmentation makes the pool grow all the same, and past the limit, the block is given back at once.

use core::sync::atomic::{AtomicU64, Ordering};

use radrm_cuda_abi::*;

use super::table::{Class, Pool};
use crate::cx::Cx;
use crate::memory::claim;
use crate::memory::place::Place;
use crate::telemetry::{GpuIndex, Kind};

/// Steps in which pools have been seen to grow at most, bytes. Drivers of CUDA 11.2 to 13 use this one.
static STEP: AtomicU64 = AtomicU64::new(32 << 20);

/// A reservation for the time of one call.
#[must_use]
pub(super) struct Hold {
    gpu: GpuIndex,
    /// Bytes reserved.
    bytes: u64,
    /// Bytes that the pool held before the call.
    before: u64,
}

impl Hold {
    /// Reserves for a request of `asked` bytes. `pool`: the one that it will be served from, where that is
    /// known already.
    ///
    /// # Errors
    ///
    /// Result code that the program gets: a quota refuses the request.
    pub(super) fn take(
        cx: &Cx<'_>,
        here: Option<Place>,
        pool: Option<&Pool>,
        asked: u64,
    ) -> Result<Option<Self>, CUresult> {
        let gpu = pool.and_then(Pool::gpu).or(here.map(|place| place.gpu));
        let (true, Some(gpu)) = (cx.page.quota.is_on(), gpu) else { return Ok(None) };
        let class = pool.map_or(Class::Device, Pool::class);
        let before = pool.map_or(0, Pool::reserved);
        let bytes = match class {
            Class::Device => {
                let step = STEP.load(Ordering::Relaxed);
                asked.checked_next_multiple_of(step).unwrap_or(asked)
            }
            Class::Managed => asked,
            Class::Host | Class::Imported => return Ok(None),
        };
        if cx.page.quota.reserve(gpu, bytes).is_ok() {
            return Ok(Some(Self { gpu, bytes, before }));
        }
        if class == Class::Device && pool.is_some_and(|p| p.slack() >= asked) {
            return Ok(Some(Self { gpu, bytes: 0, before }));
        }
        claim::reserve(cx, gpu, Kind::PoolUsed, asked, bytes)?;
        Ok(Some(Self { gpu, bytes, before }))
    }

    /// The call is over and what it took is charged. False: it took more than there was room for, and
    /// must be undone.
    pub(super) fn settle(self, cx: &Cx<'_>, pool: Option<&Pool>) -> bool {
        let grown = pool.map_or(0, Pool::reserved).saturating_sub(self.before);
        if grown > self.bytes && self.bytes != 0 {
            // A driver with larger steps: the next request reserves as much.
            STEP.fetch_max(grown.checked_next_power_of_two().unwrap_or(grown), Ordering::Relaxed);
        }
        cx.page.quota.release(self.gpu, self.bytes);
        grown <= self.bytes || !cx.page.quota.is_exceeded(self.gpu)
    }

    /// The GPU that was reserved on.
    pub(super) fn gpu(&self) -> GpuIndex {
        self.gpu
    }
}
