//! The ledgers that the process's job is counted in, read without becoming a member.

use core::sync::atomic::{AtomicPtr, Ordering};

use crate::quota::{self, LEDGERS, View};
use crate::telemetry::ledger::{LedgerPeek, SharedPeek};
use crate::{arena, environ, errno, mode};

/// Longest path of a segment that is accepted, with its terminating zero.
const PATH_BYTES: usize = 4096;

/// The ledgers of a job with a quota.
pub(super) struct Ledgers {
    job: LedgerPeek,
    /// Ledgers of users and groups.
    others: [Option<SharedPeek>; LEDGERS - 1],
}

/// The ledgers, once found; [`NO_QUOTA`] where the job has none. A forked child is of the same job, and the
/// mappings are good there too.
static FOUND: AtomicPtr<Ledgers> = AtomicPtr::new(core::ptr::null_mut());
const NO_QUOTA: *mut Ledgers = core::ptr::without_provenance_mut(1);

/// The ledgers of the process's job; `None` where it has no quota, or where one of them cannot be read: a
/// process that needs memory is refused it then.
#[inline]
pub(super) fn get() -> Option<&'static Ledgers> {
    // Acquire pairs with the release in `find`: the ledgers are written.
    let mut found = FOUND.load(Ordering::Acquire);
    if found.is_null() {
        found = errno::keep(find)?;
    }
    // SAFETY: not null, and then a page that is never unmapped, or the mark.
    if found == NO_QUOTA { None } else { Some(unsafe { &*found }) }
}

/// Finds the ledgers. Of threads that do so at once one wins; the others leave mappings behind, as many as
/// there are ledgers. `None`: unknown now.
#[cold]
#[inline(never)]
fn find() -> Option<*mut Ledgers> {
    if mode::is_to_be_bypassed() {
        return None;
    }
    let fresh = match open()? {
        None => NO_QUOTA,
        Some(ledgers) => {
            let page = arena::map_private(size_of::<Ledgers>())?.cast::<Ledgers>();
            // SAFETY: fresh memory of the kernel, page-aligned and large enough.
            unsafe { page.write(ledgers) };
            page
        }
    };
    // Release: a thread that sees the address sees the ledgers.
    match FOUND.compare_exchange(core::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(fresh),
        Err(first) => Some(first),
    }
}

/// `None`: a ledger cannot be opened. `Some(None)`: the job has no quota.
fn open() -> Option<Option<Ledgers>> {
    let mut path = [0u8; PATH_BYTES];
    let Some(job) = LedgerPeek::segment(environ::value(b"RADRM_SEGMENT", &mut path)?).ok()? else {
        return Some(None);
    };
    let mut others = [const { None }; LEDGERS - 1];
    let mut places = others.iter_mut();
    let all = quota::each_listed(|path| match (places.next(), SharedPeek::open(path)) {
        (Some(place), Ok(ledger)) => {
            *place = Some(ledger);
            true
        }
        _ => false,
    });
    all.then_some(Some(Ledgers { job, others }))
}

impl Ledgers {
    /// The tightest limit on a GPU and what is left of it; `None`: there is no limit.
    pub(super) fn view(&self, uuid: &[u8; 16], total_bytes: u64) -> Option<View> {
        let job = core::iter::once(self.job.gpu(uuid, total_bytes));
        let others = self.others.iter().flatten().map(|ledger| ledger.gpu(uuid, total_bytes));
        View::tightest(job.chain(others).map(|share| (share.limit, share.used)))
    }

    /// Returns true if a process belongs to the job.
    pub(super) fn is_member(&self, pid: u32) -> bool {
        self.job.is_member(pid)
    }
}
