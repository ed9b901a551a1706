//! `radrm cdi generate`: devices of the Container Device Interface that bring programs, libraries and a limit into a
//! container.
//!
//! A device is a limit. Podman, Docker and containerd add its mounts and variables to the container that asks for it;
//! the container's command is `radrm-run`, which finds the limit as it finds that of a node: in a configuration file.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use radrm_cdi::{Device, Edits, Mount, Specification};
use radrm_limits::program::libraries;
use radrm_limits::requested::RequestedLimits;
use radrm_text::output::say;

use crate::container::ApplyFlags;
use crate::error::{FileProblem, UsageError};
use crate::{Failure, NAME, print, print_json};

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

/// Path of its device's limit in the container.
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
  radrm cdi generate 100% --limits-from-environment
  docker run --device nvidia.com/gpu=0 --device radrm.dev/limit=10GiB IMAGE radrm-run -- python3 train.py")]
    Generate(Flags),
    /// Give a container what its Slurm step has, then run its OCI runtime
    ///
    /// For oci.conf of Slurm: the limits and the recording of a step reach `srun --container` this way. The variables
    /// that Slurm's plug-in hands over, and the files that they name, are put into BUNDLE/config.json; then RUNTIME
    /// takes the place of this program. Without a plug-in that hands something over, RUNTIME runs as it is.
    #[command(after_long_help = "\
Examples:
  RunTimeRun=\"radrm cdi apply %b -- runc run --bundle %b %n.%u.%j.%s.%t\"")]
    Apply(ApplyFlags),
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
    /// Let variables of HAMi and of NVIDIA's container toolkit (CUDA_DEVICE_MEMORY_LIMIT, NVIDIA_GPU_MEMORY_LIMIT, ...) in
    /// a container tighten the limit of its device, unless the node's configuration forbids it
    #[arg(long)]
    limits_from_environment: bool,
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
        write(&file, &configuration(limit, flags.limits_from_environment))?;
        let mounts = [vec![Mount::read_only(file, LIMIT)], common.clone()].concat();
        let env = vec![format!("{}={LIMIT}", radrm_limits::files::FURTHER)];
        devices.push(Device { name, container_edits: Edits { env, mounts } });
    }
    let specification = Specification::new(KIND, devices);
    if flags.output.as_os_str() == "-" {
        return print_json(&specification);
    }
    specification.write(&flags.output).map_err(|error| at(&flags.output, error))?;
    print(&format!("{}: {} devices of {KIND}\n", flags.output.display(), specification.devices().len()))
}

/// The configuration of a container with this limit.
fn configuration(limit: &str, from_environment: bool) -> String {
    let permission = if from_environment { "limits-from-environment = true\n" } else { "" };
    format!("[job]\nmem-limit = \"{limit}\"\nmem-limit-max = \"{limit}\"\n{permission}")
}

/// The name of a limit's device, for limits that a name can say.
fn name(limit: &str) -> Option<String> {
    let name = limit.replace('%', "percent");
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
    (name.bytes().all(plain) && name.starts_with(|first: char| first.is_ascii_digit())).then_some(name)
}

/// Files that a node has for all containers.
#[derive(Clone, Copy)]
struct Node<'a> {
    /// Its limits.
    configuration: &'a Path,
    /// The ledgers of users and groups.
    ledgers: &'a Path,
}

impl Node<'_> {
    /// Limits that will not hold in containers, one sentence each: what is not there now cannot be mounted.
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
            mounts.push(Mount::shared_folder(ledgers.to_owned()));
        }
        mounts
    }
}

/// Mounts that every device has.
fn common(folder: &Path, preload: bool, node: Node<'_>) -> Result<Vec<Mount>, Failure> {
    let own = env::current_exe().map_err(|error| at(Path::new("radrm"), error))?;
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
    let inside = radrm_cdi::library;
    mounts.push(Mount::read_only(shim, inside(libraries::SHIM)));
    for emulated in EMULATED {
        mounts.extend(libraries::find(emulated).ok().map(|file| Mount::read_only(file, inside(emulated))));
    }
    let module = own.parent().and_then(python_module);
    mounts.extend(module.map(|module| Mount::read_only(module, inside("python/radrm"))));
    if preload {
        let list = folder.join("ld.so.preload");
        write(&list, &radrm_cdi::preload_list(libraries::SHIM))?;
        mounts.push(Mount::read_only(list, radrm_cdi::PRELOAD));
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

fn write(path: &Path, content: &str) -> Result<(), Failure> {
    radrm_cdi::write(path, content).map_err(|error| at(path, error))
}

fn at(path: &Path, error: io::Error) -> Failure {
    Failure::File { path: path.to_owned(), problem: FileProblem::Io(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_becomes_a_device_whose_name_says_it() {
        assert_eq!(name("10GiB").as_deref(), Some("10GiB"));
        assert_eq!(name("50%").as_deref(), Some("50percent"));
        assert_eq!(name("4Gi").as_deref(), Some("4Gi"));
        assert_eq!(name("0=10GiB,1=4GiB"), None);
        assert_eq!(name("none"), None);
    }

    #[test]
    fn only_a_permission_lets_variables_tighten_a_devices_limit() {
        for permitted in [false, true] {
            let text = configuration("10GiB", permitted);
            let read = radrm_limits::config::parse(Path::new("f.toml"), &text).expect("configuration");
            assert_eq!(read.job.limits_from_environment, permitted.then_some(true));
            assert_eq!(read.job.mem_limit_max.expect("a cap").to_string(), "10GiB");
        }
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
}
