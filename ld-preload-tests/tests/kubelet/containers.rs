//! Limits in containers: a runner gives a process what a specification says, in mount and pid namespaces and a root of
//! its own, as an OCI runtime does. The programs in it are ordinary ones, which nothing wraps.

use std::{
    fmt::Write as _,
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use radrm_kubelet::messages::Claim;
use radrm_preload_tests::{
    artifacts,
    child::{self, Running},
    programs,
    rig::{PATIENCE, Rig},
};
use radrm_telemetry::layout::{SLOTS, SlotState, entry_at};
use serde_json::Value;

use super::node::{MIB, Node};

/// The user of the containers, where the tests are root's: another one than the plug-in's.
const USER: u32 = 64_001;

/// Folders of the image: the system's own programs and libraries.
const IMAGE: &str = r#"
for folder in usr/bin usr/lib64 usr/lib/x86_64-linux-gnu usr/lib/aarch64-linux-gnu; do
    if [ -d "/$folder" ]; then mkdir -p "$root/$folder"; mount --bind "/$folder" "$root/$folder"; fi
done
ln -s usr/bin "$root/bin"; ln -s usr/lib "$root/lib"; ln -s usr/lib64 "$root/lib64"
mkdir -p "$root/proc" "$root/dev" "$root/etc" "$root/tmp"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
cp /etc/ld.so.cache "$root/etc/" 2>/dev/null || true
"#;

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A way into namespaces of one's own; `None`, said aloud, where there is none.
fn namespaces() -> Option<Vec<&'static str>> {
    let mut words = vec!["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"];
    if !is_root() {
        words.extend(["--user", "--map-root-user"]);
    }
    let may = Command::new(words[0]).args(&words[1..]).arg("true").status();
    if may.is_ok_and(|status| status.success()) {
        return Some(words);
    }
    eprintln!("skipped: this system gives no namespaces");
    None
}

/// Lets the containers' user reach the emulated machine.
fn open(rig: &Rig) {
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
    mode(rig.path(), 0o1777);
    mode(&rig.machine_path(), 0o666);
}

/// A program in a container with the devices of these claims.
fn container(node: &Node, claims: &[&Claim], env: &[&str], program: &Path, arguments: &[&str]) -> Command {
    let words = namespaces().expect("namespaces");
    let mut script = String::from("set -e\nroot=$(mktemp -d)\nmount -t tmpfs -o mode=755 root \"$root\"\n");
    script.push_str(IMAGE);
    // The emulated GPU: its driver, its machine, and the test's programs.
    let steps = programs::compile("steps.c", &[]);
    for folder in [node.rig.path(), artifacts::directory(), steps.parent().expect("a folder")] {
        let folder = folder.canonicalize().expect("a path");
        writeln!(script, "mkdir -p \"$root{0}\"; mount --rbind '{0}' \"$root{0}\"", folder.display())
            .expect("text");
    }
    let mut variables: Vec<String> = env.iter().map(|entry| (*entry).to_owned()).collect();
    variables.push(format!("LD_LIBRARY_PATH={}", node.rig.libraries().display()));
    variables.push(format!("RADRM_EMULATED_MACHINE={}", node.rig.machine_path().display()));
    for claim in claims {
        let edits =
            node.specification(claim).expect("a specification")["devices"][0]["containerEdits"].clone();
        let texts = |value: &Value| -> Vec<String> {
            value
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|text| Some(text.as_str()?.to_owned()))
                .collect()
        };
        for entry in texts(&edits["env"]) {
            // An entry of the specification replaces the container's.
            let name = entry.split('=').next().unwrap_or_default().to_owned() + "=";
            variables.retain(|known| !known.starts_with(&name));
            variables.push(entry);
        }
        for mount in edits["mounts"].as_array().expect("mounts") {
            let (host, inside) = (
                mount["hostPath"].as_str().expect("a path"),
                mount["containerPath"].as_str().expect("a path"),
            );
            let options = texts(&mount["options"]).join(",");
            let further = options.replace("bind,", "remount,bind,");
            writeln!(
                script,
                "mkdir -p \"$(dirname \"$root{inside}\")\"; [ -e \"$root{inside}\" ] || : > \"$root{inside}\"\n\
                 mount --bind '{host}' \"$root{inside}\"; mount -o {further} \"$root{inside}\""
            )
            .expect("text");
        }
    }
    let user = match is_root() {
        true => format!("setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs --"),
        false => String::new(),
    };
    let variables: Vec<String> = variables.iter().map(|entry| format!("'{entry}'")).collect();
    let variables = variables.join(" ");
    writeln!(script, "exec chroot \"$root\" {user} /usr/bin/env -i PATH=/usr/bin {variables} \"$@\"")
        .expect("text");
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["/bin/sh", "-c", &script, "container"]).arg(program).args(arguments);
    command
}

