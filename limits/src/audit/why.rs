//! Reasons that memory of a process is not accounted for, as far as `/proc` shows them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use super::bindings::Bindings;
use super::known::Known;
use crate::program::elf::Elf;
use crate::program::{libraries, target};
use crate::scopes::user_name;
use radrm_os::Process;
use radrm_os::untrusted::{self, Places};
use radrm_telemetry::JoinFailure;

/// Longest time for the files of one process. Those of the largest programs take a tenth of it.
const MAX_LOOK: Duration = Duration::from_secs(1);
/// Processes whose files may be read at a time, of all users and of one.
static LOOKING: Places = Places::new(16, 4);

/// Reason that memory of a process is not accounted for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Its shim counts less than it holds, and its files do not show why.
    More,
    /// A library's calls are bound to the driver, past the shim.
    DeepBind(PathBuf),
    /// Some of its libraries live in a linker namespace of their own.
    LinkerNamespace,
    /// It has loaded a driver that is not the one that the shim follows.
    OtherDriver(PathBuf),
    /// It has device files open and no driver loaded.
    DeviceFiles,
    /// It gained rights when it was started: setuid or setgid.
    OtherRights,
    /// It gained capabilities when it was started.
    Capabilities,
    /// It is statically linked.
    Static,
    /// `RADRM_DISABLE` is set.
    Disabled,
    /// It belongs to a job, and its environment has lost the preload.
    LostPreload,
    /// Its environment names the shim, and the loader did not load it.
    NotLoaded,
    /// Its shim is loaded and cannot join its job, or is asked to join none.
    Unjoined(JoinFailure),
    /// An ancestor of it is the launcher of a job, and nothing of the job is left in its environment.
    LeftJob(u32),
    /// An ancestor of it is the launcher of a job with a limit, and it counts in another job.
    OtherJob(u32),
    /// It was started without radrm-run in namespaces of its own.
    OtherNamespace,
    /// Its shim is loaded and counts in no segment that can be read.
    CountsElsewhere,
    /// It was not started by radrm-run.
    NotStartedHere,
    /// Its mappings cannot be read, with the reason.
    Unreadable(String),
    /// It belongs to a user whose processes this one may not read.
    Hidden(Option<u32>),
    /// It has gone, or is in another pid namespace.
    NotThere,
}

