//! The pools of a process and what each holds.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::memory::level::{Caller, Level};
use crate::memory::{ledger, place};
use crate::telemetry::{Bypass, GpuIndex, Kind};
use crate::wiped::{Wiped, Zeroable};

/// Pools that are followed at a time.
const ROOM: usize = 256;
/// Handle of a place whose pool was destroyed while blocks of it were in use.
const ORPHAN: u64 = 1;
/// Handle of a place that is being given up.
const CLOSING: u64 = 2;

/// Class of a pool, by which its blocks are charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// Device memory: reserved and used are counted apart.
    Device,
    /// Host memory: each block is charged by itself.
    Host,
    /// Managed memory: each block is charged by itself.
    Managed,
    /// Another process's pool: its owner is charged.
    Imported,
}

impl Class {
    fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Host,
            2 => Self::Managed,
            3 => Self::Imported,
            _ => Self::Device,
        }
    }

    /// Kind that one block of the pool is charged as.
    pub(super) fn block_kind(self) -> Kind {
        match self {
            Self::Device => Kind::PoolUsed,
            Self::Host => Kind::PinnedHost,
            Self::Managed => Kind::Managed,
            Self::Imported => Kind::Imported,
        }
    }

    /// Class of pools with these properties.
    pub(super) fn of(kind: CUmemAllocationType, location: CUmemLocation) -> Self {
        if kind == CU_MEM_ALLOCATION_TYPE_MANAGED {
            Self::Managed
        } else if location.kind == CU_MEM_LOCATION_TYPE_DEVICE {
            Self::Device
        } else {
            Self::Host
        }
    }
}

/// One pool. Free where `handle` is 0.
pub(super) struct Pool {
    handle: AtomicU64,
    /// GPU index plus one; 0 until it is known.
    gpu: AtomicU8,
    class: AtomicU8,
    /// Distinguishes the pools that have had this place, one after the other.
    generation: AtomicU32,
    /// Bytes handed out.
    used: AtomicU64,
    /// Bytes the pool holds of the device.
    reserved: Level,
}

/// A pool's place and generation in one word, as blocks remember it. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token(pub(super) u64);

/// The pools of the process. All zeros is none.
pub(super) struct Pools {
    /// Places from here on were never used.
    high: AtomicU32,
    places: [Pool; ROOM],
}

// SAFETY: zero is "no pool"; atomics have no destructor.
unsafe impl Zeroable for Pools {}

static POOLS: Wiped<Pools> = Wiped::new();

/// The pools of the process.
pub(super) fn pools() -> Option<&'static Pools> {
    POOLS.get()
}

impl Pools {
    /// The pools in use or given up with blocks out.
    pub(super) fn each(&self) -> impl Iterator<Item = &Pool> {
        // Acquire pairs with the release half of `fetch_max` in `obtain`.
        let high = self.high.load(Ordering::Acquire) as usize;
        self.places.iter().take(high)
    }

    /// The pool of a handle.
    pub(super) fn find(&self, handle: u64) -> Option<&Pool> {
        if handle <= CLOSING {
            return None;
        }
        // Acquire pairs with the exchange in `obtain`.
        self.each().find(|p| p.handle.load(Ordering::Acquire) == handle)
    }

    /// The pool of a handle, entered with `about` where it was not known.
    pub(super) fn obtain(
        &self,
        handle: u64,
        about: impl FnOnce() -> Option<(GpuIndex, Class)>,
    ) -> Option<&Pool> {
        if let Some(pool) = self.find(handle) {
            return Some(pool);
        }
        if handle <= CLOSING {
            return None;
        }
        let (gpu, class) = about()?;
        let (at, pool) = self
            .places
            .iter()
            .enumerate()
            // A place that another thread has just given the same handle serves as well.
            .find(|(_, p)| {
                match p.handle.compare_exchange(0, handle, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => true,
                    Err(taken) => taken == handle,
                }
            })?;
        // Two threads that meet here store the same.
        pool.class.store(class as u8, Ordering::Relaxed);
        pool.gpu.store(gpu.number().saturating_add(1), Ordering::Release);
        self.high.fetch_max(u32::try_from(at + 1).unwrap_or(u32::MAX), Ordering::AcqRel);
        Some(pool)
    }

    /// The pool that a block remembers, unless its place has another by now.
    pub(super) fn of(&self, token: Token) -> Option<&Pool> {
        let pool = self.places.get((token.0 & 0xffff).checked_sub(1)? as usize)?;
        (u64::from(pool.generation.load(Ordering::Acquire)) == token.0 >> 16).then_some(pool)
    }

    /// Token by which blocks of a pool remember it.
    pub(super) fn token(&self, pool: &Pool) -> Token {
        let start = self.places.as_ptr().addr();
        let at = (core::ptr::from_ref(pool).addr().wrapping_sub(start)) / size_of::<Pool>();
        Token((u64::from(pool.generation.load(Ordering::Acquire)) << 16) | (at as u64 + 1))
    }
}

