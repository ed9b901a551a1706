//! A job's namespace under protocol 3: a group of clients with limits of its own, chosen by the socket that they connect to.
//!
//! A user has one server in a control daemon of the user's own, so no two users share a server; each job has a namespace below
//! it. The namespace's share of the SMs and its limit on memory hold for clients that lost these variables, too.

use std::path::{Path, PathBuf};

use super::control::{Control, Silence, path_fits};
use super::partition;

/// Limits of a job, for its namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Memory of each client on any GPU, MiB.
    pub memory_mib: Option<u64>,
    /// Share of the SMs, per cent.
    pub percent: Option<u8>,
}

/// A namespace. Its clients meet the server in a directory of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    server: String,
    name: String,
    pipe: PathBuf,
    /// GPU of the SM partition of the same name, by UUID.
    partition: Option<String>,
}

/// Name of a user's server. Names are lowercase letters, digits and underscores.
#[must_use]
pub fn server_of(uid: u32) -> String {
    format!("uid_{uid}")
}

/// Name of the namespace of a launcher.
fn name_of(launcher: u32) -> String {
    format!("run_{launcher}")
}

/// Launcher of a namespace.
fn launcher_of(name: &str) -> Option<u32> {
    name.strip_prefix("run_")?.parse().ok()
}

/// Has the user's server made, with a limit on the memory of each of its clients.
///
/// # Errors
/// [`Silence`]: it is not there.
pub fn make_server(control: &Control, uid: u32, memory_mib: Option<u64>) -> Result<(), Silence> {
    let (server, owner) = (server_of(uid), format!("--uid={uid}"));
    let made = control.command(&["server", "create", &server, &owner]);
    // What the daemon answers to `create` is its own affair: the server is there, or not.
    if control.field(&["server", "get", &server, "pipe-directory"]).is_none() {
        return Err(made.err().unwrap_or_else(|| Silence::NoDaemon(format!("no server {server}"))));
    }
    if let Some(mib) = memory_mib {
        let _ = control.command(&["server", "set", &server, &format!("--pinned-memory-limit={mib}M")]);
    }
    Ok(())
}

impl Namespace {
    /// Makes the namespace of this process, below the server of its user.
    ///
    /// # Errors
    /// A sentence: there is no such namespace, and clients use the server without one.
    pub fn make(control: &Control, uid: u32, limits: Limits) -> Result<Self, String> {
        let (server, name) = (server_of(uid), name_of(std::process::id()));
        sweep(control, &server);
        let of = format!("--server={server}");
        let made = control.command(&["namespace", "create", &name, &of]);
        let pipe = control.field(&["namespace", "get", &name, &server, "pipe-directory"]).map(PathBuf::from);
        let Some(pipe) = pipe.filter(|pipe| is_below(pipe, control.pipe())) else {
            let why = made.err().map_or_else(|| "it is not there".to_owned(), |silence| silence.to_string());
            return Err(format!("MPS has no namespace for this job: {why}"));
        };
        let namespace = Self { server, name, pipe, partition: None };
        if !path_fits(&namespace.pipe) {
            namespace.delete(control);
            return Err(format!(
                "MPS has no namespace for this job: the path {} is too long",
                namespace.pipe.display()
            ));
        }
        match namespace.limit(control, limits) {
            Ok(()) => Ok(namespace),
            Err(why) => {
                namespace.delete(control);
                Err(why)
            }
        }
    }

