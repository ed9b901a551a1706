//! `radrmd --check`: whether a daemon could start on what is there, without starting it.

use std::fs;
use std::path::Path;

use radrm_emulator_machine::MachineSpec;
use radrm_limits::mps::protocol::Protocol;
use rusqlite::{Connection, OpenFlags};

use super::config::Config;
use super::error::DaemonError;
use super::gpus::{Gpus, reserved_whole};

/// Checks the configuration against this machine, and the queue: a sentence each. GPUs that the machine lacks are no error: they may
/// come.
///
/// # Errors
/// As [`queue`].
pub(crate) fn all(config: &Config) -> Result<Vec<String>, DaemonError> {
    config.estimator.resolver(&config.estimator.trained()?)?;
    if !config.emulate.is_empty() {
        MachineSpec::parse(&config.emulate).map_err(|why| DaemonError::Emulation(why.to_string()))?;
    }
    let gpus = Gpus::expected(config);
    let mut found = config.mps.unknown_gpus(&gpus);
    found.extend(reserved_whole(&gpus, config.gpu_reserve_mib)?);
    if config.mps.on {
        found.push(config.mps.describe(Protocol::offered().map_err(|silence| silence.to_string())));
    }
    found.push(queue(config)?);
    Ok(found)
}

/// Checks the queue of a daemon that does not run.
///
/// # Errors
/// What is damaged, and what to do.
fn queue(config: &Config) -> Result<String, DaemonError> {
    let path = config.state.join("queue.db");
    if !path.exists() {
        return Ok(format!("{} is not there: radrmd makes a new one", path.display()));
    }
    let _lock = super::process::only_one(&config.state)
        .map_err(|error| DaemonError::StopFirst { error: Box::new(error) })?;
    let jobs = integrity(&path)?;
    let folders = fs::read_dir(config.state.join("jobs")).map_or(0, Iterator::count);
    Ok(format!("{} is whole: {jobs} jobs, {folders} job folders", path.display()))
}

fn integrity(path: &Path) -> Result<u64, DaemonError> {
    let damaged = |why| DaemonError::Damaged { path: path.to_owned(), why };
    let why = |error: rusqlite::Error| damaged(error.to_string());
    let queue = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(why)?;
    let found: String = queue.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(why)?;
    if found != "ok" {
        return Err(damaged(found));
    }
    let jobs: i64 = queue.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)).map_err(why)?;
    Ok(jobs.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn estimators_and_gpus_that_radrmd_would_refuse_are_found_before_it_starts() {
        let dir = tempfile::tempdir().unwrap();
        let usual =
            Config { state: dir.path().to_owned(), emulate: "2xH200".to_owned(), ..Config::default() };
        assert!(all(&usual).is_ok());
        let gpus = Config { emulate: "2xH2000".to_owned(), ..usual.clone() };
        assert!(all(&gpus).unwrap_err().to_string().contains("H2000"));
        let reserve = |mib| all(&Config { gpu_reserve_mib: mib, ..usual.clone() });
        assert!(reserve(5000).is_ok());
        assert_eq!(
            reserve(200_000).unwrap_err().to_string(),
            "gpu_reserve_mib = 200000 leaves jobs nothing of any GPU: the largest has 143771 MiB"
        );
        let mixed = Config { emulate: "1xH200+1xT4".to_owned(), gpu_reserve_mib: 50_000, ..usual.clone() };
        let found = all(&mixed).unwrap();
        assert!(
            found.iter().any(|sentence| sentence.contains("leaves jobs nothing of GPU 1 (")),
            "{found:?}"
        );
        let mut order = usual;
        order.estimator.order = vec!["historie".to_owned()];
        assert!(all(&order).unwrap_err().to_string().contains("historie"));
    }

    #[test]
    fn a_damaged_queue_is_told_from_a_whole_one() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { state: dir.path().to_owned(), ..Config::default() };
        let path = dir.path().join("queue.db");
        assert!(queue(&config).unwrap().contains("is not there"));
        drop(Store::open(&path).unwrap());
        assert!(queue(&config).unwrap().contains("is whole: 0 jobs"));
        let mut bytes = fs::read(&path).unwrap();
        bytes[100..2000].fill(0xa5);
        fs::write(&path, bytes).unwrap();
        let why = queue(&config).unwrap_err().to_string();
        assert!(why.contains("is damaged") && why.contains("backup"), "{why}");
    }
}
