//! Folders of owners and groups that a user namespace has no number for.
//!
//! overlayfs does not copy them into a layer, so nothing could be written in them. They are made there before it is
//! mounted: those on the way to where a program works, and those below.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Folders that are looked at.
const MAX_FOLDERS: usize = 2_000;

/// Folders in which the program works.
pub(super) struct Skeleton {
    places: Vec<PathBuf>,
    left: usize,
}

impl Skeleton {
    /// Of these places; the first is also searched.
    pub(super) fn of(places: impl IntoIterator<Item = Option<PathBuf>>) -> Self {
        let places = places.into_iter().flatten().filter_map(|path| fs::canonicalize(path).ok()).collect();
        Self { places, left: MAX_FOLDERS }
    }

    /// Makes the folders in the upper folder of a layer.
    pub(super) fn lay(&mut self, at: &Path, upper: &Path) {
        for place in &self.places {
            let mut path = at.to_owned();
            for name in place.strip_prefix(at).into_iter().flatten() {
                path.push(name);
                copy(at, &path, upper);
            }
        }
        let Some(first) = self.places.first().filter(|first| first.starts_with(at)) else { return };
        let mut folders = vec![first.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                if self.left == 0 {
                    return;
                }
                self.left -= 1;
                if entry.metadata().is_ok_and(|meta| !is_own(&meta)) {
                    copy(at, &entry.path(), upper);
                }
                folders.push(entry.path());
            }
        }
    }
}

/// Returns true if a user namespace of one user has numbers for the owner and the group.
fn is_own(meta: &fs::Metadata) -> bool {
    (meta.uid(), meta.gid()) == (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Makes a folder, and those that it is in, with the modes that they have. What cannot be made stays as it is: the
/// program cannot write there.
fn copy(at: &Path, path: &Path, upper: &Path) {
    let (mut from, mut to) = (at.to_owned(), upper.to_owned());
    for name in path.strip_prefix(at).into_iter().flatten() {
        from.push(name);
        to.push(name);
        let Ok(meta) = fs::symlink_metadata(&from) else { return };
        if !meta.is_dir() {
            return;
        }
        // The owner is another one here, and must not gain rights by that.
        let is_writable = access(&from, Access::WRITE_OK).is_ok();
        let mode = meta.mode() & 0o7777 & if is_writable { 0o7777 } else { 0o7555 };
        let mode = if is_writable { mode | 0o700 } else { mode };
        if DirBuilder::new().mode(0o700).create(&to).is_ok() {
            let _ = fs::set_permissions(&to, fs::Permissions::from_mode(mode));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_place_is_laid_with_its_modes() {
        let folder = tempfile::tempdir().unwrap();
        let (lower, upper) = (folder.path().join("lower"), folder.path().join("upper"));
        let place = lower.join("a/b");
        fs::create_dir_all(&place).unwrap();
        fs::create_dir(&upper).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o2770)).unwrap();
        Skeleton::of([Some(place), None]).lay(&fs::canonicalize(&lower).unwrap(), &upper);
        assert_eq!(fs::metadata(upper.join("a/b")).unwrap().mode() & 0o7777, 0o2770);
        assert!(!upper.join("c").exists());
    }
}
