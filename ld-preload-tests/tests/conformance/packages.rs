//! The packages of `cargo xtask dist`, installed elsewhere: by pip, from the tarball, and as Debian would.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use radrm_preload_tests::{artifacts, child};
use serde_json::Value;
use tempfile::TempDir;

/// Seconds for a step: many times what it takes.
const PATIENCE: u64 = 300;

/// Files that the packages take, so that they are there and fresh.
const FILES: [&str; 8] = [
    "libradrm.so",
    "libradrm_emulated_cuda.so",
    "libradrm_emulated_nvml.so",
    "libradrm_emulated_toolkit.so",
    "libradrm_share.so",
    "libradrm_spank.so",
    "radrm",
    "radrm-run",
];

/// A driver program without any package: takes 64 MiB.
const PROGRAM: &str = "import ctypes
cuda = ctypes.CDLL('libcuda.so.1')
device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 << 20)) == 0
";

/// Packages of the build under test; `None` where a program was not built.
fn packages() -> Option<TempDir> {
    for file in FILES {
        artifacts::file(file);
    }
    let [dist, radrmd] = ["xtask-dist", "radrmd"].map(|name| artifacts::directory().join(name));
    if let Some(missing) = [&dist, &radrmd].into_iter().find(|program| !program.is_file()) {
        eprintln!("skipped: {} is not built (cargo build --workspace)", missing.display());
        return None;
    }
    let place = tempfile::tempdir().expect("folder");
    // The test's programs and an unprivileged user look into it.
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    let mut command = Command::new(dist);
    command.args(["--native", "--out"]).arg(place.path().join("dist")).env("SOURCE_DATE_EPOCH", "7");
    if artifacts::directory().ends_with("debug") {
        command.arg("--debug");
    }
    child::run(command, PATIENCE).ok();
    Some(place)
}

fn package(place: &TempDir, end: &str) -> PathBuf {
    let files = fs::read_dir(place.path().join("dist")).expect("packages").flatten();
    let mut paths = files.map(|entry| entry.path());
    paths.find(|path| path.to_string_lossy().ends_with(end)).unwrap_or_else(|| panic!("no *{end}"))
}

fn run(command: &mut Command) -> String {
    let mut whole = Command::new("true");
    std::mem::swap(command, &mut whole);
    child::run(whole, PATIENCE).ok().stdout
}

/// Runs the installed `radrm-run` on an emulated GPU as an unprivileged user without HOME, and gives the peak.
fn peak(radrm_run: &Path) -> u64 {
    // SAFETY: asks for a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut command = Command::new(if is_root { Path::new("setpriv") } else { radrm_run });
    if is_root {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(radrm_run);
    }
    command.args(["--emulate", "A100-40GB", "--no-profile", "--no-dataset", "--json=-", "--"]);
    command.args(["python3", "-c", PROGRAM]).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    let report: Value = serde_json::from_str(&run(&mut command)).expect("JSON");
    report["gpus"][0]["peak_bytes"].as_u64().expect("peak")
}

/// The scripts for logins, as sshd, cron and PAM start them.
fn logins(folder: &Path) {
    // Only where there are GPUs a login is one of radrm-run's programs.
    let is_limited = Path::new("/dev/nvidiactl").exists();
    let login = |arguments: &[&str], command: Option<&str>| {
        let mut login = Command::new(folder.join("login"));
        login
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("SHELL", "/bin/sh")
            .current_dir("/");
        if let Some(command) = command {
            login.env("SSH_ORIGINAL_COMMAND", command);
        }
        let ended = child::run(login, PATIENCE);
        (ended.status.code(), ended.stdout)
    };
    let script = "echo ${RADRM_SEGMENT:+limited} $SHELL; exit 3";
    let printed = format!("{} /bin/sh\n", if is_limited { "limited" } else { "" });
    let expected = (Some(3), printed.trim_start().to_owned());
    assert_eq!(login(&[], Some(script)), expected, "sshd");
    assert_eq!(login(&["-c", script], None), expected, "cron");
    // Transfers of files go to OpenSSH's server whatever its options, and what only looks like one to the shell.
    let servers =
        ["/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh"].map(|at| format!("{at}/sftp-server"));
    let is_there = servers.iter().any(|server| Path::new(server).is_file());
    for command in ["internal-sftp".to_owned()].iter().chain(&servers) {
        for command in [command.clone(), format!("{command} -l INFO -f AUTH")] {
            // At the end of its input the server ends with 0 or 255.
            let (code, printed) = login(&[], Some(&command));
            assert_eq!(code == Some(127), !is_there, "{command}: {code:?}");
            assert_eq!(printed, "", "{command}");
        }
    }
    for command in ["echo /usr/lib/ssh/sftp-server", "echo internal-sftp-of-mine"] {
        let expected = format!("{}\n", command.trim_start_matches("echo "));
        assert_eq!(login(&[], Some(command)), (Some(0), expected), "{command}");
    }
    let session = |kind: &str, user: &str| {
        let mut session = Command::new(folder.join("session"));
        session.env_clear().env("PATH", "/usr/bin:/bin").env("PAM_TYPE", kind).env("PAM_USER", user);
        child::run(session, PATIENCE)
    };
    for (kind, user) in [("close_session", "daemon"), ("open_session", "root")] {
        assert_eq!(session(kind, user).ok().stdout, "", "{kind} of {user}");
    }
    // It reaches `radrm quota init`, which knows that there is no such user, or that this one is not root.
    let ended = session("open_session", "no such user");
    assert!(!ended.status.success() && ended.stderr.starts_with("radrm: "), "{}", ended.stderr);
}

