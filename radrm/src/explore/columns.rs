//! The runs in columns: figures of the dataset, parameters of sweeps, and options of command lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use radrm_base::student::P95;
use radrm_collector::dataset::Row;
use radrm_sweep::company::Own;
use radrm_sweep::options::options;
use radrm_text::clean;
use serde::Serialize;
use serde_json::{Value, json};

use crate::show::dataset::{command_line, origin, outcome};
use crate::sweep::member::Member;

/// Characters of a text; longer ones are cut.
const MAX_TEXT: usize = 400;
/// Options of command lines that are columns: those of most runs.
const MAX_OPTIONS: usize = 30;

/// Description of a column.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Column {
    /// Stable name, also for filters.
    key: String,
    /// Name in tables.
    title: String,
    /// `text`, `count`, `number`, `bytes`, `seconds`, `rate` (per second), `joules`, `share` (0 to 1) or `when` (ms since 1970).
    unit: &'static str,
    /// True if it holds what a run was given, rather than what it did.
    is_parameter: bool,
}

type Figure = (&'static str, &'static str, &'static str, fn(&Row) -> Value);

fn share(permille: Option<u32>) -> Value {
    json!(permille.map(|permille| f64::from(permille) / 1000.0))
}

/// The columns of the dataset that are shown. Numbers above 2^53 lose digits in a browser; no run has such.
const FIGURES: [Figure; 34] = [
    ("run", "run", "count", |row| json!(row.id)),
    ("start", "started (UTC)", "when", |row| json!(row.start_unix_ns / 1_000_000)),
    ("command", "command", "text", |row| text(&command_line(row))),
    ("outcome", "outcome", "text", |row| text(&outcome(row))),
    ("exit_code", "exit code", "count", |row| json!(row.exit_code)),
    ("origin", "origin", "text", |row| text(origin(row.origin))),
    ("run_time", "run time", "seconds", |row| json!(row.run_time_ns as f64 / 1e9)),
    ("peak", "peak memory", "bytes", |row| json!(row.peak_bytes)),
    ("peak_exact", "", "count", |row| json!(u8::from(row.peak_exact))),
    ("footprint", "memory needed", "bytes", |row| json!(row.footprint_bytes)),
    ("nvml_peak", "peak by NVML", "bytes", |row| json!(row.nvml_peak_bytes)),
    ("device_peak", "peak of device memory", "bytes", |row| json!(row.device_peak_bytes)),
    ("pool_peak", "peak of pools, reserved", "bytes", |row| json!(row.pool_reserved_peak_bytes)),
    ("vmm_peak", "peak of virtual memory", "bytes", |row| json!(row.vmm_peak_bytes)),
    ("managed_peak", "peak of managed memory", "bytes", |row| json!(row.managed_peak_bytes)),
    ("pinned_peak", "peak of pinned host memory", "bytes", |row| json!(row.pinned_peak_bytes)),
    ("sm_activity", "SM activity", "share", |row| share(row.smact_permille)),
    ("sm_origin", "origin of SM activity", "text", |row| some(row.smact_permille.map(|_| "measured"))),
    ("sm_occupancy", "SM occupancy", "share", |row| share(row.smocc_permille)),
    ("dram_activity", "DRAM activity", "share", |row| share(row.drama_permille)),
    ("launches", "launches", "count", |row| json!(row.launches)),
    ("graph_launches", "graph launches", "count", |row| json!(row.graph_launches)),
    ("kernels", "kernels", "count", |row| json!(row.kernels)),
    ("processes", "processes", "count", |row| json!(row.processes)),
    ("refused", "refused requests", "count", |row| json!(row.failed_requests)),
    ("predicted", "predicted memory", "bytes", |row| json!(row.predicted_bytes)),
    ("batch", "batch", "count", |row| json!(row.batch)),
    ("gpus", "GPUs", "count", |row| json!(row.gpus_requested)),
    ("gpu_model", "GPU model", "text", |row| some(row.gpu_model.as_deref())),
    ("framework", "frameworks", "text", |row| some(row.framework.as_deref())),
    ("user", "user", "text", |row| some(row.user.as_deref())),
    ("host", "host", "text", |row| text(&row.host)),
    ("job", "job of radrmd", "count", |row| json!(row.job_id)),
    ("profile", "", "count", |row| json!(u8::from(row.profile_path.is_some()))),
];

/// Columns that say what a run was given.
const GIVEN: [&str; 3] = ["batch", "gpus", "gpu_model"];

fn text(text: &str) -> Value {
    let clean = clean(text);
    let mut cut: String = clean.chars().take(MAX_TEXT).collect();
    if cut.len() < clean.len() {
        cut.push('…');
    }
    Value::String(cut)
}

fn some(of: Option<&str>) -> Value {
    of.map_or(Value::Null, text)
}

/// Columns, and the values of each in the order of the rows.
pub(super) fn table(rows: &[Row], members: &BTreeMap<PathBuf, Member>) -> (Vec<Column>, Vec<Vec<Value>>) {
    let mut columns = Vec::new();
    let mut values = Vec::new();
    for (key, title, unit, value) in FIGURES {
        let is_parameter = GIVEN.contains(&key);
        columns.push(Column { key: key.into(), title: title.into(), unit, is_parameter });
        values.push(rows.iter().map(value).collect());
    }
    let mut add = |key: String, title: String, own: Vec<Value>| {
        columns.push(Column { key, title, unit: "text", is_parameter: true });
        values.push(own);
    };
    let member = |row: &Row| members.get(Path::new(row.profile_path.as_deref()?));
    let found: Vec<Option<&Member>> = rows.iter().map(member).collect();
    let names: BTreeSet<&String> =
        found.iter().flatten().flat_map(|member| member.run.parameters.keys()).collect();
    if found.iter().any(Option::is_some) {
        let of = |value: fn(&Member) -> &str| {
            found.iter().map(|member| member.map_or(Value::Null, |member| text(value(member)))).collect()
        };
        add("sweep".into(), "sweep".into(), of(|member| member.sweep.as_str()));
        add("configuration".into(), "configuration".into(), of(|member| member.run.configuration.as_str()));
        add("group".into(), "group".into(), of(|member| member.run.group.as_str()));
    }
    for name in names {
        let own = found.iter().map(|member| {
            some(member.and_then(|member| member.run.parameters.get(name)).map(String::as_str))
        });
        add(format!("param.{}", name.to_lowercase()), clean(name).into_owned(), own.collect());
    }
    let given: Vec<BTreeMap<&str, &str>> = rows.iter().map(|row| options(&row.arguments)).collect();
    for name in varied(&given) {
        let own = given.iter().map(|options| some(options.get(name).copied()));
        add(name.to_lowercase(), clean(name).into_owned(), own.collect());
    }
    let logged: BTreeSet<&String> =
        found.iter().flatten().flat_map(|member| member.run.outcome.metrics.keys()).collect();
    for name in logged {
        let value = |member: &Member| member.run.outcome.metrics.get(name).map(|logged| logged.last);
        let key = format!("metric.{}", name.to_lowercase());
        columns.push(Column { key, title: clean(name).into_owned(), unit: "number", is_parameter: false });
        values.push(found.iter().map(|member| json!(member.and_then(value))).collect());
    }
    own_figures(&found, &mut columns, &mut values);
    (columns, values)
}

/// Figures that are the runs' own, as their sweeps know them: those of the dataset are of whole GPUs.
fn own_figures(found: &[Option<&Member>], columns: &mut Vec<Column>, values: &mut Vec<Vec<Value>>) {
    let own = |of: fn(&Own) -> Value, known: Option<&Vec<Value>>| -> Vec<Value> {
        let known = |at: usize| known.and_then(|known| known.get(at)).cloned().unwrap_or_default();
        let cell = |(at, member): (usize, &Option<&Member>)| {
            member.map_or_else(|| known(at), |member| of(&member.own))
        };
        found.iter().enumerate().map(cell).collect()
    };
    for (key, of) in REPLACED {
        if let Some(at) = columns.iter().position(|column| column.key == key) {
            values[at] = own(of, values.get(at));
        }
    }
    if found.iter().any(Option::is_some) {
        for (key, title, unit, of) in OWN {
            let (key, title) = (key.to_owned(), title.to_owned());
            columns.push(Column { key, title, unit, is_parameter: false });
            values.push(own(of, None));
        }
        let steps =
            found.iter().map(|member| json!(member.and_then(|member| member.run.outcome.steps_per_s)));
        let (key, title) = ("steps".to_owned(), "steps/s".to_owned());
        columns.push(Column { key, title, unit: "rate", is_parameter: false });
        values.push(steps.collect());
    }
}

type OwnFigure = fn(&Own) -> Value;

/// Columns of the dataset that have the own figure of a sweep's run.
const REPLACED: [(&str, OwnFigure); 2] =
    [("sm_activity", |own| json!(own.sm_activity)), ("sm_origin", |own| some(own.sm_origin.as_deref()))];

/// Columns of runs of sweeps only.
const OWN: [(&str, &str, &str, OwnFigure); 3] = [
    ("energy", "energy", "joules", |own| json!(own.energy_j)),
    ("energy_origin", "origin of the energy", "text", |own| some(own.energy_origin.as_deref())),
    ("overlap", "beside others", "seconds", |own| json!(own.beside.map(|beside| beside.overlap_s))),
];

/// Student's t of a 95 % interval by the degrees of freedom, from 1 on: the page's intervals are those of `radrm sweep report`.
pub(super) fn student() -> Vec<f64> {
    (1..=100).map(|freedom| P95.t(f64::from(freedom))).collect()
}

/// Options that distinguish runs: of most runs first, then by name.
fn varied<'a>(given: &[BTreeMap<&'a str, &'a str>]) -> Vec<&'a str> {
    let mut values: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for (name, value) in given.iter().flatten() {
        let (count, seen) = values.entry(name).or_default();
        *count += 1;
        // Two are enough to know that it varies.
        if seen.len() < 2 {
            seen.insert(value);
        }
    }
    let mut names: Vec<_> = values
        .into_iter()
        .filter(|(_, (count, seen))| seen.len() > 1 || *count < given.len())
        .map(|(name, (count, _))| (std::cmp::Reverse(count), name))
        .collect();
    names.sort_unstable();
    names.into_iter().take(MAX_OPTIONS).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_sweep::metrics::Logged;
    use radrm_sweep::store::{Outcome, Recorded, State};

    use crate::sweep::member::by_profile;

    fn row(id: i64, arguments: &[&str]) -> Row {
        Row {
            id,
            command: "/usr/bin/python3".into(),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            profile_path: Some(format!("/p/{id}.radrm")),
            outcome: "exited".into(),
            exit_code: Some(0),
            ..Row::default()
        }
    }

    fn column(rows: &[Row], sweeps: &[(PathBuf, Vec<Recorded>)], key: &str) -> Option<Vec<Value>> {
        let (columns, values) = table(rows, &by_profile(sweeps, std::iter::empty()));
        assert_eq!(columns.len(), values.len());
        columns.iter().zip(values).find(|(column, _)| column.key == key).map(|(_, values)| values)
    }

    #[test]
    fn options_that_differ_are_columns() {
        let rows = [
            row(1, &["t.py", "--lr", "0.1", "-b=8", "--same", "x"]),
            row(2, &["t.py", "--lr=-0.2", "--amp", "--same", "x"]),
            row(3, &["t.py", "--lr", "-3", "--amp", "-", "--same", "x"]),
        ];
        let of = |key: &str| column(&rows, &[], key);
        assert_eq!(of("--lr"), Some(vec![json!("0.1"), json!("-0.2"), json!("-3")]));
        assert_eq!(of("-b"), Some(vec![json!("8"), Value::Null, Value::Null]));
        assert_eq!(of("--amp"), Some(vec![Value::Null, json!("yes"), json!("-")]));
        assert_eq!(of("--same"), None, "all runs have it, with one value");
        assert_eq!(of("command").unwrap()[0], json!("python3 t.py --lr 0.1 -b=8 --same x"));
        assert_eq!(of("outcome").unwrap()[0], json!("ok"));
    }

    #[test]
    fn a_sweep_gives_its_runs_their_parameters() {
        let logged = Logged { last: 0.5, min: 0.25, max: 2.0, step: None, count: 3 };
        let recorded = Recorded {
            configuration: "batch=8".into(),
            parameters: [("Batch".to_owned(), "8".to_owned())].into(),
            outcome: Outcome {
                profile: Some("/p/2.radrm".into()),
                metrics: [("loss".to_owned(), logged)].into(),
                ..Outcome::default()
            },
            ..Recorded::default()
        };
        let sweeps = [(PathBuf::from("/w/grid.toml"), vec![recorded])];
        let rows = [row(1, &[]), row(2, &[])];
        assert_eq!(column(&rows, &sweeps, "param.batch"), Some(vec![Value::Null, json!("8")]));
        assert_eq!(column(&rows, &sweeps, "metric.loss"), Some(vec![Value::Null, json!(0.5)]));
        assert_eq!(column(&rows, &sweeps, "sweep"), Some(vec![Value::Null, json!("grid.toml")]));
        assert_eq!(column(&rows, &[], "sweep"), None);
    }

    #[test]
    fn runs_that_shared_a_gpu_have_their_own_figures() {
        let recorded = |id: u32| Recorded {
            key: id.to_string(),
            group: "pair".into(),
            collocation: "-".into(),
            outcome: Outcome {
                state: State::Finished,
                duration_ms: 20_000,
                gpu_sm_activity: Some(0.8),
                gpu_sm_origin: Some("gpm".into()),
                launch_sm_activity: Some(0.9),
                gpu_energy_j: Some(400.0),
                steps_per_s: Some(2.5),
                profile: Some(format!("/p/{id}.radrm").into()),
                ..Outcome::default()
            },
            ..Recorded::default()
        };
        let sweeps = [(PathBuf::from("/w/pair.toml"), vec![recorded(1), recorded(2)])];
        // As its dataset has it, each had all that the GPU did.
        let of_gpu = |row: Row| Row { smact_permille: Some(800), ..row };
        let rows = [1, 2, 3].map(|id| of_gpu(row(id, &[])));
        let of = |key: &str| column(&rows, &sweeps, key).unwrap();
        assert_eq!(of("sm_activity"), [json!(0.4), json!(0.4), json!(0.8)]);
        let part = json!("part by launches of gpm");
        assert_eq!(of("sm_origin"), [part.clone(), part, json!("measured")]);
        assert_eq!(of("energy"), [json!(200.0), json!(200.0), Value::Null]);
        assert_eq!(of("steps"), [json!(2.5), json!(2.5), Value::Null]);
        assert_eq!(of("exit_code"), [json!(0), json!(0), json!(0)]);
        assert_eq!(column(&rows, &[], "energy"), None);
        assert!((student()[1] - 4.303).abs() < 1e-3, "two degrees of freedom");
    }

    #[test]
    fn a_run_beside_a_foreign_process_shows_no_figures_of_its_gpu() {
        let recorded = Recorded {
            outcome: Outcome {
                state: State::Finished,
                duration_ms: 20_000,
                gpu_sm_activity: Some(0.8),
                gpu_sm_origin: Some("gpm".into()),
                gpu_energy_j: Some(400.0),
                has_others: true,
                profile: Some("/p/1.radrm".into()),
                ..Outcome::default()
            },
            ..Recorded::default()
        };
        let sweeps = [(PathBuf::from("/w/grid.toml"), vec![recorded])];
        for key in ["sm_activity", "sm_origin", "energy", "energy_origin"] {
            assert_eq!(column(&[row(1, &[])], &sweeps, key), Some(vec![Value::Null]), "{key}");
        }
    }

    #[test]
    fn text_of_runs_is_bounded_and_has_no_control_characters() {
        let rows = [row(1, &["\u{1b}[2J\u{202e}", &"x".repeat(5000)])];
        let command = column(&rows, &[], "command").unwrap().remove(0);
        let command = command.as_str().unwrap();
        assert_eq!(command.chars().count(), MAX_TEXT + 1);
        assert!(command.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{command}");
        assert_eq!(table(&[], &BTreeMap::new()).1[0], Vec::<Value>::new());
    }
}
