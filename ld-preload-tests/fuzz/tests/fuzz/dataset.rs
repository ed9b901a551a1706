//! Datasets: files that are damaged as such, and whole ones with damaged cells.

use std::fs;
use std::path::{Path, PathBuf};

use bolero::check;
use radrm_collector::dataset::{Dataset, Features, Filter, ProcessFeatures, Row};
use radrm_fuzz::{damaged, input};

/// A dataset with a row, as its file.
fn whole(place: &Path) -> Vec<u8> {
    let path = place.join("whole.db");
    let mut dataset = Dataset::open(&path).expect("a dataset");
    let row = Row { command: "python3 train.py".into(), gpu_model: Some("A100".into()), ..Row::default() };
    let features =
        Features { processes: vec![ProcessFeatures { pid: 1, ..ProcessFeatures::default() }], left_out: 0 };
    dataset.add(&row, Some(&features)).expect("a row");
    drop(dataset);
    let file = rusqlite::Connection::open(&path).expect("the file");
    file.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE;").expect("one file");
    drop(file);
    fs::read(path).expect("the file")
}

/// A folder of its own, in memory.
fn place() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let path = place.path().join("a.db");
    (place, path)
}

fn read(path: &Path) {
    let Ok(dataset) = Dataset::open_existing(path) else { return };
    for row in dataset.rows(&Filter::default()).unwrap_or_default() {
        let _ = dataset.features(row.id);
    }
    let _ = dataset.sharing(100);
    let _ = dataset.check();
}

fn written(path: &Path, content: &[u8]) {
    for suffix in ["-wal", "-shm", "-journal"] {
        let _ = fs::remove_file(format!("{}{suffix}", path.display()));
    }
    fs::write(path, content).expect("written");
}

#[test]
fn files_of_datasets() {
    let (place, path) = place();
    let wholes = [whole(place.path())];
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        written(&path, &input(&wholes, bytes));
        read(&path);
    });
}

#[test]
fn cells_of_datasets() {
    let (place, path) = place();
    let whole = whole(place.path());
    written(&path, &whole);
    let columns: Vec<String> = {
        let file = rusqlite::Connection::open(&path).expect("the file");
        let mut names =
            file.prepare("SELECT name FROM pragma_table_xinfo('runs') WHERE hidden = 0").expect("columns");
        let names = names.query_map([], |row| row.get(0)).expect("columns");
        names.collect::<Result<_, _>>().expect("columns")
    };
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let Some(([which, kind], rest)) = bytes.split_first_chunk() else { return };
        written(&path, &whole);
        let column = &columns[usize::from(*which) % columns.len()];
        let file = rusqlite::Connection::open(&path).expect("the file");
        let before = format!("SELECT coalesce(CAST(\"{column}\" AS TEXT), '[{{\"a\": 1}}]') FROM runs");
        let before: String = file.query_row(&before, [], |row| row.get(0)).unwrap_or_default();
        let value = damaged(before.as_bytes(), rest);
        let cell = match kind % 4 {
            0 => rusqlite::types::Value::Blob(value),
            1 => rusqlite::types::Value::Integer(i64::from_le_bytes(std::array::from_fn(|at| {
                *rest.get(at).unwrap_or(&0xff)
            }))),
            2 => rusqlite::types::Value::Real(f64::from_le_bytes(std::array::from_fn(|at| {
                *rest.get(at).unwrap_or(&0xff)
            }))),
            _ => rusqlite::types::Value::Text(String::from_utf8_lossy(&value).into_owned()),
        };
        // What a constraint of the table refuses is no input.
        let update = format!("UPDATE OR IGNORE runs SET \"{column}\" = ?1");
        let _ = file.execute(&update, [cell]);
        drop(file);
        read(&path);
    });
}
