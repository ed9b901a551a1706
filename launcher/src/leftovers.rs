//! Directories of emulated machines whose `radrm-run` could not tidy up.
//!
//! A `radrm-run` that is killed, or that ends before the last of its programs, leaves its directory
//! behind. The next one that needs such a directory takes those away that are not in use any more.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use radrm_limits::carriers::Processes;
use radrm_os::Process;

use super::dry_run::files::{make_removable, mounts};
use super::signals::own_pid;

/// Prefix of the name of an emulated machine's directory.
pub const EMULATED: &str = "radrm-emulated-";
/// The same for the stand-ins of a dry run.
pub const STAND_INS: &str = radrm_collector::STAND_INS;
/// The same for the layers for the files of a dry run.
pub const LAYER: &str = "radrm-layer-";
/// The same for reports and profiles of dry runs that another one makes.
pub const TRIALS: &str = "radrm-trial-";

const PREFIXES: [&str; 4] = [EMULATED, STAND_INS, LAYER, TRIALS];

/// The beginning of this process's own name of a kind: with the namespace in which its process id counts,
/// since containers may share the directory.
#[must_use]
pub fn prefix(kind: &str) -> String {
    format!("{kind}{}-{}-", namespace(), own_pid())
}

fn namespace() -> String {
    radrm_os::host::pid_namespace().map_or_else(String::new, |number| number.to_string())
}

