//! What `/proc` tells of other processes.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use radrm_telemetry::process::Stat;

/// A process by its id in this process's pid namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Process(pub u32);

impl Process {
    /// All processes that are there.
    pub fn all() -> impl Iterator<Item = Self> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Self))
    }

    fn path(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0))
    }

    /// Whether it is there.
    #[must_use]
    pub fn exists(self) -> bool {
        self.path("stat").exists()
    }

    /// When it started, in clock ticks since boot: the same in every pid namespace.
    #[must_use]
    pub fn start(self) -> Option<u64> {
        Stat::now(self.0).map(|stat| stat.start)
    }

    /// Its parent.
    #[must_use]
    pub fn parent(self) -> Option<Self> {
        Stat::now(self.0).map(|stat| Self(stat.ppid))
    }

    /// What it does, as `/proc/PID/stat` has it: `S` sleeps, `T` is stopped, `Z` is dead and not waited for.
    #[must_use]
    pub fn state(self) -> Option<u8> {
        Stat::now(self.0).map(|stat| stat.state)
    }

    /// The name of its program, at most 15 bytes.
    #[must_use]
    pub fn name(self) -> String {
        fs::read_to_string(self.path("comm")).unwrap_or_default().trim_end().to_owned()
    }

    /// Its command line, blanks between the arguments; its name where there is none.
    #[must_use]
    pub fn command(self) -> String {
        let bytes = fs::read(self.path("cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).trim_end_matches('\0').replace('\0', " ");
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if text.is_empty() { self.name() } else { text }
    }

    /// Its user.
    #[must_use]
    pub fn uid(self) -> Option<u32> {
        fs::metadata(self.path("")).ok().map(|meta| meta.uid())
    }

    /// Its ids in all pid namespaces that it is in, the outermost first.
    #[must_use]
    pub fn ids(self) -> Vec<u32> {
        let status = fs::read_to_string(self.path("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    /// Its real and its effective user.
    #[must_use]
    pub fn users(self) -> Option<(u32, u32)> {
        let status = fs::read_to_string(self.path("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let mut ids = line.split_whitespace().filter_map(|word| word.parse().ok());
        Some((ids.next()?, ids.next()?))
    }

    /// The environment that it was started with; `None` if this user may not read it.
    #[must_use]
    pub fn environment(self) -> Option<Vec<Vec<u8>>> {
        let bytes = fs::read(self.path("environ")).ok()?;
        Some(bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
    }

    /// One variable of it, if it is there and not empty.
    #[must_use]
    pub fn variable(self, name: &str) -> Option<OsString> {
        variable(&self.environment()?, name)
    }

    /// The files that it has mapped; `None` if this user may not read it.
    #[must_use]
    pub fn maps(self) -> Option<String> {
        fs::read_to_string(self.path("maps")).ok()
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

/// A variable of an environment, if it is there and not empty.
#[must_use]
pub fn variable(environment: &[Vec<u8>], name: &str) -> Option<OsString> {
    let value = environment
        .iter()
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        .filter(|value| !value.is_empty())?;
    Some(OsString::from_vec(value.to_vec()))
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

    #[test]
    fn this_process_is_described() {
        let own = Process(std::process::id());
        assert!(own.exists() && own.start().is_some() && Process::all().any(|process| process == own));
        assert_eq!(own.ids().last(), Some(&own.0));
        assert_eq!(own.uid(), Some(rustix::process::geteuid().as_raw()));
        assert!(own.maps().unwrap().contains("libc"));
        assert!(own.environment().is_some() && own.variable("RADRM_NO_SUCH_VARIABLE").is_none());
        assert!(own.command().contains("radrm"), "{}", own.command());
        let gone = Process(4_194_305);
        assert!(!gone.exists() && gone.maps().is_none() && gone.environment().is_none());
    }

    #[test]
    fn lists_and_variables_are_taken_apart() {
        assert_eq!(paths(":a::b".as_ref()), [PathBuf::from("a"), PathBuf::from("b")]);
        let environment = [b"AB=1".to_vec(), b"A=2".to_vec(), b"C=".to_vec()];
        assert_eq!(variable(&environment, "A"), Some("2".into()));
        assert_eq!(variable(&environment, "C"), None);
    }
}
