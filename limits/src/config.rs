//! Configuration files: what they say, with the line where they say it wrongly.
//!
//! ```toml
//! context = "auto"                 # what the driver takes for a process until it is measured; or 300MiB
//!
//! [default]                        # each user who is not named below
//! mem-limit = "20GiB"
//!
//! [user.alice]                     # all jobs of alice together
//! mem-limit = "0=60GiB,1=20GiB"
//!
//! [group.students]
//! mem-limit = "50%"                # all jobs of all members together
//! mem-limit-each = "10GiB"         # all jobs of each member together
//!
//! [job]
//! mem-limit = "30GiB"              # each job that asks for nothing else
//! mem-limit-max = "60GiB"          # each job, whatever it asks for
//! limits-from-environment = true   # HAMi's and the container toolkit's variables tighten a job's limits
//! profile-mode = "0640"            # who may read profiles; 0600 without
//!
//! [mps]
//! enable = true
//! active-thread-percentage = 50
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use radrm_telemetry::ledger::Amount;
use serde::{Deserialize, Deserializer, de};

use super::amount;
use super::requested::RequestedLimits;
use crate::LimitError;

/// One file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Memory that the driver takes for a process.
    pub context: Option<Context>,
    /// Users that have no section of their own.
    #[serde(default)]
    pub default: User,
    /// Users by name or number.
    #[serde(default)]
    pub user: BTreeMap<String, User>,
    /// Groups by name or number.
    #[serde(default)]
    pub group: BTreeMap<String, Group>,
    /// Every job.
    #[serde(default)]
    pub job: Job,
    /// The Multi-Process Service.
    #[serde(default)]
    pub mps: Mps,
}

/// Limits of a user.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct User {
    /// All jobs of the user together.
    pub mem_limit: Option<Text<RequestedLimits>>,
}

/// Limits of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Group {
    /// All jobs of all members together.
    pub mem_limit: Option<Text<RequestedLimits>>,
    /// All jobs of each member together.
    pub mem_limit_each: Option<Text<RequestedLimits>>,
}

/// Limits and settings of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Job {
    /// A job that asks for no limit.
    pub mem_limit: Option<Text<RequestedLimits>>,
    /// A job, whatever it asks for.
    pub mem_limit_max: Option<Text<RequestedLimits>>,
    /// Variables that other tools set in its environment tighten its limits.
    pub limits_from_environment: Option<bool>,
    /// The mode of its profile.
    pub profile_mode: Option<Mode>,
}

/// The Multi-Process Service on this node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mps {
    /// Jobs use it without being asked to.
    pub enable: Option<bool>,
    /// The share of a GPU's SMs that each process of a job may use, in percent.
    pub active_thread_percentage: Option<Percentage>,
    /// The pipe directory of a control daemon that another program starts and stops.
    pub pipe_directory: Option<PathBuf>,
}

/// Memory that the driver itself takes for a process, until it is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// Memory that was measured before on such a GPU with such a driver.
    Auto,
    /// Bytes.
    Bytes(u64),
}

impl<'de> Deserialize<'de> for Context {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match amount::parse(&text) {
            Ok(Amount::Bytes(bytes)) => Ok(Self::Bytes(bytes)),
            _ => Err(de::Error::custom(format!("`{text}` is neither \"auto\" nor an amount such as 300MiB"))),
        }
    }
}

/// Permissions of a file that its owner may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode(pub u32);

impl Mode {
    /// Reads octal digits, `0640`.
    ///
    /// # Errors
    /// It is not a mode, or one that keeps its owner from writing.
    pub fn parse(text: &str) -> Result<Self, LimitError> {
        let mode = u32::from_str_radix(text, 8).ok();
        let mode = mode.filter(|mode| *mode <= 0o777 && mode & 0o200 != 0);
        mode.map(Self).ok_or_else(|| LimitError::NoMode(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// 1 to 100.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Percentage(pub u8);

impl Percentage {
    /// Reads `50` or `50%`.
    pub fn parse(text: &str) -> Result<Self, LimitError> {
        let number = text.strip_suffix('%').unwrap_or(text).trim();
        match number.parse() {
            Ok(percent @ 1..=100) => Ok(Self(percent)),
            _ => Err(LimitError::NoPercentage(text.to_owned())),
        }
    }
}

impl<'de> Deserialize<'de> for Percentage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let percent = i64::deserialize(deserializer)?;
        Self::parse(&percent.to_string()).map_err(de::Error::custom)
    }
}

/// A value that is written as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text<T>(pub T);

impl<'de> Deserialize<'de> for Text<RequestedLimits> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        RequestedLimits::parse(&text).map(Self).map_err(de::Error::custom)
    }
}