#[test]
fn packages_work_where_they_are_installed() {
    let Some(place) = packages() else { return };
    let at = |name: &str| place.path().join(name);

    // The wheel, into a fresh environment.
    run(Command::new("python3").args(["-m", "venv"]).arg(at("venv")));
    let pip = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"];
    run(Command::new(at("venv/bin/python3")).args(pip).arg(package(&place, ".whl")));
    assert_eq!(peak(&at("venv/bin/radrm-run")), 64 << 20);
    assert!(run(Command::new(at("venv/bin/radrm")).arg("machines")).contains("A100-40GB"));
    // Its Python module does nothing alone, and records below radrm-run.
    let module = ["-c", "import radrm; print(radrm.is_recording(), radrm.peak())"];
    assert_eq!(run(Command::new(at("venv/bin/python3")).args(module)), "False None\n");
    let mut recorded = Command::new(at("venv/bin/radrm-run"));
    recorded.args(["--emulate", "A100-40GB", "--no-profile", "--no-dataset", "--quiet", "--"]);
    assert_eq!(run(recorded.arg(at("venv/bin/python3")).args(module)), "True 0\n");
    let check = run(Command::new(at("venv/bin/python3")).args(["-m", "pip", "show", "-f", "radrm"]));
    for file in [
        "../../../bin/radrm-run",
        "licenses/LICENSE-MIT",
        "../../../share/man/man1/radrm-submit.1",
        "../../../share/bash-completion/completions/radrm-run.bash",
        "../../../share/zsh/site-functions/_radrm",
        "../../../share/fish/vendor_completions.d/radrmd.fish",
    ] {
        assert!(check.contains(file), "{file}: {check}");
    }

    // The tarball, below a prefix in which nothing can be written.
    fs::create_dir(at("prefix")).expect("folder");
    run(Command::new("tar").arg("-C").arg(at("prefix")).arg("-xzf").arg(package(&place, ".tar.gz")));
    let tree = fs::read_dir(at("prefix")).expect("prefix").flatten().next().expect("a folder").path();
    run(Command::new("chmod").args(["-R", "a-w"]).arg(&tree));
    assert_eq!(peak(&tree.join("bin/radrm-run")), 64 << 20);
    run(Command::new("chmod").args(["-R", "u+w"]).arg(&tree));

    // A program without its libraries says so, and does not emulate in secret.
    let alone = at("radrm-run");
    fs::copy(tree.join("bin/radrm-run"), &alone).expect("copy");
    let mut command = Command::new(&alone);
    command.args(["--emulate", "A100-40GB", "--", "true"]);
    let ended = child::run(command, PATIENCE);
    assert_eq!(ended.status.code(), Some(125), "{}", ended.stderr);
    assert!(ended.stderr.contains("libradrm"), "{}", ended.stderr);

    // Checksums hold.
    run(Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(at("dist")));

    let deb = package(&place, ".deb");
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        eprintln!("skipped: the Debian package, as dpkg-deb is not there");
        return;
    }
    let control = run(Command::new("dpkg-deb").arg("--info").arg(&deb));
    for part in ["Package: radrm", "Architecture: amd64", "Depends: libc6 (>= ", "conffiles", "postinst"] {
        assert!(control.contains(part), "{part}: {control}");
    }
    run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(at("root")));
    for file in [
        "usr/bin/radrmd",
        "usr/lib/radrm/libradrm.so",
        "usr/lib/radrm/libradrm_share.so",
        "usr/lib/radrm/libradrm_spank.so",
        "usr/lib/radrm/login",
        "usr/lib/radrm/session",
        "usr/share/radrm/slurm/job_submit.lua",
        "usr/lib/systemd/system/radrmd.service",
        "usr/lib/sysusers.d/radrm.conf",
        "usr/lib/tmpfiles.d/radrm.conf",
        "etc/radrm/radrm.toml",
        "etc/radrm/radrmd.toml",
        "usr/share/doc/radrm/admin.md",
        "usr/share/doc/radrm/commands.md",
        "usr/share/doc/radrm/configuration.md",
        "usr/share/doc/radrm/profile-file.md",
        "usr/share/doc/radrm/report-json.md",
        "usr/share/doc/radrm/how-to/find-a-leak.md",
        "usr/share/man/man1/radrm-run.1",
        "usr/share/man/man8/radrmd.8",
        "usr/share/zsh/vendor-completions/_radrm",
    ] {
        assert!(at("root").join(file).is_file(), "{file}");
    }
    assert_eq!(peak(&at("root/usr/bin/radrm-run")), 64 << 20);
    logins(&at("root/usr/lib/radrm"));
    let plugstack =
        fs::read_to_string(at("root/usr/share/radrm/slurm/plugstack.conf")).expect("plugstack.conf");
    assert!(plugstack.contains("#optional /usr/lib/radrm/libradrm_spank.so shard=1MiB"), "{plugstack}");
    for name in ["radrm.toml", "radrmd.toml"] {
        let config = fs::read_to_string(at("root/etc/radrm").join(name)).expect("configuration");
        assert!(
            config.lines().all(|line| line.is_empty() || line.starts_with('#')),
            "{name} changes nothing as it is"
        );
    }
}

#[test]
fn the_same_build_gives_the_same_packages() {
    let (Some(one), Some(other)) = (packages(), packages()) else { return };
    let sums = |place: &TempDir| fs::read_to_string(place.path().join("dist/SHA256SUMS")).expect("checksums");
    assert_eq!(sums(&one), sums(&other));
}
