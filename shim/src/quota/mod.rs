//! Quotas: the ledgers that this process is a member of, and what it reserves in them.
//!
//! A request reserves before the driver is asked, in every ledger, all or nothing; what is given back goes
//! back after the driver has freed it. So the ledgers never show less than the process holds. A process of
//! a job with a quota that cannot become a member gets no memory at all ([`deny`]): a limit that is not
//! counted does not hold.

pub(crate) mod deny;
mod describe;

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::telemetry::layout::GPUS;
use crate::telemetry::ledger::SharedLedger;
use crate::telemetry::{GpuIndex, JoinFailure, Ledger, LedgerRow, QuotaRefusal, Scope};
use crate::{bytes, environ, mode};

/// Ledgers that a process can be a member of: its job's, its user's, those of groups.
pub(crate) const LEDGERS: usize = 6;
/// Largest age of a figure that a program gets, ns.
const FRESH_NS: u64 = 20_000_000;
/// Longest list of ledgers that is accepted.
const LIST_BYTES: usize = 4096;

/// The process's memberships. All zeros are none.
pub(crate) struct Quota {
    /// Ledgers in use, the job's among them; 0: the job has no quota.
    count: AtomicU8,
    job: UnsafeCell<MaybeUninit<Ledger>>,
    shared: [UnsafeCell<MaybeUninit<SharedLedger>>; LEDGERS - 1],
    /// Scope of each ledger. The job's comes first.
    scopes: [AtomicU8; LEDGERS],
    /// Row of each GPU of the job in each ledger, plus one; 0: not known.
    rows: [[AtomicU8; GPUS]; LEDGERS],
    /// Time of the last search for dead members on each GPU, ns of segment time.
    swept: [AtomicU64; GPUS],
}

/// A ledger that the process counts in.
#[derive(Clone, Copy)]
enum Member<'q> {
    Job(&'q Ledger),
    Shared(&'q SharedLedger),
}

impl Member<'_> {
    /// The ledger that the process's own word is in.
    fn own(&self) -> &Ledger {
        match self {
            Self::Job(ledger) => ledger,
            Self::Shared(ledger) => ledger.own(),
        }
    }

    fn limit(&self, row: LedgerRow) -> u64 {
        match self {
            Self::Job(ledger) => ledger.limit(row),
            Self::Shared(ledger) => ledger.limit(row),
        }
    }

    fn used(&self, row: LedgerRow) -> u64 {
        match self {
            Self::Job(ledger) => ledger.used(row),
            Self::Shared(ledger) => ledger.used(row),
        }
    }

    fn each_holder(&self, row: LedgerRow, visit: impl FnMut(u32, u64)) {
        match self {
            Self::Job(ledger) => ledger.each_holder(row, visit),
            Self::Shared(ledger) => ledger.each_holder(row, visit),
        }
    }
}

impl Quota {
    /// No quota.
    pub(crate) const fn new() -> Self {
        Self {
            count: AtomicU8::new(0),
            job: UnsafeCell::new(MaybeUninit::uninit()),
            shared: [const { UnsafeCell::new(MaybeUninit::uninit()) }; LEDGERS - 1],
            scopes: [const { AtomicU8::new(0) }; LEDGERS],
            rows: [const { [const { AtomicU8::new(0) }; GPUS] }; LEDGERS],
            swept: [const { AtomicU64::new(0) }; GPUS],
        }
    }

