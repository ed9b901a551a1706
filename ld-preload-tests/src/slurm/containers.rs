//! Containers of steps: bundles whose programs and libraries are those of this machine, and an `oci.conf` for `runc`.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, lchown, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::{Slurm, find};
use crate::{child, programs, rig::PATIENCE};

/// Parts of a bundle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bundle<'a> {
    /// Its folder.
    pub name: &'a str,
    /// A user who makes it without rights of root: its container has a user namespace.
    pub user: Option<u32>,
    /// The container's user, if not root.
    pub inside: u32,
    /// Variables of the image.
    pub env: &'a [&'a str],
}

impl Slurm {
    /// Lets steps run in containers, with what `radrm cdi apply` brings into them or without. `false`, said aloud: a
    /// container of such a user cannot be made here.
    ///
    /// # Panics
    /// If its files cannot be written.
    pub fn allow_containers(&self, user: Option<u32>, is_applied: bool) -> bool {
        // Whether there are cgroups that it may use does not matter to what is tested.
        let runtime = |state: &str| format!("runc --rootless=true --root={state}");
        if find("runc").is_none() {
            eprintln!("skipped: runc is not installed (package runc)");
            return false;
        }
        let states = self.path("oci");
        fs::create_dir_all(&states).expect("directory");
        fs::set_permissions(&states, fs::Permissions::from_mode(0o1777)).expect("mode");
        let bundle = self.bundle(Bundle { name: "probe", user, ..Bundle::default() });
        with_further_mounts(&bundle.join("config.json"));
        // Containers of one name share a control group, also those of two clusters.
        let cluster = self.place.path().file_name().expect("a name").to_string_lossy();
        let words = format!(
            "exec {} run --no-new-keyring --bundle={} {cluster}.probe",
            runtime("$0"),
            bundle.display()
        );
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &words]).arg(states.join(format!("probe-{}", user.unwrap_or(0))));
        if let Some(uid) = user {
            command.uid(uid).gid(uid);
        }
        let ended = child::run(command, PATIENCE);
        if !ended.status.success() || ended.stdout != "a container\n" {
            eprintln!("skipped: runc makes no container here: {}", ended.stderr.trim());
            return false;
        }
        let runtime = runtime(&format!("{}/%u", states.display()));
        let id = format!("{cluster}.%n.%u.%j.%s.%t");
        let apply = if is_applied {
            format!("{} cdi apply %b -- ", self.path("radrm").display())
        } else {
            String::new()
        };
        let text = format!(
            "RunTimeQuery=\"{runtime} state {id}\"\nRunTimeKill=\"{runtime} kill {id} KILL\"\n\
             RunTimeDelete=\"{runtime} delete --force {id}\"\n\
             RunTimeRun=\"{apply}{runtime} run --no-new-keyring --bundle=%b {id}\"\n"
        );
        for node in 1..=self.machines.len() {
            fs::write(self.node_directory(node).join("oci.conf"), &text).expect("oci.conf");
        }
        true
    }

    /// A bundle. Its container has nothing of RADRM.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn bundle(&self, bundle: Bundle<'_>) -> PathBuf {
        let folder = self.path(bundle.name);
        let root = folder.join("rootfs");
        fs::create_dir_all(&root).expect("directory");
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}),
        ];
        let mut mount = |path: &Path| {
            let path = path.to_str().expect("text");
            mounts.push(
                json!({"destination": path, "type": "none", "source": path, "options": ["rbind", "ro"]}),
            );
        };
        mount(Path::new("/usr"));
        for name in ["bin", "sbin", "lib", "lib64"] {
            let path = Path::new("/").join(name);
            match fs::read_link(&path) {
                Ok(target) => symlink(target, root.join(name)).expect("link"),
                Err(_) if path.is_dir() => mount(&path),
                Err(_) => {}
            }
        }
        let asker = programs::compile("quota_ask.c", &[]);
        mount(&asker.parent().expect("a folder").canonicalize().expect("a path"));
        let mut namespaces = vec![json!({"type": "pid"}), json!({"type": "mount"})];
        let mut linux = json!({});
        if let Some(uid) = bundle.user {
            namespaces.push(json!({"type": "user"}));
            let mapping = json!([{"containerID": bundle.inside, "hostID": uid, "size": 1}]);
            linux = json!({"uidMappings": mapping, "gidMappings": mapping});
        }
        linux["namespaces"] = Value::from(namespaces);
        let variables: Vec<&str> =
            ["PATH=/usr/bin:/bin"].into_iter().chain(bundle.env.iter().copied()).collect();
        let text = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": bundle.inside, "gid": bundle.inside},
                "args": ["/bin/echo", "a container"],
                "env": variables,
                "cwd": "/",
                "noNewPrivileges": true,
            },
            "root": {"path": "rootfs", "readonly": false},
            "mounts": mounts,
            "linux": linux,
        });
        fs::write(folder.join("config.json"), text.to_string()).expect("config.json");
        if let Some(uid) = bundle.user {
            own(&folder, uid);
        }
        folder
    }
}

/// Mounts of the kinds that a step brings into its container.
fn with_further_mounts(configuration: &Path) {
    let mut text: Value =
        serde_json::from_slice(&fs::read(configuration).expect("config.json")).expect("JSON");
    let source = configuration.to_str().expect("text");
    for (destination, kind) in [("/probe/read", "ro"), ("/probe/written", "rw")] {
        let options = json!(["bind", kind, "nosuid", "nodev"]);
        let mount = json!({"destination": destination, "type": "bind", "source": source, "options": options});
        text["mounts"].as_array_mut().expect("mounts").push(mount);
    }
    fs::write(configuration, text.to_string()).expect("config.json");
}

/// Gives a folder and what is in it to a user.
fn own(path: &Path, uid: u32) {
    if fs::symlink_metadata(path).expect("a file").uid() != uid {
        lchown(path, Some(uid), Some(uid)).expect("an owner");
    }
    if fs::symlink_metadata(path).expect("a file").is_dir() {
        for entry in fs::read_dir(path).expect("a folder").flatten() {
            own(&entry.path(), uid);
        }
    }
}
