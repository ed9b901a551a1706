//! The wait for the program: signals, job control, and a regular poll of its figures.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use radrm_telemetry::process::Stat;

use super::ending::Ending;
use super::job_control::{Action, Event, JobControl, World};
use super::signals::{self, Arrived, Held, Sender};
use super::witness::Witness;

/// Time for a continued group before the program is woken by hand. A shell continues all members in one system
/// call, so this is far more than it takes.
const GRACE: Duration = Duration::from_millis(5);

/// Time for a child whose time is up, before it gets a signal, and again before it is killed.
const TIME_TO_STOP: Duration = Duration::from_secs(5);

/// The end of the program and what it used.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// End of the program.
    pub ending: Ending,
    /// Processor time in user mode, of the program and its waited-for children.
    pub user: Duration,
    /// Processor time in the kernel, likewise.
    pub system: Duration,
    /// The largest resident set in bytes, likewise.
    pub max_resident: u64,
    /// Context switches, likewise.
    pub context_switches: u64,
    /// Page faults without the disk, likewise.
    pub minor_faults: u64,
    /// Page faults that needed the disk, likewise.
    pub major_faults: u64,
}

/// Observer that is polled while the program runs.
pub trait Observer {
    /// Called when the time has come; says after how long it wants to be called again.
    fn poll(&mut self) -> Duration;

    /// The program has ended so, and what it started is waited for.
    fn goes_on(&mut self, ending: Ending);

    /// A descendant other than the program has ended.
    fn descendant_ended(&mut self, pid: libc::pid_t, ending: Ending);
}

/// Waits for one child.
pub struct Supervisor {
    child: libc::pid_t,
    held: Held,
    witness: Witness,
    state: JobControl,
    /// Time at which the child's time is up, and the signal that it gets then.
    deadline: Option<(Instant, i32)>,
    /// The last signal that it got because its time was up.
    stopped_by: Option<i32>,
}

/// The program as the system shows it.
struct Shown(libc::pid_t);

impl World for Shown {
    fn is_stopped(&self) -> bool {
        Stat::now(self.0.unsigned_abs()).is_some_and(|stat| stat.state == b'T')
    }

    fn stays_stopped(&self) -> bool {
        let since = Instant::now();
        loop {
            if !self.is_stopped() {
                return false;
            }
            if since.elapsed() >= GRACE {
                return true;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn in_foreground(&self) -> bool {
        let Ok(terminal) = fs::File::open("/dev/tty") else { return false };
        // SAFETY: an open descriptor; both calls only read.
        unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) == libc::getpgrp() }
    }
}

impl Supervisor {
    /// Watches `child`, whose signals are in `held` since before it was started. `witness` is younger
    /// than both.
    #[must_use]
    pub fn new(child: libc::pid_t, held: Held, witness: Witness) -> Self {
        // SAFETY: getsid of this process always works.
        let leads_session = unsafe { libc::getsid(0) } == signals::own_pid();
        Self { child, held, witness, state: JobControl::new(leads_session), deadline: None, stopped_by: None }
    }

    /// Ends the child when so much time has passed: a child that stops itself then has a moment for it.
    pub fn end_after(&mut self, time: Duration) {
        self.deadline = Some((Instant::now() + time + TIME_TO_STOP, libc::SIGTERM));
    }

    /// The signal that the child got because its time was up, if it did not stop itself.
    #[must_use]
    pub fn stopped_by(&self) -> Option<i32> {
        self.stopped_by
    }

    /// Signals the child if its time is up.
    fn check_deadline(&mut self) {
        let Some((_, signal)) = self.deadline.filter(|(at, _)| Instant::now() >= *at) else { return };
        // SAFETY: a signal to a child that was not waited for.
        unsafe { libc::kill(self.child, signal) };
        self.stopped_by = Some(signal);
        self.deadline = (signal != libc::SIGKILL).then(|| (Instant::now() + TIME_TO_STOP, libc::SIGKILL));
    }

    /// The signal by which the child was meant to end, whatever the child made of it, if there was one.
    #[must_use]
    pub fn told_to_end(&self, ending: Ending) -> Option<i32> {
        let killed_it = |signal: i32| matches!(ending, Ending::Killed { signal: by, .. } if by == signal);
        let asked = |signal: i32| signals::asks_to_end(signal) && !signals::is_ignored(signal);
        let mut arrived = self.state.arrived().iter().copied();
        arrived.clone().find(|signal| killed_it(*signal)).or_else(|| arrived.find(|signal| asked(*signal)))
    }

    /// Waits until the child has ended.
    pub fn wait(&mut self, observer: &mut dyn Observer) -> Ended {
        let mut next_poll = Instant::now();
        loop {
            if let Some(ended) = self.reap() {
                return ended;
            }
            let now = Instant::now();
            if now >= next_poll {
                next_poll = now + observer.poll();
            }
            self.check_deadline();
            let next = self.deadline.map_or(next_poll, |(at, _)| at.min(next_poll));
            let left = next.saturating_duration_since(Instant::now());
            if let Some(arrived) = self.held.next(left) {
                self.take(arrived);
            }
        }
    }

