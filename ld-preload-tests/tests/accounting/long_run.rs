//! Long lives: many allocations, much time, a small profile that is quickly shown.

use std::{fs, path::Path, process::Command, time::Instant};

use radrm_preload_tests::{artifacts, child, programs, rig::Rig};

/// Runs `storm.c` on the instant driver under `radrm-run` and leaves the profile in the rig.
fn storm(arguments: &[&str], patience: u64) -> Rig {
    // Built before the run, so that no build falls into it.
    artifacts::file("radrm");
    let rig = Rig::instant();
    let mut command = rig.launched(programs::compile("storm.c", &[]));
    command.args(arguments);
    let outcome = rig.outcome(child::run(command, patience)).ok();
    let rounds: u64 = arguments[0].parse().expect("rounds");
    let accounts = &outcome.process().state.accounts;
    assert_eq!(accounts.iter().map(|a| a.kinds[0].allocations).sum::<u64>(), rounds);
    rig
}

/// Shows the profile in every form; says how large it is and how long each form takes.
fn small_and_shown(rig: &Rig) {
    let path = rig.profile_path();
    let bytes = fs::metadata(&path).expect("profile").len();
    eprintln!("profile: {bytes} bytes");
    assert!(bytes < 20_000_000, "{bytes} bytes");
    for (form, options) in
        [("text", &[][..]), ("timeline", &["--timeline"]), ("JSON", &["--json"]), ("page", &["--html"])]
    {
        let mut times = Vec::new();
        for _ in 0..11 {
            let mut command = Command::new(artifacts::file("radrm"));
            command.arg("report").arg(&path).args(options);
            let start = Instant::now();
            let shown = child::run(command, 60).ok();
            times.push(start.elapsed());
            // A page goes to a file, whose name is printed.
            let page = Path::new(shown.stdout.trim_end());
            let shown = if form == "page" { fs::read_to_string(page).expect("page") } else { shown.stdout };
            assert!(shown.contains("storm"), "{form}: {shown}");
        }
        times.sort();
        let [least, median, most] = [times[0], times[5], times[10]].map(|time| time.as_secs_f64() * 1e3);
        eprintln!("radrm report, {form}: {median:.1} ms ({least:.1}-{most:.1})");
    }
}

#[test]
fn ten_million_allocations_give_a_small_profile() {
    small_and_shown(&storm(&["10000000", "1000"], 300));
}

#[test]
#[ignore = "ten minutes: the same spread over 600 seconds"]
fn ten_million_allocations_in_ten_minutes_give_a_small_profile() {
    small_and_shown(&storm(&["10000000", "1000", "600"], 900));
}
