//! Memory, SM activity, power and energy of each GPU over time, in buckets.

use std::collections::BTreeMap;

use radrm_protocol::wire::{CurvePoint, CurvesRow, GpuCurve, GpuStats};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

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

impl Watched {
    fn add(&mut self, more: &Self) {
        self.samples += more.samples;
        self.used += more.used;
        self.peak = self.peak.max(more.peak);
        self.smact += more.smact;
        self.smact_samples += more.smact_samples;
        self.power += more.power;
        self.power_samples += more.power_samples;
        self.energy_mj = match (self.energy_mj, more.energy_mj) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
    }

    fn figures(&self, gpu: String) -> GpuStats {
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        GpuStats {
            gpu,
            samples: self.samples,
            mean_used: mean(self.used, self.samples).unwrap_or(0.0),
            peak_used: Some(self.peak as u64),
            mean_smact: mean(self.smact, self.smact_samples),
            smact_samples: self.smact_samples,
            mean_power_w: mean(self.power, self.power_samples),
            energy_mj: self.energy_mj,
        }
    }
}

/// Length of a bucket, s. With [`MAX_LONGEST`] a node of 8 GPUs keeps 840,000 rows.
pub(crate) const BUCKET_S: u64 = 300;

/// Lengths of buckets, s, each a multiple of the one before. The same figures are added up in buckets of each length, so that a question
/// over a year reads a few thousand of them.
const LENGTHS: [u64; 3] = [BUCKET_S, 3600, LONGEST_S];
const LONGEST_S: u64 = 6 * 3600;

/// Most of the longest buckets that are kept: a year of them. Not by age: a clock that is set ahead would make all of them old.
const MAX_LONGEST: u64 = 365 * 86_400 / LONGEST_S;

/// Most buckets of a GPU that one curve is read from.
const MAX_READ: u64 = 1500;

/// Most points of a curve.
pub(crate) const MAX_POINTS: u64 = 500;

/// Sums over buckets, in the order of [`sums`].
const SUMS: &str = "sum(samples), sum(used), max(peak), sum(smact), sum(smact_samples), sum(power), sum(power_samples), sum(energy)";

/// Table with the buckets of one length.
fn table(length: u64) -> String {
    match length {
        BUCKET_S => "curves".to_owned(),
        length => format!("curves_{length}"),
    }
}

/// Makes the tables that are not there. A bucket is named by the second at which it begins, a GPU by its row in `curve_gpus`. Figures are
/// sums.
pub(super) fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let tx = connection.transaction()?;
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS curve_gpus (id INTEGER PRIMARY KEY, gpu TEXT NOT NULL UNIQUE)",
    )?;
    for length in LENGTHS {
        tx.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS {} (
                 bucket INTEGER NOT NULL, gpu INTEGER NOT NULL, samples INTEGER NOT NULL, used REAL NOT NULL, peak REAL NOT NULL,
                 smact REAL NOT NULL, smact_samples INTEGER NOT NULL, power REAL NOT NULL, power_samples INTEGER NOT NULL,
                 energy REAL, PRIMARY KEY (bucket, gpu)
             ) WITHOUT ROWID",
            table(length)
        ))?;
    }
    tx.commit()
}

/// Adds figures of the time up to now to the buckets of now.
pub(super) fn put(tx: &Transaction<'_>, gpu: &str, at_ms: u64, more: &Watched) -> rusqlite::Result<()> {
    tx.prepare_cached("INSERT OR IGNORE INTO curve_gpus (gpu) VALUES (?1)")?.execute([gpu])?;
    for length in LENGTHS {
        let sql = format!(
            "INSERT INTO {} SELECT ?2, id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 FROM curve_gpus WHERE gpu = ?1
             ON CONFLICT (bucket, gpu) DO UPDATE SET
                 samples = samples + excluded.samples, used = used + excluded.used, peak = max(peak, excluded.peak),
                 smact = smact + excluded.smact, smact_samples = smact_samples + excluded.smact_samples,
                 power = power + excluded.power, power_samples = power_samples + excluded.power_samples,
                 energy = CASE WHEN excluded.energy IS NULL THEN energy ELSE coalesce(energy, 0) + excluded.energy END",
            table(length)
        );
        tx.prepare_cached(&sql)?.execute(params![
            gpu,
            int(at_ms / 1000 / length * length),
            int(more.samples),
            more.used,
            more.peak,
            more.smact,
            int(more.smact_samples),
            more.power,
            int(more.power_samples),
            more.energy_mj
        ])?;
    }
    Ok(())
}

