//! A file that a report is written to: checked before there is anything to write, and never a profile.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use radrm_base::reason;
use radrm_profile::frame::MAGIC;
use rustix::fs::{Access, access};
use thiserror::Error;

/// Mode of a new file, less the umask.
const USUAL_MODE: u32 = 0o666;

/// Reason that a report cannot be written to a file, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum ReportFileError {
    #[error("{} is a profile, and is not replaced by a report", .0.display())]
    Profile(PathBuf),
    #[error("the report {} cannot be written: {}", path.display(), reason(source))]
    Unwritable { path: PathBuf, source: io::Error },
}

impl From<ReportFileError> for String {
    fn from(error: ReportFileError) -> Self {
        error.to_string()
    }
}

/// The first bytes of a file, as many as mark a profile; none of what is not a regular file.
///
/// # Errors
/// It cannot be read.
pub fn head(file: &File) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    if file.metadata()?.is_file() {
        file.take(MAGIC.len() as u64).read_to_end(&mut head)?;
    }
    Ok(head)
}

/// Says whether a report can be written to a file; nothing there is changed.
///
/// # Errors
/// One sentence: it is a profile, or cannot be written.
pub fn check(path: &Path) -> Result<(), ReportFileError> {
    let cannot = |source: io::Error| cannot(path, source);
    let there = match fs::metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return check_new(path).map_err(cannot);
        }
        Err(error) => return Err(cannot(error)),
    };
    if there.is_dir() {
        return Err(cannot(io::ErrorKind::IsADirectory.into()));
    }
    spares_profile(path)?;
    // Opening a pipe would wait for its reader.
    let writable = match there.is_file() {
        true => OpenOptions::new().write(true).open(path).map(|_| ()),
        false => access(path, Access::WRITE_OK).map_err(io::Error::from),
    };
    writable.map_err(cannot)
}

/// A new file needs a directory that takes it.
fn check_new(path: &Path) -> io::Result<()> {
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // A link that leads nowhere: what is made is elsewhere.
    let path = fs::read_link(path).map_or_else(|_| path.to_owned(), |target| folder(path).join(target));
    Ok(access(folder(&path), Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Says whether a file may be replaced by a report: not if it is a profile.
pub fn spares_profile(path: &Path) -> Result<(), ReportFileError> {
    // Pipes are not opened. What cannot be read is written where its permissions say so.
    let is_file = fs::metadata(path).is_ok_and(|there| there.is_file());
    match is_file && File::open(path).and_then(|file| head(&file)).is_ok_and(|head| head == MAGIC) {
        true => Err(ReportFileError::Profile(path.to_owned())),
        false => Ok(()),
    }
}

/// Writes a report: all of it or, where that is possible, nothing.
///
/// # Errors
/// One sentence, as from [`check`]; what a file held before is there still, unless it can only be overwritten.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), ReportFileError> {
    spares_profile(path)?;
    let content = content.as_ref();
    let there = fs::metadata(path).ok();
    let done = match beside(path, there.as_ref()) {
        Some((place, mode)) => replace(&place, mode, content),
        None => fs::write(path, content),
    };
    done.map_err(|source| cannot(path, source))
}

fn cannot(path: &Path, source: io::Error) -> ReportFileError {
    ReportFileError::Unwritable { path: path.to_owned(), source }
}

/// The file to replace and its permissions; `None` where another file in its place would not be the same: for
/// streams, links to nothing, files of others, with several names, or where no other file can be made.
fn beside(path: &Path, there: Option<&Metadata>) -> Option<(PathBuf, Permissions)> {
    let Some(there) = there else {
        let is_link = path.symlink_metadata().is_ok();
        return (!is_link).then(|| (path.to_owned(), Permissions::from_mode(USUAL_MODE)));
    };
    let stream = ["/dev", "/proc"].iter().any(|folder| path.starts_with(folder));
    let own = there.is_file() && there.nlink() == 1 && there.uid() == rustix::process::geteuid().as_raw();
    let place = path.canonicalize().ok()?;
    (own && !stream && access(folder(&place), Access::WRITE_OK | Access::EXEC_OK).is_ok())
        .then(|| (place, there.permissions()))
}

fn replace(place: &Path, mode: Permissions, content: &[u8]) -> io::Result<()> {
    // The umask counts for new files; those that were there keep what they had.
    let had = place.exists().then(|| mode.clone());
    let mut new =
        tempfile::Builder::new().prefix(".radrm-report-").permissions(mode).tempfile_in(folder(place))?;
    new.write_all(content)?;
    if let Some(had) = had {
        new.as_file().set_permissions(had)?;
    }
    new.persist(place).map_err(|error| error.error)?;
    Ok(())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_profile_is_not_replaced_by_a_report() {
        let dir = tempfile::tempdir().unwrap();
        let profile = dir.path().join("b.radrm");
        fs::write(&profile, [&MAGIC[..], b"more"].concat()).unwrap();
        let link = dir.path().join("link");
        symlink(&profile, &link).unwrap();
        for path in [&profile, &link] {
            for result in [check(path), write(path, "{}")] {
                let sentence = result.unwrap_err().to_string();
                assert!(sentence.contains("is a profile") && sentence.lines().count() == 1, "{sentence}");
            }
        }
        assert!(fs::read(&profile).unwrap().ends_with(b"more"));
    }

    #[test]
    fn what_cannot_be_written_is_known_before_and_nothing_is_made_or_cut() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old.json"), dir.path().join("new.json"));
        fs::write(&old, "old").unwrap();
        symlink(dir.path().join("none/x"), dir.path().join("astray")).unwrap();
        for wrong in ["none/x.json", ".", "old.json/x", "new/", "astray"] {
            let sentence = check(&dir.path().join(wrong)).unwrap_err().to_string();
            assert!(sentence.contains(wrong) && sentence.lines().count() == 1, "{sentence}");
        }
        check(&old).unwrap();
        check(&new).unwrap();
        check(Path::new("/dev/null")).unwrap();
        assert_eq!(fs::read(&old).unwrap(), b"old");
        assert!(!new.exists());
    }

    #[test]
    fn a_report_comes_whole_and_keeps_links_and_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("old"), "a longer text").unwrap();
        fs::set_permissions(path("old"), Permissions::from_mode(0o604)).unwrap();
        symlink("old", path("link")).unwrap();
        symlink("made", path("ahead")).unwrap();
        for (name, file) in [("link", "old"), ("ahead", "made"), ("new", "new")] {
            write(&path(name), "text").unwrap();
            assert_eq!(fs::read_to_string(path(file)).unwrap(), "text");
        }
        assert!(path("link").is_symlink() && path("ahead").is_symlink());
        let mode = |name: &str| fs::metadata(path(name)).unwrap().mode() & 0o777;
        assert_eq!(mode("old"), 0o604);
        fs::write(path("usual"), "").unwrap();
        assert_eq!(mode("new"), mode("usual"));
        let mut names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["ahead", "link", "made", "new", "old", "usual"]);
    }
}