/// Takes away what is left in `directory` by processes of this user and this namespace that are
/// gone, and whose programs are gone too.
pub fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let namespace = namespace();
    // SAFETY: always works.
    let user = unsafe { libc::geteuid() };
    let dead = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let owner = owner(&name, &namespace).filter(|pid| !Process(*pid).exists())?;
        let is_own = fs::symlink_metadata(&path)
            .is_ok_and(|meta| (meta.is_dir() || meta.is_file()) && meta.uid() == user);
        is_own.then_some((path, owner))
    };
    let left: Vec<(PathBuf, u32)> = entries.flatten().filter_map(|entry| dead(entry.path())).collect();
    if left.is_empty() {
        return;
    }
    let processes = Processes::now();
    for (path, owner) in left {
        if processes.use_folder(&path, owner) || is_mounted(&path, user) {
            continue;
        }
        // Another one may be at it too, or it may be protected: it stays for the next time.
        if path.is_file() {
            let _ = fs::remove_file(&path);
        } else {
            make_removable(&path);
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// A process as far as its mounts matter.
struct Seen<T> {
    /// Its real user.
    real: Option<u32>,
    /// True if it is in this process's user namespace.
    is_in_own_namespace: Option<bool>,
    /// Reads its table of mounts.
    table: T,
}

/// Returns true if a process has a file system mounted at this path or below: the layers of a dry run are in a namespace of their
/// own, whose processes need not name them.
fn is_mounted(path: &Path, user: u32) -> bool {
    let seen = |process: Process| Seen {
        real: process.users().map(|(real, _)| real),
        is_in_own_namespace: process.shares_user_namespace(),
        table: move || process.mounts(),
    };
    is_mounted_by(Process::all().map(seen), path, user)
}

/// The same, of these processes. What another user mounts in a user namespace of its own is no such layer.
fn is_mounted_by<T: FnOnce() -> io::Result<Vec<u8>>>(
    mut all: impl Iterator<Item = Seen<T>>,
    path: &Path,
    user: u32,
) -> bool {
    let has = |table: &[u8]| mounts::points(table).any(|point| point.starts_with(path));
    let is_near = |process: &Seen<T>| process.real == Some(user) || process.is_in_own_namespace == Some(true);
    all.any(|process| {
        is_near(&process)
            && match (process.table)() {
                Ok(table) => has(&table),
                // It may be there.
                Err(error) => error.kind() == io::ErrorKind::FileTooLarge,
            }
    })
}

/// The process id in the name of a directory that was made in this namespace.
fn owner(name: &str, namespace: &str) -> Option<u32> {
    let rest = PREFIXES
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))?
        .strip_prefix(namespace)?
        .strip_prefix('-')?;
    rest.split_once('-').filter(|_| !namespace.is_empty())?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};

    #[test]
    fn only_unused_directories_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let ours = prefix(EMULATED);
        let theirs = format!("{EMULATED}{}-{}-", namespace(), gone.id());
        let make = |name: String| {
            let path = place.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("machine"), "").unwrap();
            path
        };
        let (alive, left, in_use) =
            (make(format!("{ours}a")), make(format!("{theirs}a")), make(format!("{theirs}b")));
        let stand_ins = make(format!("{STAND_INS}{}-{}-a", namespace(), gone.id()));
        let elsewhere = make(format!("{EMULATED}1-{}-a", gone.id()));
        let strange = make(format!("{EMULATED}x"));
        let mut user = Command::new("sleep").arg("60").env("LD_LIBRARY_PATH", &in_use).spawn().unwrap();
        // It has an environment of its own only when it has become another program.
        let place_of = || Process(user.id()).variable("LD_LIBRARY_PATH");
        while place_of().is_none_or(|place| place != in_use.as_os_str()) {
            std::thread::yield_now();
        }
        sweep(place.path());
        let there = [&alive, &left, &stand_ins, &in_use, &elsewhere, &strange].map(|path| path.exists());
        assert_eq!(there, [true, false, false, true, true, true]);
        user.kill().unwrap();
        user.wait().unwrap();
        sweep(place.path());
        assert!(!in_use.exists(), "its last user is gone");
    }

    type Table = fn() -> io::Result<Vec<u8>>;

    #[test]
    fn mounts_of_another_user_in_a_namespace_of_its_own_keep_nothing() {
        fn mounted() -> io::Result<Vec<u8>> {
            Ok(b"36 35 0:30 / /tmp/radrm-layer-1-2-a/x rw - tmpfs none rw\n".to_vec())
        }
        fn elsewhere() -> io::Result<Vec<u8>> {
            Ok(b"36 35 0:30 / /tmp/radrm-layer-1-2-ab rw - tmpfs none rw\n".to_vec())
        }
        fn long() -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::FileTooLarge.into())
        }
        let path = Path::new("/tmp/radrm-layer-1-2-a");
        let by = |real: Option<u32>, is_in_own_namespace: Option<bool>, table: Table| {
            is_mounted_by([Seen { real, is_in_own_namespace, table }].into_iter(), path, 7)
        };
        for table in [mounted as Table, long] {
            assert!(by(Some(7), Some(false), table), "this user's, in any namespace");
            assert!(by(Some(8), Some(true), table), "another user's, as root made it");
            for (real, is_in_own_namespace) in [(Some(8), Some(false)), (Some(8), None), (None, None)] {
                assert!(!by(real, is_in_own_namespace, table), "{real:?}");
            }
        }
        assert!(!by(Some(7), Some(true), elsewhere));
    }

    const USER: u32 = 65_534;

    /// Ways in which another user's process names the folder `$path` that root left, and the user that the kernel shows it
    /// as. `$ROOTS` is `sleep` with root's rights.
    const NAMES: [(&str, u32); 4] = [
        ("PLACE=\"$path\" exec sleep 600", USER),
        ("PLACE=\"$path\" exec \"$ROOTS\" 600", 0),
        (
            "exec unshare --user --map-root-user --mount sh -c 'mount -t tmpfs \"$0\" /mnt && mount -t tmpfs none \"$0\" && \
         exec sleep 600' \"$path\"",
            USER,
        ),
        // The kernel gives its directory in /proc to root: it cannot be dumped, and its namespace has no root.
        (
            "exec unshare --user --map-current-user --keep-caps --mount sh -c 'mount -t tmpfs none \"$0\" && exec python3 -c \
         \"import ctypes, time; ctypes.CDLL(None).prctl(4, 0); time.sleep(600)\"' \"$path\"",
            0,
        ),
    ];

    /// Returns true if a process shows a path in its environment or among its mounts.
    fn shows(process: Process, path: &Path) -> bool {
        process.variable("PLACE").is_some_and(|place| place == *path)
            || process.mounts().is_ok_and(|table| mounts::points(&table).any(|point| point == path))
    }

    /// A process of another user that shows this path by a script of `NAMES`; `None` where that cannot be done.
    fn another_user((script, shown): (&str, u32), roots: &Path, path: &Path) -> Option<Child> {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={USER}"), format!("--regid={USER}")]);
        command.args(["--clear-groups", "/bin/sh", "-c"]);
        // The path is in no command line and no environment before it is read.
        command.arg(format!("read path; {script}")).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        let mut other = command.env("ROOTS", roots).current_dir("/").stdin(Stdio::piped()).spawn().ok()?;
        writeln!(other.stdin.take()?, "{}", path.display()).ok()?;
        let process = Process(other.id());
        // A file system may give no rights.
        for _ in 0..500 {
            if shows(process, path) && process.uid() == Some(shown) {
                return Some(other);
            }
            if other.try_wait().ok()?.is_some() {
                return None;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        other.kill().ok()?;
        other.wait().ok()?;
        None
    }

    #[test]
    fn no_other_user_keeps_a_directory_that_root_left() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: needs root");
        }
        let place = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        mode(place.path(), 0o755);
        let roots = place.path().join("roots");
        fs::copy("/bin/sleep", &roots).unwrap();
        mode(&roots, 0o4755);
        let mut gone = Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        for (at, (script, shown)) in NAMES.into_iter().enumerate() {
            let left = place.path().join(format!("{LAYER}{}-{}-{at}", namespace(), gone.id()));
            fs::create_dir(&left).unwrap();
            mode(&left, 0o700);
            let Some(mut other) = another_user((script, shown), &roots, &left) else {
                eprintln!("skipped: this cannot be done here: {script}");
                continue;
            };
            sweep(place.path());
            other.kill().unwrap();
            other.wait().unwrap();
            assert!(!left.exists(), "kept by {script}");
        }
    }
}
