//! Results of a sweep. Pure.
//! Configurations with means over their repetitions, slowdowns of members by their groups, and Pareto fronts: the
//! configurations that no other beats.

use std::collections::{BTreeMap, BTreeSet};

use crate::company::{self, Groups, Own};
use crate::error::SweepError;
use crate::statistics::Mean;
use crate::store::{Recorded, State};

/// A configuration under one kind of company.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Its name.
    pub name: String,
    /// Company of its runs on the GPU; `None` if they were alone.
    pub company: Option<Company>,
    /// Runs that finished, failed, or are not over.
    pub finished: usize,
    /// Runs that failed or whose time was over.
    pub failed: usize,
    /// Runs that early stopping gave up.
    pub stopped: usize,
    /// Runs that are left to do.
    pub left: usize,
    /// Run time of those that finished, s.
    pub run_time_s: Option<Mean>,
    /// Highest GPU memory on one GPU, bytes: of those that finished.
    pub peak_bytes: Option<Mean>,
    /// SM activity of their own, 0 to 1.
    pub sm_activity: Option<Mean>,
    /// Steps per second.
    pub steps_per_s: Option<Mean>,
    /// Energy, J: of its GPUs if the runs had them to themselves, else the runs' parts.
    pub energy_j: Option<Mean>,
    /// Figures that the programs logged of themselves, the last value of each run: those that all runs have that finished.
    pub metrics: BTreeMap<String, Mean>,
    /// A profiler was around the runs: their figures are not comparable.
    pub profiled: bool,
    /// They ran on emulated GPUs.
    pub emulated: bool,
    /// Other jobs of radrmd may have been on their GPUs.
    pub shares: bool,
    /// Time in which members of their group were on their GPUs, s; `None` for runs alone.
    pub overlap_s: Option<Mean>,
    /// Time in company by that of the same work alone.
    pub slowdown: Option<Mean>,
    /// No other configuration has a shorter run time and less memory.
    pub on_front: bool,
    /// No other configuration has a shorter run time and takes less energy.
    pub on_energy_front: bool,
}

/// With what a run shared its GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Company {
    /// `-`, `MPS` or a MIG profile.
    pub collocation: String,
    /// The configurations of the other members, sorted.
    pub others: Vec<String>,
}

/// By which figure the best configuration is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// The shortest run time.
    #[default]
    RunTime,
    /// The lowest memory.
    PeakMemory,
    /// The highest SM activity.
    SmActivity,
    /// The most steps per second.
    Steps,
    /// The lowest energy.
    Energy,
    /// The lowest or highest value of a figure that the programs logged.
    Logged {
        /// Its name.
        name: String,
        /// The highest is best.
        is_highest_best: bool,
    },
}

impl Metric {
    /// A logged figure: `NAME:min` or `NAME:max`; `None` for other texts.
    #[must_use]
    pub fn logged(text: &str) -> Option<Self> {
        let (name, way) = text.rsplit_once(':')?;
        let is_known = !name.is_empty() && ["min", "max"].contains(&way);
        is_known.then(|| Self::Logged { name: name.to_owned(), is_highest_best: way == "max" })
    }
}

/// Slowdown of each configuration by each company.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slowdowns {
    /// The configurations that ran alone and with others.
    pub rows: Vec<String>,
    /// The companies.
    pub columns: Vec<Company>,
    /// Time in company by that of the same work alone, by row and column.
    pub cells: Vec<Vec<Option<Mean>>>,
}

/// A configuration under one kind of company.
type Key<'r> = (&'r str, Option<Company>);

