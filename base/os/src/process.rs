//! Processes as `/proc` shows them.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use procfs::FromRead;
use procfs::process::{SmapsRollup, Status};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::untrusted;

/// Bytes of a command line that are read. A process may let it be as long as its address space.
const MAX_COMMAND: usize = 64 << 10;
/// Bytes of an environment that are read: Linux gives a program 6 MiB of arguments and environment at most.
const MAX_ENVIRONMENT: usize = 6 << 20;
/// Bytes of a list of mappings that are read: 65,530 mappings, as many as Linux allows, of paths as they are.
const MAX_MAPS: usize = 16 << 20;
/// Bytes of a table of mounts that are read: a user may make 100,000 mounts.
const MAX_MOUNTS: usize = 4 << 20;

/// A process by its number in this process's pid namespace. The number may be given to another process once
/// this one has ended: [`ProcessIdentity`] cannot be taken for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Process(pub u32);

/// A part of a file in the address space of a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// Offset of its beginning in the file, bytes.
    pub offset: u64,
    /// Major and minor number of the device, and inode of the file.
    pub file: (u64, u64, u64),
    /// The file, as the process names it.
    pub path: PathBuf,
}

impl Mapping {
    /// Of a line of `/proc/PID/maps`; `None` if no file is mapped there. `procfs` refuses all lines, or panics, for the
    /// name of one file, which the process may choose.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let path = line.get(line.iter().position(|byte| *byte == b'/')?..)?;
        let mut words = line.split(|byte| *byte == b' ').map(|word| std::str::from_utf8(word).ok());
        let (range, _rights) = (words.next()??, words.next()??);
        let (offset, device, inode) = (words.next()??, words.next()??, words.next()??);
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let ((start, end), (major, minor)) = (range.split_once('-')?, device.split_once(':')?);
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            offset: hex(offset)?,
            file: (hex(major)?, hex(minor)?, inode.parse().ok()?),
            path: OsStr::from_bytes(path).into(),
        })
    }
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `S` sleeps, `T` is stopped, `Z` is dead and not waited for. Of the first thread.
    pub state: u8,
    /// Parent.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// Its processor time in user and kernel mode, clock ticks.
    pub own_ticks: u64,
    /// The same of children that it has waited for, and of theirs.
    pub children_ticks: u64,
    /// Threads that have not been waited for.
    pub threads: u32,
    /// Start time in clock ticks since boot: the same in every pid namespace.
    pub start: u64,
    /// Resident memory, pages.
    pub resident: u64,
    /// Address of the program's code: 0 while a program replaces another, 1 where it may not be known.
    pub code: u64,
}

impl Stat {
    fn read(pid: u32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/stat"))?;
        let stat = procfs::process::Stat::from_read(file).map_err(io::Error::other)?;
        let children = [stat.cutime, stat.cstime].map(|ticks| u64::try_from(ticks).unwrap_or(0));
        Ok(Self {
            state: u8::try_from(stat.state).unwrap_or(b'?'),
            parent: stat.ppid.cast_unsigned(),
            group: stat.pgrp.cast_unsigned(),
            session: stat.session.cast_unsigned(),
            own_ticks: stat.utime.saturating_add(stat.stime),
            children_ticks: children[0].saturating_add(children[1]),
            threads: u32::try_from(stat.num_threads).unwrap_or(u32::MAX),
            start: stat.starttime,
            resident: stat.rss,
            code: stat.startcode,
        })
    }

