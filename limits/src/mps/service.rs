//! One job's use of MPS: joined or started before the program, ended with the last job.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use radrm_base::reason;
use rustix::fs::{FlockOperation, flock};

use super::control::{Control, PIPE_VARIABLE, path_fits};
use super::warnings::{SHARE_VARIABLE, text, wrong_entry};
use super::{fence, visible};
use crate::LimitError;
use crate::config::{Mps, Percentage};
use crate::program::environment::Environment;
use crate::resolve::Gpus;
use radrm_os::nvml::Gpu;

/// Longer than a daemon takes to start or to end.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// MPS as this job uses it.
#[derive(Debug)]
pub struct Service {
    control: Control,
    ours: Option<Locks>,
}

/// Locks of the jobs that use the user's daemon. The kernel gives a lock back when its holder dies, however it
/// dies.
#[derive(Debug)]
struct Locks {
    /// Shared by the jobs that use the daemon.
    users: File,
    /// Held while the daemon is being started or ended.
    change: File,
}

/// Request for MPS.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// The command line: whether, and with what share.
    pub asked: Option<Option<Percentage>>,
    /// A share that was asked for without naming MPS.
    pub share: Option<Percentage>,
    /// Share that was measured to be enough: where nothing else states a share.
    pub measured: Option<Percentage>,
    /// The configuration.
    pub config: &'a Mps,
    /// The user's private directory.
    pub directory: &'a Path,
    /// Memory that all jobs of the user may take together on a GPU, bytes.
    pub of_user: &'a dyn Fn(&Gpu) -> u64,
}

/// Returns true if the command line or the configuration wants MPS.
#[must_use]
pub fn wanted(asked: Option<Option<Percentage>>, config: &Mps) -> bool {
    asked.is_some() || config.enable == Some(true)
}

impl Wanted<'_> {
    /// Returns true if MPS is wanted at all.
    #[must_use]
    pub fn any(&self) -> bool {
        wanted(self.asked, self.config)
    }

    fn share(&self) -> Option<Percentage> {
        self.asked.flatten().or(self.share).or(self.config.active_thread_percentage).or(self.measured)
    }
}

impl Service {
    /// Joins the daemon, starting it if need be, and names it to the program.
    ///
    /// A daemon that another program runs (named by the environment or by the configuration) has to be
    /// there: MPS itself would go on without.
    fn begin(
        wanted: &Wanted<'_>,
        environment: &mut Environment,
        gpus: &Gpus<'_>,
    ) -> Result<Self, LimitError> {
        let foreign = text(environment, PIPE_VARIABLE).map(PathBuf::from);
        let foreign = foreign.map(|pipe| (pipe, PIPE_VARIABLE.to_owned())).or_else(|| {
            let pipe = wanted.config.pipe_directory.clone()?;
            Some((pipe, "the configuration".to_owned()))
        });
        let service = match foreign {
            Some((pipe, who)) => Self::join(&pipe, &who)?,
            None => Self::start(wanted, gpus)?,
        };
        environment.set(PIPE_VARIABLE, service.control.pipe().as_os_str().as_encoded_bytes());
        if let Some(Percentage(percent)) = wanted.share() {
            environment.set(SHARE_VARIABLE, percent.to_string().as_bytes());
        }
        Ok(service)
    }

    /// [`Service::begin`] with [`Service::fence`]; gives a remark too if the fence cannot be set.
    ///
    /// # Errors
    /// One sentence; no daemon is left behind.
    pub fn begin_fenced(
        wanted: &Wanted<'_>,
        environment: &mut Environment,
        gpus: &Gpus<'_>,
        limit_of: &dyn Fn(&Gpu) -> u64,
    ) -> Result<(Self, Option<String>), LimitError> {
        let service = Self::begin(wanted, environment, gpus)?;
        match service.fence(environment, gpus, limit_of) {
            Ok(remark) => Ok((service, remark)),
            Err(error) => {
                // What it says is less important than why it is ended.
                let _ = service.end(false);
                Err(error)
            }
        }
    }

    fn join(pipe: &Path, who: &str) -> Result<Self, LimitError> {
        let answers = || {
            let control = Control::new(pipe, None)?;
            control.ask("get_server_list").map(|_| control)
        };
        let control = answers().map_err(|silence| LimitError::NoMpsDaemon {
            who: who.to_owned(),
            pipe: pipe.to_owned(),
            why: silence.to_string(),
        })?;
        Ok(Self { control, ours: None })
    }

