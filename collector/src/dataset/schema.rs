//! The tables, and how older ones are brought up to date.

use super::DatasetError;
use rusqlite::{Connection, TransactionBehavior};

/// Step `n` leads from version `n` to `n + 1`. Released steps are never changed, only
/// added: datasets of every age are out there.
const STEPS: [&str; 10] = [
    include_str!("migrations/001-runs.sql"),
    include_str!("migrations/002-features.sql"),
    include_str!("migrations/003-needs.sql"),
    include_str!("migrations/004-sharing.sql"),
    include_str!("migrations/005-fits.sql"),
    include_str!("migrations/006-ranks.sql"),
    include_str!("migrations/007-share-curves.sql"),
    include_str!("migrations/008-first-steps.sql"),
    include_str!("migrations/009-host.sql"),
    include_str!("migrations/010-dry-run.sql"),
];

/// The newest version.
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// The first version whose files are made for their owner alone.
pub(super) const PRIVATE_SINCE: i64 = 3;

/// The first version whose rows have program keys.
pub(super) const KEYS_SINCE: i64 = 3;

/// The first version with the table `sharing`.
pub(super) const SHARING_SINCE: i64 = 4;

/// The first version with the table `fits`.
pub(super) const FITS_SINCE: i64 = 5;

/// The first version with the table `ranks`.
pub(super) const RANKS_SINCE: i64 = 6;

/// The first version with the table `share_curves`.
pub(super) const SHARE_CURVES_SINCE: i64 = 7;

/// The first version with the table `first_steps`.
pub(super) const FIRST_STEPS_SINCE: i64 = 8;

/// The first version whose rows have what a run took of its host.
pub(super) const HOST_SINCE: i64 = 9;

/// The first version whose rows have what a dry run found.
pub(super) const DRY_RUN_SINCE: i64 = 10;

