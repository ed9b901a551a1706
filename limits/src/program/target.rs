//! Test of whether the program that is about to run can be watched at all.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::elf::{Elf, OUR_MACHINE};

/// Effect that a preloaded library can have in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// The shim is loaded: everything is recorded.
    Full,
    /// The loader leaves it out of the program itself, silently, or it does nothing there; programs that it
    /// starts may still be seen. The reason, as the end of a sentence about the program.
    OnlyChildren(String),
    /// Preloading would disturb the program (messages of the loader, or no start at all), so it
    /// must not be tried. The reason, as the end of a sentence about the program.
    Nothing(String),
}

impl Visibility {
    /// The reason why the program itself is not seen.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Full => None,
            Self::OnlyChildren(why) | Self::Nothing(why) => Some(why),
        }
    }
}

/// Finds the file that `exec` would run for `program`: the name itself if it has a slash, else
/// the first executable of that name in `path`.
#[must_use]
pub fn find(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
    path.as_bytes()
        .split(|byte| *byte == b':')
        .map(|dir| if dir.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(dir)) })
        .map(|dir| dir.join(program))
        .find(|file| executable(file))
}

/// Examines the program file. What cannot be read is taken to be visible: exec will say what is
/// wrong with it, and a program that may be run but not read is an ordinary one.
#[must_use]
pub fn examine(file: &Path) -> Visibility {
    if let Some(why) = changes_user(file) {
        return Visibility::OnlyChildren(why);
    }
    let Ok(opened) = File::open(file) else { return Visibility::Full };
    if let Some(interpreter) = script_interpreter(&opened) {
        let mut visibility = if let Some(why) = changes_user(&interpreter) {
            Visibility::OnlyChildren(why)
        } else {
            File::open(&interpreter).map_or(Visibility::Full, |opened| examine_elf(&opened))
        };
        if let Visibility::OnlyChildren(why) | Visibility::Nothing(why) = &mut visibility {
            *why = format!("has the interpreter {}, which {why}", interpreter.display());
        }
        return visibility;
    }
    examine_elf(&opened)
}

fn examine_elf(file: &File) -> Visibility {
    // Anything but ELF is run by the shell or refused by exec.
    let Ok(Some(elf)) = Elf::read(file) else { return Visibility::Full };
    if !elf.wide || !elf.little || elf.machine != OUR_MACHINE {
        let what = if elf.wide { "is made for another machine" } else { "is a 32-bit program" };
        return Visibility::Nothing(what.to_owned());
    }
    match &elf.interpreter {
        None => Visibility::OnlyChildren("is statically linked".to_owned()),
        Some(loader) if loader.contains("ld-musl") => {
            Visibility::OnlyChildren("uses the C library musl, and the shim needs glibc".to_owned())
        }
        Some(loader) if !loader.contains("ld-linux") => {
            Visibility::Nothing(format!("is loaded by {loader}, which is not glibc's loader"))
        }
        Some(_) => Visibility::Full,
    }
}

/// The loader ignores `LD_PRELOAD` where a program gains rights by being started.
fn changes_user(file: &Path) -> Option<String> {
    let meta = fs::metadata(file).ok()?;
    // SAFETY: both calls always work.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    if meta.mode() & libc::S_ISUID != 0 && meta.uid() != user {
        return Some("runs as another user (setuid)".to_owned());
    }
    let group_bits = libc::S_ISGID | libc::S_IXGRP;
    if meta.mode() & group_bits == group_bits && meta.gid() != group {
        return Some("runs as another group (setgid)".to_owned());
    }
    if user != 0 && has_capabilities(file) {
        return Some("gains capabilities when it is started".to_owned());
    }
    None
}

/// Returns true if a program gains capabilities by being started.
pub(crate) fn has_capabilities(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: C strings; size zero only asks how long the value is.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Returns true if a file is glibc's loader.
pub(crate) fn is_loader(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-linux"))
}

/// The program behind `#!`.
fn script_interpreter(file: &File) -> Option<PathBuf> {
    let mut head = Vec::new();
    file.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let name = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(name.to_vec())))
}