    fn start(wanted: &Wanted<'_>, gpus: &Gpus<'_>) -> Result<Self, LimitError> {
        let directory = wanted.directory;
        let pipe = directory.join("mps");
        let log = pipe.join("log");
        let start = || {
            if !path_fits(&pipe) {
                return Err(LimitError::LongPath(pipe.clone()));
            }
            let control = Control::new(&pipe, Some(&log))?;
            for directory in [directory, &pipe, &log] {
                private_directory(directory)?;
            }
            let locks = Locks::open(&pipe)?;
            locks.wait(&locks.users, FlockOperation::NonBlockingLockShared)?;
            locks.wait(&locks.change, FlockOperation::NonBlockingLockExclusive)?;
            if !control.is_alive()? {
                control.start()?;
                let give_up = Instant::now() + START_TIMEOUT;
                while !control.is_alive()? {
                    if Instant::now() >= give_up {
                        return Err(LimitError::MpsMute(log.clone()));
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                fence_all(&control, wanted.of_user, gpus);
            }
            locks.release_change();
            Ok(Self { control, ours: Some(locks) })
        };
        start().map_err(|error| LimitError::MpsNotStarted(Box::new(error)))
    }

    /// The daemon.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Sets MPS's own limit behind these limits in bytes, for GPUs that the program will see. A value
    /// that was there before is kept, if it is one that MPS will take.
    ///
    /// # Errors
    /// One sentence: MPS would drop the value that was there.
    fn fence(
        &self,
        environment: &mut Environment,
        gpus: &Gpus<'_>,
        limit_of: &dyn Fn(&Gpu) -> u64,
    ) -> Result<Option<String>, LimitError> {
        if let Some(given) = text(environment, fence::VARIABLE) {
            return match wrong_entry(environment, given, gpus) {
                Some(sentence) => Err(LimitError::MpsDropsList(sentence)),
                None => Ok(None),
            };
        }
        let Ok(inventory) = gpus() else {
            return Ok(Some(
                "NVML does not work, so MPS's own limit cannot be set behind the quota".to_owned(),
            ));
        };
        let visible = environment.get(visible::VARIABLE).and_then(|value| std::str::from_utf8(value).ok());
        let Some(seen) = visible::gpus(&inventory, visible, text(environment, "CUDA_DEVICE_ORDER")) else {
            return Ok(Some(format!(
                "MPS's own limit is not set behind the quota: which GPUs {} means is unknown without CUDA_DEVICE_ORDER=PCI_BUS_ID",
                visible::VARIABLE
            )));
        };
        if let Some(value) = fence::value(seen.iter().map(|gpu| (*gpu, limit_of(gpu)))) {
            environment.set(fence::VARIABLE, value.as_bytes());
        }
        Ok(None)
    }

    /// Ends the daemon if no other job uses it. `running`: processes of the job are still running.
    #[must_use]
    pub fn end(self, running: bool) -> Option<String> {
        let locks = self.ours?;
        if running {
            return Some(
                "MPS goes on for the processes that still run; the next job that uses it ends it".to_owned(),
            );
        }
        locks.wait(&locks.change, FlockOperation::NonBlockingLockExclusive).ok()?;
        if flock(&locks.users, FlockOperation::NonBlockingLockExclusive).is_err() {
            return None;
        }
        // Programs of the user that were started without radrm-run may use it too.
        if self.control.clients().is_ok_and(|clients| !clients.is_empty()) {
            return Some("MPS goes on: it has clients that are not of this job".to_owned());
        }
        if let Err(silence) = self.control.quit() {
            return Some(format!("MPS could not be ended: {silence}"));
        }
        // The locks are held until it is gone: the next launcher must not take it for a living one.
        let give_up = Instant::now() + START_TIMEOUT;
        while Instant::now() < give_up {
            if !matches!(self.control.is_alive(), Ok(true)) {
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
        Some("MPS got the command to end and still answers".to_owned())
    }
}

/// Sets the daemon's default behind the user's limit, before its server starts: it also holds for
/// clients that have dropped the variable for one job. What the daemon does not take, the quota holds
/// without.
fn fence_all(control: &Control, of_user: &dyn Fn(&Gpu) -> u64, gpus: &Gpus<'_>) {
    let Ok(inventory) = gpus() else { return };
    for gpu in inventory.usable() {
        if let Some(limit) = fence::limit(gpu, of_user(gpu)) {
            let _ = control.ask(&format!("set_default_device_pinned_mem_limit {} {limit}", gpu.uuid));
        }
    }
}

impl Locks {
    fn open(directory: &Path) -> Result<Self, LimitError> {
        let open = |name: &str| {
            let path = directory.join(name);
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options
                .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
                .open(&path)
                .map_err(|error| LimitError::file(&path, &error))
        };
        Ok(Self { users: open("users.lock")?, change: open("change.lock")? })
    }

    /// Takes a lock, without waiting for ever for a holder that hangs.
    fn wait(&self, file: &File, how: FlockOperation) -> Result<(), LimitError> {
        let give_up = Instant::now() + START_TIMEOUT;
        while let Err(error) = flock(file, how) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(LimitError::NoLock(reason(&std::io::Error::from(error))));
            }
            if Instant::now() >= give_up {
                return Err(LimitError::LockHeld);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn release_change(&self) {
        // Cannot fail for a lock that is held.
        let _ = flock(&self.change, FlockOperation::Unlock);
    }
}

/// Makes a directory for this user only, or checks that it is one.
fn private_directory(directory: &Path) -> Result<(), LimitError> {
    let failed = |error: std::io::Error| LimitError::file(directory, &error);
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(directory).map_err(failed)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return Err(LimitError::NotPrivate(directory.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        private_directory(&own).unwrap();
        private_directory(&own).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(private_directory(&own).unwrap_err().to_string().contains("open to others"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(private_directory(&link).is_err());
    }

    #[test]
    fn jobs_share_a_daemon_and_only_the_last_one_can_end_it() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (Locks::open(dir.path()).unwrap(), Locks::open(dir.path()).unwrap());
        for locks in [&one, &two] {
            locks.wait(&locks.users, FlockOperation::NonBlockingLockShared).unwrap();
        }
        assert!(flock(&one.users, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(two);
        assert!(flock(&one.users, FlockOperation::NonBlockingLockExclusive).is_ok());
    }
}
