//! A copy of all mounts in which each file system that holds files of the user has a layer for writes.
//!
//! The copy is made below a folder, and then moved over the root: a process that enters the namespace finds itself in it.
//! A user namespace must not uncover what its owner has mounted over, so overlayfs takes no folder there that has mounts
//! below it: its subfolders get layers of their own, and the folder itself becomes read-only.

use std::collections::BTreeSet;
use std::env;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use radrm_base::reason;

use super::mounts::{self, Mount};
use super::skeleton::Skeleton;

/// The layers' folder, in the folder of the dry run.
pub(super) const STORE: &str = "store";
/// Contents of a layer's folder.
pub(super) const UPPER: &str = "up";
const WORK: &str = "work";
/// Names the folder that a layer is over.
pub(super) const OF: &str = "of";

const ROOT: &str = "root";
const EMPTY: &str = "empty";

/// Layers for subfolders of folders with mounts below them.
const MAX_LAYERS: usize = 256;
/// Listening sockets that stay within reach: a layer hides them.
const MAX_SOCKETS: usize = 256;

const MOUNT_ATTR_RDONLY: u64 = 1;

/// The copy as far as it is made.
struct Copy<'a> {
    folder: &'a Path,
    root: PathBuf,
    mounts: &'a [Mount],
    layers: usize,
    /// Mounts whose layer hides those below.
    whole: Vec<PathBuf>,
    /// Mounts below one of these are there already.
    bound: Vec<PathBuf>,
    read_only: BTreeSet<PathBuf>,
    /// Options that this kernel and namespace take.
    options: &'static str,
    /// `None`: the layers may have files of any owner.
    skeleton: Option<Skeleton>,
    /// The folders that the layers show.
    roots: Vec<File>,
}

/// Outcome of a build.
pub(super) struct Built {
    /// Remarks for the user.
    pub remarks: Vec<String>,
    /// The folders that the layers show, open: by their paths others would be found.
    pub roots: Vec<File>,
}

/// Makes the copy in the mount namespace of this process, with layers in `folder`, and moves it over the root. The `real`
/// paths get none. `is_user`: in a user namespace of its own. Why it cannot be, as a clause.
pub(super) fn build(folder: &Path, real: &[PathBuf], is_user: bool) -> Result<Built, String> {
    let failed =
        |what: &'static str| move |error: io::Error| format!("overlayfs: {what}: {}", reason(&error));
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE, "").map_err(failed("/"))?;
    let root = folder.join(ROOT);
    for name in [ROOT, STORE, EMPTY] {
        fs::create_dir(folder.join(name)).map_err(failed(name))?;
    }
    let options = store(folder).map_err(failed("no place for its layers"))?;
    let all = mounts::visible().map_err(failed("/proc/self/mountinfo"))?;
    bind(Path::new("/"), &root, true).map_err(failed("/"))?;
    let mut copy = Copy {
        folder,
        root,
        mounts: &all,
        layers: 0,
        whole: Vec::new(),
        bound: Vec::new(),
        read_only: BTreeSet::new(),
        options,
        skeleton: is_user.then(|| {
            Skeleton::of([
                env::current_dir().ok(),
                env::var_os("HOME").map(PathBuf::from),
                Some(env::temp_dir()),
            ])
        }),
        roots: Vec::new(),
    };
    for mount in &all {
        copy.take(mount).map_err(|error| format!("overlayfs: {}: {}", mount.at.display(), reason(&error)))?;
    }
    for path in real.iter().chain(&sockets(&all)) {
        // With what is mounted below: else its files would be hidden, and others written under them.
        bind(path, &copy.of(path), true)
            .or_else(|_| bind(path, &copy.of(path), false))
            .map_err(|error| format!("overlayfs: {}: {}", path.display(), reason(&error)))?;
    }
    let hidden = copy.of(folder);
    bind(&folder.join(EMPTY), &hidden, false)
        .and_then(|()| protect(&hidden))
        .map_err(failed("its folder"))?;
    mount(Some(&copy.root), Path::new("/"), None, libc::MS_MOVE, "").map_err(failed("/"))?;
    Ok(Built { remarks: copy.remarks(), roots: copy.roots })
}

