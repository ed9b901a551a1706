//! Steps whose tasks Slurm starts in a container (`--container`): not Slurm but a runtime that `oci.conf` names makes the
//! task's process, and gives it the environment and the files that the bundle's configuration states.
//!
//! A task's own environment reaches no container, and the configuration may be written already. So the plug-in leaves
//! what the container is to get in a variable of the process that becomes the runtime, where `radrm cdi apply` finds it.
//! It does so for each task: whether there is a container is the user's to say, and no hook states it.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use radrm_limits::program::given::{CONTAINER_VARIABLE, Given};

use crate::abi::Spank;

/// By this `radrm cdi apply` gets what the container is to have.
pub const VARIABLE: &CStr = c"RADRM_CONTAINER";
/// Reason that a limit cannot hold in a container.
pub const NOT_APPLIED: &str = "no limit and no recording reaches the container; ask the administrator to put `radrm cdi apply %b --` before the runtime in RunTimeRun of oci.conf";
/// The same where Slurm does not state whether there is a container.
pub const NOT_STATED: &str = "no limit can be enforced on this node, also outside of containers: its oci.conf starts containers without limits, and a user can hide one from this version of Slurm; ask the administrator to put `radrm cdi apply %b --` before the runtime in RunTimeRun of oci.conf";

/// From this version on (22.11) a step has its own command line also in a container, and only a variable that its user
/// can change says that there is one.
const UNSTATED_SINCE: u32 = 0x16_0b00;

/// Path of Slurm's configuration, if no variable states it.
const USUAL: &str = "/etc/slurm/slurm.conf";
/// The user's own command line went into the bundle's configuration, and Slurm (until 22.05) has put this in its place.
const IN_PLACE: &CStr = c"echo 'this should never execute with a container'; exit 1";

/// Way in which this node starts containers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runtime {
    /// It starts none: Slurm ignores `--container`.
    Absent,
    /// By a runtime that gets nothing of the step.
    Bare,
    /// By `radrm cdi apply`. `has_job_environment`: it may be executed with the environment of the task.
    Applied {
        /// See above.
        has_job_environment: bool,
    },
}

/// Variables and limit flag for a container, as the runtime finds them.
#[derive(Debug)]
pub struct HandedOver {
    text: CString,
    has_job_environment: bool,
}

/// As `oci.conf` says, which lies beside `slurm.conf`.
pub fn runtime() -> Runtime {
    // That of slurmd.
    let file = std::env::var_os("SLURM_CONF").map_or_else(|| USUAL.into(), PathBuf::from);
    fs::read_to_string(file.with_file_name("oci.conf")).map_or(Runtime::Absent, |text| parse(&text))
}

fn parse(text: &str) -> Runtime {
    let text = text.replace("\\\n", " ");
    let (mut is_applied, mut has_job_environment) = (false, false);
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let Some((name, value)) = line.split_once('=') else { continue };
        let value = value.trim().trim_matches('"').trim();
        match name.trim().to_ascii_lowercase().as_str() {
            // With both, Slurm rejects the file.
            "runtimerun" | "runtimecreate" => is_applied = applies(value),
            "createenvfile" => {
                has_job_environment =
                    !["false", "no", "0", "disabled"].contains(&value.to_ascii_lowercase().as_str());
            }
            _ => {}
        }
    }
    if is_applied { Runtime::Applied { has_job_environment } } else { Runtime::Bare }
}

/// Returns true for a command line of `radrm cdi apply`.
fn applies(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next().is_some_and(|program| Path::new(program).file_name().is_some_and(|name| name == "radrm"))
        && words.next() == Some("cdi")
        && words.next() == Some("apply")
}

impl Runtime {
    /// Returns true if containers get nothing of a step.
    pub fn is_bare(self) -> bool {
        self == Self::Bare
    }

    /// Reason that a step with a limit must not start its tasks.
    /// `is_one`: Slurm or the user says that they run in a container; `version`: of Slurm.
    pub fn refusal(self, is_one: bool, version: u32) -> Option<&'static str> {
        match self {
            Self::Bare if is_one => Some(NOT_APPLIED),
            // The user may have emptied the variable.
            Self::Bare if version >= UNSTATED_SINCE => Some(NOT_STATED),
            _ => None,
        }
    }

    /// Variables and limit flag for a container of the step, if there is one.
    ///
    /// # Errors
    /// One clause: a container could not have the limit.
    pub fn hand_over(
        self,
        variables: &[(CString, CString)],
        is_limited: bool,
    ) -> Result<Option<HandedOver>, String> {
        let Self::Applied { has_job_environment } = self else { return Ok(None) };
        let bytes = |text: &CString| text.to_bytes().to_vec();
        let variables = variables.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
        let text = Given { is_limited, variables }.to_text().and_then(|text| CString::new(text).ok());
        match text {
            Some(text) => Ok(Some(HandedOver { text, has_job_environment })),
            None if is_limited => {
                Err(format!("a path with a line break cannot stand in {CONTAINER_VARIABLE}"))
            }
            None => Ok(None),
        }
    }
}

