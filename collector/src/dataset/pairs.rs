//! Real runs of programs that were dry-run before: later dry runs are corrected by them. Which fields pair the two is
//! decided here and nowhere else.

use std::collections::BTreeMap;

use super::program::ProgramKey;
use super::row::{Origin, Row};
use radrm_base::Bytes;
use radrm_need::{DryRun, DryRunPair, DryRunPairs, RunFilter, Stack};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, named_params};

/// Runs that are read, the newest.
const MAX_RUNS: u32 = 1000;

fn bytes(value: i64) -> Bytes {
    Bytes(u64::try_from(value).unwrap_or(0))
}

/// The figures of a row, whose own columns come first: what another program left in the column is read as nothing.
fn dry_run(found: ValueRef<'_>, held: i64, gpu_model: Option<String>, framework: Option<String>) -> DryRun {
    let found = found.as_str().ok().and_then(|text| serde_json::from_str(text).ok());
    let found: DryRun = found.unwrap_or_default();
    let gpu = gpu_model.unwrap_or_else(|| "GPU".to_owned());
    DryRun { held: bytes(held), gpu, framework, ..found }
}

impl Row {
    /// Returns true if this is a real run of the program that was dry-run: the same program of the same user at the same batch size,
    /// with the same stack. [`of_stack`] asks the same of all rows.
    #[must_use]
    pub fn is_real_run_of(&self, dry_run: &Self) -> bool {
        let stack = |row: &Self| row.framework.clone().unwrap_or_default();
        let program = |row: &Self| (row.program_key.clone(), row.uid, row.batch);
        self.origin != Origin::DryRun
            && self.emulated.is_none()
            && dry_run.origin == Origin::DryRun
            && self.program_key.is_some()
            && program(self) == program(dry_run)
            && Stack::parse(&stack(self)).pairs_with(&Stack::parse(&stack(dry_run)))
    }
}

