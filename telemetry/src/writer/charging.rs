//! Bytes of memory: accounts, timelines, and the sites of call stacks.

use radrm_base::Kind;

use super::Writer;
use crate::gpu_index::GpuIndex;
use crate::kind::Bypass;
use crate::lanes::OwnCounts;
use crate::stacks::SiteId;
use crate::sync::Ordering::Relaxed;

impl Writer {
    /// Counts an allocation of `bytes` made at `ns`.
    pub fn charge(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        self.charge_by(OwnCounts::NONE, SiteId::NONE, gpu, kind, bytes, ns);
    }

    /// Counts a release. More than there is stops at 0 and counts [`Bypass::Underflow`].
    pub fn discharge(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        self.discharge_by(OwnCounts::NONE, SiteId::NONE, gpu, kind, bytes, ns);
    }

    /// Like [`Writer::charge`] by a thread that has counters of its own, for an allocation whose site is known.
    #[inline(always)]
    pub fn charge_by(&self, own: OwnCounts, site: SiteId, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        let is_counted = own.allocated(gpu, kind);
        self.change(gpu, kind, bytes, ns, !is_counted, site);
    }

    /// Like [`Writer::discharge`] by a thread that has counters of its own, for a block whose site is known.
    #[inline(always)]
    pub fn discharge_by(&self, own: OwnCounts, site: SiteId, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        let is_counted = own.released(gpu, kind);
        self.change_back(gpu, kind, bytes, ns, !is_counted, site);
    }

    /// Like [`Writer::charge`] for a measured level that rose: no allocation is counted.
    pub fn raise_level(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        self.raise_level_from(SiteId::NONE, gpu, kind, bytes, ns);
    }

    /// Like [`Writer::raise_level`], by a call whose site is known.
    pub fn raise_level_from(&self, site: SiteId, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        self.change(gpu, kind, bytes, ns, false, site);
    }

    /// Like [`Writer::discharge`] for a measured level that fell: no release is counted.
    pub fn lower_level(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        self.change_back(gpu, kind, bytes, ns, false, SiteId::NONE);
    }

    #[inline(always)]
    fn change(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64, counted: bool, site: SiteId) {
        let Some(account) = self.account(gpu) else { return };
        if account.chunks.load(Relaxed) == 0 {
            self.gpu_of_ranges(gpu);
        }
        let total = if self.records_stacks {
            self.charge_in_turn(account, site, kind, bytes, counted, ns)
        } else {
            account.charge(kind, bytes, counted, ns)
        };
        if let Some(total) = total {
            self.reached_in_ranges(gpu, account, total);
        }
        if let Some(bucket) = self.bucket(gpu, account, ns) {
            bucket.change(kind, bytes);
            if let Some(total) = total {
                bucket.reached(total, |kind| account.now.get(kind).map_or(0, |now| now.load(Relaxed)));
            }
        }
    }

    #[inline(always)]
    fn change_back(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64, counted: bool, site: SiteId) {
        let Some(account) = self.account(gpu) else { return };
        if account.chunks.load(Relaxed) == 0 {
            self.gpu_of_ranges(gpu);
        }
        let taken = if self.records_stacks {
            self.discharge_in_turn(account, site, gpu, kind, bytes, counted)
        } else {
            account.discharge(kind, bytes, counted)
        };
        if taken < bytes {
            self.bypass(Bypass::Underflow);
        }
        if let Some(bucket) = self.bucket(gpu, account, ns) {
            bucket.change(kind, taken.wrapping_neg());
        }
    }
}
