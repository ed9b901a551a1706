//! The dataset as the history from which needs are derived.

use std::path::Path;
use std::time::{Duration, Instant};

use radrm_base::{Activity, Bytes, HostUse, Millis, PastRun, Permille};
use radrm_collector::dataset::{Dataset, Filter, Origin, PastRuns, ProgramKey, Row};

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn key(line: &str) -> ProgramKey {
    ProgramKey::of(&words(line), Path::new("/work"), 1)
}

/// A row that bounds a need.
fn ended(line: &str, footprint: u64) -> Row {
    Row {
        footprint_bytes: Some(footprint),
        run_time_ns: 2_000_000,
        complete: true,
        uid: 7,
        gpu_model: Some("H200".into()),
        ..Row::of_command(&words(line), Path::new("/work"), 1)
    }
}

fn of(origin: Origin) -> PastRuns<'static> {
    PastRuns { origin, uid: 7, gpu_model: Some("H200"), emulated: false, limit: 64 }
}

fn dataset(dir: &tempfile::TempDir) -> Dataset {
    Dataset::open(&dir.path().join("dataset.db")).unwrap()
}

fn peaks(dataset: &Dataset, line: &str, of: &PastRuns<'_>) -> Vec<u64> {
    dataset.past_runs(&key(line), of).unwrap().iter().map(|run| run.peak.0).collect()
}

#[test]
fn past_runs_of_all_batch_sizes_come_newest_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut dataset = dataset(&dir);
    let lacking = Row {
        complete: false,
        out_of_memory: true,
        oom_request_bytes: Some(3),
        smact_permille: Some(620),
        drama_permille: Some(0),
        host_cpu_milli: Some(1500),
        host_threads: Some(2),
        host_resident_bytes: Some(7),
        host_traffic: Some(9_000_000_000),
        host_stalled_permille: Some(410),
        ..ended("train --bs 16", 9)
    };
    dataset.add(&ended("train --bs 8", 5), None).unwrap();
    dataset.add(&lacking, None).unwrap();
    dataset.add(&ended("train --hidden 8", 6), None).unwrap();
    let activity = Some(Activity { smact: Permille(620), ..Activity::default() });
    let run = |batch, peak, complete, activity| PastRun {
        batch: Some(batch),
        peak: Bytes(peak),
        ran: Millis(2),
        activity,
        host: None,
        complete,
    };
    let host = Some(HostUse {
        cpu_milli: 1500,
        threads: 2,
        resident: Bytes(7),
        memory_traffic: Some(9_000_000_000),
        memory_stalled: Some(Permille(410)),
    });
    assert_eq!(
        dataset.past_runs(&key("train --bs 99"), &of(Origin::Measured)).unwrap(),
        [PastRun { host, ..run(16, 9, false, activity) }, run(8, 5, true, None)]
    );
}

#[test]
fn runs_of_another_kind_bound_no_need() {
    let dir = tempfile::tempdir().unwrap();
    let mut dataset = dataset(&dir);
    let row = ended("t", 1);
    let others = [
        Row { origin: Origin::DryRun, emulated: Some("1xH200".into()), ..row.clone() },
        Row { origin: Origin::Emulated, emulated: Some("1xH200".into()), ..row.clone() },
        Row { origin: Origin::Daemon, ..row.clone() },
        Row { uid: 8, ..row.clone() },
        Row { gpu_model: Some("T4".into()), ..row.clone() },
        Row { gpu_model: None, ..row.clone() },
        // Ended by a signal or an error of its own, or of unknown footprint.
        Row { complete: false, ..row.clone() },
        Row { footprint_bytes: None, ..row.clone() },
        Row { program_key: None, ..row.clone() },
    ];
    for other in &others {
        dataset.add(other, None).unwrap();
    }
    assert!(peaks(&dataset, "t", &of(Origin::Measured)).is_empty());
    // The rule is the same for a row that is not written yet.
    let bounds: Vec<bool> = others.iter().map(|row| row.past_run().is_some()).collect();
    assert_eq!(bounds, [true, true, true, true, true, true, false, false, false]);
    dataset.add(&Row { footprint_bytes: Some(2), ..row }, None).unwrap();
    assert_eq!(peaks(&dataset, "t", &of(Origin::Measured)), [2]);
    assert_eq!(peaks(&dataset, "t", &of(Origin::Daemon)), [1]);
    let emulated = |origin| PastRuns { emulated: true, ..of(origin) };
    assert_eq!(peaks(&dataset, "t", &emulated(Origin::DryRun)), [1]);
    assert_eq!(peaks(&dataset, "t", &emulated(Origin::Emulated)), [1]);
    assert!(peaks(&dataset, "t", &emulated(Origin::Measured)).is_empty());
    let any_model = PastRuns { gpu_model: None, ..of(Origin::Measured) };
    assert_eq!(peaks(&dataset, "t", &any_model), [2, 1, 1]);
}

