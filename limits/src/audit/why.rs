//! Why no shim knows a process, as far as `/proc` tells.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use crate::program::elf::Elf;
use crate::scopes::user_name;
use radrm_os::{Process, variable};

/// Why a process has to be looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It holds more than its shim knows of.
    More,
    /// It gained rights when it was started, so that the loader left the shim out.
    OtherRights,
    /// It is statically linked: nothing can be preloaded.
    Static,
    /// `RADRM_DISABLE` is set.
    Disabled,
    /// It belongs to a job, and its environment has lost the preload.
    LostPreload,
    /// Its shim is loaded and counts in no segment that can be read.
    CountsElsewhere,
    /// It was not started by radrm-run.
    NotStartedHere,
    /// It belongs to a user whose processes this one may not look at.
    Hidden(Option<u32>),
    /// It has gone, or is in another pid namespace.
    NotThere,
}

impl Reason {
    /// For programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::More => "more-than-counted",
            Self::OtherRights => "setuid",
            Self::Static => "static",
            Self::Disabled => "disabled",
            Self::LostPreload => "lost-preload",
            Self::CountsElsewhere => "counts-elsewhere",
            Self::NotStartedHere => "no-shim",
            Self::Hidden(_) => "hidden",
            Self::NotThere => "not-there",
        }
    }

    /// For people: a sentence about the process.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::More => {
                "holds more than its calls account for: a library opened with RTLD_DEEPBIND, a static part, \
                 or memory that the driver took beyond a plain context"
                    .to_owned()
            }
            Self::OtherRights => {
                "gained rights when it was started (setuid, setgid or capabilities), so the shim was left out"
                    .to_owned()
            }
            Self::Static => "is statically linked, so the shim was left out".to_owned(),
            Self::Disabled => "has RADRM_DISABLE set".to_owned(),
            Self::LostPreload => "was started inside a job and has lost LD_PRELOAD on the way".to_owned(),
            Self::CountsElsewhere => {
                "has the shim loaded, but its job cannot be looked at from here".to_owned()
            }
            Self::NotStartedHere => "was not started under radrm-run".to_owned(),
            Self::Hidden(Some(uid)) => {
                let name = user_name(*uid).unwrap_or_else(|| uid.to_string());
                format!("belongs to {name}: only root can look closer")
            }
            Self::Hidden(None) => "cannot be looked at: only root can".to_owned(),
            Self::NotThere => {
                "has ended meanwhile, or its process id is one of another pid namespace".to_owned()
            }
        }
    }
}

/// Whether this is MPS's own server: it holds memory for its clients, which are listed themselves.
#[must_use]
pub fn is_service(process: Process) -> bool {
    process.name() == "nvidia-cuda-mps"
}

/// Why no shim knows a process.
#[must_use]
pub fn unknown(process: Process) -> Reason {
    if !process.exists() {
        return Reason::NotThere;
    }
    let (Some(maps), Some(environment)) = (process.maps(), process.environment()) else {
        return Reason::Hidden(process.uid());
    };
    let set = |name: &str| variable(&environment, name);
    if maps.lines().any(|line| line.ends_with("/libradrm.so")) {
        return match set("RADRM_DISABLE") {
            Some(value) if value != "0" => Reason::Disabled,
            _ => Reason::CountsElsewhere,
        };
    }
    let elf = File::open(process.exe()).ok().and_then(|file| Elf::read(&file).ok().flatten());
    if elf.is_some_and(|elf| elf.interpreter.is_none()) {
        return Reason::Static;
    }
    if gained_rights(process) {
        return Reason::OtherRights;
    }
    if set("RADRM_SEGMENT").is_some() {
        return Reason::LostPreload;
    }
    Reason::NotStartedHere
}

fn gained_rights(process: Process) -> bool {
    let changed = process.users().is_some_and(|(real, effective)| real != effective);
    let mode = process.exe().metadata().map(|meta| (meta.mode(), meta.uid()));
    let setuid = mode
        .is_ok_and(|(mode, uid)| mode & libc::S_ISUID != 0 && Some(uid) != process.users().map(|ids| ids.0));
    changed || setuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_program_was_not_started_here_and_an_absent_one_is_not_there() {
        assert_eq!(unknown(Process(4_194_305)), Reason::NotThere);
        let reason = unknown(Process(std::process::id()));
        // Under radrm-run this test itself has lost the preload.
        assert!(matches!(reason, Reason::NotStartedHere | Reason::LostPreload), "{reason:?}");
    }

    #[test]
    fn every_reason_is_one_sentence_with_a_code_of_its_own() {
        let all = [
            Reason::More,
            Reason::OtherRights,
            Reason::Static,
            Reason::Disabled,
            Reason::LostPreload,
            Reason::CountsElsewhere,
            Reason::NotStartedHere,
            Reason::Hidden(Some(0)),
            Reason::NotThere,
        ];
        let mut codes: Vec<_> = all.iter().map(Reason::code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), all.len());
        assert!(all.iter().all(|reason| !reason.sentence().is_empty() && !reason.sentence().contains('\n')));
        assert!(Reason::Hidden(Some(0)).sentence().contains("root"));
    }
}
