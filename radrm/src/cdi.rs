//! `radrm cdi generate`: devices of the Container Device Interface that bring programs, libraries and a limit into a
//! container.
//!
//! A device is a limit. Podman, Docker and containerd add its mounts and variables to the container that asks for it;
//! the container's command is `radrm-run`, which finds the limit as it finds that of a node: in a configuration file.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use radrm_console::output::say;
use radrm_limits::program::libraries;
use radrm_limits::requested::RequestedLimits;
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::error::{FileProblem, UsageError};
use crate::{Failure, NAME, print, print_json};

/// The oldest version of the interface that has names and mounts as used here: newer runtimes take it too.
const VERSION: &str = "0.5.0";

/// Class of the devices: `--device radrm.dev/limit=10GiB`.
const KIND: &str = "radrm.dev/limit";

/// Limits for which there is a device where none are named.
const USUAL: [&str; 12] =
    ["1GiB", "2GiB", "4GiB", "8GiB", "10GiB", "16GiB", "20GiB", "24GiB", "32GiB", "40GiB", "64GiB", "80GiB"];

/// Programs of the container.
const PROGRAMS: [&str; 2] = ["radrm-run", "radrm"];

/// Libraries of emulated GPUs and of dry runs: a program with a GPU needs none of them.
const EMULATED: [&str; 3] =
    [libraries::EMULATED_CUDA, libraries::EMULATED_NVML, "libradrm_emulated_toolkit.so"];

/// The Python module below the folders of its packages.
const MODULE: &str = "radrm";

/// Where the container has the limit of its device.
const LIMIT: &str = "/etc/radrm/container.toml";

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Write a specification whose devices are limits
    ///
    /// Podman, Docker and containerd read it from /etc/cdi. A container that asks for `radrm.dev/limit=10GiB` gets the
    /// programs, the libraries, /run/radrm and a configuration that limits each job to 10 GiB on each GPU; its command
    /// is `radrm-run -- PROGRAM`. Run it again after an upgrade.
    #[command(after_long_help = "\
Examples:
  radrm cdi generate
  radrm cdi generate 10GiB 50%
  docker run --device nvidia.com/gpu=0 --device radrm.dev/limit=10GiB IMAGE radrm-run -- python3 train.py")]
    Generate(Flags),
}

/// Flags of `radrm cdi generate`.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// A limit for each device, as for radrm-run --mem-limit: 10GiB, 50% (its device is 50percent) [default: 1GiB to
    /// 80GiB]
    #[arg(value_name = "LIMIT")]
    limits: Vec<String>,
    /// Write the specification to FILE; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "/etc/cdi/radrm.json")]
    output: PathBuf,
    /// Write the limits' files, which containers mount, into FOLDER
    #[arg(long, value_name = "FOLDER", default_value = "/etc/radrm/cdi")]
    folder: PathBuf,
    /// Preload the shim into every program of the container (/etc/ld.so.preload), also where a program clears its
    /// environment; only for images with glibc
    #[arg(long)]
    preload: bool,
}

#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
struct Specification {
    cdi_version: &'static str,
    kind: &'static str,
    devices: Vec<Device>,
}

#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Edits,
}

#[derive(Serialize, Debug)]
struct Edits {
    env: Vec<String>,
    mounts: Vec<Mount>,
}

#[derive(Serialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: PathBuf,
    container_path: PathBuf,
    options: [&'static str; 4],
}

impl Mount {
    fn read_only(host_path: PathBuf, container_path: impl Into<PathBuf>) -> Self {
        Self { host_path, container_path: container_path.into(), options: ["bind", "ro", "nosuid", "nodev"] }
    }
}