    /// Waits until no descendant is left, for a process that adopts orphans. A signal that would
    /// end this process ends the wait. `false` if descendants are left.
    pub fn wait_for_all(&mut self, ending: Ending, observer: &mut dyn Observer) -> bool {
        let mut next_poll = Instant::now();
        let mut goes_on = false;
        loop {
            if !reap_adopted(observer) {
                return true;
            }
            if !std::mem::replace(&mut goes_on, true) {
                observer.goes_on(ending);
            }
            let now = Instant::now();
            if now >= next_poll {
                next_poll = now + observer.poll();
            }
            let left = next_poll.saturating_duration_since(Instant::now());
            if let Some(arrived) = self.held.next(left)
                && signals::asks_to_end(arrived.signal)
            {
                return false;
            }
        }
    }

    /// Throws away what is pending, so that a second Ctrl-C during the last moments of the
    /// program does not change how this process ends.
    pub fn drain(&self) {
        while self.held.next(Duration::ZERO).is_some() {}
    }

    /// Takes one signal: whom it is from is seen here, what follows is decided by [`JobControl`].
    fn take(&mut self, arrived: Arrived) {
        // Asked for every signal, so that nothing old is taken for something new.
        let to_group = self.witness.saw(arrived.signal);
        let sender = match arrived.sender(self.child) {
            Sender::Process if to_group => Sender::ToGroup,
            sender => sender,
        };
        if self.handle(Event::Signal { signal: arrived.signal, sender }) == Action::PassOn {
            arrived.pass_on(self.child);
        }
        let action = self.handle(Event::Taken);
        self.follow(action);
    }

    fn handle(&mut self, event: Event) -> Action {
        self.state.handle(event, &Shown(self.child))
    }

    fn follow(&self, action: Action) {
        if let Action::Stop(signal) = action {
            stop_self(signal);
        }
    }

    fn reap(&mut self) -> Option<Ended> {
        loop {
            let mut status = 0;
            let mut usage = MaybeUninit::<libc::rusage>::zeroed();
            let flags = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
            // SAFETY: our own child; status and usage live here.
            let got = unsafe { libc::wait4(self.child, &mut status, flags, usage.as_mut_ptr()) };
            if got == 0 {
                return None;
            }
            // SAFETY: wait4 filled it, and it was zeroed before.
            let usage = unsafe { usage.assume_init() };
            if got < 0 {
                // Another wait took the child (it cannot be: we have one thread). Say so by the
                // code that stands for a failure of ours rather than wait for ever.
                return Some(ended(Ending::Exited(super::ending::FAILED), &usage));
            }
            if let Some(ending) = Ending::from_status(status) {
                return Some(ended(ending, &usage));
            }
            if libc::WIFSTOPPED(status) {
                let action = self.handle(Event::Stopped(libc::WSTOPSIG(status)));
                self.follow(action);
            } else {
                self.handle(Event::Continued);
            }
        }
    }
}

/// Stops this process by the signal that stopped the program; returns when it is continued.
fn stop_self(signal: i32) {
    if signal == libc::SIGSTOP {
        // SAFETY: a signal to this process.
        unsafe { libc::kill(signals::own_pid(), libc::SIGSTOP) };
        return;
    }
    // SAFETY: plain system calls on this process, structures live here; the default action of
    // these signals runs no code of ours.
    unsafe {
        let before = libc::signal(signal, libc::SIG_DFL);
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, signal);
        libc::kill(signals::own_pid(), signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &only, std::ptr::null_mut());
        libc::sigprocmask(libc::SIG_BLOCK, &only, std::ptr::null_mut());
        libc::signal(signal, before);
    }
}

/// Collects what has ended; `false` when there is no child left.
fn reap_adopted(observer: &mut dyn Observer) -> bool {
    loop {
        let mut status = 0;
        // SAFETY: status lives here.
        match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
            0 => return true,
            pid if pid > 0 => {
                if let Some(ending) = Ending::from_status(status) {
                    observer.descendant_ended(pid, ending);
                }
            }
            _ => return false,
        }
    }
}

fn ended(ending: Ending, usage: &libc::rusage) -> Ended {
    Ended {
        ending,
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        max_resident: number(usage.ru_maxrss) * 1024,
        context_switches: number(usage.ru_nvcsw).saturating_add(number(usage.ru_nivcsw)),
        minor_faults: number(usage.ru_minflt),
        major_faults: number(usage.ru_majflt),
    }
}

fn number(number: libc::c_long) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn duration(time: libc::timeval) -> Duration {
    let micros = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_usec);
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Makes this process the parent of descendants whose own parent ends, so that it can wait for
/// them.
pub fn adopt_orphans() {
    // SAFETY: sets a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}
