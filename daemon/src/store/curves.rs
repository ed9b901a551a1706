//! Memory, SM activity, power and energy of each GPU over time, in buckets.

use radrm_protocol::wire::{CurvePoint, CurvesRow, GpuCurve, GpuStats};
use rusqlite::{Connection, Row, Transaction, params};

use super::integer::int;

/// Addition to a GPU's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Watched {
    pub(crate) samples: u64,
    pub(crate) used: f64,
    /// Most memory in use in one sample, bytes.
    pub(crate) peak: f64,
    pub(crate) smact: f64,
    pub(crate) smact_samples: u64,
    pub(crate) power: f64,
    pub(crate) power_samples: u64,
    pub(crate) energy_mj: Option<f64>,
}

/// The tables. A bucket is named by the second at which it begins, a GPU by its row in `curve_gpus`. Figures are sums.
pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS curve_gpus (id INTEGER PRIMARY KEY, gpu TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS curves (
    bucket INTEGER NOT NULL, gpu INTEGER NOT NULL, samples INTEGER NOT NULL, used REAL NOT NULL, peak REAL NOT NULL,
    smact REAL NOT NULL, smact_samples INTEGER NOT NULL, power REAL NOT NULL, power_samples INTEGER NOT NULL, energy REAL,
    PRIMARY KEY (bucket, gpu)
) WITHOUT ROWID;
";

/// Length of a bucket, s. With [`MAX_BUCKETS`] a node of 8 GPUs keeps 840,000 rows.
pub(crate) const BUCKET_S: u64 = 300;

/// Most buckets that are kept: a year of them. Not by age: a clock that is set ahead would make all of them old.
const MAX_BUCKETS: u64 = 365 * 86_400 / BUCKET_S;

/// Adds figures of the time up to now to the bucket of now.
pub(super) fn put(tx: &Transaction<'_>, gpu: &str, at_ms: u64, more: &Watched) -> rusqlite::Result<()> {
    tx.prepare_cached("INSERT OR IGNORE INTO curve_gpus (gpu) VALUES (?1)")?.execute([gpu])?;
    let bucket = at_ms / 1000 / BUCKET_S * BUCKET_S;
    tx.prepare_cached(
        "INSERT INTO curves SELECT ?2, id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 FROM curve_gpus WHERE gpu = ?1
         ON CONFLICT (bucket, gpu) DO UPDATE SET
             samples = samples + excluded.samples, used = used + excluded.used, peak = max(peak, excluded.peak),
             smact = smact + excluded.smact, smact_samples = smact_samples + excluded.smact_samples,
             power = power + excluded.power, power_samples = power_samples + excluded.power_samples,
             energy = CASE WHEN excluded.energy IS NULL THEN energy ELSE coalesce(energy, 0) + excluded.energy END",
    )?
    .execute(params![
        gpu,
        int(bucket),
        int(more.samples),
        more.used,
        more.peak,
        more.smact,
        int(more.smact_samples),
        more.power,
        int(more.power_samples),
        more.energy_mj
    ])
    .map(|_| ())
}

/// Forgets the oldest buckets above [`MAX_BUCKETS`].
pub(crate) fn forget_older(tx: &Transaction<'_>) -> rusqlite::Result<()> {
    keep(tx, MAX_BUCKETS)
}

/// Keeps so many buckets, the newest.
fn keep(tx: &Transaction<'_>, most: u64) -> rusqlite::Result<()> {
    let sql = "DELETE FROM curves WHERE bucket <= (SELECT DISTINCT bucket FROM curves ORDER BY bucket DESC LIMIT 1 OFFSET ?1)";
    tx.execute(sql, [int(most)]).map(|_| ())
}

/// Figures of each GPU over the buckets that lie in `from_ms..to_ms`, at least in part.
pub(crate) fn select(connection: &Connection, from_ms: u64, to_ms: u64) -> rusqlite::Result<Vec<GpuStats>> {
    let mut statement = connection.prepare_cached(
        "SELECT g.gpu, sum(samples), sum(used), max(peak), sum(smact), sum(smact_samples), sum(power), sum(power_samples),
                sum(energy)
         FROM curves c JOIN curve_gpus g ON g.id = c.gpu WHERE bucket > ?1 AND bucket < ?2 GROUP BY g.gpu ORDER BY g.gpu",
    )?;
    let from = int(from_ms / 1000) - int(BUCKET_S);
    statement.query_map(params![from, int(to_ms.div_ceil(1000))], stats)?.collect()
}

/// Most points of a curve.
pub(crate) const MAX_POINTS: u64 = 500;

/// Figures of each GPU over the buckets from `from_ms` to `to_ms`, neighbouring ones together where there are more than
/// [`MAX_POINTS`].
pub(crate) fn over_time(connection: &Connection, from_ms: u64, to_ms: u64) -> rusqlite::Result<CurvesRow> {
    let mut ends = connection
        .prepare_cached("SELECT min(bucket), max(bucket) FROM curves WHERE bucket > ?1 AND bucket < ?2")?;
    let from = int(from_ms / 1000) - int(BUCKET_S);
    let found: (Option<i64>, Option<i64>) =
        ends.query_row(params![from, int(to_ms.div_ceil(1000))], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (Some(first), Some(last)) = found else { return Ok(CurvesRow::default()) };
    let buckets = last.abs_diff(first) / BUCKET_S + 1;
    let step_s = buckets.div_ceil(MAX_POINTS) * BUCKET_S;
    let mut statement = connection.prepare_cached(
        "SELECT g.gpu, sum(samples), sum(used), max(peak), sum(smact), sum(smact_samples), sum(power), sum(power_samples),
                sum(energy), (bucket - ?1) / ?3
         FROM curves c JOIN curve_gpus g ON g.id = c.gpu WHERE bucket >= ?1 AND bucket <= ?2
         GROUP BY g.gpu, (bucket - ?1) / ?3 ORDER BY g.gpu, (bucket - ?1) / ?3",
    )?;
    let rows = statement.query_map(params![first, last, int(step_s)], |row| {
        Ok((stats(row)?, row.get::<_, i64>(9)?.unsigned_abs()))
    })?;
    let mut gpus: Vec<GpuCurve> = Vec::new();
    for row in rows {
        let (stats, at) = row?;
        let GpuStats { gpu, mean_used, peak_used, mean_smact, mean_power_w, energy_mj, .. } = stats;
        let point = CurvePoint { at, mean_used, peak_used, mean_smact, mean_power_w, energy_mj };
        match gpus.last_mut().filter(|curve| curve.gpu == gpu) {
            Some(curve) => curve.points.push(point),
            None => gpus.push(GpuCurve { gpu, points: vec![point], ..GpuCurve::default() }),
        }
    }
    Ok(CurvesRow { from_ms: first.unsigned_abs() * 1000, step_ms: step_s * 1000, gpus, emulated: None })
}

/// A row of sums as figures: the GPU, samples, memory, its peak, SM activity, power and energy.
pub(super) fn stats(row: &Row<'_>) -> rusqlite::Result<GpuStats> {
    let mean = |sum: f64, count: i64| (count > 0).then(|| sum / count as f64);
    let samples: i64 = row.get(1)?;
    Ok(GpuStats {
        gpu: row.get(0)?,
        samples: samples.unsigned_abs(),
        mean_used: mean(row.get(2)?, samples).unwrap_or(0.0),
        peak_used: row.get::<_, Option<f64>>(3)?.map(|bytes| bytes as u64),
        mean_smact: mean(row.get(4)?, row.get(5)?),
        mean_power_w: mean(row.get(6)?, row.get(7)?),
        energy_mj: row.get(8)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store, put_watched};

    const GIB: f64 = 1_073_741_824.0;

    fn minute(used: f64, smact: f64, energy: f64) -> Watched {
        let energy_mj = Some(energy);
        let (used, peak) = (used * GIB * 60.0, used * GIB);
        let (smact, power) = (smact * 60.0, 250.0 * 60.0);
        Watched { samples: 60, used, peak, smact, smact_samples: 60, power, power_samples: 60, energy_mj }
    }

    #[test]
    fn figures_of_an_interval_are_those_of_its_buckets() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("q.db")).unwrap();
        let hour = 3_600_000;
        let put = [(1, 10.0, 0.2), (2, 20.0, 0.4), (3, 30.0, 0.8)];
        for (at, used, smact) in put {
            store.transaction(|tx| put_watched(tx, "GPU-a", at * hour, &minute(used, smact, 0.015))).unwrap();
            store
                .transaction(|tx| put_watched(tx, "GPU-a", at * hour + 60_000, &minute(used, smact, 0.015)))
                .unwrap();
        }
        let of = |from, to| {
            let found = select(&store.connection, from, to).unwrap();
            found
                .into_iter()
                .next()
                .map(|gpu| (gpu.samples, gpu.mean_used / GIB, gpu.mean_smact, gpu.energy_mj))
        };
        assert_eq!(of(3 * hour, u64::MAX), Some((120, 30.0, Some(0.8), Some(0.03))));
        assert_eq!(of(2 * hour, 3 * hour), Some((120, 20.0, Some(0.4), Some(0.03))));
        assert_eq!(
            of(2 * hour + 240_000, 2 * hour + 241_000).map(|found| found.0),
            Some(120),
            "a part of a bucket"
        );
        assert_eq!(of(2 * hour + 300_000, 3 * hour), None);
        assert_eq!(of(0, u64::MAX).map(|found| found.0), Some(360));
        assert_eq!(store.stats(None, 0).unwrap().gpus[0].samples, 360);
        assert_eq!(store.stats(None, 3 * hour).unwrap().gpus[0].samples, 120);
        let year = 365 * 24 * hour;
        let ahead = 2 * hour + year;
        store
            .transaction(|tx| {
                put_watched(tx, "GPU-a", ahead, &minute(1.0, 0.1, 0.0)).and_then(|()| forget_older(tx))
            })
            .unwrap();
        let of = |from, to| select(&store.connection, from, to).unwrap().len();
        assert_eq!((of(0, 2 * hour), of(ahead, u64::MAX)), (1, 1), "a clock that is ahead forgets nothing");
        store.transaction(|tx| keep(tx, 3)).unwrap();
        let of = |from, to| select(&store.connection, from, to).unwrap().len();
        assert_eq!(of(0, 2 * hour), 0, "more buckets than are kept");
        assert_eq!((of(2 * hour, 3 * hour), of(ahead, u64::MAX)), (1, 1));
    }

    #[test]
    fn a_curve_has_all_of_its_time_in_few_points() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("q.db")).unwrap();
        let begun = 1_790_000_100_000;
        // Two days, and nothing in the second hour.
        let buckets = 2 * 86_400 / BUCKET_S;
        let is_there = |bucket: &u64| !(12..24).contains(bucket);
        store
            .transaction(|tx| {
                (0..buckets).filter(is_there).try_for_each(|bucket| {
                    let used = if bucket % 2 == 0 { 10.0 } else { 20.0 };
                    let at_ms = begun + bucket * BUCKET_S * 1000;
                    put_watched(tx, "GPU-a", at_ms, &minute(used, 0.5, 0.001))?;
                    put_watched(tx, "GPU-b", at_ms, &minute(1.0, 0.0, 0.0))
                })
            })
            .unwrap();
        let all = over_time(&store.connection, 0, u64::MAX).unwrap();
        assert_eq!((all.from_ms, all.step_ms), (begun, 2 * BUCKET_S * 1000));
        let names: Vec<&str> = all.gpus.iter().map(|curve| curve.gpu.as_str()).collect();
        assert_eq!(names, ["GPU-a", "GPU-b"]);
        let points = &all.gpus[0].points;
        assert_eq!(points.len() as u64, (buckets - 12) / 2);
        assert_eq!([points[5].at, points[6].at], [5, 12], "a gap stays one");
        assert_eq!((points[0].mean_used / GIB, points[0].peak_used), (15.0, Some(20 << 30)));
        let energy: f64 = points.iter().filter_map(|point| point.energy_mj).sum();
        assert!((energy - (buckets - 12) as f64 * 0.001).abs() < 1e-9, "{energy}");
        let hour = over_time(&store.connection, begun + 1, begun + 3_600_000).unwrap();
        assert_eq!((hour.step_ms, hour.gpus[0].points.len()), (BUCKET_S * 1000, 12));
        assert_eq!(over_time(&store.connection, 0, begun).unwrap(), CurvesRow::default());
    }

    #[test]
    fn a_year_of_eight_gpus_takes_less_than_100_mb() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("q.db")).unwrap();
        let size = |store: &Store| -> u64 {
            let pages: i64 =
                store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
            pages.unsigned_abs() * 4096
        };
        let before = size(&store);
        let begun = 1_790_000_000_000;
        let gpus: Vec<String> =
            (0..8).map(|gpu| format!("GPU-{gpu}f3a0c1e-0000-1111-2222-333344445555")).collect();
        let buckets = 1500;
        store
            .transaction(|tx| {
                for bucket in 0..buckets {
                    let at_ms = begun + bucket * BUCKET_S * 1000;
                    let figures = minute(17.3 + bucket as f64 / 977.0, 0.37, 0.0731);
                    gpus.iter().try_for_each(|gpu| put_watched(tx, gpu, at_ms, &figures))?;
                }
                Ok(())
            })
            .unwrap();
        let year = (size(&store) - before) * MAX_BUCKETS / buckets;
        assert!(year < 100_000_000, "{year} bytes a year");
    }
}
