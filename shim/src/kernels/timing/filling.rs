//! Share of the GPU that a launch fills, by its geometry and the occupancy that the driver reports.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use radrm_cuda_abi::*;

use super::Timing;
use super::occupancy::Held;
use super::strata::Shape;
use crate::cx::Cx;
use crate::errno;
use crate::memory::place;
use crate::telemetry::Filling;

const MULTIPROCESSOR_COUNT: c_int = 16;
const MAX_THREADS_PER_MULTIPROCESSOR: c_int = 39;

impl Timing {
    /// Share of the current GPU that a launch fills; `None` where the driver does not report it.
    pub(super) fn filling(&self, cx: &Cx<'_>, function: CUfunction, shape: Shape) -> Option<Filling> {
        let threads = shape.threads.checked_div(shape.blocks)?;
        let (sms, most) = self.size(cx)?;
        let held = self.held(cx, function, threads, shape.shared)?;
        Filling::of(shape.blocks, threads, held, sms, most)
    }

    /// Multiprocessors of the current GPU, and most threads of each.
    fn size(&self, cx: &Cx<'_>) -> Option<(u64, u64)> {
        let place = place::current(cx)?;
        let known = self.sizes.0.get(usize::from(place.gpu.number()))?;
        let word = match known.load(Ordering::Relaxed) {
            0 => {
                let ask = cx.driver().device_get_attribute()?;
                let attribute = |number| {
                    let mut value = 0;
                    // SAFETY: the out-parameter lives over the call.
                    let answer = errno::keep(|| unsafe { ask(&raw mut value, number, place.device) });
                    u64::try_from(value).ok().filter(|_| answer.is_ok())
                };
                let (sms, threads) =
                    (attribute(MULTIPROCESSOR_COUNT)?, attribute(MAX_THREADS_PER_MULTIPROCESSOR)?);
                let word = sms << 32 | threads & 0xffff_ffff;
                known.store(word, Ordering::Relaxed);
                word
            }
            word => word,
        };
        Some((word >> 32, word & 0xffff_ffff))
    }

    /// Blocks of a function that a multiprocessor holds at a time. Asked seldom more than once for each block
    /// size.
    fn held(&self, cx: &Cx<'_>, function: CUfunction, threads: u64, shared: u64) -> Option<u64> {
        // An epoch makes a handle that came back another one.
        let words = [function.addr(), threads, shared, cx.tls().epoch.get()];
        let hash = words
            .into_iter()
            .fold(0u64, |hash, word| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        let tag = hash & !Held::MASK;
        let known = self.held.0.get(hash as usize % Held::ENTRIES)?;
        let word = known.load(Ordering::Relaxed);
        if word & !Held::MASK == tag && word & Held::MASK != 0 {
            return Some((word & Held::MASK) - 1).filter(|held| *held > 0);
        }
        let ask = cx.driver().occupancy_blocks()?;
        let (mut blocks, threads) = (0, c_int::try_from(threads).ok()?);
        let shared = usize::try_from(shared).ok()?;
        let mut ask = || {
            // SAFETY: a function that has just been launched; the out-parameter lives over the call.
            unsafe { ask(&raw mut blocks, function, threads, shared) }
        };
        let answer = errno::keep(|| cx.relaxed_capture(&mut ask));
        let held = u64::try_from(blocks).ok().filter(|_| answer.is_ok()).unwrap_or(0).min(Held::MASK - 1);
        known.store(tag | (held + 1), Ordering::Relaxed);
        (held > 0).then_some(held)
    }
}
