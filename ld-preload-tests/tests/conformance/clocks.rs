//! Programs whose time another preloaded library fakes: the shim, the emulator and the launcher share the real clock.

use std::process::Command;

use radrm_preload_tests::{
    child, programs,
    rig::{PATIENCE, Rig},
};

/// Later than any of these runs lasts, ns.
const LONG: u64 = 3_600_000_000_000;

/// Returns true if libfaketime's command is here.
fn can_fake() -> bool {
    let can =
        Command::new("faketime").args(["-f", "+1d", "true"]).status().is_ok_and(|status| status.success());
    if !can {
        eprintln!("skipped: faketime is not here");
    }
    can
}

/// Runs a program that takes memory between two sleeps, and checks when that was.
#[track_caller]
fn assert_moments(rig: &Rig, mut command: Command, what: &str) {
    command.arg(programs::compile("steps.c", &[]));
    command.args(["use:0", "sleep:300", "alloc:a:50m", "launch:100", "sync", "sleep:300", "free:a"]);
    let outcome = rig.outcome(child::run(command, PATIENCE).ok());
    let (process, account) = (outcome.process(), outcome.account(0));
    assert!(process.identity.joined.0 < LONG, "{what}: joined at {:?}", process.identity.joined);
    let after = account.peak_at.0.saturating_sub(process.identity.joined.0);
    // A sleep of 300 ms, which libfaketime may shorten to a tenth.
    assert!(account.peak_at.0 < LONG && after >= 20_000_000, "{what}: peak at {:?}", account.peak_at);
}

#[test]
fn moments_are_right_where_the_program_has_another_time() {
    if !can_fake() {
        return;
    }
    // Another date, a clock that starts at a date, one that runs ten times as fast.
    for fake in [&["-f", "+10y"][..], &["-f", "@2001-01-01 00:00:00"], &["-f", "+0 x10"]] {
        let rig = Rig::emulated("1xA100-40GB");
        let mut command = rig.launched("faketime");
        command.args(fake);
        assert_moments(&rig, command, &format!("{fake:?}"));
    }
}

#[test]
fn moments_are_right_where_the_launcher_has_another_time() {
    if !can_fake() {
        return;
    }
    let rig = Rig::emulated("1xA100-40GB");
    let launched = rig.launched("env");
    let mut command = rig.bare_command("faketime");
    command.args(["-f", "+10y"]).arg(launched.get_program()).args(launched.get_args());
    for (name, value) in launched.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    assert_moments(&rig, command, "launcher");
}
