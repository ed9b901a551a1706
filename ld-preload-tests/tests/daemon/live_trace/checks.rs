//! Checks that are made when all is over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
    process::Command,
};

use radrm_emulator_machine::Machine;
use radrm_preload_tests::{artifacts, node::Daemon};
use radrm_scheduler_core::{
    Action, Bytes, JobId, Outcome, Verdict,
    replay::events::{Again, Entry, Fed},
};
use serde_json::Value;

use super::incidents::Marks;

/// Start of an attempt.
#[derive(Debug)]
pub struct Start {
    /// Numbers of GPUs.
    pub devices: Vec<u32>,
    pub limit: Option<Bytes>,
    pub reserved: Option<Bytes>,
}

/// Decisions of a replay of the daemon's events.
#[derive(Debug, Default)]
pub struct Replayed {
    pub daemons: usize,
    pub events: usize,
    pub decisions: usize,
    /// The last start of each attempt. (One that was decided and not carried out when the
    /// daemon was killed is decided again.)
    pub starts: BTreeMap<(u64, u32), Start>,
    /// With the number of the daemon that decided it last.
    pub ends: BTreeMap<u64, (usize, Verdict)>,
}

/// Feeds the events to a scheduler of its own. Every decision has to be the one that the daemon took.
pub fn replay(log: &Path) -> Replayed {
    let mut again = Again::default();
    let mut replayed = Replayed::default();
    for line in BufReader::new(File::open(log).expect("log of events")).lines() {
        let line = line.expect("a line");
        let entry: Entry = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let decisions = match again.feed(entry) {
            Fed::Started => {
                replayed.daemons += 1;
                continue;
            }
            Fed::Same(decisions) => decisions,
            other => panic!("{other:?}"),
        };
        replayed.events += 1;
        replayed.decisions += decisions.len();
        for decision in decisions {
            match decision.action {
                Action::Start { job, attempt, devices, limit, reserved } => {
                    let devices = devices.iter().map(|device| device.0).collect();
                    replayed.starts.insert((job.0, attempt), Start { devices, limit, reserved });
                }
                Action::End { job: JobId(job), verdict } => {
                    // One that was not kept yet when the daemon was killed is decided again by the next.
                    let before = replayed.ends.insert(job, (replayed.daemons, verdict));
                    if let Some((daemon, earlier)) = before {
                        assert!(daemon < replayed.daemons, "job {job} ends twice");
                        assert_eq!(earlier, verdict, "job {job} ends in two ways");
                    }
                }
                _ => {}
            }
        }
    }
    replayed
}

/// Output of `radrm replay --events`, which has to agree.
pub fn told(log: &Path) -> String {
    let mut command = Command::new(artifacts::file("radrm"));
    let done = command.arg("replay").arg("--events").arg(log).output().expect("radrm");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    text
}

/// Checks that what the replay decided is what happened: where each attempt's program found itself, and how each
/// job ended.
pub fn decided_is_done(replayed: &Replayed, marks: &Marks, rows: &BTreeMap<u64, Value>) {
    for ((job, attempt), mark) in marks.by_attempt() {
        let start = replayed.starts.get(&(job, attempt)).expect("it was decided");
        // Devices of the scheduler are in the order of the bus, as the numbers that a program gets.
        let given: Vec<String> = start.devices.iter().map(ToString::to_string).collect();
        assert_eq!(given, mark.gpus, "job {job}, attempt {attempt}");
    }
    let begun: BTreeSet<(u64, u32)> = marks.by_attempt().into_keys().collect();
    assert_eq!(begun, replayed.starts.keys().copied().collect(), "every start was carried out once");
    for (job, row) in rows {
        let code = match replayed.ends.get(job).map(|(_, verdict)| verdict) {
            Some(Verdict::Ended(Outcome::Exited { code })) => *code,
            Some(Verdict::Ended(Outcome::Signalled { signal })) => 128 + signal,
            other => panic!("job {job}: {other:?}"),
        };
        assert_eq!(row["exit_code"], code, "{row}");
    }
    assert_eq!(replayed.ends.len(), rows.len());
}

/// Bytes that programs held beyond their limits at any time, by the emulator's ledger; and how many programs
/// were looked at.
pub fn over_quota(machine: &Path, replayed: &Replayed, marks: &Marks) -> (u64, usize) {
    let machine = Machine::open(machine).expect("the emulated machine");
    let ledgers = machine.ledgers();
    let (mut over, mut seen) = (0, 0);
    for ((job, attempt), mark) in marks.by_attempt() {
        let Start { devices, limit, .. } = &replayed.starts[&(job, attempt)];
        let ledger = ledgers.iter().find(|ledger| ledger.pid == mark.pid && ledger.exe.contains("trace_job"));
        // Killed before it reached its GPU.
        let Some(ledger) = ledger else { continue };
        seen += 1;
        for gpu in &ledger.gpus {
            let at = u32::try_from(gpu.gpu).expect("number");
            assert!(
                gpu.held_peak == 0 || devices.contains(&at),
                "job {job} is on GPU {at}, not on {devices:?}"
            );
            over += gpu.held_peak.saturating_sub(limit.map_or(u64::MAX, |limit| limit.0));
        }
    }
    for gpu in 0..machine.gpu_count() {
        assert_eq!(machine.memory(gpu).used, 0, "GPU {gpu}: memory of jobs that are over");
    }
    (over, seen)
}

/// Rows of all jobs that are over.
pub fn rows(daemon: &Daemon) -> BTreeMap<u64, Value> {
    let text = daemon.ok(&["queue", "--all", "--ended", "1000", "--json"]);
    let rows: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    rows.into_iter().map(|row| (row["job"].as_u64().expect("number"), row)).collect()
}
