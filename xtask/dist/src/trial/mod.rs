//! `--try`: the packages, installed into a system of their own, used and removed again.
//!
//! The system is a small Debian, made once by mmdebstrap. Each package gets a fresh copy of it. What the package
//! manager leaves behind after a removal is an error. The wheel is tried on older and newer releases too: on their C
//! libraries and Pythons, by a user without rights, without HOME, from a prefix that cannot be written. [`booted`] has the
//! Debian package in a system that runs.

mod booted;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use xtask::shell;
use xtask::venv::{self, Environment};

use super::tree;

/// Releases of Debian, with what is in them besides the essential packages: glibc 2.31 and Python 3.9, 2.36 and 3.11,
/// 2.41 and 3.13, 2.43 and 3.14.
const OLDER: Suite = Suite { name: "bullseye", glibc: (2, 31), packages: "python3-venv" };
const USUAL: Suite = Suite { name: "bookworm", glibc: (2, 36), packages: "python3-venv,systemd" };
const NODE: Suite = Suite {
    name: "bookworm",
    glibc: (2, 36),
    packages: "python3-venv,systemd,openssh-server,openssh-client,cron,curl",
};
const NEWEST: Suite = Suite { name: "forky", glibc: (2, 43), packages: "python3-venv" };
const NEWER: Suite = Suite { name: "trixie", glibc: (2, 41), packages: "python3-venv" };

struct Suite {
    name: &'static str,
    glibc: (u32, u32),
    packages: &'static str,
}

/// The tool that says on which systems a wheel runs.
const AUDITWHEEL: Environment =
    Environment::new("venv-auditwheel", "xtask/data/requirements-auditwheel.txt", &[]);

/// Paths that managers of packages keep for themselves, and that a running system fills.
const NOT_OURS: [&str; 10] = [
    "var/lib/dpkg",
    "var/lib/rpm",
    "var/lib/systemd",
    "var/log",
    "var/cache",
    "run",
    "tmp",
    "root",
    "etc/group-",
    "etc/gshadow-",
];

/// Test of every installation: record a program, and take a job to its end.
const USE: &str = "
set -e
cd /tmp
radrm-run --version
radrm demo --folder demo > demo.log 2>&1 || { cat demo.log; exit 1; }
test -s demo/demo.html
radrmd --emulate 2xA100-40GB --no-metrics --socket /tmp/socket > radrmd.log 2>&1 &
daemon=$!
export RADRM_SOCKET=/tmp/socket
for i in $(seq 100); do radrm queue > queue.log 2>&1 && break; sleep 0.1; done
radrm submit --wait --gpu-mem 1GiB --time 1m -- true || { cat radrmd.log; exit 1; }
kill $daemon
wait $daemon || true
";

/// Test of the units: systemd accepts them, and they can be enabled where it does not run.
/// Enabled units have to be gone with the package.
const UNITS: &str = "
units=$(dpkg -L radrm | grep -E '/radrm[^/]*[.](service|mount)$|/run-radrm[^/]*[.]mount$')
systemd-analyze verify --man=no $units
systemctl enable $(basename -a $units)
systemctl is-enabled $(basename -a $units)
";

/// A program that prints how large the driver says that the GPU is.
const TOTAL: &str = include_str!("../../../data/trial/total.py");

/// Containers of podman.
const PODMAN: &str = include_str!("../../../data/trial/podman.sh");

/// A program of a user without rights and without HOME, from a prefix that cannot be written.
const AS_USER: &str = r#"
mount --bind /venv /venv
mount -o remount,bind,ro /venv
if touch /venv/x 2>/dev/null; then echo 'the prefix can be written'; exit 1; fi
cd /
libc=$(ldd --version | head -n 1)
said=$(setpriv --reuid=65534 --regid=65534 --clear-groups env -i PATH=/venv/bin:/usr/bin:/bin \
    radrm-run --emulate A100-40GB --mem-limit 2GiB --quiet --no-profile --no-dataset -- python3 /total.py)
test "$said" = '2048 MiB'
/venv/bin/python3 -c 'import sys; print("Python", sys.version.split()[0], "on", sys.argv[1])' "$libc"
"#;