    /// Returns true if what this process reserves is counted.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        // Acquire pairs with the Release in `enter`.
        self.count.load(Ordering::Acquire) != 0
    }

    /// Joins the job's ledger, if it has one, and those that the environment names. Called by the one thread that joins
    /// the segment.
    ///
    /// # Errors
    ///
    /// The process must not get memory, for this reason.
    pub(crate) fn join(&self, segment: &core::ffi::CStr) -> Result<(), JoinFailure> {
        match Ledger::join_segment(segment) {
            Ok(Some(ledger)) => {
                // SAFETY: read by nothing while the count is 0, and one thread joins.
                unsafe { (*self.job.get()).write(ledger) };
                self.count_in(0, Scope::Job);
            }
            // No quota, unless the environment says that there is one.
            _ if !mode::has_quota() => return Ok(()),
            Ok(None) => return Err(JoinFailure::NoLedger),
            Err(error) => return Err(JoinFailure::of(error)),
        }
        let all = each_listed(|path| {
            let at = usize::from(self.count.load(Ordering::Relaxed));
            let Some(place) = at.checked_sub(1).and_then(|at| self.shared.get(at)) else { return false };
            let Ok(ledger) = SharedLedger::join(path) else { return false };
            // SAFETY: places from `count` on are read by nothing, and one thread joins.
            unsafe { (*place.get()).write(ledger) };
            self.count_in(at, scope_of(path.to_bytes()));
            true
        });
        all.then_some(()).ok_or(JoinFailure::SharedLedger)
    }

    fn count_in(&self, at: usize, scope: Scope) {
        if let Some(kind) = self.scopes.get(at) {
            kind.store(scope as u8, Ordering::Relaxed);
        }
        // Release: a thread that sees the count sees the ledger.
        self.count.store((at + 1) as u8, Ordering::Release);
    }

    /// Row of a GPU in a ledger.
    #[inline(always)]
    fn row(&self, at: usize, gpu: GpuIndex) -> Option<LedgerRow> {
        let row = self.rows.get(at)?.get(usize::from(gpu.number()))?.load(Ordering::Relaxed);
        LedgerRow::from_number(usize::from(row.checked_sub(1)?))
    }

    /// The job's ledger.
    #[inline(always)]
    fn job(&self, gpu: GpuIndex) -> Option<(&Ledger, LedgerRow)> {
        let row = self.row(0, gpu).filter(|_| self.is_on())?;
        // SAFETY: written before the count became more than 0, and never again.
        Some((unsafe { (*self.job.get()).assume_init_ref() }, row))
    }

    /// The ledgers of users and groups that a GPU is in, with its row there.
    #[inline(always)]
    fn shared(&self, gpu: GpuIndex) -> impl Iterator<Item = (&SharedLedger, LedgerRow, usize)> + Clone {
        let count = usize::from(self.count.load(Ordering::Acquire));
        self.shared.iter().zip(1..count).filter_map(move |(place, at)| {
            // SAFETY: places below `count` are written, and never again.
            let ledger = unsafe { (*place.get()).assume_init_ref() };
            Some((ledger, self.row(at, gpu)?, at))
        })
    }

    /// All of them.
    fn each(&self, gpu: GpuIndex) -> impl Iterator<Item = (Member<'_>, LedgerRow, usize)> + Clone {
        let job = self.job(gpu).map(|(ledger, row)| (Member::Job(ledger), row, 0));
        job.into_iter().chain(self.shared(gpu).map(|(ledger, row, at)| (Member::Shared(ledger), row, at)))
    }

    /// Enters a GPU into the ledgers, under its uuid. Before anything is reserved on it.
    pub(crate) fn gpu(&self, gpu: GpuIndex, uuid: &[u8; 16], total_bytes: u64) {
        let count = usize::from(self.count.load(Ordering::Acquire));
        for (at, rows) in self.rows.iter().enumerate().take(count) {
            let ledger = match at.checked_sub(1).map(|at| self.shared.get(at)) {
                // SAFETY: places below `count` are written, and never again.
                None => Some(unsafe { (*self.job.get()).assume_init_ref() }),
                // SAFETY: as above.
                Some(place) => place.map(|place| unsafe { (*place.get()).assume_init_ref() }.own()),
            };
            let row = ledger.and_then(|ledger| ledger.gpu(uuid, total_bytes));
            if let (Some(row), Some(place)) = (row, rows.get(usize::from(gpu.number()))) {
                place.store(row.number() + 1, Ordering::Relaxed);
            }
        }
    }

    /// Reserves in every ledger, or in none.
    #[inline]
    pub(crate) fn reserve(&self, gpu: GpuIndex, bytes: u64) -> Result<(), QuotaRefusal> {
        if let Some((job, row)) = self.job(gpu)
            && let Err(refused) = job.reserve(row, bytes)
        {
            return Err(QuotaRefusal { scope: Scope::Job, limit: refused.limit, used: refused.used });
        }
        if self.is_shared() { self.reserve_shared(gpu, bytes) } else { Ok(()) }
    }

    /// Returns true if other jobs count against limits of this one.
    #[inline(always)]
    fn is_shared(&self) -> bool {
        self.count.load(Ordering::Acquire) > 1
    }

    #[cold]
    #[inline(never)]
    fn reserve_shared(&self, gpu: GpuIndex, bytes: u64) -> Result<(), QuotaRefusal> {
        for (ledger, row, at) in self.shared(gpu) {
            if let Err(refused) = ledger.reserve(row, bytes) {
                self.each(gpu)
                    .take_while(|(_, _, other)| *other < at)
                    .for_each(|(member, row, _)| member.own().release(row, bytes));
                return Err(QuotaRefusal { scope: self.scope(at), limit: refused.limit, used: refused.used });
            }
        }
        Ok(())
    }

    /// Counts a request that was refused for good.
    pub(crate) fn count_refusal(&self, gpu: GpuIndex, scope: Scope) {
        for (member, row, at) in self.each(gpu) {
            if self.scope(at) == scope {
                member.own().count_refusal(row);
            }
        }
    }

    /// Counts what the process has got whatever the limits say.
    #[inline]
    pub(crate) fn add(&self, gpu: GpuIndex, bytes: u64) {
        if let Some((job, row)) = self.job(gpu) {
            job.add(row, bytes);
        }
        if self.is_shared() {
            self.shared(gpu).for_each(|(ledger, row, _)| ledger.own().add(row, bytes));
        }
    }

    /// Gives bytes back.
    #[inline]
    pub(crate) fn release(&self, gpu: GpuIndex, bytes: u64) {
        if let Some((job, row)) = self.job(gpu) {
            job.release(row, bytes);
        }
        if self.is_shared() {
            self.shared(gpu).for_each(|(ledger, row, _)| ledger.own().release(row, bytes));
        }
    }

    /// The process has made its first context on a GPU.
    pub(crate) fn context_came(&self, gpu: GpuIndex) {
        self.each(gpu).for_each(|(member, row, _)| member.own().context_came(row));
    }

    /// The tightest limit on a GPU and what is left of it: bytes in all, bytes free. `None`: there is
    /// no limit.
    ///
    /// Bytes of dead members count as free from [`FRESH_NS`] after their death on: finding them takes system calls for
    /// every member that holds something.
    pub(crate) fn view(&self, gpu: GpuIndex, now: u64) -> Option<View> {
        let swept = self.swept.get(usize::from(gpu.number()));
        let is_due = swept.is_none_or(|at| {
            let due = now.saturating_sub(at.load(Ordering::Relaxed)) >= FRESH_NS;
            if due {
                at.store(now, Ordering::Relaxed);
            }
            due
        });
        View::tightest(self.each(gpu).map(|(member, row, _)| {
            let limit = member.limit(row);
            if limit == u64::MAX {
                return (limit, 0);
            }
            if is_due {
                member.own().sweep(row);
            }
            (limit, member.used(row))
        }))
    }

    /// Returns true if more is reserved on a GPU than a limit allows.
    pub(crate) fn is_exceeded(&self, gpu: GpuIndex) -> bool {
        self.each(gpu).any(|(member, row, _)| {
            let limit = member.limit(row);
            limit != u64::MAX && member.used(row) > limit
        })
    }

    /// The limit with the least room on a GPU, as it refuses a request.
    pub(crate) fn refusal(&self, gpu: GpuIndex) -> QuotaRefusal {
        let each = self.each(gpu).map(|(member, row, at)| {
            let (limit, used) = (member.limit(row), member.used(row));
            QuotaRefusal { scope: self.scope(at), limit, used }
        });
        let tightest = each.min_by_key(|q| i128::from(q.limit) - i128::from(q.used));
        tightest.unwrap_or(QuotaRefusal { scope: Scope::Job, limit: 0, used: 0 })
    }

    fn scope(&self, at: usize) -> Scope {
        let raw = self.scopes.get(at).map_or(0, |scope| scope.load(Ordering::Relaxed));
        Scope::from_raw(raw).unwrap_or(Scope::Job)
    }
}