pub(super) fn version(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn refuse_newer(found: i64) -> Result<(), DatasetError> {
    if found > VERSION { Err(DatasetError::Newer { found, known: VERSION }) } else { Ok(()) }
}

/// Refuses what a newer version made; returns the version.
pub(super) fn check(connection: &Connection) -> Result<i64, DatasetError> {
    let found = version(connection)?;
    refuse_newer(found)?;
    Ok(found)
}

/// Brings the tables up to date; returns the version that was found.
pub(super) fn migrate(connection: &mut Connection) -> Result<i64, DatasetError> {
    let before = check(connection)?;
    if before == VERSION {
        return Ok(before);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another program may have been first while this one waited.
    let found = check(&transaction)?;
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(before)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sha2::{Digest, Sha256};

    use super::*;
    use crate::dataset::program::ProgramKey;
    use crate::dataset::{Dataset, Features, Filter, Origin, PastRuns, Row, table};

    /// A dataset as the release with this version left it, with two rows.
    fn released(path: &Path, version: usize) {
        let old = Connection::open(path).unwrap();
        for step in &STEPS[..version] {
            old.execute_batch(step).unwrap();
        }
        old.pragma_update(None, "user_version", i64::try_from(version).unwrap()).unwrap();
        let columns = "start_unix_ns, duration_ns, command, program, program_sha256, arguments, user, uid, host, gpus,
            driver, framework, emulated, peak_bytes, peak_exact, peaks, device_peak_bytes, pool_reserved_peak_bytes,
            pool_used_peak_bytes, vmm_peak_bytes, array_peak_bytes, graph_peak_bytes, managed_peak_bytes,
            pinned_peak_bytes, nvml_peak_bytes, launches, graph_launches, kernels, processes, failed_requests,
            outcome, exit_code, signal, out_of_memory, profile_path, radrm_version";
        let rows = [
            r#"11, 5, 'python', '/usr/bin/python3', '0f', '["a b.py","--bs=8"]', 'ada', 1000, 'node7', '["H200"]',
            '570.1', 'PyTorch 2.15', NULL, 700, 1,
            '[{"index":1,"uuid":"GPU-1","name":"H200","peak_bytes":700,"exact":true}]', 500, 1, 2, 3, 4, 5, 6,
            9, 800, 12, 13, 14, 1, 2, 'exited', 0, NULL, 0, '/tmp/x.radrm', '0.1.0'"#,
            "12, 6, 'late', NULL, NULL, '[]', NULL, 1000, 'node7', 'no JSON', NULL, NULL, '1xT4', 7, 0, '[]',
            0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 1, 3, 'signaled', NULL, 9, 1, NULL, '0.1.0'",
        ];
        for row in rows {
            old.execute_batch(&format!("INSERT INTO runs ({columns}) VALUES ({row})")).unwrap();
        }
        if version > 1 {
            let features = serde_json::to_string(&features()).unwrap();
            old.execute("UPDATE runs SET features = ?1 WHERE id = 1", [features]).unwrap();
        }
    }

    fn features() -> Features {
        Features { left_out: 7, ..Features::default() }
    }

    #[test]
    fn every_released_version_migrates_without_loss() {
        for version in 1..=2 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("dataset.db");
            released(&path, version);
            let all = |dataset: &Dataset| {
                let rows = dataset.rows(&Filter::default()).unwrap();
                let features: Vec<_> = rows.iter().map(|row| dataset.features(row.id).unwrap()).collect();
                (rows, features)
            };
            // Read as it is, without a change of the file, and after each of two migrations.
            let before = all(&Dataset::open_existing(&path).unwrap());
            let file = Connection::open(&path).unwrap();
            assert_eq!(super::version(&file).unwrap(), version as i64);
            drop(file);
            for _ in 0..2 {
                assert_eq!(all(&Dataset::open(&path).unwrap()), before, "version {version}");
            }
            let (rows, kept) = before;
            assert_eq!(kept, [None, (version > 1).then(features)]);
            let first = Row {
                id: 1,
                origin: Origin::Measured,
                start_unix_ns: 11,
                duration_ns: 5,
                run_time_ns: 5,
                command: "python".into(),
                program: Some("/usr/bin/python3".into()),
                program_sha256: Some("0f".into()),
                arguments: vec!["a b.py".into(), "--bs=8".into()],
                user: Some("ada".into()),
                uid: 1000,
                host: "node7".into(),
                gpu_model: Some("H200".into()),
                gpus: vec!["H200".into()],
                driver: Some("570.1".into()),
                framework: Some("PyTorch 2.15".into()),
                complete: true,
                peak_bytes: 700,
                peak_exact: true,
                peaks: rows[1].peaks.clone(),
                device_peak_bytes: Some(500),
                pool_reserved_peak_bytes: Some(1),
                pool_used_peak_bytes: Some(2),
                vmm_peak_bytes: Some(3),
                array_peak_bytes: Some(4),
                graph_peak_bytes: Some(5),
                managed_peak_bytes: Some(6),
                pinned_peak_bytes: Some(9),
                nvml_peak_bytes: Some(800),
                launches: Some(12),
                graph_launches: Some(13),
                kernels: Some(14),
                processes: Some(1),
                failed_requests: Some(2),
                outcome: "exited".into(),
                exit_code: Some(0),
                profile_path: Some("/tmp/x.radrm".into()),
                radrm_version: "0.1.0".into(),
                ..Row::default()
            };
            assert_eq!(rows[1], first);
            assert_eq!((rows[1].peaks.len(), rows[1].peaks[0].peak_bytes), (1, 700));
            let second = &rows[0];
            assert_eq!((second.id, second.origin, second.complete), (2, Origin::Emulated, false));
            assert_eq!(
                (second.signal, second.out_of_memory, second.gpu_model.as_ref()),
                (Some(9), true, None)
            );
        }
    }

    #[test]
    fn needs_are_read_from_a_file_of_the_schema_that_first_had_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("3.db");
        let old = Connection::open(&path).unwrap();
        STEPS[..3].iter().for_each(|step| old.execute_batch(step).unwrap());
        old.pragma_update(None, "user_version", 3).unwrap();
        let command = Row::of_command(&["p".to_owned()], Path::new("/"), 1);
        let ran = Row { footprint_bytes: Some(7), complete: true, outcome: "exited".into(), ..command };
        // A row as that schema had it.
        let later = ["host_cpu_milli", "host_threads", "host_resident_bytes", "dry_run"];
        let each = |what: &str, kind: &str| {
            later.iter().for_each(|name| {
                old.execute_batch(&format!("ALTER TABLE runs {what} COLUMN {name}{kind}")).unwrap();
            });
        };
        each("ADD", " INTEGER");
        table::insert(&old, &ran, None).unwrap();
        each("DROP", "");
        drop(old);
        let past = |dataset: &Dataset| {
            let of =
                PastRuns { origin: Origin::Measured, uid: 0, gpu_model: None, emulated: false, limit: 9 };
            dataset.past_runs(&ProgramKey::of(&["p".to_owned()], Path::new("/"), 1), &of).unwrap().len()
        };
        assert_eq!(past(&Dataset::open_existing(&path).unwrap()), 1);
        assert_eq!(past(&Dataset::open(&path).unwrap()), 1);
    }

    #[test]
    fn a_migrated_dataset_has_the_tables_of_a_fresh_one() {
        let dir = tempfile::tempdir().unwrap();
        let tables = |name: &str| {
            let path = dir.path().join(name);
            drop(Dataset::open(&path).unwrap());
            let file = Connection::open(&path).unwrap();
            let mut statement = file.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
            let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            found.map(Result::unwrap).collect::<Vec<(String, Option<String>)>>()
        };
        for version in 1..=2 {
            let name = format!("{version}.db");
            released(&dir.path().join(&name), version);
            assert_eq!(tables(&name), tables("fresh.db"));
        }
    }

    #[test]
    fn migrations_are_numbered_files_and_released_ones_do_not_change() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dataset/migrations");
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries.collect();
        files.sort();
        assert_eq!(files.len(), STEPS.len(), "a step without a file, or a file without a step");
        for (at, (file, step)) in files.iter().zip(STEPS).enumerate() {
            let name = file.file_name().unwrap().to_str().unwrap();
            let (number, subject) = name.split_once('-').unwrap();
            assert_eq!(number, format!("{:03}", at + 1), "{name}");
            assert!(subject.ends_with(".sql"), "{name}");
            assert_eq!(std::fs::read_to_string(file).unwrap(), step, "{name} is not step {at}");
        }
        let released = [
            "376d6823f433bf846f63240f80654ce67c66c9e9d49032aa6516adf1dbf8b08b",
            "b06662c5c5cb1c9a92a493948b3bf0ac1a6466ef75b0dd4d8fc5b1b73b07845d",
            "664696159eaa84441cc5de7cf628e2849926e7e6f55b1b9677f0a1f8b04794d1",
        ];
        for (step, digest) in STEPS.iter().zip(released) {
            let found: String = Sha256::digest(step).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, digest, "a released step was changed: add a step instead");
        }
    }
}
