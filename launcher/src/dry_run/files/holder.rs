//! The process that makes a namespace for the program, and ends when this process holds it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use radrm_base::reason;

use super::layer::{self, Built, STORE};

/// Largest report of the process, bytes.
const MAX_REPORT: u64 = 64 << 10;

/// First line of the process's report: whether the namespace belongs to a user namespace of its own.
const OF_A_USER: &str = "of a user";
const OF_THIS: &str = "of this";

/// A namespace.
pub(super) struct Made {
    /// `None`: it belongs to the user namespace of this process.
    pub user: Option<OwnedFd>,
    pub mounts: OwnedFd,
    /// The folders that the layers show.
    pub roots: Vec<OwnedFd>,
    /// The folder of the layers, as the namespace's maker sees it.
    pub store: OwnedFd,
    /// Notes for the user.
    pub remarks: Vec<String>,
}

/// Makes a namespace whose file systems have layers in `folder`, but for the `real` paths. Why it cannot be made, as a
/// clause.
pub(super) fn make(folder: &Path, real: &[PathBuf]) -> Result<Made, String> {
    let named = |error: io::Error| format!("namespaces: {}", reason(&error));
    let (report, report_writer) = pipe().map_err(named)?;
    let (go_reader, go) = pipe().map_err(named)?;
    // SAFETY: this process has one thread, so the child may go on.
    match unsafe { libc::fork() } {
        0 => {
            drop((report, go));
            hold(folder, real, report_writer, go_reader)
        }
        pid if pid < 0 => Err(named(io::Error::last_os_error())),
        pid => {
            drop((report_writer, go_reader));
            let mut text = String::new();
            let read = Read::take(&report, MAX_REPORT).read_to_string(&mut text).map_err(named);
            let made = read.and_then(|_| take(pid, folder, &text));
            drop(go);
            let mut status = 0;
            // SAFETY: our own child, which ends with the pipe.
            while unsafe { libc::waitpid(pid, &mut status, 0) } == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            made
        }
    }
}

/// Holds what the child made: its report is an error, or whether there is a user namespace, the descriptors of the layers'
/// roots, and remarks.
fn take(pid: libc::pid_t, folder: &Path, text: &str) -> Result<Made, String> {
    let mut lines = text.lines();
    let has_user = match lines.next() {
        Some(OF_A_USER) => true,
        Some(OF_THIS) => false,
        Some(why) => return Err(why.to_owned()),
        None => return Err("namespaces: the process that makes them ended".to_owned()),
    };
    let process = PathBuf::from(format!("/proc/{pid}"));
    let named = |error: io::Error| format!("namespaces: {}", reason(&error));
    let open = |path: PathBuf| File::open(path).map(OwnedFd::from).map_err(named);
    let roots = lines.next().unwrap_or_default().split_whitespace().map(|number| {
        let path = process.join("fd").join(number);
        OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).map(OwnedFd::from)
    });
    let roots = roots.collect::<io::Result<_>>().map_err(named)?;
    let store = folder.join(STORE);
    let store = process.join("root").join(store.strip_prefix("/").unwrap_or(&store));
    let store = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(store).map_err(named)?;
    Ok(Made {
        user: has_user.then(|| open(process.join("ns/user"))).transpose()?,
        mounts: open(process.join("ns/mnt"))?,
        roots,
        store: store.into(),
        remarks: lines.map(str::to_owned).collect(),
    })
}

/// The child's life.
fn hold(folder: &Path, real: &[PathBuf], mut report: File, mut go: File) -> ! {
    let built = enter().and_then(|word| Ok((word, layer::build(folder, real, word == OF_A_USER)?)));
    let text = match &built {
        Ok((word, Built { remarks, roots })) => {
            let roots: Vec<String> = roots.iter().map(|root| root.as_raw_fd().to_string()).collect();
            let lines = [(*word).to_owned(), roots.join(" ")].into_iter().chain(remarks.iter().cloned());
            lines.collect::<Vec<_>>().join("\n")
        }
        Err(why) => why.clone(),
    };
    let _ = report.write_all(text.as_bytes());
    drop(report);
    let _ = go.read(&mut [0]);
    // SAFETY: ends this process without the exit handlers of the process that it is a copy of.
    unsafe { libc::_exit(0) }
}

/// Enters a mount namespace, of this user namespace if the user may make one, else of a new one.
fn enter() -> Result<&'static str, String> {
    // SAFETY: a system call that changes this process, which has one thread.
    let unshare = |flags| match unsafe { libc::unshare(flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    if unshare(libc::CLONE_NEWNS).is_ok() {
        return Ok(OF_THIS);
    }
    // SAFETY: these always work.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)
        .map_err(|error| format!("user namespaces: {}", reason(&error)))?;
    // The same user and group as outside. Other groups keep their rights without a name.
    let maps = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ];
    for (file, text) in maps {
        fs::write(file, text).map_err(|error| format!("user namespaces: {file}: {}", reason(&error)))?;
    }
    Ok(OF_A_USER)
}

fn pipe() -> io::Result<(File, File)> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: two fresh descriptors that nothing else owns.
    Ok(unsafe { (File::from_raw_fd(fds[0]), File::from_raw_fd(fds[1])) })
}
