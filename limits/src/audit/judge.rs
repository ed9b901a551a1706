//! Judgement on a process: whether what it holds is explained.

use super::known::{Counted, Known};
use super::why::{self, Reason};
use crate::config::Context;
use crate::contexts::Contexts;
use crate::files;
use radrm_os::Process;
use radrm_os::nvml::Gpu;

/// Memory that a process may hold beyond what is explained, bytes: the driver hands out memory in steps of 2 MiB,
/// and the two figures are not of the same moment.
pub const TOLERANCE: u64 = 64 << 20;

/// A context takes 300 to 600 MiB, depending on GPU, driver and code. This much is taken for
/// explained where it was never measured.
pub const UNMEASURED_CONTEXT: u64 = 640 << 20;

/// Memory of a process that is allowed for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Expected {
    /// Beyond everything else, bytes.
    pub tolerance: u64,
    /// For a context, from the configuration, bytes.
    pub fixed: Option<u64>,
    /// For a context, measured.
    pub contexts: Contexts,
}

impl Expected {
    /// As the configuration and former jobs have it; `tolerance` in bytes, [`TOLERANCE`] without one.
    #[must_use]
    pub fn configured(emulated: bool, tolerance: Option<u64>) -> Self {
        // A file that is wrong is no reason to audit nothing.
        let files = files::all().unwrap_or_default();
        let fixed = match files.iter().find_map(|file| file.config.context) {
            Some(Context::Bytes(bytes)) => Some(bytes),
            _ => None,
        };
        Self { tolerance: tolerance.unwrap_or(TOLERANCE), fixed, contexts: Contexts::load(emulated) }
    }

    /// Memory that the driver itself takes for a process on a GPU, bytes, and true if that was ever measured or
    /// configured.
    #[must_use]
    pub fn context(&self, gpu: &Gpu, driver: &str) -> (u64, bool) {
        match self.fixed.or_else(|| self.contexts.get(&gpu.name, driver)) {
            Some(bytes) => (bytes, true),
            None => (UNMEASURED_CONTEXT, false),
        }
    }
}

/// A process on a GPU, as NVML lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The process.
    pub process: Process,
    /// The GPU.
    pub gpu: Gpu,
    /// Version of the kernel driver.
    pub driver: String,
    /// Bytes; `None` where NVML does not list it.
    pub held: Option<u64>,
}

/// Finding on a process on a GPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Process id as NVML lists it.
    pub pid: u32,
    /// Its user.
    pub uid: Option<u32>,
    /// Its command line.
    pub command: String,
    /// The GPU.
    pub gpu: Gpu,
    /// Bytes that it holds, as NVML lists it.
    pub held: Option<u64>,
    /// Memory that its shim counts; `None` if no shim knows it.
    pub counted: Option<Counted>,
    /// Memory that the driver is taken to need for it, bytes.
    pub context: u64,
    /// Bytes that neither the shim, the context nor the tolerance explains.
    pub unexplained: u64,
    /// Reason that this is to be checked; `None` if it is explained.
    pub reason: Option<Reason>,
}

impl Finding {
    /// Returns true if it is to be checked. A process that this user may not read is not a finding of this user's: on
    /// a shared node each user would find all the others.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.reason.as_ref().is_some_and(|reason| !matches!(reason, Reason::Hidden(_)))
    }
}

/// Mode of reading the files of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// They are.
    Whole,
    /// They are not: its user's processes have taken too long.
    Cheap,
}

/// Judges one process on one GPU by what the shims know.
#[must_use]
pub fn judge(entry: Entry, known: &Known, expected: &Expected) -> Finding {
    judge_by(entry, known, expected, Look::Whole)
}

/// As [`judge`], with so much of a look at the process's files.
#[must_use]
pub fn judge_by(entry: Entry, known: &Known, expected: &Expected, look: Look) -> Finding {
    let reason = |find: &dyn Fn() -> Reason| match look {
        Look::Whole => find(),
        Look::Cheap => Reason::Unreadable("the processes of its user take too long".to_owned()),
    };
    let counted = known.of(entry.process, &entry.gpu.bytes);
    let (context, _) = expected.context(&entry.gpu, &entry.driver);
    let held = entry.held.unwrap_or(0);
    let (unexplained, reason) = match counted {
        // It holds a context at least, whether NVML says how much or not.
        None => (held, Some(reason(&|| why::unknown(entry.process, known)))),
        Some(counted) => {
            let explained = counted.device.saturating_add(counted.managed).saturating_add(context);
            let beyond = held.saturating_sub(explained);
            match known.limited_above(entry.process, counted.job) {
                Some(launcher) => (held, Some(Reason::OtherJob(launcher))),
                None if beyond > expected.tolerance => (beyond, Some(reason(&|| why::more(entry.process)))),
                None => (0, None),
            }
        }
    };
    Finding {
        pid: entry.process.0,
        uid: entry.process.uid(),
        command: entry.process.command(),
        gpu: entry.gpu,
        held: entry.held,
        counted,
        context,
        unexplained,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn entry(held: u64) -> Entry {
        let gpu = Gpu { name: "H200".into(), ..Gpu::default() };
        Entry { process: Process(std::process::id()), gpu, driver: "1".into(), held: Some(held * MIB) }
    }

    #[test]
    fn what_the_shim_the_context_and_the_tolerance_explain_is_no_finding() {
        let mut contexts = Contexts::default();
        contexts.learn("H200", "1", 400 * MIB);
        let expected = Expected { tolerance: TOLERANCE, fixed: None, contexts };
        let counted = Counted { job: 1, device: 1000 * MIB, managed: 10 * MIB };
        let known = Known::with(Process(std::process::id()), &Gpu::default().bytes, counted);
        for (held, unexplained) in [(0, 0), (1000, 0), (1410, 0), (1474, 0), (1475, 65), (2410, 1000)] {
            let found = judge(entry(held), &known, &expected);
            assert_eq!(found.unexplained, unexplained * MIB, "{held}");
            assert_eq!(found.reason.is_some(), unexplained > 0, "{held}");
        }
    }

    #[test]
    fn a_process_that_no_shim_knows_is_always_a_finding() {
        let found = judge(entry(0), &Known::default(), &Expected::default());
        assert!(found.reason.is_some());
        assert_eq!(judge(entry(7), &Known::default(), &Expected::default()).unexplained, 7 * MIB);
    }

    #[test]
    fn a_process_that_this_user_may_not_look_at_is_no_finding() {
        let mut found = judge(entry(7), &Known::default(), &Expected::default());
        assert!(found.counts());
        found.reason = Some(Reason::Hidden(Some(1)));
        assert!(!found.counts());
        found.reason = None;
        assert!(!found.counts());
    }

    #[test]
    fn a_configured_context_comes_before_a_measured_one() {
        let mut expected = Expected::default();
        let gpu = entry(0).gpu;
        assert_eq!(expected.context(&gpu, "1"), (UNMEASURED_CONTEXT, false));
        expected.contexts.learn("H200", "1", 400 * MIB);
        assert_eq!(expected.context(&gpu, "1"), (400 * MIB, true));
        expected.fixed = Some(5);
        assert_eq!(expected.context(&gpu, "1"), (5, true));
    }
}