    /// Returns true if no thread of the process runs any more.
    #[must_use]
    pub const fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

impl Process {
    /// All processes that are there.
    pub fn all() -> impl Iterator<Item = Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Self))
    }

    fn path(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0))
    }

    /// Returns true if the process is there.
    #[must_use]
    pub fn exists(self) -> bool {
        self.path("stat").exists()
    }

    /// Fields of `/proc/PID/stat` now. `None` if there is no such process, or it may not be read.
    #[must_use]
    pub fn stat(self) -> Option<Stat> {
        Stat::read(self.0).ok()
    }

    /// Start time, in clock ticks since boot.
    #[must_use]
    pub fn start(self) -> Option<u64> {
        self.stat().map(|stat| stat.start)
    }

    /// Its parent.
    #[must_use]
    pub fn parent(self) -> Option<Self> {
        self.stat().map(|stat| Self(stat.parent))
    }

    /// State, see [`Stat::state`].
    #[must_use]
    pub fn state(self) -> Option<u8> {
        self.stat().map(|stat| stat.state)
    }

    /// Its children, those of all its threads.
    #[must_use]
    pub fn children(self) -> Vec<Self> {
        let mut children = Vec::new();
        for thread in fs::read_dir(self.path("task")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            children.extend(text.split_ascii_whitespace().filter_map(|word| word.parse().ok().map(Self)));
        }
        children
    }

    /// The name of its program, at most 15 bytes; empty if it is gone.
    #[must_use]
    pub fn name(self) -> String {
        let bytes = fs::read(self.path("comm")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned()
    }

    /// Its command line, blanks between the arguments; its name where there is none. What is longer than 64 KiB is cut.
    #[must_use]
    pub fn command(self) -> String {
        let bytes = untrusted::read_at_once(&self.path("cmdline"), MAX_COMMAND).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).trim_end_matches('\0').replace('\0', " ");
        if text.is_empty() { self.name() } else { text }
    }

    /// The arguments of its command line. What is longer than 64 KiB is cut.
    #[must_use]
    pub fn arguments(self) -> Vec<String> {
        let bytes = untrusted::read_at_once(&self.path("cmdline"), MAX_COMMAND).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text.trim_end_matches('\0').split('\0').map(str::to_owned).collect()
    }

    /// Its user.
    #[must_use]
    pub fn uid(self) -> Option<u32> {
        fs::metadata(self.path("")).ok().map(|meta| meta.uid())
    }

    fn status(self) -> Option<Status> {
        Status::from_read(File::open(self.path("status")).ok()?).ok()
    }

    /// Its numbers in all pid namespaces that it is in, the outermost first.
    #[must_use]
    pub fn ids(self) -> Vec<u32> {
        let ids = self.status().and_then(|status| status.nspid).unwrap_or_default();
        ids.into_iter().map(i32::cast_unsigned).collect()
    }

    /// Its real and its effective user.
    #[must_use]
    pub fn users(self) -> Option<(u32, u32)> {
        self.status().map(|status| (status.ruid, status.euid))
    }

    /// Signals that are pending for all of it, by bit.
    #[must_use]
    pub fn pending_signals(self) -> u64 {
        self.status().map_or(0, |status| status.shdpnd)
    }

    /// Returns true if it has a handler for this signal.
    #[must_use]
    pub fn catches(self, signal: i32) -> bool {
        let bit = u32::try_from(signal - 1).ok().and_then(|at| 1_u64.checked_shl(at)).unwrap_or(0);
        self.status().is_some_and(|status| status.sigcgt & bit != 0)
    }

    /// Resident memory in bytes, each page divided by the number of processes that have it; `None` if this user
    /// may not read it.
    #[must_use]
    pub fn proportional_memory(self) -> Option<u64> {
        let rollup = SmapsRollup::from_read(File::open(self.path("smaps_rollup")).ok()?).ok()?;
        rollup.memory_map_rollup.into_iter().find_map(|map| map.extension.map.get("Pss").copied())
    }

    /// The environment that it was started with, its first 6 MiB; `None` if this user may not read it. Empty also while it
    /// becomes another program.
    #[must_use]
    pub fn environment(self) -> Option<Environment> {
        self.read_of_threads("environ", |path| untrusted::read_at_once(path, MAX_ENVIRONMENT))
            .map(Environment)
    }

    /// One variable of it, if it is there and not empty.
    #[must_use]
    pub fn variable(self, name: &str) -> Option<OsString> {
        self.environment()?.variable(name)
    }

    /// The files that it has mapped, as `/proc/PID/maps` lists them; `None` if this user may not read it, or it is longer
    /// than 16 MiB.
    #[must_use]
    pub fn maps(self) -> Option<Vec<u8>> {
        self.read_of_threads("maps", |path| untrusted::read(path, MAX_MAPS))
    }

    /// Its table of mounts, `/proc/PID/mountinfo`.
    ///
    /// # Errors
    /// If this user may not read it; [`io::ErrorKind::FileTooLarge`] if it is longer than 4 MiB.
    pub fn mounts(self) -> io::Result<Vec<u8>> {
        untrusted::read(&self.path("mountinfo"), MAX_MOUNTS)
    }

    /// Returns true if any file that it has mapped has one of these texts in its path.
    /// Returns false if this user may not read it.
    #[must_use]
    pub fn has_mapped(self, parts: &[&str]) -> bool {
        let Some(maps) = self.maps() else { return false };
        let maps = String::from_utf8_lossy(&maps);
        parts.iter().any(|part| maps.contains(part))
    }

    /// The files that it has mapped, in the order of their addresses.
    ///
    /// # Errors
    /// If this user may not read it, or it is longer than 16 MiB.
    pub fn mappings(self) -> io::Result<Vec<Mapping>> {
        let bytes = untrusted::read(&self.path("maps"), MAX_MAPS)?;
        Ok(bytes.split(|byte| *byte == b'\n').filter_map(Mapping::parse).collect())
    }

    /// A file of `/proc/PID`. Where the first thread has ended and others run, it is empty there and read of one of these.
    /// `None` if this user may not read it.
    fn read_of_threads(self, name: &str, read: impl Fn(&Path) -> io::Result<Vec<u8>>) -> Option<Vec<u8>> {
        let read = |path: &Path| match read(path) {
            // It has just ended.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Some(Vec::new()),
            other => other.ok(),
        };
        let text = read(&self.path(name));
        if text.as_ref().is_none_or(|text| !text.is_empty()) || self.state().is_none_or(|state| state != b'Z')
        {
            return text;
        }
        let threads = fs::read_dir(self.path("task")).into_iter().flatten().flatten();
        let texts = threads.filter_map(|thread| read(&thread.path().join(name)));
        texts.into_iter().find(|text| !text.is_empty()).or(text)
    }

    /// The numbers of its threads; none if it has ended.
    #[must_use]
    pub fn threads(self) -> Vec<u32> {
        let found = fs::read_dir(self.path("task")).into_iter().flatten().flatten();
        found.filter_map(|thread| thread.file_name().to_str()?.parse().ok()).collect()
    }

    /// The very file that is mapped there, open for reading, whatever lies at its path by now.
    ///
    /// # Errors
    /// If it is not a regular file, if this user may not read it, or if another file has taken its path and this user may
    /// not ask the kernel for the mapped one.
    pub fn mapped_file(self, mapping: &Mapping) -> io::Result<File> {
        // The kernel's own link: root's right.
        if let Ok(found) =
            rustix::fs::open(self.map_link(mapping), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        {
            return untrusted::open_found(&found);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.path("root"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = match rustix::fs::openat2(&root, &mapping.path, flags, Mode::empty(), inside) {
            Err(rustix::io::Errno::NOSYS) => {
                rustix::fs::open(self.opens(&mapping.path), flags, Mode::empty())
            }
            other => other,
        }?;
        // The device of a mapping differs from the file's on some file systems.
        if rustix::fs::fstat(&found)?.st_ino != mapping.file.2 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "another file has taken its path"));
        }
        untrusted::open_found(&found)
    }

    /// Returns true if it has this very file mapped, by device and inode.
    /// `None` if that cannot be told: it is about to end, or this user may not read it.
    #[must_use]
    pub fn has_mapped_file(self, id: (u64, u64)) -> Option<bool> {
        let mappings = self.mappings().ok().filter(|mappings| !mappings.is_empty())?;
        let is_it = |mapping: &Mapping| {
            let (major, minor, _) = mapping.file;
            let device = match (u32::try_from(major), u32::try_from(minor)) {
                (Ok(major), Ok(minor)) => rustix::fs::makedev(major, minor),
                _ => return false,
            };
            // On some file systems the list has another device than the file.
            device == id.0 || self.id_of(mapping) == Some(id)
        };
        Some(mappings.iter().filter(|mapping| mapping.file.2 == id.1).any(is_it))
    }

    /// The inodes of the files that it has mapped; `None` if it is about to end, or this user may not read it.
    pub(crate) fn mapped_inodes(self) -> Option<HashSet<u64>> {
        let bytes = untrusted::read(&self.path("maps"), MAX_MAPS).ok().filter(|bytes| !bytes.is_empty())?;
        let inode = |line: &[u8]| {
            let word = line.split(|byte| *byte == b' ').nth(4)?;
            std::str::from_utf8(word).ok()?.parse().ok().filter(|inode| *inode != 0)
        };
        Some(bytes.split(|byte| *byte == b'\n').filter_map(inode).collect())
    }

    fn id_of(self, mapping: &Mapping) -> Option<(u64, u64)> {
        let found = fs::metadata(self.map_link(mapping)).ok()?;
        Some((found.dev(), found.ino()))
    }

    fn map_link(self, mapping: &Mapping) -> PathBuf {
        self.path("map_files").join(format!("{:x}-{:x}", mapping.start, mapping.end))
    }

    /// Returns true if it has this very file open, by device and inode; false if this user may not see it.
    #[must_use]
    pub fn has_open_file(self, id: (u64, u64)) -> bool {
        let entries = fs::read_dir(self.path("fd")).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| fs::metadata(entry.path()).ok());
        ids.into_iter().any(|found| (found.dev(), found.ino()) == id)
    }

    /// Its memory, for [`word_in`]; `None` if this user may not read it.
    #[must_use]
    pub fn memory(self) -> Option<File> {
        File::open(self.path("mem")).ok()
    }

    /// Returns true if it gained rights when it was started, so that the loader ignores its `LD_PRELOAD`.
    /// `None` if this user may not read it.
    #[must_use]
    pub fn gained_rights(self) -> Option<bool> {
        let process = procfs::process::Process::new(i32::try_from(self.0).ok()?).ok()?;
        let vector = process.auxv().ok()?;
        vector.get(&libc::AT_SECURE).map(|secure| *secure != 0)
    }

    /// Returns true if this process and it are in the same pid and mount namespaces.
    /// `None` if this user may not read it.
    #[must_use]
    pub fn shares_namespaces(self) -> Option<bool> {
        Some(self.shares("ns/pid")? & self.shares("ns/mnt")?)
    }

    /// Returns true if this process and it are in the same user namespace.
    /// `None` if this user may not read it.
    #[must_use]
    pub fn shares_user_namespace(self) -> Option<bool> {
        self.shares("ns/user")
    }

    fn shares(self, namespace: &str) -> Option<bool> {
        let of = |process: Self| fs::read_link(process.path(namespace)).ok();
        Some(of(self)? == of(Self(std::process::id()))?)
    }

    /// Path at which a file that the process names by `path` can be opened here.
    #[must_use]
    pub fn opens(self, path: &Path) -> PathBuf {
        self.path("root").join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Its program.
    #[must_use]
    pub fn exe(self) -> PathBuf {
        self.path("exe")
    }

    /// Its open files: where each can be opened, and what it is called.
    #[must_use]
    pub fn open_files(self) -> Vec<(PathBuf, OsString)> {
        let entries = fs::read_dir(self.path("fd")).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| {
            let path = entry.path();
            let target = fs::read_link(&path).ok()?.into_os_string();
            Some((path, target))
        });
        named.collect()
    }
}

