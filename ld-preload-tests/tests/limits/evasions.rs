//! Evasions of a limit, on purpose or by accident, are named by the report of the job itself: every evasion of the
//! administrators' manual that an emulated GPU can show.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use radrm_preload_tests::{
    artifacts,
    child::{self, Running},
    node::may,
    programs,
    rig::{PATIENCE, Rig},
};

use super::reasons::{launched, limited, read, reasons};

const MIB: u64 = 1 << 20;
/// Another user.
const USER: u32 = 64_004;

/// Way in which the program of a job takes memory past its limit.
struct Evasion {
    /// Its command line.
    words: Vec<String>,
    /// Reason in the report.
    code: &'static str,
    /// Mebibytes that it holds beyond what is counted, at least.
    mib: u64,
}

fn evasion(code: &'static str, mib: u64, words: &[&str]) -> Evasion {
    Evasion { words: words.iter().map(|word| (*word).to_owned()).collect(), code, mib }
}

/// The command line of a program of steps that holds 50 MiB.
fn taking<'w>(words: &[&'w str]) -> Vec<&'w str> {
    [words, &["use:0", "alloc:a:50m", "pause"]].concat()
}

/// The files of the evasions.
struct Place {
    rig: Rig,
    steps: String,
    evades: PathBuf,
    driver: String,
}

impl Place {
    fn new() -> Self {
        let rig = Rig::emulated("1xA100-40GB");
        for (path, mode) in [(rig.path().to_owned(), 0o755), (rig.machine_path(), 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode");
        }
        // What contexts take is measured, so that a library past the shim is not taken for a part of one.
        let steps = programs::compile("steps.c", &[]).display().to_string();
        let measured =
            launched(&rig, &["--mem-limit", "100%"], &[&steps, "use:0", "alloc:a:10m", "sleep:2500"]);
        child::run(measured, PATIENCE).ok();
        let driver = rig.path().join("libown.so");
        fs::copy(artifacts::file("libradrm_emulated_cuda.so"), &driver).expect("copy");
        let evades = programs::compile("evades.c", &[]);
        Self { rig, steps, evades, driver: driver.display().to_string() }
    }

    /// A copy of a program.
    fn copy(&self, program: &Path, name: &str) -> PathBuf {
        let copy = self.rig.path().join(name);
        fs::copy(program, &copy).expect("copy");
        copy
    }

    /// The report names the program, its reason and what it held.
    #[track_caller]
    fn assert_named(&self, evasion: &Evasion) {
        let Evasion { words, code, mib } = evasion;
        let shown: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut job = Running::start(limited(&self.rig, &shown), PATIENCE);
        let pid = job.until_ready();
        // A process that is counted is polled at most each second in the first ten.
        thread::sleep(Duration::from_millis(1500));
        job.go_on();
        job.end().ok();
        let report = read(&self.rig);
        assert_eq!(reasons(&report), [*code], "{shown:?}: {report}");
        let found = &report["uncounted"][0];
        assert_eq!((&found["pid"], &found["kind"]), (&pid.into(), &"outside".into()), "{found}");
        assert!(found["gpus"][0]["peak_bytes"].as_u64() >= Some(mib * MIB), "{shown:?}: {found}");
        let notes = report["notes"].to_string();
        assert!(notes.contains("outside of the job's limit"), "{shown:?}: {notes}");
        assert!(!notes.contains("no GPU program was seen"), "{shown:?}: {notes}");
    }
}

#[test]
fn the_report_names_what_left_the_limit_by_environment_and_loader() {
    let place = Place::new();
    let (steps, evades, driver) = (&*place.steps, &*place.evades.display().to_string(), &*place.driver);
    let machine = format!("RADRM_EMULATED_MACHINE={}", place.rig.machine_path().display());
    let libraries = format!("LD_LIBRARY_PATH={}", place.rig.libraries().display());
    let genuine = place.rig.libraries().join("libcuda.so.1").display().to_string();
    // The emulated driver does not work in static programs of glibc. A loader of another name is one that can run it.
    let loader = place.copy(Path::new("/lib64/ld-linux-x86-64.so.2"), "static").display().to_string();
    let library =
        programs::compile("deepbind_library.c", &["-fPIC", "-shared", "-lcuda"]).display().to_string();
    let deepbind = programs::compile("deepbind.c", &[]).display().to_string();
    for evasion in [
        evasion("lost-preload", 50, &taking(&["env", "-u", "LD_PRELOAD", steps])),
        evasion("not-loaded", 50, &taking(&["env", "LD_PRELOAD=/nowhere/libradrm.so", steps])),
        evasion("disabled", 50, &taking(&["env", "RADRM_DISABLE=1", steps])),
        evasion("left-job", 50, &taking(&["env", "-i", &machine, &libraries, steps])),
        evasion("static", 50, &taking(&["env", "-u", "LD_PRELOAD", &loader, steps])),
        evasion("deepbind", 64, &[&deepbind, &library]),
        evasion("dlmopen", 50, &[evades, "dlmopen", &genuine]),
        evasion("other-driver", 300, &[evades, "second", driver]),
        // A title over the initial environment, and nothing in the present one.
        evasion("no-segment", 50, &taking(&[steps, "title:server", "clearenv"])),
    ] {
        place.assert_named(&evasion);
    }
}

#[test]
fn the_report_names_programs_that_gained_rights() {
    let user = ["setpriv", "--reuid=64004", "--regid=64004", "--clear-groups"];
    if !may(&[&user[..], &["true"]].concat()) {
        return;
    }
    let place = Place::new();
    let setuid = place.copy(&place.evades, "setuid");
    chown(&setuid, Some(USER), None).expect("owner");
    fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).expect("mode");
    let setuid = setuid.display().to_string();
    // The loader ignores LD_LIBRARY_PATH as well.
    place.assert_named(&evasion("setuid", 50, &["env", &setuid, "dlopen", &place.driver]));
    let capable = place.copy(&place.evades, "capable");
    let set = Command::new("setcap").arg("cap_net_raw+ep").arg(&capable).output();
    if !set.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: setcap does not work here");
    }
    let capable = capable.display().to_string();
    let words = [&user[..], &[&capable, "dlopen", &place.driver]].concat();
    place.assert_named(&evasion("capabilities", 50, &words));
}

/// A path that the loader would take apart would load no shim: nothing is started under a limit that cannot hold.
#[test]
fn a_shim_below_a_name_that_the_loader_replaces_limits_nothing_silently() {
    let place = Place::new();
    for name in ["$LIB", "${PLATFORM}", "a b"] {
        let folder = place.rig.path().join(name);
        fs::create_dir(&folder).expect("folder");
        for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
            fs::copy(artifacts::file(library), folder.join(library)).expect("copy");
        }
        let mut command = limited(&place.rig, &[&place.steps, "use:0", "!alloc:a:2g"]);
        command.env("RADRM_LIB_DIR", &folder);
        let ended = child::run(command, PATIENCE);
        let refused = ended.status.code() == Some(125) && ended.stderr.contains(&*folder.to_string_lossy());
        assert!(ended.status.success() || refused, "{name}: {ended:?}");
    }
}
