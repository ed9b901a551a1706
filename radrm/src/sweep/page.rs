//! The report as a page: the same figures as the text, and pictures of the configurations that no other beats.

use radrm_analyzer::sheet::{Cell, Part, Plot, Point, Sheet};
use radrm_sweep::company::{Together, together};
use radrm_sweep::report::{self, Configuration, Metric};
use radrm_sweep::statistics::Mean;
use radrm_sweep::store::Recorded;
use radrm_text::clean;

use super::report::{
    GAIN, SLOWDOWN, bytes, company, factor, joules, logged, mean, members, notes, number, overlap, rate,
    seconds, share, sharing, slowdown, winner,
};

const RUN_TIME: &str = "run time";

/// The page of a sweep.
pub(super) fn sheet(name: &str, runs: &[Recorded], by: &Metric) -> Sheet {
    let all = report::configurations(runs);
    let parts =
        [Some(configurations(&all)), metrics(&all, by), energy(&all), groups(runs, &all), slowdowns(&all)];
    let parts = parts.into_iter().flatten().collect();
    let notes = winner(&all, by).into_iter().chain(notes(&all)).collect();
    Sheet { title: format!("Sweep {}", clean(name)), notes, parts }
}

fn text(text: &str) -> Cell {
    Cell { text: clean(text).into_owned(), value: None }
}

fn count(count: usize) -> Cell {
    Cell { text: count.to_string(), value: Some(count as f64) }
}

// What is not known is sorted before all that is.
fn figure(of: Option<Mean>, form: fn(f64) -> String) -> Cell {
    Cell { text: mean(of, form), value: Some(of.map_or(-1.0, |of| of.mean)) }
}

/// A figure of which `text` says why it is not there.
fn shown(text: String, of: Option<Mean>) -> Cell {
    Cell { text, value: Some(of.map_or(-1.0, |of| of.mean)) }
}

/// A point for each configuration of which both figures are known.
fn plot(
    all: &[Configuration],
    axis: &str,
    of: fn(&Configuration) -> Option<Mean>,
    form: fn(f64) -> String,
    on_front: fn(&Configuration) -> bool,
) -> Option<Plot> {
    let point = |one: &Configuration| {
        let (time, other) = (one.run_time_s?.mean, of(one)?.mean);
        Some(Point {
            name: format!("{}, {}", one.name, sharing(one)),
            at: [time, other],
            texts: [seconds(time), form(other)],
            on_front: on_front(one),
        })
    };
    let points: Vec<_> = all.iter().filter_map(point).collect();
    (points.len() > 1).then(|| Plot { axes: [RUN_TIME.to_owned(), axis.to_owned()], points })
}

fn configurations(all: &[Configuration]) -> Part {
    let titles = [
        "configuration",
        "sharing",
        "runs",
        "failed",
        RUN_TIME,
        "peak memory",
        "SM activity",
        "steps/s",
        "overlap",
        "slowdown",
        "not beaten",
    ];
    let row = |one: &Configuration| {
        vec![
            text(&one.name),
            text(&sharing(one)),
            count(one.finished),
            count(one.failed),
            figure(one.run_time_s, seconds),
            figure(one.peak_bytes, bytes),
            figure(one.sm_activity, share),
            figure(one.steps_per_s, rate),
            shown(overlap(one), one.overlap_s),
            shown(slowdown(one), one.slowdown),
            text(if one.on_front { "yes" } else { "no" }),
        ]
    };
    Part {
        title: "Run time and memory".to_owned(),
        titles: titles.map(str::to_owned).to_vec(),
        names: 2,
        rows: all.iter().map(row).collect(),
        notes: vec![
            "Means over repetitions, with 95 % intervals. A configuration is not beaten if no other has a shorter run time and \
             less memory."
                .to_owned(),
        ],
        plot: plot(all, "peak memory", |one| one.peak_bytes, bytes, |one| one.on_front),
    }
}

/// `None` where the programs logged nothing.
fn metrics(all: &[Configuration], by: &Metric) -> Option<Part> {
    let names = logged(all, by);
    let titles = ["configuration", "sharing", RUN_TIME].map(str::to_owned).into_iter();
    let row = |one: &Configuration| {
        let first = [text(&one.name), text(&sharing(one)), figure(one.run_time_s, seconds)];
        let values = names.iter().map(|name| Cell {
            text: mean(one.metrics.get(*name).copied(), number),
            value: one.metrics.get(*name).map(|mean| mean.mean),
        });
        first.into_iter().chain(values).collect()
    };
    (!names.is_empty()).then(|| Part {
        title: "Metrics of the program".to_owned(),
        titles: titles.chain(names.iter().map(|name| clean(name).into_owned())).collect(),
        names: 2,
        rows: all.iter().map(row).collect(),
        notes: vec!["The last value of each run, as the program logged it by radrm.log_metric.".to_owned()],
        plot: None,
    })
}

/// `None` where no energy was measured.
fn energy(all: &[Configuration]) -> Option<Part> {
    all.iter().any(|one| one.energy_j.is_some()).then(|| Part {
        title: "Run time and energy".to_owned(),
        titles: ["configuration", "sharing", RUN_TIME, "energy", "not beaten"].map(str::to_owned).to_vec(),
        names: 2,
        rows: all
            .iter()
            .map(|one| {
                let front = if one.on_energy_front { "yes" } else { "no" };
                vec![
                    text(&one.name),
                    text(&sharing(one)),
                    figure(one.run_time_s, seconds),
                    figure(one.energy_j, joules),
                    text(front),
                ]
            })
            .collect(),
        notes: Vec::new(),
        plot: plot(all, "energy", |one| one.energy_j, joules, |one| one.on_energy_front),
    })
}

/// `None` where no group can be compared with its members alone.
fn groups(runs: &[Recorded], all: &[Configuration]) -> Option<Part> {
    let found = together(runs, &report::alone(all));
    let row = |group: &Together| {
        vec![
            text(&group.group),
            text(&members(group)),
            figure(Some(group.time_s), seconds),
            figure(Some(group.in_turn_s), seconds),
            figure(Some(group.gain), factor),
        ]
    };
    (!found.is_empty()).then(|| Part {
        title: "Groups against their members one after another".to_owned(),
        titles: ["group", "members", "together", "one after another", "gain"].map(str::to_owned).to_vec(),
        names: 2,
        rows: found.iter().map(row).collect(),
        notes: vec![format!("{}.", sentence(GAIN))],
        plot: None,
    })
}

/// With a capital letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The interference matrix; `None` where no configuration ran both alone and with others.
fn slowdowns(all: &[Configuration]) -> Option<Part> {
    let found = report::slowdowns(all);
    let row = |(name, cells): (&String, &Vec<Option<Mean>>)| {
        std::iter::once(text(name)).chain(cells.iter().map(|cell| figure(*cell, factor))).collect()
    };
    let columns = found.columns.iter().map(|column| clean(&company(Some(column))).into_owned());
    (!found.rows.is_empty()).then(|| Part {
        title: "Slowdown by company".to_owned(),
        titles: std::iter::once("configuration".to_owned()).chain(columns).collect(),
        names: 1,
        rows: found.rows.iter().zip(&found.cells).map(row).collect(),
        notes: vec![format!("{}.", sentence(SLOWDOWN))],
        plot: None,
    })
}
