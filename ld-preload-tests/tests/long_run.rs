//! Long lives: many allocations, much time, a small profile.

use std::fs;

use radrm_preload_tests::{child, programs, rig::Rig};

/// Runs `storm.c` on the instant driver under `radrm-run` and returns the profile's size.
fn profile_bytes(arguments: &[&str], patience: u64) -> u64 {
    let rig = Rig::instant();
    let mut command = rig.launched(programs::compile("storm.c", &[]));
    command.args(arguments);
    let outcome = rig.outcome(child::run(command, patience)).ok();
    let rounds: u64 = arguments[0].parse().expect("rounds");
    let accounts = &outcome.process().state.accounts;
    assert_eq!(accounts.iter().map(|a| a.kinds[0].allocations).sum::<u64>(), rounds);
    fs::metadata(rig.profile_path()).expect("profile").len()
}

#[test]
fn ten_million_allocations_give_a_small_profile() {
    let bytes = profile_bytes(&["10000000", "1000"], 300);
    assert!(bytes < 20_000_000, "{bytes} bytes");
}

#[test]
#[ignore = "ten minutes: the same spread over 600 seconds"]
fn ten_million_allocations_in_ten_minutes_give_a_small_profile() {
    let bytes = profile_bytes(&["10000000", "1000", "600"], 900);
    eprintln!("{bytes} bytes");
    assert!(bytes < 20_000_000, "{bytes} bytes");
}