/// Tries the packages of a folder, which need this glibc.
///
/// # Errors
/// A package cannot be installed, does not work, or leaves something behind.
pub fn run(out: &Path, glibc: (u32, u32)) -> Result<()> {
    let base_of_usual = base(&USUAL)?;
    let place = shell::target_dir().join("trial");
    let package = |end: &str| -> Result<PathBuf> {
        let mut files = fs::read_dir(out)?.flatten().map(|entry| entry.path());
        files.find(|path| path.to_string_lossy().ends_with(end)).with_context(|| format!("no *{end}"))
    };
    for (what, end, install, python, remove) in [
        ("Debian package", ".deb", "dpkg -i /package", "python3", "dpkg --purge radrm"),
        ("tarball", ".tar.gz", "tar -C /usr --strip-components=1 -xzf /package", IN_PREFIX, ""),
        // The queue of root's daemon belongs to no environment.
        ("wheel", ".whl", WHEEL, "/venv/bin/python3", "rm -r /venv /usr/local/bin/radrm* /var/lib/radrm"),
    ] {
        let root = fresh(&base_of_usual, &place, &package(end)?)?;
        let before = state(&root)?;
        inside(&root, install).with_context(|| format!("{what}: installation"))?;
        inside(&root, USE).with_context(|| format!("{what}: use"))?;
        inside(&root, &import(python)?).with_context(|| format!("{what}: Python module"))?;
        if end == ".deb" {
            inside(&root, UNITS).with_context(|| format!("{what}: units"))?;
        }
        if !remove.is_empty() {
            inside(&root, remove).with_context(|| format!("{what}: removal"))?;
            nothing_left(what, &before, &state(&root)?)?;
        }
        eprintln!(
            "xtask: the {what} works{}",
            if remove.is_empty() { "" } else { " and leaves nothing behind" }
        );
    }
    if shell::exists("rpm") {
        let root = fresh(&base_of_usual, &place, &package(".rpm")?)?;
        let before = state(&root)?;
        let rpm =
            |arguments: &[&str]| shell::run(shell::command("rpm").arg("--root").arg(&root).args(arguments));
        rpm(&["--initdb"])?;
        // Debian has what it needs under other names.
        rpm(&["-i", "--nodeps", &root.join("package").to_string_lossy()])?;
        inside(&root, USE).context(".rpm: use")?;
        inside(&root, &import(IN_PREFIX)?).context(".rpm: Python module")?;
        rpm(&["-e", "radrm"])?;
        // The queue stays, as with packages of this kind, and so does the group. Folders of other packages, which this
        // small system lacks, are theirs.
        let mut after = state(&root)?;
        after.paths.retain(|path| path.contains("radrm") && !path.starts_with("var/lib/radrm"));
        after.groups.clone_from(&before.groups);
        nothing_left(".rpm", &before, &after)?;
        eprintln!("xtask: the .rpm works, and leaves the queue and the group");
    } else {
        eprintln!("xtask: skipped: the .rpm, as there is no rpm");
    }
    booted::run(&fresh(&base(&NODE)?, &place, &package(".deb")?)?).context("Debian package on a node")?;
    eprintln!("xtask: systemd starts the units; logins by sshd, cron and su are held to the user's limit");
    podman(&fresh(&base_of_usual, &place, &package(".tar.gz")?)?)?;
    for suite in [OLDER, USUAL, NEWER, NEWEST] {
        if suite.glibc < glibc {
            eprintln!(
                "xtask: skipped: the wheel on {}, whose glibc is older than what it was built for",
                suite.name
            );
            continue;
        }
        let root = fresh(&base(&suite)?, &place, &package(".whl")?)?;
        let module = import("/venv/bin/python3")?;
        for (script, what) in [
            (WHEEL, "installation"),
            (&module, "Python module"),
            (AS_USER, "use without rights"),
            (USE, "use"),
        ] {
            inside(&root, script).with_context(|| format!("wheel on {}: {what}", suite.name))?;
        }
        eprintln!("xtask: the wheel works on {}, without rights, HOME and a prefix to write to", suite.name);
    }
    fs::remove_dir_all(&place)?;
    audit(&package(".whl")?)?;
    pythons(&package(".whl")?)
}

/// Containers of podman with this root, where there is a podman.
fn podman(root: &Path) -> Result<()> {
    if !shell::exists("podman") {
        eprintln!("xtask: skipped: containers of podman, as there is no podman");
        return Ok(());
    }
    let (prefix, storage) = (root.with_extension("prefix"), root.with_extension("podman"));
    for folder in [&prefix, &storage] {
        fs::create_dir_all(folder)?;
    }
    let mut unpack = shell::command("tar");
    shell::run(
        unpack.arg("-C").arg(&prefix).args(["--strip-components=1", "-xzf"]).arg(root.join("package")),
    )?;
    let mut command = shell::command("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-exc", PODMAN, "sh"]);
    shell::run(command.arg(root).arg(&prefix).arg(&storage)).context("containers of podman")?;
    for folder in [&prefix, &storage] {
        fs::remove_dir_all(folder)?;
    }
    eprintln!("xtask: a CDI device holds containers of podman to its limit");
    Ok(())
}

/// pip installs into an environment; its programs are linked to where the others look for them.
const WHEEL: &str = "
cp /package /tmp/$(cat /name)
python3 -m venv /venv
/venv/bin/python3 -m pip install --quiet --no-index /tmp/$(cat /name)
mkdir -p /usr/local/bin
for program in radrm radrm-run radrmd; do ln -s /venv/bin/$program /usr/local/bin/$program; done
";

/// A Python that looks for modules in a prefix too.
const IN_PREFIX: &str = "PYTHONPATH=/usr/lib/radrm/python python3";

