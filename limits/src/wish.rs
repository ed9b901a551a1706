//! A list of limits as it is written: `10GiB`, `50%`, `0=10GiB,GPU-8f3a=4GiB,2GiB`.

use std::fmt;

use radrm_telemetry::ledger::Amount;

use super::amount;

/// How a GPU is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Name {
    /// NVML's number of the GPU, the one that `nvidia-smi` shows.
    Index(u32),
    /// The beginning of a UUID, `GPU-…` or `MIG-…`.
    Uuid(String),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Uuid(text) => f.write_str(text),
        }
    }
}

/// A limit as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// The GPU; `None` is every GPU that the list does not name.
    pub gpu: Option<Name>,
    /// At most so much.
    pub amount: Amount,
}

/// Limits as they are written, at most one without a GPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wishes(pub Vec<Wish>);

impl Wishes {
    /// Reads a list.
    ///
    /// # Errors
    /// One sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut wishes: Vec<Wish> = Vec::new();
        for part in text.split(',') {
            if part.trim().is_empty() {
                return Err(if text.trim().is_empty() {
                    "no limit is given".to_owned()
                } else {
                    format!("`{text}` has an empty part")
                });
            }
            let wish = match part.split_once('=') {
                Some((gpu, limit)) => Wish { gpu: Some(name(gpu.trim())?), amount: amount::parse(limit)? },
                None => Wish { gpu: None, amount: amount::parse(part)? },
            };
            if wishes.iter().any(|other| same(&other.gpu, &wish.gpu)) {
                return Err(match wish.gpu {
                    Some(gpu) => format!("GPU {gpu} is named twice in `{text}`"),
                    None => format!("`{text}` has two limits for all GPUs"),
                });
            }
            wishes.push(wish);
        }
        Ok(Self(wishes))
    }

    /// Whether a GPU is named.
    #[must_use]
    pub fn names_gpus(&self) -> bool {
        self.0.iter().any(|wish| wish.gpu.is_some())
    }
}

impl fmt::Display for Wishes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, wish) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match &wish.gpu {
                Some(gpu) => write!(f, "{comma}{gpu}={}", amount::shown(wish.amount))?,
                None => write!(f, "{comma}{}", amount::shown(wish.amount))?,
            }
        }
        Ok(())
    }
}

fn same(one: &Option<Name>, other: &Option<Name>) -> bool {
    match (one, other) {
        (Some(Name::Uuid(one)), Some(Name::Uuid(other))) => one.eq_ignore_ascii_case(other),
        _ => one == other,
    }
}

fn name(text: &str) -> Result<Name, String> {
    if let Ok(index) = text.parse() {
        return Ok(Name::Index(index));
    }
    let prefix = text.get(..4).unwrap_or_default();
    if (prefix.eq_ignore_ascii_case("GPU-") || prefix.eq_ignore_ascii_case("MIG-")) && text.len() > 4 {
        return Ok(Name::Uuid(text.to_owned()));
    }
    Err(format!(
        "`{text}` names no GPU: give its number in nvidia-smi, or the beginning of its GPU-… or MIG-… UUID"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_shown_alike() {
        for text in ["10GiB", "50%", "0=10GiB,1=4GiB", "GPU-8f3a=4GiB,2GiB", "MIG-12=none", "0=0,12.5%"] {
            assert_eq!(Wishes::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Wishes::parse(" 0 = 10 GiB , 5GB ").unwrap().to_string(), "0=10GiB,5GB");
    }

    #[test]
    fn wrong_lists_are_told_in_one_sentence() {
        for (text, part) in [
            ("", "no limit is given"),
            ("1GiB,", "has an empty part"),
            ("1GiB,2GiB", "two limits for all GPUs"),
            ("0=1GiB,00=2GiB", "GPU 0 is named twice"),
            ("GPU-a=1GiB,gpu-A=2GiB", "named twice"),
            ("x=1GiB", "names no GPU"),
            ("GPU-=1GiB", "names no GPU"),
            ("-1=1GiB", "names no GPU"),
            ("0=", "is no amount"),
            ("0=1=2GiB", "is no amount"),
        ] {
            let sentence = Wishes::parse(text).unwrap_err();
            assert!(sentence.contains(part) && sentence.lines().count() == 1, "{text}: {sentence}");
        }
    }
}