fn start(node: &Node, claims: &[&Claim], env: &[&str], program: &Path, arguments: &[&str]) -> Running {
    let mut running = Running::start(container(node, claims, env, program, arguments), 4 * PATIENCE);
    running.until_ready();
    running
}

fn asks(asker: &mut Running, bytes: u64) -> bool {
    match asker.ask(&bytes.to_string()).as_str() {
        "granted" => true,
        "refused" => false,
        other => panic!("the asker said {other:?}"),
    }
}

fn tools() -> (PathBuf, PathBuf) {
    (programs::compile("quota_ask.c", &[]), programs::compile("steps.c", &[]))
}

#[test]
fn a_claim_limits_all_its_containers_together() {
    let (true, mut node) = (namespaces().is_some(), Node::new("2xA100-40GB")) else { return };
    open(&node.rig);
    let kubelet = node.kubelet();
    let devices = node.devices();
    let claim = node.allocate("train", &[(&devices[0].0, 1024 * MIB)]);
    let other = node.allocate("other", &[(&devices[0].0, 4096 * MIB)]);
    kubelet.prepared(&claim);
    kubelet.prepared(&other);
    let (asking, steps) = tools();
    // What a user puts into the pod does not lift the limit.
    let forged = ["RADRM_DISABLE=1", "RADRM_QUOTA=", "RADRM_SEGMENT=/nowhere"];
    let mut first = start(&node, &[&claim], &forged, &asking, &[]);
    assert!(asks(&mut first, 1024 * MIB) && !asks(&mut first, 1026 * MIB));
    let holder = start(&node, &[&claim], &[], &steps, &["use:0", "alloc:a:600m", "pause"]);
    assert!(!asks(&mut first, 426 * MIB), "the other container's memory was given away");
    assert!(asks(&mut first, 424 * MIB));
    let mut neighbour = start(&node, &[&other], &[], &asking, &[]);
    assert!(
        asks(&mut neighbour, 4096 * MIB) && !asks(&mut neighbour, 4098 * MIB),
        "another claim has its own limit"
    );
    holder.kill();
    assert!(asks(&mut first, 1024 * MIB), "a killed container's share comes back");
    // The limit is where the plug-in is not.
    node.stop(libc::SIGKILL);
    let holder = start(&node, &[&claim], &[], &steps, &["use:0", "alloc:a:600m", "pause"]);
    assert!(!asks(&mut first, 426 * MIB) && asks(&mut first, 424 * MIB));
    node.start();
    assert!(!asks(&mut first, 426 * MIB) && asks(&mut first, 424 * MIB));
    for one in [first, holder, neighbour] {
        one.kill();
    }
}

#[test]
fn a_gpu_that_a_claim_does_not_have_has_no_memory() {
    let (true, mut node) = (namespaces().is_some(), Node::new("2xA100-40GB")) else { return };
    open(&node.rig);
    let kubelet = node.kubelet();
    let devices = node.devices();
    let claims = [
        node.allocate("a", &[(&devices[0].0, 1024 * MIB)]),
        node.allocate("b", &[(&devices[1].0, 2048 * MIB)]),
    ];
    for claim in &claims {
        kubelet.prepared(claim);
    }
    let (_, steps) = tools();
    let both: Vec<&Claim> = claims.iter().collect();
    // A context is memory too.
    for (claims, expected) in [
        (&both[..1], &["use:0", "alloc:a:1000m", "!primary:1"][..]),
        // Two claims in one container: one limit holds, and nothing beyond either.
        (&both[..], &["init", "!primary:0", "use:1", "alloc:b:2000m"]),
    ] {
        let running = start(&node, claims, &[], &steps, &[expected, &["pause"]].concat());
        running.kill();
    }
}

#[test]
fn places_of_ended_processes_are_given_to_later_ones() {
    let (true, mut node) = (namespaces().is_some(), Node::new("A100-40GB")) else { return };
    open(&node.rig);
    let kubelet = node.kubelet();
    let device = node.devices()[0].0.clone();
    let claim = node.allocate("many", &[(&device, 1024 * MIB)]);
    kubelet.prepared(&claim);
    node.stop(libc::SIGKILL);
    // As if as many processes had run as a segment has places for.
    let mut ended = Command::new("true").spawn().expect("a process");
    ended.wait().expect("its end");
    let segment =
        OpenOptions::new().write(true).open(node.path("claims/uid-many/segment")).expect("a segment");
    for slot in 0..SLOTS {
        let state = SlotState::new(SlotState::LIVE, 1, ended.id());
        segment.write_all_at(&state.0.to_ne_bytes(), entry_at(slot)).expect("an entry");
    }
    let (_, steps) = tools();
    let run =
        |node: &Node, step| child::run(container(node, &[&claim], &[], &steps, &["use:0", step]), PATIENCE);
    run(&node, "!alloc:a:2m").ok();
    node.start();
    node.until("a place is free", |node| run(node, "alloc:a:900m").status.success());
}
