//! What users write on the command line of `srun`, `sbatch` and `salloc`.

use radrm_limits::LimitError;
use radrm_limits::config::Percentage;
use radrm_limits::requested::RequestedLimits;
use thiserror::Error;

/// Why options cannot hold, as one sentence.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum OptionError {
    #[error("--gpu-mem: {0}")]
    Memory(LimitError),
    #[error("--gpu-share: {0}")]
    Share(LimitError),
    #[error("--radrm: `{0}` is none of off, limit, profile")]
    Mode(String),
    #[error("--radrm=off and {0} cannot be used together: leave one of them out")]
    Off(&'static str),
}

/// What `--radrm` says.
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
}

/// The three options as text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Words {
    /// `--gpu-mem`
    pub memory: Option<String>,
    /// `--gpu-share`
    pub share: Option<String>,
    /// `--radrm`
    pub mode: Option<String>,
}

/// The three options as they are meant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// At most so much memory of each GPU.
    pub memory: Option<RequestedLimits>,
    /// At most such a share of each GPU's time, percent.
    pub share: Option<u8>,
    /// What is done with the job.
    pub mode: Option<Mode>,
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
    /// Reads all three.
    ///
    /// # Errors
    /// A value is wrong, or two options cannot both hold.
    pub fn parse(&self) -> Result<Options, OptionError> {
        let memory = self.memory.as_deref().map(RequestedLimits::parse).transpose();
        let memory = memory.map_err(OptionError::Memory)?;
        let share = self.share.as_deref().map(Percentage::parse).transpose();
        let share = share.map_err(OptionError::Share)?.map(|percent| percent.0);
        let mode = self.mode.as_deref().map(Mode::parse).transpose()?;
        if mode == Some(Mode::Off) && (memory.is_some() || share.is_some()) {
            let option = if memory.is_some() { "--gpu-mem" } else { "--gpu-share" };
            return Err(OptionError::Off(option));
        }
        Ok(Options { memory, share, mode })
    }

    /// The same with one of them set.
    #[must_use]
    pub fn with(mut self, name: Name, text: &str) -> Self {
        let place = match name {
            Name::Memory => &mut self.memory,
            Name::Share => &mut self.share,
            Name::Mode => &mut self.mode,
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
                _ => Name::Mode,
            };
            words.with(name, text)
        })
    }

    #[test]
    fn options_are_read_by_the_rules_of_limits() {
        let options = words("mem=0=10GiB,50% share=30% radrm=profile").parse().unwrap();
        assert_eq!(options.memory.unwrap().to_string(), "0=10GiB,50%");
        assert_eq!((options.share, options.mode), (Some(30), Some(Mode::Profile)));
        assert_eq!(Words::default().parse(), Ok(Options::default()));
    }

    #[test]
    fn wrong_options_are_rejected_in_one_sentence() {
        for (line, part) in [
            ("mem=10G", "--gpu-mem: `10G` can mean two things: write 10GiB"),
            ("mem=x", "--gpu-mem: `x` is no amount"),
            ("mem=10", "--gpu-mem: `10` means 10 bytes"),
            ("share=0", "--gpu-share: `0` is no percentage"),
            ("radrm=on", "--radrm: `on` is none of off, limit, profile"),
            ("radrm=off mem=1GiB", "--radrm=off and --gpu-mem cannot be used together"),
            ("share=30 radrm=off", "--radrm=off and --gpu-share cannot be used together"),
        ] {
            let sentence = words(line).parse().unwrap_err().to_string();
            assert!(sentence.contains(part) && sentence.lines().count() == 1, "{line}: {sentence}");
        }
    }
}
