//! Key that is equal for two runs of one program.

use std::fmt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use radrm_base::Millis;
use radrm_base::batch::OPTIONS;
use radrm_profile::name::script_file;
use sha2::{Digest, Sha256};

/// A longer key is replaced by its digest, bytes: it is stored with each run.
const MAX_KEY: usize = 2048;

/// A command line in its directory on so many GPUs, without the batch size: equal for runs that differ in that only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramKey(String);

impl ProgramKey {
    /// The key of a command that runs in `cwd` on so many GPUs.
    #[must_use]
    pub fn of(command: &[String], cwd: &Path, gpus: u32) -> Self {
        let mut words = command.to_vec();
        for at in 0..words.len() {
            let named = at > 0 && OPTIONS.contains(&words[at - 1].as_str());
            if named && words[at].parse::<u32>().is_ok() {
                words[at] = "#".to_owned();
            } else if let Some((name, value)) = words[at].split_once('=')
                && OPTIONS.contains(&name)
                && value.parse::<u32>().is_ok()
            {
                words[at] = format!("{name}=#");
            }
        }
        // JSON has no words for other bytes, and without a directory all programs would be one.
        let escaped = || cwd.as_os_str().as_encoded_bytes().escape_ascii().to_string();
        let cwd = cwd.to_str().map_or_else(escaped, str::to_owned);
        let text = serde_json::json!((words, cwd, gpus)).to_string();
        if text.len() <= MAX_KEY {
            return Self(text);
        }
        let digest = Sha256::digest(&text).iter().fold(String::new(), |sum, byte| format!("{sum}{byte:02x}"));
        Self(format!("sha256:{digest}"))
    }

    /// As a row holds it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A batch script as the first word of a command. A workload manager runs a copy of it under another name each time, so
/// it is known by its content: a script that was changed is another program.
#[must_use]
pub fn script_word(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    let start = digest.iter().take(8).fold(String::new(), |sum, byte| format!("{sum}{byte:02x}"));
    format!("batch-script:{start}")
}

/// Time of the last change of the script that a command runs in `cwd`, since 1970: runs before it are of another program, though their
/// key is the same. `None` where the command runs no script, or it cannot be found.
#[must_use]
pub fn last_change(command: &[String], cwd: &Path) -> Option<Millis> {
    let changed = cwd.join(script_file(command)?).metadata().ok()?.modified().ok()?;
    let since = changed.duration_since(UNIX_EPOCH).ok()?;
    Some(Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
}

impl fmt::Display for ProgramKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn key(line: &str) -> ProgramKey {
        ProgramKey::of(&words(line), Path::new("/"), 1)
    }

    #[test]
    fn a_script_is_known_by_its_content() {
        let word = script_word(b"#!/bin/sh\n./train\n");
        assert_eq!(word, script_word(b"#!/bin/sh\n./train\n"));
        assert_ne!(word, script_word(b"#!/bin/sh\n./train --batch-size 2\n"));
        assert!(word.starts_with("batch-script:") && word.len() == 29, "{word}");
    }

    #[test]
    fn a_script_has_the_time_of_its_last_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("train.py")).unwrap();
        file.set_modified(UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_123)).unwrap();
        let of = |line: &str| last_change(&words(line), folder.path());
        assert_eq!(of("python3 -u train.py --bs 8"), Some(Millis(1_700_000_000_123)));
        assert_eq!([of("python3 other.py"), of("python3 -m train"), of("./t")], [None; 3]);
    }

    #[test]
    fn a_long_program_is_known_by_its_digest_and_told_from_others() {
        let of = |bytes: usize, last: &str| {
            let command = ["p".to_owned(), "x".repeat(bytes), last.to_owned()];
            ProgramKey::of(&command, Path::new("/"), 1).to_string()
        };
        assert!(of(10, "a").contains("xxxxxxxxxx"), "a short one is itself");
        assert_eq!(of(100_000, "a"), of(100_000, "a"));
        assert_ne!(of(100_000, "a"), of(100_000, "b"));
        assert!(of(100_000, "a").len() < 100);
    }

    #[test]
    fn a_programs_key_leaves_out_the_batch_size_and_nothing_else() {
        assert_eq!(key("t --bs=8 -e 3"), key("t --bs=16 -e 3"));
        assert_ne!(key("t --hidden 8"), key("t --hidden 16"));
    }

    #[test]
    fn keys_of_released_daemons_stay_valid() {
        assert_eq!(key("t --bs 8 -e 3").as_str(), r##"[["t","--bs","#","-e","3"],"/",1]"##);
    }

    #[test]
    fn directories_that_are_no_text_are_told_apart() {
        let of = |cwd: &[u8]| ProgramKey::of(&words("t"), Path::new(OsStr::from_bytes(cwd)), 1);
        assert_ne!(of(b"/a\xff"), of(b"/a\xfe"));
        assert_ne!(of(b"/a"), of(b"/b"));
        assert_ne!(of(b"/a"), ProgramKey::of(&words("t"), Path::new("/a"), 2));
    }
}