impl Pool {
    /// The pool's handle; `None` where it was destroyed.
    pub(super) fn handle(&self) -> Option<CUmemoryPool> {
        let handle = self.handle.load(Ordering::Acquire);
        (handle > CLOSING).then_some(CUmemoryPool(handle as *mut core::ffi::c_void))
    }

    /// The GPU that the pool's memory lies on.
    pub(super) fn gpu(&self) -> Option<GpuIndex> {
        // Acquire pairs with the Release in `obtain`.
        self.gpu.load(Ordering::Acquire).checked_sub(1).and_then(|n| GpuIndex::from_number(usize::from(n)))
    }

    /// Class of the pool.
    pub(super) fn class(&self) -> Class {
        Class::from_raw(self.class.load(Ordering::Relaxed))
    }

    /// Returns true if the driver may give something back: more is reserved than is in use.
    pub(super) fn has_slack(&self) -> bool {
        self.reserved.charged() > self.used.load(Ordering::Relaxed)
    }

    /// Bytes that the pool holds of the device.
    pub(super) fn reserved(&self) -> u64 {
        self.reserved.charged()
    }

    /// Bytes of these that are not handed out.
    pub(super) fn slack(&self) -> u64 {
        self.reserved().saturating_sub(self.used())
    }

    /// Bytes handed out of the pool.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// A block was handed out. One of 0 bytes counts as one byte: it too keeps a destroyed pool.
    pub(super) fn lend(&self, bytes: u64) {
        self.used.fetch_add(bytes.max(1), Ordering::AcqRel);
    }

    /// A block came back. The last one of a destroyed pool takes the pool with it.
    pub(super) fn give_back(&self, cx: &Cx<'_>, bytes: u64) {
        self.take_off(bytes);
        self.close_if_empty(cx);
    }

    fn take_off(&self, bytes: u64) {
        let take = |used: u64| Some(used.saturating_sub(bytes.max(1)));
        // SeqCst pairs with `close_if_empty`; the thread that sees 0 comes after all others.
        let _ = self.used.fetch_update(Ordering::SeqCst, Ordering::Relaxed, take);
    }

    /// Reads what the pool holds now.
    pub(super) fn refresh(&self, cx: &Cx<'_>) {
        if self.class() != Class::Device {
            return;
        }
        let (Some(handle), Some(gpu)) = (self.handle(), self.gpu()) else { return };
        let read = || {
            cx.relaxed_capture(|| cx.driver().pool_attribute(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT))
        };
        if !self.reserved.follow(cx, gpu, Kind::PoolReserved, Caller::Found, read) {
            // A driver without the attribute: the pool holds what it has handed out, at least.
            cx.bypass(Bypass::PoolUnknown);
            self.reserved.charge(cx, gpu, Kind::PoolReserved, Caller::Found, self.used());
        }
    }

    /// The pool is about to be destroyed: its handle means nothing from here on.
    pub(super) fn orphan(&self, handle: u64) -> bool {
        self.handle.compare_exchange(handle, ORPHAN, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// It was not destroyed after all.
    pub(super) fn adopt(&self, handle: u64) {
        let _ = self.handle.compare_exchange(ORPHAN, handle, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Gives the place up once the pool is destroyed and no block of it is in use. Until then a
    /// destroyed pool is taken to hold what it held.
    pub(super) fn close_if_empty(&self, cx: &Cx<'_>) {
        // SeqCst, with `orphan` and `give_back`: of the thread that gives the last block back and the one that destroys
        // the pool at least one sees what the other did. Looked at first: pools are mostly not destroyed.
        if self.handle.load(Ordering::SeqCst) != ORPHAN
            || self.used.load(Ordering::SeqCst) != 0
            || self.handle.compare_exchange(ORPHAN, CLOSING, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return;
        }
        if let Some(gpu) = self.gpu() {
            self.reserved.charge(cx, gpu, Kind::PoolReserved, Caller::Found, 0);
        }
        self.generation.fetch_add(1, Ordering::Release);
        self.gpu.store(0, Ordering::Relaxed);
        // Release pairs with the exchange in `obtain`: the place is clean.
        self.handle.store(0, Ordering::Release);
    }

    /// After contexts were destroyed: what the driver no longer knows as in use is gone.
    pub(super) fn forget_the_dead(&self, cx: &Cx<'_>, token: Token) {
        if self.used() == 0 {
            return self.refresh(cx);
        }
        let all_gone = self.class() == Class::Device
            && self.handle().is_some_and(|handle| {
                cx.driver().pool_attribute(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == Some(0)
            });
        let gone = |address| all_gone || cx.driver().is_nothing_at(address);
        ledger::drop_pooled(cx, token.0, self.class().block_kind(), gone, |bytes| self.take_off(bytes));
        self.close_if_empty(cx);
        self.refresh(cx);
    }
}

/// Device and class of a pool that was first seen by a block of it.
pub(super) fn about_pointer(cx: &Cx<'_>, address: u64) -> Option<(GpuIndex, Class)> {
    place::of_pointer(cx, address).map(|p| (p.gpu, Class::Device))
}
