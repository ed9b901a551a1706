//! Bytes of memory: accounts, timelines, and the sites of call stacks.

use radrm_base::Kind;

use super::Writer;
use crate::gpu_index::GpuIndex;
use crate::kind::Bypass;
use crate::stacks::SiteId;
use crate::sync::Ordering::Relaxed;

impl Writer {
    /// Counts an allocation of `bytes` made at `ns`.
    #[inline]
    pub fn charge(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        self.change(gpu, kind, bytes, ns, true, SiteId::NONE);
    }

    /// Counts a release. More than there is stops at 0 and counts [`Bypass::Underflow`].
    #[inline]
    pub fn discharge(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        self.change_back(gpu, kind, bytes, ns, true, SiteId::NONE);
    }

    /// Like [`Writer::charge`] for a measured level that rose: no allocation is counted.
    #[inline]
    pub fn raise_level(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        self.change(gpu, kind, bytes, ns, false, SiteId::NONE);
    }

    /// Like [`Writer::discharge`] for a measured level that fell: no release is counted.
    #[inline]
    pub fn lower_level(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        self.change_back(gpu, kind, bytes, ns, false, SiteId::NONE);
    }

    #[inline]
    pub(crate) fn change(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64, counted: bool, site: SiteId) {
        let Some(account) = self.account(gpu) else { return };
        if account.chunks.load(Relaxed) == 0 {
            self.gpu_of_ranges(gpu);
        }
        let charge = || account.charge(kind, bytes, counted, ns);
        let total =
            if self.records_stacks { self.charge_in_turn(account, site, bytes, charge) } else { charge() };
        if let Some(total) = total {
            self.reached_in_ranges(gpu, account, total);
        }
        if let Some(bucket) = self.bucket(gpu, account, ns) {
            bucket.change(kind, bytes);
            if let Some(total) = total {
                bucket
                    .reached(total, |kind| account.kinds.get(kind).map_or(0, |cell| cell.now.load(Relaxed)));
            }
        }
    }

    #[inline]
    pub(crate) fn change_back(
        &self,
        gpu: GpuIndex,
        kind: Kind,
        bytes: u64,
        ns: u64,
        counted: bool,
        site: SiteId,
    ) {
        let Some(account) = self.account(gpu) else { return };
        if account.chunks.load(Relaxed) == 0 {
            self.gpu_of_ranges(gpu);
        }
        let discharge = || account.discharge(kind, bytes, counted);
        let taken = if self.records_stacks {
            self.discharge_in_turn(account, site, bytes, discharge)
        } else {
            discharge()
        };
        if taken < bytes {
            self.bypass(Bypass::Underflow);
        }
        if let Some(bucket) = self.bucket(gpu, account, ns) {
            bucket.change(kind, taken.wrapping_neg());
        }
    }
}
