//! Signals and job control: every signal reaches the program once, and a shell can stop and
//! continue the job as if `radrm-run` were not there.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{PATIENCE, Place, finish, python, until, wait};
use radrm_telemetry::process::Stat;

/// Says `ready`, counts the signals it gets in the file `counts`, and ends on SIGUSR2. The file comes after the last
/// word to the terminal, which a test may hang up from then on. The handlers only note signals: the next signal's
/// handler may run in the middle of one, and both would write the same file.
const COUNTER: &str = r#"
import os, signal, sys, time
got, done = [], []
def write(names):
    with open('counts.new', 'w') as f:
        f.write(' '.join('%s=%d' % (name, names.count(name)) for name in sorted(set(names))))
    os.rename('counts.new', 'counts')
def note(number, frame):
    got.append(signal.Signals(number).name)
names = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGWINCH', 'SIGALRM', 'SIGCONT', 'SIGURG', 'SIGABRT']
names += ['SIGIO', 'SIGPWR', 'SIGVTALRM'] + sys.argv[1:]
for name in names: signal.signal(getattr(signal, name), note)
signal.signal(signal.SIGUSR2, lambda *_: done.append(1))
print('ready', os.getpid(), flush=True)
written = []
write(written)
while not done:
    if len(got) != len(written):
        written = got[:]
        write(written)
    time.sleep(0.01)
"#;

fn send(pid: u32, signal: i32) {
    // SAFETY: a signal to a process that this test started.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), signal) }, 0);
}

/// Starts the counter under `radrm-run`; gives it and the counter's own process id.
fn counter(place: &Place, prepare: impl FnOnce(&mut Command)) -> (Child, u32) {
    let mut command = place.silent(&python(COUNTER));
    // A group of its own, so that group-wide signals stay away from the test.
    command.process_group(0);
    prepare(&mut command);
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().strip_prefix("ready ").unwrap().parse().unwrap())
}

fn counts(place: &Place) -> String {
    std::fs::read_to_string(place.join("counts")).unwrap_or_default()
}

/// Waits for a count, then long enough for a second one to show.
fn settle(place: &Place, expected: &str) {
    until(expected, || (counts(place) == expected).then_some(()));
    thread::sleep(Duration::from_millis(60));
    assert_eq!(counts(place), expected);
}

fn state(pid: u32) -> Option<char> {
    Stat::now(pid).map(|stat| char::from(stat.state))
}

/// Looks for a while: a process that is not stopped may be seen asleep, running or waiting for a disk.
fn stays_unstopped(pid: u32) {
    for _ in 0..15 {
        thread::sleep(Duration::from_millis(10));
        let state = state(pid).expect("it ended");
        assert!(!matches!(state, 'T' | 't' | 'Z' | 'X'), "state {state}: no process would continue this one");
    }
}

#[test]
fn a_signal_sent_to_us_reaches_the_program_once() {
    let place = Place::new();
    let (mut child, _) = counter(&place, |_| {});
    let signals = [
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGCONT, "SIGCONT"),
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGIO, "SIGIO"),
        (libc::SIGPWR, "SIGPWR"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGURG, "SIGURG"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGVTALRM, "SIGVTALRM"),
        (libc::SIGWINCH, "SIGWINCH"),
    ];
    let mut expected = String::new();
    for (number, name) in signals {
        send(child.id(), number);
        expected = format!("{expected} {name}=1").trim().to_owned();
        settle(&place, &expected);
    }
    send(child.id(), libc::SIGUSR2);
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn a_signal_sent_to_the_whole_group_from_outside_reaches_the_program_once() {
    let place = Place::new();
    let (mut child, _) = counter(&place, |_| {});
    let group = |signal: i32| {
        // SAFETY: a signal to the group that this test made.
        assert_eq!(unsafe { libc::kill(-child.id().cast_signed(), signal) }, 0);
    };
    let mut expected = String::new();
    for (number, name) in [
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGURG, "SIGURG"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGWINCH, "SIGWINCH"),
    ] {
        group(number);
        expected = format!("{expected} {name}=1").trim().to_owned();
        settle(&place, &expected);
    }
    // One to us alone is still told from one to the group, in any order.
    send(child.id(), libc::SIGTERM);
    settle(&place, &expected.replace("SIGTERM=1", "SIGTERM=2"));
    group(libc::SIGTERM);
    settle(&place, &expected.replace("SIGTERM=1", "SIGTERM=3"));
    // Also where several wait while we do not run.
    send(child.id(), libc::SIGSTOP);
    for (number, before, after) in
        [(libc::SIGINT, "SIGINT=1", "SIGINT=2"), (libc::SIGHUP, "SIGHUP=1", "SIGHUP=2")]
    {
        group(number);
        expected = expected.replace(before, after);
        settle(&place, &expected.replace("SIGTERM=1", "SIGTERM=3"));
    }
    send(child.id(), libc::SIGUSR1);
    send(child.id(), libc::SIGCONT);
    expected = expected.replace("SIGUSR1=1", "SIGUSR1=2").replace("SIGTERM=1", "SIGTERM=3");
    settle(&place, &format!("SIGALRM=1 SIGCONT=1 {}", expected.trim_start_matches("SIGALRM=1 ")));
    group(libc::SIGUSR2);
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn nothing_of_ours_outlives_a_run_that_is_killed() {
    let place = Place::new();
    let (mut child, program) = counter(&place, |_| {});
    let members = |group: u32| {
        let text = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let member = |pid: &String| {
            let stat = text(pid);
            let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
            fields.next() != Some("Z") && fields.nth(1) == Some(&group.to_string())
        };
        pids.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit())).filter(member).count()
    };
    assert_eq!(members(child.id()), 3, "we, the program, and the witness");
    child.kill().unwrap();
    wait(&mut child);
    until("only the program", || (members(child.id()) == 1).then_some(()));
    send(program, libc::SIGUSR2);
    until("no process", || (members(child.id()) == 0).then_some(()));
}

