//! Call stacks that are read while threads begin, end and are interrupted: no crash, no hang, and every byte is counted.

use radrm_preload_tests::{figures::Outcome, programs, rig::Rig};

use super::stacks::recorded;

/// Runs the program and gives what it says must be held at the end, what the sites hold, and what the account says.
fn run(argument: &str) -> (Outcome, [u64; 3]) {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &programs::compile("sites_storm.c", &["-rdynamic"]), &[argument]);
    let said = outcome.ended.stdout.trim().parse().expect("bytes");
    let process = outcome.process();
    let stacks = process.stacks.as_ref().expect("call stacks");
    let held = stacks.sites.iter().map(|site| site.held.0).sum();
    let now = process.state.accounts[0].now.0;
    // Where a thread waited too long for its turn the figures at the peak may be off, and that is said.
    if stacks.unordered == 0 {
        let at_peak: u64 = stacks.sites.iter().map(|site| site.at_peak.0).sum();
        assert_eq!(at_peak, process.state.accounts[0].peak.0);
    }
    (outcome, [said, held, now])
}

#[test]
fn stacks_of_256_threads_that_begin_at_once_are_all_read() {
    let (outcome, [said, held, now]) = run("many");
    assert_eq!((held, now), (said, said));
    let stacks = outcome.process().stacks.as_ref().expect("call stacks");
    assert_eq!((stacks.unread, stacks.full), (0, 0));
    assert!(stacks.sites.iter().all(|site| !site.frames.is_empty()), "{:?}", stacks.sites);
}

#[test]
fn a_signal_handler_that_jumps_out_of_the_reading_loses_no_byte() {
    let (outcome, [said, held, now]) = run("jump");
    assert_eq!((held, now), (said, said));
    let process = outcome.process();
    assert_eq!(process.state.accounts[0].peak.0, outcome.ledgers[0].gpus[0].total_requested_peak);
}

#[test]
fn threads_that_end_in_the_middle_of_the_reading_harm_no_other() {
    let (outcome, [said, held, now]) = run("end");
    assert_eq!(held, now);
    // What the driver granted in the call in which a thread ended is not known.
    let most = said + 12 * 512;
    assert!((said..=most).contains(&now), "{now} of {said} to {most}");
    assert!(now <= outcome.ledgers[0].gpus[0].total_requested_peak);
}
