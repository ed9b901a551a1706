//! Jobs of Philly as Microsoft published them: `cluster_job_log`, one JSON list.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{LeftOut, ReadError, Trace, calendar};
use crate::replay::TraceJob;
use crate::units::{Millis, Permille};
use radrm_base::UserId;

#[derive(Deserialize)]
struct Job {
    #[serde(default)]
    jobid: String,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    submitted_time: Option<String>,
    #[serde(default)]
    attempts: Vec<Attempt>,
}

#[derive(Deserialize)]
struct Attempt {
    #[serde(default)]
    start_time: Option<String>,
    #[serde(default)]
    end_time: Option<String>,
    #[serde(default)]
    detail: Vec<Machine>,
}

#[derive(Deserialize)]
struct Machine {
    #[serde(default)]
    gpus: Vec<String>,
}

/// Returns true if a text is such a list: no other trace is JSON.
pub(super) fn is_philly(text: &str) -> bool {
    text.trim_start().starts_with('[') && text.contains("\"attempts\"")
}

/// Reads the list. The run time of a job is that of all its attempts, its GPUs are those of the last one.
pub(super) fn read(text: &str) -> Result<Trace, ReadError> {
    let all: Vec<Job> = serde_json::from_str(text).map_err(ReadError::Json)?;
    let mut left_out = LeftOut::default();
    let mut users: BTreeMap<String, UserId> = BTreeMap::new();
    let mut found = Vec::new();
    for job in all {
        let Some(submitted) = job.submitted_time.as_deref().and_then(calendar::seconds) else {
            left_out.count("have no time of submission");
            continue;
        };
        let times = job.attempts.iter().filter_map(|attempt| {
            let at = |time: &Option<String>| time.as_deref().and_then(calendar::seconds);
            Some((at(&attempt.end_time)?).saturating_sub(at(&attempt.start_time)?)).filter(|ran| *ran > 0)
        });
        let ran: i64 = times.sum();
        let gpus = job
            .attempts
            .iter()
            .rev()
            .map(|attempt| attempt.detail.iter().map(|machine| machine.gpus.len()).sum());
        let gpus: usize = gpus.into_iter().find(|gpus: &usize| *gpus > 0).unwrap_or(0);
        match (ran, gpus) {
            (_, _) if job.attempts.is_empty() => left_out.count("never ran"),
            (..=0, _) => left_out.count("have no start and end, or no time between them"),
            (_, 0) => left_out.count("had no GPU"),
            _ => {
                let next = UserId(u32::try_from(users.len()).unwrap_or(u32::MAX));
                let user = *users.entry(job.user.unwrap_or_default()).or_insert(next);
                found.push((submitted, ran, gpus, user, job.jobid));
            }
        }
    }
    let first = found.iter().map(|(submitted, ..)| *submitted).min().unwrap_or(0);
    let jobs = found.into_iter().map(|(submitted, ran, gpus, user, name)| TraceJob {
        gpus: u16::try_from(gpus).unwrap_or(u16::MAX),
        user,
        share: Some(Permille::WHOLE),
        ..TraceJob::new(name, since(submitted, first), since(ran, 0))
    });
    Ok(Trace { jobs: jobs.collect(), left_out })
}

/// Time from one second to another.
pub(super) fn since(second: i64, first: i64) -> Millis {
    Millis::from_secs(u64::try_from(second.saturating_sub(first)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read_and_those_left_out_are_counted() {
        let text = r#"[
          {"status": "Pass", "vc": "ee9e8c", "jobid": "application_1", "user": "ce2f77",
           "submitted_time": "2017-10-09 07:01:17",
           "attempts": [{"start_time": "2017-10-09 07:02:29", "end_time": "2017-10-09 07:03:29", "detail": [{"ip": "m323", "gpus": ["gpu7"]}]},
                        {"start_time": "2017-10-09 08:00:00", "end_time": "2017-10-09 08:01:00",
                         "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu4"]}]}]},
          {"status": "Killed", "jobid": "application_2", "user": "x", "submitted_time": "2017-10-09 07:00:17", "attempts": []},
          {"status": "Killed", "jobid": "application_3", "user": "x", "submitted_time": "2017-10-09 07:00:17",
           "attempts": [{"start_time": "2017-10-09 07:00:18", "end_time": null, "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
          {"status": "Failed", "jobid": "application_4", "user": "x", "submitted_time": "2017-10-09 07:00:17",
           "attempts": [{"start_time": "2017-10-09 07:00:18", "end_time": "2017-10-09 07:00:28", "detail": []}]},
          {"status": "Pass", "jobid": "application_5", "user": "ce2f77", "submitted_time": "2017-10-09 07:01:00",
           "attempts": [{"start_time": "2017-10-09 07:01:01", "end_time": "2017-10-09 07:01:06", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}
        ]"#;
        assert!(is_philly(text));
        let Trace { jobs, left_out } = read(text).unwrap();
        let row = |job: &TraceJob| (job.name.clone(), job.arrival.0, job.duration.0, job.gpus, job.user.0);
        let expected = [
            ("application_1".to_owned(), 17_000, 120_000, 3, 0),
            ("application_5".to_owned(), 0, 5_000, 1, 0),
        ];
        assert_eq!(jobs.iter().map(row).collect::<Vec<_>>(), expected);
        let why = "1 had no GPU, 1 have no start and end, or no time between them, 1 never ran";
        assert_eq!((left_out.rows(), left_out.to_string()), (3, why.to_owned()));
        assert!(matches!(read("[{\"attempts\": 3}]"), Err(ReadError::Json(_))));
    }
}