#[test]
fn a_value_sent_with_a_real_time_signal_arrives() {
    let place = Place::new();
    let program = "import signal, os\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 2])\n\
        print('ready', flush=True)\n\
        got = signal.sigwaitinfo([signal.SIGRTMIN + 2])\n\
        print(got.si_code == -1, got.si_signo - signal.SIGRTMIN)";
    let mut child = place.silent(&python(program)).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(4711) };
    // SAFETY: a signal to a process that this test started.
    unsafe { libc::sigqueue(child.id().cast_signed(), libc::SIGRTMIN() + 2, value) };
    line.clear();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "True 2\n");
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn without_a_handler_the_signal_ends_the_program_and_us() {
    let place = Place::new();
    let mut child = place.silent(&["sleep", "1000"]).process_group(0).spawn().unwrap();
    until("the start", || {
        let path = format!("/proc/{0}/task/{0}/children", child.id());
        std::fs::read_to_string(path).ok().filter(|text| !text.trim().is_empty())
    });
    send(child.id(), libc::SIGTERM);
    assert_eq!(wait(&mut child).signal(), Some(libc::SIGTERM));
}

#[test]
fn a_program_that_ignores_hang_ups_goes_on() {
    let place = Place::new();
    let mut command = place.silent(&["sh", "-c", "echo ready; sleep 0.4; exit 6"]);
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            Ok(())
        })
    };
    let mut child = command.process_group(0).spawn().unwrap();
    let mut byte = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    send(child.id(), libc::SIGHUP);
    assert_eq!(wait(&mut child).code(), Some(6));
}

#[test]
fn what_the_program_sends_to_its_group_does_not_come_back() {
    let place = Place::new();
    let program = "import os, signal, time\n\
        got = []\n\
        signal.signal(signal.SIGUSR1, lambda *_: got.append(1))\n\
        os.kill(0, signal.SIGUSR1)\n\
        if os.fork() == 0:\n    os.kill(0, signal.SIGUSR1); time.sleep(0.2); os._exit(0)\n\
        os.wait(); time.sleep(0.1)\n\
        print(len(got))";
    let output = finish(place.silent(&python(program)).process_group(0));
    output.code(0);
    assert_eq!(output.text(), "2\n");
}

#[test]
fn an_alarm_that_was_set_before_exec_reaches_the_program() {
    let place = Place::new();
    let (mut child, _) = counter(&place, |command| {
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // Longer than a busy machine takes until the program has its handlers.
                libc::alarm(4);
                Ok(())
            })
        };
    });
    settle(&place, "SIGALRM=1");
    send(child.id(), libc::SIGUSR2);
    wait(&mut child);
}