impl Copy<'_> {
    /// A path as it is in the copy.
    fn of(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Brings a mount into the copy: with a layer, as it is, or read-only.
    fn take(&mut self, mount: &Mount) -> io::Result<()> {
        let at = &mount.at;
        let is_below = |other: &PathBuf| at != other && at.starts_with(other);
        if self.bound.iter().any(is_below) {
            return Ok(());
        }
        let is_hidden = self.whole.iter().any(is_below);
        if mount.holds_files() && at.is_dir() && self.layer(at).is_ok() {
            self.whole.push(at.clone());
            return Ok(());
        }
        if is_hidden && bind(at, &self.of(at), false).is_err() {
            bind(at, &self.of(at), true)?;
            self.bound.push(at.clone());
        }
        if mount.holds_files() {
            if !is_hidden && mounts::any_below(self.mounts, at) {
                self.subfolders(at);
            }
            protect(&self.of(at))?;
            self.read_only.insert(at.clone());
        }
        Ok(())
    }

    /// Gives the subfolders of a folder with mounts below it layers.
    fn subfolders(&mut self, folder: &Path) {
        // What cannot be listed is read-only.
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            let is_mount = self.mounts.iter().any(|mount| mount.at == path);
            if is_mount || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if mounts::any_below(self.mounts, &path) {
                self.subfolders(&path);
            } else if self.layers >= MAX_LAYERS || self.layer(&path).is_err() {
                self.read_only.insert(path);
            }
        }
    }

    /// Mounts a layer over a folder.
    fn layer(&mut self, at: &Path) -> io::Result<()> {
        let place = self.folder.join(STORE).join(self.layers.to_string());
        let (upper, work) = (place.join(UPPER), place.join(WORK));
        fs::create_dir(&place)?;
        [&upper, &work].into_iter().try_for_each(fs::create_dir)?;
        std::os::unix::fs::symlink(at, place.join(OF))?;
        self.layers += 1;
        if let Some(skeleton) = &mut self.skeleton {
            skeleton.lay(at, &upper);
        }
        let shown = self.of(at);
        overlay(at, &upper, &work, &shown, self.options)?;
        self.roots.push(File::options().read(true).custom_flags(libc::O_PATH).open(shown)?);
        Ok(())
    }

    /// Sentences on what is read-only and could have been written.
    fn remarks(&self) -> Vec<String> {
        let writable =
            |path: &&PathBuf| rustix::fs::access(path.as_path(), rustix::fs::Access::WRITE_OK).is_ok();
        let all: Vec<String> =
            self.read_only.iter().filter(writable).map(|path| path.display().to_string()).collect();
        match all.as_slice() {
            [] => Vec::new(),
            [one] => {
                vec![format!("{one} is read-only in this dry run: the kernel gives it no layer for writes")]
            }
            more => vec![format!(
                "{} are read-only in this dry run: the kernel gives them no layers for writes",
                more.join(", ")
            )],
        }
    }
}

/// Makes sure that the folder of the layers can hold some: else it is in memory. Gives the options of a layer.
fn store(folder: &Path) -> io::Result<&'static str> {
    // In a user namespace the kernel's own attributes have other names; else whole folders can be renamed too.
    const OPTIONS: [&str; 3] = ["volatile,redirect_dir=on", "volatile,userxattr", "userxattr"];
    let store = folder.join(STORE);
    let works = |number: usize, options: &str| {
        let place = store.join(format!("probe{number}"));
        let (upper, work, lower) = (place.join(UPPER), place.join(WORK), place.join(EMPTY));
        fs::create_dir(&place)?;
        [&upper, &work, &lower].into_iter().try_for_each(fs::create_dir)?;
        overlay(&lower, &upper, &work, &lower, options)?;
        // A layer must take what a program removes.
        unmount(&lower)
    };
    let find = || {
        let tried =
            OPTIONS.iter().enumerate().map(|(number, options)| works(number, options).map(|()| *options));
        tried.reduce(|before, next| before.or(next)).unwrap_or_else(|| Err(io::ErrorKind::Unsupported.into()))
    };
    find().or_else(|_| {
        mount(
            Some(Path::new("tmpfs")),
            &store,
            Some("tmpfs"),
            libc::MS_NOSUID | libc::MS_NODEV,
            "mode=0700",
        )?;
        find()
    })
}