fn executable(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return false };
    // SAFETY: a C string.
    let allowed = unsafe { libc::access(path.as_ptr(), libc::X_OK) } == 0;
    allowed && fs::metadata(file).is_ok_and(|meta| meta.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(dir: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A 64-bit header with one program header (an interpreter) behind it.
    fn elf(class: u8, machine: u16, interpreter: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![0_u8; 64];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        bytes[16] = 2;
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        if let Some(name) = interpreter {
            bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
            let mut header = [0_u8; 56];
            header[..4].copy_from_slice(&3_u32.to_le_bytes());
            header[8..16].copy_from_slice(&120_u64.to_le_bytes());
            header[32..40].copy_from_slice(&(name.len() as u64 + 1).to_le_bytes());
            bytes.extend_from_slice(&header);
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    #[test]
    fn ordinary_programs_and_scripts_are_seen() {
        assert_eq!(examine(Path::new("/bin/sh")), Visibility::Full);
        let dir = tempfile::tempdir().unwrap();
        let script = file(dir.path(), "s", b"#! /bin/sh -e\nexit\n", 0o755);
        assert_eq!(examine(&script), Visibility::Full);
        assert_eq!(examine(&dir.path().join("missing")), Visibility::Full);
    }

    #[test]
    fn musl_is_named_and_may_start_others_that_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let musl = file(dir.path(), "m", &elf(2, OUR_MACHINE, Some("/lib/ld-musl-x86_64.so.1")), 0o755);
        assert!(matches!(examine(&musl), Visibility::OnlyChildren(why) if why.contains("musl")));
        let script = file(dir.path(), "s", format!("#!{}\n", musl.display()).as_bytes(), 0o755);
        assert!(matches!(examine(&script), Visibility::OnlyChildren(why) if why.contains("interpreter")));
    }

    #[test]
    fn static_programs_may_start_others_that_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path(), "s", &elf(2, OUR_MACHINE, None), 0o755);
        assert!(matches!(examine(&path), Visibility::OnlyChildren(why) if why.contains("static")));
    }

    #[test]
    fn other_classes_and_machines_get_no_preload() {
        let dir = tempfile::tempdir().unwrap();
        let narrow = file(dir.path(), "n", &elf(1, 3, None), 0o755);
        assert!(matches!(examine(&narrow), Visibility::Nothing(why) if why.contains("32-bit")));
        let other = file(dir.path(), "o", &elf(2, 0xf3, None), 0o755);
        assert!(matches!(examine(&other), Visibility::Nothing(why) if why.contains("machine")));
    }

    #[test]
    fn setuid_of_another_user_is_found_and_of_ourselves_is_harmless() {
        let dir = tempfile::tempdir().unwrap();
        let own = file(dir.path(), "s", &elf(2, OUR_MACHINE, Some("/lib64/ld-linux-x86-64.so.2")), 0o4755);
        assert_eq!(examine(&own), Visibility::Full);
        // SAFETY: always works.
        if unsafe { libc::geteuid() } == 0 {
            std::os::unix::fs::chown(&own, Some(12345), None).unwrap();
            fs::set_permissions(&own, fs::Permissions::from_mode(0o4755)).unwrap();
            assert!(matches!(examine(&own), Visibility::OnlyChildren(why) if why.contains("setuid")));
        }
    }

    #[test]
    fn a_program_is_found_as_exec_finds_it() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("1"), dir.path().join("2"));
        fs::create_dir_all(&first).unwrap();
        fs::create_dir_all(&second).unwrap();
        file(&first, "tool", b"", 0o644);
        let wanted = file(&second, "tool", b"", 0o755);
        let path = format!("{}:{}", first.display(), second.display());
        assert_eq!(find(OsStr::new("tool"), Some(OsStr::new(&path))), Some(wanted));
        assert_eq!(find(OsStr::new("none"), Some(OsStr::new(&path))), None);
        assert_eq!(find(OsStr::new("./x"), None), Some(PathBuf::from("./x")));
    }
}
