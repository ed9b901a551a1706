//! Trackers of experiments: a dry run is not an experiment, so they send nothing.

use radrm_limits::program::environment::Environment;

/// Variables that keep a tracker from its server, with the values under which it already does.
const OFFLINE: [(&str, &str, &[&str]); 4] = [
    ("WANDB_MODE", "offline", &["disabled", "dryrun"]),
    ("NEPTUNE_MODE", "offline", &["debug"]),
    ("CLEARML_OFFLINE_MODE", "1", &[]),
    ("TRAINS_OFFLINE_MODE", "1", &[]),
];
/// Variable with the address of MLflow's server. The program's own files hold what it records without one.
const MLFLOW: &str = "MLFLOW_TRACKING_URI";

/// Lets a program with this environment send nothing.
pub(super) fn silence(environment: &mut Environment) {
    for (variable, value, others) in OFFLINE {
        let is_off =
            environment.get(variable).is_some_and(|set| others.iter().any(|other| set == other.as_bytes()));
        if !is_off {
            environment.set(variable, value.as_bytes());
        }
    }
    let is_remote =
        |address: &[u8]| [&b"http"[..], b"databricks", b"uc:"].iter().any(|kind| address.starts_with(kind));
    if environment.get(MLFLOW).is_some_and(is_remote) {
        environment.remove(MLFLOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trackers_have_no_server_in_a_dry_run() {
        let mut environment = Environment::inherited();
        environment.set("WANDB_MODE", b"online");
        environment.set("NEPTUNE_MODE", b"debug");
        environment.set(MLFLOW, b"https://tracker.example/");
        silence(&mut environment);
        let value = |name| environment.get(name).map(<[u8]>::to_vec);
        assert_eq!(value("WANDB_MODE").as_deref(), Some(&b"offline"[..]));
        assert_eq!(value("NEPTUNE_MODE").as_deref(), Some(&b"debug"[..]));
        assert_eq!(value(MLFLOW), None);
        environment.set(MLFLOW, b"sqlite:///runs.db");
        silence(&mut environment);
        assert!(environment.get(MLFLOW).is_some());
    }
}
