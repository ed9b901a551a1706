//! Refused requests: which site asked, and what every site held at that moment.
//!
//! The first request of a site is written down, as long as there is room, and for each GPU the latest one that also has a
//! post-mortem. All are counted at their sites. A moment is copied in one turn, so it adds up to the account's figures of
//! that moment. Only sites in use are looked at.
//!
//! Writer side: runs inside the watched program, so nothing here may panic.

use super::{SiteId, Word};
use crate::failures::FailedRequest;
use crate::gpu_index::GpuIndex;
use crate::layout::*;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::fence;
use crate::writer::Writer;
use radrm_base::Kind;

/// Bit offset of the site's number in a word, above a number of bytes.
pub(crate) const SITE_AT: u32 = 48;
pub(crate) const HELD: u64 = (1 << SITE_AT) - 1;

impl Writer {
    /// Notes that a site has frames.
    pub(super) fn mark_used(&self, site: usize) {
        // Release: pairs with the Acquire in `each_site`, which then finds the site published.
        self.used(site / 64).fetch_or(1 << (site % 64), Release);
    }

    /// A word of the bits of sites in use.
    fn used(&self, word: usize) -> &AtomicU64 {
        // SAFETY: the bits are allocated while stacks are recorded, the word is inside them; atomics only.
        unsafe { self.at::<AtomicU64>(SITES_USED_AT + (word % (SITES / 64)) as u64 * 8).as_ref() }
    }

    /// Visits all sites of a GPU that are in use.
    pub(super) fn each_site(&self, gpu: GpuIndex, mut visit: impl FnMut(SiteId, Kind, &SiteCell)) {
        for kind in Kind::ALL {
            let site = SiteId::other(gpu, kind);
            if let Some(cell) = self.site_cell(site) {
                visit(site, kind, cell);
            }
        }
        for word in 0..SITES / 64 {
            let mut bits = self.used(word).load(Acquire);
            while bits != 0 {
                let site = SiteId::from_number(word as u64 * 64 + u64::from(bits.trailing_zeros()));
                bits &= bits - 1;
                let Some(cell) = self.site_cell(site) else { continue };
                if let Some((_, _, of, kind)) = SiteCell::read(cell.what.load(Relaxed))
                    && of == gpu
                {
                    visit(site, kind, cell);
                }
            }
        }
    }

    /// Counts a refused request at the site that asked, and writes the first one of a site down. Cold.
    pub fn refused_site(&self, site: SiteId, request: &FailedRequest) {
        let Some(cell) = self.site_cell(site) else { return };
        cell.refused_bytes.fetch_max(request.bytes, Relaxed);
        if cell.refused.fetch_add(1, Relaxed) > 0 {
            return;
        }
        let number = self.stack_word(Word::Refusals).fetch_add(1, Relaxed);
        if number < REFUSALS_FIRST as u64 {
            self.write_refusal(number as usize, site, request);
        }
    }

    /// Writes down the latest refused request of its GPU. Cold.
    pub(crate) fn refused_latest(&self, site: SiteId, request: &FailedRequest) {
        if self.records_stacks() && site != SiteId::NONE {
            self.write_refusal(REFUSALS_FIRST + usize::from(request.gpu.number()), site, request);
        }
    }

    fn write_refusal(&self, number: usize, site: SiteId, request: &FailedRequest) {
        if number >= REFUSALS_KEPT {
            return;
        }
        let Some(account) = self.account(request.gpu) else { return };
        // SAFETY: allocated while stacks are recorded, the number is below their number; atomics only.
        let cell = unsafe { self.at::<RefusalCell>(REFUSALS_AT + number as u64 * 512).as_ref() };
        let seq = cell.seq.load(Relaxed);
        // Acquire: pairs with the Release below, so that an earlier writer's stores are not ordered after.
        if seq & 1 == 1 || cell.seq.compare_exchange(seq, seq.wrapping_add(1), AcqRel, Relaxed).is_err() {
            return;
        }
        // A reader that sees one of the words sees the odd number too.
        fence(Release);
        for (to, word) in cell.request.iter().zip(request.pack()) {
            to.store(word, Relaxed);
        }
        cell.site.store(site.number().into(), Relaxed);
        // Room comes before the turn, which makes no call of the system. A site that appears meanwhile may find none.
        let mut used = 0u64;
        self.each_site(request.gpu, |_, _, _| used += 1);
        let room = (used * 8).next_multiple_of(PAGE as u64).min(REFUSAL_HELD_BYTES);
        let held_at = REFUSALS_HELD_AT + number as u64 * REFUSAL_HELD_BYTES;
        let pieces = room / PAGE as u64;
        let has_room = self.grow_upto(&cell.ready, held_at, PAGE as u64, pieces);
        let room = if has_room { room / 8 } else { 0 };
        let mut count = 0u64;
        self.in_turn(0, || {
            cell.total.store(account.total_now.load(Relaxed), Relaxed);
            for (to, now) in cell.kinds.iter().zip(&account.now) {
                to.store(now.load(Relaxed), Relaxed);
            }
            self.each_site(request.gpu, |site, _, cell| {
                let live = cell.live.load(Relaxed);
                if live > 0 && count < room {
                    // SAFETY: inside the room, which is allocated; atomics only.
                    let place = unsafe { self.at::<AtomicU64>(held_at + count * 8).as_ref() };
                    place.store(u64::from(site.number()) << SITE_AT | live.min(HELD), Relaxed);
                    count += 1;
                }
            });
        });
        cell.count.store(count, Relaxed);
        // Pairs with the reader, which takes an even number for a complete one.
        cell.seq.fetch_add(1, Release);
    }
}
