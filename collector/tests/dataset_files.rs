//! The files of a dataset: who may read them, where they can be read, and their documentation.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use radrm_collector::dataset::{Dataset, DatasetError, Filter, Row};

fn dataset(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("a #1%20?.db");
    let mut dataset = Dataset::open(&path).unwrap();
    dataset.add(&Row { command: "python".into(), ..Row::default() }, None).unwrap();
    path
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    format!("{}{suffix}", path.display()).into()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_dataset_and_its_log_are_their_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dataset(&dir);
    let open = Dataset::open(&path).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(&beside(&path, suffix)), 0o600, "{suffix}");
    }
    drop(open);
}

#[test]
fn a_mode_that_the_owner_set_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dataset(&dir);
    set_mode(&path, 0o664);
    drop(Dataset::open(&path).unwrap());
    drop(Dataset::open_existing(&path).unwrap());
    assert_eq!(mode(&path), 0o664);
}

/// Does something as a user that may not write what belongs to others, if the test runs as root: the kernel keeps this
/// for each thread.
fn as_reader<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // SAFETY: a plain system call, for this thread alone.
            unsafe { libc::setfsuid(65_534) };
            work()
        });
        reader.join().unwrap()
    })
}

#[test]
fn rows_are_read_in_a_folder_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dataset(&dir);
    set_mode(&path, 0o644);
    set_mode(dir.path(), 0o555);
    let rows =
        as_reader(|| Dataset::open_existing(&path).and_then(|dataset| dataset.rows(&Filter::default())));
    assert_eq!(rows.unwrap().len(), 1);
    // New rows in the log would be missing without a word.
    fs::write(beside(&path, "-wal"), "not empty").unwrap();
    let error = as_reader(|| Dataset::open_existing(&path).unwrap_err());
    set_mode(dir.path(), 0o755);
    assert!(matches!(error, DatasetError::UnreadableLog { .. }), "{error}");
    let sentence = error.to_string();
    assert!(sentence.contains("-wal: copy both files") && sentence.lines().count() == 1, "{sentence}");
}

#[test]
fn a_pipe_in_the_place_of_a_dataset_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.db");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [&*pipe, Path::new("/dev/zero")] {
        let error = Dataset::open_existing(path).unwrap_err();
        assert!(matches!(error, DatasetError::NoFile(_)), "{error}");
    }
}

#[test]
fn a_damaged_dataset_is_reported_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dataset(&dir);
    let whole = fs::read(&path).unwrap();
    let mut overwritten = whole.clone();
    overwritten[100..].fill(0xa5);
    for damaged in [b"this is not a database, though it is long enough for a look".to_vec(), overwritten] {
        fs::write(&path, &damaged).unwrap();
        for opened in [Dataset::open(&path), Dataset::open_existing(&path)] {
            let read = opened.and_then(|dataset| dataset.rows(&Filter::default()));
            assert!(matches!(read, Err(DatasetError::Damaged(_))), "{read:?}");
        }
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }
    // One that was lost is made again.
    fs::remove_file(&path).unwrap();
    assert!(Dataset::open(&path).unwrap().rows(&Filter::default()).unwrap().is_empty());
}

#[test]
fn a_dataset_with_foreign_code_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    for code in [
        "DROP TABLE runs; CREATE VIEW runs AS WITH RECURSIVE x(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM x) \
         SELECT a AS id FROM x",
        "CREATE TRIGGER mine AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
    ] {
        let path = dir.path().join("runs.db");
        drop(Dataset::open(&path).unwrap());
        rusqlite::Connection::open(&path).unwrap().execute_batch(code).unwrap();
        let why = Dataset::open_existing(&path).unwrap_err().to_string();
        assert!(why.contains("foreign view or trigger"), "{why}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_dataset_with_a_cell_of_twenty_megabytes_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dataset(&dir);
    let long = "UPDATE runs SET command = CAST(zeroblob(20000000) AS TEXT)";
    rusqlite::Connection::open(&path).unwrap().execute_batch(long).unwrap();
    let why = Dataset::open_existing(&path).and_then(|dataset| dataset.rows(&Filter::default()));
    assert!(matches!(why, Err(DatasetError::LongRow)), "{why:?}");
}

#[test]
fn every_column_is_documented_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let file = rusqlite::Connection::open(dataset(&dir)).unwrap();
    let mut statement = file.prepare("SELECT name FROM pragma_table_xinfo('runs')").unwrap();
    let columns: Vec<String> =
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/dataset.md")).unwrap();
    let table = page.split_once("## Columns").unwrap().1.split_once("## Version").unwrap().0;
    let lines: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split(" |").map(str::trim).collect())
        .collect();
    let documented: Vec<&str> = lines.iter().map(|cells| cells[0].trim_matches('`')).collect();
    assert_eq!(documented, columns, "in the order of the table");
    let writers = BTreeSet::from(["all", "run", "dry", "daemon"]);
    for cells in &lines {
        assert_eq!(cells.len(), 5, "{cells:?}");
        assert!(!cells[4].is_empty(), "{cells:?}");
        assert!(cells[3].split(", ").all(|writer| writers.contains(writer)), "{cells:?}");
        // Names with a unit have that unit.
        for (ending, unit) in
            [("_bytes", "bytes"), ("_unix_ns", "ns since 1970"), ("_permille", "thousandths")]
        {
            assert!(!cells[0].trim_matches('`').ends_with(ending) || cells[1] == unit, "{cells:?}");
        }
    }
    let version: i64 = file.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert!(page.contains(&format!("`PRAGMA user_version`: {version}")), "the page's number of the schema");
}
