//! System calls on files below a folder that fail when a test says so, in a program and all that it starts: a layer below
//! SQLite, the standard library and direct calls of the kernel.

use std::{fs, os::unix::fs::FileExt, path::Path, path::PathBuf};

use crate::programs;

/// Kinds of system calls, of which several are joined by `|`.
pub mod kinds {
    /// Bytes and sizes of files.
    pub const DATA: u64 = 1;
    /// `fsync` and the like.
    pub const SYNC: u64 = 2;
    /// New files, folders and links.
    pub const CREATE: u64 = 4;
    /// Files that are there and are opened to be written.
    pub const OPEN: u64 = 8;
    /// Names that are changed or removed.
    pub const MOVE: u64 = 16;
    /// Owners and modes.
    pub const ATTRIBUTES: u64 = 32;
    /// Files that are opened to be read.
    pub const READ: u64 = 64;
    /// All that change something.
    pub const WRITES: u64 = DATA | SYNC | CREATE | OPEN | MOVE | ATTRIBUTES;
}

/// Failure that a disk may have.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Kinds of system calls that count, and may fail.
    pub kinds: u64,
    /// The error.
    pub errno: i32,
    /// Calls that fail in a row; `u64::MAX`: all, until [`Faults::end`].
    pub length: u64,
}

impl Fault {
    /// A block that cannot be written once.
    pub const ONE_ERROR: Self = Self { kinds: kinds::WRITES, errno: libc::EIO, length: 1 };
    /// A disk that takes nothing any more.
    pub const ERRORS: Self = Self { kinds: kinds::WRITES, errno: libc::EIO, length: u64::MAX };
    /// A file system that was remounted as read-only after an error: what is open cannot be written either.
    pub const READ_ONLY: Self =
        Self { kinds: kinds::WRITES & !kinds::SYNC, errno: libc::EROFS, length: u64::MAX };
    /// A file system without free inodes.
    pub const NO_INODES: Self = Self { kinds: kinds::CREATE, errno: libc::ENOSPC, length: u64::MAX };
}

/// The layer of one program.
pub struct Faults {
    path: PathBuf,
    file: fs::File,
}

/// Places of the numbers in the file, as in `programs/fault_layer.c`.
const KINDS: u64 = 0;
const FIRST: u64 = 8;
const LAST: u64 = 16;
const ERROR: u64 = 24;
const COUNT: u64 = 32;
const FAILED: u64 = 40;

impl Faults {
    /// Prepares a layer that is controlled by this file, which is in memory.
    ///
    /// # Panics
    /// If the file cannot be made.
    pub fn new(control: &Path) -> Self {
        let mut options = fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(control).expect("control");
        file.set_len(64).expect("control");
        Self { path: control.to_owned(), file }
    }

    /// The words before a program that run it on the layer.
    ///
    /// # Panics
    /// If the layer does not compile.
    pub fn words(&self, folder: &Path) -> Vec<String> {
        let layer = programs::compile("fault_layer.c", &[]);
        [&layer, folder, &self.path].map(|path| path.display().to_string()).to_vec()
    }

    fn put(&self, at: u64, number: u64) {
        self.file.write_all_at(&number.to_ne_bytes(), at).expect("control");
    }

    fn get(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).expect("control");
        u64::from_ne_bytes(bytes)
    }

    /// From now on the call with this number (from 1) is the first that fails.
    pub fn begin(&self, fault: Fault, number: u64) {
        // In this order: nothing fails before all of it is there.
        self.put(KINDS, 0);
        let _ = fs::File::options().write(true).truncate(true).open(self.path.with_extension("log"));
        self.put(FAILED, 0);
        self.put(COUNT, 0);
        self.put(FIRST, number);
        self.put(LAST, number.saturating_add(fault.length.saturating_sub(1)));
        self.put(ERROR, u64::from(fault.errno.unsigned_abs()));
        self.put(KINDS, fault.kinds);
    }

    /// From now on nothing fails. Returns how many calls have failed.
    pub fn end(&self) -> u64 {
        self.put(KINDS, 0);
        self.failed()
    }

    /// Calls that have failed.
    pub fn failed(&self) -> u64 {
        self.get(FAILED)
    }

    /// The calls that have failed, a line each: number, name and path.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path.with_extension("log")).unwrap_or_default()
    }
}

/// Returns true if there can be such a layer here; prints a line if not.
pub fn are_possible() -> bool {
    // Without a folder or a command it only says how it is used.
    let folder = tempfile::tempdir().expect("directory");
    let faults = Faults::new(&folder.path().join("faults"));
    let mut words = faults.words(folder.path());
    words.push("true".to_owned());
    let done = std::process::Command::new(&words[0]).args(&words[1..]).output();
    let works = done.is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped: a seccomp filter cannot ask another process here");
    }
    works
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_the_calls_that_are_named_fail() {
        if !are_possible() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let below = place.path().join("below");
        fs::create_dir(&below).unwrap();
        let faults = Faults::new(&place.path().join("faults"));
        let words = faults.words(&below);
        // Six calls below the folder: it is opened and written three times.
        let run = |fault: Fault, number| {
            faults.begin(fault, number);
            let script = "echo x > beside; cd below; for f in a b c; do echo $f > $f; done";
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).args(["sh", "-c", script]).current_dir(place.path());
            assert!(command.output().unwrap().status.code().is_some());
            let left = ["a", "b", "c"].map(|name| {
                let text = fs::read_to_string(below.join(name));
                let _ = fs::remove_file(below.join(name));
                text.map_or(-1, |text| text.len() as i64)
            });
            assert_eq!(fs::read_to_string(place.path().join("beside")).unwrap(), "x\n");
            (left, faults.end())
        };
        assert_eq!(run(Fault::ONE_ERROR, 1), ([-1, 2, 2], 1));
        assert_eq!(run(Fault::ONE_ERROR, 4), ([2, 0, 2], 1));
        assert_eq!(run(Fault::ERRORS, 4), ([2, 0, -1], 2));
        assert_eq!(run(Fault::NO_INODES, 2), ([2, -1, -1], 2));
        assert_eq!(run(Fault::ERRORS, 7), ([2, 2, 2], 0));
        assert!(faults.log().is_empty(), "of the last program: {}", faults.log());
    }
}
