//! Company of runs on their GPUs: how long members of a group had it, each one's part of what the GPUs did, how much they slowed
//! each other, and what the GPU gained. Pure.

use std::collections::BTreeMap;

use crate::statistics::Mean;
use crate::store::{Recorded, State};

/// Figures of a run that are its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Own {
    /// Company of its group on its GPUs; `None`: it was alone there.
    pub beside: Option<Beside>,
    /// SM activity, 0 to 1; `None` where it cannot be told from that of others.
    pub sm_activity: Option<f64>,
    /// Origin of `sm_activity`.
    pub sm_origin: Option<String>,
    /// Its part of `gpu_energy_j`, 0 to 1.
    pub energy_part: Option<f64>,
    /// Energy, J; `None` where it cannot be told from that of others, or was not measured.
    pub energy_j: Option<f64>,
    /// Origin of `energy_j`.
    pub energy_origin: Option<String>,
}

/// Figures of each run that are its own, among all runs of a sweep.
#[must_use]
pub fn own(runs: &[Recorded]) -> Vec<Own> {
    let groups = Groups::of(runs);
    runs.iter().map(|run| own_of(run, &groups.others(run))).collect()
}

/// Runs by what started together.
pub(crate) struct Groups<'r>(BTreeMap<(&'r str, u32), Vec<&'r Recorded>>);

impl<'r> Groups<'r> {
    pub(crate) fn of(runs: &'r [Recorded]) -> Self {
        let mut groups: BTreeMap<_, Vec<&Recorded>> = BTreeMap::new();
        for run in runs {
            groups.entry((run.group.as_str(), run.repetition)).or_default().push(run);
        }
        Self(groups)
    }

    /// The other members of a run's group that shared a GPU with it.
    pub(crate) fn others(&self, run: &Recorded) -> Vec<&'r Recorded> {
        let members = self.0.get(&(run.group.as_str(), run.repetition)).into_iter().flatten();
        members.filter(|other| other.key != run.key && share_a_gpu(run, other)).copied().collect()
    }
}

fn own_of(run: &Recorded, others: &[&Recorded]) -> Own {
    let end = &run.outcome;
    // Other jobs of radrmd may have been there, at times that are not known.
    let is_shared = run.submission.as_ref().is_some_and(|job| job.shares);
    let beside = (!others.is_empty()).then(|| beside(run, others));
    let part = match &beside {
        _ if is_shared => None,
        Some(beside) => beside.part,
        // Of a process that no sweep started, nothing is known.
        None if end.has_others => None,
        None => Some(1.0),
    };
    let metered = end.gpu_sm_activity;
    let is_instance = run.collocation.contains("g.");
    let (sm_activity, sm_origin) = match part {
        // An instance is measured by itself.
        _ if metered.is_some() && is_instance => (metered, end.gpu_sm_origin.clone()),
        Some(1.0) if metered.is_some() => (metered, end.gpu_sm_origin.clone()),
        Some(1.0) => {
            (end.launch_sm_activity, end.launch_sm_activity.map(|_| "shapes of launches".to_owned()))
        }
        Some(part) if metered.is_some() => {
            let origin = end.gpu_sm_origin.as_deref().unwrap_or_default();
            (metered.map(|of| of * part), Some(format!("part by launches of {origin}")))
        }
        _ => (None, None),
    };
    let energy_j = end.gpu_energy_j.zip(part).map(|(of, part)| of * part);
    let energy_origin = energy_j.map(|_| match part {
        Some(1.0) => "its GPUs by NVML".to_owned(),
        _ => "part by launches of its GPUs by NVML".to_owned(),
    });
    Own { beside, sm_activity, sm_origin, energy_part: part, energy_j, energy_origin }
}

/// A run beside the others of its group on its GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// Time in which at least one other was there, s.
    pub overlap_s: f64,
    /// The run's part of what its GPUs did while it ran, 0 to 1: by the time and the shape of the launches of each. `None` where
    /// those of one are not known.
    pub part: Option<f64>,
}

