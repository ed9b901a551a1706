//! Shared objects that stand in for CUDA's libraries where there is no GPU.
//!
//! A program finds `libcublas.so.13` by that name, and links its functions by name and version. What
//! these functions do when memory is all that matters is written once, in the emulated toolkit
//! (`libradrm_emulated_toolkit.so`). A stand-in has the name, the symbol versions and all the exports of
//! the library it stands for, and leads each of them to one of three places:
//!
//! | the export | goes to |
//! |---|---|
//! | is written in the toolkit | that function |
//! | is listed in `data/semantics.tsv` as one of a kind | the toolkit's function for that kind |
//! | is listed there as computing something | "done": results are not computed |
//! | anything else | the toolkit's counter of calls without semantics, and "not supported" |
//!
//! The exports of a library are data: `data/exports/`, one file for each library and major version.

mod catalogue;
mod code;
mod object_file;
mod semantics;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use catalogue::{Library, libraries};
pub use object_file::{Export, Target, Text};
pub use semantics::Meaning;

/// Failure to make a stand-in.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The toolkit's exports cannot be read.
    #[error("{path} cannot be read: {why}")]
    Toolkit {
        /// The library.
        path: PathBuf,
        /// Reason that the library cannot be read.
        why: String,
    },
    /// A stand-in cannot be written.
    #[error("{path} cannot be written: {source}")]
    Write {
        /// The stand-in.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A stand-in cannot be put together.
    #[error("{library} cannot be put together: {source}")]
    Build {
        /// Its name.
        library: String,
        /// Reason that it cannot be put together.
        source: object_file::BuildError,
    },
}

/// Prefix of the toolkit's functions: nothing outside may bind to them by chance.
const PREFIX: &str = "radrm_";

/// The toolkit's exports.
pub struct Toolkit {
    path: PathBuf,
    names: BTreeSet<String>,
}

impl Toolkit {
    /// Reads what the toolkit at `path` exports.
    ///
    /// # Errors
    /// It is not there, or no shared library.
    pub fn read(path: &Path) -> Result<Self, Error> {
        use object::{Object, ObjectSymbol};
        let fail = |why: String| Error::Toolkit { path: path.to_owned(), why };
        let bytes = fs::read(path).map_err(|error| fail(error.to_string()))?;
        let file = object::File::parse(&*bytes).map_err(|error| fail(error.to_string()))?;
        let names = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition())
            .filter_map(|symbol| symbol.name().ok())
            .filter(|name| name.starts_with(PREFIX))
            .map(str::to_owned)
            .collect();
        // The stand-ins name it by its path: it must not depend on anyone's directory.
        let path = fs::canonicalize(path).map_err(|error| fail(error.to_string()))?;
        Ok(Self { path, names })
    }

    /// The function for a library's export: one for this major version of CUDA before one for all.
    #[must_use]
    pub fn function(&self, library: &Library, export: &str) -> Option<String> {
        let own = format!("{PREFIX}{}_{export}", library.cuda);
        let shared = format!("{PREFIX}{export}");
        [own, shared].into_iter().find(|name| self.names.contains(name))
    }

    /// Target of a library's export.
    #[must_use]
    pub fn target(&self, library: &Library, export: &str) -> Target {
        if let Some(function) = self.function(library, export) {
            return Target::Function(function);
        }
        match semantics::meaning(&library.stem, export) {
            // A name that the toolkit lacks would keep the stand-in from loading.
            Meaning::Call(function) => match format!("{PREFIX}{function}") {
                function if self.names.contains(&function) => Target::Function(function),
                _ => Target::Missing { status: 801 },
            },
            Meaning::Done => Target::Done,
            Meaning::Missing { status } => Target::Missing { status },
        }
    }
}

/// Writes the stand-in of one library into `folder` under its own name.
///
/// # Errors
/// It cannot be put together or written.
pub fn write(library: &Library, toolkit: &Toolkit, folder: &Path) -> Result<PathBuf, Error> {
    let exports: Vec<Export> = library
        .exports
        .iter()
        .map(|name| Export { name: name.clone(), target: toolkit.target(library, name) })
        .collect();
    let text = Text {
        soname: &library.soname,
        version: library.version.as_deref(),
        needed: &toolkit.path.to_string_lossy(),
        exports: &exports,
        data: &library.data,
    };
    let bytes = object_file::build(&text)
        .map_err(|source| Error::Build { library: library.soname.clone(), source })?;
    let path = folder.join(&library.soname);
    fs::write(&path, bytes).map_err(|source| Error::Write { path: path.clone(), source })?;
    Ok(path)
}

/// Writes all stand-ins into `folder`.
///
/// # Errors
/// As [`write`].
pub fn write_all(toolkit: &Toolkit, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    libraries().iter().map(|library| write(library, toolkit, folder)).collect()
}
