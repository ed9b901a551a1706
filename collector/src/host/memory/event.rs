//! perf events by the numbers that the kernel's files name. The crate `perf-event` opens those with names of its own only.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

/// An event of a unit that counts (`perf_event_open(2)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventCode {
    /// Number of the unit, or of the kernel's kind of events.
    pub(super) kind: u32,
    /// `config`, `config1` and `config2`.
    pub(super) config: [u64; 3],
}

/// Processes or processors of which an event is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// All that a unit counts, which this processor reads.
    Processor(u32),
    /// A process, and what it starts from now on. `user_only`: not while the kernel works for them.
    Process { pid: u32, user_only: bool },
}

/// The kernel's `struct perf_event_attr`, in the second of its published sizes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
}

const SIZE: u32 = 72;
const _: () = assert!(size_of::<Attributes>() == SIZE as usize);

/// `PERF_FORMAT_TOTAL_TIME_ENABLED` and `PERF_FORMAT_TOTAL_TIME_RUNNING`.
const WITH_TIMES: u64 = 0b11;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// A counter that the kernel runs.
#[derive(Debug)]
pub(super) struct Counter(OwnedFd);

impl Counter {
    /// # Errors
    /// The kernel's: it is not allowed, or there is no such event.
    pub(super) fn open(code: EventCode, target: Target) -> io::Result<Self> {
        let (pid, processor, flags) = match target {
            Target::Processor(number) => (-1, libc::c_int::try_from(number).map_err(io::Error::other)?, 0),
            Target::Process { pid, user_only } => {
                let flags = if user_only { EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR } else { 0 };
                (libc::pid_t::try_from(pid).map_err(io::Error::other)?, -1, INHERIT | flags)
            }
        };
        let [config, config1, config2] = code.config;
        let attributes = Attributes {
            kind: code.kind,
            size: SIZE,
            config,
            config1,
            config2,
            read_format: WITH_TIMES,
            flags,
            ..Attributes::default()
        };
        let no_group: libc::c_int = -1;
        // SAFETY: the kernel reads `SIZE` bytes of the attributes, which live until it returns, and keeps no pointer to them.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                pid,
                processor,
                no_group,
                CLOSE_ON_EXEC,
            )
        };
        let fd = RawFd::try_from(opened).map_err(io::Error::other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and owned by no other value.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The count so far, scaled up where the unit counted for a part of the time. `None`: it was never counted, or the
    /// kernel does not say.
    pub(super) fn value(&self) -> Option<u64> {
        crate::host::perf::counted(self.0.as_fd()).map(|(value, _)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_TASK_CLOCK`, ns: every kernel with perf events has it.
    const TASK_CLOCK: EventCode = EventCode { kind: 1, config: [1, 0, 0] };

    #[test]
    fn a_counter_of_the_kernel_counts_the_time_of_its_process() {
        // SAFETY: a call without arguments.
        let thread = unsafe { libc::gettid() };
        let target = Target::Process { pid: thread.unsigned_abs(), user_only: true };
        let counter = match Counter::open(TASK_CLOCK, target) {
            Ok(counter) => counter,
            // perf is not allowed here; what stands for it is tested with other readers.
            Err(error) => return assert!(crate::host::perf::not_allowed(&error), "{error}"),
        };
        let before = counter.value().expect("a software event always counts");
        let mut sum = 0_u64;
        let mut after = before;
        while after < before + 1_000_000 {
            sum = std::hint::black_box(sum + 1);
            after = counter.value().expect("count");
        }
        assert!(sum > 0 && after > before);
        let own = rustix::io::fcntl_getfd(&counter.0).expect("flags");
        assert!(own.contains(rustix::io::FdFlags::CLOEXEC), "no job finds it");
    }

    #[test]
    fn an_event_that_no_kernel_has_is_an_error() {
        let none = EventCode { kind: u32::MAX, config: [0; 3] };
        assert!(Counter::open(none, Target::Processor(0)).is_err());
        assert!(Counter::open(none, Target::Processor(u32::MAX)).is_err());
        let who = Target::Process { pid: u32::MAX, user_only: true };
        assert!(Counter::open(TASK_CLOCK, who).is_err());
    }
}
