//! Bytes of memory: accounts, timelines, and the sites of call stacks.

use radrm_base::Kind;

use super::Writer;
use crate::gpu_index::GpuIndex;
use crate::kind::Bypass;
use crate::lanes::OwnCounts;
use crate::stacks::SiteId;

/// A change of what an account holds.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    /// Time of the change, ns.
    pub(crate) ns: u64,
    /// True if the account counts it as an allocation or a release: no lane does.
    pub(crate) is_counted: bool,
    /// Site of the call that made the change.
    pub(crate) site: SiteId,
    /// The calling thread; 0: not known.
    pub(crate) thread: u32,
}

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
        let is_counted = !own.allocated(gpu, kind);
        self.change(gpu, Change { kind, bytes, ns, is_counted, site, thread: own.thread() });
    }

    /// Like [`Writer::discharge`] by a thread that has counters of its own, for a block whose site is known.
    #[inline(always)]
    pub fn discharge_by(&self, own: OwnCounts, site: SiteId, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        let is_counted = !own.released(gpu, kind);
        self.change_back(gpu, Change { kind, bytes, ns, is_counted, site, thread: own.thread() });
    }

    /// Like [`Writer::charge`] for a measured level that rose: no allocation is counted.
    pub fn raise_level(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        self.raise_level_from(SiteId::NONE, gpu, kind, bytes, ns);
    }

    /// Like [`Writer::raise_level`], by a call whose site is known.
    pub fn raise_level_from(&self, site: SiteId, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        self.change(gpu, Change { kind, bytes, ns, is_counted: false, site, thread: 0 });
    }

    /// Like [`Writer::discharge`] for a measured level that fell: no release is counted.
    pub fn lower_level(&self, gpu: GpuIndex, kind: Kind, bytes: u64, ns: u64) {
        self.change_back(gpu, Change { kind, bytes, ns, is_counted: false, site: SiteId::NONE, thread: 0 });
    }

    #[inline(always)]
    fn change(&self, gpu: GpuIndex, change: Change) {
        let Some(account) = self.account(gpu) else { return };
        let Change { kind, bytes, ns, is_counted, site, thread } = change;
        let is_open = self.opens(gpu, account, ns);
        let total = if self.records_stacks {
            // Made here: the parts of the one above stay in registers.
            self.charge_in_turn(account, Change { kind, bytes, ns, is_counted, site, thread })
        } else {
            account.charge(kind, bytes, is_counted, ns)
        };
        if let Some(total) = total {
            self.reached_in_ranges(gpu, account, total);
            if is_open {
                self.reached_in_timeline(gpu, account, total);
            }
        }
    }

    #[inline(always)]
    fn change_back(&self, gpu: GpuIndex, change: Change) {
        let Some(account) = self.account(gpu) else { return };
        let Change { kind, bytes, ns, is_counted, site, thread } = change;
        self.opens(gpu, account, ns);
        let taken = if self.records_stacks {
            // As in `change`.
            self.discharge_in_turn(account, gpu, Change { kind, bytes, ns, is_counted, site, thread })
        } else {
            account.discharge(kind, bytes, is_counted)
        };
        if taken < bytes {
            self.bypass(Bypass::Underflow);
        }
    }
}
