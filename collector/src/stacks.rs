//! Call stacks, from a snapshot to the profile.

use radrm_profile::model::{
    Account, GpuIndex, KIND_COUNT, Kind, Process, ProcessKey, Site, StackCode, StackFrame, StackModule,
    StackMoment, StackRefusal, StackRefusals, Stacks,
};
use radrm_profile::{Bytes, Nanos};
use radrm_telemetry::{Frame, RefusalSnapshot, SiteId, SiteSnapshot, StackSnapshot};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Age at which a process's call stacks are written for the first time, if it has not ended before.
const FIRST: Nanos = Nanos::from_secs(5);

/// Time at which they are written next: when the process is twice as old.
fn next(seen: Nanos, now: Nanos) -> Nanos {
    now + now.minus(seen).max(FIRST)
}

/// Call stacks of a process that were written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// From here on they are worth another record.
    due: Nanos,
    /// Allocations and releases when the last ones were written.
    changes: u64,
    gpus: BTreeMap<u8, OnGpu>,
}

#[derive(Debug, Default)]
struct OnGpu {
    peak: Bytes,
    held: HashMap<u64, Bytes>,
}

impl Written {
    /// Nothing yet of a process that is seen for the first time.
    pub(crate) fn new(now: Nanos) -> Self {
        Self { due: now + FIRST, ..Self::default() }
    }

    /// Returns true if it is time for another record.
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        now >= self.due
    }

    /// A record was written of a process that has been seen since `seen`.
    pub(crate) fn put_off(&mut self, seen: Nanos, now: Nanos) {
        self.due = next(seen, now);
    }

    /// Returns true if anything was allocated or released since the last moments.
    pub(crate) fn has_news(&self, process: &Process) -> bool {
        changes(process) != self.changes
    }

    /// The moments to write: of each GPU the peak if there is a new one, and what is held now. A GPU whose figures
    /// changed while they were read has none.
    pub(crate) fn news(&mut self, process: &Process, stacks: &Stacks, now: Nanos) -> Vec<StackMoment> {
        self.changes = changes(process);
        let now = process.state.ended.map_or(now, |ended| ended.min(now));
        let mut moments = Vec::new();
        for account in &process.state.accounts {
            let known = self.gpus.entry(account.gpu.0).or_default();
            let sites: Vec<&Site> =
                stacks.sites.iter().filter(|site| site.gpu == account.gpu && site.is_in_total()).collect();
            let at_peak: Vec<(&Site, Bytes)> = sites.iter().map(|site| (*site, site.at_peak)).collect();
            let kinds = account.kinds.each_ref().map(|kind| kind.at_peak);
            let has_peak =
                account.peak > known.peak && !account.kinds_approximate && adds_up(&at_peak, &kinds);
            if has_peak {
                known.peak = account.peak;
                let moment = StackMoment {
                    t: account.peak_at,
                    is_peak: true,
                    total: account.peak,
                    kinds,
                    ..blank(process, account)
                };
                moments.extend(known.news(moment, &at_peak, false));
            }
            let held: Vec<(&Site, Bytes)> = sites.iter().map(|site| (*site, site.held)).collect();
            let kinds = account.kinds.each_ref().map(|kind| kind.now);
            if adds_up(&held, &kinds) {
                let moment = StackMoment { t: now, total: account.now, kinds, ..blank(process, account) };
                // Peaks are of one process each. At this moment all processes were read, also where this one holds what it
                // held at the peak.
                moments.extend(known.news(moment, &held, has_peak));
            }
        }
        moments
    }
}

impl OnGpu {
    /// The moment with what changed since the last one; `None`: nothing did, and that is not worth a record.
    fn news(&mut self, moment: StackMoment, held: &[(&Site, Bytes)], anyway: bool) -> Option<StackMoment> {
        let mut changed = Vec::new();
        for (site, bytes) in held {
            let known = self.held.entry(site.id()).or_default();
            if known != bytes {
                *known = *bytes;
                changed.push((site.id(), *bytes));
            }
        }
        (anyway || !changed.is_empty()).then_some(StackMoment { changed, ..moment })
    }
}

fn blank(process: &Process, account: &Account) -> StackMoment {
    StackMoment { key: process.key, gpu: account.gpu, ..StackMoment::default() }
}

fn changes(process: &Process) -> u64 {
    let kinds = process.state.accounts.iter().flat_map(|account| &account.kinds);
    kinds.fold(0, |sum, kind| sum.wrapping_add(kind.allocations).wrapping_add(kind.frees))
}