/// The configurations of all runs, those alone first, each in the order in which it first stands there.
#[must_use]
pub fn configurations(runs: &[Recorded]) -> Vec<Configuration> {
    let (own, groups) = (company::own(runs), Groups::of(runs));
    let mut order: Vec<Key<'_>> = Vec::new();
    let mut members: BTreeMap<Key<'_>, Vec<(&Recorded, &Own)>> = BTreeMap::new();
    for (run, own) in runs.iter().zip(&own) {
        let mut others: Vec<_> = groups.others(run).iter().map(|other| other.configuration.clone()).collect();
        others.sort();
        let company = (!others.is_empty()).then(|| Company { collocation: run.collocation.clone(), others });
        let key = (run.configuration.as_str(), company);
        if !members.contains_key(&key) {
            order.push(key.clone());
        }
        members.entry(key).or_default().push((run, own));
    }
    order.sort_by_key(|(_, company)| company.is_some());
    let mut found: Vec<Configuration> =
        order.into_iter().map(|key| configuration(key.0, key.1.clone(), &members[&key])).collect();
    let alone = alone(&found);
    for one in found.iter_mut().filter(|one| one.company.is_some() && !one.profiled) {
        let runs = &members[&(one.name.as_str(), one.company.clone())];
        let finished = runs.iter().filter(|(run, _)| run.outcome.state == State::Finished);
        let times = finished.filter_map(|(run, own)| Some((seconds(run), own.beside?.overlap_s)));
        let times: Vec<_> = times.collect();
        one.slowdown = alone.get(&one.name).and_then(|alone| company::slowdown(&times, *alone));
    }
    mark_fronts(&mut found);
    found
}

/// Run times alone by configuration.
#[must_use]
pub fn alone(all: &[Configuration]) -> BTreeMap<String, Mean> {
    let alone = all.iter().filter(|one| one.company.is_none() && !one.profiled && !one.shares);
    let known = alone.filter_map(|one| Some((one.name.clone(), one.run_time_s?)));
    known.filter(|(_, time)| time.mean > 0.0).collect()
}

fn seconds(run: &Recorded) -> f64 {
    run.outcome.duration_ms as f64 / 1000.0
}

fn configuration(name: &str, company: Option<Company>, runs: &[(&Recorded, &Own)]) -> Configuration {
    let of = |state: fn(State) -> bool| runs.iter().filter(|(run, _)| state(run.outcome.state)).count();
    let finished: Vec<_> =
        runs.iter().filter(|(run, _)| run.outcome.state == State::Finished).copied().collect();
    let mean = |value: fn(&Recorded, &Own) -> Option<f64>| {
        Mean::of(&finished.iter().filter_map(|(run, own)| value(run, own)).collect::<Vec<_>>())
    };
    let recorded: Vec<&Recorded> = runs.iter().map(|(run, _)| *run).collect();
    Configuration {
        name: name.to_owned(),
        company,
        finished: finished.len(),
        failed: of(|state| matches!(state, State::Failed | State::TimedOut)),
        stopped: of(|state| state == State::Stopped),
        left: of(|state| !state.is_over()),
        run_time_s: mean(|run, _| Some(seconds(run))),
        peak_bytes: mean(|run, _| run.outcome.peak_bytes.map(|bytes| bytes as f64)),
        sm_activity: mean(|_, own| own.sm_activity),
        steps_per_s: mean(|run, _| run.outcome.steps_per_s),
        energy_j: mean(|_, own| own.energy_j),
        metrics: metrics(&recorded),
        profiled: recorded.iter().any(|run| run.profiled),
        emulated: recorded.iter().any(|run| run.outcome.emulated),
        shares: recorded.iter().any(|run| run.submission.as_ref().is_some_and(|job| job.shares)),
        overlap_s: mean(|_, own| own.beside.map(|beside| beside.overlap_s)),
        slowdown: None,
        on_front: false,
        on_energy_front: false,
    }
}

/// Means of the metrics that each finished run has.
fn metrics(runs: &[&Recorded]) -> BTreeMap<String, Mean> {
    let finished: Vec<_> = runs.iter().filter(|run| run.outcome.state == State::Finished).collect();
    let names = finished.first().into_iter().flat_map(|run| run.outcome.metrics.keys());
    let mean = |name: &String| {
        let values: Option<Vec<f64>> =
            finished.iter().map(|run| run.outcome.metrics.get(name).map(|logged| logged.last)).collect();
        Some((name.clone(), Mean::of(&values?)?))
    };
    names.filter_map(mean).collect()
}

/// Marks the configurations that no other beats in run time and memory, and in run time and energy.
fn mark_fronts(all: &mut [Configuration]) {
    let memory = front(all, |one| one.peak_bytes);
    let energy = front(all, |one| one.energy_j);
    for ((one, memory), energy) in all.iter_mut().zip(memory).zip(energy) {
        (one.on_front, one.on_energy_front) = (memory, energy);
    }
}

