//! Real runs of programs that were dry-run before: later dry runs are corrected by them.

use std::collections::BTreeMap;

use super::program::ProgramKey;
use super::schema;
use radrm_base::{Bytes, ProgramKind};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, named_params};

/// Runs that are read, the newest.
const MAX_RUNS: u32 = 1000;

/// A dry run that ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastDryRun {
    /// What the driver would have held on one GPU.
    pub held: Bytes,
    /// Its kind of program; `None` in rows of older versions.
    pub kind: Option<ProgramKind>,
    /// Model of the emulated GPU.
    pub gpu_model: Option<String>,
    /// Its frameworks with their versions.
    pub framework: Option<String>,
}

/// Programs that were dry-run and then ran on a real GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DryRunPairs {
    /// Model of the real GPUs.
    pub gpu_model: Option<String>,
    /// The oldest first. A program at one batch size may be in it several times.
    pub pairs: Vec<DryRunPair>,
}

/// A dry run and a real run of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DryRunPair {
    /// What the dry run held.
    pub held: Bytes,
    /// Its kind of program; `None` in rows of older versions.
    pub kind: Option<ProgramKind>,
    /// The peak of the real run.
    pub peak: Bytes,
}

/// Where a dry run's row, `dry`, has its kind of program.
const KIND: &str = "CASE WHEN json_valid(dry.predicted_source) THEN json_extract(dry.predicted_source, '$.dry_run.kind') END";

fn bytes(value: i64) -> Bytes {
    Bytes(u64::try_from(value).unwrap_or(0))
}

/// What another program left there that is no kind is read as none.
fn kind(value: ValueRef<'_>) -> Option<ProgramKind> {
    value.as_str().ok().and_then(ProgramKind::parse)
}

/// The newest complete one of a user's program at this batch size, on emulated GPUs of this model if one is named.
pub(super) fn newest_dry_run(
    connection: &Connection,
    key: &ProgramKey,
    (uid, batch, gpu_model): (u32, Option<u32>, Option<&str>),
) -> Result<Option<PastDryRun>, rusqlite::Error> {
    if schema::version(connection)? < schema::KEYS_SINCE {
        return Ok(None);
    }
    let mut statement = connection.prepare(&format!(
        "SELECT footprint_bytes, {KIND}, gpu_model, framework FROM runs AS dry
         WHERE program_key = :key AND origin = 'dry_run' AND uid = :uid AND bounds_need = 1 AND complete
             AND batch IS :batch AND (:model IS NULL OR gpu_model = :model)
         ORDER BY id DESC LIMIT 1",
    ))?;
    let given = named_params! { ":key": key.as_str(), ":uid": uid, ":batch": batch, ":model": gpu_model };
    let row = |sql: &rusqlite::Row<'_>| {
        let (held, kind) = (bytes(sql.get(0)?), kind(sql.get_ref(1)?));
        Ok(PastDryRun { held, kind, gpu_model: sql.get(2)?, framework: sql.get(3)? })
    };
    statement.query_row(given, row).optional()
}

