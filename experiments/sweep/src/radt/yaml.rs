//! radT's parameter grids: one run for each combination of values.

use std::path::Path;

use radrm_base::random::Rng;

use super::tree::{self, Node};
use super::{Row, collocation, devices, groups, profiler};
use crate::error::{Place, Wrong};
use crate::expand::{MAX_RUNS, combinations, shuffle};
use crate::plan::Plan;

/// Fields that radT requires.
const REQUIRED: [&str; 8] =
    ["name", "experiment", "collocation", "devices", "listeners", "file", "method", "parameters"];

/// Place of an error, and the error.
type At = (Place, Wrong);

/// Reads a grid.
///
/// # Errors
/// Where it is wrong.
pub fn read(text: &str, here: &Path, beside: &Path) -> Result<Plan, At> {
    let root = tree::parse(text)?;
    for name in REQUIRED {
        if root.field(name)?.is_none() {
            return Err((root.place.clone(), Wrong::NoField(name)));
        }
    }
    let field = |name: &'static str| -> Result<&Node, At> {
        root.field(name)?.ok_or_else(|| (root.place.clone(), Wrong::NoField(name)))
    };
    let cell = |name: &'static str| Ok::<_, At>((field(name)?.place.clone(), field(name)?.scalar()?));
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (name, parameter) in field("parameters")?.map()? {
        let list =
            parameter.field("values")?.ok_or_else(|| (parameter.place.clone(), Wrong::NoField("values")))?;
        let texts = list
            .list()?
            .iter()
            .map(|value| value.scalar().map(str::to_owned))
            .collect::<Result<Vec<_>, _>>()?;
        if texts.is_empty() {
            return Err((list.place.clone(), Wrong::NoValues(name.clone())));
        }
        names.push(name.as_str());
        values.push(texts);
    }
    let (at_method, method) = cell("method")?;
    let lists: Vec<usize> = values.iter().map(Vec::len).collect();
    let mut chosen = combinations(&lists).ok_or_else(|| {
        (
            field("parameters").map(|node| node.place.clone()).unwrap_or(Place::line(1)),
            Wrong::TooMany(MAX_RUNS),
        )
    })?;
    match method.to_ascii_lowercase().as_str() {
        // The order is that of the seed, which radT does not have: equal in every run of the file.
        "random" => shuffle(&mut chosen, &mut Rng::new(0, 0)),
        "grid" => {}
        _ => return Err((at_method, Wrong::Expected { what: "`grid` or `random`" })),
    }
    let (at_devices, on) = cell("devices")?;
    let on = devices(on).map_err(|what| (at_devices, what))?;
    let (at_collocation, shared) = cell("collocation")?;
    let shared = collocation(shared).map_err(|what| (at_collocation, what))?;
    let (at_listeners, listeners) = cell("listeners")?;
    let around = profiler(listeners).map_err(|what| (at_listeners, what))?;
    let finished = finished(&root)?;
    let (name, experiment, file) = (cell("name")?.1, cell("experiment")?.1, cell("file")?.1);
    if file.is_empty() {
        return Err((field("file")?.place.clone(), Wrong::EmptyCell));
    }
    let row = |(number, picks): (usize, &Vec<usize>)| {
        let words = names
            .iter()
            .zip(picks)
            .zip(&values)
            .map(|((name, pick), texts)| format!("--{name} {}", texts[*pick]));
        let params = words.collect::<Vec<_>>().join(" ");
        Row {
            experiment: experiment.to_owned(),
            workload: format!("{number:03}"),
            name: name.to_owned(),
            status: if finished.contains(&params) { "FINISHED".to_owned() } else { String::new() },
            devices: on.clone(),
            collocation: shared.clone(),
            profiler: around,
            file: file.to_owned(),
            params,
            number: None,
        }
    };
    let rows: Vec<Row> = chosen.iter().enumerate().map(row).collect();
    Ok(Plan { name: name.to_owned(), groups: groups(rows, here, beside), ..Plan::default() })
}

