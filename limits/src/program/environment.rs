//! The environment the program gets: the one given, with a few variables changed.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::sanitizers;

/// The variable with the libraries that the loader puts into programs.
pub const PRELOAD: &str = "LD_PRELOAD";

/// An environment block in the order it was given, entries that are not `NAME=value` included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    entries: Vec<CString>,
}

impl Environment {
    /// The block this process was started with.
    #[must_use]
    pub fn inherited() -> Self {
        unsafe extern "C" {
            static environ: *const *const libc::c_char;
        }
        let mut entries = Vec::new();
        // SAFETY: this process has one thread and does not change its environment; `environ` is
        // a null-terminated list of C strings, or null.
        unsafe {
            let mut at = environ;
            while !at.is_null() && !(*at).is_null() {
                entries.push(CStr::from_ptr(*at).to_owned());
                at = at.add(1);
            }
        }
        Self { entries }
    }

    /// A block made of these entries.
    #[must_use]
    pub fn from_entries(entries: Vec<CString>) -> Self {
        Self { entries }
    }

    /// The first value of `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.entries.iter().find_map(|entry| value_of(entry, name))
    }

    /// The last value of `name`, which holds where a process sets all of them one after the other.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<&[u8]> {
        self.entries.iter().rev().find_map(|entry| value_of(entry, name))
    }

    /// Sets `name`; a second entry of the same name is dropped.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        let mut bytes = Vec::with_capacity(name.len() + value.len() + 1);
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value);
        // Values are paths and lists of them: none has a zero byte, since they came through C strings.
        let Ok(new) = CString::new(bytes) else { return };
        let place = self.entries.iter().position(|entry| value_of(entry, name).is_some());
        self.entries.retain({
            let mut seen = false;
            move |entry| {
                let ours = value_of(entry, name).is_some();
                let keep = !ours || !seen;
                seen |= ours;
                keep
            }
        });
        match place {
            Some(index) => self.entries[index] = new,
            None => self.entries.push(new),
        }
    }

    /// Takes `name` out.
    pub fn remove(&mut self, name: &str) {
        self.entries.retain(|entry| value_of(entry, name).is_none());
    }

    /// Puts a library in front of those in `LD_PRELOAD` that are no sanitizer's runtime ([`sanitizers::preload`]).
    pub fn preload(&mut self, library: &Path) {
        let list = self.get(PRELOAD).unwrap_or_default();
        let joined = sanitizers::preload(list, library.as_os_str().as_bytes());
        self.set(PRELOAD, &joined);
    }

    /// Puts `path` in front of the list in `name`, whose items colons separate. A list that already begins with it is
    /// left alone.
    pub fn prepend_path(&mut self, name: &str, path: &Path) {
        let first = path.as_os_str().as_bytes();
        let value = match self.get(name) {
            None | Some(b"") => first.to_vec(),
            Some(old) if old == first || (old.starts_with(first) && old.get(first.len()) == Some(&b':')) => {
                return;
            }
            Some(old) => [first, b":", old].concat(),
        };
        self.set(name, &value);
    }

    /// The block as C strings.
    #[must_use]
    pub fn entries(&self) -> &[CString] {
        &self.entries
    }
}

fn value_of<'a>(entry: &'a CStr, name: &str) -> Option<&'a [u8]> {
    entry.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(entries: &[&str]) -> Environment {
        Environment::from_entries(entries.iter().map(|text| CString::new(*text).unwrap()).collect())
    }

    #[test]
    fn what_was_preloaded_before_stays_behind_ours() {
        let mut env = block(&["LD_PRELOAD=libx.so /y.so", "A=1"]);
        env.preload(Path::new("/r/libradrm.so"));
        assert_eq!(env, block(&["LD_PRELOAD=/r/libradrm.so:libx.so /y.so", "A=1"]));
    }

    #[test]
    fn an_empty_list_becomes_one_item_and_not_a_stray_colon() {
        // An empty item of LD_LIBRARY_PATH would mean the current directory.
        let mut env = block(&["LD_LIBRARY_PATH="]);
        env.prepend_path("LD_LIBRARY_PATH", Path::new("/r"));
        assert_eq!(env, block(&["LD_LIBRARY_PATH=/r"]));
    }

    #[test]
    fn the_shim_is_not_listed_twice_but_a_longer_name_is_another_file() {
        let mut env = block(&["LD_PRELOAD=/r/s.so:/z.so"]);
        env.preload(Path::new("/r/s.so"));
        assert_eq!(env, block(&["LD_PRELOAD=/r/s.so:/z.so"]));
        let mut env = block(&["LD_PRELOAD=/r/s.so.1"]);
        env.preload(Path::new("/r/s.so"));
        assert_eq!(env, block(&["LD_PRELOAD=/r/s.so:/r/s.so.1"]));
    }

    #[test]
    fn entries_without_a_name_survive_and_doubles_of_ours_go() {
        let mut env = block(&["odd", "=x", "A=1", "A=2", "AB=3"]);
        env.set("A", b"9");
        assert_eq!(env, block(&["odd", "=x", "A=9", "AB=3"]));
        env.remove("A");
        assert_eq!(env, block(&["odd", "=x", "AB=3"]));
    }
}
