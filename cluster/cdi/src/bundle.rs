//! Bundles of the Open Container Initiative, from which a runtime makes a container: what a workload manager's task
//! brings into one that it starts by itself.
//!
//! The files that the variables name have the same paths in the container as on the node.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use radrm_limits::program::environment::Environment;
use radrm_limits::program::given::Given;
use rustix::fs::{StatVfsMountFlags, statvfs};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::{Mount, replace};

/// The configuration in a bundle.
const CONFIGURATION: &str = "config.json";

/// Reason that a container does not get the changes meant for it, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum BundleError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is no configuration of a container: {why}", path.display())]
    Configuration { path: PathBuf, why: String },
    #[error("{} has no file that a container can mount", .0.display())]
    NoFile(PathBuf),
    #[error("{}: the name has bytes that a container's configuration cannot state", .0.display())]
    Name(PathBuf),
    #[error(
        "the container's user {inside} is user {} on this node, and the job belongs to user {own}: let `process.user` \
         of the bundle be the job's user",
        on_node.map_or_else(|| "unknown".to_owned(), |id| id.to_string())
    )]
    User { inside: u64, on_node: Option<u64>, own: u32 },
}

/// Lets the container of a bundle have these variables, and the files that they name. Its configuration is replaced as a
/// whole.
///
/// # Errors
/// [`BundleError`]; the configuration is what it was.
pub fn apply(bundle: &Path, given: &Given) -> Result<(), BundleError> {
    let path = bundle.join(CONFIGURATION);
    let io = |source| BundleError::Io { path: path.clone(), source };
    let mode = fs::metadata(&path).map_err(io)?.permissions().mode() & 0o777;
    let mut configuration = read(&path)?;
    let own = rustix::process::geteuid().as_raw();
    edit(&mut configuration, given, own).map_err(|error| match error {
        Problem::Form(why) => BundleError::Configuration { path: path.clone(), why: why.to_owned() },
        Problem::Other(error) => error,
    })?;
    let text = serde_json::to_string(&configuration).map_err(|error| io(error.into()))?;
    replace(&path, &text, mode).map_err(io)
}

/// The command line that a bundle's configuration has. A program that is mounted there is named as the node has it.
#[must_use]
pub fn command(bundle: &Path) -> Option<Vec<OsString>> {
    let configuration = read(&bundle.join(CONFIGURATION)).ok()?;
    let words = configuration.pointer("/process/args")?.as_array()?;
    let mut words: Vec<OsString> =
        words.iter().map(|word| word.as_str().map(OsString::from)).collect::<Option<_>>()?;
    let program = words.first_mut()?;
    let mounts = configuration.get("mounts").and_then(Value::as_array);
    let mount =
        mounts.into_iter().flatten().rev().find(|mount| mount["destination"].as_str() == program.to_str());
    if let Some(source) = mount.and_then(|mount| mount["source"].as_str()) {
        *program = source.into();
    }
    Some(words)
}

fn read(path: &Path) -> Result<Value, BundleError> {
    let text = fs::read(path).map_err(|source| BundleError::Io { path: path.to_owned(), source })?;
    serde_json::from_slice(&text)
        .map_err(|error| BundleError::Configuration { path: path.to_owned(), why: error.to_string() })
}

/// Obstacle to an edit.
#[derive(Debug)]
enum Problem {
    /// The configuration has another form than the specification states.
    Form(&'static str),
    Other(BundleError),
}

impl From<BundleError> for Problem {
    fn from(error: BundleError) -> Self {
        Self::Other(error)
    }
}

/// Changes a configuration for a job of the user `own`.
fn edit(configuration: &mut Value, given: &Given, own: u32) -> Result<(), Problem> {
    check_user(configuration, own)?;
    let process = configuration.get_mut("process").and_then(Value::as_object_mut);
    let process = process.ok_or(Problem::Form("it has no `process`"))?;
    let variables = list(process, "env").ok_or(Problem::Form("`process.env` is not a list"))?;
    let entries = variables.iter().filter_map(|entry| CString::new(entry.as_str()?).ok());
    let mut environment = Environment::from_entries(entries.collect());
    given.enter(&mut environment);
    let text = |entry: &CString| Some(Value::from(entry.to_str().ok()?));
    let entries: Option<Vec<Value>> = environment.entries().iter().map(text).collect();
    *variables = entries.ok_or_else(|| BundleError::Name("a variable".into()))?;
    let mounts = given.variables.iter().map(|(name, value)| files(name, value));
    let mounts: Vec<Mount> = mounts.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    let configuration = configuration.as_object_mut().ok_or(Problem::Form("it is not an object"))?;
    let list = list(configuration, "mounts").ok_or(Problem::Form("`mounts` is not a list"))?;
    let mut known: Vec<&Path> = Vec::new();
    for mount in &mounts {
        if !known.contains(&mount.container_path.as_path()) {
            known.push(&mount.container_path);
            list.push(entry(mount)?);
        }
    }
    Ok(())
}

/// A list in an object, which is made if it is not there.
fn list<'a>(object: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Vec<Value>> {
    let value = object.entry(name).or_insert_with(|| json!([]));
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut()
}