/// A GPU's memory as the quota leaves it, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct View {
    /// In all.
    pub(crate) total: u64,
    /// The part of it that is not reserved.
    pub(crate) free: u64,
}

impl View {
    /// The tightest of several limits, each with what is used of it; `None`: all are `u64::MAX`, no limit.
    pub(crate) fn tightest(limits: impl Iterator<Item = (u64, u64)>) -> Option<Self> {
        limits.filter(|(limit, _)| *limit != u64::MAX).fold(None, |tightest: Option<Self>, (limit, used)| {
            let free = limit.saturating_sub(used);
            let (total, free) = tightest.map_or((limit, free), |t| (t.total.min(limit), t.free.min(free)));
            Some(Self { total, free })
        })
    }

    /// Returns the driver's figures as seen through the quota.
    pub(crate) fn through(self, free: u64, total: u64) -> (u64, u64) {
        let total = self.total.min(total);
        (self.free.min(free).min(total), total)
    }
}

/// Visits every ledger that the environment names besides the job's, until `visit` says false. False: it
/// did, or the list cannot be read.
pub(crate) fn each_listed(mut visit: impl FnMut(&core::ffi::CStr) -> bool) -> bool {
    let mut room = [0u8; LIST_BYTES];
    let Some(list) = environ::value(b"RADRM_LEDGERS", &mut room) else {
        return !environ::is_set(b"RADRM_LEDGERS");
    };
    list.to_bytes().split(|byte| *byte == b':').filter(|path| !path.is_empty()).all(|path| {
        let mut room = [0u8; LIST_BYTES];
        let Some(place) = room.get_mut(..path.len()) else { return false };
        bytes::copy(place, path);
        core::ffi::CStr::from_bytes_until_nul(&room).is_ok_and(&mut visit)
    })
}

