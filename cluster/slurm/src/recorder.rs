//! `radrm-run` beside the tasks of a step: it makes the step's segment, brings the limits into force, records, and
//! gives the environment that the tasks get.
//!
//! It runs as the job's user, in a session of its own and adopted by init, so that no signal for the tasks reaches it
//! and no task waits for it. It is started as soon as it is known that one is wanted, and gets the rest of its command
//! line where the tasks are about to be forked: what a process takes to start is over by then. It ends when its
//! standard input ends. If no line `end` came before that, `slurmstepd` was killed, and nothing else ends the tasks: the
//! recorder does.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Timeout of the environment. NVML answers within a second, or hangs.
const START: Duration = Duration::from_secs(20);
/// Timeout of writing the profile; after it the step ends without one.
const END: Duration = Duration::from_secs(15);
/// Marker before the variables.
const READY: &[u8] = b"\0ok\0";
/// Marker before the figures at the end.
const DONE: &[u8] = b"\0end\0";
/// By this a recorder knows that the step ended, and not only the process that it belongs to.
const END_LINE: &[u8] = b"end\n";
/// By this it knows that all tasks of the step have ended, and what they left is to be killed.
const KILL_LINE: &[u8] = b"kill\n";
/// More variables than any answer has.
const MAX_ANSWER: usize = 1 << 20;

/// A recorder under way.
#[derive(Debug)]
pub struct Recorder {
    input: OwnedFd,
    output: OwnedFd,
    /// Environment of the tasks, `NAME` and `VALUE`.
    pub variables: Vec<(CString, CString)>,
}

/// Identity that a recorder runs under.
#[derive(Clone, Debug)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// The further groups.
    pub groups: Vec<libc::gid_t>,
}

impl Identity {
    /// A user with the further groups of this process, which are the job's while `slurmstepd` has the user's rights.
    pub fn with_own_groups(uid: u32, gid: u32) -> Self {
        // SAFETY: asks for the number, then writes at most so many.
        let groups = unsafe {
            let count = libc::getgroups(0, std::ptr::null_mut());
            let mut groups = vec![0; usize::try_from(count).unwrap_or(0)];
            let written = libc::getgroups(count.max(0), groups.as_mut_ptr());
            groups.truncate(usize::try_from(written).unwrap_or(0));
            groups
        };
        Self { uid, gid, groups }
    }

    /// A user with the further groups that the system's tables state, which are those that Slurm gives to tasks where
    /// the controller states none. `None`: the user is unknown there.
    pub fn of_tables(uid: u32, gid: u32) -> Option<Self> {
        /// More than a line of the tables has.
        const LINE: usize = 64 * 1024;
        /// As many as the kernel lets a process have.
        const MAX_DESCRIPTORS: usize = 65_536;
        let mut line = vec![0; LINE];
        let mut groups: Vec<libc::gid_t> = vec![0; MAX_DESCRIPTORS];
        let mut count = libc::c_int::try_from(MAX_DESCRIPTORS).ok()?;
        // SAFETY: the entry points into the line, and both outlive the second call, which writes at most so many groups.
        let known = unsafe {
            let mut entry: libc::passwd = std::mem::zeroed();
            let mut found = std::ptr::null_mut();
            libc::getpwuid_r(uid, &raw mut entry, line.as_mut_ptr(), line.len(), &raw mut found) == 0
                && !found.is_null()
                && libc::getgrouplist(entry.pw_name, gid, groups.as_mut_ptr(), &raw mut count) >= 0
        };
        groups.truncate(usize::try_from(count).ok()?);
        known.then_some(Self { uid, gid, groups })
    }
}

/// Reason that there is no recorder, as one sentence.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum RecorderError {
    #[error("{program} cannot be started: {source}")]
    System { program: String, source: io::Error },
    #[error("{program} did not answer within {} s", START.as_secs())]
    Late { program: String },
    #[error("{0}")]
    Refused(String),
    #[error("{program} cannot be executed, or ended without an answer")]
    Silent { program: String },
}

/// A recorder that is being started: it waits for the rest of its command line, or has all of it.
#[derive(Debug)]
pub struct Begun {
    input: OwnedFd,
    output: OwnedFd,
    program: String,
}

