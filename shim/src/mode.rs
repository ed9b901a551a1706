//! Mode of this process: observes the driver's calls, lets them pass, or refuses device memory.
//!
//! Decided when a look-up or a hooked call first needs to know, by the environment with which the process was started
//! ([`environ`]): what the program does to its environment before does not lift a limit. The decision is valid
//! to the end of the process: a forked child inherits it.

use core::sync::atomic::{AtomicU8, Ordering};

use crate::environ;

/// Longest path of a segment file that is accepted, with its terminating zero.
pub(crate) const PATH_BYTES: usize = 4096;

const UNKNOWN: u8 = 0;
/// Calls are observed, once the process has joined its segment.
const OBSERVE: u8 = 1;
/// Everything passes through.
const BYPASSED: u8 = 2;
/// Requests for device memory are refused, everything else passes through.
const DENIED: u8 = 3;

static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Returns true if it is known that everything passes through in this process.
#[inline(always)]
pub(crate) fn is_bypassed() -> bool {
    MODE.load(Ordering::Relaxed) == BYPASSED
}

/// Returns true if this process belongs to a job with a quota and cannot count what it takes.
#[inline(always)]
pub(crate) fn is_denied() -> bool {
    MODE.load(Ordering::Relaxed) == DENIED
}

/// Returns true if everything passes through in this process; decides it now if it was not decided before.
pub(crate) fn is_to_be_bypassed() -> bool {
    match MODE.load(Ordering::Relaxed) {
        OBSERVE | DENIED => false,
        BYPASSED => true,
        _ => {
            let mut path = [0u8; PATH_BYTES];
            let has_segment = environ::value(b"RADRM_SEGMENT", &mut path).is_some_and(|p| !p.is_empty());
            let mode = match (is_switched_off(), has_segment) {
                (true, _) => BYPASSED,
                (false, true) => OBSERVE,
                (false, false) => without_segment(),
            };
            // Two threads that get here at once find the same.
            MODE.store(mode, Ordering::Relaxed);
            mode == BYPASSED
        }
    }
}

/// Returns true if `RADRM_DISABLE` switches this library off. A process of a job with a quota cannot do so by itself:
/// there the switch counts only if the process was started with it.
fn is_switched_off() -> bool {
    const SWITCH: &[u8] = b"RADRM_DISABLE";
    environ::is_set_initially(SWITCH) || (environ::is_set(SWITCH) && !has_quota())
}

/// The process cannot join its segment: nothing will be counted. Under a quota it gets no memory then.
pub(crate) fn give_up() {
    // A quota that could not be joined has set its mode already.
    let _ = MODE.compare_exchange(OBSERVE, without_segment(), Ordering::Relaxed, Ordering::Relaxed);
}

/// The process cannot join a quota, whatever the environment says of it.
pub(crate) fn deny() {
    MODE.store(DENIED, Ordering::Relaxed);
}

/// The mode of a process that counts in no segment.
fn without_segment() -> u8 {
    if has_quota() { DENIED } else { BYPASSED }
}

/// Returns true if the environment states that the job has a quota.
pub(crate) fn has_quota() -> bool {
    environ::is_set(b"RADRM_QUOTA")
}
