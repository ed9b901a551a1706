//! One job's use of MPS: joined or started before the program, ended with the last job.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use radrm_base::reason;
use rustix::fs::{FlockOperation, flock};

use super::control::{Control, PIPE_VARIABLE, path_fits};
use super::namespace::{self, Limits, Namespace};
use super::protocol::Protocol;
use super::warnings::{SHARE_VARIABLE, text, wrong_entry};
use super::{fence, partition, visible};
use crate::LimitError;
use crate::config::{Mps, Percentage};
use crate::program::environment::Environment;
use crate::resolve::Gpus;
use radrm_os::nvml::Gpu;

/// Longer than a daemon takes to start or to end.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Time for a daemon to end that is started again by another protocol.
const QUIT_TIMEOUT: Duration = Duration::from_secs(2);

/// MPS as this job uses it.
#[derive(Debug)]
pub struct Service {
    control: Control,
    ours: Option<Locks>,
    /// The job's namespace, under protocol 3.
    namespace: Option<Namespace>,
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
    /// Newest protocol to use; `None`: the newest that there is.
    pub protocol: Option<Protocol>,
    /// SM partitions may be made under protocol 3: one of this share for the job, or of what others left.
    pub partition: Option<Option<Percentage>>,
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
        let (service, pipe) = match foreign {
            Some((pipe, who)) => (Self::join(&pipe, &who)?, pipe),
            None => {
                let service = Self::start(wanted, visible::instance(environment), gpus)?;
                let pipe = service.control.pipe().to_owned();
                (service, pipe)
            }
        };
        environment.set(PIPE_VARIABLE, pipe.as_os_str().as_encoded_bytes());
        if let Some(Percentage(percent)) = wanted.share() {
            environment.set(SHARE_VARIABLE, percent.to_string().as_bytes());
        }
        Ok(service)
    }

    /// [`Service::begin`] with [`Service::fence`] and the job's namespace; gives remarks on what of these cannot be had.
    ///
    /// # Errors
    /// One sentence; no daemon is left behind.
    pub fn begin_fenced(
        wanted: &Wanted<'_>,
        environment: &mut Environment,
        gpus: &Gpus<'_>,
        limit_of: &dyn Fn(&Gpu) -> u64,
    ) -> Result<(Self, Vec<String>), LimitError> {
        let mut service = Self::begin(wanted, environment, gpus)?;
        match service.fence(environment, gpus, limit_of) {
            Ok(remark) => {
                let more = service.enter_namespace(wanted, environment, gpus, limit_of);
                Ok((service, remark.into_iter().chain(more).collect()))
            }
            Err(error) => {
                // What it says is less important than why it is ended.
                let _ = service.end(false);
                Err(error)
            }
        }
    }

    fn join(pipe: &Path, who: &str) -> Result<Self, LimitError> {
        let control = Control::meeting_in(pipe).map_err(|silence| LimitError::NoMpsDaemon {
            who: who.to_owned(),
            pipe: pipe.to_owned(),
            why: silence.to_string(),
        })?;
        Ok(Self { control, ours: None, namespace: None })
    }

    fn start(wanted: &Wanted<'_>, instance: Option<&str>, gpus: &Gpus<'_>) -> Result<Self, LimitError> {
        let directory = wanted.directory;
        let pipe = directory.join(pipe_name(instance));
        let log = pipe.join("log");
        let start = || {
            if !path_fits(&pipe) {
                return Err(LimitError::LongPath(pipe.clone()));
            }
            let control = Control::new(&pipe, Some(&log))?.of_instance(instance.map(str::to_owned));
            let offered = match wanted.protocol {
                Some(Protocol::V2) => Protocol::V2,
                _ => control.offers()?,
            };
            for directory in [directory, &pipe, &log] {
                private_directory(directory)?;
            }
            let locks = Locks::open(&pipe)?;
            locks.wait(&locks.users, FlockOperation::NonBlockingLockShared)?;
            locks.wait(&locks.change, FlockOperation::NonBlockingLockExclusive)?;
            // One that runs keeps the protocol that it was started with.
            let control = match control.running(offered)? {
                Some(control) => control,
                None => started(control, offered, &log, wanted, gpus)?,
            };
            locks.release_change();
            Ok(Self { control, ours: Some(locks), namespace: None })
        };
        start().map_err(|error| LimitError::MpsNotStarted(Box::new(error)))
    }

    /// The daemon.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Gives the job a namespace of its own, and an SM partition if that is wanted. Returns remarks on what it does not have: its
    /// variables and the quota hold without.
    fn enter_namespace(
        &mut self,
        wanted: &Wanted<'_>,
        environment: &mut Environment,
        gpus: &Gpus<'_>,
        limit_of: &dyn Fn(&Gpu) -> u64,
    ) -> Vec<String> {
        if self.ours.is_none() || self.control.protocol() != Protocol::V3 {
            let share = share_instead(
                wanted,
                environment,
                "this MPS daemon is not one of protocol 3 of the user's own",
            );
            return share.into_iter().map(|(_, remark)| remark).collect();
        }
        let inventory = gpus().ok();
        let seen = inventory
            .as_ref()
            .and_then(|inventory| visible::seen(inventory, environment))
            .unwrap_or_default();
        let percent = wanted.share().map(|share| share.0);
        let limits =
            Limits { memory_mib: fence::largest(seen.iter().map(|gpu| (*gpu, limit_of(gpu)))), percent };
        let mut remarks = Vec::new();
        match Namespace::make(&self.control, rustix::process::getuid().as_raw(), limits) {
            Ok(mut namespace) => {
                environment.set(PIPE_VARIABLE, namespace.pipe().as_os_str().as_encoded_bytes());
                let divided = match (wanted.partition, &seen[..]) {
                    (None, _) => Ok(None),
                    (Some(share), [gpu]) => {
                        namespace.divide(&self.control, &gpu.uuid, share.map(|share| share.0))
                    }
                    (Some(_), _) => Err("the job has several GPUs".to_owned()),
                };
                match divided {
                    Ok(Some(value)) => environment.set(partition::VARIABLE, value.as_bytes()),
                    Ok(None) => {}
                    Err(why) => match share_instead(wanted, environment, &why) {
                        Some((percent, remark)) => {
                            remarks.push(remark);
                            let share = Limits { percent: Some(percent), ..Limits::default() };
                            remarks.extend(namespace.limit(&self.control, share).err());
                        }
                        None => remarks.push(format!("no SM partition: {why}")),
                    },
                }
                self.namespace = Some(namespace);
            }
            Err(why) => {
                let share = share_instead(wanted, environment, &why);
                remarks.push(share.map_or(why, |(_, remark)| remark));
            }
        }
        remarks
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
        if !running && let Some(namespace) = &self.namespace {
            namespace.delete(&self.control);
        }
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

/// Starts the control daemon; by protocol 2 where it does not do by protocol 3 what is asked of it.
fn started(
    control: Control,
    offered: Protocol,
    log: &Path,
    wanted: &Wanted<'_>,
    gpus: &Gpus<'_>,
) -> Result<Control, LimitError> {
    let start = |control: Control| {
        control.start()?;
        let give_up = Instant::now() + START_TIMEOUT;
        while !control.is_alive()? {
            if Instant::now() >= give_up {
                return Err(LimitError::MpsMute(log.to_owned()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        fence_all(&control, wanted.of_user, gpus)?;
        Ok(control)
    };
    let newest = control.clone().by(offered);
    match start(newest.clone()) {
        Err(_) if offered == Protocol::V3 => {
            let _ = newest.quit();
            let give_up = Instant::now() + QUIT_TIMEOUT;
            while newest.is_alive().unwrap_or(false) && Instant::now() < give_up {
                thread::sleep(Duration::from_millis(20));
            }
            start(control.by(Protocol::V2))
        }
        result => result,
    }
}

/// Sets the daemon's default behind the user's limit, before its server starts: it also holds for
/// clients that have dropped the variable for one job. What the daemon does not take, the quota holds
/// without. Under protocol 3 that is the user's server, which has one limit for all GPUs: the largest.
fn fence_all(control: &Control, of_user: &dyn Fn(&Gpu) -> u64, gpus: &Gpus<'_>) -> Result<(), LimitError> {
    let inventory = gpus().ok();
    let all = || inventory.iter().flat_map(|inventory| inventory.usable());
    if control.protocol() == Protocol::V3 {
        let largest = fence::largest(all().map(|gpu| (gpu, of_user(gpu))));
        return Ok(namespace::make_server(control, rustix::process::getuid().as_raw(), largest)?);
    }
    for gpu in all() {
        if let Some(limit) = fence::limit(gpu, of_user(gpu)) {
            let _ = control.ask(&format!("set_default_device_pinned_mem_limit {} {limit}", gpu.uuid));
        }
    }
    Ok(())
}

/// Share in place of an SM partition that cannot be had, set for the program: the most of the SMs that each process uses, which
/// are not its own. Returns it with a remark.
fn share_instead(wanted: &Wanted<'_>, environment: &mut Environment, why: &str) -> Option<(u8, String)> {
    let Percentage(percent) = wanted.partition.flatten()?;
    environment.set(SHARE_VARIABLE, percent.to_string().as_bytes());
    let remark = format!(
        "no SM partition: {why}; each process uses at most {percent} % of the SMs, and other jobs may use them, too"
    );
    Some((percent, remark))
}

/// Name of a user's pipe directory: one for whole GPUs, and one for each MIG instance, whose daemon serves nothing else. Part
/// of the UUID, so that the socket's path stays short.
fn pipe_name(instance: Option<&str>) -> String {
    let Some(instance) = instance else { return "mps".to_owned() };
    let digits: Vec<char> = instance.chars().skip(4).filter(char::is_ascii_alphanumeric).collect();
    let (first, last) = (digits.iter().take(8), digits.iter().skip(8.max(digits.len().saturating_sub(4))));
    format!("mps-{}", first.chain(last).collect::<String>())
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
    fn each_mig_instance_has_a_pipe_directory_of_its_own() {
        assert_eq!(pipe_name(None), "mps");
        let one = pipe_name(Some("MIG-8f3a0000-1111-2222-3333-4444555566ff"));
        assert_eq!(one, "mps-8f3a000066ff");
        assert_ne!(one, pipe_name(Some("MIG-8f3a0000-1111-2222-3333-444455556600")));
        assert_ne!(one, pipe_name(Some("MIG-8f3a0001-1111-2222-3333-4444555566ff")));
        let old = |instance: &str| {
            pipe_name(Some(&format!("MIG-GPU-8f3a0000-1111-2222-3333-4444555566ff/{instance}")))
        };
        assert!(old("3/0") != old("4/0") && !old("3/0").contains('/'));
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
