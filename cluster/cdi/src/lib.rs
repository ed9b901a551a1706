//! Specifications of the Container Device Interface (CDI), by which container runtimes add mounts and variables to a
//! container, and where containers have what RADRM brings into them.

pub mod bundle;

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The oldest version of the interface that has names and mounts as used here: newer runtimes take it too.
const VERSION: &str = "0.5.0";

/// The folder of the libraries in a container.
const LIBRARIES: &str = "/usr/lib/radrm";

/// The file in which the loader of glibc finds what it preloads into every program.
pub const PRELOAD: &str = "/etc/ld.so.preload";

/// Path of a library in a container.
#[must_use]
pub fn library(name: &str) -> PathBuf {
    Path::new(LIBRARIES).join(name)
}

/// The content of a [`PRELOAD`] that preloads this library of a container.
#[must_use]
pub fn preload_list(name: &str) -> String {
    format!("{}\n", library(name).display())
}

/// A file of devices.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Specification {
    cdi_version: &'static str,
    kind: &'static str,
    devices: Vec<Device>,
}

impl Specification {
    /// Devices of this kind: `VENDOR/CLASS`.
    #[must_use]
    pub fn new(kind: &'static str, devices: Vec<Device>) -> Self {
        Self { cdi_version: VERSION, kind, devices }
    }

    /// The devices.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Replaces the file as a whole: a container runtime may read it at any moment.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        write(path, &format!("{text}\n"))
    }
}

/// A device: what a container gets that asks for it.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Letters, digits, and `-_.:` between them.
    pub name: String,
    /// Changes of the container.
    pub container_edits: Edits,
}

/// Changes of a container.
#[derive(Serialize, Debug)]
pub struct Edits {
    /// Variables, `NAME=VALUE`. They replace those of the container.
    pub env: Vec<String>,
    /// Mounts.
    pub mounts: Vec<Mount>,
}

/// A file or folder of the node in a container.
#[derive(Serialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Path on the node.
    pub host_path: PathBuf,
    /// Path in the container.
    pub container_path: PathBuf,
    options: Vec<&'static str>,
}

impl Mount {
    /// One that the container can read.
    #[must_use]
    pub fn read_only(host_path: PathBuf, container_path: impl Into<PathBuf>) -> Self {
        Self::with(host_path, container_path, &["bind", "ro", "nosuid", "nodev"])
    }

    /// A file that the container can write. No process can execute it.
    #[must_use]
    pub fn writable_file(host_path: PathBuf, container_path: impl Into<PathBuf>) -> Self {
        Self::with(host_path, container_path, &["bind", "rw", "nosuid", "nodev", "noexec"])
    }

    /// A folder of the node with everything that is mounted below it, at the same place in the container.
    #[must_use]
    pub fn shared_folder(path: PathBuf) -> Self {
        Self::with(path.clone(), path, &["rbind", "rw", "nosuid", "nodev"])
    }

    fn with(host_path: PathBuf, container_path: impl Into<PathBuf>, options: &[&'static str]) -> Self {
        Self { host_path, container_path: container_path.into(), options: options.to_vec() }
    }
}

/// Prefix of the names of a file's drafts: a writer that is killed leaves one.
#[must_use]
pub fn draft(name: &str) -> String {
    format!(".{name}")
}

/// Writes a file that all can read, and replaces it as a whole. Makes its folder.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, content: &str) -> io::Result<()> {
    replace(path, content, 0o644)
}

fn replace(path: &Path, content: &str, mode: u32) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut file = tempfile::Builder::new().prefix(&(draft(&name) + ".")).tempfile_in(folder)?;
    file.write_all(content.as_bytes())?;
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn keys(value: &Value) -> BTreeSet<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    /// The published schema permits no further keys, and wants these types.
    #[test]
    fn the_specification_has_the_published_form() {
        let mount = Mount::read_only("/a".into(), "/b");
        let edits = Edits { env: vec!["A=b".into()], mounts: vec![mount] };
        let device = Device { name: "10GiB".into(), container_edits: edits };
        let whole = Specification::new("radrm.dev/limit", vec![device]);
        let whole = serde_json::to_value(whole).unwrap();
        assert_eq!(keys(&whole), BTreeSet::from(["cdiVersion", "kind", "devices"]));
        let device = &whole["devices"][0];
        assert_eq!(keys(device), BTreeSet::from(["name", "containerEdits"]));
        assert_eq!(keys(&device["containerEdits"]), BTreeSet::from(["env", "mounts"]));
        let mount = &device["containerEdits"]["mounts"][0];
        assert_eq!(keys(mount), BTreeSet::from(["hostPath", "containerPath", "options"]));
        assert!(mount["options"].is_array() && device["containerEdits"]["env"][0].is_string());
        let (vendor, class) = whole["kind"].as_str().unwrap().split_once('/').unwrap();
        assert!(vendor.contains('.') && !class.is_empty());
    }

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cdi/a.json");
        for text in ["first", "second"] {
            write(&file, text).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "drafts are gone");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    }
}
