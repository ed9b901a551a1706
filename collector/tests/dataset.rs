//! The dataset: what goes in comes out, also while other processes write.

use radrm_collector::dataset::{self, Dataset, DatasetError, Features, Figure, Filter, ProcessFeatures, Row};
use radrm_profile::findings::Findings;
use radrm_profile::model::*;
use radrm_profile::{Bytes, Nanos};
use std::path::Path;
use std::process::Command;

fn profile() -> Profile {
    let job = Job {
        radrm_version: "0.1.0".into(),
        command: vec!["python".into(), "a b.py".into(), "--x".into()],
        program: Some("/usr/bin/python3".into()),
        program_sha256: Some([0x0f; 32]),
        user: Some("ada".into()),
        uid: 1000,
        host: "node7".into(),
        start_unix_ns: 1_790_000_000_000_000_000,
        emulated: Some("1xH200".into()),
        ..Job::default()
    };
    let mut profile = Profile::new(job);
    profile.gpus = (0..2)
        .map(|i| Gpu {
            index: GpuIndex(i),
            name: format!("GPU number {i}"),
            uuid: format!("GPU-{i}"),
            driver_version: Some("570.1".into()),
            ..Gpu::default()
        })
        .collect();
    let mut account = Account { gpu: GpuIndex(1), peak: Bytes(700), failed: 2, ..Account::default() };
    account.kinds[Kind::Device.index()].peak = Bytes(500);
    account.kinds[Kind::PinnedHost.index()].peak = Bytes(9);
    profile.processes.push(Process {
        state: ProcessState {
            accounts: vec![account],
            frameworks: vec![Framework { name: "PyTorch".into(), version: Some("2.15".into()) }],
            launches: 12,
            ..ProcessState::default()
        },
        kernels: vec![Kernel { name: "k".into(), ..Kernel::default() }],
        ..Process::default()
    });
    profile.outcome =
        Some(Outcome { exit: Exit::Code(1), duration: Nanos(5), reason: Some(Reason::OutOfGpuMemory) });
    profile
}

/// Adds the row of a profile, as a run does at its end.
fn record(path: Option<&Path>, profile: &Profile) -> Option<String> {
    dataset::record(
        path,
        &Row::of(profile, Some(Path::new("/tmp/x.radrm")), &Findings::default()),
        &features(),
    )
}

fn features() -> Features {
    let figures = [("launches_per_second", Figure::new(2.5, "counted")), ("sm_active", None)];
    let features = figures.map(|(name, figure)| (name.to_owned(), figure)).into();
    Features { processes: vec![ProcessFeatures { pid: 7, features }], left_out: 3 }
}

#[test]
fn what_goes_in_comes_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/below/dataset.db");
    assert_eq!(record(Some(&path), &profile()), None);
    let dataset = Dataset::open_existing(&path).unwrap();
    let rows = dataset.rows(&Filter::default()).unwrap();
    let mut expected = Row::of(&profile(), Some(Path::new("/tmp/x.radrm")), &Findings::default());
    expected.id = 1;
    assert_eq!(rows, [expected]);
    assert_eq!((dataset.features(1).unwrap(), dataset.features(2).unwrap()), (Some(features()), None));
    let row = &rows[0];
    assert_eq!((row.peak_bytes, row.device_peak_bytes, row.pinned_peak_bytes), (700, Some(500), Some(9)));
    assert_eq!((row.gpus.as_slice(), row.peaks.len()), (&["GPU number 1".to_owned()][..], 1));
    assert_eq!((row.command.as_str(), row.arguments.len(), row.failed_requests), ("python", 2, Some(2)));
    assert_eq!((row.exit_code, row.signal, row.out_of_memory), (Some(1), None, true));
    assert_eq!(row.framework.as_deref(), Some("PyTorch 2.15"));
    assert_eq!(row.emulated.as_deref(), Some("1xH200"));
    assert_eq!(row.program_sha256.as_deref(), Some("0f".repeat(32).as_str()));
}

#[test]
fn a_job_of_which_nothing_was_seen_gets_no_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dataset.db");
    let mut unseen = profile();
    unseen.processes.clear();
    assert_eq!(record(Some(&path), &unseen), None);
    assert!(!path.exists(), "not even a file");
    // Without a place for a dataset there is nothing to complain about either.
    assert_eq!(record(None, &unseen), None);
}

#[test]
fn peaks_of_processes_one_after_the_other_are_not_added_up() {
    let mut profile = profile();
    let first = &mut profile.processes[0];
    (first.identity.pid, first.state.ended, first.state.end) = (1, Some(Nanos(10)), End::Exited(None));
    let mut second = first.clone();
    (second.identity.pid, second.identity.joined, second.state.ended) = (2, Nanos(10), Some(Nanos(20)));
    second.state.accounts[0].kinds[Kind::Device.index()].peak = Bytes(400);
    profile.processes.push(second);
    let row = Row::of(&profile, None, &Findings::default());
    assert_eq!((row.peak_bytes, row.peak_exact), (700, true));
    assert_eq!((row.device_peak_bytes, row.pinned_peak_bytes), (Some(500), Some(9)));
    // Side by side, and nothing else known: both may have been at their peaks at once.
    profile.processes[1].identity.joined = Nanos(9);
    let row = Row::of(&profile, None, &Findings::default());
    assert_eq!((row.device_peak_bytes, row.peak_exact), (Some(900), false));
}

