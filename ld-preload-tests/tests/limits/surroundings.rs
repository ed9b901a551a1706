//! Quotas on machines that others use as well, and on machines that are short of something.
//!
//! These tests change users and mount file systems of their own, in namespaces that go with them. Where the
//! system does not let them they say so and are over.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use radrm_preload_tests::{
    artifacts,
    child::{self, Ended, Running},
    programs,
    rig::PATIENCE,
};

const USERS: [u32; 2] = [54_711, 54_712];

/// A directory outside `/tmp`, which goes with the test.
fn place() -> tempfile::TempDir {
    let parent = artifacts::directory().join("../tmp");
    fs::create_dir_all(&parent).expect("directory");
    let place = tempfile::tempdir_in(parent).expect("directory");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("mode");
    place
}

/// A machine of one GPU on which contexts take nothing: a job that is interrupted for long enough has its context
/// measured and charged, and the limit would no longer have room for what these tests ask.
fn machine(home: &Path) -> PathBuf {
    let path = home.join("gpu.toml");
    if !path.exists() {
        fs::write(&path, "[[gpu]]\nmodel = \"H100-80GB\"\ncontext_mib = 0\n").expect("description");
    }
    path
}

/// `radrm-run` with a limit, a home of its own, and nothing else of this test's environment. `before`: a shell's
/// words that run first, in a mount namespace of their own.
fn job(home: &Path, user: Option<u32>, before: &str, options: &[&str], steps: &[&str]) -> Command {
    for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
        artifacts::file(library);
    }
    let mut command = if before.is_empty() { Command::new("/bin/sh") } else { Command::new("unshare") };
    if !before.is_empty() {
        command.args(["--mount", "/bin/sh"]);
    }
    command.arg("-c").arg(format!("{before}\nexec \"$@\"")).arg("sh");
    if let Some(user) = user {
        let ids = [format!("--reuid={user}"), format!("--regid={user}")];
        command.arg("setpriv").args(ids).arg("--clear-groups");
    }
    command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env("HOME", home);
    command.env("RADRM_LIB_DIR", artifacts::directory()).current_dir(home);
    command.arg(artifacts::file("radrm-run"));
    command.args(["--quiet", "--mem-limit", "1GiB", "--emulate"]).arg(machine(home)).args(options);
    if !options.contains(&"-o") {
        command.arg("-o").arg(home.join("profile.radrm"));
    }
    command.arg("--").arg(programs::compile("steps.c", &[])).args(steps);
    command
}

fn run(command: Command) -> Ended {
    child::run(command, PATIENCE)
}

/// Returns true if this test may do what it needs to; prints a line if not.
fn may(test: &[&str]) -> bool {
    let done = Command::new(test[0]).args(&test[1..]).output().is_ok_and(|output| output.status.success());
    if !done {
        eprintln!("skipped: `{}` does not work here", test.join(" "));
    }
    done
}

fn may_change_users() -> bool {
    let program = artifacts::file("radrm-run");
    let program = program.to_str().expect("text");
    may(&["setpriv", "--reuid=54711", "--regid=54711", "--clear-groups", program, "--version"])
}

fn may_mount() -> bool {
    may(&["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"])
}

/// A shell's words that put an empty file system of these options over a place, and what is tested back into it
/// if that lies below.
fn mounted_over(place: &str, options: &str) -> String {
    let tested = artifacts::directory().parent().expect("a target directory").display();
    format!(
        "mount --bind {tested} /mnt; mount -t tmpfs none {place}; mkdir -p {tested}; mount --bind /mnt {tested}
        mount -o remount,{options} {place}\n"
    )
}

/// A home directory of a user.
fn home_of(place: &Path, user: u32) -> PathBuf {
    let home = place.join(user.to_string());
    fs::create_dir(&home).expect("home");
    chown(&home, Some(user), Some(user)).expect("owner");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("mode");
    home
}

/// Everything below a directory, itself included.
fn below(path: &Path, found: &mut Vec<PathBuf>) {
    found.push(path.to_owned());
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            below(&entry.path(), found);
        }
    }
}

fn shared_directory(user: u32) -> PathBuf {
    PathBuf::from(format!("/dev/shm/radrm-{user}"))
}