/// Writes the specification and the files that its devices mount.
///
/// # Errors
/// A limit is wrong, the programs or libraries are missing, or a file cannot be written.
pub(crate) fn generate(flags: &Flags) -> Result<(), Failure> {
    let named: Vec<&str> = match flags.limits.is_empty() {
        true => USUAL.to_vec(),
        false => flags.limits.iter().map(String::as_str).collect(),
    };
    for limit in &named {
        RequestedLimits::parse(limit)?;
        if name(limit).is_none() {
            return Err(UsageError::NoDevice((*limit).to_owned()).into());
        }
    }
    let folder = std::path::absolute(&flags.folder).map_err(|error| at(&flags.folder, error))?;
    let node = Node {
        configuration: Path::new(radrm_limits::files::SYSTEM),
        ledgers: Path::new(radrm_limits::ledgers::RUNTIME),
    };
    for sentence in node.missing() {
        say(NAME, &sentence);
    }
    let common = common(&folder, flags.preload, node)?;
    let mut devices = Vec::new();
    for limit in named {
        let Some(name) = name(limit) else { continue };
        let file = folder.join(format!("{name}.toml"));
        write(&file, &format!("[job]\nmem-limit = \"{limit}\"\nmem-limit-max = \"{limit}\"\n"))?;
        let mounts = [vec![Mount::read_only(file, LIMIT)], common.clone()].concat();
        let env = vec![format!("{}={LIMIT}", radrm_limits::files::FURTHER)];
        devices.push(Device { name, container_edits: Edits { env, mounts } });
    }
    let specification = Specification { cdi_version: VERSION, kind: KIND, devices };
    if flags.output.as_os_str() == "-" {
        return print_json(&specification);
    }
    let text = serde_json::to_string_pretty(&specification)?;
    write(&flags.output, &format!("{text}\n"))?;
    print(&format!("{}: {} devices of {KIND}\n", flags.output.display(), specification.devices.len()))
}

/// The name of a limit's device, for limits that a name can say.
fn name(limit: &str) -> Option<String> {
    let name = limit.replace('%', "percent");
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
    (name.bytes().all(plain) && name.starts_with(|first: char| first.is_ascii_digit())).then_some(name)
}

/// What a node has for all containers.
#[derive(Clone, Copy)]
struct Node<'a> {
    /// Its limits.
    configuration: &'a Path,
    /// The ledgers of users and groups.
    ledgers: &'a Path,
}

impl Node<'_> {
    /// What will not hold in containers: what is not there now cannot be mounted. One sentence each.
    fn missing(self) -> Vec<String> {
        let Node { configuration, ledgers } = self;
        let mut missing = Vec::new();
        if !configuration.is_file() {
            missing.push(format!(
                "{} is not there: containers get the limit of their device and none of this node's; \
                 run this command again when the file is written",
                configuration.display()
            ));
        }
        if !ledgers.is_dir() {
            missing.push(format!(
                "{} is not there: no limit of a user or group holds across containers; enable the units and run \
                 this command again",
                ledgers.display()
            ));
        }
        missing
    }

    fn mounts(self) -> Vec<Mount> {
        let Node { configuration, ledgers } = self;
        let mut mounts = Vec::new();
        // The node's own limits hold inside as well, and are counted in the same ledgers.
        if configuration.is_file() {
            mounts.push(Mount::read_only(configuration.to_owned(), configuration));
        }
        if ledgers.is_dir() {
            let options = ["rbind", "rw", "nosuid", "nodev"];
            mounts.push(Mount { host_path: ledgers.to_owned(), container_path: ledgers.to_owned(), options });
        }
        mounts
    }
}