#[test]
fn rows_are_found_by_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let mut dataset = Dataset::open(&dir.path().join("dataset.db")).unwrap();
    for i in 0..5u64 {
        let row = Row {
            start_unix_ns: i,
            command: if i == 3 { "./100%_x".into() } else { "python".into() },
            user: (i % 2 == 0).then(|| "ada".into()),
            emulated: (i > 2).then(|| "1xT4".into()),
            peak_bytes: u64::MAX,
            ..Row::default()
        };
        dataset.add(&row, None).unwrap();
    }
    let starts = |filter: Filter| -> Vec<u64> {
        dataset.rows(&filter).unwrap().iter().map(|row| row.start_unix_ns).collect()
    };
    assert_eq!(starts(Filter::default()), [4, 3, 2, 1, 0]);
    assert_eq!(starts(Filter { limit: Some(2), ..Filter::default() }), [4, 3]);
    assert_eq!(starts(Filter { program: Some("100%_x".into()), ..Filter::default() }), [3]);
    assert_eq!(starts(Filter { program: Some("thon".into()), limit: Some(1), ..Filter::default() }), [4]);
    assert!(starts(Filter { program: Some("%".into()), ..Filter::default() }).is_empty());
    assert_eq!(
        starts(Filter { user: Some("ada".into()), emulated: Some(false), ..Filter::default() }),
        [2, 0]
    );
    assert_eq!(starts(Filter { since_unix_ns: Some(3), ..Filter::default() }), [4, 3]);
    // SQLite has no unsigned integers.
    assert_eq!(dataset.rows(&Filter::default()).unwrap()[0].peak_bytes, i64::MAX as u64);
}

#[test]
fn many_programs_may_end_at_once() {
    const CHILD: &str = "RADRM_TEST_DATASET";
    if let Some(path) = std::env::var_os(CHILD) {
        for _ in 0..5 {
            assert_eq!(record(Some(Path::new(&path)), &profile()), None);
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("radrm/dataset.db");
    let children: Vec<_> = (0..8)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "many_programs_may_end_at_once"])
                .env(CHILD, &path)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    // Threads of one program, too.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(record(Some(&path), &profile()), None));
        }
    });
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    assert_eq!(Dataset::open(&path).unwrap().rows(&Filter::default()).unwrap().len(), 8 * 5 + 4);
}

#[test]
fn what_cannot_be_written_is_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "this is not a database, though long enough to be looked at as one").unwrap();
    for path in [&file.join("dataset.db"), &file, Path::new("/proc/radrm/dataset.db")] {
        let sentence = record(Some(path), &profile()).unwrap();
        assert!(
            sentence.starts_with("no row was added to the dataset") && !sentence.contains('\n'),
            "{sentence}"
        );
    }
    assert!(record(None, &profile()).unwrap().contains("no home directory"));
    assert!(Dataset::open_existing(&dir.path().join("none")).is_err());
    assert!(!dir.path().join("none").exists());
}

#[test]
fn a_dataset_of_another_schema_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dataset.db");
    drop(Dataset::open(&path).unwrap());
    let connection = rusqlite::Connection::open(&path).unwrap();
    for version in [-1, 2, 99] {
        connection.pragma_update(None, "user_version", version).unwrap();
        for opened in [Dataset::open(&path), Dataset::open_existing(&path)] {
            let Err(error @ DatasetError::Version { .. }) = opened else { panic!("{version}") };
            let expected = format!(
                "the dataset has schema version {version}, this radrm knows version 1: use the radrm that wrote it"
            );
            assert_eq!(error.to_string(), expected);
        }
        let left: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(left, version);
    }
}

#[test]
fn a_dataset_without_tables_yet_has_no_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dataset.db");
    // As another program leaves it between making the file and its tables.
    std::fs::write(&path, "").unwrap();
    assert!(Dataset::open_existing(&path).unwrap().rows(&Filter::default()).unwrap().is_empty());
    assert_eq!(std::fs::read(&path).unwrap(), b"");
    // Another program's database is no empty dataset.
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE other (x)").unwrap();
    assert!(Dataset::open_existing(&path).unwrap().rows(&Filter::default()).is_err());
}

#[test]
fn features_in_an_unknown_form_are_none_and_their_rows_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dataset.db");
    // Cut short, a list of something else, no text at all, and text that is none.
    let forms = [
        "'{\"processes\":[{\"pid\":7,'",
        "'[{\"pid\":7,\"figures\":[]}]'",
        "7",
        "CAST(x'ff' AS TEXT)",
        "NULL",
    ];
    for form in forms {
        assert_eq!(record(Some(&path), &profile()), None);
        let connection = rusqlite::Connection::open(&path).unwrap();
        let last = "WHERE id = (SELECT max(id) FROM runs)";
        connection.execute(&format!("UPDATE runs SET features = {form} {last}"), []).unwrap();
    }
    let dataset = Dataset::open_existing(&path).unwrap();
    let rows = dataset.rows(&Filter::default()).unwrap();
    assert_eq!(rows.len(), forms.len());
    for row in rows {
        assert_eq!(dataset.features(row.id).unwrap(), None, "row {}", row.id);
    }
}

#[test]
fn listing_rows_does_not_read_their_features() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dataset.db");
    assert_eq!(record(Some(&path), &profile()), None);
    // A column that cannot be read: its value is worked out whenever it is selected, and that fails.
    let connection = rusqlite::Connection::open(&path).unwrap();
    let trap =
        "ALTER TABLE runs DROP COLUMN features; ALTER TABLE runs ADD COLUMN features TEXT AS (json('{'));";
    connection.execute_batch(trap).unwrap();
    let dataset = Dataset::open_existing(&path).unwrap();
    let by_program = Filter { program: Some("python".into()), limit: Some(1), ..Filter::default() };
    for filter in [Filter::default(), by_program] {
        assert_eq!(dataset.rows(&filter).unwrap().len(), 1);
    }
    assert!(dataset.features(1).unwrap_err().to_string().contains("malformed JSON"));
}
