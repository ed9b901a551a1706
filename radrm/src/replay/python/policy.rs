//! A policy in Python.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use radrm_scheduler_core::replay::TraceJob;
use radrm_scheduler_core::{
    DeviceId, Event, JobId, JobRequest, Millis, Outcome, Plan, PlanError, Planner, State,
};
use serde::{Deserialize, Serialize};

use super::{Python, PythonError, Role};

/// Calls `place(view)` of a file for each decision.
#[derive(Debug)]
pub(in crate::replay) struct PythonPolicy<'a> {
    python: Python,
    trace: &'a [TraceJob],
    /// Requests of jobs as they were sent last.
    sent: BTreeMap<JobId, JobRequest>,
    events: Vec<(f64, &'static str, u64)>,
}

/// Arguments of a call: all that waits, and of the rest the changes since the last one.
#[derive(Serialize)]
struct Call<'a> {
    now: f64,
    jobs: Vec<JobLine<'a>>,
    waiting: Vec<u64>,
    gpus: Vec<GpuLine>,
    events: Vec<(f64, &'static str, u64)>,
}

/// The attributes of a job in Python.
#[derive(Serialize)]
struct JobLine<'a> {
    number: u64,
    name: &'a str,
    gpus: u16,
    need: Option<u64>,
    need_upper: Option<u64>,
    reserves: u64,
    alone: bool,
    half_empty: bool,
    submitted: f64,
    user: u32,
    priority: i32,
    ooms: u32,
    run_time: Option<f64>,
    sm_activity: Option<f64>,
    model: Option<&'a str>,
    share: Option<f64>,
}

/// The attributes of a GPU in Python.
#[derive(Serialize)]
struct GpuLine {
    index: u32,
    node: u32,
    model: String,
    total: u64,
    free: u64,
    shared: bool,
    share: f64,
    jobs: Vec<u64>,
}

/// The answer of the file's function.
#[derive(Deserialize)]
struct Placed {
    start: Vec<(u64, Vec<u32>, String)>,
    wait: Vec<(u64, String)>,
}

impl<'a> PythonPolicy<'a> {
    /// Reads the file. Its names of jobs are those of the trace.
    pub(in crate::replay) fn start(
        file: &Path,
        trace: &'a [TraceJob],
        limit: Duration,
    ) -> Result<Self, PythonError> {
        let python = Python::start(file, Role::Policy, limit)?;
        Ok(Self { python, trace, sent: BTreeMap::new(), events: Vec::new() })
    }

    /// Number of calls so far.
    pub(in crate::replay) fn calls(&self) -> u64 {
        self.python.calls
    }

    /// The job's attributes, if they changed.
    fn news(&mut self, job: JobId, request: JobRequest) -> Option<JobLine<'a>> {
        if self.sent.insert(job, request).is_some_and(|before| before == request) {
            return None;
        }
        let from = self.trace.get(usize::try_from(job.0).ok()?)?;
        Some(JobLine {
            number: job.0,
            name: &from.name,
            gpus: request.gpus,
            need: request.need.map(|bytes| bytes.0),
            need_upper: request.upper.map(|bytes| bytes.0),
            reserves: request.reserves.0,
            alone: request.alone,
            half_empty: request.half_empty,
            submitted: request.submitted.as_secs_f64(),
            user: request.user.0,
            priority: request.priority,
            ooms: request.ooms,
            run_time: request.run_time.map(Millis::as_secs_f64),
            sm_activity: request.activity.map(|activity| activity.smact.fraction()),
            model: from.model.as_deref(),
            share: from.share.map(|share| share.fraction()),
        })
    }
}

impl Planner for PythonPolicy<'_> {
    fn happened(&mut self, at: Millis, event: &Event) {
        let (kind, job) = match event {
            Event::Submitted { job } => ("submitted", job.id),
            Event::Started { job, .. } => ("started", *job),
            Event::Finished { job, outcome: Outcome::Exited { code: 0 }, .. } => ("ended", *job),
            Event::Finished { job, outcome: Outcome::OutOfMemory { .. }, .. } => ("out-of-memory", *job),
            Event::Finished { job, .. } => ("failed", *job),
            _ => return,
        };
        self.events.push((at.as_secs_f64(), kind, job.0));
    }

    fn plan(&mut self, state: &State) -> Result<Vec<Plan>, PlanError> {
        let waiting: Vec<(JobId, JobRequest)> = state.requests().collect();
        let views: Vec<_> = state.devices().filter(|view| state.takes_jobs(view.device.id)).collect();
        let running = views.iter().flat_map(|view| &view.jobs);
        let running: Vec<_> = running.filter_map(|job| Some((*job, state.request(*job)?))).collect();
        let all = waiting.iter().chain(&running);
        let jobs = all.filter_map(|(job, request)| self.news(*job, *request)).collect();
        let gpus = views.into_iter().map(|view| GpuLine {
            index: view.device.id.0,
            node: view.device.node.0,
            total: view.device.capacity.0,
            free: state.free(view.device.id).0,
            shared: view.device.shared,
            share: view.share.fraction(),
            jobs: view.jobs.iter().map(|job| job.0).collect(),
            model: view.device.model,
        });
        let call = Call {
            now: state.now().as_secs_f64(),
            jobs,
            waiting: waiting.iter().map(|(job, _)| job.0).collect(),
            gpus: gpus.collect(),
            events: std::mem::take(&mut self.events),
        };
        let Placed { start, wait } = self.python.call(&call)?;
        let start = start.into_iter().map(|(job, devices, why)| {
            let devices = devices.into_iter().map(DeviceId).collect();
            Plan::Start { job: JobId(job), devices, why }
        });
        Ok(start.chain(wait.into_iter().map(|(job, why)| Plan::Wait { job: JobId(job), why })).collect())
    }
}