/// Whom a member's ledger is for: the name of its directory says, which is `group-GID` or `user-UID`, of an emulated
/// machine behind the name of its file.
fn scope_of(path: &[u8]) -> Scope {
    let mut parts = path.rsplit(|byte| *byte == b'/').skip(1);
    let mut directory = parts.next().unwrap_or_default().rsplit(|byte| *byte == b'.');
    let is_group = directory.next().is_some_and(|name| name.starts_with(b"group-"));
    if is_group { Scope::Group } else { Scope::User }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tighter_of_quota_and_device_is_shown() {
        let view = View { total: 100, free: 40 };
        assert_eq!(view.through(1000, 2000), (40, 100));
        assert_eq!(view.through(10, 2000), (10, 100));
        assert_eq!(view.through(30, 80), (30, 80));
    }

    #[test]
    fn the_tightest_limit_and_the_smallest_room_may_be_of_different_ledgers() {
        let of = |limits: &[(u64, u64)]| View::tightest(limits.iter().copied());
        assert_eq!(of(&[(u64::MAX, 5), (100, 10), (200, 180)]), Some(View { total: 100, free: 20 }));
        assert_eq!(of(&[(100, 130)]), Some(View { total: 100, free: 0 }));
        assert_eq!(of(&[(u64::MAX, 5)]), None);
    }

    #[test]
    fn a_ledgers_place_in_the_list_names_its_scope() {
        assert_eq!(scope_of(b"/run/radrm/limits/group-100/member-1000"), Scope::Group);
        assert_eq!(scope_of(b"/tmp/group-x/m.user-1000/member-1000"), Scope::User);
    }
}