impl<T: fmt::Display> fmt::Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads a file's text.
///
/// # Errors
/// One sentence with the file and the line.
pub fn parse(path: &Path, text: &str) -> Result<Config, LimitError> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| before.matches('\n').count() + 1);
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        LimitError::Configuration { path: path.to_owned(), line, what }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, LimitError> {
        parse(Path::new("f.toml"), text)
    }

    #[test]
    fn the_example_above_is_understood() {
        let text: String = include_str!("config.rs")
            .lines()
            .skip_while(|line| *line != "//! ```toml")
            .skip(1)
            .take_while(|line| *line != "//! ```")
            .map(|line| format!("{}\n", line.trim_start_matches("//!")))
            .collect();
        let config = read(&text).unwrap();
        assert_eq!(config.context, Some(Context::Auto));
        assert_eq!(config.user["alice"].mem_limit.as_ref().unwrap().to_string(), "0=60GiB,1=20GiB");
        assert_eq!(config.group["students"].mem_limit_each.as_ref().unwrap().to_string(), "10GiB");
        assert_eq!(config.job.mem_limit_max.as_ref().unwrap().to_string(), "60GiB");
        assert_eq!(config.job.profile_mode, Some(Mode(0o640)));
        assert_eq!(config.job.limits_from_environment, Some(true));
        assert_eq!(config.mps.active_thread_percentage, Some(Percentage(50)));
        assert_eq!(read("").unwrap(), Config::default());
    }

    /// The file that packages install, with and without the signs that make its lines comments.
    #[test]
    fn the_file_that_ships_has_every_key() {
        let shipped = include_str!("../../contrib/config/radrm.toml");
        assert_eq!(read(shipped).unwrap(), Config::default(), "it changes nothing");
        let text: String = shipped
            .lines()
            .filter_map(|line| line.strip_prefix('#').filter(|line| !line.starts_with(' ')))
            .map(|line| format!("{line}\n"))
            .collect();
        let Config { context, default, user, group, job, mps } = read(&text).unwrap();
        assert_eq!(context, Some(Context::Auto));
        assert!(default.mem_limit.is_some() && user["alice"].mem_limit.is_some());
        let Group { mem_limit, mem_limit_each } = &group["students"];
        assert!(mem_limit.is_some() && mem_limit_each.is_some());
        let Job { mem_limit, mem_limit_max, limits_from_environment, profile_mode } = job;
        assert_eq!(limits_from_environment, Some(true));
        assert!(mem_limit.is_some() && mem_limit_max.is_some() && profile_mode.is_some());
        let Mps { enable, active_thread_percentage, pipe_directory } = mps;
        assert!(enable == Some(false) && active_thread_percentage.is_some() && pipe_directory.is_some());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, line, part) in [
            ("\n[user.alice]\nmem-limt = \"1GiB\"\n", 3, "mem-limt"),
            ("[usr.alice]\n", 1, "usr"),
            ("[default]\nmem-limit = \"10G\"\n", 2, "can mean two things"),
            ("[default]\n\nmem-limit = 5\n", 3, "invalid type"),
            ("context = \"50%\"\n", 1, "neither \"auto\" nor an amount"),
            ("# a\n[mps]\nactive-thread-percentage = 0\n", 3, "not a percentage"),
            ("[mps]\nenable = \"yes\"\n", 2, "invalid type"),
            ("[job]\nprofile-mode = \"0440\"\n", 2, "not a mode that lets its owner write"),
            ("[job]\nprofile-mode = 640\n", 2, "invalid type"),
            ("[job]\nmem-limit = \"1GiB\nmem-limit-max = \"2GiB\"\n", 2, ""),
            ("[default]\nmem-limit = \"1GiB\"\nmem-limit = \"2GiB\"\n", 3, "duplicate"),
        ] {
            let sentence = read(text).unwrap_err().to_string();
            assert!(sentence.starts_with(&format!("f.toml, line {line}: ")), "{text}: {sentence}");
            assert!(sentence.contains(part) && sentence.lines().count() == 1, "{text}: {sentence}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_odd(text in "\\PC{0,40}\n?[\\PC\n\\[\\]=\"]{0,40}") {
            if let Err(error) = read(&text) {
                proptest::prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
