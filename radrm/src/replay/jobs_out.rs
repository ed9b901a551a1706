//! Results job by job, as CSV and JSON. `docs/trace-columns.md` has the columns.

use std::path::PathBuf;
use std::str::FromStr;

use radrm_launcher::report_file;
use radrm_scheduler_core::Millis;
use radrm_scheduler_core::replay::{Bar, JobResult, TraceJob};
use radrm_sweep::report::csv_text;
use serde_json::{Value, json};

use super::ReplayError;
use super::outcome::{Outcome, Traced};
use crate::Failure;
use crate::error::UsageError;

/// Form of a file with results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Csv,
    Json,
}

/// A file for results, in the form that its name ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobsOut {
    path: PathBuf,
    form: Form,
}

impl FromStr for JobsOut {
    type Err = ReplayError;
    fn from_str(name: &str) -> Result<Self, ReplayError> {
        let path = PathBuf::from(name);
        let form = match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Form::Csv,
            Some("json") => Form::Json,
            _ => return Err(ReplayError::NoFormOfJobs(path)),
        };
        Ok(Self { path, form })
    }
}

impl JobsOut {
    /// Checks that no profile is overwritten.
    pub(super) fn check(&self) -> Result<(), UsageError> {
        report_file::spares_profile(&self.path).map_err(UsageError::Overwrites)
    }

    /// Writes the results.
    pub(super) fn write(&self, traces: &[Traced], outcomes: &[Outcome]) -> Result<(), Failure> {
        let rows: Vec<Row<'_>> = outcomes
            .iter()
            .filter_map(|outcome| Some((outcome, traces.get(outcome.trace)?)))
            .flat_map(|(outcome, trace)| rows(trace, outcome))
            .collect();
        let text = match self.form {
            Form::Csv => {
                let head = COLUMNS.map(str::to_owned).to_vec();
                let lines: Vec<Vec<String>> = [head].into_iter().chain(rows.iter().map(Row::cells)).collect();
                csv_text(&lines)?
            }
            Form::Json => {
                let all: Vec<Value> = rows.iter().map(Row::json).collect();
                serde_json::to_string_pretty(&all)? + "\n"
            }
        };
        Ok(report_file::write(&self.path, text)?)
    }
}

/// Result of a job under a policy.
pub(super) struct Row<'a> {
    pub(super) trace: &'a str,
    pub(super) policy: String,
    pub(super) interference: f64,
    /// Place in the trace.
    pub(super) job: usize,
    pub(super) name: &'a str,
    pub(super) submit: Millis,
    /// Start of the first attempt; `None`: it never ran.
    pub(super) start: Option<Millis>,
    pub(super) end: Option<Millis>,
    pub(super) gpus: u16,
    /// Numbers of the GPUs of its last attempt.
    pub(super) devices: Vec<u32>,
    pub(super) retries: u32,
    pub(super) ooms: u32,
    pub(super) harmed: u32,
    pub(super) wait: Option<Millis>,
    pub(super) run: Millis,
    pub(super) completion: Option<Millis>,
    pub(super) ok: bool,
}

/// The rows of a replay, in the order of the trace.
pub(super) fn rows<'a>(trace: &'a Traced, outcome: &'a Outcome) -> Vec<Row<'a>> {
    let mut last: Vec<Vec<&Bar>> = vec![Vec::new(); trace.jobs.len()];
    for bar in &outcome.first.bars {
        let Some(of) = last.get_mut(bar.job as usize) else { continue };
        // In order of time: what another attempt had is of no interest any more.
        of.retain(|other| (other.from, other.to) == (bar.from, bar.to));
        of.push(bar);
    }
    let number = |bar: &&Bar| outcome.first.devices.get(bar.device as usize).map_or(bar.device, |id| id.0);
    let row = |(at, (job, result)): (usize, (&'a TraceJob, &'a JobResult))| {
        let mut devices: Vec<u32> = last[at].iter().map(number).collect();
        devices.sort_unstable();
        let ran = result.has_run();
        Row {
            trace: &trace.name,
            policy: outcome.policy.to_string(),
            interference: outcome.factor,
            job: at,
            name: &job.name,
            submit: result.arrival,
            start: result.start,
            end: result.end.filter(|_| ran),
            gpus: job.gpus,
            devices,
            retries: result.attempts.saturating_sub(1),
            ooms: result.ooms,
            harmed: result.harmed,
            wait: ran.then(|| result.waited()),
            run: result.ran,
            completion: ran.then(|| result.completion()),
            ok: result.success,
        }
    };
    trace.jobs.iter().zip(&outcome.first.jobs).enumerate().map(row).collect()
}

/// Columns, in the order of [`Row::cells`].
const COLUMNS: [&str; 17] = [
    "trace",
    "policy",
    "interference",
    "job",
    "name",
    "submit_s",
    "start_s",
    "end_s",
    "gpus",
    "devices",
    "retries",
    "out_of_memory",
    "harmed",
    "wait_s",
    "run_s",
    "completion_s",
    "ok",
];

