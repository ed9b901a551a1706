//! Configuration files that there are.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use radrm_base::reason;

use super::config::{self, Config};
use crate::LimitError;

/// The administrator's file.
pub const SYSTEM: &str = "/etc/radrm/radrm.toml";

/// Names one further file.
pub const FURTHER: &str = "RADRM_CONFIG";

/// A file that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// The file.
    pub path: PathBuf,
    /// It is the user's own, and may speak of that user only.
    pub own: bool,
    /// Contents of the file.
    pub config: Config,
}

impl Read {
    /// Returns true if another user than that of this process has written it, so that its limits protect others.
    #[must_use]
    pub fn is_administered(&self) -> bool {
        let own = rustix::process::getuid().as_raw();
        !self.own && fs::metadata(&self.path).is_ok_and(|found| found.uid() != own)
    }
}

/// Reads all files that are there: the administrator's, the one that `RADRM_CONFIG` names, and the
/// user's own. None of them can loosen what another one says, so that the order does not matter.
///
/// # Errors
/// One sentence: a file cannot be read, or is wrong. Limits that are not known cannot be held.
pub fn all() -> Result<Vec<Read>, LimitError> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_CONFIG_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| set("HOME").map(|home| home.join(".config")));
    let own = home.map(|home| home.join("radrm/radrm.toml"));
    let mut found = of_administrators()?;
    if let Some(path) = own {
        found.extend(read(&path, true, false)?);
    }
    Ok(found)
}

/// Reads the files that are about all users: the administrator's, and the one that `RADRM_CONFIG` names.
///
/// # Errors
/// As [`all`].
pub fn of_administrators() -> Result<Vec<Read>, LimitError> {
    let further = env::var_os(FURTHER).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut found: Vec<Read> = read(Path::new(SYSTEM), false, false)?.into_iter().collect();
    if let Some(path) = further {
        found.extend(read(&path, false, true)?);
    }
    Ok(found)
}

/// Reads one file; `None` if it is not there and need not be.
pub fn read(path: &Path, own: bool, must_exist: bool) -> Result<Option<Read>, LimitError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if !must_exist && is_absent(&error) => return Ok(None),
        // After a change of user HOME may still be another one's: that file is not about this user.
        Err(error) if own && error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => {
            return Err(LimitError::Unreadable { path: path.to_owned(), why: reason(&error) });
        }
    };
    let config = config::parse(path, &text)?;
    if own {
        check_own(path, &config)?;
    }
    Ok(Some(Read { path: path.to_owned(), own, config }))
}

/// A user's own file is about that user: a section about another user would seem to have an
/// effect.
fn check_own(path: &Path, config: &Config) -> Result<(), LimitError> {
    let section = config
        .group
        .keys()
        .map(|name| format!("[group.{name}]"))
        .chain(config.user.keys().map(|name| format!("[user.{name}]")))
        .next();
    match section {
        Some(section) => Err(LimitError::ForeignSection { path: path.to_owned(), section }),
        None => Ok(()),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_file_is_none_and_an_unreadable_one_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("radrm.toml");
        assert_eq!(read(&file, false, false), Ok(None));
        assert!(read(&file, false, true).unwrap_err().to_string().contains("cannot be read"));
        assert!(read(dir.path(), false, false).unwrap_err().to_string().contains("cannot be read"));
        fs::write(&file, b"\xff\xfe").unwrap();
        assert!(read(&file, false, false).unwrap_err().to_string().contains("cannot be read"));
    }

    #[test]
    fn a_users_own_file_names_no_other_user() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("radrm.toml");
        for (text, part) in [("[user.bob]\n", "[user.bob]"), ("[group.staff]\n", "[group.staff]")] {
            fs::write(&file, text).unwrap();
            assert!(read(&file, false, false).is_ok());
            assert!(read(&file, true, false).unwrap_err().to_string().contains(part));
        }
        fs::write(&file, "[default]\nmem-limit = \"1GiB\"\n").unwrap();
        assert!(read(&file, true, false).unwrap().is_some());
    }
}
