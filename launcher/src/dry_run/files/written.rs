//! Files that a program wrote: the upper folders of its layers.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use radrm_base::reason;
use radrm_profile::Bytes;
use rustix::fs::{SeekFrom, seek};

use super::layer::{OF, UPPER};

/// Entries that are looked at.
const MAX_ENTRIES: usize = 200_000;
/// Python's own files: not what a program is asked for.
const CACHE: &str = "__pycache__";

/// Result of a walk.
pub(super) struct Written {
    store: PathBuf,
    files: usize,
    bytes: u64,
    /// Files and folders that were removed or renamed.
    removed: usize,
    /// The walk ended before all was seen.
    is_bounded: bool,
    entries: usize,
}

impl Written {
    /// Counts what the layers in a folder have.
    pub(super) fn read(store: &OwnedFd) -> Self {
        let store = PathBuf::from(format!("/proc/self/fd/{}", store.as_fd().as_raw_fd()));
        let mut written = Self { store, files: 0, bytes: 0, removed: 0, is_bounded: false, entries: 0 };
        for (_, upper) in written.layers() {
            written.walk(&upper, &mut |_, _| Ok(()));
        }
        written
    }

    /// The layers: what they are over, and their upper folders.
    fn layers(&self) -> Vec<(PathBuf, PathBuf)> {
        let entries = fs::read_dir(&self.store).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| Some((fs::read_link(entry.path().join(OF)).ok()?, entry.path().join(UPPER))))
            .collect()
    }

    /// Calls `each` with all that was written in a folder, folders before what is in them.
    fn walk(&mut self, folder: &Path, each: &mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>) {
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                self.entries += 1;
                if self.entries > MAX_ENTRIES {
                    self.is_bounded = true;
                    return;
                }
                let Ok(meta) = entry.metadata() else { continue };
                let kind = meta.file_type();
                if kind.is_char_device() && meta.rdev() == 0 {
                    self.removed += 1;
                    continue;
                }
                if kind.is_dir() && entry.file_name() == CACHE {
                    continue;
                }
                if kind.is_file() {
                    self.files += 1;
                    self.bytes += meta.len();
                }
                if each(&entry.path(), &meta).is_ok() && kind.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
    }

    /// Copies all of it to a folder, by its path; gives that folder, or why not all of it is there.
    pub(super) fn keep(&mut self, to: &Path) -> Result<PathBuf, String> {
        let mut failed = None;
        for (of, upper) in self.layers() {
            let mut again = Self {
                store: self.store.clone(),
                files: 0,
                bytes: 0,
                removed: 0,
                is_bounded: false,
                entries: 0,
            };
            let place = to.join(of.strip_prefix("/").unwrap_or(&of));
            again.walk(&upper, &mut |path, meta| {
                let to = place.join(path.strip_prefix(&upper).unwrap_or(path));
                copy(path, meta, &to).inspect_err(|error| {
                    failed.get_or_insert_with(|| format!("{}: {}", to.display(), reason(error)));
                })
            });
        }
        failed.map_or_else(|| Ok(to.to_owned()), Err)
    }

    /// Sentence on what was written and what became of it, if there is anything.
    pub(super) fn sentence(&self, kept: Option<&Result<PathBuf, String>>) -> Option<String> {
        if self.files == 0 && self.removed == 0 {
            return None;
        }
        let least = if self.is_bounded { "at least " } else { "" };
        let files = if self.files == 1 { "file" } else { "files" };
        let fate = match kept {
            None => "none kept".to_owned(),
            Some(Ok(folder)) => format!("kept in {}", folder.display()),
            Some(Err(why)) => format!("not all kept ({why})"),
        };
        let removed = match self.removed {
            0 => String::new(),
            1 => "; 1 that it removed or renamed is still there".to_owned(),
            more => format!("; {more} that it removed or renamed are still there"),
        };
        Some(format!("wrote {least}{} {files} ({}), {fate}{removed}", self.files, Bytes(self.bytes)))
    }
}

/// Copies a folder, a file or a link; nothing else holds content.
fn copy(from: &Path, meta: &fs::Metadata, to: &Path) -> io::Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    if meta.is_dir() {
        fs::create_dir_all(to)
    } else if meta.is_symlink() {
        symlink(fs::read_link(from)?, to)
    } else if meta.is_file() {
        copy_file(from, to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(meta.mode() & 0o7777))
    } else {
        Ok(())
    }
}

/// Copies a file; its holes stay holes.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (source, target) = (File::open(from)?, File::create(to)?);
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut at = 0;
    while at < length {
        let Ok(data) = seek(&source, SeekFrom::Data(at)) else { break };
        let hole = seek(&source, SeekFrom::Hole(data))?;
        seek(&source, SeekFrom::Start(data))?;
        seek(&target, SeekFrom::Start(data))?;
        io::copy(&mut io::Read::take(&source, hole - data), &mut &target)?;
        at = hole;
    }
    Ok(())
}

/// Lets the owner remove a folder with all that is in it, whatever modes it was given.
pub(crate) fn make_removable(folder: &Path) {
    let Ok(meta) = fs::symlink_metadata(folder) else { return };
    if !meta.is_dir() {
        return;
    }
    // What stays lies in the folder for temporary files.
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        make_removable(&entry.path());
    }
}