/// Forgets the buckets before the newest [`MAX_LONGEST`] of the longest.
pub(crate) fn forget_older(tx: &Transaction<'_>) -> rusqlite::Result<()> {
    keep(tx, MAX_LONGEST)
}

/// Keeps so many of the longest buckets, the newest, and the shorter ones in them. Only the longest are counted: they are few.
fn keep(tx: &Transaction<'_>, most: u64) -> rusqlite::Result<()> {
    let longest = table(LONGEST_S);
    let sql = format!("SELECT DISTINCT bucket FROM {longest} ORDER BY bucket DESC LIMIT 1 OFFSET ?1");
    let Some(last) = tx.query_row(&sql, [int(most)], |row| row.get::<_, i64>(0)).optional()? else {
        return Ok(());
    };
    for length in LENGTHS {
        let before = last + int(LONGEST_S);
        tx.execute(&format!("DELETE FROM {} WHERE bucket < ?1", table(length)), [before])?;
    }
    Ok(())
}

/// Begin of the first and end of the last of the shortest buckets that lie in `from_ms..to_ms`, at least in part, s.
fn ends(connection: &Connection, from_ms: u64, to_ms: u64) -> rusqlite::Result<Option<(u64, u64)>> {
    let from = from_ms / 1000 / BUCKET_S * BUCKET_S;
    let of = |sql: &str, at: u64| -> rusqlite::Result<Option<u64>> {
        let found: Option<i64> = connection.prepare_cached(sql)?.query_row([int(at)], |row| row.get(0))?;
        Ok(found.map(i64::unsigned_abs))
    };
    let first = of("SELECT min(bucket) FROM curves WHERE bucket >= ?1", from)?;
    let last = of("SELECT max(bucket) FROM curves WHERE bucket < ?1", to_ms.div_ceil(1000))?;
    let ends = first.zip(last.map(|last| last + BUCKET_S));
    Ok(ends.filter(|(first, end)| first < end))
}

/// A time between ends of the shortest buckets, s, in parts: the length of the buckets from which each is read, its begin and its end.
fn parts(mut from: u64, mut to: u64) -> Vec<(u64, u64, u64)> {
    let mut parts = Vec::new();
    for lengths in LENGTHS.windows(2) {
        let [length, longer] = *lengths else { continue };
        let (first, last) = (from.next_multiple_of(longer), to / longer * longer);
        if first >= last {
            parts.push((length, from, to));
            return parts;
        }
        parts.extend([(length, from, first), (length, last, to)]);
        (from, to) = (first, last);
    }
    parts.push((LONGEST_S, from, to));
    parts
}

