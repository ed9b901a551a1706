//! Places of a run's files: behind the server's own interface, or in a folder of this machine.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use tempfile::Builder;

use super::Artifact;
use crate::web::WebError;

/// Place of a run's files.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This folder behind the server's own interface.
    Server(String),
    /// This folder of the machine.
    Folder(PathBuf),
}

impl Place {
    /// Place by the address that the server names for a run of this id; else that address. A folder is written to only where the
    /// server is on this machine (`is_local`), and only one that is made for the run.
    pub(super) fn of(uri: &str, id: &str, is_local: bool) -> Result<Self, String> {
        if let Some(rest) = uri.strip_prefix("mlflow-artifacts:") {
            // With or without the server's own name.
            let path = match rest.strip_prefix("//") {
                Some(named) => named.split_once('/').map_or("", |(_, path)| path),
                None => rest,
            };
            return Ok(Self::Server(path.trim_matches('/').to_owned()));
        }
        let path = uri.strip_prefix("file://").or_else(|| uri.strip_prefix("file:")).unwrap_or(uri);
        let folder = Path::new(path);
        let is_plain =
            folder.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let is_of_run = folder.ends_with(Path::new(id).join("artifacts"));
        // A port of this machine may lead to another one, where the server has made its folder.
        let is_there = folder.ancestors().nth(3).is_some_and(Path::is_dir);
        match is_local && folder.is_absolute() && is_plain && is_of_run && is_there {
            true => Ok(Self::Folder(folder.to_owned())),
            // An address may hold what is secret; a path is shown as it is.
            false => Err(path.split_once("://").map_or(path, |(scheme, _)| scheme).to_owned()),
        }
    }
}

/// Names of the files in a folder.
pub(super) fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Writes a file into a folder, which is made. The file is whole or not there.
pub(super) fn write(folder: &Path, name: &str, from: &Artifact<'_>) -> Result<(), WebError> {
    let path = folder.join(name);
    let write = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        // The server may run as another user.
        let mut file = Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(folder)?;
        match from {
            Artifact::File(of) => io::copy(&mut File::open(of)?, &mut file).map(|_| ())?,
            Artifact::Text(_, text) => io::Write::write_all(&mut file, text().as_bytes())?,
        }
        file.persist(&path).map(|_| ()).map_err(|error| error.error)
    };
    write().map_err(|source| WebError::File { path: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_where_the_server_takes_them() {
        let of = |uri: &str| Place::of(uri, "ab", true);
        assert_eq!(of("mlflow-artifacts:/1/ab/artifacts"), Ok(Place::Server("1/ab/artifacts".into())));
        assert_eq!(
            of("mlflow-artifacts://host:5000/1/ab/artifacts"),
            Ok(Place::Server("1/ab/artifacts".into()))
        );
        assert_eq!(of("s3://bucket/1/ab"), Err("s3".into()));
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("1/ab/artifacts");
        let named = folder.to_str().unwrap();
        for uri in [named.to_owned(), format!("file://{named}")] {
            assert_eq!(of(&uri), Ok(Place::Folder(folder.clone())));
            assert_eq!(Place::of(&uri, "ab", false), Err(named.to_owned()), "of the server's machine");
        }
        let other = root.path().join("1/other/artifacts").to_string_lossy().into_owned();
        let above = root.path().join("x/../1/ab/artifacts").to_string_lossy().into_owned();
        for uri in [
            other.as_str(),
            above.as_str(),
            "/home/ada",
            "/no/such/1/ab/artifacts",
            "mlruns/1/ab/artifacts",
            "",
        ] {
            assert!(of(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn a_file_in_a_folder_is_whole_and_replaces_none_by_a_link() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("1/ab/artifacts");
        write(&folder, "a", &Artifact::Text("a", &|| "b".to_owned())).unwrap();
        assert_eq!(fs::read(folder.join("a")).unwrap(), b"b");
        let (kept, link) = (root.path().join("kept"), folder.join("c"));
        fs::write(&kept, "kept").unwrap();
        std::os::unix::fs::symlink(&kept, &link).unwrap();
        write(&folder, "c", &Artifact::File(&folder.join("a"))).unwrap();
        assert_eq!((fs::read(&kept).unwrap(), fs::read(&link).unwrap()), (b"kept".to_vec(), b"b".to_vec()));
        assert_eq!(names(&folder), BTreeSet::from(["a", "c"].map(str::to_owned)));
    }
}
