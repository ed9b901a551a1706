//! A list of limits as it is written: `10GiB`, `50%`, `0=10GiB,GPU-8f3a=4GiB,2GiB`.

use std::fmt;

use radrm_os::nvml::uuid_bytes;
use radrm_telemetry::ledger::{Amount, Limit};

use super::amount;
use crate::LimitError;

/// Name of a GPU.
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
pub struct RequestedLimit {
    /// The GPU; `None` is every GPU that the list does not name.
    pub gpu: Option<Name>,
    /// At most so much.
    pub amount: Amount,
}

/// Limits as they are written, at most one without a GPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestedLimits(pub Vec<RequestedLimit>);

impl RequestedLimits {
    /// Reads a list.
    pub fn parse(text: &str) -> Result<Self, LimitError> {
        let mut limits: Vec<RequestedLimit> = Vec::new();
        for part in text.split(',') {
            if part.trim().is_empty() {
                let is_empty = text.trim().is_empty();
                return Err(if is_empty {
                    LimitError::NoLimit
                } else {
                    LimitError::EmptyPart(text.to_owned())
                });
            }
            let limit = match part.split_once('=') {
                Some((gpu, amount)) => {
                    RequestedLimit { gpu: Some(name(gpu.trim())?), amount: amount::parse(amount)? }
                }
                None => RequestedLimit { gpu: None, amount: amount::parse(part)? },
            };
            if limits.iter().any(|other| same(&other.gpu, &limit.gpu)) {
                return Err(match limit.gpu {
                    Some(gpu) => LimitError::NamedTwice { gpu, list: text.to_owned() },
                    None => LimitError::TwoForAll(text.to_owned()),
                });
            }
            limits.push(limit);
        }
        Ok(Self(limits))
    }

    /// Reads a list of GPUs, and leaves a job these only: no limit on them, and nothing of any other. `none` is no GPU.
    ///
    /// # Errors
    /// A part is no name of a GPU.
    pub fn only_on(gpus: &str) -> Result<Self, LimitError> {
        let named = gpus.split(',').filter(|_| gpus != "none");
        let own =
            named.map(|gpu| Ok(RequestedLimit { gpu: Some(name(gpu.trim())?), amount: Amount::Unlimited }));
        let others = RequestedLimit { gpu: None, amount: Amount::Bytes(0) };
        own.chain([Ok(others)]).collect::<Result<_, _>>().map(Self)
    }

    /// The limits, where each GPU is named by its whole UUID.
    #[must_use]
    pub fn without_lookup(&self) -> Option<Vec<Limit>> {
        let limit = |limit: &RequestedLimit| {
            let gpu = match &limit.gpu {
                None => None,
                Some(Name::Uuid(text)) => Some(uuid_bytes(text)?),
                Some(Name::Index(_)) => return None,
            };
            Some(Limit { gpu, amount: limit.amount })
        };
        self.0.iter().map(limit).collect()
    }

    /// Returns true if a GPU is named.
    #[must_use]
    pub fn names_gpus(&self) -> bool {
        self.0.iter().any(|limit| limit.gpu.is_some())
    }
}

impl fmt::Display for RequestedLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, limit) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match &limit.gpu {
                Some(gpu) => write!(f, "{comma}{gpu}={}", amount::shown(limit.amount))?,
                None => write!(f, "{comma}{}", amount::shown(limit.amount))?,
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

fn name(text: &str) -> Result<Name, LimitError> {
    if let Ok(index) = text.parse() {
        return Ok(Name::Index(index));
    }
    let prefix = text.get(..4).unwrap_or_default();
    if (prefix.eq_ignore_ascii_case("GPU-") || prefix.eq_ignore_ascii_case("MIG-")) && text.len() > 4 {
        return Ok(Name::Uuid(text.to_owned()));
    }
    Err(LimitError::NoGpuName(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_shown_alike() {
        for text in ["10GiB", "50%", "0=10GiB,1=4GiB", "GPU-8f3a=4GiB,2GiB", "MIG-12=none", "0=0,12.5%"] {
            assert_eq!(RequestedLimits::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(RequestedLimits::parse(" 0 = 10 GiB , 5GB ").unwrap().to_string(), "0=10GiB,5GB");
    }

    #[test]
    fn a_list_of_gpus_leaves_nothing_of_any_other() {
        let only = |text: &str| RequestedLimits::only_on(text).map(|limits| limits.to_string());
        assert_eq!(only("GPU-8f3a,MIG-12").unwrap(), "GPU-8f3a=none,MIG-12=none,0");
        assert_eq!(only("none").unwrap(), "0");
        assert!(only("").is_err() && only("x").is_err());
        let looked_up =
            |text: &str| RequestedLimits::only_on(text).unwrap().without_lookup().map(|all| all.len());
        assert_eq!(looked_up("GPU-8f3a0000-1111-2222-3333-4444555566ff"), Some(2));
        assert_eq!((looked_up("GPU-8f3a"), looked_up("0"), looked_up("none")), (None, None, Some(1)));
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
            ("0=", "is not an amount"),
            ("0=1=2GiB", "is not an amount"),
        ] {
            let sentence = RequestedLimits::parse(text).unwrap_err().to_string();
            assert!(sentence.contains(part) && sentence.lines().count() == 1, "{text}: {sentence}");
        }
    }
}