/// A process of another user than the job's could open none of its files, and would get no memory.
fn check_user(configuration: &Value, own: u32) -> Result<(), BundleError> {
    let inside = configuration.pointer("/process/user/uid").and_then(Value::as_u64).unwrap_or(0);
    let listed =
        |pointer: &str| configuration.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let on_node = match listed("/linux/namespaces").any(|namespace| namespace["type"] == "user") {
        false => Some(inside),
        true => listed("/linux/uidMappings").find_map(|mapping| {
            let number = |name: &str| mapping[name].as_u64();
            let offset = inside.checked_sub(number("containerID")?)?;
            (offset < number("size")?).then_some(number("hostID")?.checked_add(offset)?)
        }),
    };
    if on_node == Some(u64::from(own)) { Ok(()) } else { Err(BundleError::User { inside, on_node, own }) }
}

/// The files that a variable names.
fn files(name: &[u8], value: &[u8]) -> Result<Vec<Mount>, BundleError> {
    let paths = || {
        let items = value.split(|byte| *byte == b':').filter(|item| item.starts_with(b"/"));
        items.map(|item| PathBuf::from(OsString::from_vec(item.to_vec())))
    };
    let folder = |path: &Path| path.parent().map(|folder| Mount::shared_folder(folder.to_owned()));
    Ok(match name {
        b"LD_PRELOAD" | b"NVTX_INJECTION64_PATH" => paths().map(same).collect(),
        b"LD_LIBRARY_PATH" => {
            let mut mounts = Vec::new();
            for path in paths() {
                let io = |source| BundleError::Io { path: path.clone(), source };
                // The emulated libraries are links to those of the package.
                for entry in fs::read_dir(&path).map_err(io)? {
                    let file = entry.map_err(io)?.path();
                    mounts.extend(file.is_symlink().then(|| file.canonicalize().ok()).flatten().map(same));
                }
                mounts.push(same(path));
            }
            mounts
        }
        b"RADRM_SEGMENT" => paths().map(|path| Mount::writable_file(path.clone(), path)).collect(),
        // A process reads the ledgers of others beside its own, and makes that of an emulated device.
        b"RADRM_LEDGERS" | b"RADRM_EMULATED_MACHINE" => paths().filter_map(|path| folder(&path)).collect(),
        b"CUDA_MPS_PIPE_DIRECTORY" => paths().map(Mount::shared_folder).collect(),
        _ => Vec::new(),
    })
}

fn same(path: PathBuf) -> Mount {
    Mount::read_only(path.clone(), path)
}

