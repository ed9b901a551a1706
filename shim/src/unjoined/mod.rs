//! A process without a slot in its job's segment: why it has none, and where its user reads that.
//!
//! It enters a notice where the job's recorder reads it. Only where none can be entered, and the process is refused memory,
//! does it print one sentence, once. All of this is cold.

mod stderr;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use radrm_cuda_abi::CUresult;

use crate::telemetry::{JoinFailure, Notice, post};
use crate::{environ, errno, mode};

/// Number of the [`JoinFailure`] of this process; 0: none. `radrm audit` reads it in the process's memory by this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, allow(non_upper_case_globals, reason = "a test exports nothing"))]
static radrm_join_failure: AtomicU32 = AtomicU32::new(0);

/// Process id of the process that has entered its notice: a forked child enters its own.
static REPORTED: AtomicU32 = AtomicU32::new(0);
/// True if the notice was taken.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// Process id of the process that has printed its sentence.
static PRINTED: AtomicU32 = AtomicU32::new(0);
/// Process id and code of the last failed `cuInit`.
static FAILED: AtomicU64 = AtomicU64::new(0);

fn own_pid() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
}

/// Notes why the process cannot join.
pub(crate) fn because(failure: JoinFailure) {
    // Relaxed: the number is all there is to see.
    radrm_join_failure.store(failure as u32, Ordering::Relaxed);
}

/// Reason that the process cannot join; `None`: it has joined, or nothing asks it to.
fn failure() -> Option<JoinFailure> {
    let noted = u8::try_from(radrm_join_failure.load(Ordering::Relaxed)).ok().and_then(JoinFailure::from_raw);
    if noted.is_some() || !mode::is_denied() {
        return noted;
    }
    // Decided by the environment, before anything was to be joined.
    let mut room = [0u8; 1];
    let failure = match environ::value(b"RADRM_SEGMENT", &mut room) {
        Some(_) => JoinFailure::EmptySegment,
        None => JoinFailure::NoSegment,
    };
    because(failure);
    Some(failure)
}

/// Enters a notice of the process, if it cannot join. Once in each process.
pub(crate) fn report() {
    errno::keep(|| {
        let Some(failure) = failure() else { return };
        let pid = own_pid();
        if REPORTED.swap(pid, Ordering::Relaxed) != pid {
            IS_TAKEN.store(enter(Notice::Unjoined(failure)), Ordering::Relaxed);
        }
    });
}

/// Enters a notice of a failed `cuInit`.
pub(crate) fn init_failed(code: CUresult) {
    errno::keep(|| {
        let failed = u64::from(own_pid()) << 32 | u64::from(code.0);
        // A monitor may try again and again.
        if FAILED.swap(failed, Ordering::Relaxed) != failed && !mode::is_to_be_bypassed() {
            enter(Notice::InitFailed(code.0));
        }
    });
}

/// A request for memory is refused: where no recorder knows why, the user of the process learns it here.
#[cold]
pub(crate) fn refused() {
    report();
    errno::keep(|| {
        let Some(failure) = failure() else { return };
        let pid = own_pid();
        if !IS_TAKEN.load(Ordering::Relaxed)
            && PRINTED.swap(pid, Ordering::Relaxed) != pid
            && !environ::is_set(b"RADRM_QUIET")
        {
            stderr::refused(pid, failure);
        }
    });
}

fn enter(notice: Notice) -> bool {
    let (mut path, mut number) = ([0u8; mode::PATH_BYTES], [0u8; 16]);
    let path = environ::value(b"RADRM_SEGMENT", &mut path);
    let board = environ::value(b"RADRM_NOTICES", &mut number);
    post(path, board.and_then(|text| text.to_str().ok()?.parse().ok()), notice)
}
