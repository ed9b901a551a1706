//! Destination of the profile.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use radrm_base::reason;
use radrm_profile::frame::MAGIC;
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use super::cli::ProfileTo;
use crate::report_file::{self, ReportFileError};

/// The mode of a new profile: it holds the command line and a part of the environment.
const PRIVATE: u32 = 0o600;

/// Place that was asked for the profile, checked before the program started.
#[derive(Debug)]
pub enum Place {
    /// A file of the usual name, in the current directory if possible.
    Usual,
    /// This file.
    File(Named),
    /// Nowhere.
    Nowhere,
}

/// A file that was named for the profile. One that the check made goes again with this, unless it is kept.
#[derive(Debug)]
pub struct Named {
    path: PathBuf,
    /// It was not there before, and nothing was started yet that writes it.
    undo: bool,
    /// Locked for as long as this run may write it.
    held: Arc<File>,
}

impl Named {
    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same, open: whatever has the path by now.
    #[must_use]
    pub fn file(&self) -> &Arc<File> {
        &self.held
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let empty = || fs::metadata(&self.path).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
        if self.undo && empty() {
            // A stray empty file is all that is at stake.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reason that a profile cannot be written where it was asked for, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum PlaceError {
    #[error("{}: {}", path.display(), reason(source))]
    Path { path: PathBuf, source: io::Error },
    #[error("the profile {} cannot be written: {}", path.display(), reason(source))]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("the profile {} does not get the mode {mode:04o}: {}", path.display(), reason(source))]
    Mode { path: PathBuf, mode: u32, source: io::Error },
    #[error("the profile {} is being written by another run", .0.display())]
    Busy(PathBuf),
    #[error("{} is not a profile, and is not replaced by one", .0.display())]
    NoProfile(PathBuf),
    #[error("{} cannot be both the profile and the report", .0.display())]
    AlsoReport(PathBuf),
    #[error(transparent)]
    Report(#[from] ReportFileError),
    #[error("the profile cannot be written, neither here nor under XDG_DATA_HOME: {}", reason(.0))]
    Nowhere(io::Error),
}

/// Checks that a profile can be written where it was asked for.
///
/// # Errors
/// [`PlaceError`]; only for a file that was named.
pub fn prepare(wanted: &ProfileTo) -> Result<Place, PlaceError> {
    match wanted {
        ProfileTo::Nowhere => Ok(Place::Nowhere),
        ProfileTo::File(path) => {
            let path = std::path::absolute(path)
                .map_err(|source| PlaceError::Path { path: path.clone(), source })?;
            let there = path.symlink_metadata().is_ok();
            let held = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(PRIVATE)
                .open(&path)
                .or_else(|error| match error.kind() {
                    // May be written, but not read.
                    io::ErrorKind::PermissionDenied => OpenOptions::new().write(true).open(&path),
                    _ => Err(error),
                })
                .map_err(|source| PlaceError::Unwritable { path: path.clone(), source })?;
            // Before the file is this run's to take away: another run may have made it just now.
            protect(&path, &held)?;
            Ok(Place::File(Named { path, undo: !there, held: Arc::new(held) }))
        }
        ProfileTo::Default => Ok(Place::Usual),
    }
}

/// Leaves alone what is not a profile, and one that another run is writing.
fn protect(path: &Path, file: &File) -> Result<(), PlaceError> {
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Ok(());
    }
    // File systems without locks do not keep other runs from writing.
    if flock(file, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK) {
        return Err(PlaceError::Busy(path.to_owned()));
    }
    match report_file::head(file) {
        Ok(head) if !MAGIC.starts_with(&head) => Err(PlaceError::NoProfile(path.to_owned())),
        _ => Ok(()),
    }
}

impl Place {
    /// Checks that a report can be written to a file, which is not the profile's.
    pub fn with_report(&self, report: &Path) -> Result<(), PlaceError> {
        report_file::check(report)?;
        let (Self::File(Named { held, .. }), Ok(report_meta)) = (self, fs::metadata(report)) else {
            return Ok(());
        };
        let same = held.metadata().is_ok_and(|profile| {
            profile.is_file() && (profile.dev(), profile.ino()) == (report_meta.dev(), report_meta.ino())
        });
        match same {
            true => Err(PlaceError::AlsoReport(report.to_owned())),
            false => Ok(()),
        }
    }

    /// A program was started: what the check made stays.
    pub fn keep(&mut self) {
        if let Self::File(named) = self {
            named.undo = false;
        }
    }
}

/// A new file for a profile of the usual name.
#[derive(Debug)]
pub struct Claimed {
    /// The file's path.
    pub path: PathBuf,
    /// The file, empty. Who may write the directory may put another one in its place.
    pub file: Arc<File>,
    /// Reason that it is not in the current directory.
    pub elsewhere: Option<String>,
}

/// Makes an empty file called `name` in the current directory; where that cannot be written, in
/// `$XDG_DATA_HOME/radrm/profiles`. A file that is there is never replaced.
///
/// # Errors
/// Neither can be written.
pub fn claim(name: &str) -> Result<Claimed, PlaceError> {
    let here = match env::current_dir().and_then(|directory| claim_in(&directory, name)) {
        Ok((path, file)) => return Ok(Claimed { path, file, elsewhere: None }),
        Err(error) => error,
    };
    let elsewhere = fallback().and_then(|directory| {
        fs::create_dir_all(&directory).ok()?;
        claim_in(&directory, name).ok()
    });
    let Some((path, file)) = elsewhere else { return Err(PlaceError::Nowhere(here)) };
    Ok(Claimed { path, file, elsewhere: Some(reason(&here)) })
}

/// Makes `stem.radrm`, or if that is taken `stem.2.radrm` and so on.
fn claim_in(directory: &Path, name: &str) -> io::Result<(PathBuf, Arc<File>)> {
    let stem = name.strip_suffix(".radrm").unwrap_or(name);
    let numbered = (2..10_000).map(|number| format!("{stem}.{number}.radrm"));
    for name in std::iter::once(name.to_owned()).chain(numbered) {
        let path = directory.join(name);
        match OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(&path) {
            Ok(file) => return Ok((path, Arc::new(file))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Gives a file the mode that the user asked for, whatever the umask.
///
/// # Errors
/// [`PlaceError::Mode`].
pub fn set_mode(path: &Path, mode: u32) -> Result<(), PlaceError> {
    match File::open(path) {
        Ok(file) => set_mode_of(path, &file, mode),
        Err(source) => Err(PlaceError::Mode { path: path.to_owned(), mode, source }),
    }
}

/// The same of a file that is open, whatever has its path by now.
///
/// # Errors
/// [`PlaceError::Mode`].
pub fn set_mode_of(path: &Path, file: &File, mode: u32) -> Result<(), PlaceError> {
    // Devices and pipes keep theirs.
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Ok(());
    }
    let set = file.set_permissions(fs::Permissions::from_mode(mode));
    set.map_err(|source| PlaceError::Mode { path: path.to_owned(), mode, source })
}

/// `$XDG_DATA_HOME/radrm/profiles`.
fn fallback() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| set("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join("radrm/profiles"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_must_be_writable_before_the_program_starts() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = dir.path().join("none/x.radrm");
        let error = prepare(&ProfileTo::File(wanted)).unwrap_err().to_string();
        assert!(error.contains("x.radrm") && error.lines().count() == 1, "{error}");
    }

    #[test]
    fn what_was_there_before_survives_a_program_that_did_not_start() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        fs::write(&old, "").unwrap();
        drop(prepare(&ProfileTo::File(old.clone())).unwrap());
        drop(prepare(&ProfileTo::File(new.clone())).unwrap());
        assert!(old.exists() && !new.exists());
        // A program that did start may be about to write it.
        prepare(&ProfileTo::File(new.clone())).unwrap().keep();
        assert!(new.exists());
    }

    #[test]
    fn a_new_profile_is_its_owners_alone_unless_asked() {
        let dir = tempfile::tempdir().unwrap();
        let (named, old) = (dir.path().join("named"), dir.path().join("old"));
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let _named = prepare(&ProfileTo::File(named.clone())).unwrap();
        let (usual, file) = claim_in(dir.path(), "p.7.radrm").unwrap();
        assert_eq!((mode(&named), mode(&usual)), (0o600, 0o600));
        // The mode of a file that is there was decided by its owner.
        fs::write(&old, "").unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
        prepare(&ProfileTo::File(old.clone())).unwrap();
        assert_eq!(mode(&old), 0o640);
        set_mode_of(&usual, &file, 0o664).unwrap();
        assert_eq!(mode(&usual), 0o664);
        let null = mode(Path::new("/dev/null"));
        set_mode(Path::new("/dev/null"), 0o600).unwrap();
        assert_eq!(mode(Path::new("/dev/null")), null);
    }

    #[test]
    fn two_runs_do_not_write_the_same_profile() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = ProfileTo::File(dir.path().join("p.radrm"));
        let first = prepare(&wanted).unwrap();
        let error = prepare(&wanted).unwrap_err().to_string();
        assert!(error.contains("p.radrm is being written by another run"), "{error}");
        drop(first);
        prepare(&wanted).unwrap();
    }

    #[test]
    fn what_is_not_a_profile_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("train.py");
        for (content, replaced) in
            [(&b"import torch\n"[..], false), (&MAGIC[..], true), (&MAGIC[..3], true), (b"", true)]
        {
            fs::write(&path, content).unwrap();
            assert_eq!(prepare(&ProfileTo::File(path.clone())).is_ok(), replaced, "{content:?}");
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        // Devices and pipes hold no work.
        prepare(&ProfileTo::File("/dev/null".into())).unwrap();
    }

    #[test]
    fn a_report_does_not_go_where_the_profile_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (profile, link) = (dir.path().join("p.radrm"), dir.path().join("link"));
        std::os::unix::fs::symlink(&profile, &link).unwrap();
        let place = prepare(&ProfileTo::File(profile.clone())).unwrap();
        for report in [&profile, &link] {
            let sentence = place.with_report(report).unwrap_err().to_string();
            assert!(sentence.contains("both the profile and the report"), "{sentence}");
        }
        place.with_report(&dir.path().join("p.json")).unwrap();
        prepare(&ProfileTo::File("/dev/null".into())).unwrap().with_report(Path::new("/dev/null")).unwrap();
    }

    #[test]
    fn a_taken_name_gets_a_number_and_what_was_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("p.7.radrm"), "old").unwrap();
        std::os::unix::fs::symlink("/nowhere", dir.path().join("p.7.2.radrm")).unwrap();
        assert_eq!(claim_in(dir.path(), "p.7.radrm").unwrap().0, dir.path().join("p.7.3.radrm"));
        assert_eq!(fs::read(dir.path().join("p.7.radrm")).unwrap(), b"old");
        assert!(claim_in(&dir.path().join("none"), "p.7.radrm").is_err());
    }
}
