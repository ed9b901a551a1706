//! One request for memory, from before the real call to its outcome.

use radrm_cuda_abi::*;

use super::ledger::{self, Block};
use super::place::{self, Place};
use super::{failure, pool};
use crate::cx::Cx;
use crate::telemetry::{BlockKey, Kind, Namespace};

/// A request that is about to go to the driver.
///
/// Made before the real call, and ended by [`Claim::keep`] or [`Claim::refused`] after it. This is the
/// one gate that every request passes: what limits memory reserves in [`Claim::at`] and gives back in
/// [`Claim::refused`].
#[must_use]
pub(crate) struct Claim {
    /// Where the memory will lie; `None` where the thread has no context.
    pub(crate) place: Option<Place>,
    kind: Kind,
    bytes: u64,
}

impl Claim {
    /// A request for memory of the current context's device.
    #[inline(always)]
    pub(crate) fn here(cx: &Cx<'_>, kind: Kind, bytes: u64) -> Self {
        Self::at(place::current(cx), kind, bytes)
    }

    /// A request for memory of a known place.
    #[inline(always)]
    pub(crate) fn at(place: Option<Place>, kind: Kind, bytes: u64) -> Self {
        Self { place, kind, bytes }
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
        ledger::add(
            cx,
            BlockKey::new(namespace, handle),
            Block { gpu: place.gpu, kind: self.kind, bytes, owner: place.context },
        );
    }

    /// The driver refused the request.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(self, cx: &Cx<'_>, code: CUresult) {
        failure::record(cx, self.place.map(|p| p.gpu), self.kind, self.bytes, code);
        // The driver took back what pools did not use before it gave up.
        pool::pressed(cx);
    }
}
