//! One request for memory, from before the real call to its outcome.

use radrm_cuda_abi::*;

use super::ledger::{self, Block};
use super::place::{self, Place};
use super::{failure, pool};
use crate::cx::Cx;
use crate::telemetry::{BlockKey, GpuIndex, Kind, Namespace, QuotaRefusal};

/// A request that is about to go to the driver.
///
/// Made before the real call, and ended by [`Claim::keep`] or [`Claim::refused`] after it. This is the
/// one gate that every request passes: where there is a quota it reserves here, or the request ends here.
#[must_use]
pub(crate) struct Claim {
    /// Place of the memory; `None` where the thread has no context.
    pub(crate) place: Option<Place>,
    kind: Kind,
    bytes: u64,
    /// Bytes reserved under a quota; `None` where nothing is counted.
    reserved: Option<u64>,
}

impl Claim {
    /// A request for memory of the current context's device.
    ///
    /// # Errors
    ///
    /// Result code that the program gets: a quota refuses the request.
    #[inline(always)]
    pub(crate) fn here(cx: &Cx<'_>, kind: Kind, bytes: u64) -> Result<Self, CUresult> {
        Self::at(cx, place::current(cx), kind, bytes)
    }

    /// A request for memory of a known place.
    ///
    /// # Errors
    ///
    /// As for [`Claim::here`].
    #[inline(always)]
    pub(crate) fn at(cx: &Cx<'_>, place: Option<Place>, kind: Kind, bytes: u64) -> Result<Self, CUresult> {
        // Without a place the driver refuses the request, or reports the place afterwards.
        let reserved = match place {
            Some(place) if kind.in_quota() && cx.page.quota.is_on() => {
                reserve_asked(cx, place.gpu, kind, bytes)?;
                Some(bytes)
            }
            _ => None,
        };
        Ok(Self { place, kind, bytes, reserved })
    }

    /// Memory that is here already and that another process is charged for.
    pub(crate) fn imported(place: Option<Place>, bytes: u64) -> Self {
        Self { place, kind: Kind::Imported, bytes, reserved: None }
    }

    /// The driver granted the request and took `bytes` for it, which may be more than was asked for.
    /// False: the quota has no room for the rest; the caller gives the memory back, and nothing is reserved.
    #[inline(always)]
    pub(crate) fn grew(&mut self, cx: &Cx<'_>, bytes: u64) -> bool {
        match (self.place, self.reserved) {
            (Some(place), Some(reserved)) if bytes > reserved => {
                self.reserve_rest(cx, place.gpu, reserved, bytes)
            }
            _ => true,
        }
    }

    #[cold]
    #[inline(never)]
    fn reserve_rest(&mut self, cx: &Cx<'_>, gpu: GpuIndex, reserved: u64, bytes: u64) -> bool {
        let granted = reserve(cx, gpu, self.kind, self.bytes, bytes - reserved).is_ok();
        if granted {
            self.reserved = Some(bytes);
        } else {
            cx.page.quota.release(gpu, reserved);
            self.reserved = Some(0);
        }
        granted
    }

    /// The driver granted the request: `handle` stands for `bytes` from here on.
    #[inline(always)]
    pub(crate) fn keep(self, cx: &Cx<'_>, namespace: Namespace, handle: u64, bytes: u64) {
        let place = match self.place {
            Some(place) => place,
            None => match place::of_pointer(cx, handle) {
                Some(place) => place,
                None => return ledger::unplaced(cx),
            },
        };
        if cx.page.quota.is_on() && self.kind.in_quota() {
            let reserved = self.reserved.unwrap_or(0);
            if reserved != bytes {
                settle(cx, place.gpu, reserved, bytes);
            }
        }
        ledger::add(
            cx,
            BlockKey::new(namespace, handle),
            Block::new(place.gpu, self.kind, bytes, place.context),
        );
    }

    /// The driver refused the request.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(self, cx: &Cx<'_>, code: CUresult) {
        if let (Some(place), Some(reserved)) = (self.place, self.reserved) {
            cx.page.quota.release(place.gpu, reserved);
        }
        failure::record(cx, self.place.map(|p| p.gpu), self.kind, self.bytes, code, None);
        // The driver took back what pools did not use before it gave up.
        pool::pressed(cx);
    }
}

/// Adjusts a reservation to the size in the table: a block is given back by that size.
#[inline(never)]
fn settle(cx: &Cx<'_>, gpu: GpuIndex, reserved: u64, bytes: u64) {
    if reserved < bytes {
        cx.page.quota.add(gpu, bytes - reserved);
    } else if reserved > bytes {
        cx.page.quota.release(gpu, reserved - bytes);
    }
}

/// Reserves what a request asks for. Apart, so that requests without a quota pay nothing for it.
///
/// # Errors
///
/// As for [`reserve`].
#[inline(never)]
fn reserve_asked(cx: &Cx<'_>, gpu: GpuIndex, kind: Kind, bytes: u64) -> Result<(), CUresult> {
    reserve(cx, gpu, kind, bytes, bytes)
}

/// Reserves bytes of a GPU under the quota for a request of `asked` bytes. Before it refuses, what the process's own pools hold and do
/// not use is given back, as the driver does on a full device.
///
/// # Errors
///
/// `CUDA_ERROR_OUT_OF_MEMORY`, and the refusal is on record.
#[inline(always)]
pub(super) fn reserve(
    cx: &Cx<'_>,
    gpu: GpuIndex,
    kind: Kind,
    asked: u64,
    bytes: u64,
) -> Result<(), CUresult> {
    if cx.page.quota.reserve(gpu, bytes).is_ok() {
        Ok(())
    } else {
        reserve_after_trim(cx, gpu, kind, asked, bytes)
    }
}

#[cold]
#[inline(never)]
fn reserve_after_trim(
    cx: &Cx<'_>,
    gpu: GpuIndex,
    kind: Kind,
    asked: u64,
    bytes: u64,
) -> Result<(), CUresult> {
    pool::trim(cx, gpu);
    match cx.page.quota.reserve(gpu, bytes) {
        Ok(()) => Ok(()),
        Err(refusal) => Err(refuse(cx, gpu, kind, asked, refusal)),
    }
}

/// Puts a refusal on record; returns what the program is to be answered.
pub(super) fn refuse(cx: &Cx<'_>, gpu: GpuIndex, kind: Kind, asked: u64, refusal: QuotaRefusal) -> CUresult {
    cx.page.quota.count_refusal(gpu, refusal.scope);
    let code = CUDA_ERROR_OUT_OF_MEMORY;
    failure::record(cx, Some(gpu), kind, asked, code, Some(refusal));
    code
}
