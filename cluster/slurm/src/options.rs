//! Options on the command line of `srun`, `sbatch` and `salloc`.

use radrm_limits::LimitError;
use radrm_limits::amount;
use radrm_limits::config::Percentage;
use radrm_limits::requested::RequestedLimits;
use thiserror::Error;

/// More attempts are taken for a slip: each one is larger than the one before.
pub const MAX_ATTEMPTS: u32 = 100;

/// Reason that options cannot hold, as one sentence.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum OptionError {
    #[error("--gpu-mem: {0}")]
    Memory(LimitError),
    #[error("--gpu-share: {0}")]
    Share(LimitError),
    #[error("--radrm: `{0}` is none of off, limit, profile")]
    Mode(String),
    #[error("--gpu-attempts: `{0}` is not a number between 1 and {MAX_ATTEMPTS}")]
    Attempts(String),
    #[error("--radrm=off and {0} cannot be used together: leave one of them out")]
    Off(&'static str),
}

/// Value of `--radrm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The job is left alone; it can have no limit.
    Off,
    /// Limits only: no profile and no row in the dataset.
    Limit,
    /// Everything is recorded.
    Profile,
}

/// An option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// `--gpu-mem`
    Memory,
    /// `--gpu-share`
    Share,
    /// `--radrm`
    Mode,
    /// `--gpu-attempts`
    Attempts,
}

/// The options as text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Words {
    /// `--gpu-mem`
    pub memory: Option<String>,
    /// `--gpu-share`
    pub share: Option<String>,
    /// `--radrm`
    pub mode: Option<String>,
    /// `--gpu-attempts`
    pub attempts: Option<String>,
}

/// The options as they are meant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// At most so much memory of each GPU.
    pub memory: Option<RequestedLimits>,
    /// At most such a share of each GPU's time, percent.
    pub share: Option<u8>,
    /// Mode of the job.
    pub mode: Option<Mode>,
    /// A batch job that runs out of GPU memory runs at most so often, each time with more.
    pub attempts: Option<u32>,
}

/// Value of `--gpu-mem` for `job_submit.lua`: plain bytes, or a percentage of a GPU.
/// `None` if GPUs are named, which only a job with whole GPUs can do.
pub fn for_controller(memory: &str) -> Option<String> {
    let limits = RequestedLimits::parse(memory).ok().filter(|limits| !limits.names_gpus())?.to_string();
    match amount::bytes(&limits) {
        Ok(bytes) => Some(bytes.to_string()),
        Err(_) => limits.ends_with('%').then_some(limits),
    }
}

/// Reads a number of attempts.
///
/// # Errors
/// [`OptionError::Attempts`].
pub fn attempts(text: &str) -> Result<u32, OptionError> {
    let number = text.parse().ok().filter(|number| (1..=MAX_ATTEMPTS).contains(number));
    number.ok_or_else(|| OptionError::Attempts(text.to_owned()))
}

impl Mode {
    /// Reads a mode.
    ///
    /// # Errors
    /// [`OptionError::Mode`].
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        match text {
            "off" => Ok(Self::Off),
            "limit" => Ok(Self::Limit),
            "profile" => Ok(Self::Profile),
            _ => Err(OptionError::Mode(text.to_owned())),
        }
    }
}

impl Words {
    /// Reads all of them.
    ///
    /// # Errors
    /// A value is wrong, or two options cannot both hold.
    pub fn parse(&self) -> Result<Options, OptionError> {
        let memory = self.memory.as_deref().map(RequestedLimits::parse).transpose();
        let memory = memory.map_err(OptionError::Memory)?;
        let share = self.share.as_deref().map(Percentage::parse).transpose();
        let share = share.map_err(OptionError::Share)?.map(|percent| percent.0);
        let mode = self.mode.as_deref().map(Mode::parse).transpose()?;
        let attempts = self.attempts.as_deref().map(attempts).transpose()?;
        if mode == Some(Mode::Off) && (memory.is_some() || share.is_some()) {
            let option = if memory.is_some() { "--gpu-mem" } else { "--gpu-share" };
            return Err(OptionError::Off(option));
        }
        Ok(Options { memory, share, mode, attempts })
    }

    /// The same with one of them set.
    #[must_use]
    pub fn with(mut self, name: Name, text: &str) -> Self {
        let place = match name {
            Name::Memory => &mut self.memory,
            Name::Share => &mut self.share,
            Name::Mode => &mut self.mode,
            Name::Attempts => &mut self.attempts,
        };
        *place = Some(text.to_owned());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Words {
        line.split_whitespace().fold(Words::default(), |words, word| {
            let (name, text) = word.split_once('=').unwrap();
            let name = match name {
                "mem" => Name::Memory,
                "share" => Name::Share,
                "attempts" => Name::Attempts,
                _ => Name::Mode,
            };
            words.with(name, text)
        })
    }

    #[test]
    fn options_are_read_by_the_rules_of_limits() {
        let options = words("mem=0=10GiB,50% share=30% radrm=profile attempts=3").parse().unwrap();
        assert_eq!(options.memory.unwrap().to_string(), "0=10GiB,50%");
        assert_eq!((options.share, options.mode), (Some(30), Some(Mode::Profile)));
        assert_eq!(options.attempts, Some(3));
        assert_eq!(Words::default().parse(), Ok(Options::default()));
    }

    #[test]
    fn the_controller_gets_bytes_or_a_percentage() {
        let cases =
            [("10GiB", Some("10737418240")), ("12.5%", Some("12.5%")), ("0=10GiB", None), ("none", None)];
        for (text, expected) in cases {
            assert_eq!(for_controller(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn wrong_options_are_rejected_in_one_sentence() {
        for (line, part) in [
            ("mem=10G", "--gpu-mem: `10G` can mean two things: write 10GiB"),
            ("mem=x", "--gpu-mem: `x` is not an amount"),
            ("mem=10", "--gpu-mem: `10` means 10 bytes"),
            ("share=0", "--gpu-share: `0` is not a percentage"),
            ("attempts=0", "--gpu-attempts: `0` is not a number between 1 and 100"),
            ("attempts=x", "--gpu-attempts: `x` is not a number"),
            ("radrm=on", "--radrm: `on` is none of off, limit, profile"),
            ("radrm=off mem=1GiB", "--radrm=off and --gpu-mem cannot be used together"),
            ("share=30 radrm=off", "--radrm=off and --gpu-share cannot be used together"),
        ] {
            let sentence = words(line).parse().unwrap_err().to_string();
            assert!(sentence.contains(part) && sentence.lines().count() == 1, "{line}: {sentence}");
        }
    }
}