#[test]
fn an_attempt_that_is_written_twice_is_one_row() {
    let dir = tempfile::tempdir().unwrap();
    let mut dataset = dataset(&dir);
    let row = |origin, attempt, footprint| Row {
        origin,
        job_id: Some(3),
        attempt: Some(attempt),
        ..ended("t", footprint)
    };
    dataset.add_bounded(&row(Origin::Daemon, 1, 5), None, 64).unwrap();
    dataset.add_bounded(&row(Origin::Daemon, 1, 6), None, 64).unwrap();
    dataset.add_bounded(&row(Origin::Daemon, 2, 7), None, 64).unwrap();
    // What the launcher writes of the same attempt is another origin's row, and counted with its origin only.
    dataset.add(&row(Origin::Measured, 1, 6), None).unwrap();
    assert_eq!(peaks(&dataset, "t", &of(Origin::Daemon)), [7, 6]);
    assert_eq!(peaks(&dataset, "t", &of(Origin::Measured)), [6]);
    assert_eq!(dataset.rows(&Filter::default()).unwrap().len(), 3);
}

#[test]
fn runs_are_kept_up_to_a_bound_for_a_program_and_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut dataset = dataset(&dir);
    let daemon = |line: &str, peak| Row { origin: Origin::Daemon, ..ended(line, peak) };
    dataset.add_bounded(&Row { uid: 8, ..daemon("p", 1) }, None, 64).unwrap();
    for peak in 0..200 {
        dataset.add_bounded(&daemon("p", peak), None, 64).unwrap();
    }
    // Failures do not push out what is known.
    for _ in 0..100 {
        dataset.add_bounded(&Row { complete: false, ..daemon("p", 1) }, None, 64).unwrap();
    }
    dataset.add_bounded(&daemon("q", 1), None, 64).unwrap();
    let count = |dataset: &Dataset| dataset.rows(&Filter::default()).unwrap().len();
    assert_eq!(count(&dataset), 1 + 64 + 64 + 1);
    let all = PastRuns { limit: 1000, ..of(Origin::Daemon) };
    let left = peaks(&dataset, "p", &all);
    assert_eq!((left.len(), left[0], left[63]), (64, 199, 136), "the oldest went");
    assert_eq!(dataset.forget_older(20_000).unwrap(), 0);
    assert_eq!(dataset.forget_older(70).unwrap(), 60);
    let left = |line: &str| peaks(&dataset, line, &all).len();
    assert_eq!((left("p"), left("q")), (5, 1));
}

#[test]
fn past_runs_are_found_fast_among_100_000_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dataset.db");
    drop(Dataset::open(&path).unwrap());
    let file = rusqlite::Connection::open(&path).unwrap();
    // Half of them are of one program, of which one in a thousand ran on the GPU that is asked for.
    file.execute_batch(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
         INSERT INTO runs (origin, start_unix_ns, duration_ns, run_time_ns, command, arguments, program_key, batch, uid,
             host, gpu_model, gpus, footprint_bytes, complete, peak_bytes, peak_exact, peaks, outcome, out_of_memory,
             radrm_version, features)
         SELECT 'measured', i, 1, 1, 'python', '[]',
             CASE WHEN i % 2 THEN '[[\"t\"],\"/work\",1]' ELSE 'other ' || i END, i % 10, 7,
             'node', CASE WHEN i % 1000 = 1 THEN 'H200' ELSE 'T4' END, '[]', i, 1, i, 1, '[]', 'exited', 0, '1',
             printf('%.*c', 400, 'x')
         FROM n;",
    )
    .unwrap();
    drop(file);
    let dataset = Dataset::open_existing(&path).unwrap();
    for (model, expected) in [(Some("T4"), 64), (Some("H200"), 64), (None, 64), (Some("none"), 0)] {
        let of = PastRuns { gpu_model: model, ..of(Origin::Measured) };
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let begin = Instant::now();
            assert_eq!(peaks(&dataset, "t", &of).len(), expected);
            best = best.min(begin.elapsed());
        }
        println!("{model:?}: {best:?}");
        assert!(best < Duration::from_millis(5), "{model:?}: {best:?}");
    }
}
