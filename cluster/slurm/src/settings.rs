//! The administrator's words behind the plug-in in `plugstack.conf`.

use std::ffi::{CStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use radrm_limits::amount;
use thiserror::Error;

use crate::options::{self, MAX_ATTEMPTS, Mode};

/// Condition under which something is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// `auto`: where the driver can.
    Possible,
    /// `on`: without a look at the driver's version.
    Always,
    /// `off`.
    Never,
}

/// Settings of the plug-in on this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `run=`: the program that limits and records.
    pub run: PathBuf,
    /// `lib=`: where its libraries are, if not in the usual place.
    pub libraries: Option<PathBuf>,
    /// `state=`: what is kept of limited jobs, a directory of the user that slurmd runs as.
    pub state: PathBuf,
    /// `shard=`: GPU memory that one `gres/shard` stands for, bytes; without it shards limit nothing.
    pub shard: Option<u64>,
    /// `default=`: what is done with a job that has no option.
    pub default: Mode,
    /// `attempts=`: a batch job that runs out of GPU memory runs at most so often, unless it says otherwise; 1: once.
    pub attempts: u32,
    /// `fence=`: whether the driver limits the control groups of jobs.
    pub fence: When,
    /// `machine=`: the file of an emulated machine, for trials on nodes without GPUs.
    pub machine: Option<PathBuf>,
}

/// Error in a word, as one sentence.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum SettingsError {
    #[error(
        "plugstack.conf: `{0}` is none of run=, lib=, state=, shard=, default=, attempts=, fence=, machine="
    )]
    Unknown(String),
    #[error("plugstack.conf: `{0}` is not an amount such as shard=1MiB")]
    Shard(String),
    #[error("plugstack.conf: `{0}` is none of default=off, default=profile")]
    Default(String),
    #[error("plugstack.conf: `{0}` is none of fence=auto, fence=on, fence=off")]
    Fence(String),
    #[error("plugstack.conf: `{0}` is not a number of attempts between 1 and {MAX_ATTEMPTS}")]
    Attempts(String),
    #[error("plugstack.conf: `{0}` is no absolute path")]
    Path(String),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            run: "/usr/bin/radrm-run".into(),
            libraries: None,
            state: "/run/radrm-slurm".into(),
            shard: None,
            default: Mode::Off,
            attempts: 1,
            fence: When::Possible,
            machine: None,
        }
    }
}

impl Settings {
    /// Reads the words of a hook.
    ///
    /// # Errors
    /// A word is wrong.
    ///
    /// # Safety
    /// `words` leads to `count` strings.
    pub unsafe fn of_hook(count: c_int, words: *const *const c_char) -> Result<Self, SettingsError> {
        let count = if words.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
        // SAFETY: as the caller promises.
        let words = (0..count).map(|at| unsafe { CStr::from_ptr(*words.add(at)) }.to_bytes().to_vec());
        Self::parse(words)
    }

    fn parse(words: impl Iterator<Item = Vec<u8>>) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        for word in words {
            let shown = || String::from_utf8_lossy(&word).into_owned();
            let (name, value) = match word.iter().position(|byte| *byte == b'=') {
                Some(at) => word.split_at(at),
                None => return Err(SettingsError::Unknown(shown())),
            };
            let value = value.get(1..).unwrap_or_default();
            let path = || {
                let path = PathBuf::from(OsString::from_vec(value.to_vec()));
                if path.is_absolute() { Ok(path) } else { Err(SettingsError::Path(shown())) }
            };
            let text = || String::from_utf8_lossy(value).into_owned();
            match name {
                b"run" => settings.run = path()?,
                b"lib" => settings.libraries = Some(path()?),
                b"state" => settings.state = path()?,
                b"machine" => settings.machine = Some(path()?),
                b"shard" => {
                    let bytes = amount::bytes(&text()).ok().filter(|bytes| *bytes > 0);
                    settings.shard = Some(bytes.ok_or_else(|| SettingsError::Shard(shown()))?);
                }
                b"default" => {
                    let mode = Mode::parse(&text()).ok().filter(|mode| *mode != Mode::Limit);
                    settings.default = mode.ok_or_else(|| SettingsError::Default(shown()))?;
                }
                b"fence" => {
                    settings.fence = match value {
                        b"auto" => When::Possible,
                        b"on" => When::Always,
                        b"off" => When::Never,
                        _ => return Err(SettingsError::Fence(shown())),
                    };
                }
                b"attempts" => {
                    settings.attempts =
                        options::attempts(&text()).map_err(|_| SettingsError::Attempts(shown()))?;
                }
                _ => return Err(SettingsError::Unknown(shown())),
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Settings, SettingsError> {
        Settings::parse(line.split_whitespace().map(|word| word.as_bytes().to_vec()))
    }

    #[test]
    fn words_of_the_configuration_are_understood() {
        assert_eq!(parse(""), Ok(Settings::default()));
        let settings =
            parse("run=/a lib=/b state=/c shard=1MiB default=profile attempts=4 machine=/d fence=off")
                .unwrap();
        assert_eq!((settings.run, settings.state), ("/a".into(), "/c".into()));
        assert_eq!((settings.libraries, settings.machine), (Some("/b".into()), Some("/d".into())));
        assert_eq!((settings.shard, settings.default), (Some(1 << 20), Mode::Profile));
        assert_eq!((settings.attempts, Settings::default().attempts), (4, 1));
        assert_eq!((settings.fence, Settings::default().fence), (When::Never, When::Possible));
    }

    #[test]
    fn wrong_words_are_named() {
        for line in [
            "shard=1M",
            "shard=0",
            "default=limit",
            "run=bin",
            "attempts=0",
            "fence=1",
            "debug",
            "shards=1MiB",
        ] {
            let sentence = parse(line).unwrap_err().to_string();
            assert!(sentence.contains(line) && sentence.starts_with("plugstack.conf"), "{sentence}");
        }
    }
}
