//! Smallest size of blocks whose stacks are recorded.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::guard;
use crate::environ;
use crate::telemetry::Writer;

/// Blocks below this size count at "other stacks", so that their sum is still known.
static SMALLEST: AtomicU64 = AtomicU64::new(0);

/// Records call stacks from now on if `RADRM_STACKS` asks for it; its value is the size of the smallest block whose stack
/// is recorded. False: there is no memory for it.
pub(crate) fn begin(writer: &mut Writer) -> bool {
    if !environ::is_set(b"RADRM_STACKS") {
        return true;
    }
    let mut buffer = [0u8; 32];
    let text = environ::value(b"RADRM_STACKS", &mut buffer).and_then(|text| text.to_str().ok());
    guard::begin();
    SMALLEST.store(text.and_then(|text| text.parse().ok()).unwrap_or(0), Relaxed);
    writer.record_stacks()
}

/// The size of the smallest block whose stack is recorded.
#[inline]
pub(super) fn smallest() -> u64 {
    SMALLEST.load(Relaxed)
}