#[test]
fn a_program_stopped_from_outside_is_waited_for() {
    let place = Place::new();
    let (mut child, program) = counter(&place, |_| {});
    send(program, libc::SIGSTOP);
    until("the stop", || (state(program) == Some('T')).then_some(()));
    stays_unstopped(child.id());
    send(program, libc::SIGCONT);
    settle(&place, "SIGCONT=1");
    send(program, libc::SIGUSR2);
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn our_death_does_not_end_the_program() {
    let place = Place::new();
    let (mut child, program) = counter(&place, |_| {});
    send(child.id(), libc::SIGKILL);
    wait(&mut child);
    thread::sleep(Duration::from_millis(50));
    send(program, libc::SIGUSR1);
    settle(&place, "SIGUSR1=1");
    send(program, libc::SIGUSR2);
    until("the program's end", || state(program).is_none_or(|state| state == 'Z').then_some(()));
}

/// A terminal: we hold one end, a program the other.
struct Terminal {
    master: File,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    /// Starts a program as the leader of a session on a terminal of its own; gives our end.
    fn open(command: &mut Command) -> (File, Child) {
        let (mut master, mut slave) = (0, 0);
        let null = std::ptr::null_mut();
        // SAFETY: two descriptors are written; nothing else is asked for.
        assert_eq!(unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), null.cast()) }, 0);
        // SAFETY: fresh descriptors that nothing else owns.
        let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let master_number = master.as_raw_fd();
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        // SAFETY: system calls between fork and exec; standard input is the terminal by then.
        unsafe {
            command.pre_exec(move || {
                libc::close(master_number);
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            })
        };
        let child = command.spawn().unwrap();
        // The command keeps copies of the terminal; they must not outlive the program's.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        (master, child)
    }

    /// The same, with everything read that is shown.
    fn start(command: &mut Command) -> (Self, Child) {
        let (master, child) = Self::open(command);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut reader, text) = (master.try_clone().unwrap(), Arc::clone(&shown));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                text.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        (Self { master, shown }, child)
    }

    fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for a text behind what was awaited before.
    fn expect(&self, text: &str) {
        let pause = Duration::from_millis(10);
        for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
            let mut shown = self.shown.lock().unwrap();
            if let Some(at) = shown.find(text) {
                shown.drain(..at + text.len());
                return;
            }
            drop(shown);
            thread::sleep(pause);
        }
        panic!("waited in vain for {text:?}; shown: {:?}", self.shown.lock().unwrap());
    }
}

#[test]
fn the_terminals_signals_reach_the_program_once() {
    let place = Place::new();
    let (mut terminal, mut child) = Terminal::start(&mut place.silent(&python(COUNTER)));
    terminal.expect("ready");
    terminal.type_in("\x03");
    settle(&place, "SIGINT=1");
    terminal.type_in("\x1c");
    settle(&place, "SIGINT=1 SIGQUIT=1");
    let size = libc::winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the structure lives here.
    unsafe { libc::ioctl(terminal.master.as_raw_fd(), libc::TIOCSWINSZ, &size) };
    settle(&place, "SIGINT=1 SIGQUIT=1 SIGWINCH=1");
    send(child.id(), libc::SIGUSR2);
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn the_program_keeps_the_terminal() {
    let place = Place::new();
    let look =
        "import os, sys; print('tty', [os.isatty(n) for n in range(3)], os.tcgetpgrp(0) == os.getpgrp())";
    let (terminal, mut child) = Terminal::start(&mut place.silent(&python(look)));
    terminal.expect("tty [True, True, True] True");
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn a_shell_stops_and_continues_the_job() {
    let place = Place::new();
    let script = place.join("counter.py");
    std::fs::write(&script, COUNTER).unwrap();
    let mut command = place.command("bash", &["--norc", "--noprofile", "-i"]);
    command.env("PS1", "shell> ").env_remove("PROMPT_COMMAND");
    let (mut terminal, mut shell) = Terminal::start(&mut command);
    terminal.expect("shell> ");
    let program = env!("CARGO_BIN_EXE_radrm-run");
    terminal.type_in(&format!("'{program}' --quiet --no-profile --no-dataset python3 counter.py\n"));
    terminal.expect("ready ");
    for round in 1..=2 {
        terminal.type_in("\x1a");
        terminal.expect("Stopped");
        terminal.expect("shell> ");
        terminal.type_in("fg\n");
        settle(&place, &format!("SIGCONT={round}"));
    }
    terminal.type_in("\x1a");
    terminal.expect("shell> ");
    // In the background it runs on, and is ended from there.
    terminal.type_in("bg; sleep 0.1; kill -USR2 %1; wait %1; echo code=$((40 + $?))\n");
    terminal.expect("code=40\r\n");
    terminal.type_in("exit 3\n");
    assert_eq!(wait(&mut shell).code(), Some(3));
}

#[test]
fn a_program_that_ignores_ctrl_z_is_not_stopped_behind_its_back() {
    let place = Place::new();
    let program = format!("import signal\nsignal.signal(signal.SIGTSTP, signal.SIG_IGN)\n{COUNTER}");
    let (mut terminal, mut child) = Terminal::start(&mut place.silent(&python(&program)));
    terminal.expect("ready");
    terminal.type_in("\x1a");
    stays_unstopped(child.id());
    send(child.id(), libc::SIGUSR2);
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn a_hang_up_of_the_terminal_reaches_the_program_once() {
    let place = Place::new();
    // The kernel tells only the session's leader, which is radrm-run here.
    let (master, mut child) = Terminal::open(&mut place.silent(&python(COUNTER)));
    until("the start", || std::fs::exists(place.join("counts")).unwrap().then_some(()));
    drop(master);
    until("the hang-up", || counts(&place).contains("SIGHUP").then_some(()));
    thread::sleep(Duration::from_millis(60));
    assert!(counts(&place).contains("SIGHUP=1"), "{}", counts(&place));
    send(child.id(), libc::SIGUSR2);
    wait(&mut child);
}