/// A script that imports the Python module, where the packages have one.
fn import(python: &str) -> Result<String> {
    let has_module = !tree::python(&shell::root())?.is_empty();
    Ok(if has_module { format!("cd / && {python} -c 'import radrm'") } else { "true".to_owned() })
}

/// The small Debian as an archive.
fn base(suite: &Suite) -> Result<PathBuf> {
    let name = format!("trial-{}-{}.tar", suite.name, suite.packages.replace(',', "-"));
    let archive = shell::target_dir().join(name);
    if !archive.exists() {
        ensure!(shell::exists("mmdebstrap"), "--try needs mmdebstrap (apt-get install mmdebstrap)");
        let mut command = shell::command("mmdebstrap");
        // A mirror that is some weeks behind does for a system that is thrown away.
        command.args(["--variant=minbase", "--aptopt=Acquire::Check-Valid-Until \"false\""]);
        command.args([&format!("--include={}", suite.packages), suite.name]);
        // Under its own name only when it is whole.
        let part = archive.with_extension("part.tar");
        shell::run(command.arg(&part))?;
        fs::rename(&part, &archive)?;
    }
    Ok(archive)
}

/// A fresh system with the package in it.
fn fresh(base: &Path, place: &Path, package: &Path) -> Result<PathBuf> {
    if place.exists() {
        fs::remove_dir_all(place)?;
    }
    fs::create_dir_all(place)?;
    shell::run(shell::command("tar").arg("-C").arg(place).args(["--numeric-owner", "-xf"]).arg(base))
        .context("--try needs root: it makes devices and changes owners")?;
    fs::copy(package, place.join("package"))?;
    fs::write(place.join("total.py"), TOTAL)?;
    fs::write(place.join("name"), package.file_name().unwrap_or_default().to_string_lossy().as_bytes())?;
    Ok(place.to_owned())
}

/// Runs a shell script in the system, with process ids of its own.
fn inside(root: &Path, script: &str) -> Result<()> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--root"]).arg(root).arg("--mount-proc");
    command.args(["sh", "-ec", script]).env_clear();
    command.env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root").current_dir("/");
    shell::run(&mut command)
}

/// Content of a system.
#[derive(Debug)]
struct State {
    paths: BTreeSet<String>,
    groups: String,
}

fn state(root: &Path) -> Result<State> {
    let mut paths = BTreeSet::new();
    walk(root, "", &mut paths)?;
    Ok(State { paths, groups: fs::read_to_string(root.join("etc/group"))? })
}

fn walk(folder: &Path, name: &str, paths: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{name}{}", entry.file_name().to_string_lossy());
        if NOT_OURS.contains(&name.as_str()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &format!("{name}/"), paths)?;
        }
        paths.insert(name);
    }
    Ok(())
}

fn nothing_left(what: &str, before: &State, after: &State) -> Result<()> {
    let left: Vec<_> = after.paths.difference(&before.paths).filter(|path| !is_pythons(path)).collect();
    ensure!(left.is_empty(), "{what}: these are left behind: {left:?}");
    ensure!(before.groups == after.groups, "{what}: /etc/group is not what it was");
    Ok(())
}

/// Asks auditwheel whether the wheel runs where its name says.
fn audit(wheel: &Path) -> Result<()> {
    let python = venv::make(&AUDITWHEEL)?.context("the requirements of auditwheel are missing")?;
    let said = shell::read(shell::command(python.with_file_name("auditwheel")).arg("show").arg(wheel))?;
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let name = wheel.file_stem().unwrap_or_default().to_string_lossy();
    let tag = name.rsplit('-').next().unwrap_or_default();
    ensure!(said.contains(&format!("is consistent with the following platform tag: \"{tag}\"")), "{said}");
    eprintln!("xtask: auditwheel: the wheel is one of {tag}");
    Ok(())
}

/// Returns true for what Python compiles for its own modules, when it runs for the first time.
fn is_pythons(path: &str) -> bool {
    path.contains("__pycache__") && !path.contains("radrm")
}

/// The wheel in an environment of each Python that is here.
fn pythons(wheel: &Path) -> Result<()> {
    let place = shell::target_dir().join("trial-venv");
    let mut tried = Vec::new();
    for minor in 9..=20 {
        let python = format!("python3.{minor}");
        if !shell::exists(&python) {
            continue;
        }
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        shell::run(shell::command(&python).args(["-m", "venv"]).arg(&place))?;
        let pip = ["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check"];
        shell::run(shell::command(place.join("bin/python3")).args(pip).arg(wheel))?;
        let mut watched = shell::command(place.join("bin/radrm-run"));
        watched.args(["--emulate", "A100-40GB", "-q", "--no-profile", "--no-dataset", "--"]);
        shell::run(
            watched
                .arg(place.join("bin/python3"))
                .args(["-c", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"]),
        )?;
        tried.push(python);
    }
    if tried.is_empty() {
        bail!("there is no Python to try the wheel with");
    }
    fs::remove_dir_all(&place)?;
    eprintln!("xtask: the wheel works with {}", tried.join(", "));
    Ok(())
}
