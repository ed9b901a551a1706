//! What the driver itself takes for a process, measured and charged.
//!
//! NVML's figure of a process minus what its calls account for is taken for its context and what
//! comes with it. A figure counts when two samples in a row agree and the account stood still around both.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use radrm_collector::Measured;
use radrm_telemetry::ledger::{GpuUse, LedgerView, MemberUse};
use radrm_telemetry::{Account, Kind, Liveness, Segment, SlotInfo};

use super::contexts::Contexts;
use super::gpus;

/// Two figures that differ by less are the same: the driver hands out memory in steps of 2 MiB.
const STEP: u64 = 2 << 20;

/// Inode of the first pid namespace. In another one NVML's process ids mean other processes.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Charges measurements to ledgers, and remembers them.
#[derive(Debug)]
pub struct Charge {
    /// The ledgers of the job, its user and groups; none if nothing is limited.
    views: Vec<LedgerView>,
    /// The figures of earlier jobs; `None` if they are not wanted.
    contexts: Option<Contexts>,
    last: HashMap<(u32, String), u64>,
}

impl Charge {
    /// For a job whose processes count in these ledgers.
    #[must_use]
    pub fn new(views: Vec<LedgerView>, emulated: bool) -> Self {
        // The emulator's NVML speaks of the ids that its processes have themselves.
        let understood = emulated || in_first_namespace();
        Self { views, contexts: understood.then(|| Contexts::load(emulated)), last: HashMap::new() }
    }

    /// Takes measurements of the job whose segment this is.
    pub fn take(&mut self, measured: &[Measured], segment: &Segment) {
        let Some(contexts) = &mut self.contexts else { return };
        let mut settled = Vec::new();
        for one in measured {
            let before = self.last.insert((one.pid, one.gpu.clone()), one.bytes.0);
            if before.is_some_and(|before| before.abs_diff(one.bytes.0) < STEP) {
                settled.push(one);
            }
        }
        if settled.is_empty() {
            return;
        }
        let ledgers: Vec<Books> = self.views.iter().map(Books::read).collect();
        let slots = LazyCell::new(|| segment.slots().unwrap_or_default());
        for one in settled {
            let bytes = one.bytes.0;
            let charged = ledgers.iter().filter_map(|books| books.charged(one));
            let differs = charged.into_iter().any(|charged| charged.abs_diff(bytes) >= STEP);
            let known = contexts.get(&one.model, &one.driver).is_some_and(|known| known <= bytes);
            if (!differs && known) || !is_quiet(ledgers.first(), segment, &slots, one.pid) {
                continue;
            }
            contexts.learn(&one.model, &one.driver, bytes);
            let expected = gpus::bytes(&one.gpu).zip(contexts.get(&one.model, &one.driver));
            for books in &ledgers {
                books.charge(one);
                // The job's next process is charged from its first context on.
                if let Some((gpu, bytes)) = expected {
                    books.view.set_context(Some(&gpu), bytes);
                }
            }
        }
    }

    /// Keeps what was learned for later jobs.
    pub fn save(&self) {
        if let Some(contexts) = &self.contexts {
            contexts.save();
        }
    }
}

fn in_first_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link == Path::new(FIRST_NAMESPACE))
}

/// A ledger, and who stands in it at one moment.
struct Books<'v> {
    view: &'v LedgerView,
    gpus: Vec<GpuUse>,
    members: HashMap<u32, MemberUse>,
}

impl<'v> Books<'v> {
    fn read(view: &'v LedgerView) -> Self {
        let members = view.members().into_iter().map(|member| (member.pid, member)).collect();
        Self { view, gpus: view.gpus(), members }
    }

    /// The member that was measured, and the GPU's number. The driver's uuid does not say whether it is an
    /// instance.
    fn find(&self, measured: &Measured) -> Option<(&MemberUse, usize)> {
        let bytes = gpus::bytes(&measured.gpu)?;
        let gpu = self.gpus.iter().position(|gpu| gpu.uuid == bytes)?;
        Some((self.members.get(&measured.pid)?, gpu))
    }

