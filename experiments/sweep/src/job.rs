//! Runs as jobs of radrmd: which can be jobs, how these are called, and what the daemon's answer says of a run. Pure.

use std::collections::BTreeSet;

use radrm_protocol::together::MAX_TOGETHER;
use radrm_protocol::wire::{JobRow, Outcome, Verdict};
use thiserror::Error;

use crate::attempt::Ended;
use crate::machine::is_of_profile;
use crate::plan::{Collocation, Group, Run};

/// Bytes of a run's name in that of its job: with the tag it is no longer than a job's name may be.
const MAX_NAME: usize = 200;

/// Reason that radrmd cannot run a group.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotAJob {
    /// Jobs of a group share all of their GPUs, or none.
    #[error(
        "its runs see some GPUs in common and others not, and jobs of radrmd share all of their GPUs or none"
    )]
    Overlap,
    /// More jobs than a group may have.
    #[error("its {0} runs start together, and radrmd starts no more than {MAX_TOGETHER} jobs together")]
    Many(usize),
    /// The daemon has no such instance.
    #[error(
        "its run asks for a MIG instance of profile {0}, and radrmd has none: create one with `nvidia-smi mig -cgi {0} -C` \
         and restart radrmd"
    )]
    NoMig(String),
    /// Jobs that start together are on GPUs of one model.
    #[error("its runs start together on different MIG profiles, and radrmd starts jobs together on one")]
    MixedMig,
    /// The daemon has GPUs of its own.
    #[error("its GPUs are emulated for the sweep, and radrmd has GPUs of its own")]
    Emulated,
}

/// The model, as radrmd calls it, of the instances of a MIG profile.
pub(crate) fn mig_model<'m>(profile: &str, models: &'m [String]) -> Option<&'m String> {
    models.iter().find(|model| is_of_profile(model, profile))
}

/// Checks that radrmd, with GPUs of these models, can run a group.
pub(crate) fn check(group: &Group, models: &[String]) -> Result<(), NotAJob> {
    if group.runs.len() > MAX_TOGETHER {
        return Err(NotAJob::Many(group.runs.len()));
    }
    let profile = |run: &Run| match &run.collocation {
        Collocation::Mig(profile) => Some(profile.clone()),
        _ => None,
    };
    if group.runs.windows(2).any(|pair| profile(&pair[0]) != profile(&pair[1])) {
        return Err(NotAJob::MixedMig);
    }
    let overlap = |one: &Run, other: &Run| {
        let is_seen = |device: &String| other.devices.contains(device);
        one.devices.is_empty() || other.devices.is_empty() || one.devices.iter().any(is_seen)
    };
    let is_whole = |run: &Run| profile(run).is_none();
    let differ = |one: &Run, other: &Run| is_whole(one) && !is_same_site(one, other) && overlap(one, other);
    if group.runs.iter().any(|one| group.runs.iter().any(|other| differ(one, other))) {
        return Err(NotAJob::Overlap);
    }
    group.runs.iter().try_for_each(|run| match &run.collocation {
        _ if run.emulate.is_some() => Err(NotAJob::Emulated),
        Collocation::Mig(profile) if mig_model(profile, models).is_none() => {
            Err(NotAJob::NoMig(profile.clone()))
        }
        Collocation::Mig(_) | Collocation::Streams | Collocation::Mps => Ok(()),
    })
}

/// Returns true if two runs of a group use the same GPUs.
/// Without `devices` a run sees all GPUs, and its program uses the first.
fn is_same_site(one: &Run, other: &Run) -> bool {
    let devices = |run: &Run| run.devices.iter().cloned().collect::<BTreeSet<String>>();
    // Each has an instance of its own.
    let is_instance = matches!(one.collocation, Collocation::Mig(_));
    std::ptr::eq(one, other) || !is_instance && devices(one) == devices(other)
}

/// Set of GPUs that each run of a group uses, by number: runs of equal numbers use the same GPUs.
pub(crate) fn sites(group: &Group) -> Vec<u32> {
    let site = |run: &Run| group.runs.iter().position(|other| is_same_site(run, other)).unwrap_or(0);
    group.runs.iter().map(|run| u32::try_from(site(run)).unwrap_or(u32::MAX)).collect()
}

/// Name of a run's job: the run's name and the tag of the attempt.
pub(crate) fn name(run: &str, tag: &str) -> String {
    format!("{} #{tag}", &run[..run.floor_char_boundary(MAX_NAME)])
}

/// Returns true if a job is that of an attempt.
pub(crate) fn is_of(row: &JobRow, tag: &str) -> bool {
    row.name.raw().strip_suffix(tag).is_some_and(|name| name.ends_with(" #"))
}

/// Returns true if a job is out of the queue.
pub(crate) fn has_started(row: &JobRow) -> bool {
    !row.state.is_queued()
}