/// Returns true if sites hold what an account says of the kinds that are asked for in calls: the two are read one after
/// the other.
fn adds_up(held: &[(&Site, Bytes)], kinds: &[Bytes; KIND_COUNT]) -> bool {
    let mut sums = [Bytes::ZERO; KIND_COUNT];
    for (site, bytes) in held {
        if let Some(sum) = sums.get_mut(usize::from(site.kind)) {
            *sum = Bytes(sum.0.saturating_add(bytes.0));
        }
    }
    let asked = Kind::ALL.into_iter().filter(|kind| {
        *kind == Kind::PoolUsed || kind.in_total() && !matches!(kind, Kind::PoolReserved | Kind::Graph)
    });
    asked.map(Kind::index).all(|kind| sums[kind] == kinds[kind])
}

/// The call stacks of a process, and its refused requests. Modules in which no frame lies lose their texts; numbers stay.
pub(crate) fn stacks(key: ProcessKey, found: &StackSnapshot) -> (Stacks, StackRefusals) {
    let native = |frame: &Frame| match frame {
        Frame::Native { module, .. } => Some(usize::from(*module)),
        _ => None,
    };
    let used: BTreeSet<usize> =
        found.sites.iter().flat_map(|site| site.frames.iter().filter_map(native)).collect();
    let modules = found.modules.iter().enumerate().map(|(number, module)| match used.contains(&number) {
        true => StackModule { path: module.path.clone(), build_id: module.build_id.clone() },
        false => StackModule::default(),
    });
    let codes = found.codes.iter().map(|code| StackCode { file: code.file.clone(), name: code.name.clone() });
    // The same stack was entered twice where a library was loaded in between.
    let mut sites = BTreeMap::<(u8, u8, Vec<StackFrame>), Site>::new();
    let mut ids = HashMap::<SiteId, u64>::new();
    for from in &found.sites {
        let next = site(from);
        ids.insert(from.id, next.id());
        let known = sites.entry((next.gpu.0, next.kind, next.frames.clone())).or_insert_with(|| Site {
            gpu: next.gpu,
            kind: next.kind,
            frames: next.frames.clone(),
            ..Site::default()
        });
        known.held = Bytes(known.held.0.saturating_add(next.held.0));
        known.at_peak = Bytes(known.at_peak.0.saturating_add(next.at_peak.0));
        known.allocations = known.allocations.saturating_add(next.allocations);
        known.refused = known.refused.saturating_add(next.refused);
        known.refused_size = known.refused_size.max(next.refused_size);
    }
    let stacks = Stacks {
        key,
        modules: modules.collect(),
        codes: codes.collect(),
        sites: sites.into_values().collect(),
        full: found.full,
        unread: found.unread,
        unordered: found.unordered,
        symbols: BTreeMap::new(),
    };
    let mut refusals: Vec<StackRefusal> =
        found.refusals.iter().filter_map(|from| refusal(from, &ids)).collect();
    refusals.sort_by_key(|refusal| (refusal.t, refusal.is_latest));
    // The latest of a GPU can be the first one of its site.
    refusals.dedup_by(|b, a| (a.t, a.gpu, a.site, a.size) == (b.t, b.gpu, b.site, b.size));
    (stacks, StackRefusals { key, refusals })
}

/// A refused request; `None` if its site has gone.
fn refusal(from: &RefusalSnapshot, ids: &HashMap<SiteId, u64>) -> Option<StackRefusal> {
    let mut held = BTreeMap::<u64, Bytes>::new();
    for (site, bytes) in &from.held {
        let sum = held.entry(*ids.get(site)?).or_default();
        *sum = Bytes(sum.0.saturating_add(*bytes));
    }
    Some(StackRefusal {
        gpu: GpuIndex(from.request.gpu.number()),
        t: Nanos(from.request.ns),
        kind: from.request.kind as u8,
        size: Bytes(from.request.bytes),
        site: *ids.get(&from.site)?,
        is_latest: from.is_latest,
        total: Bytes(from.total),
        kinds: from.kinds.map(Bytes),
        held: held.into_iter().collect(),
    })
}

fn site(site: &SiteSnapshot) -> Site {
    Site {
        gpu: GpuIndex(site.gpu.number()),
        kind: site.kind as u8,
        frames: site.frames.iter().map(frame).collect(),
        held: Bytes(site.live),
        at_peak: Bytes(site.at_peak),
        allocations: site.allocs,
        refused: site.refused,
        refused_size: Bytes(site.refused_bytes),
    }
}