/// The values of the column `framework`, without NULL, that are of the same stack as this one, as a JSON list.
fn of_one_stack(connection: &Connection, like: &DryRun) -> Result<String, rusqlite::Error> {
    let wanted = like.stack();
    let mut statement = connection.prepare("SELECT DISTINCT coalesce(framework, '') FROM runs")?;
    let all = statement.query_map([], |sql| sql.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    let alike: Vec<&String> = all.iter().filter(|other| Stack::parse(other).pairs_with(&wanted)).collect();
    // A list of strings: nothing that JSON cannot hold.
    Ok(serde_json::to_string(&alike).unwrap_or_default())
}

/// The newest complete one of a program at this batch size that a filter lets pass; its model is that of the emulated GPUs.
pub(super) fn newest_dry_run(
    connection: &Connection,
    key: &ProgramKey,
    of: &RunFilter<'_>,
    batch: Option<u32>,
) -> Result<Option<DryRun>, rusqlite::Error> {
    let mut statement = connection.prepare(
        "SELECT footprint_bytes, dry_run, gpu_model, framework FROM runs AS dry
         WHERE program_key = :key AND origin = 'dry_run' AND uid = :uid AND bounds_need = 1 AND complete
             AND batch IS :batch AND (:model IS NULL OR gpu_model = :model)
             AND (:since IS NULL OR start_unix_ns / 1000000 >= :since)
         ORDER BY id DESC LIMIT 1",
    )?;
    let since = of.since.map(|since| i64::try_from(since.0).unwrap_or(i64::MAX));
    let given = named_params! {
        ":key": key.as_str(), ":uid": of.user.0, ":batch": batch, ":model": of.gpu_model, ":since": since,
    };
    let row = |sql: &rusqlite::Row<'_>| Ok(dry_run(sql.get_ref(1)?, sql.get(0)?, sql.get(2)?, sql.get(3)?));
    statement.query_row(given, row).optional()
}

/// The pairs of dry runs like this one: on the same emulated model, with the same frameworks. Of real GPUs those of the
/// named model count, else those of the emulated model, else those of the model on which most ran.
pub(super) fn of_stack(
    connection: &Connection,
    like: &DryRun,
    gpu_model: Option<&str>,
) -> Result<DryRunPairs, rusqlite::Error> {
    // Both are of one user: equal command lines of two users are two programs.
    let mut statement = connection.prepare(
        "SELECT real.gpu_model, dry.footprint_bytes, dry.dry_run, real.footprint_bytes, dry.framework, real.framework,
             real.step_ns
         FROM runs AS real JOIN runs AS dry ON dry.id = (
             SELECT id FROM runs WHERE program_key = real.program_key AND origin = 'dry_run' AND uid = real.uid
                 AND coalesce(framework, '') IN (SELECT value FROM json_each(:stack))
                 AND gpu_model IS :emulated AND bounds_need = 1 AND complete
                 AND batch IS real.batch AND id < real.id
             ORDER BY id DESC LIMIT 1)
         WHERE real.origin = 'measured' AND real.emulated IS NULL AND real.bounds_need = 1 AND real.complete
             AND coalesce(real.framework, '') IN (SELECT value FROM json_each(:stack))
             AND (:model IS NULL OR real.gpu_model = :model) AND real.footprint_bytes > 0
         ORDER BY real.id DESC LIMIT :limit",
    )?;
    let given = named_params! {
        ":stack": of_one_stack(connection, like)?, ":emulated": like.gpu, ":model": gpu_model, ":limit": MAX_RUNS,
    };
    let found = statement.query_map(given, |sql| {
        let (gpu, framework) = (Some(like.gpu.clone()), like.framework.clone());
        let dry_run = dry_run(sql.get_ref(2)?, sql.get(1)?, gpu, framework);
        let [dry, real] = [4, 5].map(|column| sql.get::<_, Option<String>>(column));
        let [dry, real] = [dry?.unwrap_or_default(), real?.unwrap_or_default()];
        // Both are of the stack that is asked for, which may show less than either.
        let is_pair = Stack::parse(&dry).pairs_with(&Stack::parse(&real));
        let step_ns = sql.get::<_, Option<i64>>(6)?.and_then(|ns| u64::try_from(ns).ok());
        let pair = DryRunPair { dry_run, peak: bytes(sql.get(3)?), step_ns };
        Ok(is_pair.then_some((sql.get::<_, Option<String>>(0)?, pair)))
    })?;
    let mut by_model: BTreeMap<Option<String>, Vec<DryRunPair>> = BTreeMap::new();
    for row in found {
        let Some((model, pair)) = row? else { continue };
        by_model.entry(model).or_default().push(pair);
    }
    let chosen =
        by_model.into_iter().max_by_key(|(model, pairs)| (model.as_ref() == Some(&like.gpu), pairs.len()));
    let Some((gpu_model, mut pairs)) = chosen else { return Ok(DryRunPairs::default()) };
    pairs.reverse();
    Ok(DryRunPairs { gpu_model, pairs })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use radrm_base::{Millis, Permille, ProgramKind};
    use radrm_need::{RunHistory, StepPrediction};

    use super::*;
    use crate::dataset::Dataset;

    const TORCH: &str = "PyTorch 2.15.0";

    /// A dry run of the stack that the rows have.
    fn like() -> DryRun {
        DryRun { gpu: "H200".to_owned(), framework: Some(TORCH.to_owned()), ..DryRun::default() }
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
            (found.gpu_model, found.pairs.iter().map(|pair| (pair.dry_run.held.0, pair.peak.0)).collect())
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
        let found = [
            (r#"{"held": 1, "kind": "cudnn", "steps": 3, "gpu": "H200"}"#, Some(ProgramKind::Cudnn)),
            (r#"{"held": 1, "steps": 3, "gpu": "H200"}"#, None),
            (r#"{"kind": "of a later version"}"#, None),
            (r#"{"kind": 7}"#, None),
            ("no JSON", None),
        ];
        for (at, (text, _)) in found.iter().enumerate() {
            let line = format!("t{at} --bs 8");
            set.add(&line, Origin::DryRun, 10, |row| row);
            let newest = "UPDATE runs SET dry_run = ?1 WHERE id = (SELECT max(id) FROM runs)";
            set.0.connection.execute(newest, [text]).unwrap();
            set.add(&line, Origin::Measured, 20, |row| row);
        }
        let kinds = |pairs: &[DryRunPair]| pairs.iter().map(|pair| pair.dry_run.kind).collect::<Vec<_>>();
        let pairs = set.0.dry_run_pairs(&like(), None).unwrap().pairs;
        assert_eq!(kinds(&pairs), found.map(|(_, kind)| kind));
        let key =
            ProgramKey::of(&["t0".to_owned(), "--bs".to_owned(), "8".to_owned()], Path::new("/work"), 1);
        let newest = set.0.newest_dry_run(&key, &RunFilter::default(), Some(8)).unwrap().unwrap();
        assert_eq!(newest.kind, Some(ProgramKind::Cudnn));
    }

    #[test]
    fn a_pair_has_the_predicted_and_the_measured_step() {
        let mut set = Fixture::new();
        let step = StepPrediction {
            gpu: [8, 10, 12],
            host: Some(1),
            low: 8,
            time: Some([8, 10, 12]),
            confidence: None,
            smact: Permille(500),
            drama: Permille(200),
            runs: 0,
        };
        set.add("t", Origin::DryRun, 10, |row| {
            let dry_run = Some(DryRun { step: Some(Box::new(step)), ..like() });
            Row { dry_run, ..row }
        });
        set.add("t", Origin::Measured, 20, |row| Row { step_ns: Some(15), ..row });
        let found = set.0.dry_run_pairs(&like(), None).unwrap().pairs;
        let steps: Vec<_> =
            found.iter().map(|pair| (pair.dry_run.step.as_deref().copied(), pair.step_ns)).collect();
        assert_eq!(steps, [(Some(step), Some(15))]);
    }

    #[test]
    fn a_real_runs_cuda_libraries_pair_with_a_dry_runs_stand_ins() {
        let mut set = Fixture::new();
        let with = |framework: &'static str| move |row| Row { framework: Some(framework.to_owned()), ..row };
        // As the two kinds of run record one virtual environment: NVIDIA's own libraries have versions.
        let dry = "PyTorch 2.15.0, Triton 3.6.0, CUDA runtime, cuBLAS";
        let real = "PyTorch 2.15.0, Triton 3.6.0, CUDA runtime 13, cuBLAS 13, 13.2.0.9, cuDNN 9, NCCL 2";
        set.add("t", Origin::DryRun, 10, with(dry));
        set.add("t", Origin::Measured, 20, with(real));
        for other in [
            "PyTorch 2.14.0, Triton 3.6.0, CUDA runtime 13",
            "JAX 0.9, Triton 3.6.0, CUDA runtime 13",
            "cuDNN 9",
        ] {
            set.add("t", Origin::Measured, 99, with(other));
        }
        let like = DryRun { framework: Some(dry.to_owned()), ..like() };
        let found = set.0.dry_run_pairs(&like, None).unwrap();
        assert_eq!(found.pairs.iter().map(|pair| pair.peak.0).collect::<Vec<_>>(), [20]);
        // Of a program without a framework, whose dry run shows nothing of its libraries.
        set.add("c", Origin::DryRun, 5, |row| Row { framework: None, ..row });
        set.add("c", Origin::Measured, 7, with("CUDA runtime 13, cuBLAS 13"));
        let found = set.0.dry_run_pairs(&DryRun { framework: None, ..like }, None).unwrap();
        assert_eq!(found.pairs.iter().map(|pair| pair.peak.0).collect::<Vec<_>>(), [7]);
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
            let of = RunFilter { gpu_model: model, ..RunFilter::default() };
            set.0.newest_dry_run(&key, &of, batch).unwrap()
        };
        let found = of("t --bs 99", Some(8), None).unwrap();
        assert_eq!((found.held, found.gpu.as_str()), (Bytes(7), "H200"));
        assert_eq!(found.framework.as_deref(), Some(TORCH));
        assert_eq!(of("t --bs 99", Some(16), None), None);
        assert_eq!(of("t --bs 99", Some(8), Some("T4")), None);
    }

    #[test]
    fn a_dry_run_from_before_a_change_of_the_script_is_of_another_program() {
        let mut set = Fixture::new();
        set.add("t --bs 8", Origin::DryRun, 7, |row| Row { start_unix_ns: 5_000_999_999, ..row });
        let key = ProgramKey::of(&["t".to_owned(), "--bs".to_owned(), "8".to_owned()], Path::new("/work"), 1);
        let found = |since: Option<u64>| {
            let of = RunFilter { since: since.map(Millis), ..RunFilter::default() };
            set.0.newest_dry_run(&key, &of, Some(8)).unwrap().is_some()
        };
        assert_eq!([None, Some(5000), Some(5001)].map(found), [true, true, false]);
    }
}