/// End status of a job that is over.
pub(crate) fn ended(row: &JobRow) -> Ended {
    let plain = Ended {
        started_ms: row.started_ms.unwrap_or(row.submitted_ms),
        duration_ms: row.ran_ms,
        ..Ended::default()
    };
    let why = || Some(row.end.clone().unwrap_or_default().into_raw());
    match row.verdict {
        Some(Verdict::Ended(Outcome::Exited { code })) => Ended { code: Some(code), ..plain },
        Some(Verdict::Ended(Outcome::Signalled { signal })) => Ended { signal: Some(signal), ..plain },
        Some(Verdict::TimedOut) => Ended { timed_out: true, ..plain },
        Some(Verdict::Cancelled) => Ended { code: row.exit_code, stopped: true, why: why(), ..plain },
        _ => Ended { code: row.exit_code, why: why(), ..plain },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_radrmd_can_start_as_it_is_meant_becomes_a_job() {
        let run = Run { devices: vec!["0".into(), "1".into()], ..Run::default() };
        let models = ["A100 MIG 1g.5gb".to_owned(), "T4".to_owned()];
        let of = |runs: Vec<Run>| check(&Group { runs, ..Group::default() }, &models);
        assert_eq!(of(vec![run.clone()]), Ok(()));
        assert_eq!(of(vec![run.clone(), run.clone()]), Ok(()));
        assert_eq!(of(vec![Run::default(), Run::default()]), Ok(()));
        let at = |devices: &[&str]| Run {
            devices: devices.iter().map(|device| (*device).to_owned()).collect(),
            ..Run::default()
        };
        assert_eq!(of(vec![run.clone(), at(&["2"])]), Ok(()));
        for other in [at(&["1"]), at(&[])] {
            assert_eq!(of(vec![run.clone(), other]), Err(NotAJob::Overlap));
        }
        assert_eq!(of(vec![run.clone(); MAX_TOGETHER + 1]), Err(NotAJob::Many(MAX_TOGETHER + 1)));
        let group = Group { runs: vec![run.clone(), at(&["2"]), at(&["1", "0"])], ..Group::default() };
        assert_eq!(sites(&group), [0, 1, 0]);
        let mps = Run { collocation: Collocation::Mps, ..run.clone() };
        assert_eq!(of(vec![mps]), Ok(()));
        let mig = |profile: &str| Run { collocation: Collocation::Mig(profile.into()), ..run.clone() };
        assert_eq!(of(vec![mig("1g.5gb")]), Ok(()));
        assert_eq!(of(vec![mig("3g.20gb")]), Err(NotAJob::NoMig("3g.20gb".into())));
        assert_eq!(of(vec![mig("1g.5gb"), mig("1g.10gb")]), Err(NotAJob::MixedMig));
        let group = Group { runs: vec![mig("1g.5gb"), mig("1g.5gb")], ..Group::default() };
        assert_eq!((check(&group, &models), sites(&group)), (Ok(()), vec![0, 1]), "an instance for each");
        assert_eq!(of(vec![Run { emulate: Some("T4".into()), ..run }]), Err(NotAJob::Emulated));
    }

    #[test]
    fn a_job_is_known_by_its_tag_however_long_the_name_of_its_run_is() {
        let row = |name: String| JobRow { name: name.into(), ..JobRow::default() };
        for run in ["batch=8", "", &"\u{e9}".repeat(300)] {
            let name = name(run, "0123456789abcdef");
            assert!(name.len() <= 256, "{name}");
            assert!(is_of(&row(name.clone()), "0123456789abcdef"));
            assert!(!is_of(&row(name), "0123456789abcde0"));
        }
        assert!(!is_of(&row("x 0123456789abcdef".into()), "0123456789abcdef"));
    }

    #[test]
    fn a_job_ends_as_a_run_does() {
        let row = JobRow {
            started_ms: Some(5),
            ran_ms: 7,
            exit_code: Some(143),
            end: Some("why".into()),
            ..JobRow::default()
        };
        let with = |verdict| ended(&JobRow { verdict: Some(verdict), ..row.clone() });
        let plain = Ended { started_ms: 5, duration_ms: 7, ..Ended::default() };
        assert_eq!(
            with(Verdict::Ended(Outcome::Exited { code: 3 })),
            Ended { code: Some(3), ..plain.clone() }
        );
        assert_eq!(
            with(Verdict::Ended(Outcome::Signalled { signal: 15 })),
            Ended { signal: Some(15), ..plain.clone() }
        );
        assert_eq!(with(Verdict::TimedOut), Ended { timed_out: true, ..plain.clone() });
        let cancelled = JobRow { exit_code: None, verdict: Some(Verdict::Cancelled), ..row.clone() };
        assert_eq!(ended(&cancelled), Ended { stopped: true, why: Some("why".into()), ..plain });
    }
}
