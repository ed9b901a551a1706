//! Faults to inject into one process.

use std::collections::BTreeSet;

use radrm_base::written;

/// A plan of faults, read from the environment variable `RADRM_EMULATOR_FAULTS`.
///
/// Entries are separated by `;`, or by `,` where an entry takes no list:
///
/// | entry | effect |
/// |---|---|
/// | `oom@N` | the N-th request for device memory of this process (1 = first) fails |
/// | `oom-after=BYTES` | a request fails that would bring this process's charged memory above BYTES |
/// | `fragment=BYTES` | no single request above BYTES can be met, however much is free |
/// | `launch-fail@N` | the N-th kernel launch answers CUDA_ERROR_LAUNCH_FAILED |
/// | `sticky@N` | from the N-th kernel launch on the context answers CUDA_ERROR_ILLEGAL_ADDRESS to everything |
/// | `slow=NS` | every call takes NS nanoseconds longer |
/// | `missing=cuA,cuB` | the driver lacks these entry points (names as a program asks for them) |
/// | `driver=11040` | the driver has this version and lacks everything newer |
///
/// Entry points that a driver lacks are found neither by `cuGetProcAddress` nor by `dlsym`.
///
/// BYTES is a number with an optional `KiB`, `MiB`, `GiB` or `TiB`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultPlan {
    /// Requests that fail, counted from 1.
    pub oom_at: BTreeSet<u64>,
    /// Charged bytes that must not be exceeded.
    pub oom_after: Option<u64>,
    /// Largest request that can be met, in bytes.
    pub fragment: Option<u64>,
    /// Launches that fail, counted from 1.
    pub launch_fail_at: BTreeSet<u64>,
    /// Launch that breaks its context, counted from 1.
    pub sticky_at: Option<u64>,
    /// Nanoseconds added to every call.
    pub slow_ns: u64,
    /// Entry points that do not exist.
    pub missing: BTreeSet<String>,
    /// Version of the driver in place of the machine's.
    pub driver: Option<u32>,
}

/// An entry of a fault plan that is not understood.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("fault plan: `{entry}`: {reason}")]
pub struct FaultError {
    /// The entry.
    pub entry: String,
    /// Reason that it is not understood.
    pub reason: String,
}

impl FaultPlan {
    /// Reads a plan. An empty text is the empty plan.
    ///
    /// # Errors
    /// The first entry that is not understood.
    pub fn parse(text: &str) -> Result<Self, FaultError> {
        let mut plan = Self::default();
        for entry in entries(text) {
            plan.add(&entry)
                .map_err(|reason| FaultError { entry: entry.clone(), reason: reason.to_owned() })?;
        }
        Ok(plan)
    }

    /// Returns true if the plan has no fault.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, entry: &str) -> Result<(), &'static str> {
        if let Some((name, n)) = entry.split_once('@') {
            let n: u64 = n.parse().ok().filter(|n| *n > 0).ok_or("a number from 1 must follow @")?;
            match name {
                "oom" => drop(self.oom_at.insert(n)),
                "launch-fail" => drop(self.launch_fail_at.insert(n)),
                "sticky" => self.sticky_at = Some(n),
                _ => return Err("unknown fault"),
            }
            return Ok(());
        }
        let (name, value) = entry.split_once('=').ok_or("neither NAME@N nor NAME=VALUE")?;
        let bytes = || value.parse().ok().or_else(|| written::size(value)).ok_or("not a number of bytes");
        match name {
            "oom-after" => self.oom_after = Some(bytes()?),
            "fragment" => self.fragment = Some(bytes()?),
            "slow" => self.slow_ns = value.parse().map_err(|_| "not a number of nanoseconds")?,
            "driver" => {
                let version = value.parse().ok().filter(|v| (2000..100_000).contains(v));
                self.driver = Some(version.ok_or("not a version such as 11040")?);
            }
            "missing" => {
                for symbol in value.split(',').map(str::trim) {
                    if !(symbol.starts_with("cu") || symbol.starts_with("nvml")) {
                        return Err("names must begin with cu or nvml");
                    }
                    self.missing.insert(symbol.to_owned());
                }
            }
            _ => return Err("unknown fault"),
        }
        Ok(())
    }
}

/// Splits a plan; names after `missing=` stay together.
fn entries(text: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for part in text.split(';') {
        for piece in part.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            match entries.last_mut() {
                Some(last) if last.starts_with("missing=") && !piece.contains(['=', '@']) => {
                    last.push(',');
                    last.push_str(piece);
                }
                _ => entries.push(piece.to_owned()),
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read() {
        let plan =
            FaultPlan::parse("oom@3,oom@7;missing=cuMemAllocAsync,cuMemPoolCreate,slow=500;driver=11040")
                .unwrap();
        assert_eq!(plan.oom_at, BTreeSet::from([3, 7]));
        assert_eq!(plan.missing.len(), 2);
        assert_eq!((plan.slow_ns, plan.driver), (500, Some(11040)));
        let plan = FaultPlan::parse("oom-after=1.5GiB, fragment=64MiB, launch-fail@2, sticky@9").unwrap();
        assert_eq!((plan.oom_after, plan.fragment, plan.sticky_at), (Some(3 << 29), Some(64 << 20), Some(9)));
        assert!(FaultPlan::parse(" ").unwrap().is_empty());
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for text in [
            "oom",
            "oom@0",
            "oom@x",
            "ooms@1",
            "slow=fast",
            "driver=13.0",
            "missing=malloc",
            "fragment=1PB",
            "a=b",
        ] {
            let error = FaultPlan::parse(text).unwrap_err();
            assert_eq!(error.entry, text);
        }
    }
}