/// A process that cannot be taken for a later one of the same number: with its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start: u64,
}

impl ProcessIdentity {
    /// The process of this number now.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, start: Process(pid).start()? })
    }

    /// Returns true if the process is certainly there still, and may be sent a signal by its number.
    #[must_use]
    pub fn lives(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Returns true if the process is certainly gone.
    /// A number that cannot be read, for want of descriptors say, does not count as gone.
    #[must_use]
    pub fn is_gone(self) -> bool {
        match Stat::read(self.pid) {
            Ok(stat) => stat.start != self.start,
            Err(error) => {
                error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
            }
        }
    }
}

/// Eight bytes of a process's memory as a number; `None` if nothing is there.
#[must_use]
pub fn word_in(memory: &File, address: u64) -> Option<u64> {
    let mut word = [0; 8];
    memory.read_exact_at(&mut word, address).ok()?;
    Some(u64::from_ne_bytes(word))
}

/// Offset of `part` in `text`, which may be long.
fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    // SAFETY: two readable places of these lengths.
    let found = unsafe { libc::memmem(text.as_ptr().cast(), text.len(), part.as_ptr().cast(), part.len()) };
    (!found.is_null()).then(|| found.addr() - text.as_ptr().addr())
}

/// The environment that a process was started with, or what the process has written over it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Environment(Vec<u8>);