impl Reason {
    /// For programs, and in the administrators' manual.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.words().0
    }

    /// For people: a sentence about the process.
    #[must_use]
    pub fn sentence(&self) -> String {
        let (_, sentence, _) = self.words();
        let name = match self {
            Self::DeepBind(path) | Self::OtherDriver(path) => path.display().to_string(),
            Self::LeftJob(launcher) | Self::OtherJob(launcher) => launcher.to_string(),
            Self::Hidden(Some(uid)) => user_name(*uid).unwrap_or_else(|| uid.to_string()),
            Self::Hidden(None) => "another user".to_owned(),
            Self::Unreadable(why) => why.clone(),
            _ => return sentence.to_owned(),
        };
        sentence.replace("{}", &name)
    }

    /// For people: what to do about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        self.words().2
    }

    /// Code, sentence and remedy.
    fn words(&self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::More => (
                "more-than-counted",
                "holds more than its calls account for, and its loaded files do not show why: pointers that a library \
                 found before the shim, or memory that the driver took beyond a plain context",
                "run it once alone under `radrm-run --mem-limit 100%`, which measures its context, or raise --tolerance",
            ),
            Self::DeepBind(_) => (
                "deepbind",
                "has {} loaded with RTLD_DEEPBIND, so the calls of this library go past the shim",
                "open the library without RTLD_DEEPBIND",
            ),
            Self::LinkerNamespace => (
                "dlmopen",
                "has libraries in a linker namespace of their own (dlmopen), which no preload reaches",
                "open the libraries with dlopen; a profiler's LD_AUDIT makes such a namespace too",
            ),
            Self::OtherDriver(_) => (
                "other-driver",
                "has loaded the driver from {}, a copy that the shim does not follow",
                "remove the copy, or open libcuda.so.1 by its name",
            ),
            Self::DeviceFiles => (
                "device-files",
                "has /dev/nvidia* open and no driver loaded: it calls the kernel driver itself",
                "no library can count such a process: bound it by MIG or by a control group",
            ),
            Self::OtherRights => (
                "setuid",
                "gained rights when it was started (setuid or setgid), so the loader ignored LD_PRELOAD",
                "take the bit away (chmod ug-s), or list the shim in /etc/ld.so.preload",
            ),
            Self::Capabilities => (
                "capabilities",
                "gained capabilities when it was started, so the loader ignored LD_PRELOAD",
                "take them from the file (setcap -r), or list the shim in /etc/ld.so.preload",
            ),
            Self::Static => (
                "static",
                "is statically linked, so no loader took the shim into it",
                "link it dynamically, or bound it by MIG or by a control group",
            ),
            Self::Disabled => ("disabled", "has RADRM_DISABLE set", "unset RADRM_DISABLE"),
            Self::LostPreload => (
                "lost-preload",
                "was started inside a job and has lost LD_PRELOAD on the way",
                "let the parent pass LD_PRELOAD on, or list the shim in /etc/ld.so.preload",
            ),
            Self::NotLoaded => (
                "not-loaded",
                "names the shim in LD_PRELOAD, and the loader did not load it",
                "make the file readable where the process runs (container, chroot), for its C library",
            ),
            Self::Unjoined(failure) => (failure.code(), failure.sentence(), failure.remedy()),
            Self::LeftJob(_) => (
                "left-job",
                "descends from the job {} and has lost LD_PRELOAD and RADRM_SEGMENT on the way",
                "let the parent keep the environment: no `env -i`, no sudo that resets it",
            ),
            Self::OtherJob(_) => (
                "other-job",
                "descends from the job {}, which has a limit, and counts in another one",
                "let the parent keep RADRM_SEGMENT: a job below a job with a limit counts there",
            ),
            Self::OtherNamespace => (
                "container",
                "runs in a pid or mount namespace of its own, and not under radrm-run there",
                "make radrm-run the entry point of the container",
            ),
            Self::CountsElsewhere => (
                "counts-elsewhere",
                "has the shim loaded, but its job cannot be read from here",
                "run radrm audit as root in the host's pid namespace",
            ),
            Self::NotStartedHere => {
                ("no-shim", "was not started under radrm-run", "start it under radrm-run")
            }
            Self::Unreadable(_) => (
                "unreadable",
                "cannot be read: {}",
                "no program needs such files: look at what its user runs, or end it",
            ),
            Self::Hidden(_) => {
                ("hidden", "belongs to {} and cannot be read by this user", "run radrm audit as root")
            }
            Self::NotThere => (
                "not-there",
                "has ended meanwhile, or its process id is one of another pid namespace",
                "run radrm audit again, in the host's pid namespace",
            ),
        }
    }
}

/// Returns true if this is MPS's own server: it holds memory for its clients, which are listed themselves.
#[must_use]
pub fn is_service(process: Process) -> bool {
    process.name() == "nvidia-cuda-mps"
}

/// Reason that a shim counts less than its process holds.
#[must_use]
pub fn more(process: Process) -> Reason {
    match look(process, Bindings::of) {
        Ok(bindings) => past(&bindings).unwrap_or(Reason::More),
        Err(error) => unreadable(&error).unwrap_or(Reason::More),
    }
}

/// Reason that no shim counts a process.
#[must_use]
pub fn unknown(process: Process, known: &Known) -> Reason {
    if !process.exists() {
        return Reason::NotThere;
    }
    let launcher = known.launcher_above(process);
    match look(process, Evidence::of) {
        Ok(evidence) => Evidence { launcher, ..evidence }.reason(),
        Err(error) => unreadable(&error).unwrap_or_else(|| Reason::Hidden(process.uid())),
    }
}

/// Reads files of a process, as far as they answer.
fn look<T: Send + 'static>(process: Process, read: fn(Process) -> io::Result<T>) -> io::Result<T> {
    // What is no user's here has places of its own.
    let user = process.uid().unwrap_or(u32::MAX);
    untrusted::in_time(&LOOKING, user, MAX_LOOK, move || read(process))
        .unwrap_or_else(|missed| Err(missed.into()))
}

/// Obstacle to reading a process that this user may read; `None` if the user may not, or it has ended.
fn unreadable(error: &io::Error) -> Option<Reason> {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound => None,
        io::ErrorKind::TimedOut => Some(Reason::Unreadable("its files do not answer in time".to_owned())),
        io::ErrorKind::ResourceBusy => {
            Some(Reason::Unreadable("files of other processes do not answer".to_owned()))
        }
        _ if error.raw_os_error() == Some(libc::ESRCH) => None,
        _ => Some(Reason::Unreadable(format!("its list of mapped files: {error}"))),
    }
}

/// A way past the shim that the loaded files show.
fn past(bindings: &Bindings) -> Option<Reason> {
    let other = match bindings.drivers.as_slice() {
        [one] => (!is_driver(one)).then_some(one),
        several => several.iter().find(|path| !is_driver(path)),
    };
    if bindings.has_linker_namespaces {
        Some(Reason::LinkerNamespace)
    } else if let Some(path) = &bindings.past_shim {
        Some(Reason::DeepBind(path.clone()))
    } else {
        other.map(|path| Reason::OtherDriver(path.clone()))
    }
}