/// A run beside others that shared a GPU with it.
#[must_use]
pub fn beside(run: &Recorded, others: &[&Recorded]) -> Beside {
    let (begin, end) = span(run);
    let edges = others.iter().flat_map(|other| <[u64; 2]>::from(span(other)));
    let mut edges: Vec<u64> = edges.filter(|at| (begin..end).contains(at)).chain([begin, end]).collect();
    edges.sort_unstable();
    let (mut overlap, mut own) = (0, Some(0.0));
    for edge in edges.windows(2) {
        let (from, to) = (edge[0], edge[1]);
        let length = to - from;
        let is_there = |other: &&&Recorded| span(other).0 <= from && to <= span(other).1;
        let there: Vec<&Recorded> = others.iter().filter(is_there).copied().collect();
        let part = if there.is_empty() { Some(1.0) } else { part(run, &there) };
        if !there.is_empty() {
            overlap += length;
        }
        if length > 0 {
            own = own.zip(part).map(|(sum, part)| sum + part * length as f64);
        }
    }
    let part = own.filter(|_| end > begin).map(|own| own / (end - begin) as f64);
    Beside { overlap_s: overlap as f64 / 1000.0, part }
}

fn span(run: &Recorded) -> (u64, u64) {
    let begin = run.outcome.started_ms;
    (begin, begin.saturating_add(run.outcome.duration_ms))
}

fn part(run: &Recorded, others: &[&Recorded]) -> Option<f64> {
    let own = weight(run)?;
    let all = others.iter().map(|other| weight(other)).sum::<Option<f64>>()? + own;
    (all > 0.0).then(|| own / all)
}

/// Activity of a run's own launches: an instance of several slices counts as so many.
fn weight(run: &Recorded) -> Option<f64> {
    let slices = run.collocation.split_once('g').and_then(|(slices, _)| slices.parse().ok());
    Some(run.outcome.launch_sm_activity? * slices.unwrap_or(1.0))
}

/// Run time in company by that of the same work alone, over the time in which there was company: the rest went at full speed.
/// `None` where the work of that time cannot be told from the differences between runs alone.
#[must_use]
pub fn slowdown(runs: &[(f64, f64)], alone: Mean) -> Option<Mean> {
    let work = |(run_s, overlap_s): &(f64, f64)| alone.mean - (run_s - overlap_s);
    let doubt = alone.half.unwrap_or(0.0);
    if runs.iter().any(|run| run.1 <= 0.0 || work(run) <= doubt) {
        return None;
    }
    let values: Vec<f64> = runs.iter().map(|run| run.1 / work(run)).collect();
    let found = Mean::of(&values)?;
    let least = runs.iter().map(work).fold(f64::INFINITY, f64::min);
    let by_alone = alone.half.map(|half| found.mean * half / least);
    Some(found.widened(by_alone))
}

/// Members of a group that shared GPUs, against the same runs one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    /// The group's name.
    pub group: String,
    /// Configurations of the members.
    pub members: Vec<String>,
    /// `-`, `MPS` or a MIG profile.
    pub collocation: String,
    /// From the first start to the last end, s.
    pub time_s: Mean,
    /// The members' run times alone, one after another, s.
    pub in_turn_s: Mean,
    /// Work in a time, by that of one after another.
    pub gain: Mean,
}

/// Members of a group on common GPUs: its name and their configurations.
type Members<'r> = (&'r str, Vec<String>);

/// Their way to share, and the time of each repetition, s.
type Times = (String, Vec<f64>);

