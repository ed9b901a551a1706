//! Hidden options by which a workload manager's plug-in says what a step is part of.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use radrm_cdi::bundle;
use radrm_limits::LimitError;
use radrm_limits::requested::RequestedLimits;
use radrm_limits::steps::StepsRequest;

#[derive(Args, Debug)]
pub(crate) struct StepFlags {
    /// The job whose steps share the limits of --job-limit
    #[arg(long, value_name = "JOB", hide = true, requires = "attend")]
    step_of: Option<String>,
    /// A limit over all steps of the job; the strictest holds
    #[arg(long, value_name = "LIMIT", hide = true, requires = "step_of", value_parser = RequestedLimits::parse)]
    job_limit: Vec<RequestedLimits>,
    /// A limit of this step beside --mem-limit; the strictest holds
    #[arg(long, value_name = "LIMIT", hide = true, requires = "step_of", value_parser = RequestedLimits::parse)]
    step_limit: Vec<RequestedLimits>,
    /// The control group of the job, of which the driver's figures are charged
    #[arg(long, value_name = "DIRECTORY", hide = true, requires = "step_of")]
    pub(crate) control_group: Option<PathBuf>,
    /// The processes run in a container, where PROGRAM is another file than here; with BUNDLE its configuration has
    /// their command line
    #[arg(long, value_name = "BUNDLE", hide = true, requires = "attend", num_args = 0..=1, require_equals = true)]
    in_container: Option<Option<PathBuf>>,
}

impl StepFlags {
    pub(crate) fn is_in_container(&self) -> bool {
        self.in_container.is_some()
    }

    /// The command line of the processes, which was given as `words`.
    pub(crate) fn command(&self, words: Vec<OsString>) -> Vec<OsString> {
        let bundle = self.in_container.iter().flatten().next();
        bundle.and_then(|bundle| bundle::command(bundle)).unwrap_or(words)
    }

    /// Request for what the steps of the job may take together.
    pub(crate) fn request(self) -> Result<Option<StepsRequest>, LimitError> {
        self.step_of.map(|job| StepsRequest::new(job, self.job_limit, self.step_limit)).transpose()
    }
}