/// Names of GPUs by their numbers.
fn names(connection: &Connection) -> rusqlite::Result<BTreeMap<i64, String>> {
    let mut statement = connection.prepare_cached("SELECT id, gpu FROM curve_gpus")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Figures of each GPU over the shortest buckets that lie in `from_ms..to_ms`, at least in part.
pub(crate) fn select(connection: &Connection, from_ms: u64, to_ms: u64) -> rusqlite::Result<Vec<GpuStats>> {
    let Some((from, to)) = ends(connection, from_ms, to_ms)? else { return Ok(Vec::new()) };
    let mut gpus: BTreeMap<i64, Watched> = BTreeMap::new();
    for (length, from, to) in parts(from, to) {
        let table = table(length);
        let sql = format!("SELECT gpu, {SUMS} FROM {table} WHERE bucket >= ?1 AND bucket < ?2 GROUP BY gpu");
        let mut statement = connection.prepare_cached(&sql)?;
        for row in statement.query_map([int(from), int(to)], |row| Ok((row.get(0)?, sums(row)?)))? {
            let (gpu, part): (i64, Watched) = row?;
            gpus.entry(gpu).or_default().add(&part);
        }
    }
    let mut names = names(connection)?;
    let mut all: Vec<GpuStats> =
        gpus.iter().filter_map(|(gpu, sums)| Some(sums.figures(names.remove(gpu)?))).collect();
    all.sort_by(|one, other| one.gpu.cmp(&other.gpu));
    Ok(all)
}

/// Length of the buckets from which a curve over so many seconds is read.
fn length_for(span: u64) -> u64 {
    LENGTHS.into_iter().find(|length| span / length < MAX_READ).unwrap_or(LONGEST_S)
}

/// Figures of each GPU over the buckets from `from_ms` to `to_ms`, neighbouring ones together where there are more than
/// [`MAX_POINTS`]. A long time is read from long buckets, which may begin before `from_ms`.
pub(crate) fn over_time(connection: &Connection, from_ms: u64, to_ms: u64) -> rusqlite::Result<CurvesRow> {
    let Some((from, to)) = ends(connection, from_ms, to_ms)? else { return Ok(CurvesRow::default()) };
    let length = length_for(to - from);
    let first = from / length * length;
    let step_s = (to - first).div_ceil(length).div_ceil(MAX_POINTS) * length;
    let table = table(length);
    let mut statement = connection.prepare_cached(&format!(
        "SELECT gpu, {SUMS}, (bucket - ?1) / ?3 FROM {table} WHERE bucket >= ?1 AND bucket < ?2
         GROUP BY gpu, (bucket - ?1) / ?3 ORDER BY gpu, (bucket - ?1) / ?3"
    ))?;
    let rows = statement.query_map([int(first), int(to), int(step_s)], |row| {
        Ok((row.get::<_, i64>(0)?, sums(row)?, row.get::<_, i64>(9)?.unsigned_abs()))
    })?;
    let mut points: BTreeMap<i64, Vec<CurvePoint>> = BTreeMap::new();
    for row in rows {
        let (gpu, sums, at) = row?;
        let GpuStats { mean_used, peak_used, mean_smact, mean_power_w, energy_mj, .. } =
            sums.figures(String::new());
        let point = CurvePoint { at, mean_used, peak_used, mean_smact, mean_power_w, energy_mj };
        points.entry(gpu).or_default().push(point);
    }
    let mut names = names(connection)?;
    let curve = |(gpu, points)| Some(GpuCurve { gpu: names.remove(&gpu)?, points, ..GpuCurve::default() });
    let mut gpus: Vec<GpuCurve> = points.into_iter().filter_map(curve).collect();
    gpus.sort_by(|one, other| one.gpu.cmp(&other.gpu));
    Ok(CurvesRow { from_ms: first * 1000, step_ms: step_s * 1000, gpus, emulated: None })
}

/// Figures of each GPU over all time, also of buckets that are forgotten: their peak is not known.
pub(super) fn of_all_time(connection: &Connection) -> rusqlite::Result<Vec<GpuStats>> {
    let mut statement = connection.prepare_cached(
        "SELECT gpu, samples, used, 0.0, smact, smact_samples, power, power_samples, energy FROM watched ORDER BY gpu",
    )?;
    let gpu = |row: &Row<'_>| Ok(GpuStats { peak_used: None, ..sums(row)?.figures(row.get(0)?) });
    statement.query_map([], gpu)?.collect()
}

/// Sums of a row, behind its GPU.
fn sums(row: &Row<'_>) -> rusqlite::Result<Watched> {
    let count = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
    Ok(Watched {
        samples: count(1)?,
        used: row.get(2)?,
        peak: row.get(3)?,
        smact: row.get(4)?,
        smact_samples: count(5)?,
        power: row.get(6)?,
        power_samples: count(7)?,
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
        assert_eq!(store.gpu_stats(0).unwrap()[0].samples, 360);
        assert_eq!(store.gpu_stats(3 * hour).unwrap()[0].samples, 120);
        let year = 365 * 24 * hour;
        let ahead = 2 * hour + year;
        store
            .transaction(|tx| {
                put_watched(tx, "GPU-a", ahead, &minute(1.0, 0.1, 0.0)).and_then(|()| forget_older(tx))
            })
            .unwrap();
        let of = |from, to| select(&store.connection, from, to).unwrap().len();
        assert_eq!((of(0, 2 * hour), of(ahead, u64::MAX)), (1, 1), "a clock that is ahead forgets nothing");
        store.transaction(|tx| put_watched(tx, "GPU-a", 7 * hour, &minute(1.0, 0.1, 0.0))).unwrap();
        store.transaction(|tx| keep(tx, 2)).unwrap();
        let of = |from, to| select(&store.connection, from, to).unwrap().len();
        assert_eq!(of(0, 6 * hour), 0, "more buckets than are kept");
        assert_eq!((of(6 * hour, 8 * hour), of(ahead, u64::MAX)), (1, 1));
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

    /// Begin, and figures by bucket, of a GPU whose every bucket is another.
    fn differing(buckets: u64) -> (Store, tempfile::TempDir, u64) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("q.db")).unwrap();
        let begun = 1_790_000_100;
        store
            .transaction(|tx| {
                (0..buckets).try_for_each(|bucket| {
                    let at_ms = (begun + bucket * BUCKET_S) * 1000;
                    let figures = Watched { samples: 1, peak: bucket as f64, ..Watched::default() };
                    let energy_mj = (bucket % 5 > 0).then_some(bucket as f64);
                    put_watched(tx, "GPU-a", at_ms, &Watched { used: bucket as f64, energy_mj, ..figures })
                })
            })
            .unwrap();
        (store, dir, begun)
    }

    #[test]
    fn figures_of_any_interval_are_the_sums_of_its_shortest_buckets() {
        let (store, _dir, begun) = differing(400);
        for (from, to) in [(0, 400), (1, 399), (7, 200), (30, 31), (100, 140), (200, 290), (395, 400)] {
            let ms = |bucket: u64| (begun + bucket * BUCKET_S) * 1000;
            let found = select(&store.connection, ms(from), ms(to)).unwrap();
            let all: Vec<u64> = (from..to).collect();
            let sum = |of: &mut dyn Iterator<Item = &u64>| of.sum::<u64>() as f64;
            let mean = sum(&mut all.iter()) / all.len() as f64;
            let energy = sum(&mut all.iter().filter(|bucket| *bucket % 5 > 0));
            let gpu = &found[0];
            assert_eq!((gpu.samples, gpu.peak_used), (to - from, Some(to - 1)), "{from} to {to}");
            assert!((gpu.mean_used - mean).abs() < 1e-9, "{from} to {to}: {}", gpu.mean_used);
            let known = all.iter().any(|bucket| bucket % 5 > 0);
            assert_eq!(gpu.energy_mj, known.then_some(energy), "{from} to {to}");
        }
    }

    #[test]
    fn a_question_over_any_time_reads_a_bounded_number_of_buckets() {
        let begun = 1_790_000_100;
        for minutes in (5..366 * 24 * 60).step_by(5 * 997) {
            let (from, to) = (begun, begun + minutes * 60);
            let parts = parts(from, to);
            let read: u64 = parts.iter().map(|(length, from, to)| (to - from) / length).sum();
            assert!(read <= MAX_READ, "{read} for {minutes} minutes");
            assert_eq!(parts.iter().map(|(_, from, to)| to - from).sum::<u64>(), to - from);
            let whole = |(length, from, to): &(u64, u64, u64)| from % length == 0 && to % length == 0;
            assert!(parts.iter().all(whole), "{parts:?}");
            let length = length_for(to - from);
            assert!(
                (to - from) / length <= MAX_READ,
                "a curve of {minutes} minutes from buckets of {length} s"
            );
        }
    }

    #[test]
    fn a_long_curve_has_all_figures_of_its_time() {
        let (store, _dir, begun) = differing(6 * 288);
        let all = over_time(&store.connection, 0, u64::MAX).unwrap();
        assert_eq!((all.from_ms, all.step_ms), (begun / 3600 * 3_600_000, 3_600_000));
        let points = &all.gpus[0].points;
        assert_eq!((points.len(), points.last().and_then(|point| point.peak_used)), (145, Some(6 * 288 - 1)));
        let energy: f64 = points.iter().filter_map(|point| point.energy_mj).sum();
        let expected = (0..6 * 288).filter(|bucket| bucket % 5 > 0).sum::<u64>() as f64;
        assert!((energy - expected).abs() < 1e-6, "{energy} of {expected}");
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
        let year = (size(&store) - before) * (365 * 86_400 / BUCKET_S) / buckets;
        assert!(year < 100_000_000, "{year} bytes a year");
    }
}