/// The pairs of dry runs like this one: on the same emulated model, with the same frameworks. Of real GPUs those of the
/// named model count, else those of the emulated model, else those of the model on which most ran.
pub(super) fn of_stack(
    connection: &Connection,
    like: &PastDryRun,
    gpu_model: Option<&str>,
) -> Result<DryRunPairs, rusqlite::Error> {
    if schema::version(connection)? < schema::KEYS_SINCE {
        return Ok(DryRunPairs::default());
    }
    // Both are of one user: equal command lines of two users are two programs.
    let mut statement = connection.prepare(&format!(
        "SELECT real.gpu_model, dry.footprint_bytes, {KIND}, real.footprint_bytes
         FROM runs AS real JOIN runs AS dry ON dry.id = (
             SELECT id FROM runs WHERE program_key = real.program_key AND origin = 'dry_run' AND uid = real.uid
                 AND framework IS :framework AND gpu_model IS :emulated AND bounds_need = 1 AND complete
                 AND batch IS real.batch AND id < real.id
             ORDER BY id DESC LIMIT 1)
         WHERE real.origin = 'measured' AND real.emulated IS NULL AND real.bounds_need = 1 AND real.complete
             AND real.framework IS :framework AND (:model IS NULL OR real.gpu_model = :model) AND real.footprint_bytes > 0
         ORDER BY real.id DESC LIMIT :limit"
    ))?;
    let given = named_params! {
        ":framework": like.framework, ":emulated": like.gpu_model, ":model": gpu_model, ":limit": MAX_RUNS,
    };
    let found = statement.query_map(given, |sql| {
        let (held, kind, peak) = (bytes(sql.get(1)?), kind(sql.get_ref(2)?), bytes(sql.get(3)?));
        Ok((sql.get::<_, Option<String>>(0)?, DryRunPair { held, kind, peak }))
    })?;
    let mut by_model: BTreeMap<Option<String>, Vec<DryRunPair>> = BTreeMap::new();
    for row in found {
        let (model, pair) = row?;
        by_model.entry(model).or_default().push(pair);
    }
    let chosen = by_model.into_iter().max_by_key(|(model, pairs)| (*model == like.gpu_model, pairs.len()));
    let Some((gpu_model, mut pairs)) = chosen else { return Ok(DryRunPairs::default()) };
    pairs.reverse();
    Ok(DryRunPairs { gpu_model, pairs })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::dataset::{Dataset, Origin, Row};

    const TORCH: &str = "PyTorch 2.15.0";

    /// A dry run of the stack that the rows have.
    fn like() -> PastDryRun {
        let [gpu_model, framework] = ["H200", TORCH].map(|text| Some(text.to_owned()));
        PastDryRun { gpu_model, framework, ..PastDryRun::default() }
    }

    /// A dataset, and the folder that it lies in.
    struct Fixture(Dataset, #[expect(dead_code, reason = "it goes with the dataset")] tempfile::TempDir);

    impl Fixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            Self(Dataset::open(&folder.path().join("d.db")).unwrap(), folder)
        }

        fn add(&mut self, line: &str, origin: Origin, mib: u64, change: impl FnOnce(Row) -> Row) {
            let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let emulated = (origin != Origin::Measured).then(|| "1xH200".to_owned());
            let model = if origin == Origin::Measured { "A100" } else { "H200" };
            let row = Row {
                origin,
                emulated,
                gpu_model: Some(model.to_owned()),
                framework: Some(TORCH.to_owned()),
                footprint_bytes: Some(mib),
                complete: true,
                outcome: "exited".into(),
                ..Row::of_command(&command, Path::new("/work"), 1)
            };
            self.0.add(&change(row), None).unwrap();
        }

        fn pairs(&self, gpu_model: Option<&str>) -> (Option<String>, Vec<(u64, u64)>) {
            let found = self.0.dry_run_pairs(&like(), gpu_model).unwrap();
            (found.gpu_model, found.pairs.iter().map(|pair| (pair.held.0, pair.peak.0)).collect())
        }
    }

    #[test]
    fn a_run_is_paired_with_the_newest_dry_run_before_it() {
        let mut set = Fixture::new();
        set.add("t --bs 8", Origin::Measured, 99, |row| row);
        set.add("t --bs 8", Origin::DryRun, 10, |row| row);
        set.add("t --bs 8", Origin::DryRun, 11, |row| row);
        set.add("t --bs 16", Origin::Measured, 50, |row| row);
        set.add("t --bs 8", Origin::Measured, 20, |row| row);
        set.add("t --bs 8", Origin::DryRun, 12, |row| row);
        set.add("t --bs 8", Origin::Measured, 21, |row| row);
        assert_eq!(set.pairs(None), (Some("A100".to_owned()), vec![(11, 20), (12, 21)]));
    }

    #[test]
    fn a_pair_has_the_kind_that_the_dry_runs_row_has() {
        let mut set = Fixture::new();
        let sources = [
            (r#"{"dry_run": {"held": 1, "kind": "cudnn"}}"#, Some(ProgramKind::Cudnn)),
            (r#"{"dry_run": {"held": 1}}"#, None),
            (r#"{"dry_run": {"kind": "of a later version"}}"#, None),
            (r#"{"dry_run": {"kind": 7}}"#, None),
            ("no JSON", None),
        ];
        for (at, (source, _)) in sources.iter().enumerate() {
            let line = format!("t{at} --bs 8");
            set.add(&line, Origin::DryRun, 10, |row| Row { predicted_source: Some((*source).into()), ..row });
            set.add(&line, Origin::Measured, 20, |row| row);
        }
        let kinds = |pairs: &[DryRunPair]| pairs.iter().map(|pair| pair.kind).collect::<Vec<_>>();
        let found = set.0.dry_run_pairs(&like(), None).unwrap();
        assert_eq!(kinds(&found.pairs), sources.map(|(_, kind)| kind));
        let key =
            ProgramKey::of(&["t0".to_owned(), "--bs".to_owned(), "8".to_owned()], Path::new("/work"), 1);
        let newest = set.0.newest_dry_run(&key, 0, Some(8), None).unwrap().unwrap();
        assert_eq!(newest.kind, Some(ProgramKind::Cudnn));
    }

    #[test]
    fn a_dry_run_on_another_card_hides_no_pair() {
        let mut set = Fixture::new();
        set.add("t", Origin::DryRun, 10, |row| row);
        set.add("t", Origin::DryRun, 9, |row| Row { gpu_model: Some("T4".into()), ..row });
        set.add("t", Origin::Measured, 20, |row| row);
        assert_eq!(set.pairs(None).1, [(10, 20)]);
    }

    #[test]
    fn other_stacks_and_runs_that_were_cut_short_are_no_pairs() {
        let mut set = Fixture::new();
        let other = |change: fn(Row) -> Row| change;
        set.add("t", Origin::DryRun, 10, |row| row);
        for change in [
            other(|row| Row { framework: Some("PyTorch 2.14.0".into()), ..row }),
            other(|row| Row { framework: None, ..row }),
            other(|row| Row { complete: false, ..row }),
            other(|row| Row { origin: Origin::Emulated, emulated: Some("1xA100".into()), ..row }),
            other(|row| Row { uid: 8, ..row }),
            other(|row| Row { footprint_bytes: Some(0), ..row }),
            other(|row| Row { footprint_bytes: None, ..row }),
        ] {
            set.add("t", Origin::Measured, 20, change);
        }
        set.add("u", Origin::DryRun, 10, |row| Row { complete: false, ..row });
        set.add("u", Origin::Measured, 20, |row| row);
        set.add("v", Origin::DryRun, 10, |row| Row { gpu_model: Some("T4".into()), ..row });
        set.add("v", Origin::Measured, 20, |row| row);
        assert_eq!(set.pairs(None), (None, vec![]));
        set.add("t", Origin::Measured, 20, |row| row);
        assert_eq!(set.pairs(None).1, [(10, 20)]);
    }

    #[test]
    fn the_emulated_model_comes_first_and_then_the_one_with_most_runs() {
        let mut set = Fixture::new();
        let on = |model: &'static str| move |row| Row { gpu_model: Some(model.to_owned()), ..row };
        set.add("t", Origin::DryRun, 10, |row| row);
        for (model, peak) in [("A100", 20), ("L4", 30), ("L4", 31)] {
            set.add("t", Origin::Measured, peak, on(model));
        }
        assert_eq!(set.pairs(None), (Some("L4".to_owned()), vec![(10, 30), (10, 31)]));
        assert_eq!(set.pairs(Some("A100")).1, [(10, 20)]);
        set.add("t", Origin::Measured, 40, on("H200"));
        assert_eq!(set.pairs(None), (Some("H200".to_owned()), vec![(10, 40)]));
    }

    #[test]
    fn the_newest_dry_run_of_a_program_has_its_stack() {
        let mut set = Fixture::new();
        for held in [5, 7] {
            set.add("t --bs 8", Origin::DryRun, held, |row| row);
        }
        set.add("t --bs 8", Origin::DryRun, 9, |row| Row { complete: false, ..row });
        let of = |line: &str, batch, model: Option<&str>| {
            let command: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let key = ProgramKey::of(&command, Path::new("/work"), 1);
            set.0.newest_dry_run(&key, 0, batch, model).unwrap()
        };
        let found = of("t --bs 99", Some(8), None).unwrap();
        assert_eq!((found.held, found.gpu_model.as_deref()), (Bytes(7), Some("H200")));
        assert_eq!(found.framework.as_deref(), Some(TORCH));
        assert_eq!(of("t --bs 99", Some(16), None), None);
        assert_eq!(of("t --bs 99", Some(8), Some("T4")), None);
    }
}