/// For each configuration, true if it is on the Pareto front of run time and a second figure.
/// No other configuration dominates it: none is better in the means of both, and in one by more than the intervals.
/// Configurations under a profiler do not compete.
fn front(all: &[Configuration], second: impl Fn(&Configuration) -> Option<Mean>) -> Vec<bool> {
    let point = |one: &Configuration| Some((finite(one.run_time_s)?, finite(second(one))?));
    let points: Vec<_> = all.iter().map(|one| point(one).filter(|_| !one.profiled)).collect();
    let beats = |(time, figure): (Mean, Mean), by: &(Mean, Mean)| {
        by.0.mean <= time.mean
            && by.1.mean <= figure.mean
            && (by.0.is_clearly_below(time) || by.1.is_clearly_below(figure))
    };
    let is_on = |point: &Option<(Mean, Mean)>| {
        point.is_some_and(|point| !points.iter().flatten().any(|other| beats(point, other)))
    };
    points.iter().map(is_on).collect()
}

fn finite(mean: Option<Mean>) -> Option<Mean> {
    mean.filter(|mean| mean.mean.is_finite())
}

/// The best configuration, and those that cannot be told from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Best<'c> {
    /// The one with the best mean.
    pub first: &'c Configuration,
    /// Others whose intervals overlap with its own, by their means.
    pub alike: Vec<&'c Configuration>,
}

/// The best by a metric, among those without failed runs and without a profiler.
#[must_use]
pub fn best<'c>(all: &'c [Configuration], by: &Metric) -> Option<Best<'c>> {
    // The highest is the lowest of the negative.
    let negative = |mean: Mean| Mean { mean: -mean.mean, ..mean };
    let value = |one: &Configuration| match by {
        Metric::RunTime => one.run_time_s,
        Metric::PeakMemory => one.peak_bytes,
        Metric::SmActivity => one.sm_activity.map(negative),
        Metric::Steps => one.steps_per_s.map(negative),
        Metric::Energy => one.energy_j,
        Metric::Logged { name, is_highest_best } => {
            let value = one.metrics.get(name).copied();
            if *is_highest_best { value.map(negative) } else { value }
        }
    };
    let able = all.iter().filter(|one| one.failed == 0 && !one.profiled);
    let mut able: Vec<_> = able.filter_map(|one| Some((finite(value(one))?, one))).collect();
    able.sort_by(|(a, _), (b, _)| a.mean.total_cmp(&b.mean));
    let (least, first) = *able.first()?;
    let others = able.into_iter().skip(1);
    let alike = others.filter(|(mean, _)| !least.is_clearly_below(*mean)).map(|(_, one)| one).collect();
    Some(Best { first, alike })
}

/// The matrix of slowdowns.
#[must_use]
pub fn slowdowns(all: &[Configuration]) -> Slowdowns {
    let known = || all.iter().filter(|one| one.slowdown.is_some());
    let columns: BTreeSet<Company> = known().filter_map(|one| one.company.clone()).collect();
    let mut rows: Vec<String> = Vec::new();
    for one in known() {
        if !rows.contains(&one.name) {
            rows.push(one.name.clone());
        }
    }
    let cell = |row: &String, column: &Company| {
        known()
            .find(|one| one.name == *row && one.company.as_ref() == Some(column))
            .and_then(|one| one.slowdown)
    };
    let cells = rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect();
    Slowdowns { cells, columns: columns.into_iter().collect(), rows }
}