    /// Sets limits, and reads them back.
    ///
    /// # Errors
    /// A sentence: MPS does not take them.
    pub fn limit(&self, control: &Control, limits: Limits) -> Result<(), String> {
        let memory = limits.memory_mib.map(|mib| format!("--pinned-memory-limit={mib}M"));
        let share = limits.percent.map(|percent| format!("--active-thread-percentage={percent}"));
        let of = format!("--server={}", self.server);
        let options: Vec<&str> = memory.iter().chain(&share).map(String::as_str).collect();
        if options.is_empty() {
            return Ok(());
        }
        let words = [&["namespace", "set", &self.name, &of][..], &options].concat();
        control
            .command(&words)
            .map_err(|silence| format!("MPS does not take this job's limits: {silence}"))?;
        let is_set = |field: &str| {
            let found = control.field(&["namespace", "get", &self.name, &self.server, field]);
            found.is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()))
        };
        let fields =
            [("pinned-memory-limit", memory.is_some()), ("active-thread-percentage", share.is_some())];
        match fields.into_iter().find(|(field, asked)| *asked && !is_set(field)) {
            Some((field, _)) => Err(format!("MPS does not take this job's {field}")),
            None => Ok(()),
        }
    }

    /// Directory in which clients of the namespace meet the server.
    #[must_use]
    pub fn pipe(&self) -> &Path {
        &self.pipe
    }

    /// Has an SM partition made for the job on this GPU, of this share at most, or of what others left; gives the value of
    /// [`partition::VARIABLE`]. `None`: the GPU is not divided, and the job needs no partition.
    ///
    /// # Errors
    /// A sentence: the job has none.
    pub fn divide(
        &mut self,
        control: &Control,
        gpu: &str,
        percent: Option<u8>,
    ) -> Result<Option<String>, String> {
        let value = partition::make(control, &self.server, &self.name, gpu, percent)?;
        self.partition = value.is_some().then(|| gpu.to_owned());
        Ok(value)
    }

    /// Deletes it, with what it had of a GPU. Its clients have ended, or are to end.
    pub fn delete(&self, control: &Control) {
        let of = format!("--server={}", self.server);
        let _ = control.command(&["namespace", "delete", &self.name, &of, "--force"]);
        if let Some(gpu) = &self.partition {
            partition::delete(control, &self.server, &self.name, gpu);
        }
    }
}

/// Deletes what launchers left that were killed.
fn sweep(control: &Control, server: &str) {
    let of = format!("--server={server}");
    let rows = control.command(&["namespace", "list", &of, super::protocol::CSV]).unwrap_or_default();
    let names = rows.lines().filter_map(|row| row.split(',').next());
    for name in names.map(str::trim) {
        if launcher_of(name).is_some_and(|pid| !radrm_os::Process(pid).exists()) {
            let _ = control.command(&["namespace", "delete", name, &of]);
            partition::delete_everywhere(control, server, name);
        }
    }
}

/// Returns true if a path lies below the control daemon's own directory, and nowhere else.
fn is_below(path: &Path, pipe: &Path) -> bool {
    use std::path::Component;
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    path.strip_prefix(pipe)
        .is_ok_and(|rest| rest.components().next().is_some() && rest.components().all(is_plain))
}

impl Control {
    /// One field of a server or a namespace; `None`: there is no such thing.
    fn field(&self, words: &[&str]) -> Option<String> {
        let text = self.command(words).ok()?;
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let (only, more) = (lines.next()?, lines.next());
        (more.is_none() && !only.contains(' ')).then(|| only.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_mps_takes_and_tells_its_launcher() {
        for name in [server_of(u32::MAX), name_of(u32::MAX)] {
            let is_taken = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.len() <= 64 && name.chars().all(is_taken), "{name}");
        }
        assert_eq!(launcher_of(&name_of(7)), Some(7));
        for name in ["default", "run_", "run_x", "uid_7"] {
            assert_eq!(launcher_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_pipe_directory_elsewhere_is_no_namespace_of_the_daemon() {
        let pipe = Path::new("/run/radrm/7/mps");
        assert!(is_below(Path::new("/run/radrm/7/mps/uid_7/run_1"), pipe));
        for path in
            ["/run/radrm/7/mps", "/run/radrm/8/mps/uid_8/run_1", "/run/radrm/7/mps/../../8/mps", "uid_7"]
        {
            assert!(!is_below(Path::new(path), pipe), "{path}");
        }
    }
}
