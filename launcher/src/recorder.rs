//! The recorder: what stays of `radrm-run` with processes that outlive their program.
//!
//! It is a forked child with a session of its own, which holds the segment, goes on with the profile and completes both
//! when the last process that can join has ended. It has none of the user's descriptors: a pipe that a script reads ends
//! with the processes that write to it. If it is killed, limits hold all the same, and the next `radrm-run` removes what it
//! has left.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use radrm_limits::carriers::Carriers;
use radrm_os::{ProcessIdentity, pidfd};

use crate::recording::Recording;

/// Time that processes have to end when the recorder is asked to end, as at the end of a session: they got the same
/// signal.
const GRACE: Duration = Duration::from_secs(2);
/// Between two searches for processes.
const SEARCH_INTERVAL: Duration = Duration::from_millis(50);
/// The same while all that is left is known by locks.
const LOCK_INTERVAL: Duration = Duration::from_millis(500);

/// Time that processes have to end with their program: a helper of Python's multiprocessing does so by itself.
const SETTLING: Duration = Duration::from_millis(250);

/// The processes that go on without their program.
pub fn left(recording: &Recording) -> Carriers {
    let end = Instant::now() + SETTLING;
    loop {
        let carriers = recording.carriers();
        let rest = end.saturating_duration_since(Instant::now());
        if carriers.is_empty() || rest.is_zero() {
            return carriers;
        }
        match carriers.processes.iter().find_map(|carrier| Awaited::of(*carrier)) {
            Some(awaited) => poll(&mut [readable(awaited.0.as_raw_fd())], rest),
            None => poll(&mut [], rest.min(SEARCH_INTERVAL)),
        };
    }
}

/// Side of the fork on which this process is.
pub enum Side {
    /// The one that was started, and reports.
    Launcher(libc::pid_t),
    /// The one that stays.
    Recorder,
}

/// Forks the recorder. The process has one thread that matters: those of the recording are at rest.
///
/// # Errors
/// The system can make no process.
pub fn fork() -> io::Result<Side> {
    // SAFETY: the threads of the recording have ended; another library's threads hold no lock that the child takes but the
    // allocator's, which the C library looks after.
    match unsafe { libc::fork() } {
        0 => {
            detach();
            Ok(Side::Recorder)
        }
        pid if pid < 0 => Err(io::Error::last_os_error()),
        pid => Ok(Side::Launcher(pid)),
    }
}

/// Ends the recorder. Handlers of libraries that its parent loaded do not run.
pub fn exit() -> ! {
    // SAFETY: ends this process.
    unsafe { libc::_exit(0) }
}

/// Leaves terminal, session, directory and the user's descriptors.
fn detach() {
    // SAFETY: plain system calls on this process.
    unsafe {
        libc::setsid();
        libc::chdir(c"/".as_ptr());
    }
    for fd in inherited() {
        // SAFETY: a descriptor that no part of this program has opened: those have the flag.
        unsafe { libc::close(fd) };
    }
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        for fd in 0..3 {
            // SAFETY: the standard streams, which are the user's until now.
            unsafe { libc::dup2(null.as_raw_fd(), fd) };
        }
    }
}

/// Descriptors that came from the caller of `radrm-run`: they were not closed when it was executed.
fn inherited() -> Vec<RawFd> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let all: Vec<RawFd> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // SAFETY: reads a flag; of a descriptor that is not open it gives an error.
    let is_inherited = |fd: &RawFd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } & libc::FD_CLOEXEC == 0;
    all.into_iter().filter(|fd| *fd > 2).filter(is_inherited).collect()
}

/// Records until no process can join any more, or a signal asks this process to end. Gives those that are left then.
/// `is_final`: the recording is complete, and not polled.
pub fn wait(recording: &mut Recording, is_final: bool, carriers: Carriers) -> Carriers {
    let signals = Signals::new();
    let mut carriers = carriers;
    let mut give_up: Option<Instant> = None;
    loop {
        let awaited = carriers.processes.iter().find_map(|carrier| Awaited::of(*carrier));
        let mut at_most = if is_final { Duration::MAX } else { recording.poll() };
        if awaited.is_none() {
            carriers = recording.carriers();
            if carriers.is_empty() {
                return carriers;
            }
            let interval = if carriers.processes.is_empty() { LOCK_INTERVAL } else { SEARCH_INTERVAL };
            at_most = at_most.min(interval);
        }
        if let Some(until) = give_up {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return recording.carriers();
            }
            at_most = at_most.min(left);
        }
        if signals.wait(awaited.as_ref(), at_most) {
            give_up.get_or_insert_with(|| Instant::now() + GRACE);
        }
    }
}

/// A process whose end wakes this one.
struct Awaited(OwnedFd);

impl Awaited {
    /// `None`: it has ended, or there is no descriptor for it.
    fn of(process: ProcessIdentity) -> Option<Self> {
        let handle = pidfd::open(process.pid).ok()?;
        // Of another process if that number was given away meanwhile.
        process.lives().then_some(Self(handle)).filter(|awaited| !awaited.has_ended())
    }

    fn has_ended(&self) -> bool {
        poll(&mut [readable(self.0.as_raw_fd())], Duration::ZERO)
    }
}

/// The signals that ask this process to end.
struct Signals(Option<OwnedFd>);

impl Signals {
    fn new() -> Self {
        // SAFETY: the set is filled before it is used; all signals are blocked in this process since it was started.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        // SAFETY: a fresh descriptor that nothing else owns.
        Self((fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Waits until the process has ended, a signal is there or the time is over; gives whether there was a signal.
    fn wait(&self, awaited: Option<&Awaited>, at_most: Duration) -> bool {
        let signals = self.0.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let process = awaited.map_or(-1, |awaited| awaited.0.as_raw_fd());
        poll(&mut [readable(signals), readable(process)], at_most) && self.take()
    }

    fn take(&self) -> bool {
        let Some(fd) = &self.0 else { return false };
        let mut room = [0_u8; 128];
        // SAFETY: reads into a place of this length, which one record has.
        unsafe { libc::read(fd.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) > 0 }
    }
}

/// Request to `poll` for a descriptor; a negative one is left out.
fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Returns true if one of them can be read within this time.
fn poll(fds: &mut [libc::pollfd], at_most: Duration) -> bool {
    // Rounded up: a rest of less than a millisecond would be waited for by asking again and again.
    let millis = i32::try_from(at_most.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    let count = fds.len() as libc::nfds_t;
    // SAFETY: a list of this length that lives here.
    unsafe { libc::poll(fds.as_mut_ptr(), count, millis) > 0 }
}
