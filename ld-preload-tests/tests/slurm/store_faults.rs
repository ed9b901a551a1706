//! Fate of Slurm's jobs while writes of the plug-in below its state fail: a step is limited and reported once, or it is refused.

use std::fs;

use radrm_preload_tests::{
    faults::{self, Fault, Faults},
    programs,
    slurm::Slurm,
};

const MIB: u64 = 1 << 20;

#[test]
fn steps_are_limited_and_reported_or_refused_while_writes_fail() {
    if !faults::are_possible() {
        return;
    }
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    let state = slurm.path("state-radrm1");
    // radrmd makes this folder where it counts Slurm's jobs.
    let steps = state.join("steps");
    fs::create_dir_all(&steps).expect("folder");
    let faults = Faults::new(&slurm.path("faults"));
    slurm.kill_daemon("slurmd-node1");
    slurm.start_node_behind(1, &faults.words(&state));
    slurm.until_idle();
    let asker = programs::compile("quota_ask.c", &[]);
    let script = format!("{} <<< $'{}\\n{}'", asker.display(), 100 * MIB, 100 * MIB + 1);
    for (fault, numbers) in [
        (Fault::ONE_ERROR, 1..=12),
        (Fault::ERRORS, 1..=3),
        (Fault::READ_ONLY, 1..=2),
        (Fault::NO_INODES, 1..=2),
    ] {
        for number in numbers {
            faults.begin(fault, number);
            let job = slurm.sbatch(&["--gres=shard:100"], &script);
            slurm.until_ended(job);
            slurm.until("its recorder has ended", || slurm.recorders(job) == 0);
            let failed = faults.end();
            let what = format!("{fault:?} from call {number} on\n{}\n{}", faults.log(), slurm.output(job));
            let output = slurm.output(job);
            let answers: Vec<&str> =
                output.lines().filter(|line| ["granted", "refused"].contains(line)).collect();
            let is_refused = output.contains("no limit can hold");
            if is_refused {
                assert_eq!(
                    output.lines().filter(|line| line.contains("no limit can hold")).count(),
                    1,
                    "{what}"
                );
                assert!(answers.is_empty(), "{what}");
            } else {
                assert_eq!(answers, ["granted", "refused"], "{what}");
            }
            // What lasts for longer than a step cannot be told by anyone.
            let reports: Vec<String> = fs::read_dir(&steps)
                .expect("steps")
                .flatten()
                .filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{job}.batch.")))
                .map(|entry| fs::read_to_string(entry.path()).expect("text"))
                .collect();
            if fault.length == 1 && !is_refused {
                assert_eq!(reports.len(), 1, "{what}");
                let text = &reports[0];
                assert!(
                    text.contains("\nexit 0\nsignal 0\n") && text.matches("end_ms").count() == 1,
                    "{text}\n{what}"
                );
                assert!(text.contains(&format!("peak {}", 100 * MIB)), "{text}\n{what}");
            }
            slurm.until_idle();
            if failed == 0 {
                break;
            }
        }
    }
    // Nothing of it holds up or widens what comes later.
    let job = slurm.sbatch(&["--gres=shard:100"], &script);
    slurm.until_ended(job);
    let output = slurm.output(job);
    let answers: Vec<&str> = output.lines().filter(|line| ["granted", "refused"].contains(line)).collect();
    assert_eq!(answers, ["granted", "refused"], "{output}");
    let left =
        || fs::read_dir(&state).expect("state").flatten().filter(|entry| entry.path().is_file()).count();
    slurm.until("no file of a job is left", || left() == 0);
}