impl HandedOver {
    /// In the forked task; `false`: it could not be done.
    pub fn enter(&self, spank: Spank) -> bool {
        // SAFETY: the only thread of a forked process; both strings live.
        let is_set = unsafe { libc::setenv(VARIABLE.as_ptr(), self.text.as_ptr(), 1) } == 0;
        is_set && (!self.has_job_environment || spank.set_variable(VARIABLE, &self.text))
    }
}

/// Returns true if the step's tasks run in a container, as far as Slurm and the user say it.
pub fn is_one(spank: Spank) -> bool {
    is_configured(spank) || spank.variable(c"SLURM_CONTAINER").is_some_and(|bundle| !bundle.is_empty())
}

/// Returns true if Slurm has made the configuration of a container already, and works in its folder.
fn is_configured(spank: Spank) -> bool {
    spank.arguments().get(2).is_some_and(|word| word.as_c_str() == IN_PLACE)
}

/// The word by which `radrm-run` knows that the tasks run in a container, and where their command line is.
pub fn word(spank: Spank, runtime: Runtime) -> Option<String> {
    if runtime == Runtime::Absent || !is_one(spank) {
        return None;
    }
    let folder = is_configured(spank).then(|| std::env::current_dir().ok()).flatten();
    let folder = folder.as_deref().and_then(Path::to_str);
    Some(folder.map_or_else(|| "--in-container".to_owned(), |folder| format!("--in-container={folder}")))
}

/// The directory of the job. Where Slurm works in the folder of a container, which it removes after the step, that in
/// which the user submitted the job.
pub fn directory(spank: Spank) -> Option<PathBuf> {
    let submitted =
        || Some(PathBuf::from(std::ffi::OsString::from_vec(spank.variable(c"SLURM_SUBMIT_DIR")?)));
    let submitted =
        if is_configured(spank) { submitted().filter(|folder| folder.is_absolute()) } else { None };
    submitted.or_else(|| std::env::current_dir().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_applies_is_known_by_its_words() {
        let applied = |has_job_environment| Runtime::Applied { has_job_environment };
        for (text, expected) in [
            ("", Runtime::Bare),
            ("RunTimeRun=\"runc run --bundle %b x\"\n", Runtime::Bare),
            ("RunTimeRun=\"radrm cdi apply %b -- runc run --bundle %b x\"\n", applied(false)),
            ("runtimerun = /usr/bin/radrm cdi apply %b -- runc run\n", applied(false)),
            ("RunTimeCreate=\"radrm cdi \\\n apply %b -- runc create\"\n", applied(false)),
            ("CreateEnvFile=null\nRunTimeRun=radrm cdi apply %b -- runc run\n", applied(true)),
            ("CreateEnvFile=False\nRunTimeRun=radrm cdi apply %b -- runc run\n", applied(false)),
            ("#RunTimeRun=radrm cdi apply %b -- runc run\nRunTimeRun=runc run\n", Runtime::Bare),
            ("RunTimeQuery=radrm cdi apply %b\nRunTimeRun=runc run\n", Runtime::Bare),
            ("RunTimeRun=runc run radrm cdi apply\n", Runtime::Bare),
            ("RunTimeRun=notradrm cdi apply %b -- runc run\n", Runtime::Bare),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn where_a_container_can_be_hidden_no_limited_task_starts_without_apply() {
        let (old, new, newer) = (0x16_0508, UNSTATED_SINCE, 0x18_0b05);
        let applied = Runtime::Applied { has_job_environment: false };
        for version in [old, new, newer] {
            assert_eq!(Runtime::Bare.refusal(true, version), Some(NOT_APPLIED));
            for runtime in [Runtime::Absent, applied] {
                assert_eq!((runtime.refusal(true, version), runtime.refusal(false, version)), (None, None));
            }
        }
        assert_eq!(
            Runtime::Bare.refusal(false, old),
            None,
            "the step's command line says that there is none"
        );
        assert_eq!(Runtime::Bare.refusal(false, new), Some(NOT_STATED));
        assert_eq!(Runtime::Bare.refusal(false, newer), Some(NOT_STATED));
    }

    #[test]
    fn only_a_limit_keeps_a_task_from_starting() {
        let variables = [(c"RADRM_SEGMENT".to_owned(), c"/a\nb".to_owned())];
        let applied = Runtime::Applied { has_job_environment: false };
        assert!(applied.hand_over(&variables, true).is_err());
        assert!(applied.hand_over(&variables, false).unwrap().is_none());
        assert!(Runtime::Absent.hand_over(&variables, true).unwrap().is_none());
        let text = applied.hand_over(&[], true).unwrap().unwrap().text;
        assert_eq!(text.as_c_str(), c"limited");
        assert_eq!(VARIABLE.to_str(), Ok(CONTAINER_VARIABLE));
    }
}
