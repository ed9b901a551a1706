//! Counters of the processors and the kernel for a program and all that it starts.

use perf_event::events::{Event, Hardware, Software};
use perf_event::{Builder, Counter};
use radrm_profile::model::{CountSource, HostCount, HostCounter, Share};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// Counts that are made, each with its event.
///
/// Context switches and page faults are left to what the kernel says at the end: as perf events they change the
/// kernel's code on all processors when the first is opened and the last is closed, and each process that the
/// program starts has to inherit them.
const EVENTS: [(HostCount, Event); 4] = [
    (HostCount::TaskClock, Event::Software(Software::TASK_CLOCK)),
    (HostCount::Cycles, Event::Hardware(Hardware::CPU_CYCLES)),
    (HostCount::Instructions, Event::Hardware(Hardware::INSTRUCTIONS)),
    (HostCount::CacheMisses, Event::Hardware(Hardware::CACHE_MISSES)),
];

/// perf events of a program. They count the thread that is named and whatever that thread starts from
/// then on, so they are to be opened as soon as the program has started.
#[derive(Debug, Default)]
pub struct HostCounters {
    counters: Vec<(HostCount, Counter, CountSource)>,
    missing: Vec<String>,
}

impl HostCounters {
    /// Opens them for a process. Never fails: what the machine does not count or this user may not
    /// count is left out, and said by [`HostCounters::missing`].
    pub fn open(pid: u32) -> HostCounters {
        let mut opened = HostCounters::default();
        let Some(pid) = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0) else { return opened };
        let (mut denied, mut absent) = (Vec::new(), Vec::new());
        for (count, event) in EVENTS {
            match open(pid, count, event) {
                Ok((counter, source)) => opened.counters.push((count, counter, source)),
                Err(error) if not_allowed(&error) => denied.push(count),
                Err(_) => absent.push(count),
            }
        }
        if denied.len() == EVENTS.len() {
            opened.missing.push(
                "counters of the job's processes: perf events are not allowed (kernel.perf_event_paranoid, a container's \
                 seccomp filter, or a program with set-user-id); processor time comes from /proc and from the kernel's \
                 figures at the end"
                    .into(),
            );
            return opened;
        }
        for (counts, why) in [
            (denied, "perf does not allow them"),
            (absent, "the processor's counters cannot be reached, as in most virtual machines"),
        ] {
            let names: Vec<&str> = counts.into_iter().map(HostCount::label).collect();
            if !names.is_empty() {
                opened.missing.push(format!("{} of the host: {why}", names.join(", ")));
            }
        }
        opened
    }

    /// Counts that could not be opened: clauses, each with its reason.
    pub(crate) fn missing(&mut self) -> Vec<String> {
        std::mem::take(&mut self.missing)
    }

    /// The counts up to now.
    pub(crate) fn read(&self) -> Vec<HostCounter> {
        let read = |(count, counter, source): &(HostCount, Counter, CountSource)| {
            // SAFETY: the counter keeps its descriptor open while it is borrowed.
            let fd = unsafe { BorrowedFd::borrow_raw(counter.as_raw_fd()) };
            let (value, counted) = counted(fd)?;
            Some(HostCounter { kind: *count as u8, value, source: *source, counted })
        };
        self.counters.iter().filter_map(read).collect()
    }
}

pub(super) fn not_allowed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::ENOSYS))
}

/// Opens a counter of user and kernel mode, or of user mode where that is all that is allowed.
fn open(pid: libc::pid_t, count: HostCount, event: Event) -> io::Result<(Counter, CountSource)> {
    let counter = |with_kernel: bool| {
        let mut builder = Builder::new().kind(event.clone()).observe_pid(pid).any_cpu();
        builder.inherit(true).exclude_kernel(!with_kernel).exclude_hv(!with_kernel).enabled(true);
        builder.build()
    };
    let (counter, source) = match counter(true) {
        Ok(counter) => (counter, CountSource::Perf),
        Err(error) if not_allowed(&error) => {
            let source =
                if count == HostCount::TaskClock { CountSource::Perf } else { CountSource::PerfUser };
            (counter(false)?, source)
        }
        Err(error) => return Err(error),
    };
    // SAFETY: the counter's own descriptor; a flag of it is set, so that no program that is started
    // later finds it.
    unsafe { libc::fcntl(counter.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    Ok((counter, source))
}

/// The count of a perf event, over all of the time, and the share of it in which was counted. `None` if it never was.
pub(super) fn counted(fd: BorrowedFd<'_>) -> Option<(u64, Share)> {
    scaled(words(fd)?)
}

/// Count, time enabled and time running.
fn words(fd: BorrowedFd<'_>) -> Option<[u64; 3]> {
    let mut bytes = [0; 24];
    if rustix::io::read(fd, &mut bytes).ok()? != bytes.len() {
        return None;
    }
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}

/// A count over all of the time, and the share of it in which was counted. `None` if it never was.
fn scaled([count, enabled, running]: [u64; 3]) -> Option<(u64, Share)> {
    if running == 0 {
        // A program that never ran has no counts; one whose counter never ran has unknown ones.
        return (enabled == 0).then_some((count, Share::ONE));
    }
    if running >= enabled {
        return Some((count, Share::ONE));
    }
    let value = u128::from(count) * u128::from(enabled) / u128::from(running);
    Some((u64::try_from(value).unwrap_or(u64::MAX), Share::new(running as f64 / enabled as f64)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_shared_counters_are_scaled_up() {
        assert_eq!(scaled([100, 1000, 250]), Some((400, Share(2500))));
        assert_eq!(scaled([100, 1000, 1000]), Some((100, Share::ONE)));
        assert_eq!(scaled([100, 1000, 1001]), Some((100, Share::ONE)));
        assert_eq!(scaled([0, 1000, 0]), None);
        assert_eq!(scaled([u64::MAX, u64::MAX, 1]), Some((u64::MAX, Share(0))));
    }

    #[test]
    fn without_a_process_nothing_is_opened() {
        let mut counters = HostCounters::open(0);
        assert!(counters.read().is_empty() && counters.missing().is_empty());
    }

    #[test]
    fn children_are_counted_with_their_parent() {
        let counters = HostCounters::open(std::process::id());
        let of = |counters: &HostCounters| {
            counters.read().iter().find(|c| c.kind == HostCount::TaskClock as u8).map(|c| c.value)
        };
        // This test's own thread need not be the one that is counted: it may be any but the first.
        if of(&counters).is_none() {
            return; // perf is not allowed here; what stands for it is tested elsewhere
        }
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 0.05; i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done"])
            .spawn()
            .unwrap();
        let counters = HostCounters::open(child.id());
        child.wait().unwrap();
        assert!(of(&counters).unwrap() > 1_000_000, "{:?}", counters.read());
    }
}
