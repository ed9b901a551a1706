//! The program finds everything as it would without `radrm-run`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::{Place, finish, finish_with, python};

/// Program that prints what it can see of how it was started.
const SURROUNDINGS: &str = r#"
import os, resource, signal
status = open('/proc/self/status').read().split('\n')
wanted = ('SigBlk', 'SigIgn', 'SigCgt', 'Umask', 'SigPnd', 'NoNewPrivs', 'Seccomp', 'Cpus_allowed')
for line in status:
    if line.split(':')[0] in wanted: print(line)
def target(fd):
    try: return os.readlink('/proc/self/fd/' + fd)
    except OSError: return None
own = os.open('/proc/self/fd', os.O_RDONLY)
print(sorted((fd, target(fd).split(':')[0]) for fd in os.listdir(own) if target(fd) and int(fd) != own))
os.close(own)
print(os.getcwd(), os.umask(0o22), os.nice(0), os.getpgid(0) == int(os.environ['GROUP']), os.getsid(0))
for name in sorted(dir(resource)):
    if name.startswith('RLIMIT_'): print(name, resource.getrlimit(getattr(resource, name)))
hidden = ('LD_PRELOAD', 'RADRM_SEGMENT', 'RADRM_NOTICES', 'RADRM_QUIET', 'NVTX_INJECTION64_PATH', '_', 'GROUP')
print(sorted((k, v) for k, v in os.environ.items() if k not in hidden))
import ctypes
print('PDEATHSIG', (lambda v: (ctypes.CDLL(None).prctl(2, ctypes.byref(v)), v.value))(ctypes.c_int()))
"#;

/// Runs the program with and without us, prepared by `prepare`, and compares what it prints.
#[track_caller]
fn same_with_and_without(prepare: impl Fn(&mut Command)) -> String {
    let place = Place::new();
    let mut texts = Vec::new();
    for watched in [false, true] {
        // `exec` keeps the group's leader, whose number the program compares with.
        let mut command = if watched {
            place.silent(&python(SURROUNDINGS))
        } else {
            place.command("python3", &["-c", SURROUNDINGS])
        };
        command.env("GROUP", group().to_string());
        prepare(&mut command);
        let output = finish(&mut command);
        output.code(0);
        assert_eq!(output.stderr, "");
        texts.push(output.text());
    }
    assert_eq!(texts[0], texts[1]);
    texts.remove(0)
}

fn group() -> i32 {
    // SAFETY: always works.
    unsafe { libc::getpgrp() }
}

/// Runs code in the child before exec.
fn before(command: &mut Command, code: impl Fn() + Send + Sync + 'static) {
    // SAFETY: the closures here only make system calls.
    unsafe {
        command.pre_exec(move || {
            code();
            Ok(())
        })
    };
}

#[test]
fn surroundings_are_the_same() {
    let text = same_with_and_without(|_| {});
    assert!(text.contains("SigBlk:\t0000000000000000"), "{text}");
}

#[test]
fn ignored_signals_stay_ignored_and_blocked_ones_blocked() {
    let text = same_with_and_without(|command| {
        before(command, || {
            // SAFETY: plain system calls.
            unsafe {
                for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGCHLD, libc::SIGPIPE, libc::SIGXFSZ] {
                    libc::signal(signal, libc::SIG_IGN);
                }
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&mut set, libc::SIGUSR1);
                libc::sigaddset(&mut set, libc::SIGRTMIN() + 3);
                libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
            }
        });
    });
    assert!(text.contains("SigBlk:\t0000001000000200"), "{text}");
}

#[test]
fn a_default_sigpipe_is_default() {
    // Rust's Command resets SIGPIPE for its children, so the shell below sees the default, and so
    // must the program: `yes` dies silently.
    let place = Place::new();
    let script = format!(
        "'{}' --quiet --no-profile --no-dataset -- yes | head -n 1; echo ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_radrm-run")
    );
    let output = finish(&mut place.command("bash", &["-c", &script]));
    assert_eq!((output.text().as_str(), output.stderr.as_str()), ("y\n141\n", ""));
}

#[test]
fn umask_limits_and_niceness_are_inherited() {
    same_with_and_without(|command| {
        before(command, || {
            // SAFETY: plain system calls.
            unsafe {
                libc::umask(0o137);
                let limit = libc::rlimit { rlim_cur: 123, rlim_max: 321 };
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
                let limit = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
                libc::setrlimit(libc::RLIMIT_CORE, &limit);
                libc::nice(3);
            }
        });
    });
}

#[test]
fn open_files_are_inherited_and_none_is_added() {
    let text = same_with_and_without(|command| {
        before(command, || {
            // SAFETY: plain system calls.
            unsafe {
                let fd = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
                libc::dup2(fd, 17);
                libc::close(fd);
            }
        });
    });
    assert!(text.contains("('17', '/dev/null')"), "{text}");
}

#[test]
fn closed_standard_streams_stay_closed() {
    let place = Place::new();
    let look = "import os, sys; os.write(9, repr([os.path.exists('/proc/self/fd/%d' % n) for n in range(3)]).encode())";
    let script = format!(
        "exec 9>seen; exec '{}' --quiet --no-profile --no-dataset -- python3 -c \"{look}\" <&- >&- 2>&-",
        env!("CARGO_BIN_EXE_radrm-run")
    );
    finish(&mut place.command("bash", &["-c", &script])).code(0);
    assert_eq!(fs::read_to_string(place.join("seen")).unwrap(), "[False, False, False]");
}

#[test]
fn ten_megabytes_of_binary_pass_through_unchanged() {
    let place = Place::new();
    let mut state = 1_u64;
    let input: Vec<u8> = (0..10 << 20)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    let output = finish_with(&mut place.silent(&["cat"]), input.clone());
    output.code(0);
    assert!(output.stdout == input, "changed on the way");
}

#[test]
fn the_arguments_arrive_byte_for_byte() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let mut command = place.silent(&["printf", "%s|"]);
    command.args(["", "a b", "--", "-q", "$x", "line\nline"]).arg(OsStr::from_bytes(b"\xff\xfe"));
    let output = finish(&mut command);
    assert_eq!(output.stdout, b"|a b|--|-q|$x|line\nline|\xff\xfe|");
}

#[test]
fn what_was_preloaded_before_is_still_preloaded() {
    let place = Place::new();
    let mut command = place.silent(&["sh", "-c", "echo $LD_PRELOAD"]);
    command.env("LD_PRELOAD", "/no/such/library.so");
    let output = finish(&mut command);
    let text = output.text();
    assert!(text.trim_end().ends_with("/no/such/library.so"), "{text}");
}

#[test]
fn children_that_outlive_the_program_are_left_alone() {
    let place = Place::new();
    let mut command = place.silent(&["sh", "-c", "(sleep 0.3; echo late > late) >/dev/null 2>&1 &"]);
    finish(&mut command).code(0);
    assert!(!place.join("late").exists(), "we waited for a descendant");
    crate::common::until("the descendant", || {
        fs::read_to_string(place.join("late")).ok().filter(|text| text == "late\n")
    });
}

#[test]
fn all_descendants_are_waited_for_on_request() {
    let place = Place::new();
    let words = ["--quiet", "--no-profile", "--no-dataset", "--wait-all", "--", "sh", "-c"];
    let mut command = place.run(&words);
    command.arg("((sleep 0.2; echo late > late) &) >/dev/null 2>&1; exit 5");
    finish(&mut command).code(5);
    assert_eq!(fs::read_to_string(place.join("late")).unwrap(), "late\n");
}
