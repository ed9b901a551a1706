//! Charging of what the driver itself takes for a process, as measured.
//!
//! NVML's figure of a process minus what its calls account for is taken for its context and what comes with it.
//! While a call takes or frees memory the two do not fit together, and how long a process is interrupted inside
//! one is unknown. So a figure counts when it is the same three times in a row, each time followed by a reading of
//! the process that finds it outside of such calls, with no such call in between: what was measured last lies
//! between two of these readings.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};

use radrm_os::nvml::{DriverOverhead, uuid_bytes};
use radrm_telemetry::ledger::{GpuUse, LedgerView, MemberUse};
use radrm_telemetry::{Kind, Liveness, Segment, SlotInfo};

use super::contexts::Contexts;
use super::group_figures::GroupFigures;

/// Two figures that differ by less are the same: the driver hands out memory in steps of 2 MiB.
const STEP: u64 = 2 << 20;

/// Charges measurements to ledgers, and remembers them.
#[derive(Debug)]
pub struct Charge {
    /// The ledgers of the job, its user and groups; none if nothing is limited.
    views: Vec<LedgerView>,
    /// The figures of earlier jobs; `None` if they are not wanted.
    contexts: Option<Contexts>,
    seen: HashMap<(u32, String), Seen>,
    /// The driver's figures of the job's control group.
    group: Option<Group>,
}

/// Figures of the driver for the job's control group.
#[derive(Debug)]
struct Group {
    figures: GroupFigures,
    /// The ledger in which all processes of the group are.
    members: usize,
    /// A figure came.
    is_heard: bool,
    /// By the GPU; with what was known around the figure.
    seen: HashMap<[u8; 16], (Seen, Around)>,
}

/// The changes, the bytes asked for and the number of processes.
type Around = (u64, u64, u64);

/// Last reading of a process on a GPU.
#[derive(Clone, Copy, Debug)]
struct Seen {
    bytes: u64,
    /// Allocations and releases that it had made.
    changes: u64,
    /// Number of times in a row.
    times: u32,
}

/// As often must a figure be found.
const TIMES: u32 = 3;

impl Charge {
    /// For a job whose processes count in these ledgers.
    #[must_use]
    pub fn new(views: Vec<LedgerView>, emulated: bool) -> Self {
        // The emulator's NVML speaks of the ids that its processes have themselves.
        let understood = emulated || radrm_os::host::is_in_first_pid_namespace();
        Self {
            views,
            contexts: understood.then(|| Contexts::load(emulated)),
            seen: HashMap::new(),
            group: None,
        }
    }

    /// Also takes the driver's figures of a control group whose processes are all in the ledger of this number.
    #[must_use]
    pub fn of_group(mut self, figures: GroupFigures, members: usize) -> Self {
        self.group = Some(Group { figures, members, is_heard: false, seen: HashMap::new() });
        self
    }

    /// Goes on in a forked child.
    pub fn resume(&mut self) {
        if let Some(group) = &mut self.group {
            group.figures.resume();
        }
    }

    /// Takes measurements of the job whose segment this is.
    pub fn take(&mut self, measured: &[DriverOverhead], segment: &Segment) {
        let is_of_group = self.take_group(segment);
        let Some(contexts) = &mut self.contexts else { return };
        if measured.is_empty() {
            return;
        }
        let ledgers: Vec<ChargeLedger> = self.views.iter().map(ChargeLedger::read).collect();
        let slots = LazyCell::new(|| segment.slots().unwrap_or_default());
        // Of several figures of a process the last one is that of now.
        let latest: HashMap<_, _> = measured.iter().map(|one| ((one.pid, one.gpu.clone()), one)).collect();
        for (place, one) in latest {
            let bytes = one.bytes;
            let mut charged = ledgers.iter().filter_map(|ledger| ledger.charged(one));
            let differs = charged.any(|charged| charged.abs_diff(bytes) >= STEP);
            let known = contexts.get(&one.model, &one.driver).is_some_and(|known| known <= bytes);
            let news = differs || !known;
            let changes = news.then(|| changes_if_quiet(ledgers.first(), segment, &slots, one.pid)).flatten();
            let Some(changes) = changes else {
                self.seen.remove(&place);
                continue;
            };
            let before = self.seen.get(&place).filter(|seen| seen.changes == changes);
            let before = before.filter(|seen| seen.bytes.abs_diff(bytes) < STEP);
            let times = before.map_or(1, |seen| seen.times + 1);
            self.seen.insert(place, Seen { bytes, changes, times });
            if times < TIMES {
                continue;
            }
            contexts.learn(&one.model, &one.driver, bytes);
            let expected = uuid_bytes(&one.gpu).zip(contexts.get(&one.model, &one.driver));
            for ledger in &ledgers {
                // Two figures in turns would be neither.
                if !is_of_group {
                    ledger.charge(one);
                }
                // The job's next process is charged from its first context on.
                if let Some((gpu, bytes)) = expected {
                    ledger.view.set_context(Some(&gpu), bytes);
                }
            }
        }
    }