/// What every device mounts.
fn common(folder: &Path, preload: bool, node: Node<'_>) -> Result<Vec<Mount>, Failure> {
    let own = std::env::current_exe().map_err(|error| at(Path::new("radrm"), error))?;
    let mut mounts = Vec::new();
    for program in PROGRAMS {
        let file = own.with_file_name(program);
        if !file.is_file() {
            return Err(Failure::File { path: file, problem: FileProblem::NotInstalled });
        }
        mounts.push(Mount::read_only(file, format!("/usr/bin/{program}")));
    }
    let shim = libraries::find(libraries::SHIM)?;
    libraries::check_preload(&shim)?;
    let inside = |name: &str| format!("/usr/lib/radrm/{name}");
    mounts.push(Mount::read_only(shim, inside(libraries::SHIM)));
    for emulated in EMULATED {
        mounts.extend(libraries::find(emulated).ok().map(|file| Mount::read_only(file, inside(emulated))));
    }
    let module = own.parent().and_then(python_module);
    mounts.extend(module.map(|module| Mount::read_only(module, inside("python/radrm"))));
    if preload {
        let list = folder.join("ld.so.preload");
        write(&list, &format!("{}\n", inside(libraries::SHIM)))?;
        mounts.push(Mount::read_only(list, "/etc/ld.so.preload"));
    }
    mounts.extend(node.mounts());
    Ok(mounts)
}

/// The Python module, where a package has put it beside the folder of its programs: the tarball and the .rpm into
/// `lib/radrm/python`, the .deb into Debian's folder, the wheel into that of its environment.
fn python_module(programs: &Path) -> Option<PathBuf> {
    let libraries = programs.parent()?.join("lib");
    let environments = fs::read_dir(&libraries).into_iter().flatten().flatten();
    let environments = environments.map(|entry| entry.path().join("site-packages"));
    [libraries.join("radrm/python"), libraries.join("python3/dist-packages")]
        .into_iter()
        .chain(environments)
        .map(|folder| folder.join(MODULE))
        .find(|module| module.join("__init__.py").is_file())
}

/// Replaces a file as a whole: a container runtime may read it at any moment.
fn write(path: &Path, content: &str) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let replace = || {
        fs::create_dir_all(folder)?;
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(content.as_bytes())?;
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    replace().map_err(|error| at(path, error))
}

fn at(path: &Path, error: std::io::Error) -> Failure {
    Failure::File { path: path.to_owned(), problem: FileProblem::Io(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn keys(value: &Value) -> BTreeSet<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn a_limit_becomes_a_device_whose_name_says_it() {
        assert_eq!(name("10GiB").as_deref(), Some("10GiB"));
        assert_eq!(name("50%").as_deref(), Some("50percent"));
        assert_eq!(name("0=10GiB,1=4GiB"), None);
        assert_eq!(name("none"), None);
    }

    #[test]
    fn what_a_container_will_not_get_is_said_in_one_sentence_each() {
        let folder = tempfile::tempdir().unwrap();
        let (configuration, ledgers) = (folder.path().join("radrm.toml"), folder.path().join("run"));
        let node = Node { configuration: &configuration, ledgers: &ledgers };
        let missing = node.missing();
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].contains("radrm.toml") && missing[1].contains("enable the units"), "{missing:?}");
        assert!(node.mounts().is_empty());
        fs::write(&configuration, "").unwrap();
        fs::create_dir(&ledgers).unwrap();
        assert!(node.missing().is_empty());
        let mounts: Vec<_> = node.mounts().into_iter().map(|mount| mount.container_path).collect();
        assert_eq!(mounts, [configuration, ledgers]);
    }

    #[test]
    fn the_python_module_is_found_where_each_package_puts_it() {
        for folder in ["radrm/python", "python3/dist-packages", "python3.13/site-packages"] {
            let prefix = tempfile::tempdir().unwrap();
            let programs = prefix.path().join("bin");
            assert_eq!(python_module(&programs), None);
            let module = prefix.path().join("lib").join(folder).join("radrm");
            fs::create_dir_all(&module).unwrap();
            fs::write(module.join("__init__.py"), "").unwrap();
            assert_eq!(python_module(&programs), Some(module));
        }
    }

    /// The published schema permits no further keys, and wants these types.
    #[test]
    fn the_specification_has_the_published_form() {
        let mount = Mount::read_only("/a".into(), "/b");
        let edits = Edits { env: vec!["A=b".into()], mounts: vec![mount] };
        let device = Device { name: "10GiB".into(), container_edits: edits };
        let whole = Specification { cdi_version: VERSION, kind: KIND, devices: vec![device] };
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
}
