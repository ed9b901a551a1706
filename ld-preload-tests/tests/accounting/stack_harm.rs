//! Recording call stacks harms no program: small stacks of signal handlers, and filters that kill.

use std::process::Command;

use radrm_preload_tests::{
    child,
    figures::Outcome,
    programs,
    rig::{PATIENCE, Rig},
};

use crate::stacks::recorded;

/// Stacks that were not read, with the remark of the report.
#[track_caller]
fn not_read(rig: &Rig, outcome: &Outcome) -> (u64, String) {
    let stacks = outcome.profile.processes[0].stacks.as_ref().expect("stacks were recorded");
    let text = rig.report(&[]).stdout;
    let remarks = text.lines().filter(|line| line.contains(" of them: "));
    (stacks.unread, remarks.map(str::trim).collect::<Vec<_>>().join("; "))
}

#[test]
fn a_signal_handler_with_a_small_stack_gets_its_memory() {
    let program = programs::compile("signal_stack.c", &[]);
    // 8 KiB is SIGSTKSZ of most programs. Of 4 KiB the signal's frame and the driver take more than there is.
    for (size, unread) in [("4096", 1), ("8192", 1), ("12288", 1), ("16384", 1), ("24576", 1), ("65536", 0)] {
        let rig = Rig::emulated("H100-80GB");
        let outcome = recorded(&rig, &program, &[size]);
        assert_eq!(outcome.ended.stdout, "0\n", "{size}");
        assert_eq!(outcome.account(0).now.0, 1 << 20, "{size}");
        let (found, remark) = not_read(&rig, &outcome);
        assert_eq!(found, unread, "{size}: {remark}");
        let states = remark.contains("1 of them: the stack of a signal handler has no room for it");
        assert_eq!(states, unread > 0, "{size}: {remark}");
    }
}

#[test]
fn a_filter_that_kills_for_what_recording_needs_is_respected() {
    let program = programs::compile("filtered.c", &[]);
    let cases: [(&[&str], u64); 4] = [
        (&["now", "process_vm_readv"], 2),
        (&["now", "gettid"], 2),
        (&["now", "process_vm_readv", "process_vm_writev", "gettid"], 2),
        (&["first", "process_vm_readv"], 3),
    ];
    for (arguments, unread) in cases {
        let rig = Rig::emulated("H100-80GB");
        let outcome = recorded(&rig, &program, arguments);
        assert_eq!(outcome.ended.stdout, "2 MiB\n", "{arguments:?}");
        assert_eq!(outcome.account(0).now.0, 2 << 20, "{arguments:?}");
        let (found, remark) = not_read(&rig, &outcome);
        assert_eq!(found, unread, "{arguments:?}: {remark}");
        let expected = format!("{unread} of them: the process is under a seccomp filter");
        assert!(remark.contains(&expected), "{arguments:?}: {remark}");
    }
}

#[test]
fn a_filter_that_kills_for_a_threads_id_or_a_read_at_a_place_ends_no_program() {
    let program = programs::compile("filtered.c", &[]);
    for when in ["first", "now", "thread"] {
        for options in [&[][..], &["--mem-limit", "1GiB"], &["--stacks"]] {
            let rig = Rig::emulated("H100-80GB");
            let mut command = rig.launcher();
            command.args(options).arg("--").arg(&program).args([when, "gettid", "pread64"]);
            let outcome = rig.outcome(child::run(command, PATIENCE).ok());
            assert_eq!(outcome.ended.stdout, "2 MiB\n", "{when} {options:?}");
            assert_eq!(outcome.account(0).now.0, 2 << 20, "{when} {options:?}");
        }
    }
}

#[test]
fn in_a_session_under_a_filter_that_kills_no_stack_is_recorded() {
    let filtered = programs::compile("filtered.c", &[]);
    let program = programs::compile("steps.c", &[]);
    for forbidden in ["process_vm_readv", "process_vm_writev", "gettid"] {
        let rig = Rig::emulated("H100-80GB");
        let inner = rig.launcher();
        let mut command = Command::new(&filtered);
        command.args(["run", forbidden]).arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(["--stacks", "--"]).arg(&program).args(["use:0", "alloc:a:1m"]);
        let outcome = rig.outcome(child::run(command, PATIENCE).ok());
        assert_eq!(outcome.account(0).peak.0, 1 << 20, "{forbidden}");
        let (found, remark) = not_read(&rig, &outcome);
        assert!(
            found > 0 && remark.contains("the process is under a seccomp filter"),
            "{forbidden}: {remark}"
        );
    }
}