/// The parameters of runs that radT finished: `FINISHED RUN (PARAMS)` by workload.
fn finished(root: &Node) -> Result<Vec<String>, At> {
    let Some(node) = root.field("status")? else { return Ok(Vec::new()) };
    // radT takes what is not a mapping for none.
    let Ok(entries) = node.map() else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for (_, entry) in entries {
        let text = entry.scalar()?;
        let params =
            text.splitn(3, ' ').nth(2).and_then(|rest| rest.trim().strip_prefix('(')?.strip_suffix(')'));
        all.extend(params.filter(|_| text.contains("FINISHED")).map(str::to_owned));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Stated;

    const GRID: &str = "\
# a comment
name: resnet
experiment: 7
collocation: '-'
devices: 0
listeners: smi+top
file: train.py
method: grid
parameters:
  lr:
    values: [0.1, 1.0e-5]
  batch-size:
    values:
      - 32
      - 64
";

    fn plan(text: &str) -> Result<Plan, At> {
        read(text, Path::new("/here"), Path::new("/here"))
    }

    #[test]
    fn every_combination_is_a_run_with_the_last_parameter_fastest() {
        let plan = plan(GRID).unwrap();
        let commands: Vec<_> = plan.groups.iter().map(|group| group.runs[0].command[2..].join(" ")).collect();
        assert_eq!(
            commands,
            [
                "--lr 0.1 --batch-size 32",
                "--lr 0.1 --batch-size 64",
                "--lr 1e-05 --batch-size 32",
                "--lr 1e-05 --batch-size 64"
            ]
        );
        assert_eq!((plan.name.as_str(), plan.groups[3].name.as_str()), ("resnet", "7+003"));
    }

    #[test]
    fn a_random_grid_is_the_same_runs_in_another_order_and_always_the_same() {
        let text =
            GRID.replace("method: grid", "method: random").replace("- 64", "- 64\n      - 128\n      - 256");
        let params = |plan: &Plan| {
            plan.groups.iter().map(|group| group.runs[0].configuration.clone()).collect::<Vec<_>>()
        };
        let random = params(&plan(&text).unwrap());
        assert_eq!(random, params(&plan(&text).unwrap()));
        let mut sorted = random.clone();
        sorted.sort();
        let mut grid = params(&plan(&text.replace("random", "grid")).unwrap());
        assert_ne!(random, grid);
        grid.sort();
        assert_eq!(sorted, grid);
    }

    #[test]
    fn what_radt_finished_is_finished() {
        let text = format!(
            "{GRID}status:\n  0: FINISHED 9f (--lr 0.1 --batch-size 64)\n  1: FAILED 9e (--lr 0.1 --batch-size 32)\n"
        );
        let stated: Vec<_> = plan(&text).unwrap().groups.iter().map(|group| group.stated).collect();
        assert_eq!(stated, [Stated::Open, Stated::Finished, Stated::Open, Stated::Open]);
    }

    #[test]
    fn a_wrong_grid_is_reported_with_line_and_column() {
        let without =
            |name: &str| GRID.lines().filter(|line| !line.starts_with(name)).collect::<Vec<_>>().join("\n");
        for (text, expected) in [
            (without("method"), "line 2, column 1: there is no field method"),
            (GRID.replace("[0.1, 1.0e-5]", "0.1"), "line 11, column 13: a list is expected here"),
            (GRID.replace("[0.1, 1.0e-5]", "[]"), "line 11, column 13: the axis lr has no values"),
            (GRID.replace("[0.1, 1.0e-5]", "[[0.1]]"), "line 11, column 14: a single value is expected here"),
            (
                GRID.replace("values: [0.1, 1.0e-5]", "value: 1"),
                "line 11, column 5: there is no field values",
            ),
            (
                GRID.replace("method: grid", "method: bayes"),
                "line 8, column 9: `grid` or `random` is expected here",
            ),
            (
                GRID.replace("devices: 0", "devices: all"),
                "line 5, column 10: `all` names no GPU: write 0, 0+1 or a UUID",
            ),
            (
                GRID.replace("file: train.py", "name: b"),
                "line 7, column 1: the field name stands there twice",
            ),
            (GRID.replace("[0.1, 1.0e-5]", "*x"), "line 11, column 13: "),
            (format!("{GRID}---\na: 1\n"), "more than one document"),
            (format!("{}]", "a: [".repeat(40)), "line 1"),
        ] {
            let (place, wrong) = plan(&text).unwrap_err();
            let shown = format!("{place}: {wrong}");
            assert!(shown.contains(expected) && shown.lines().count() == 1, "{expected}: {shown}");
        }
    }
}