/// Returns true if the shim follows a driver in this file.
fn is_driver(path: &std::path::Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.starts_with(b"libcuda.so") || name == libraries::EMULATED_CUDA.as_bytes()
}

/// Evidence on a process that no shim counts.
#[derive(Clone, Debug, Default)]
struct Evidence {
    bindings: Bindings,
    /// Values of its environment: `None` is unset.
    disable: Option<Vec<u8>>,
    preload: Option<Vec<u8>>,
    segment: Option<Vec<u8>>,
    is_static: bool,
    gained_rights: bool,
    has_capabilities: bool,
    has_device_files: bool,
    in_own_namespaces: bool,
    /// The launcher among its ancestors.
    launcher: Option<u32>,
}

impl Evidence {
    /// All but the launcher. An error if this user may not read it.
    fn of(process: Process) -> io::Result<Self> {
        let bindings = Bindings::of(process)?;
        let environment = process.environment().ok_or(io::ErrorKind::PermissionDenied)?;
        let value = |name: &str| environment.value(name).map(<[u8]>::to_vec);
        let exe = process.exe();
        // A program that the loader itself was called with is not the file that runs.
        let is_loader = exe.read_link().is_ok_and(|path| target::is_loader(&path));
        let elf = untrusted::open_linked(&exe).ok().and_then(|file| Elf::read(&file).ok().flatten());
        Ok(Self {
            disable: value("RADRM_DISABLE"),
            preload: value("LD_PRELOAD"),
            segment: value("RADRM_SEGMENT"),
            is_static: !is_loader && elf.is_some_and(|elf| elf.interpreter.is_none()),
            gained_rights: process.gained_rights().unwrap_or(false),
            has_capabilities: target::has_capabilities(&exe),
            has_device_files: process.open_files().iter().any(|(_, name)| is_device(name)),
            in_own_namespaces: process.shares_namespaces() == Some(false),
            launcher: None,
            bindings,
        })
    }

    /// The way past the shim, or that it cannot be told.
    fn past(&self) -> Option<Reason> {
        past(&self.bindings).or_else(|| self.bindings.unreadable.clone().map(Reason::Unreadable))
    }

    fn reason(&self) -> Reason {
        let is_job = self.segment.as_ref().is_some_and(|path| !path.is_empty());
        let names_shim = self.preload.as_ref().is_some_and(|list| {
            list.windows(libraries::SHIM.len()).any(|part| part == libraries::SHIM.as_bytes())
        });
        if self.disable.as_ref().is_some_and(|value| !value.is_empty() && value != b"0") {
            Reason::Disabled
        } else if let Some(failure) = self.bindings.join_failure {
            Reason::Unjoined(failure)
        } else if self.bindings.shim {
            match &self.segment {
                // A program that shows a title of its own has overwritten its environment.
                _ if self.bindings.segment => self.past().unwrap_or(Reason::CountsElsewhere),
                None => Reason::Unjoined(JoinFailure::NoSegment),
                Some(path) if path.is_empty() => Reason::Unjoined(JoinFailure::EmptySegment),
                Some(_) => self.past().unwrap_or(Reason::CountsElsewhere),
            }
        } else if self.is_static {
            Reason::Static
        } else if self.gained_rights {
            if self.has_capabilities { Reason::Capabilities } else { Reason::OtherRights }
        } else if names_shim {
            Reason::NotLoaded
        } else if is_job {
            Reason::LostPreload
        } else if let Some(launcher) = self.launcher {
            Reason::LeftJob(launcher)
        } else if let Some(what) = &self.bindings.unreadable {
            Reason::Unreadable(what.clone())
        } else if self.bindings.drivers.is_empty() && self.has_device_files {
            Reason::DeviceFiles
        } else if self.in_own_namespaces {
            Reason::OtherNamespace
        } else {
            Reason::NotStartedHere
        }
    }
}

