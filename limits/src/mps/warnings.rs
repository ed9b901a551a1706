//! Warnings of limits that MPS would drop without a word.

use std::path::Path;

use super::control::{Control, DEFAULT_PIPE, PIPE_VARIABLE, Silence, has_bound_daemon, has_living_daemon};
use super::{fence, visible};
use crate::program::environment::Environment;
use crate::resolve::Gpus;

/// The share of a GPU's SMs that a client may use, in percent.
pub const SHARE_VARIABLE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// A variable's text, if it is set and not empty.
pub fn text<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment.get(name).and_then(|value| std::str::from_utf8(value).ok()).filter(|text| !text.is_empty())
}

/// Sentences about limits of MPS in a program's environment that have no effect, or not the one
/// that they seem to have. `limited`: the job has a quota.
#[must_use]
pub fn about(environment: &Environment, limited: bool, gpus: &Gpus<'_>) -> Vec<String> {
    let limit = text(environment, fence::VARIABLE);
    let set: Vec<&str> = [fence::VARIABLE, SHARE_VARIABLE, PIPE_VARIABLE]
        .into_iter()
        .filter(|name| text(environment, name).is_some())
        .collect();
    let Some(first) = set.first() else { return Vec::new() };
    let pipe = Path::new(text(environment, PIPE_VARIABLE).unwrap_or(DEFAULT_PIPE));
    if !answers(pipe) {
        return vec![format!(
            "{first} is set, but no MPS control daemon answers in {}: the program runs without MPS and without its limits",
            pipe.display()
        )];
    }
    let Some(limit) = limit else { return Vec::new() };
    let mut warnings: Vec<String> = wrong_entry(environment, limit, gpus).into_iter().collect();
    warnings.push(if limited {
        format!("{}={limit} holds for each process; the limit of the job holds for all of them together", fence::VARIABLE)
    } else {
        format!(
            "{}={limit} holds for each process and shows as free memory only: programs that take a share of the total see the whole GPU (--mem-limit shows them the limit)",
            fence::VARIABLE
        )
    });
    warnings
}

/// An entry for which MPS drops the whole list.
#[must_use]
pub fn wrong_entry(environment: &Environment, limit: &str, gpus: &Gpus<'_>) -> Option<String> {
    let name = fence::VARIABLE;
    let devices = match fence::devices(limit) {
        Ok(devices) => devices,
        Err(part) => {
            return Some(format!("MPS does not understand `{part}` in {name} and drops the whole list"));
        }
    };
    let inventory = gpus().ok()?;
    let seen = visible::seen(&inventory, environment)?;
    let device = fence::unseen(&devices, &seen)?;
    Some(format!("{name} names GPU {device}, which the program does not see: MPS drops the whole list"))
}

/// Returns true if a control daemon answers in a pipe directory.
#[must_use]
pub fn answers(pipe: &Path) -> bool {
    match Control::meeting_in(pipe) {
        Ok(_) => true,
        // The daemon of driver 535 writes no file of its process id, later ones do.
        Err(Silence::NoProgram | Silence::Failed(_)) => has_living_daemon(pipe) || has_bound_daemon(pipe),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_without_process_id_file_is_found_by_its_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let control = Control::new(folder.path(), None).and_then(|control| control.is_alive());
        if !matches!(control, Err(Silence::NoProgram | Silence::Failed(_))) {
            return; // the real program is installed and answers itself
        }
        assert!(!answers(folder.path()));
        let _socket =
            std::os::unix::net::UnixListener::bind(folder.path().join("control")).expect("a socket");
        assert!(answers(folder.path()));
    }
}