    /// Charges what the driver itself counts for the job's control group beyond its requests, to each process an equal
    /// part. Gives whether there is such a figure: it takes the place of NVML's figures of single processes, which cannot
    /// be understood in a container, and leave out what processes without the shim hold. So a process that only has a
    /// context of unknown size is one of them: no other figure would charge it.
    fn take_group(&mut self, segment: &Segment) -> bool {
        let Some(group) = &mut self.group else { return false };
        let Some(figures) = group.figures.news() else { return group.is_heard };
        group.is_heard = true;
        let ledgers: Vec<ChargeLedger> = self.views.iter().map(ChargeLedger::read).collect();
        let Some(all) = ledgers.get(group.members) else { return true };
        let slots = segment.slots().unwrap_or_default();
        let own = ledgers.first();
        // Members of other steps have segments of their own.
        let own_pids = || own.iter().flat_map(|ledger| ledger.members.keys().copied());
        let changes = own_pids()
            .try_fold(0_u64, |sum, pid| Some(sum.wrapping_add(changes_if_quiet(own, segment, &slots, pid)?)));
        let contexts = contexts_of(segment, &slots);
        for (gpu, used) in figures {
            let Some(number) = all.gpus.iter().position(|known| known.uuid == gpu) else { continue };
            let on_gpu = |of: &[u64]| of.get(number).copied().unwrap_or(0);
            let is_holder =
                |member: &MemberUse| on_gpu(&member.bytes) > 0 || contexts.contains(&(member.pid, gpu));
            let holders = || all.members.values().filter(|member| is_holder(member));
            let count = holders().count() as u64;
            let asked = |member: &MemberUse| on_gpu(&member.bytes).saturating_sub(on_gpu(&member.overhead));
            let asked: u64 = holders().map(asked).sum();
            let beyond = used.checked_sub(asked).filter(|_| count > 0);
            let (Some(beyond), Some(changes)) = (beyond, changes) else {
                group.seen.remove(&gpu);
                continue;
            };
            let state = (changes, asked, count);
            let before = group.seen.get(&gpu).filter(|(seen, _)| seen.bytes.abs_diff(beyond) < STEP);
            let times = before.filter(|(_, known)| *known == state).map_or(1, |(seen, _)| seen.times + 1);
            group.seen.insert(gpu, (Seen { bytes: beyond, changes, times }, state));
            if times < TIMES {
                continue;
            }
            let pids: Vec<u32> = holders().map(|member| member.pid).collect();
            for ledger in &ledgers {
                let gpu = ledger.gpus.iter().position(|known| known.uuid == gpu);
                let members = pids.iter().filter_map(|pid| ledger.members.get(pid));
                for (member, gpu) in members.filter_map(|member| Some((member, gpu?))) {
                    ledger.view.set_overhead(member, gpu, beyond / count);
                }
            }
        }
        true
    }

    /// Keeps what was learned for later jobs.
    pub fn save(&self) {
        if let Some(contexts) = &self.contexts {
            contexts.save();
        }
    }
}

/// A ledger, and who stands in it at one moment.
struct ChargeLedger<'v> {
    view: &'v LedgerView,
    gpus: Vec<GpuUse>,
    members: HashMap<u32, MemberUse>,
}

impl<'v> ChargeLedger<'v> {
    fn read(view: &'v LedgerView) -> Self {
        Self { view, gpus: view.gpus(), members: by_pid(view.members()) }
    }

    /// The member that was measured, and the GPU's number. The driver's uuid does not say whether it is an
    /// instance.
    fn find(&self, measured: &DriverOverhead) -> Option<(&MemberUse, usize)> {
        let bytes = uuid_bytes(&measured.gpu)?;
        let gpu = self.gpus.iter().position(|gpu| gpu.uuid == bytes)?;
        Some((self.members.get(&measured.pid)?, gpu))
    }