impl Row<'_> {
    fn json(&self) -> Value {
        let seconds = |time: Option<Millis>| time.map(|time| time.as_secs_f64());
        let values = [
            json!(self.trace),
            json!(self.policy),
            json!(self.interference),
            json!(self.job),
            json!(self.name),
            json!(self.submit.as_secs_f64()),
            json!(seconds(self.start)),
            json!(seconds(self.end)),
            json!(self.gpus),
            json!(self.devices),
            json!(self.retries),
            json!(self.ooms),
            json!(self.harmed),
            json!(seconds(self.wait)),
            json!(self.run.as_secs_f64()),
            json!(seconds(self.completion)),
            json!(self.ok),
        ];
        COLUMNS.into_iter().map(str::to_owned).zip(values).collect()
    }

    fn cells(&self) -> Vec<String> {
        let object = self.json();
        let cell = |column: &str| match &object[column] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            Value::Array(all) => all.iter().map(Value::to_string).collect::<Vec<_>>().join(" "),
            other => other.to_string(),
        };
        COLUMNS.into_iter().map(cell).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::chosen::Chosen;
    use radrm_scheduler_core::replay::{Bounds, Curve, LeftOut, Report};
    use radrm_scheduler_core::{DeviceId, Permille, Policy};

    fn job(arrival: u64, start: Option<u64>, end: u64, ran: u64, attempts: u32) -> JobResult {
        JobResult {
            arrival: Millis::from_secs(arrival),
            start: start.map(Millis::from_secs),
            end: Some(Millis::from_secs(end)),
            ran: Millis::from_secs(ran),
            attempts,
            ooms: attempts.saturating_sub(1),
            harmed: 0,
            success: start.is_some(),
        }
    }

    /// A job that ran out of memory on one GPU and ended on two others, and one that never ran.
    fn made() -> (Traced, Outcome) {
        let named = |name: &str| TraceJob::new(name, Millis::ZERO, Millis::ZERO);
        let jobs = vec![TraceJob { gpus: 2, ..named("=big, \"x\"") }, named("never")];
        let bar = |device, from, to, failed| Bar {
            job: 0,
            device,
            from: Millis::from_secs(from),
            to: Millis::from_secs(to),
            failed,
        };
        let first = Report {
            makespan: Millis::from_secs(100),
            jobs: vec![job(10, Some(20), 100, 70, 2), job(15, None, 0, 0, 0)],
            smact: 0.0,
            memory: 0.0,
            energy: 0.0,
            watts: 0.0,
            bars: vec![bar(0, 20, 30, true), bar(2, 40, 100, false), bar(1, 40, 100, false)],
            curve: Curve::default(),
            devices: vec![DeviceId(0), DeviceId(4), DeviceId(7)],
            steps: Vec::new(),
            followed: Vec::new(),
        };
        let outcome = Outcome {
            trace: 0,
            factor: 1.0,
            policy: Chosen::Named(Policy::Magm),
            metrics: Vec::new(),
            first,
            calls: 0,
        };
        let traced = Traced {
            name: "t.csv".into(),
            jobs,
            left_out: LeftOut::default(),
            bounds: Bounds::default(),
            unknown: Permille::default(),
            never: 0,
            followed: None,
        };
        (traced, outcome)
    }

    #[test]
    fn a_row_has_the_devices_of_the_last_attempt_and_a_job_that_never_ran_no_times() {
        let (traced, outcome) = made();
        let dir = tempfile::tempdir().unwrap();
        let [csv, json] = ["j.csv", "j.json"].map(|name| dir.path().join(name));
        for path in [&csv, &json] {
            let out: JobsOut = path.to_str().unwrap().parse().unwrap();
            out.write(std::slice::from_ref(&traced), std::slice::from_ref(&outcome)).unwrap();
        }
        let csv = std::fs::read_to_string(csv).unwrap();
        assert_eq!(
            csv,
            "trace,policy,interference,job,name,submit_s,start_s,end_s,gpus,devices,retries,out_of_memory,harmed,\
             wait_s,run_s,completion_s,ok\n\
             t.csv,magm,1.0,0,\"'=big, \"\"x\"\"\",10.0,20.0,100.0,2,4 7,1,1,0,20.0,70.0,90.0,true\n\
             t.csv,magm,1.0,1,never,15.0,,,1,,0,0,0,,0.0,,false\n"
        );
        let json: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
        assert_eq!((&json[0]["name"], &json[0]["devices"]), (&json!("=big, \"x\""), &json!([4, 7])));
        assert_eq!((&json[1]["completion_s"], &json[1]["ok"]), (&Value::Null, &json!(false)));
    }

    #[test]
    fn the_ending_of_a_name_decides_the_form() {
        let why = "jobs.txt".parse::<JobsOut>().unwrap_err().to_string();
        assert_eq!(why, "jobs.txt ends with neither .csv nor .json");
    }

    #[test]
    fn the_page_of_columns_has_every_column_of_results() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/trace-columns.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, results) = page.split_once("## Results by job").expect("a section");
        for column in COLUMNS {
            assert!(results.contains(&format!("`{column}`")), "{column}");
        }
    }
}