impl Begun {
    /// Starts one. With `--later` as its first argument it waits for [`Begun::complete`].
    ///
    /// # Errors
    /// [`RecorderError::System`].
    pub fn start(
        program: &CStr,
        arguments: &[CString],
        environment: &[CString],
        identity: &Identity,
    ) -> Result<Self, RecorderError> {
        let shown = program.to_string_lossy().into_owned();
        let system = |source| RecorderError::System { program: shown.clone(), source };
        let (child_input, input) = pipe().map_err(system)?;
        let (output, child_output) = pipe().map_err(system)?;
        // Everything that the child needs is made before the fork: other threads of slurmstepd may hold locks.
        let arguments = pointers(arguments);
        let environment = pointers(environment);
        let descriptors = [child_input.as_raw_fd(), child_output.as_raw_fd()];
        // SAFETY: the child calls nothing but async-signal-safe functions.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(system(io::Error::last_os_error()));
        }
        if pid == 0 {
            // SAFETY: the lists end with null and outlive the call.
            unsafe { in_child(program, &arguments, &environment, descriptors, identity) };
        }
        drop((child_input, child_output));
        let mut status = 0;
        // SAFETY: our own child, which ends at once; its own child is adopted by init.
        while unsafe { libc::waitpid(pid, &mut status, 0) } == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        Ok(Self { input, output, program: shown })
    }

    /// Hands over the directory, the umask and the rest of the command line. One that is gone shows in its answer.
    pub fn complete(&self, directory: &[u8], umask: libc::mode_t, words: &[CString]) {
        let umask = format!("{umask:o}");
        let all = [directory, umask.as_bytes()].into_iter().chain(words.iter().map(|word| word.to_bytes()));
        let text: Vec<u8> = all.flat_map(|word| [word, b"\0"].concat()).collect();
        let text = [format!("{}\n", text.len()).into_bytes(), text].concat();
        write(self.input.as_raw_fd(), &text);
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// There is no recorder then: it has ended, or ends as soon as it reads its input.
    pub fn answer(self) -> Result<Recorder, RecorderError> {
        let Self { input, output, program } = self;
        let (text, is_late) = read_answer(output.as_raw_fd(), Instant::now() + START);
        match parse(&text) {
            Some(variables) => Ok(Recorder { input, output, variables }),
            None if is_late => Err(RecorderError::Late { program }),
            None => Err(match sentence(&text) {
                Some(sentence) => RecorderError::Refused(sentence),
                None => RecorderError::Silent { program },
            }),
        }
    }
}