    /// Bytes that are charged for a process now.
    fn charged(&self, measured: &DriverOverhead) -> Option<u64> {
        let (member, gpu) = self.find(measured)?;
        member.overhead.get(gpu).copied()
    }

    fn charge(&self, measured: &DriverOverhead) {
        if let Some((member, gpu)) = self.find(measured) {
            self.view.set_overhead(member, gpu, measured.bytes);
        }
    }
}

/// Members by the pids that NVML gives: one of a container may have such a pid in its own namespace.
fn by_pid(members: Vec<MemberUse>) -> HashMap<u32, MemberUse> {
    members.into_iter().filter(|member| member.is_here).map(|member| (member.pid, member)).collect()
}

/// Running processes that have a context, with the uuid of its GPU.
fn contexts_of(segment: &Segment, slots: &[SlotInfo]) -> HashSet<(u32, [u8; 16])> {
    let gpus = segment.gpus().unwrap_or_default();
    let uuid = |index| gpus.iter().find(|gpu| gpu.index == index).map(|gpu| gpu.uuid);
    let running = slots.iter().filter(|slot| slot.liveness == Liveness::Running);
    let processes = running.filter_map(|slot| Some((slot.pid?, segment.process(slot).ok().flatten()?)));
    processes
        .flat_map(|(pid, process)| {
            let accounts = process.accounts.into_iter().filter(|account| account.contexts > 0);
            accounts.filter_map(|account| Some((pid, uuid(account.gpu)?))).collect::<Vec<_>>()
        })
        .collect()
}

