//! What the driver itself takes for a process, measured and charged.
//!
//! NVML's figure of a process minus what its calls account for is taken for its context and what
//! comes with it. A figure counts when two samples in a row agree and the account stood still around both.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use radrm_collector::Measured;
use radrm_telemetry::ledger::LedgerView;
use radrm_telemetry::{Kind, Liveness, ProcessSnapshot, Segment};

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
        for one in measured {
            let bytes = one.bytes.0;
            let before = self.last.insert((one.pid, one.gpu.clone()), bytes);
            if before.is_none_or(|before| before.abs_diff(bytes) >= STEP) {
                continue;
            }
            let differs = self
                .views
                .iter()
                .any(|view| charged(view, one).is_some_and(|known| known.abs_diff(bytes) >= STEP));
            let known = contexts.get(&one.model, &one.driver).is_some_and(|known| known <= bytes);
            let in_call = self.views.first().is_some_and(|job| is_in_call(job, segment, one.pid));
            if (!differs && known) || in_call || has_managed(segment, one.pid) {
                continue;
            }
            contexts.learn(&one.model, &one.driver, bytes);
            let expected = gpus::bytes(&one.gpu).zip(contexts.get(&one.model, &one.driver));
            for view in &self.views {
                charge(view, one);
                // The job's next process is charged from its first context on.
                if let Some((gpu, bytes)) = expected {
                    view.set_context(Some(&gpu), bytes);
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

/// What is charged for a process now.
fn charged(view: &LedgerView, measured: &Measured) -> Option<u64> {
    let gpu = place(view, measured)?;
    let member = view.members().into_iter().find(|member| member.pid == measured.pid)?;
    member.overhead.get(gpu).copied()
}

fn charge(view: &LedgerView, measured: &Measured) {
    let Some(gpu) = place(view, measured) else { return };
    if let Some(member) = view.members().into_iter().find(|member| member.pid == measured.pid) {
        view.set_overhead(&member, gpu, measured.bytes.0);
    }
}

/// The GPU's number in a ledger. The driver's uuid does not say whether it is an instance.
fn place(view: &LedgerView, measured: &Measured) -> Option<usize> {
    let bytes = gpus::bytes(&measured.gpu)?;
    view.gpus().iter().position(|gpu| gpu.uuid == bytes)
}

/// Whether a process is inside a call that takes or frees memory: what it has reserved is not what is accounted.
/// However long the call takes, what the driver has handed out for it is not the driver's own.
fn is_in_call(job: &LedgerView, segment: &Segment, pid: u32) -> bool {
    let Some(member) = job.members().into_iter().find(|member| member.pid == pid) else { return false };
    let reserved: u64 = member.bytes.iter().sum();
    let accounted: u64 = living(segment, pid)
        .flat_map(|process| process.accounts)
        .map(|account| account.total_now + account.kinds[Kind::Managed as usize].now)
        .sum();
    reserved.saturating_sub(member.overhead.iter().sum()) != accounted
}

/// What living processes with this id have written.
fn living(segment: &Segment, pid: u32) -> impl Iterator<Item = ProcessSnapshot> {
    let slots = segment.slots().unwrap_or_default().into_iter();
    let living = slots.filter(move |slot| slot.pid == pid && slot.liveness == Liveness::Running);
    living.filter_map(|slot| segment.process(&slot).ok().flatten())
}

/// How much managed memory is on the GPU at a moment cannot be told, so a process that has some is not
/// measured: what is resident of it would be charged twice.
fn has_managed(segment: &Segment, pid: u32) -> bool {
    living(segment, pid)
        .any(|process| process.accounts.iter().any(|account| account.kinds[Kind::Managed as usize].now > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::Bytes;
    use radrm_telemetry::SegmentFile;

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
        let dir = tempfile::tempdir().unwrap();
        let file = SegmentFile::create_in(&dir.path().join("r"), 7).unwrap();
        let segment = file.segment().unwrap();
        let contexts = Contexts::load_from(&dir.path().join("contexts.toml"));
        let mut charge = Charge { views: Vec::new(), contexts: Some(contexts), last: HashMap::new() };
        let learned =
            |charge: &Charge| charge.contexts.as_ref().unwrap().get("H200", "1").map(|bytes| bytes >> 20);
        charge.take(&[sample(900)], &segment);
        assert_eq!(learned(&charge), None, "it may have been in the middle of something");
        charge.take(&[sample(420), sample(421)], &segment);
        assert_eq!(learned(&charge), Some(421));
        charge.take(&[sample(421), sample(600), sample(600)], &segment);
        assert_eq!(learned(&charge), Some(421), "a library's own need is not that of a context");
        charge.save();
        assert_eq!(Contexts::load_from(&dir.path().join("contexts.toml")).get("H200", "1"), Some(421 << 20));
    }
}
