//! CPU cycles of jobs, and those of them in which a processor waited, mostly for memory: what is left where nothing counts bytes.

use std::collections::HashMap;
use std::fmt;
use std::io;

use super::error::MemoryError;
use super::event::{EventCode, Target};
use super::uncore::{Opener, Reader};
use crate::host::perf::not_allowed;

/// `PERF_TYPE_HARDWARE` with `PERF_COUNT_HW_CPU_CYCLES` and `PERF_COUNT_HW_STALLED_CYCLES_BACKEND`.
const CYCLES: EventCode = EventCode { kind: 0, config: [0, 0, 0] };
const STALLED: EventCode = EventCode { kind: 0, config: [8, 0, 0] };

/// Jobs that are counted at a time, each with two descriptors.
const MAX_JOBS: usize = 256;

/// Counters of jobs, by name.
#[derive(Default)]
pub(super) struct Stalls {
    jobs: HashMap<String, [Reader; 2]>,
}

impl fmt::Debug for Stalls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Stalls({} jobs)", self.jobs.len())
    }
}

impl Stalls {
    /// Returns the counters of no job yet.
    ///
    /// # Errors
    /// This processor has no such event, or the kernel does not allow it.
    pub(super) fn open(open: Opener<'_>) -> Result<Self, MemoryError> {
        // Tried with the own process.
        drop(counters(std::process::id(), open)?);
        Ok(Self::default())
    }

    /// Counts a process and what it starts from now on.
    ///
    /// # Errors
    /// Too many jobs are counted, or the kernel opens no more counters.
    pub(super) fn begin(&mut self, name: &str, pid: u32, open: Opener<'_>) -> Result<(), MemoryError> {
        if self.jobs.len() >= MAX_JOBS && !self.jobs.contains_key(name) {
            return Err(MemoryError::ManyJobs(MAX_JOBS));
        }
        self.jobs.insert(name.to_owned(), counters(pid, open)?);
        Ok(())
    }

    /// Cycles of a job so far, and those of them that stalled. `None`: one of them is not counted.
    pub(super) fn cycles(&self, name: &str) -> Option<(u64, u64)> {
        let [cycles, stalled] = self.jobs.get(name)?;
        Some((cycles()?, stalled()?))
    }

    /// Closes the counters of a job.
    pub(super) fn end(&mut self, name: &str) {
        self.jobs.remove(name);
    }
}

/// Counters of a process: of both modes, or of user mode where that is all that is allowed.
fn counters(pid: u32, open: Opener<'_>) -> Result<[Reader; 2], MemoryError> {
    let both = |user_only| -> io::Result<[Reader; 2]> {
        let target = Target::Process { pid, user_only };
        Ok([open(CYCLES, target)?, open(STALLED, target)?])
    };
    let opened = match both(false) {
        Err(error) if not_allowed(&error) => both(true),
        other => other,
    };
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL) => MemoryError::NoStalls,
        _ => MemoryError::Refused(error),
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn refusing(number: i32) -> impl Fn(EventCode, Target) -> io::Result<Reader> {
        move |_, _| Err(io::Error::from_raw_os_error(number))
    }

    #[test]
    fn a_job_has_its_cycles_and_those_that_stalled_until_it_ends() {
        let open = |code: EventCode, target: Target| {
            assert!(matches!(target, Target::Process { user_only: false, .. }));
            let count = if code == STALLED { 300_u64 } else { 1000 };
            Ok(Box::new(move || Some(count)) as Reader)
        };
        let mut stalls = Stalls::open(&open).unwrap();
        stalls.begin("radrm.7.1", 5678, &open).unwrap();
        assert_eq!(stalls.cycles("radrm.7.1"), Some((1000, 300)));
        assert_eq!(stalls.cycles("radrm.8.1"), None, "an earlier radrmd's");
        stalls.end("radrm.7.1");
        assert_eq!(stalls.cycles("radrm.7.1"), None);
    }

    #[test]
    fn user_mode_is_counted_where_the_kernel_may_not_be() {
        let seen = RefCell::new(Vec::new());
        let open = |_: EventCode, target: Target| {
            seen.borrow_mut().push(target);
            match target {
                Target::Process { user_only: true, .. } => Ok(Box::new(|| Some(1_u64)) as Reader),
                _ => Err(io::Error::from_raw_os_error(libc::EACCES)),
            }
        };
        assert!(Stalls::open(&open).is_ok());
        let pid = std::process::id();
        let user = Target::Process { pid, user_only: true };
        assert_eq!(seen.into_inner(), [Target::Process { pid, user_only: false }, user, user]);
    }

    #[test]
    fn a_processor_without_the_event_and_a_refusal_say_so() {
        let why = |number| Stalls::open(&refusing(number)).unwrap_err();
        assert!(matches!(why(libc::ENOENT), MemoryError::NoStalls));
        let denied = why(libc::EPERM).to_string();
        assert!(denied.contains("kernel.perf_event_paranoid"), "{denied}");
    }

    #[test]
    fn descriptors_of_jobs_are_bounded() {
        let open = |_: EventCode, _: Target| Ok(Box::new(|| Some(1_u64)) as Reader);
        let mut stalls = Stalls::open(&open).unwrap();
        for job in 0..MAX_JOBS {
            stalls.begin(&job.to_string(), 1, &open).unwrap();
        }
        assert!(matches!(stalls.begin("more", 1, &open), Err(MemoryError::ManyJobs(MAX_JOBS))));
        stalls.begin("0", 1, &open).unwrap();
        stalls.end("1");
        stalls.begin("more", 1, &open).unwrap();
    }
}
