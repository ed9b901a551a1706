//! The driver's own limits (driver 615 and newer) around all steps of a job, set by `radrm fence` on Slurm's control
//! group of the job. They hold for programs that the shim does not see. Without such a driver or group there are none,
//! and the quota holds without.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use radrm_limits::cgroup::{has_limits, own_group};

use crate::abi;
use crate::grant::Grant;
use crate::settings::{Settings, When};

/// File with the version of the kernel driver.
const VERSION: &str = "/proc/driver/nvidia/version";
/// NVML answers within a second, or hangs.
const NVML_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// With root's rights, before the first step's tasks run: raises the fence around the job.
pub fn raise(job: u32, grant: &Grant, settings: &Settings) {
    let Some(group) = group(job, settings) else { return };
    let limits = grant.memory.iter().map(|limits| format!("--limit={limits}"));
    if !run(settings, &group, ["set".to_owned()].into_iter().chain(limits)) {
        abi::info("the driver does not limit the job's control group; the shim does");
    }
}

/// With root's rights, after the last step: before Slurm removes the group.
pub fn lower(job: u32, settings: &Settings) {
    if let Some(group) = group(job, settings) {
        run(settings, &group, ["clear".to_owned()].into_iter());
    }
}

/// The job's group, if the driver can limit it.
pub fn group(job: u32, settings: &Settings) -> Option<PathBuf> {
    let is_wanted = match settings.fence {
        When::Never => false,
        When::Always => true,
        When::Possible => fs::read_to_string(VERSION).is_ok_and(|text| is_new(&text)),
    };
    if !is_wanted {
        return None;
    }
    of_job(&own_group()?, job).map(Path::to_owned)
}

/// Slurm's group of a job, `job_7`, above that of one of its steps.
fn of_job(own: &Path, job: u32) -> Option<&Path> {
    let name = format!("job_{job}");
    own.ancestors().find(|group| group.file_name().is_some_and(|found| found == name.as_str()))
}

/// Returns true if the driver of this version text limits control groups.
/// The first line of the text is such as `NVRM version: NVIDIA UNIX x86_64 Kernel Module  615.12  ...`.
fn is_new(text: &str) -> bool {
    let words = text.lines().next().unwrap_or_default().split_whitespace();
    let is_version =
        |word: &&str| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit());
    words.filter(is_version).take(1).any(has_limits)
}

/// Runs `radrm fence`, without anything that is the user's. Gives whether it did what it should.
fn run(settings: &Settings, group: &Path, words: impl Iterator<Item = String>) -> bool {
    let mut command = Command::new(settings.run.with_file_name("radrm"));
    command.arg("fence").args(words).arg(group);
    if let Some(machine) = &settings.machine {
        command.arg("--machine").arg(machine);
    }
    command.env_clear();
    if let Some(libraries) = &settings.libraries {
        command.env("RADRM_LIB_DIR", libraries);
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    let until = Instant::now() + NVML_TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK_INTERVAL),
            _ => {
                let _ = child.kill();
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_the_job_is_above_that_of_the_step() {
        let own = Path::new("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_batch/slurm");
        let expected = Path::new("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7");
        assert_eq!(of_job(own, 7), Some(expected));
        assert_eq!(of_job(own, 70), None);
        assert_eq!(of_job(Path::new("/sys/fs/cgroup/system.slice/slurmd.service"), 7), None);
    }

    #[test]
    fn drivers_with_limits_are_known_by_their_branch() {
        let line = |version: &str| {
            format!(
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue May 5 1:2:3 UTC 2026\nGCC version: 12.2.0\n"
            )
        };
        assert!(is_new(&line("615.12")) && is_new(&line("620.1.2")));
        assert!(!is_new(&line("580.65.06")) && !is_new(""));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  615.36.01  Release Build";
        assert!(is_new(open), "{open}");
    }
}