/// Rows of cells as CSV, also for spreadsheets.
///
/// # Errors
/// Rows of different lengths.
pub fn csv_text(rows: &[Vec<String>]) -> Result<String, SweepError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    rows.iter().try_for_each(|row| {
        writer.write_record(row.iter().map(|cell| radrm_text::csv_cell(cell).into_owned()))
    })?;
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Logged;
    use crate::store::Outcome;

    fn run(key: &str, group: &str, configuration: &str, seconds: u64, mib: u64) -> Recorded {
        Recorded {
            key: key.into(),
            group: group.into(),
            configuration: configuration.into(),
            repetition: 1,
            collocation: "-".into(),
            outcome: Outcome {
                state: State::Finished,
                duration_ms: seconds * 1000,
                peak_bytes: Some(mib << 20),
                ..Outcome::default()
            },
            ..Recorded::default()
        }
    }

    #[test]
    fn slowdowns_are_by_runs_alone_and_by_company() {
        let runs = [
            run("1", "a", "a", 10, 5),
            run("2", "b", "b", 20, 5),
            run("3", "ab", "a", 15, 5),
            run("4", "ab", "b", 30, 5),
            run("5", "aa", "a", 20, 5),
            run("6", "aa", "a", 22, 5),
        ];
        let all = configurations(&runs);
        let mean = |of: Option<Mean>| of.map(|of| of.mean);
        let shapes: Vec<_> =
            all.iter().map(|one| (one.name.as_str(), mean(one.overlap_s), mean(one.slowdown))).collect();
        // `b` was alone for its last 15 s, so its first 15 s did what takes 5 s alone. So were 2 s of an `a` beside the other.
        assert_eq!(
            shapes,
            [
                ("a", None, None),
                ("b", None, None),
                ("a", Some(15.0), Some(1.5)),
                ("b", Some(15.0), Some(3.0)),
                ("a", Some(20.0), Some(2.25))
            ]
        );
        let matrix = slowdowns(&all);
        assert_eq!(matrix.rows, ["a", "b"]);
        let others: Vec<_> = matrix.columns.iter().map(|company| company.others.join("+")).collect();
        assert_eq!(others, ["a", "b"]);
        let cells: Vec<Vec<_>> =
            matrix.cells.iter().map(|row| row.iter().map(|cell| mean(*cell)).collect()).collect();
        assert_eq!(cells, [[Some(2.25), Some(1.5)], [Some(3.0), None]]);
    }

    #[test]
    fn the_front_holds_what_no_other_beats() {
        let runs = [
            run("1", "a", "a", 10, 9),
            run("2", "b", "b", 20, 5),
            run("3", "c", "c", 20, 9),
            run("4", "d", "d", 30, 5),
        ];
        let all = configurations(&runs);
        let front: Vec<_> = all.iter().filter(|one| one.on_front).map(|one| one.name.as_str()).collect();
        assert_eq!(front, ["a", "b"]);
        assert_eq!(best(&all, &Metric::RunTime).unwrap().first.name, "a");
        assert_eq!(best(&all, &Metric::PeakMemory).unwrap().first.name, "b");
        assert_eq!(best(&all, &Metric::SmActivity), None);
    }

    #[test]
    fn what_intervals_do_not_tell_apart_has_no_best() {
        let of = |name: &str, seconds: [u64; 3]| {
            seconds.map(|seconds| {
                run(&format!("{name}{seconds}"), &format!("{name}{seconds}"), name, seconds, 5)
            })
        };
        // 10 +- 2.5, 11 +- 2.5 and 20 +- 2.5 s.
        let runs = [of("a", [9, 10, 11]), of("b", [10, 11, 12]), of("c", [19, 20, 21])].concat();
        let all = configurations(&runs);
        let found = best(&all, &Metric::RunTime).unwrap();
        let alike: Vec<_> = found.alike.iter().map(|one| one.name.as_str()).collect();
        assert_eq!((found.first.name.as_str(), alike), ("a", vec!["b"]));
        let front: Vec<_> = all.iter().map(|one| one.on_front).collect();
        assert_eq!(front, [true, true, false]);
        assert!(best(&all[1..], &Metric::RunTime).unwrap().alike.is_empty());
    }

    #[test]
    fn a_figure_that_is_no_number_is_never_best() {
        let with = |activity, of: Recorded| Recorded {
            outcome: Outcome { gpu_sm_activity: Some(activity), ..of.outcome.clone() },
            ..of
        };
        let runs = [with(f64::NAN, run("1", "a", "a", 10, 5)), with(0.5, run("2", "b", "b", 10, 5))];
        let all = configurations(&runs);
        assert_eq!(best(&all, &Metric::SmActivity).unwrap().first.name, "b");
        assert_eq!(best(&all[..1], &Metric::SmActivity), None);
    }

    #[test]
    fn members_on_different_gpus_are_no_company() {
        let on = |device: &str, of: Recorded| Recorded { devices: vec![device.into()], ..of };
        let runs = [
            on("0", run("1", "ab", "a", 15, 5)),
            on("1", run("2", "ab", "b", 30, 5)),
            on("1", run("3", "ab", "c", 30, 5)),
        ];
        let all = configurations(&runs);
        let others: Vec<_> = all
            .iter()
            .map(|one| (one.name.as_str(), one.company.as_ref().map(|company| company.others.join("+"))))
            .collect();
        assert_eq!(others, [("a", None), ("b", Some("c".into())), ("c", Some("b".into()))]);
    }

    #[test]
    fn energy_and_activity_are_the_runs_part_where_they_shared_their_gpus() {
        let with = |joules, launches, of: Recorded| Recorded {
            outcome: Outcome {
                gpu_energy_j: Some(joules),
                gpu_sm_activity: Some(0.8),
                launch_sm_activity: launches,
                ..of.outcome.clone()
            },
            ..of
        };
        let shares = Some(crate::store::Submission { shares: true, ..Default::default() });
        let runs = [
            with(100.0, None, run("1", "a", "a", 10, 9)),
            with(80.0, Some(0.9), run("2", "b", "b", 20, 9)),
            with(200.0, Some(0.3), run("3", "ab", "a", 30, 9)),
            with(200.0, Some(0.9), run("4", "ab", "b", 30, 9)),
            with(200.0, Some(0.5), run("5", "ac", "a", 30, 9)),
            with(200.0, None, run("6", "ac", "c", 30, 9)),
            Recorded { submission: shares, ..with(60.0, Some(0.5), run("7", "d", "d", 10, 9)) },
        ];
        let all = configurations(&runs);
        let rounded = |of: Option<Mean>| of.map(|mean| (mean.mean * 100.0).round() / 100.0);
        let energy: Vec<_> = all.iter().map(|one| rounded(one.energy_j)).collect();
        assert_eq!(energy, [Some(100.0), Some(80.0), None, Some(50.0), Some(150.0), None, None]);
        let activity: Vec<_> = all.iter().map(|one| rounded(one.sm_activity)).collect();
        assert_eq!(activity, [Some(0.8), Some(0.8), None, Some(0.2), Some(0.6), None, None]);
        let front: Vec<_> = all.iter().map(|one| one.on_energy_front).collect();
        assert_eq!(front, [true, true, false, true, false, false, false]);
        assert_eq!(best(&all, &Metric::Energy).map(|best| best.first.company.is_some()), Some(true));
    }

    #[test]
    fn the_best_is_found_by_a_logged_metric_that_all_runs_have() {
        let with = |name: &str, last: f64, of: Recorded| {
            let logged = Logged { last, min: last, max: last, step: None, count: 1 };
            let metrics = [(name.to_owned(), logged)].into();
            Recorded { outcome: Outcome { metrics, ..of.outcome.clone() }, ..of }
        };
        let runs = [
            with("loss", 0.5, run("1", "a", "a", 10, 9)),
            with("loss", 0.25, run("2", "b", "b", 20, 9)),
            with("loss", 0.75, run("3", "b2", "b", 20, 9)),
            // The loss of its other run is not known: it diverged.
            with("loss", 0.1, run("4", "c", "c", 20, 9)),
            run("5", "c2", "c", 20, 9),
        ];
        let all = configurations(&runs);
        let by = |is_highest_best| Metric::Logged { name: "loss".into(), is_highest_best };
        assert_eq!(all[1].metrics["loss"].mean, 0.5);
        assert_eq!(best(&all[..1], &by(false)).unwrap().first.name, "a");
        assert!(all[2].metrics.is_empty());
        let runs = [runs[0].clone(), runs[1].clone(), runs[3].clone(), runs[4].clone()];
        let all = configurations(&runs);
        assert_eq!(best(&all, &by(false)).unwrap().first.name, "b");
        assert_eq!(best(&all, &by(true)).unwrap().first.name, "a");
        let other = Metric::Logged { name: "accuracy".into(), is_highest_best: true };
        assert_eq!(best(&all, &other), None);
    }

    #[test]
    fn figures_are_of_runs_that_finished_and_of_no_profiled_one() {
        let failed = Recorded {
            outcome: Outcome { state: State::Failed, duration_ms: 1, ..Outcome::default() },
            ..run("2", "a2", "a", 1, 1)
        };
        let profiled = Recorded { profiled: true, ..run("3", "p", "p", 1, 1) };
        let all = configurations(&[run("1", "a", "a", 10, 9), failed, profiled]);
        assert_eq!((all[0].finished, all[0].failed, all[0].run_time_s.unwrap().mean), (1, 1, 10.0));
        assert_eq!(best(&all, &Metric::RunTime), None, "one failed, the other ran under a profiler");
        assert!(!all[1].on_front);
    }
}
