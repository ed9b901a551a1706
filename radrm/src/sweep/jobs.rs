//! Runs as jobs of radrmd: whether they are, and what each asks for.

use std::env;
use std::path::Path;

use radrm_protocol::ProtocolError;
use radrm_protocol::connection::Connection;
use radrm_protocol::socket::SOCKET_VARIABLE;
use radrm_protocol::spec::Spec;
use radrm_sweep::plan::{Collocation, Run};
use radrm_sweep::radrmd::Radrmd;

use super::Through;
use crate::Failure;
use crate::client::asks::Asks;
use crate::client::submit;

/// The variable by which `radrm-run` knows how launches are recorded, and its value for runs of a sweep: a share of the
/// running time below 0.5 %, for SM activity by the shape of launches.
const KERNELS: (&str, &str) = ("RADRM_KERNELS", "sample");

/// Returns true if radrmd takes the runs. `is_emulated`: the sweep has emulated GPUs of its own.
///
/// # Errors
/// A daemon was asked for and none answers, or one answers and does not understand.
pub(super) fn takes_runs(
    through: Option<Through>,
    is_emulated: bool,
    socket: Option<&Path>,
) -> Result<bool, ProtocolError> {
    match through {
        Some(Through::Own) => return Ok(false),
        None if is_emulated => return Ok(false),
        Some(Through::Radrmd) | None => {}
    }
    let is_named = socket.is_some() || env::var_os(SOCKET_VARIABLE).is_some();
    match Connection::open(socket) {
        Ok(_) => Ok(true),
        Err(ProtocolError::NoDaemon(_)) if through.is_none() && !is_named => Ok(false),
        Err(why) => Err(why),
    }
}

/// The way to radrmd.
pub(super) fn radrmd(socket: Option<&Path>, takes_runs: bool) -> Radrmd<'_> {
    let specify = |run: &Run, profiler: &Path| specify(run, profiler).map_err(Into::into);
    Radrmd::new(Box::new(move || Connection::open(socket)), Box::new(specify), takes_runs)
}

/// The job of a run, as `radrm submit` would make it from these options.
fn specify(run: &Run, profiler: &Path) -> Result<Spec, Failure> {
    let mut variables = run.environment.clone();
    if env::var_os(KERNELS.0).is_none() {
        variables.entry(KERNELS.0.to_owned()).or_insert_with(|| KERNELS.1.to_owned());
    }
    let command = run.words(&profiler.to_string_lossy());
    submit::of_program(&command, &run.directory, &variables, Asks::of_words(&options(run))?)
}

fn options(run: &Run) -> Vec<String> {
    // A run that takes more than its limit fails: with another limit it would be another run.
    let mut options = vec![format!("--gpus={}", run.gpus()), "--attempts=1".to_owned()];
    match &run.mem_limit {
        Some(limit) => options.push(format!("--gpu-mem={limit}")),
        // Not by what earlier runs took: all repetitions are to run under the same conditions.
        None => options.push("--exclusive".to_owned()),
    }
    options.extend(run.sm_limit.iter().map(|share| format!("--gpu-share={share}")));
    options.extend((run.collocation == Collocation::Mps).then(|| "--mps".to_owned()));
    options.extend(run.timeout_ms.map(|ms| format!("--time={ms}ms")));
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        Run { command: vec!["train".into(), "--lr=0.1".into()], directory: "/".into(), ..Run::default() }
    }

    #[test]
    fn a_run_becomes_the_job_that_its_conditions_ask_for() {
        let limited = Run {
            mem_limit: Some("8GiB".into()),
            sm_limit: Some("30%".into()),
            timeout_ms: Some(90_500),
            devices: vec!["0".into(), "1".into()],
            environment: [("A".to_owned(), "1".to_owned())].into(),
            ..run()
        };
        let spec = specify(&limited, Path::new("/p")).unwrap();
        assert_eq!((spec.mem, spec.share, spec.time_limit_ms), (Some(8 << 30), Some(300), Some(90_500)));
        assert_eq!((spec.gpus, spec.exclusive, spec.attempts), (2, false, Some(1)));
        assert_eq!((spec.command, spec.cwd.as_path()), (limited.command, Path::new("/")));
        for line in ["A=1", "RADRM_KERNELS=sample"] {
            assert!(spec.environment.iter().any(|variable| variable == line), "{line}");
        }
        let mps = specify(&Run { collocation: Collocation::Mps, ..run() }, Path::new("/p")).unwrap();
        assert!(mps.mps && !spec.mps);
        let plain = specify(&run(), Path::new("/p")).unwrap();
        assert_eq!((plain.gpus, plain.exclusive, plain.mem, plain.share), (1, true, None, None));
    }

    #[test]
    fn a_limit_that_no_job_can_have_is_named_in_one_sentence() {
        for (run, part) in [
            (Run { mem_limit: Some("50%".into()), ..run() }, "--gpu-mem: `50%`"),
            (Run { mem_limit: Some("0=1GiB".into()), ..run() }, "--gpu-mem: "),
            (Run { devices: vec![String::new(); 65], ..run() }, "65 GPUs"),
        ] {
            let text = specify(&run, Path::new("/p")).unwrap_err().to_string();
            assert!(text.contains(part) && text.lines().count() == 1, "{text}");
        }
    }
}