/// Writes all of it. A reader that is gone has nothing to read.
fn write(fd: RawFd, mut text: &[u8]) {
    with_pipe_signal_blocked(|| {
        while !text.is_empty() {
            // SAFETY: bytes that live here.
            let written = unsafe { libc::write(fd, text.as_ptr().cast(), text.len()) };
            match usize::try_from(written) {
                Ok(written) => text = text.get(written..).unwrap_or_default(),
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
}

impl Recorder {
    /// Starts one and waits for its answer.
    ///
    /// # Errors
    /// As [`Begun::start`] and [`Begun::answer`].
    pub fn start(
        program: &CStr,
        arguments: &[CString],
        environment: &[CString],
        identity: &Identity,
    ) -> Result<Self, RecorderError> {
        Begun::start(program, arguments, environment, identity)?.answer()
    }

    /// Reports how a task ended. `status`: as of `wait`. Allocates nothing that outlives it, and never waits.
    pub fn ended(&self, pid: u32, status: i32) {
        write(self.input.as_raw_fd(), format!("{pid} {status}\n").as_bytes());
    }

    /// Has the recorder kill what is left of the step: no task of it is left.
    pub fn kill_rest(&self) {
        write(self.input.as_raw_fd(), KILL_LINE);
    }

    /// Ends the recording and waits until the profile is written: what else the recorder does is for later jobs.
    pub fn finish(self) -> Finished {
        write(self.input.as_raw_fd(), END_LINE);
        drop(self.input);
        let until = Instant::now() + END;
        let (text, is_late) = read_until(self.output.as_raw_fd(), until, |text| figures(text).is_some());
        if is_late {
            let late = "the profile takes long to write; the step does not wait for it any longer";
            return Finished { remark: Some(late.to_owned()), figures: Vec::new() };
        }
        match figures(&text) {
            Some((before, figures)) => Finished { remark: sentence(before), figures: figures.to_vec() },
            None => Finished { remark: sentence(&text), figures: Vec::new() },
        }
    }
}

/// Results that a recorder leaves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Finished {
    /// Remark of the recorder.
    pub remark: Option<String>,
    /// Lines `NAME VALUE`, for radrmd.
    pub figures: Vec<u8>,
}

/// Leaves everything of slurmstepd behind and becomes the recorder.
///
/// # Safety
/// Runs in a forked child of a process with threads; the lists end with null.
unsafe fn in_child(
    program: &CStr,
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
    [input, output]: [RawFd; 2],
    identity: &Identity,
) -> ! {
    // SAFETY: async-signal-safe calls only; on any failure this process ends.
    unsafe {
        libc::setsid();
        match libc::fork() {
            0 => {}
            _ => libc::_exit(0),
        }
        // Before the tasks slurmstepd has root's real, and the user's effective id; after them it is root.
        if (libc::getuid() != identity.uid || libc::geteuid() != identity.uid)
            && (libc::seteuid(0) != 0
                || libc::setgroups(identity.groups.len(), identity.groups.as_ptr()) != 0
                || libc::setresgid(identity.gid, identity.gid, identity.gid) != 0
                || libc::setresuid(identity.uid, identity.uid, identity.uid) != 0)
        {
            libc::_exit(1);
        }
        // Above all others, so that none of the three is overwritten.
        let input = libc::fcntl(input, libc::F_DUPFD, 16);
        let output = libc::fcntl(output, libc::F_DUPFD, 16);
        if libc::dup2(input, 0) < 0 || libc::dup2(output, 1) < 0 || libc::dup2(output, 2) < 0 {
            libc::_exit(1);
        }
        if libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) != 0 {
            for fd in 3..4096 {
                libc::close(fd);
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        libc::_exit(127)
    }
}

/// The variables of a complete answer.
fn parse(text: &[u8]) -> Option<Vec<(CString, CString)>> {
    let at = text.windows(READY.len()).position(|window| window == READY)?;
    let mut variables = Vec::new();
    let mut rest = text.get(at + READY.len()..)?;
    loop {
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (entry, after) = rest.split_at(end);
        if entry.is_empty() {
            return Some(variables);
        }
        let equals = entry.iter().position(|byte| *byte == b'=')?;
        let (name, value) = entry.split_at(equals);
        variables.push((CString::new(name).ok()?, CString::new(value.get(1..)?).ok()?));
        rest = after.get(1..)?;
    }
}

/// Text before the figures at the end, and the figures; `None` until they are complete.
fn figures(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.windows(DONE.len()).position(|window| window == DONE)?;
    let (before, rest) = (text.get(..at)?, text.get(at + DONE.len()..)?);
    Some((before, rest.split_last().filter(|(last, _)| **last == 0)?.1))
}

/// The first line that was written beside the answer.
fn sentence(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let line = text.split(['\0', '\n']).map(str::trim).find(|line| !line.is_empty() && *line != "ok")?;
    Some(line.strip_prefix("radrm-run: ").unwrap_or(line).to_owned())
}

fn read_answer(fd: RawFd, until: Instant) -> (Vec<u8>, bool) {
    read_until(fd, until, |text| parse(text).is_some())
}

/// Reads until `is_enough`, or the end of the input; `true`: it took too long.
fn read_until(fd: RawFd, until: Instant, is_enough: impl Fn(&[u8]) -> bool) -> (Vec<u8>, bool) {
    let mut text = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return (text, true);
        }
        let millis = i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1);
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure that lives here.
        if unsafe { libc::poll(&raw mut poll, 1, millis) } <= 0 {
            continue;
        }
        let mut room = [0_u8; 4096];
        // SAFETY: room of this size.
        let read = unsafe { libc::read(fd, room.as_mut_ptr().cast(), room.len()) };
        match usize::try_from(read) {
            Ok(0) => return (text, false),
            Ok(read) => text.extend_from_slice(room.get(..read).unwrap_or_default()),
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return (text, false),
        }
        if is_enough(&text) || text.len() > MAX_ANSWER {
            return (text, false);
        }
    }
}

/// Runs `write` so that a reader that is gone does not end this process.
fn with_pipe_signal_blocked(write: impl FnOnce()) {
    // SAFETY: plain system calls on this thread's mask; the sets live here. A signal that came of the write is taken
    // back before the mask is restored.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPIPE);
        libc::sigpending(&raw mut pending);
        let was_pending = libc::sigismember(&raw const pending, libc::SIGPIPE) == 1;
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        write();
        if !was_pending {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: two fresh descriptors that nothing else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        // SAFETY: always work.
        unsafe { Identity::with_own_groups(libc::getuid(), libc::getgid()) }
    }

    #[test]
    fn the_tables_state_the_groups_of_users_that_they_know() {
        // SAFETY: always works.
        let uid = unsafe { libc::getuid() };
        let known = Identity::of_tables(uid, 12_345).expect("this user");
        assert_eq!((known.uid, known.gid), (uid, 12_345));
        assert!(known.groups.contains(&12_345), "{known:?}");
        assert!(Identity::of_tables(54_711_054, 1).is_none());
    }

    fn shell(script: &str) -> Result<Recorder, RecorderError> {
        let arguments = [c"sh".to_owned(), c"-c".to_owned(), CString::new(script).unwrap()];
        Recorder::start(c"/bin/sh", &arguments, &[], &identity())
    }

    #[test]
    fn the_environment_comes_from_the_answer() {
        let recorder =
            shell(r"echo 'a remark' >&2; printf '\0ok\0A=1\0B=x=y\0\0'; cat >/dev/null; echo 'the end' >&2")
                .unwrap();
        let shown: Vec<_> =
            recorder.variables.iter().map(|(name, value)| format!("{name:?}{value:?}")).collect();
        assert_eq!(shown, [r#""A""1""#, r#""B""x=y""#]);
        recorder.ended(7, 0);
        assert_eq!(recorder.finish().remark.as_deref(), Some("the end"));
    }

    #[test]
    fn a_step_waits_for_the_figures_and_not_for_what_follows() {
        let script = format!(
            r"printf '\0ok\0\0'; grep -qx end; echo 'a remark' >&2; printf '\0end\0peak 5\n\0'; exec sleep {}",
            2 * END.as_secs()
        );
        let finished = shell(&script).unwrap().finish();
        assert_eq!(
            (finished.remark.as_deref(), finished.figures.as_slice()),
            (Some("a remark"), &b"peak 5\n"[..])
        );
    }

    #[test]
    fn the_rest_of_a_command_line_comes_later() {
        let script = r"read -r length; printf '\0ok\0A=%s\0\0' $length; head -c $length | tr '\0' ,; exec cat >/dev/null";
        let arguments = [c"sh".to_owned(), c"-c".to_owned(), CString::new(script).unwrap()];
        let begun = Begun::start(c"/bin/sh", &arguments, &[], &identity()).unwrap();
        begun.complete(b"/a b", 0o27, &[c"x".to_owned(), c"".to_owned()]);
        let recorder = begun.answer().unwrap();
        assert_eq!(recorder.variables, [(c"A".to_owned(), c"11".to_owned())]);
        let (text, _) =
            read_until(recorder.output.as_raw_fd(), Instant::now() + END, |text| text.len() >= 11);
        assert_eq!(text, b"/a b,27,x,,");
    }

    #[test]
    fn a_recorder_that_refuses_gives_its_reason() {
        let error = shell("echo 'radrm-run: no limit can hold: x' >&2; exit 125").unwrap_err();
        assert_eq!(error.to_string(), "no limit can hold: x");
        let error = Recorder::start(c"/nowhere", &[c"x".to_owned()], &[], &identity()).unwrap_err();
        assert!(error.to_string().contains("/nowhere cannot be executed"), "{error}");
        assert!(shell("exit 0").is_err() && shell(r"printf '\0ok\0A=1\0'").is_err());
    }

    #[test]
    fn a_killed_recorder_does_no_harm() {
        let recorder = shell(r"printf '\0ok\0\0'; exec <&-; exit").unwrap();
        while read_until(recorder.output.as_raw_fd(), Instant::now() + END, |_| false).1 {}
        recorder.ended(7, 9);
        assert_eq!(recorder.finish(), Finished::default());
    }
}