#[test]
fn case_14_two_users_have_a_private_quota_each() {
    if !may_change_users() {
        return;
    }
    let place = place();
    let homes = USERS.map(|user| home_of(place.path(), user));
    let steps = ["use:0", "alloc:a:600m", "pause", "!alloc:b:600m", "alloc:b:400m"];
    let mut jobs: Vec<Running> = USERS
        .iter()
        .zip(&homes)
        .map(|(user, home)| {
            let mut running = Running::start(job(home, Some(*user), "", &[], &steps), PATIENCE);
            running.until_ready();
            running
        })
        .collect();
    let mut files = Vec::new();
    for (user, home) in USERS.iter().zip(&homes) {
        let shared = shared_directory(*user);
        let found = fs::symlink_metadata(&shared).expect("the segment's directory");
        assert_eq!((found.uid(), found.mode() & 0o7777), (*user, 0o700));
        below(&shared, &mut files);
        below(home, &mut files);
    }
    for entry in fs::read_dir("/tmp").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("radrm-emulated") {
            below(&entry.path(), &mut files);
        }
    }
    assert!(files.len() > 6, "{files:?}");
    for file in files.iter().filter(|file| !file.is_symlink()) {
        let Ok(found) = fs::symlink_metadata(file) else { continue };
        assert_eq!(found.mode() & 0o022, 0, "{} is open to others", file.display());
    }
    for running in &mut jobs {
        running.go_on();
    }
    jobs.into_iter().for_each(|running| drop(running.end().ok()));
    for user in USERS {
        let left: Vec<_> = fs::read_dir(shared_directory(user)).into_iter().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
        let _ = fs::remove_dir(shared_directory(user));
    }
}

#[test]
fn case_14_a_foreign_directory_does_not_weaken_a_limit() {
    if !may_change_users() || !may_mount() {
        return;
    }
    let place = place();
    let home = home_of(place.path(), USERS[0]);
    let before = format!(
        "mount -t tmpfs -o mode=1777 none /dev/shm; mkdir -m 777 /dev/shm/radrm-{}; chown {} /dev/shm/radrm-*",
        USERS[0], USERS[1]
    );
    let steps = ["use:0", "alloc:a:600m", "!alloc:b:600m", "alloc:b:400m"];
    let ended = run(job(&home, Some(USERS[0]), &before, &[], &steps)).ok();
    assert_eq!(ended.stderr, "");
}

#[test]
fn case_14_without_a_place_for_temporary_files_a_limit_holds() {
    if !may_mount() {
        return;
    }
    let place = place();
    let machine = place.path().join("machine");
    let machine = machine.to_str().expect("text");
    let steps = ["use:0", "alloc:a:600m", "!alloc:b:600m", "alloc:b:400m"];
    for (places, how) in [
        (&["/tmp"][..], "ro"),
        (&["/dev/shm", "/tmp", "/run"], "ro"),
        (&["/dev/shm", "/tmp", "/run"], "size=4k"),
    ] {
        let before: String = places.iter().map(|place| mounted_over(place, how)).collect();
        let options = ["--machine", machine, "--no-dataset"];
        let mut command = job(place.path(), None, &before, &options, &steps);
        // The emulated driver itself needs a place for its links.
        command.env("TMPDIR", place.path());
        let ended = run(command).ok();
        assert_eq!(ended.stderr, "", "{before}");
    }
}

#[test]
fn case_14_a_full_disk_costs_only_the_profile() {
    if !may_mount() {
        return;
    }
    let place = place();
    let (machine, full) = (place.path().join("machine"), place.path().join("full"));
    fs::create_dir(&full).expect("directory");
    let before = format!(
        "mount -t tmpfs -o size=4k none {0}; dd if=/dev/zero of={0}/filler bs=4k count=1 2>/dev/null",
        full.display()
    );
    let profile = full.join("profile.radrm");
    let options =
        ["--machine", machine.to_str().expect("text"), "--no-dataset", "-o", profile.to_str().expect("text")];
    let steps = ["use:0", "alloc:a:600m", "!alloc:b:600m", "alloc:b:400m"];
    let ended = run(job(place.path(), None, &before, &options, &steps));
    let text = ended.ok().stderr;
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("No space left on device") && text.contains("profile.radrm"), "{text}");
}
