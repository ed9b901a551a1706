//! Compiles the fake driver and the clients, runs a client under the built library with a segment of
//! its own, and reads what the library wrote.
#![allow(dead_code, reason = "not every test program uses all of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use radrm_telemetry::{KernelSnapshot, ProcessSnapshot, SegmentFile};

/// Seconds after which a client counts as hanging.
const PATIENCE: &str = "60";

/// The library as cargo has built it for this test program.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().expect("path of this program");
    let deps = program.parent().expect("its directory");
    let candidates = [deps.join("libradrm.so"), deps.join("../libradrm.so")];
    candidates.into_iter().find(|p| p.exists()).expect("libradrm.so beside the tests")
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")
}

fn gcc(arguments: &[&str], output: &Path) {
    let fresh = output.with_extension(format!("new.{}", std::process::id()));
    let status = Command::new("gcc")
        .args(["-O1", "-g", "-w", "-o"])
        .arg(&fresh)
        .args(arguments)
        .current_dir(sources())
        .status()
        .expect("gcc");
    assert!(status.success(), "gcc {arguments:?}");
    std::fs::rename(&fresh, output).expect("the compiled file");
}

/// Directory with the fake driver, of the present or the old kind, and the clients.
fn directory(old: bool) -> &'static Path {
    static NEW: OnceLock<PathBuf> = OnceLock::new();
    static OLD: OnceLock<PathBuf> = OnceLock::new();
    if old { &OLD } else { &NEW }.get_or_init(|| {
        let name = if old { "old" } else { "new" };
        let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fake-driver-{name}"));
        std::fs::create_dir_all(&at).expect("directory");
        let driver = at.join("libcuda.so.1");
        let form = if old { "-DOLD" } else { "-DNEW" };
        gcc(&["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", form, "fake_driver.c"], &driver);
        let text = driver.to_str().expect("plain path");
        gcc(&["clients.c", text, "-lpthread", "-Wl,--allow-shlib-undefined"], &at.join("clients"));
        at
    })
}

/// What the processes of one run left behind, in the order in which they joined.
pub fn run(old: bool, arguments: &[&str]) -> Vec<ProcessSnapshot> {
    let at = directory(old);
    let segment = SegmentFile::create_unnamed(1).expect("segment");
    let output = Command::new("timeout")
        .arg(PATIENCE)
        .arg(at.join("clients"))
        .args(arguments)
        .env("LD_LIBRARY_PATH", at)
        .env("LD_PRELOAD", library())
        .env("RADRM_SEGMENT", segment.path())
        .output()
        .expect("the client");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {:?} {text}", output.status);
    assert_eq!(text, "", "nothing of ours is printed");
    let clients = at.join("clients");
    let mut all = segment.segment().expect("own segment").processes().expect("processes");
    // `timeout` has the library too, but calls no driver and so does not join.
    all.retain(|p| p.exe.ends_with(clients.to_str().expect("plain path")));
    all
}

/// What the single process of a run left behind.
pub fn run_one(old: bool, arguments: &[&str]) -> ProcessSnapshot {
    let mut all = run(old, arguments);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// The kernel of a name, if it was launched.
pub fn kernel<'p>(process: &'p ProcessSnapshot, name: &str) -> Option<&'p KernelSnapshot> {
    process.kernels.iter().find(|k| k.name == name)
}