/// All groups whose members shared GPUs and finished, and whose configurations ran alone too, in the order of the runs. `alone`:
/// run times alone by configuration.
#[must_use]
pub fn together(runs: &[Recorded], alone: &BTreeMap<String, Mean>) -> Vec<Together> {
    let first = |group: &str| runs.iter().position(|run| run.group == group);
    // Members on other GPUs of the same group are another comparison.
    let mut found: BTreeMap<Members<'_>, Times> = BTreeMap::new();
    for ((group, _), runs) in &Groups::of(runs).0 {
        for members in connected(runs) {
            let is_whole = members.iter().all(|run| run.outcome.state == State::Finished && !run.profiled);
            if members.len() < 2 || !is_whole {
                continue;
            }
            let mut configurations: Vec<String> =
                members.iter().map(|run| run.configuration.clone()).collect();
            configurations.sort();
            let begin = members.iter().map(|run| span(run).0).min().unwrap_or(0);
            let end = members.iter().map(|run| span(run).1).max().unwrap_or(0);
            let collocation = members[0].collocation.clone();
            let (_, times) = found.entry((group, configurations)).or_insert((collocation, Vec::new()));
            times.push((end - begin) as f64 / 1000.0);
        }
    }
    let row = |((group, members), (collocation, times)): (Members<'_>, Times)| {
        let times: Vec<f64> = times.into_iter().filter(|time| *time > 0.0).collect();
        let each = members.iter().map(|name| alone.get(name).copied()).collect::<Option<Vec<Mean>>>()?;
        let in_turn_s = Mean::sum(&each)?;
        let gains: Vec<f64> = times.iter().map(|time| in_turn_s.mean / time).collect();
        let gain = Mean::of(&gains)?;
        let by_alone = in_turn_s.half.map(|half| gain.mean * half / in_turn_s.mean);
        let (group, time_s, gain) = (group.to_owned(), Mean::of(&times)?, gain.widened(by_alone));
        Some(Together { group, members, collocation, time_s, in_turn_s, gain })
    };
    let mut rows: Vec<Together> = found.into_iter().filter_map(row).collect();
    rows.sort_by_cached_key(|row| first(&row.group));
    rows
}

/// Runs by the GPUs that they have in common, directly or by others.
fn connected<'r>(runs: &[&'r Recorded]) -> Vec<Vec<&'r Recorded>> {
    let mut sets: Vec<Vec<&Recorded>> = Vec::new();
    for run in runs {
        let joins = |set: &Vec<&Recorded>| set.iter().any(|other| share_a_gpu(run, other));
        let (mut joined, others): (Vec<_>, Vec<_>) = sets.into_iter().partition(joins);
        joined.push(vec![run]);
        sets = others;
        sets.push(joined.concat());
    }
    sets
}

