//! Jobs that were seen to share a GPU, and how fast each launched its kernels there and alone.

use rusqlite::{Connection, Error, named_params};
use serde::{Deserialize, Serialize};

/// A GPU's company for a while. A row of the table `sharing`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sharing {
    /// Time at which it was seen, ns since 1970.
    pub unix_ns: u64,
    /// Host name.
    pub host: String,
    /// Product name of the GPU.
    pub gpu_model: String,
    /// Specification of the emulated machine; `None` on real GPUs.
    pub emulated: Option<String>,
    /// All jobs on it.
    pub jobs: Vec<SharedJob>,
}

/// One of the jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedJob {
    /// Program that it runs, see [`program_name`].
    pub program: String,
    /// Its number.
    pub job: u64,
    /// SM activity alone, thousandths.
    pub smact_permille: u32,
    /// SM occupancy alone, thousandths.
    pub smocc_permille: u32,
    /// DRAM activity alone, thousandths.
    pub drama_permille: u32,
    /// Kernels launched in a second while it was alone.
    pub alone_per_s: f64,
    /// And in this company.
    pub beside_per_s: f64,
}

impl SharedJob {
    /// Its speed against running alone, 0 to 1; `None` if it launched nothing alone.
    #[must_use]
    pub fn speed(&self) -> Option<f64> {
        let speed = self.beside_per_s / self.alone_per_s;
        (self.alone_per_s > 0.0 && speed.is_finite()).then(|| speed.clamp(0.0, 1.0))
    }
}

/// A program of one batch size, for those that share GPUs: with another batch size it fills a GPU otherwise.
#[must_use]
pub fn program_name(key: &str, batch: Option<u32>) -> String {
    batch.map_or_else(|| key.to_owned(), |batch| format!("{key} batch {batch}"))
}

pub(super) fn insert(connection: &Connection, row: &Sharing, keep: u32) -> Result<(), Error> {
    let jobs =
        serde_json::to_string(&row.jobs).map_err(|error| Error::ToSqlConversionFailure(error.into()))?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO sharing (unix_ns, host, gpu_model, emulated, jobs)
         VALUES (:unix_ns, :host, :gpu_model, :emulated, :jobs)",
    )?;
    statement.execute(named_params! {
        ":unix_ns": i64::try_from(row.unix_ns).unwrap_or(i64::MAX), ":host": row.host,
        ":gpu_model": row.gpu_model, ":emulated": row.emulated, ":jobs": jobs,
    })?;
    connection
        .execute("DELETE FROM sharing WHERE id <= ?", [connection.last_insert_rowid() - i64::from(keep)])?;
    Ok(())
}

/// The newest rows, oldest first. A row in a form that is not known is left out.
pub(super) fn select(connection: &Connection, newest: u32) -> Result<Vec<Sharing>, Error> {
    let mut statement = connection.prepare(
        "SELECT unix_ns, host, gpu_model, emulated, jobs
         FROM (SELECT * FROM sharing ORDER BY id DESC LIMIT ?) ORDER BY id",
    )?;
    let rows = statement.query_map([newest], |sql| {
        let jobs: String = sql.get("jobs")?;
        Ok(serde_json::from_str(&jobs).ok().map(|jobs| Sharing {
            unix_ns: sql.get::<_, i64>("unix_ns").unwrap_or(0).unsigned_abs(),
            host: sql.get("host").unwrap_or_default(),
            gpu_model: sql.get("gpu_model").unwrap_or_default(),
            emulated: sql.get("emulated").unwrap_or_default(),
            jobs,
        }))
    })?;
    rows.filter_map(Result::transpose).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Dataset;
    use super::*;

    fn row(at: u64) -> Sharing {
        let job = SharedJob {
            program: "p".into(),
            job: at,
            alone_per_s: 200.0,
            beside_per_s: 150.0,
            ..SharedJob::default()
        };
        Sharing { unix_ns: at, gpu_model: "G".into(), jobs: vec![job.clone(), job], ..Sharing::default() }
    }

    #[test]
    fn the_newest_companies_are_kept_and_read_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d.db");
        let mut dataset = Dataset::open(&path).unwrap();
        for at in 1..=9 {
            dataset.add_sharing(&row(at), 5).unwrap();
        }
        assert_eq!(dataset.sharing(3).unwrap(), [row(7), row(8), row(9)]);
        assert_eq!(dataset.sharing(100).unwrap().len(), 5);
        let broken = "INSERT INTO sharing (unix_ns, host, gpu_model, jobs) VALUES (1, '', 'G', '[{]')";
        dataset.connection.execute(broken, []).unwrap();
        assert_eq!(dataset.sharing(2).unwrap(), [row(9)]);
    }

    #[test]
    fn a_speed_is_a_part_of_the_rate_alone() {
        assert_eq!(row(1).jobs[0].speed(), Some(0.75));
        let of = |alone_per_s, beside_per_s| {
            SharedJob { alone_per_s, beside_per_s, ..SharedJob::default() }.speed()
        };
        assert_eq!((of(0.0, 0.0), of(0.0, 5.0), of(f64::NAN, 1.0)), (None, None, None));
        assert_eq!(of(10.0, 12.0), Some(1.0));
    }
}
