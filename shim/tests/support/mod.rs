//! Compiles the fake driver and the clients, runs a client under the built library with a segment of
//! its own, and reads what the library wrote.
#![allow(dead_code, reason = "not every test program uses all of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use radrm_telemetry::{KernelSnapshot, ProcessSnapshot, SegmentFile};

/// Seconds after which a client counts as hanging.
const PATIENCE: &str = "60";

/// The library, fresh: a test program does not depend on a `cdylib`, so cargo does not build it for one.
/// `RADRM_TEST_NO_BUILD` turns the build off where everything was built before.
pub fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> PathBuf {
    let program = std::env::current_exe().expect("path of this program");
    let deps = program.parent().expect("its directory");
    if std::env::var_os("RADRM_TEST_NO_BUILD").is_none() {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "-p", "radrm-shim"]);
        if deps.parent().is_some_and(|d| d.ends_with("release")) {
            command.arg("--release");
        }
        // Variables that describe this package must not reach the build of others.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
                command.env_remove(name);
            }
        }
        assert!(command.status().expect("cargo").success(), "the library does not build");
    }
    let candidates = [deps.join("libradrm.so"), deps.join("../libradrm.so")];
    candidates.into_iter().find(|p| p.exists()).expect("libradrm.so beside the tests")
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")
}

/// The C compiler, which another machine's may replace.
fn compiler() -> String {
    std::env::var("RADRM_TEST_CC").unwrap_or_else(|_| "gcc".to_owned())
}

/// A program of binutils, of the machine that the compiler compiles for.
pub fn binutil(name: &str) -> Command {
    Command::new(format!("{}{name}", compiler().strip_suffix("gcc").unwrap_or_default()))
}

fn gcc(arguments: &[&str], output: &Path) {
    let fresh = output.with_extension(format!("new.{}", std::process::id()));
    let status = Command::new(compiler())
        .args(["-O1", "-g", "-w", "-o"])
        .arg(&fresh)
        .args(arguments)
        .current_dir(sources())
        .status()
        .expect("gcc");
    assert!(status.success(), "gcc {arguments:?}");
    std::fs::rename(&fresh, output).expect("the compiled file");
}

/// Forms of the fake driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Driver {
    /// As drivers are: its own calls do not go through its exported names.
    New,
    /// One without what came after CUDA 11.
    Old,
    /// One whose own calls go to the library that defines the name first, so to the library under test.
    CallsItself,
}

/// Directory with the fake driver of a form and the clients.
fn directory(driver: Driver) -> &'static Path {
    static MADE: [OnceLock<PathBuf>; 3] = [const { OnceLock::new() }; 3];
    MADE[driver as usize].get_or_init(|| {
        let (name, flags): (_, &[&str]) = match driver {
            Driver::New => ("new", &["-DNEW", "-Wl,-Bsymbolic"]),
            Driver::Old => ("old", &["-DOLD", "-Wl,-Bsymbolic"]),
            Driver::CallsItself => ("calls-itself", &["-DNEW"]),
        };
        let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fake-driver-{name}"));
        std::fs::create_dir_all(&at).expect("directory");
        let driver = at.join("libcuda.so.1");
        gcc(&[flags, &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "fake_driver.c"]].concat(), &driver);
        let text = driver.to_str().expect("plain path");
        gcc(&["clients.c", text, "-lpthread", "-Wl,--allow-shlib-undefined"], &at.join("clients"));
        at
    })
}

/// Snapshots of the processes of one run, in the order in which they joined.
pub fn run(driver: Driver, arguments: &[&str]) -> Vec<ProcessSnapshot> {
    let at = directory(driver);
    let segment = SegmentFile::create_unnamed(1).expect("segment");
    // The client may be of another machine than `timeout` and `env`, so the library is for the client alone.
    let set = |name: &str, value: &Path| format!("{name}={}", value.display());
    let output = Command::new("timeout")
        .args([PATIENCE, "env"])
        .arg(set("LD_LIBRARY_PATH", at))
        .arg(set("LD_PRELOAD", &library()))
        .arg(set("RADRM_SEGMENT", segment.path()))
        .arg(at.join("clients"))
        .args(arguments)
        .output()
        .expect("the client");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {:?} {text}", output.status);
    assert_eq!(text, "", "nothing of ours is printed");
    segment.segment().expect("own segment").processes().expect("processes")
}

/// Snapshot of the single process of a run.
pub fn run_one(driver: Driver, arguments: &[&str]) -> ProcessSnapshot {
    let mut all = run(driver, arguments);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// The kernel of a name, if it was launched.
pub fn kernel<'p>(process: &'p ProcessSnapshot, name: &str) -> Option<&'p KernelSnapshot> {
    process.kernels.iter().find(|k| k.name == name)
}