    /// What is charged for a process now.
    fn charged(&self, measured: &Measured) -> Option<u64> {
        let (member, gpu) = self.find(measured)?;
        member.overhead.get(gpu).copied()
    }

    fn charge(&self, measured: &Measured) {
        if let Some((member, gpu)) = self.find(measured) {
            self.view.set_overhead(member, gpu, measured.bytes.0);
        }
    }
}

/// Whether all that the driver has handed out for a process stands in its account, so that the rest is the
/// driver's own. One that has died since it was measured is not: its last call may have been under way. Nor is
/// one inside a call that takes or frees memory, however long that takes: what it has reserved is not what is
/// accounted. Nor one with managed memory: how much of that is on the GPU at a moment cannot be told, and what is
/// would be charged twice.
fn is_quiet(job: Option<&Books<'_>>, segment: &Segment, slots: &[SlotInfo], pid: u32) -> bool {
    let living = slots.iter().filter(|slot| slot.pid == pid && slot.liveness == Liveness::Running);
    let accounts: Vec<_> = living
        .filter_map(|slot| segment.process(slot).ok().flatten())
        .map(|process| process.accounts)
        .collect();
    let is_managed = |account: &Account| account.kinds[Kind::Managed as usize].now > 0;
    if accounts.is_empty() || accounts.iter().flatten().any(is_managed) {
        return false;
    }
    let Some(job) = job else { return true };
    let Some(member) = job.members.get(&pid) else { return false };
    let reserved = member.bytes.iter().sum::<u64>().saturating_sub(member.overhead.iter().sum());
    reserved == accounts.iter().flatten().map(|account| account.total_now).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use radrm_profile::Bytes;
    use radrm_telemetry::{SegmentFile, Writer};

    /// A job of which this process is one.
    struct Job {
        directory: tempfile::TempDir,
        _file: SegmentFile,
        segment: Segment,
        charge: Charge,
    }

    impl Job {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let file = SegmentFile::create_in(&directory.path().join("r"), 7).unwrap();
            Writer::join(&CString::new(file.path().as_os_str().as_bytes()).unwrap()).unwrap();
            let contexts = Contexts::load_from(&directory.path().join("contexts.toml"));
            let charge = Charge { views: Vec::new(), contexts: Some(contexts), last: HashMap::new() };
            Self { segment: file.segment().unwrap(), _file: file, directory: directory, charge }
        }

        fn learned(&self) -> Option<u64> {
            self.charge.contexts.as_ref().unwrap().get("H200", "1").map(|bytes| bytes >> 20)
        }
    }

    fn sample(mib: u64) -> Measured {
        Measured {
            pid: std::process::id(),
            gpu: "GPU-8f3a0000-1111-2222-3333-4444555566ff".into(),
            model: "H200".into(),
            driver: "1".into(),
            bytes: Bytes(mib << 20),
        }
    }

    #[test]
    fn a_figure_counts_when_it_is_seen_twice() {
        let mut job = Job::new();
        job.charge.take(&[sample(900)], &job.segment);
        assert_eq!(job.learned(), None, "it may have been in the middle of something");
        job.charge.take(&[sample(420), sample(421)], &job.segment);
        assert_eq!(job.learned(), Some(421));
        job.charge.take(&[sample(421), sample(600), sample(600)], &job.segment);
        assert_eq!(job.learned(), Some(421), "a library's own need is not that of a context");
        job.charge.save();
        let kept = Contexts::load_from(&job.directory.path().join("contexts.toml"));
        assert_eq!(kept.get("H200", "1"), Some(421 << 20));
    }

    #[test]
    fn a_process_that_died_after_it_was_measured_teaches_nothing() {
        let mut job = Job::new();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = Measured { pid: child.id(), ..sample(420) };
        child.wait().unwrap();
        job.charge.take(&[gone.clone(), gone], &job.segment);
        assert_eq!(job.learned(), None, "what it had got in its last call would count as a context");
    }
}