/// Mounts an overlay whose root looks like the lower folder.
fn overlay(lower: &Path, upper: &Path, work: &Path, at: &Path, options: &str) -> io::Result<()> {
    let meta = fs::metadata(lower)?;
    // A user namespace knows no other owners.
    let _ = chown(upper, Some(meta.uid()), Some(meta.gid()));
    fs::set_permissions(upper, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
    // By their numbers: the option's separators may be in the names.
    let open = |path: &Path| File::options().read(true).custom_flags(libc::O_PATH).open(path);
    let (lower, upper, work) = (open(lower)?, open(upper)?, open(work)?);
    let [lower, upper, work] =
        [&lower, &upper, &work].map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
    let data = format!("lowerdir={lower},upperdir={upper},workdir={work},{options}");
    mount(Some(Path::new("radrm")), at, Some("overlay"), 0, &data)
}

fn bind(from: &Path, to: &Path, with_all_below: bool) -> io::Result<()> {
    mount(Some(from), to, None, libc::MS_BIND | if with_all_below { libc::MS_REC } else { 0 }, "")
}

/// Makes a mount read-only; its other attributes stay.
fn protect(at: &Path) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let at = CString::new(at.as_os_str().as_bytes())?;
    let attributes = Attributes { set: MOUNT_ATTR_RDONLY, clear: 0, propagation: 0, user_namespace: 0 };
    // SAFETY: a null-terminated path, and a structure that lives here with its size.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            at.as_ptr(),
            0_u32,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn unmount(at: &Path) -> io::Result<()> {
    let at = CString::new(at.as_os_str().as_bytes())?;
    // SAFETY: a null-terminated path.
    match unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn mount(
    from: Option<&Path>,
    to: &Path,
    kind: Option<&str>,
    flags: libc::c_ulong,
    data: &str,
) -> io::Result<()> {
    let from = CString::new(from.map_or(&b"none"[..], |path| path.as_os_str().as_bytes()))?;
    let (to, kind) = (CString::new(to.as_os_str().as_bytes())?, CString::new(kind.unwrap_or_default())?);
    let data = CString::new(data)?;
    // SAFETY: null-terminated strings that live here.
    match unsafe { libc::mount(from.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sockets that processes listen at, in file systems that get a layer.
fn sockets(all: &[Mount]) -> Vec<PathBuf> {
    let listed = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let is_in_layer = |path: &Path| {
        let of = all.iter().rfind(|mount| path.starts_with(&mount.at));
        of.is_some_and(Mount::holds_files)
    };
    let is_socket =
        |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    // Columns: number, references, protocol, flags (0x10000: it listens), type, state, inode, path.
    let listening = |line: &str| {
        let mut fields = line.splitn(8, ' ').filter(|field| !field.is_empty());
        let flags = u64::from_str_radix(fields.nth(3)?, 16).ok()?;
        (flags & 0x1_0000 != 0).then(|| line.find(" /").map(|at| PathBuf::from(&line[at + 1..]))).flatten()
    };
    let found: BTreeSet<PathBuf> =
        listed.lines().filter_map(listening).filter(|path| is_in_layer(path) && is_socket(path)).collect();
    found.into_iter().take(MAX_SOCKETS).collect()
}