fn frame(frame: &Frame) -> StackFrame {
    match *frame {
        Frame::Native { module, offset } => StackFrame::Native { module: module.into(), offset },
        Frame::Unmapped(address) => StackFrame::Unmapped(address),
        Frame::Code { code, line, is_entry } => StackFrame::Code { code, line, is_entry },
        Frame::Cut => StackFrame::Cut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_telemetry::{GpuIndex as Gpu, Kind};

    #[test]
    fn one_stack_that_was_entered_twice_is_one_site() {
        let site = |id, module, live| SiteSnapshot {
            id: SiteId::from_number(id),
            gpu: Gpu::from_number(1).unwrap(),
            kind: Kind::Vmm,
            frames: vec![Frame::Native { module, offset: 16 }, Frame::Cut],
            live,
            at_peak: live * 2,
            allocs: 1,
            refused: 0,
            refused_bytes: 0,
        };
        let module = |path: &str| radrm_telemetry::StackModule { path: path.into(), build_id: vec![1] };
        let refused = RefusalSnapshot {
            request: radrm_telemetry::FailedRequest {
                ns: 4,
                gpu: Gpu::from_number(1).unwrap(),
                kind: Kind::Vmm,
                entry: 0,
                bytes: 99,
                free: 0,
                total: 0,
                result: 2,
                quota: None,
            },
            site: SiteId::from_number(202),
            is_latest: false,
            total: 12,
            kinds: [0; KIND_COUNT],
            held: [(200, 3), (201, 4), (202, 5)].map(|(id, held)| (SiteId::from_number(id), held)).to_vec(),
        };
        let found = StackSnapshot {
            modules: vec![module("/a"), module("/b"), module("/c")],
            sites: vec![site(200, 0, 5), site(201, 2, 7), site(202, 0, 30)],
            refusals: vec![refused],
            ..StackSnapshot::default()
        };
        let (got, refusals) = stacks(ProcessKey::default(), &found);
        let held: Vec<u64> = got.sites.iter().map(|site| site.held.0).collect();
        assert_eq!(held, [35, 7]);
        assert_eq!(got.sites[0].at_peak, Bytes(70));
        let paths: Vec<&str> = got.modules.iter().map(|module| module.path.as_str()).collect();
        assert_eq!(paths, ["/a", "", "/c"]);
        // What refused requests name is the site that both became.
        let [refusal] = &refusals.refusals[..] else { panic!("{refusals:?}") };
        let [both, other] = [got.sites[0].id(), got.sites[1].id()];
        assert_eq!((refusal.site, refusal.size, refusal.t), (both, Bytes(99), Nanos(4)));
        let held: BTreeMap<u64, Bytes> = refusal.held.iter().copied().collect();
        assert_eq!(held, BTreeMap::from([(both, Bytes(8)), (other, Bytes(4))]));
    }

    fn held(device: u64, at_peak: u64, changes: u64) -> (Process, Stacks) {
        let mut account =
            Account { now: Bytes(device), peak: Bytes(at_peak), peak_at: Nanos(70), ..Account::default() };
        let kind = &mut account.kinds[Kind::Device as usize];
        (kind.now, kind.at_peak, kind.allocations) = (Bytes(device), Bytes(at_peak), changes);
        let mut process = Process::default();
        process.state.accounts = vec![account];
        let site = |held, at_peak, frames| Site {
            kind: Kind::Device as u8,
            held: Bytes(held),
            at_peak: Bytes(at_peak),
            frames,
            ..Site::default()
        };
        let sites = vec![site(5, 5, vec![]), site(device - 5, at_peak - 5, vec![StackFrame::Cut])];
        (process, Stacks { sites, ..Stacks::default() })
    }

    #[test]
    fn moments_hold_what_changed_since_the_one_before() {
        let mut moments = Written::default();
        let (process, stacks) = held(40, 40, 1);
        assert!(moments.has_news(&process));
        let first = moments.news(&process, &stacks, Nanos(100));
        let shown = |moments: &[StackMoment]| -> Vec<_> {
            moments
                .iter()
                .map(|moment| (moment.t.0, moment.is_peak, moment.total.0, moment.changed.len()))
                .collect()
        };
        // Nothing changed since the peak, but at 100 all processes were read.
        assert_eq!(shown(&first), [(70, true, 40, 2), (100, false, 40, 0)]);
        assert!(!moments.has_news(&process));
        let (process, stacks) = held(10, 90, 3);
        let next = moments.news(&process, &stacks, Nanos(200));
        assert_eq!(shown(&next), [(70, true, 90, 1), (200, false, 10, 1)]);
    }

    #[test]
    fn figures_that_changed_while_they_were_read_are_no_moment() {
        let mut moments = Written::default();
        let (process, _) = held(40, 40, 1);
        let (_, newer) = held(50, 50, 2);
        assert_eq!(moments.news(&process, &newer, Nanos(100)), []);
        let (process, newer) = held(50, 50, 2);
        assert_eq!(moments.news(&process, &newer, Nanos(200)).len(), 2, "the next state has both");
    }

    #[test]
    fn records_become_rarer() {
        let mut now = Nanos::ZERO + FIRST;
        let mut records = 0;
        while now < Nanos::from_secs(86_400) {
            now = next(Nanos::ZERO, now);
            records += 1;
        }
        assert!(records < 20, "{records}");
    }
}
