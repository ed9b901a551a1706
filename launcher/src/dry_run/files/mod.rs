//! The files that a program of a dry run writes: they go to a layer that is thrown away, so that nothing that the user
//! owns changes.
//!
//! | module | is |
//! |---|---|
//! | [`mounts`] | the file systems that the program sees |
//! | [`layer`] | a mount namespace in which each of them has a layer for writes |
//! | [`holder`] | the process that makes this namespace |
//! | [`landlock`] | writes to what lies below the layers are refused, and where there are no such namespaces all writes |
//! | [`inherited`] | the descriptors that the program gets |
//! | [`skeleton`] | folders of other owners in such a layer |
//! | [`metadata`] | modes and times of files there |
//! | [`confinement`] | what the program enters before it is executed |
//! | [`written`] | what it wrote |

mod confinement;
mod holder;
mod inherited;
mod landlock;
mod layer;
mod metadata;
pub(crate) mod mounts;
mod skeleton;
mod written;

use std::env;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use radrm_base::reason;
use radrm_limits::program::environment::Environment;
use tempfile::TempDir;
use thiserror::Error;

pub(crate) use confinement::Confinement;
use landlock::Ruleset;
use written::Written;
pub(crate) use written::make_removable;

use crate::leftovers;
use crate::temporary;

/// Temporary files of a program that may write nowhere else.
const SCRATCH: &str = "scratch";

/// Options for the files that a program writes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Writes {
    /// The program writes its files as in any other run.
    pub all_real: bool,
    /// Folders that the program writes as in any other run.
    pub real: Vec<PathBuf>,
    /// Folder for the files that the program wrote.
    pub keep: Option<PathBuf>,
}

/// Reason that files of the user cannot be protected, as one sentence.
#[derive(Debug, Error)]
pub enum FilesError {
    /// Neither way works on this system.
    #[error(
        "this system cannot protect your files from the program ({namespaces}; {landlock}): --write-files runs it all \
         the same, and lets it change them"
    )]
    Unprotected {
        /// Reason that there is no layer.
        namespaces: String,
        /// Reason that writes cannot be refused.
        landlock: String,
    },
    /// A layer is needed for files that are to be kept.
    #[error("--keep-files needs a layer for the program's files, and there is none here: {0}")]
    NothingToKeep(String),
    /// The folder for kept files holds others.
    #[error("--keep-files: {} is not an empty folder", .0.display())]
    NotEmpty(PathBuf),
    /// A folder cannot be made or read.
    #[error("--keep-files: {}: {}", path.display(), reason(source))]
    Keep {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A folder that the program is to write cannot be made.
    #[error("--write-files: {}: {}", path.display(), reason(source))]
    Write {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// There is no room for the layer.
    #[error("no directory for the program's files: {}", reason(.0))]
    Directory(io::Error),
    /// The program could not be started where this process is.
    #[error("the current directory has no path: {}", reason(.0))]
    Current(io::Error),
}

/// The user's files, protected as long as this lives.
pub struct Files {
    confinement: Confinement,
    keep: Option<PathBuf>,
    remarks: Vec<String>,
    /// The layers' folder; `None`: writes are refused.
    store: Option<OwnedFd>,
    folder: Folder,
}

/// The folder of the layers, until this is dropped.
struct Folder(Option<TempDir>);

impl Folder {
    /// A new one. One that a killed process leaves goes as emulated machines do.
    fn new() -> Result<Self, FilesError> {
        let folder = temporary::directory(&leftovers::prefix(leftovers::LAYER));
        folder.map(|folder| Self(Some(folder))).map_err(FilesError::Directory)
    }

    fn path(&self) -> &Path {
        self.0.as_ref().map_or(Path::new(""), TempDir::path)
    }

    /// Leaves it to processes that are still running.
    fn leave(mut self) {
        drop(self.0.take().map(TempDir::keep));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            make_removable(folder.path());
        }
    }
}

impl Files {
    /// Protects them. `own` are files and folders that the program shares with this process.
    ///
    /// # Errors
    /// [`FilesError`]; nothing is left behind.
    pub fn protect(writes: &Writes, own: &[PathBuf]) -> Result<Self, FilesError> {
        let keep = writes.keep.as_deref().map(place_to_keep).transpose()?;
        let chosen = writes.real.iter().map(|path| place_to_write(path)).collect::<Result<Vec<_>, _>>()?;
        let folder = Folder::new()?;
        let current = env::current_dir().map_err(FilesError::Current)?;
        let own = own.iter().filter_map(|path| fs::canonicalize(path).ok());
        let real: Vec<PathBuf> = own.chain(chosen).collect();
        match holder::make(folder.path(), &real) {
            Ok(made) => {
                let ruleset = Ruleset::over(&made.roots, &real).ok();
                let confinement = Confinement::layer(made.user, made.mounts, &current, ruleset);
                Ok(Self { confinement, keep, remarks: made.remarks, store: Some(made.store), folder })
            }
            Err(why) if keep.is_some() => Err(FilesError::NothingToKeep(why)),
            Err(namespaces) => {
                let scratch = folder.path().join(SCRATCH);
                fs::create_dir(&scratch).map_err(FilesError::Directory)?;
                let real: Vec<PathBuf> = real.into_iter().chain([scratch]).collect();
                let ruleset = Ruleset::new(&real).map_err(|landlock| {
                    let landlock = landlock.to_string();
                    FilesError::Unprotected { namespaces: namespaces.clone(), landlock }
                })?;
                let remarks = vec![format!(
                    "the program may only write temporary files, all other writes were refused by Landlock: there is no \
                     layer for them ({namespaces})"
                )];
                let confinement = Confinement::Refusal(ruleset);
                Ok(Self { confinement, keep: None, remarks, store: None, folder })
            }
        }
    }

    /// Confinement that the program enters before it is executed.
    pub(crate) fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// Lets a program that may write nowhere else find the place for its temporary files.
    pub fn enter(&self, environment: &mut Environment) {
        if let Confinement::Refusal(_) = self.confinement {
            environment.set("TMPDIR", self.folder.path().join(SCRATCH).as_os_str().as_encoded_bytes());
        }
    }

    /// Files that the program wrote, in sentences; keeps that where it was asked for.
    #[must_use]
    pub fn collect(&mut self) -> Vec<String> {
        let mut remarks = std::mem::take(&mut self.remarks);
        if let Some(store) = &self.store {
            let mut written = Written::read(store);
            let kept = self.keep.take().map(|to| written.keep(&to));
            remarks.extend(written.sentence(kept.as_ref()));
        }
        remarks
    }

    /// Leaves the layers to processes that are still running.
    pub fn leave(self) {
        self.folder.leave();
    }
}

/// A folder that the program is to write, which is made if it is not there: downloads may be its first files.
fn place_to_write(path: &Path) -> Result<PathBuf, FilesError> {
    let failed = |source| FilesError::Write { path: path.to_owned(), source };
    if !path.exists() {
        fs::create_dir_all(path).map_err(failed)?;
    }
    fs::canonicalize(path).map_err(failed)
}

/// Checks that a folder for kept files is empty, or makes it.
fn place_to_keep(path: &Path) -> Result<PathBuf, FilesError> {
    let failed = |source| FilesError::Keep { path: path.to_owned(), source };
    let path = std::path::absolute(path).map_err(failed)?;
    fs::create_dir_all(&path).map_err(failed)?;
    match fs::read_dir(&path).map_err(failed)?.next() {
        None => Ok(path),
        Some(_) => Err(FilesError::NotEmpty(path)),
    }
}