/// Returns true if two members of a group may have had a GPU in common.
pub(crate) fn share_a_gpu(one: &Recorded, other: &Recorded) -> bool {
    let is_anywhere = one.devices.is_empty() || other.devices.is_empty();
    is_anywhere || one.devices.iter().any(|device| other.devices.contains(device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Outcome;

    fn run(key: &str, (start_s, seconds): (u64, u64), activity: Option<f64>) -> Recorded {
        Recorded {
            key: key.into(),
            group: "g".into(),
            configuration: key.into(),
            repetition: 1,
            collocation: "-".into(),
            outcome: Outcome {
                state: State::Finished,
                started_ms: 1_000_000 + start_s * 1000,
                duration_ms: seconds * 1000,
                launch_sm_activity: activity,
                ..Outcome::default()
            },
            ..Recorded::default()
        }
    }

    fn mean(mean: f64) -> Mean {
        Mean { mean, half: None, count: 1 }
    }

    #[test]
    fn parts_of_runs_sum_to_what_the_gpu_did() {
        // Each is at work all of the time, by launches that took four times as long.
        let runs: Vec<_> = ["a", "b", "c", "d"].map(|key| run(key, (0, 20), Some(0.997))).into();
        for one in &runs {
            let others: Vec<_> = runs.iter().filter(|other| other.key != one.key).collect();
            assert_eq!(beside(one, &others), Beside { overlap_s: 20.0, part: Some(0.25) });
        }
        // 10 s alone, then 10 s beside one that is at work a third as much.
        let (long, short) = (run("l", (0, 20), Some(0.9)), run("s", (10, 10), Some(0.3)));
        assert_eq!(beside(&long, &[&short]), Beside { overlap_s: 10.0, part: Some(0.875) });
        assert_eq!(beside(&short, &[&long]), Beside { overlap_s: 10.0, part: Some(0.25) });
        let unknown = run("u", (0, 20), None);
        assert_eq!(beside(&long, &[&unknown]).part, None);
        // The others were gone before it began.
        let late = run("late", (30, 5), Some(0.5));
        assert_eq!(beside(&late, &[&unknown]), Beside { overlap_s: 0.0, part: Some(1.0) });
        let gone = run("gone", (0, 0), Some(0.5));
        assert_eq!(beside(&gone, &[&long]).part, None);
    }

    #[test]
    fn figures_of_a_gpu_with_a_foreign_process_are_not_the_runs_own() {
        let mut one = run("a", (0, 20), Some(0.5));
        one.outcome.gpu_sm_activity = Some(0.8);
        one.outcome.gpu_sm_origin = Some("gpm".into());
        one.outcome.gpu_energy_j = Some(400.0);
        let alone = own(std::slice::from_ref(&one)).remove(0);
        assert_eq!(
            (alone.sm_activity, alone.energy_part, alone.energy_j),
            (Some(0.8), Some(1.0), Some(400.0))
        );
        one.outcome.has_others = true;
        assert_eq!(own(std::slice::from_ref(&one)), [Own::default()]);
        one.outcome.gpu_sm_activity = None;
        assert_eq!(own(std::slice::from_ref(&one)), [Own::default()], "launches take longer beside others");
        // The others are those of its group, whose parts are known.
        let other = Recorded { key: "b".into(), ..one.clone() };
        assert!(own(&[one, other]).iter().all(|own| own.energy_j == Some(200.0)));
    }

    #[test]
    fn an_instance_counts_by_its_slices() {
        let of = |profile: &str, key: &str| Recorded {
            collocation: profile.into(),
            ..run(key, (0, 10), Some(0.5))
        };
        let (large, small) = (of("3g.20gb", "l"), of("1g.5gb", "s"));
        assert_eq!(beside(&large, &[&small]).part, Some(0.75));
    }

    #[test]
    fn a_slowdown_is_that_of_the_time_in_company() {
        // 4.4 s of which 0.6 s beside another; alone 4.2 s.
        let found = slowdown(&[(4.4, 0.6)], mean(4.2)).unwrap();
        assert!((found.mean - 1.5).abs() < 1e-9 && found.half.is_none(), "{found:?}");
        assert_eq!(slowdown(&[(15.0, 15.0)], mean(10.0)).map(|found| found.mean), Some(1.5));
        assert_eq!(slowdown(&[(10.0, 0.0)], mean(10.0)), None, "there was no company");
        // The work beside the other, 0.4 s, is less than runs alone differ by.
        let alone = Mean { mean: 4.2, half: Some(0.5), count: 3 };
        assert_eq!(slowdown(&[(4.4, 0.6)], alone), None);
        // Both intervals count.
        let alone = Mean { mean: 10.0, half: Some(0.3), count: 3 };
        let found = slowdown(&[(20.0, 20.0), (20.0, 20.0)], alone).unwrap();
        assert!((found.half.unwrap() - 0.06).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_group_is_compared_with_its_members_one_after_another() {
        let alone = BTreeMap::from([("a".to_owned(), mean(10.0)), ("b".to_owned(), mean(14.0))]);
        let runs = [run("a", (0, 12), None), run("b", (4, 16), None)];
        let found = together(&runs, &alone);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].time_s.mean, found[0].in_turn_s.mean), (20.0, 24.0));
        assert!((found[0].gain.mean - 1.2).abs() < 1e-9);
        assert_eq!(found[0].members, ["a", "b"]);
        let one = BTreeMap::from([("a".to_owned(), mean(10.0))]);
        assert!(together(&runs, &one).is_empty(), "b never ran alone");
        let on = |device: &str, of: &Recorded| Recorded { devices: vec![device.into()], ..of.clone() };
        let apart = [on("0", &runs[0]), on("1", &runs[1])];
        assert!(together(&apart, &alone).is_empty(), "they shared no GPU");
        let mut failed = runs.clone();
        failed[1].outcome.state = State::Failed;
        assert!(together(&failed, &alone).is_empty());
    }
}