impl From<Vec<u8>> for Environment {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl Environment {
    /// The bytes as they are: each entry with a zero behind it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The entries, `NAME=value`.
    pub fn entries(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == 0).filter(|entry| !entry.is_empty())
    }

    /// The value of a variable, empty or not.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        // An environment may be 6 MiB of zeros: no entry is made of each.
        let wanted = [name.as_bytes(), b"="].concat();
        let mut from = 0;
        while let Some(at) = find(self.0.get(from..)?, &wanted).map(|at| from + at) {
            from = at + wanted.len();
            if at == 0 || self.0.get(at - 1) == Some(&0) {
                return self.0.get(from..)?.split(|byte| *byte == 0).next();
            }
        }
        None
    }

    /// The value of a variable, if it is there and not empty.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<OsString> {
        let value = self.value(name).filter(|value| !value.is_empty())?;
        Some(OsString::from_vec(value.to_vec()))
    }
}

/// The parts of a list with colons.
#[must_use]
pub fn paths(list: &OsStr) -> Vec<PathBuf> {
    list.as_bytes()
        .split(|byte| *byte == b':')
        .filter(|part| !part.is_empty())
        .map(|part| Path::new(OsStr::from_bytes(part)).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    use std::process::Command;

    #[test]
    fn this_process_is_described() {
        let own = Process(std::process::id());
        assert!(own.exists() && own.start().is_some() && Process::all().any(|process| process == own));
        assert_eq!(own.ids().last(), Some(&own.0));
        let user = rustix::process::geteuid().as_raw();
        assert_eq!((own.uid(), own.users()), (Some(user), Some((rustix::process::getuid().as_raw(), user))));
        assert!(String::from_utf8_lossy(&own.maps().unwrap()).contains("libc"));
        let mappings = own.mappings().unwrap();
        assert!(mappings.iter().any(|map| own.opens(&map.path).ends_with("libc.so.6") && map.offset == 0));
        let exe = fs::metadata("/proc/self/exe").unwrap();
        assert_eq!(own.has_mapped_file((exe.dev(), exe.ino())), Some(true));
        assert_eq!(own.has_mapped_file((exe.dev() + 1, exe.ino())), Some(false));
        assert!(!own.has_open_file((exe.dev(), exe.ino())));
        let open = File::open("/proc/self/exe").unwrap();
        assert!(own.has_open_file((exe.dev(), exe.ino())));
        drop(open);
        let value = 0x1234_5678_9abc_def0_u64;
        assert_eq!(word_in(&own.memory().unwrap(), (&raw const value).addr() as u64), Some(value));
        assert_eq!(
            (own.gained_rights(), own.shares_namespaces(), own.shares_user_namespace()),
            (Some(false), Some(true), Some(true))
        );
        assert!(own.environment().is_some() && own.variable("RADRM_NO_SUCH_VARIABLE").is_none());
        assert!(own.command().contains("radrm"), "{}", own.command());
        assert!(own.proportional_memory().is_some_and(|bytes| bytes > 1 << 16));
        assert_eq!(own.pending_signals(), 0);
        let gone = Process(4_194_305);
        assert!(!gone.exists() && gone.maps().is_none() && gone.environment().is_none());
        assert!(gone.mappings().is_err());
        assert_eq!(
            (gone.gained_rights(), gone.shares_namespaces(), gone.shares_user_namespace()),
            (None, None, None)
        );
    }

    #[test]
    fn odd_names_hide_no_mapping() {
        let line = b"7f00-7fff r-xp 00001000 fe:01 1234                       /SYSV \xff (deleted)";
        let map = Mapping::parse(line).unwrap();
        assert_eq!((map.start, map.end, map.offset, map.file), (0x7f00, 0x7fff, 0x1000, (0xfe, 1, 1234)));
        assert_eq!(map.path.as_os_str().as_bytes(), b"/SYSV \xff (deleted)");
        for line in [
            &b""[..],
            b"7f00-7fff rw-p 0 0:0 0",
            b"7f00-7fff rw-p 0 0:0 0  [heap]",
            b"/",
            b"x-y z 0 0:0 0 /a",
        ] {
            assert_eq!(Mapping::parse(line), None);
        }
    }

    #[test]
    fn a_childs_figures_are_those_of_the_system() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process(child.id());
        let stat = process.stat().unwrap();
        assert_eq!((stat.parent, stat.threads, stat.is_dead()), (std::process::id(), 1, false));
        // A child that is about to become the program has nothing resident yet.
        let own = Process(std::process::id()).stat().unwrap();
        assert!(own.resident > 0);
        assert!(Process(std::process::id()).children().contains(&process));
        let identity = ProcessIdentity::of(child.id()).unwrap();
        assert!(identity.lives() && !identity.is_gone());
        let later = ProcessIdentity { start: identity.start + 1, ..identity };
        assert!(!later.lives() && later.is_gone());
        child.kill().unwrap();
        // Until it is waited for it stands in the list, dead.
        let left = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), left).unwrap();
        assert!(process.stat().unwrap().is_dead() && process.exists());
        child.wait().unwrap();
        assert!(!identity.lives() && identity.is_gone());
    }

    #[test]
    fn a_name_of_odd_bytes_hides_no_figure() {
        // SAFETY: a system call with a text that ends with a zero.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"a) R 1 \xff(".as_ptr()) };
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let stat = Process(thread).stat().unwrap();
        assert_eq!(stat.state, b'R');
        assert_eq!(Some(stat.start), Process(thread).start());
    }

    #[test]
    fn lists_and_variables_are_taken_apart() {
        assert_eq!(paths(":a::b".as_ref()), [PathBuf::from("a"), PathBuf::from("b")]);
        let environment = Environment(b"AB=1\0\0A=2\0C=\0".to_vec());
        assert_eq!(environment.variable("A"), Some("2".into()));
        assert_eq!((environment.variable("C"), environment.value("C")), (None, Some(&b""[..])));
        assert_eq!(environment.entries().count(), 3);
        assert_eq!((environment.value("B"), environment.value("")), (None, None));
        let doubled = Environment(b"xA=1\0AA=2\0A=A=3\0A=4".to_vec());
        assert_eq!(doubled.value("A"), Some(&b"A=3"[..]));
    }

    #[test]
    fn a_table_of_mounts_that_is_too_long_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root mounts file systems");
        }
        // As long as a mount's source may be, and four times as long in the table.
        let source = std::ffi::CString::new(vec![b' '; 4000]).unwrap();
        let place = tempfile::tempdir().unwrap();
        let folder = std::ffi::CString::new(place.path().as_os_str().as_bytes()).unwrap();
        let mounted = std::thread::spawn(move || {
            let none = std::ptr::null::<libc::c_char>();
            // SAFETY: plain system calls; the namespace is this thread's alone and goes with it.
            let mount =
                |source, at, kind, flags| unsafe { libc::mount(source, at, kind, flags, none.cast()) };
            // SAFETY: a plain system call on this thread.
            if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0
                || mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE) != 0
            {
                return None;
            }
            let own = Process(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
            let before = own.mounts().is_ok();
            for _ in 0..MAX_MOUNTS / (4 * 4000) + 1 {
                assert_eq!(mount(source.as_ptr(), folder.as_ptr(), c"tmpfs".as_ptr(), 0), 0);
            }
            Some((before, own.mounts().map(|table| table.len())))
        });
        let Some((before, table)) = mounted.join().unwrap() else {
            return eprintln!("skipped: no mount namespace can be made");
        };
        assert!(before);
        assert_eq!(table.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