/// Number of allocations and releases that a process has made, if all that the driver has handed out for it stands
/// in its account, so that the rest is the driver's own. That is not so of one that has died since it was measured:
/// its last call may have been under way; of one inside a call that takes or frees memory: what it has reserved is
/// not what is accounted; and of one with managed memory: how much of that is on the GPU at a moment cannot be
/// known, and what is would be charged twice.
fn changes_if_quiet(
    job: Option<&ChargeLedger<'_>>,
    segment: &Segment,
    slots: &[SlotInfo],
    pid: u32,
) -> Option<u64> {
    let living = slots.iter().filter(|slot| slot.pid == Some(pid) && slot.liveness == Liveness::Running);
    let mut processes = living.filter_map(|slot| segment.process(slot).ok().flatten());
    // Of two pid namespaces: NVML's figure is that of one of them.
    let (Some(process), None) = (processes.next(), processes.next()) else { return None };
    if process.accounts.iter().any(|account| account.kinds[Kind::Managed as usize].now > 0) {
        return None;
    }
    if let Some(job) = job {
        let member = job.members.get(&pid)?;
        let reserved: u64 = member.bytes.iter().sum::<u64>().saturating_sub(member.overhead.iter().sum());
        let accounted: u64 = process.accounts.iter().map(|account| account.total_now).sum();
        if reserved != accounted {
            return None;
        }
    }
    let kinds = process.accounts.iter().flat_map(|account| &account.kinds);
    Some(kinds.map(|kind| kind.allocs + kind.frees).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use radrm_telemetry::ledger::{Amount, Ledger, Limit};
    use radrm_telemetry::{SegmentFile, Writer};

    /// A job of which this process is one.
    struct Job {
        directory: tempfile::TempDir,
        file: SegmentFile,
        writer: Writer,
        segment: Segment,
        charge: Charge,
    }

    impl Job {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let file = SegmentFile::create_in(&directory.path().join("r"), 7).unwrap();
            let path = CString::new(file.path().as_os_str().as_bytes()).unwrap();
            let writer = Writer::join(&path).unwrap();
            let contexts = Contexts::load_from(&directory.path().join("contexts.toml"));
            let charge =
                Charge { views: Vec::new(), contexts: Some(contexts), seen: HashMap::new(), group: None };
            Self { segment: file.segment().unwrap(), file, writer, directory, charge }
        }

        /// So many MiB, one figure after the other.
        fn find(&mut self, mib: &[u64]) {
            mib.iter().for_each(|mib| self.charge.take(&[sample(*mib)], &self.segment));
        }

        fn learned(&self) -> Option<u64> {
            self.charge.contexts.as_ref().unwrap().get("H200", "1").map(|bytes| bytes >> 20)
        }
    }

    fn sample(mib: u64) -> DriverOverhead {
        DriverOverhead {
            pid: std::process::id(),
            gpu: "GPU-8f3a0000-1111-2222-3333-4444555566ff".into(),
            model: "H200".into(),
            driver: "1".into(),
            bytes: mib << 20,
        }
    }

    #[test]
    fn a_figure_counts_when_it_is_found_three_times() {
        let mut job = Job::new();
        job.find(&[900, 900]);
        assert_eq!(job.learned(), None, "it may have been in the middle of something");
        job.find(&[420, 421]);
        assert_eq!(job.learned(), None);
        job.find(&[421]);
        assert_eq!(job.learned(), Some(421));
        job.find(&[600, 600, 600]);
        assert_eq!(job.learned(), Some(421), "a library's own need is not that of a context");
        job.charge.save();
        let kept = Contexts::load_from(&job.directory.path().join("contexts.toml"));
        assert_eq!(kept.get("H200", "1"), Some(421 << 20));
    }

    /// Takes figures of the driver for the group of the job, MiB, one after the other; gives what is charged then,
    /// MiB.
    fn charged_of_group(job: &mut Job, gpu: [u8; 16], mib: &[u64]) -> u64 {
        for mib in mib {
            job.charge.group.as_mut().unwrap().figures.put(vec![(gpu, *mib << 20)]);
            job.charge.take(&[], &job.segment);
        }
        job.charge.views[0].members()[0].overhead[0] >> 20
    }

    #[test]
    fn a_process_that_only_has_a_context_is_charged_its_part_of_the_group() {
        const GPU: [u8; 16] = [1; 16];
        let mut job = Job::new();
        let limit = Limit { gpu: None, amount: Amount::Bytes(4 << 30) };
        job.charge.views.push(job.file.arm(&[limit]).unwrap());
        job.charge.group = Some(Group {
            figures: GroupFigures::default(),
            members: 0,
            is_heard: false,
            seen: HashMap::new(),
        });
        let path = CString::new(job.file.path().as_os_str().as_bytes()).unwrap();
        let ledger = Ledger::join_segment(&path).unwrap().unwrap();
        let row = ledger.gpu(&GPU, 80 << 30).unwrap();
        let gpu = job.writer.gpu(&GPU, b"H200", 80 << 30, b"").unwrap();
        assert_eq!(charged_of_group(&mut job, GPU, &[420; 4]), 0, "what others of the group hold");
        // What a context takes is not known from an earlier job.
        job.writer.context(gpu, true);
        ledger.context_came(row);
        assert_eq!(charged_of_group(&mut job, GPU, &[420; 2]), 0);
        assert_eq!(charged_of_group(&mut job, GPU, &[420]), 420);
        assert_eq!(ledger.used(row), 420 << 20);
        job.writer.context(gpu, false);
        assert_eq!(charged_of_group(&mut job, GPU, &[0; 3]), 0, "it has ended");
    }

    #[test]
    fn a_member_with_the_same_pid_in_a_container_is_not_the_measured_one() {
        let of = |number, is_here| MemberUse {
            number,
            pid: 4711,
            is_here,
            start: 0,
            bytes: Vec::new(),
            overhead: Vec::new(),
        };
        for members in [[of(0, true), of(1, false)], [of(1, false), of(0, true)]] {
            assert_eq!(by_pid(members.into()).remove(&4711), Some(of(0, true)));
        }
        assert!(by_pid(vec![of(1, false)]).is_empty());
    }

    #[test]
    fn a_figure_from_before_a_look_is_not_one_from_after_it() {
        let mut job = Job::new();
        job.charge.take(&[sample(420), sample(420), sample(420)], &job.segment);
        assert_eq!(job.learned(), None);
    }

    #[test]
    fn a_figure_around_which_memory_came_or_went_teaches_nothing() {
        let mut job = Job::new();
        let gpu = job.writer.gpu(&[1; 16], b"H200", 80 << 30, b"").unwrap();
        for _ in 0..5 {
            job.find(&[420]);
            job.writer.charge(gpu, Kind::Device, 4096, 1);
            job.writer.discharge(gpu, Kind::Device, 4096, 2);
        }
        assert_eq!(job.learned(), None, "the account is what it was, but was something else meanwhile");
        job.find(&[420, 420, 420]);
        assert_eq!(job.learned(), Some(420));
    }

    #[test]
    fn a_process_that_died_after_it_was_measured_teaches_nothing() {
        let mut job = Job::new();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = DriverOverhead { pid: child.id(), ..sample(420) };
        child.wait().unwrap();
        for _ in 0..5 {
            job.charge.take(std::slice::from_ref(&gone), &job.segment);
        }
        assert_eq!(job.learned(), None, "what it had got in its last call would count as a context");
    }
}
