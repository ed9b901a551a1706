//! Tags of the runs that programs open at MLflow themselves: they name the run of the sweep that the program is.
//!
//! MLflow's own client adds the tags of the variable to each run that it opens (`mlflow.tracking.context`).

use serde_json::json;

use crate::store::Recorded;

/// The variable with tags, as JSON.
pub(crate) const VARIABLE: &str = "MLFLOW_RUN_CONTEXT";

/// The tag that names one attempt of one run.
pub const TAG: &str = "radrm.sweep.run";

/// Value of [`TAG`].
#[must_use]
pub fn tag(run: &Recorded) -> String {
    format!("{}.{}", run.key, run.attempt)
}

/// Value of the variable.
pub(crate) fn context(run: &Recorded) -> String {
    json!({ TAG: tag(run), "radrm.sweep.configuration": run.configuration }).to_string()
}
