//! A predictor of slowdowns in Python.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use radrm_scheduler_core::interference::Resident;
use radrm_scheduler_core::replay::TraceJob;
use radrm_scheduler_core::{PlanError, Program, SpeedModel};
use serde::{Deserialize, Serialize};

use super::{Python, PythonError, Role};

/// Companies whose speeds are kept.
const MAX_KEPT: usize = 1 << 20;

/// Program and activity of each job of a GPU, in thousandths.
type Company = Vec<(u64, [u32; 3])>;

/// Calls `speeds(jobs)` of a file once for each company of jobs.
#[derive(Debug)]
pub(in crate::replay) struct PythonPredictor {
    names: BTreeMap<Program, String>,
    called: Mutex<Called>,
}

#[derive(Debug)]
struct Called {
    python: Python,
    kept: BTreeMap<Company, Vec<f64>>,
}

#[derive(Serialize)]
struct Call<'a> {
    jobs: Vec<(&'a str, f64, f64, f64)>,
}

#[derive(Deserialize)]
struct Predicted {
    speeds: Vec<f64>,
}

impl PythonPredictor {
    /// Reads the file. Its names of jobs are those of the trace.
    pub(in crate::replay) fn start(
        file: &Path,
        trace: &[TraceJob],
        limit: Duration,
    ) -> Result<Self, PythonError> {
        let python = Python::start(file, Role::Predictor, limit)?;
        let names = trace.iter().map(|job| (Program::named(&job.name), job.name.clone())).collect();
        Ok(Self { names, called: Mutex::new(Called { python, kept: BTreeMap::new() }) })
    }

    /// Number of calls so far.
    pub(in crate::replay) fn calls(&self) -> u64 {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).python.calls
    }
}

impl SpeedModel for PythonPredictor {
    fn speeds(&self, jobs: &[Resident]) -> Result<Vec<f64>, PlanError> {
        let parts = |job: &Resident| [job.activity.smact, job.activity.smocc, job.activity.drama];
        let key =
            |job: &Resident| (job.program.map_or(0, |program| program.0), parts(job).map(|part| part.0));
        let company: Company = jobs.iter().map(key).collect();
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(speeds) = called.kept.get(&company) {
            return Ok(speeds.clone());
        }
        let line = |job: &Resident| {
            let name = job.program.and_then(|program| self.names.get(&program)).map_or("", String::as_str);
            let [smact, smocc, drama] = parts(job).map(|part| part.fraction());
            (name, smact, smocc, drama)
        };
        let Predicted { speeds } = called.python.call(&Call { jobs: jobs.iter().map(line).collect() })?;
        if called.kept.len() == MAX_KEPT {
            called.kept.clear();
        }
        called.kept.insert(company, speeds.clone());
        Ok(speeds)
    }
}