/// A mount as a bundle has it.
fn entry(mount: &Mount) -> Result<Value, BundleError> {
    let Mount { host_path, container_path, options } = mount;
    // What has no name, as a segment does that lies in no file system, cannot be mounted.
    let found = fs::metadata(host_path).map_err(|_| BundleError::NoFile(host_path.clone()))?;
    if host_path.starts_with("/proc") || !(found.is_file() || found.is_dir()) {
        return Err(BundleError::NoFile(host_path.clone()));
    }
    let mut options = options.clone();
    // A user namespace may not take off what the node has put on.
    if let Ok(system) = statvfs(host_path) {
        let flags = [(StatVfsMountFlags::NOEXEC, "noexec"), (StatVfsMountFlags::RDONLY, "ro")];
        let further =
            flags.into_iter().filter(|(flag, word)| system.f_flag.contains(*flag) && !options.contains(word));
        let further: Vec<&str> = further.map(|(_, word)| word).collect();
        options.retain(|word| *word != "rw" || !further.contains(&"ro"));
        options.extend(further);
    }
    let text =
        |path: &Path| path.to_str().map(str::to_owned).ok_or_else(|| BundleError::Name(path.to_owned()));
    Ok(json!({
        "destination": text(container_path)?,
        "type": "bind",
        "source": text(host_path)?,
        "options": options,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(variables: &[(&str, &str)]) -> Given {
        let bytes = |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        Given { is_limited: true, variables: variables.iter().map(bytes).collect() }
    }

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// A container of this process's user.
    fn configuration() -> Value {
        json!({"process": {"user": {"uid": own()}, "args": ["a"], "env": ["A=1", "RADRM_SEGMENT=/forged"]}, "kept": 1.5})
    }

    #[test]
    fn a_container_gets_the_variables_and_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for name in ["shim.so", "segment", "real.so"] {
            fs::write(path(name), "").unwrap();
        }
        fs::create_dir(path("libraries")).unwrap();
        fs::create_dir(path("scope")).unwrap();
        std::os::unix::fs::symlink(path("real.so"), path("libraries/libcuda.so")).unwrap();
        let (shim, segment, libraries) = (path("shim.so"), path("segment"), path("libraries"));
        let ledgers = format!("{0}/1000:{0}/2000", path("scope"));
        let variables = [
            ("LD_PRELOAD", shim.as_str()),
            ("NVTX_INJECTION64_PATH", &shim),
            ("RADRM_SEGMENT", &segment),
            ("RADRM_LEDGERS", &ledgers),
            ("RADRM_QUOTA", "1"),
            ("LD_LIBRARY_PATH", &libraries),
        ];
        let mut edited = configuration();
        edit(&mut edited, &given(&variables), own()).unwrap();
        let entries: Vec<&str> =
            edited["process"]["env"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(entries.contains(&format!("RADRM_SEGMENT={segment}").as_str()) && entries.contains(&"A=1"));
        assert!(
            entries.contains(&"RADRM_QUOTA=1") && !entries.contains(&"RADRM_SEGMENT=/forged"),
            "{entries:?}"
        );
        assert_eq!((&edited["kept"], &edited["process"]["args"]), (&json!(1.5), &json!(["a"])));
        let mounts: Vec<(&str, bool)> = edited["mounts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mount| {
                assert_eq!(mount["source"], mount["destination"]);
                let options: Vec<&str> =
                    mount["options"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
                assert!(options.contains(&"nosuid") && options.contains(&"nodev"), "{options:?}");
                (mount["source"].as_str().unwrap(), options.contains(&"rw"))
            })
            .collect();
        let (real, scope) = (path("real.so"), path("scope"));
        let expected =
            [(shim.as_str(), false), (&segment, true), (&scope, true), (&real, false), (&libraries, false)];
        assert_eq!(mounts, expected);
    }

    #[test]
    fn a_container_of_another_user_is_refused() {
        let namespace = |mappings: Value| json!({"process": {"user": {"uid": 5}}, "linux": {"namespaces": [{"type": "user"}], "uidMappings": mappings}});
        let mapping = |inside: u64, size: u64| json!([{"containerID": inside, "hostID": 1000, "size": size}]);
        assert!(check_user(&namespace(mapping(5, 1)), 1000).is_ok());
        assert!(check_user(&namespace(mapping(0, 10)), 1005).is_ok());
        for (mappings, own) in
            [(mapping(5, 1), 5), (mapping(6, 9), 1000), (mapping(0, 5), 1005), (json!([]), 5)]
        {
            let error = check_user(&namespace(mappings), own).unwrap_err().to_string();
            assert!(error.contains("the container's user 5"), "{error}");
        }
        assert!(check_user(&json!({"process": {}}), 0).is_ok());
        assert!(check_user(&json!({"process": {"user": {"uid": 5}}}), 0).is_err());
    }

    #[test]
    fn what_cannot_be_mounted_is_named() {
        let mut edited = configuration();
        for segment in ["/nowhere/at/all", "/proc/self/status", "/dev/null"] {
            let error = edit(&mut edited, &given(&[("RADRM_SEGMENT", segment)]), own());
            let Err(Problem::Other(error)) = error else { panic!("{error:?}") };
            assert!(error.to_string().starts_with(segment), "{error}");
        }
    }

    #[test]
    fn a_file_of_another_form_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(CONFIGURATION);
        assert!(matches!(apply(folder.path(), &given(&[])), Err(BundleError::Io { .. })));
        let user = format!(r#"{{"process":{{"user":{{"uid":{}}},"env":7}}}}"#, own());
        for text in ["{", "[]", "{}", &user] {
            fs::write(&file, text).unwrap();
            let error = apply(folder.path(), &given(&[])).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }

    #[test]
    fn a_changed_file_is_no_more_open_than_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(CONFIGURATION);
        fs::write(&file, configuration().to_string()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        apply(folder.path(), &given(&[("RADRM_QUOTA", "1")])).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read_to_string(&file).unwrap().contains("RADRM_QUOTA=1"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the runtime's owner removes one file");
    }

    #[test]
    fn the_command_names_the_script_that_is_mounted() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(command(folder.path()), None);
        let mut text = configuration();
        text["process"]["args"] = json!(["/tmp/startup", "b"]);
        text["mounts"] = json!([{"destination": "/tmp/startup", "source": "/spool/script"}]);
        fs::write(folder.path().join(CONFIGURATION), text.to_string()).unwrap();
        assert_eq!(command(folder.path()).unwrap(), ["/spool/script", "b"]);
    }
}
