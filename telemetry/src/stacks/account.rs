//! Bytes that are held from each site; see the module above for the algorithm.

use super::Word;
use crate::gpu_index::GpuIndex;
use crate::layout::{AccountCell, SiteCell};
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sys;
use crate::writer::{Change, Writer};
use radrm_base::Kind;

/// Looks at a turn that another thread has before its owner is doubted.
const MAX_LOOKS: u32 = 20_000;
/// Looks between two yields.
const YIELD_EVERY: u32 = 64;

impl SiteCell {
    /// Keeps the bytes at the last peak if nothing has changed since.
    pub(super) fn settle(&self, account: &AccountCell) {
        let epoch = account.peak_epoch.load(Relaxed);
        if self.epoch.load(Relaxed) != epoch {
            self.at_peak.store(self.live.load(Relaxed), Relaxed);
            self.epoch.store(epoch, Relaxed);
        }
    }
}

impl Writer {
    /// Charges an account together with a site.
    #[inline(never)]
    pub(crate) fn charge_in_turn(&self, account: &AccountCell, change: Change) -> Option<u64> {
        let Change { kind, bytes, ns, is_counted, site, thread } = change;
        self.in_turn(thread, || {
            if let Some(cell) = self.site_cell(site) {
                cell.settle(account);
                cell.live.fetch_add(bytes, Relaxed);
                cell.allocs.fetch_add(1, Relaxed);
            }
            let before = account.total_peak.load(Relaxed);
            let total = account.charge(kind, bytes, is_counted, ns);
            if account.total_peak.load(Relaxed) != before {
                account.peak_epoch.fetch_add(1, Relaxed);
            }
            total
        })
    }

    /// Discharges an account together with a site.
    #[inline(never)]
    pub(crate) fn discharge_in_turn(&self, account: &AccountCell, gpu: GpuIndex, change: Change) -> u64 {
        let Change { kind, bytes, is_counted, site, thread, .. } = change;
        self.in_turn(thread, || {
            if kind == Kind::Graph {
                self.forget_graphs(account, gpu);
            }
            if let Some(cell) = self.site_cell(site) {
                cell.settle(account);
                let _ = cell.live.fetch_update(Relaxed, Relaxed, |live| Some(live.saturating_sub(bytes)));
            }
            account.discharge(kind, bytes, is_counted)
        })
    }

    /// After a trim the driver does not report whose memory is left: what graphs hold then is at no site.
    fn forget_graphs(&self, account: &AccountCell, gpu: GpuIndex) {
        self.each_site(gpu, |_, kind, cell| {
            if kind == Kind::Graph {
                cell.settle(account);
                cell.live.store(0, Relaxed);
            }
        });
    }

    /// Runs `work` while no other thread of the process is in here; see the module above for what breaks a turn. `thread`: the
    /// calling one; 0: the kernel is asked.
    pub(crate) fn in_turn<R>(&self, thread: u32, work: impl FnOnce() -> R) -> R {
        let own = if thread == 0 { sys::thread_id() } else { thread.into() };
        let turn = self.stack_word(Word::Turn);
        let mut looks = 0u32;
        let is_ours = loop {
            // Acquire: pairs with the Release below, so that turns see each other's stores in order.
            let owner = match turn.compare_exchange(0, own, Acquire, Relaxed) {
                Ok(_) => break true,
                Err(owner) => owner,
            };
            // Left by a jump out of it.
            if owner == own {
                break true;
            }
            looks += 1;
            if looks < MAX_LOOKS {
                if looks.is_multiple_of(YIELD_EVERY) {
                    sys::yield_now()
                } else {
                    std::hint::spin_loop()
                }
                continue;
            }
            if sys::thread_exists(owner as u32) {
                break false;
            }
            if turn.compare_exchange(owner, own, Acquire, Relaxed).is_ok() {
                break true;
            }
            looks = 0;
        };
        if !is_ours {
            self.stack_word(Word::Unordered).fetch_add(1, Relaxed);
        }
        let result = work();
        if is_ours {
            turn.store(0, Release);
        }
        result
    }
}