/// Returns true if an open file is one of the kernel driver's.
fn is_device(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"/dev/nvidia")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_program_was_not_started_here_and_an_absent_one_is_not_there() {
        let known = Known::default();
        assert_eq!(unknown(Process(4_194_305), &known), Reason::NotThere);
        let reason = unknown(Process(std::process::id()), &known);
        // Under radrm-run this test itself has lost the preload.
        assert!(matches!(reason, Reason::NotStartedHere | Reason::LostPreload), "{reason:?}");
    }

    #[test]
    fn every_evasion_has_a_code_a_sentence_and_a_remedy_of_its_own() {
        let path = || PathBuf::from("/lib/libx.so");
        let all = [
            Reason::More,
            Reason::DeepBind(path()),
            Reason::LinkerNamespace,
            Reason::OtherDriver(path()),
            Reason::DeviceFiles,
            Reason::OtherRights,
            Reason::Capabilities,
            Reason::Static,
            Reason::Disabled,
            Reason::LostPreload,
            Reason::NotLoaded,
            Reason::LeftJob(7),
            Reason::OtherNamespace,
            Reason::CountsElsewhere,
            Reason::NotStartedHere,
            Reason::Unreadable("x".into()),
            Reason::Hidden(Some(0)),
            Reason::NotThere,
        ];
        let all: Vec<_> = JoinFailure::ALL.iter().map(|one| Reason::Unjoined(*one)).chain(all).collect();
        for text in [|r: &Reason| r.code().to_owned(), Reason::sentence, |r: &Reason| r.remedy().to_owned()] {
            let mut texts: Vec<String> = all.iter().map(text).collect();
            assert!(texts.iter().all(|text| !text.is_empty() && !text.contains(['\n', '{'])), "{texts:?}");
            texts.sort_unstable();
            texts.dedup();
            assert_eq!(texts.len(), all.len());
        }
        let manual = include_str!("../../../docs/audit.md");
        for reason in &all {
            assert!(manual.contains(&format!("`{}`", reason.code())), "docs/audit.md: {}", reason.code());
        }
        assert!(Reason::Hidden(Some(0)).sentence().contains("root"));
    }

    #[test]
    fn each_evasion_is_told_apart_by_its_evidence() {
        let text = |text: &str| Some(text.as_bytes().to_vec());
        let bare = Evidence::default;
        let job = || Evidence { segment: text("/s"), preload: text("/r/libradrm.so"), ..bare() };
        let loaded = |bindings: Bindings| Evidence { bindings: Bindings { shim: true, ..bindings }, ..job() };
        let files = |drivers: &[&str]| Bindings {
            drivers: drivers.iter().map(PathBuf::from).collect(),
            ..Bindings::default()
        };
        let genuine = "/lib/libcuda.so.550.54";
        let unread = || Bindings { unreadable: Some("/x: slow".into()), ..Bindings::default() };
        for (evidence, code) in [
            (bare(), "no-shim"),
            (Evidence { in_own_namespaces: true, ..bare() }, "container"),
            (Evidence { has_device_files: true, ..bare() }, "device-files"),
            (Evidence { has_device_files: true, bindings: files(&[genuine]), ..bare() }, "no-shim"),
            (Evidence { launcher: Some(7), ..bare() }, "left-job"),
            (Evidence { has_device_files: true, bindings: unread(), ..bare() }, "unreadable"),
            (loaded(Bindings { segment: true, ..unread() }), "unreadable"),
            (loaded(Bindings { has_linker_namespaces: true, ..unread() }), "dlmopen"),
            (Evidence { preload: text(""), ..job() }, "lost-preload"),
            (job(), "not-loaded"),
            (Evidence { is_static: true, ..job() }, "static"),
            (Evidence { gained_rights: true, ..job() }, "setuid"),
            (Evidence { gained_rights: true, has_capabilities: true, ..job() }, "capabilities"),
            (Evidence { disable: text("1"), ..loaded(files(&[])) }, "disabled"),
            (Evidence { disable: text("0"), ..loaded(files(&[])) }, "counts-elsewhere"),
            (Evidence { segment: None, ..loaded(files(&[])) }, "no-segment"),
            (Evidence { segment: text(""), ..loaded(files(&[])) }, "empty-segment"),
            (
                Evidence { segment: None, ..loaded(Bindings { segment: true, ..files(&[]) }) },
                "counts-elsewhere",
            ),
            (loaded(Bindings { join_failure: Some(JoinFailure::Full), ..files(&[genuine]) }), "job-full"),
            (loaded(files(&[genuine])), "counts-elsewhere"),
            (loaded(files(&[genuine, "/home/a/mycuda.so"])), "other-driver"),
            (loaded(files(&["/home/a/mycuda.so"])), "other-driver"),
            (loaded(Bindings { past_shim: Some("/x.so".into()), ..files(&[genuine]) }), "deepbind"),
            (loaded(Bindings { has_linker_namespaces: true, ..files(&[genuine]) }), "dlmopen"),
        ] {
            assert_eq!(evidence.reason().code(), code, "{evidence:?}");
        }
    }
}
