//! Plan of a sweep: groups of runs, each with its command and its conditions. Data only.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::early::Rule;

/// All groups of a file, in the order in which they are run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Name of the sweep.
    pub name: String,
    /// The groups.
    pub groups: Vec<Group>,
    /// Rule by which runs are given up early.
    pub early: Option<Rule>,
    /// Emulated GPUs that the file asks for.
    pub emulate: Option<String>,
    /// Remarks on the file for its user, a sentence each.
    pub remarks: Vec<String>,
}

/// Runs that start together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Name in tables.
    pub name: String,
    /// The members; at least one.
    pub runs: Vec<Run>,
    /// State of earlier runs of the group, as the file states it.
    pub stated: Stated,
}

/// State of a group's earlier runs, as the file states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stated {
    /// Nothing, or that some members are not finished.
    #[default]
    Open,
    /// All members are over, and at least one failed.
    Failed,
    /// All members are finished.
    Finished,
}

/// One execution of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Name in tables.
    pub name: String,
    /// Runs of equal configuration are repetitions of each other.
    pub configuration: String,
    /// The values that distinguish the configuration.
    pub parameters: BTreeMap<String, String>,
    /// Repetition of its configuration and group, from 1.
    pub repetition: u32,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Working directory.
    pub directory: PathBuf,
    /// Variables beside those of the sweep's own environment.
    pub environment: BTreeMap<String, String>,
    /// The GPUs that it sees: numbers or UUIDs; empty for all.
    pub devices: Vec<String>,
    /// Way in which it shares its GPU with the other members of its group.
    pub collocation: Collocation,
    /// An external profiler around it.
    pub profiler: Option<Profiler>,
    /// Limit of GPU memory, as `radrm-run --mem-limit` takes it.
    pub mem_limit: Option<String>,
    /// Share of the GPUs, as `radrm-run --sm-limit` takes it.
    pub sm_limit: Option<String>,
    /// It is ended after this time, ms.
    pub timeout_ms: Option<u64>,
    /// The emulated machine on which it runs.
    pub emulate: Option<String>,
    /// The row of a CSV file that it comes from, from 0.
    pub row: Option<usize>,
}

/// Way in which programs share a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Collocation {
    /// Each process has a context of its own, and the driver gives them time slices.
    #[default]
    Streams,
    /// Through NVIDIA's Multi-Process Service.
    Mps,
    /// On a MIG instance of this profile, such as `3g.20gb`.
    Mig(String),
}

impl Collocation {
    /// Reads a cell of radT's column, or a word of our own files; `None` if it is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        match text.to_ascii_lowercase().as_str() {
            "" | "-" | "nan" | "none" | "streams" => Some(Self::Streams),
            "mps" => Some(Self::Mps),
            lower => is_mig_profile(lower).then(|| Self::Mig(lower.to_owned())),
        }
    }
}

/// Returns true for a profile as `nvidia-smi mig -lgip` lists it: `1g.5gb`, `1c.3g.20gb`, `1g.10gb+me`.
fn is_mig_profile(text: &str) -> bool {
    let (profile, attribute) = text.split_once('+').unwrap_or((text, "me"));
    let numbered = |part: &str, unit: &str| {
        part.strip_suffix(unit)
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let parts: Vec<&str> = profile.split('.').collect();
    let is_profile = match parts.as_slice() {
        [slices, memory] => numbered(slices, "g") && numbered(memory, "gb"),
        [compute, slices, memory] => {
            numbered(compute, "c") && numbered(slices, "g") && numbered(memory, "gb")
        }
        _ => false,
    };
    is_profile
        && !attribute.is_empty()
        && attribute.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
}

impl fmt::Display for Collocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Streams => f.write_str("-"),
            Self::Mps => f.write_str("MPS"),
            Self::Mig(profile) => f.write_str(profile),
        }
    }
}

/// An external profiler around a run, by radT's names. Figures of such a run are not comparable with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profiler {
    /// Nsight Systems.
    Nsys,
    /// Nsight Compute.
    Ncu,
    /// PyTorch's own, by the Python module `radrm.profiled`.
    Torch,
}

impl Run {
    /// The program before which `radrm-run` stands: the command, or the profiler that starts it.
    #[must_use]
    pub fn words(&self, output: &str) -> Vec<String> {
        let before: &[&str] = match self.profiler {
            None => &[],
            // The interpreter is the run's own.
            Some(Profiler::Torch) => {
                let (interpreter, script) = self.command.split_at(self.command.len().min(1));
                let module = ["-m", "radrm.profiled", output].map(str::to_owned);
                return interpreter.iter().cloned().chain(module).chain(script.iter().cloned()).collect();
            }
            Some(Profiler::Nsys) => &["nsys", "profile", "--trace=cuda,nvtx", "--force-overwrite=true", "-o"],
            Some(Profiler::Ncu) => &["ncu", "--force-overwrite", "--launch-count=100", "-o"],
        };
        let output = (!before.is_empty()).then(|| output.to_owned());
        before
            .iter()
            .map(|word| (*word).to_owned())
            .chain(output)
            .chain(self.command.iter().cloned())
            .collect()
    }

    /// GPUs that it sees first, or that its job gets.
    #[must_use]
    pub fn gpus(&self) -> u16 {
        u16::try_from(self.devices.len().max(1)).unwrap_or(u16::MAX)
    }

    /// Identifies the run among all of the file, and in its state: equal as long as what is run is equal.
    #[must_use]
    pub fn key(&self, group: &str, member: usize) -> String {
        let mut digest = Sha256::new();
        // Each part with its length, so that no two lists of parts are one text.
        let mut add = |part: &str| {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        };
        add(group);
        add(&member.to_string());
        add(&self.repetition.to_string());
        add(&self.directory.to_string_lossy());
        add(&self.collocation.to_string());
        add(match self.profiler {
            None => "",
            Some(Profiler::Nsys) => "nsys",
            Some(Profiler::Ncu) => "ncu",
            Some(Profiler::Torch) => "pytorch",
        });
        add(self.mem_limit.as_deref().unwrap_or_default());
        add(self.sm_limit.as_deref().unwrap_or_default());
        for list in [&self.command, &self.devices] {
            add(&list.len().to_string());
            list.iter().for_each(|word| add(word));
        }
        self.environment.iter().for_each(|(name, value)| {
            add(name);
            add(value);
        });
        // Figures of an emulated machine are not those of another, or of a real GPU.
        if let Some(machine) = &self.emulate {
            add("emulate");
            add(machine);
        }
        digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Plan {
    /// Lets all runs be on an emulated machine, or on real GPUs.
    pub fn run_on(&mut self, emulate: Option<&str>) {
        self.emulate = emulate.map(str::to_owned);
        for run in self.groups.iter_mut().flat_map(|group| &mut group.runs) {
            run.emulate.clone_from(&self.emulate);
        }
    }
}

impl Group {
    /// Identifies the group in the sweep's state: the keys of its members.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.runs.iter().enumerate().map(|(member, run)| run.key(&self.name, member)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collocations_are_read_as_radt_writes_them() {
        for (text, expected) in [
            ("-", Some(Collocation::Streams)),
            (" ", Some(Collocation::Streams)),
            ("nan", Some(Collocation::Streams)),
            ("MPS", Some(Collocation::Mps)),
            ("mps ", Some(Collocation::Mps)),
            ("3g.20gb", Some(Collocation::Mig("3g.20gb".into()))),
            ("1c.3g.20gb", Some(Collocation::Mig("1c.3g.20gb".into()))),
            ("1g.10gb+me", Some(Collocation::Mig("1g.10gb+me".into()))),
            ("3g", None),
            ("g.gb", None),
            ("1g.5gb+", None),
            ("mpss", None),
        ] {
            assert_eq!(Collocation::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn a_profiler_stands_before_the_program_and_pytorchs_behind_the_interpreter() {
        let run = |profiler| Run {
            command: ["python3", "train.py", "--lr=1"].map(str::to_owned).to_vec(),
            profiler,
            ..Run::default()
        };
        assert_eq!(run(None).words("/o"), ["python3", "train.py", "--lr=1"]);
        let nsys = run(Some(Profiler::Nsys)).words("/o").join(" ");
        assert!(
            nsys.starts_with("nsys profile ") && nsys.ends_with(" -o /o python3 train.py --lr=1"),
            "{nsys}"
        );
        let torch = run(Some(Profiler::Torch)).words("/o").join(" ");
        assert_eq!(torch, "python3 -m radrm.profiled /o train.py --lr=1");
    }

    #[test]
    fn a_key_changes_with_what_is_run_and_with_nothing_else() {
        let run = Run { command: vec!["a".into(), "b".into()], ..Run::default() };
        let key = run.key("g", 0);
        let renamed = Run { name: "n".into(), timeout_ms: Some(1), row: Some(3), ..run.clone() };
        assert_eq!(renamed.key("g", 0), key);
        for other in [
            Run { command: vec!["ab".into()], ..run.clone() },
            Run { command: vec!["a".into()], devices: vec!["b".into()], ..run.clone() },
            Run { repetition: 2, ..run.clone() },
            Run { mem_limit: Some("1GiB".into()), ..run.clone() },
            Run { collocation: Collocation::Mps, ..run.clone() },
            Run { emulate: Some("T4".into()), ..run.clone() },
        ] {
            assert_ne!(other.key("g", 0), key, "{other:?}");
        }
        assert_ne!(run.key("h", 0), key);
        assert_ne!(run.key("g", 1), key);
    }
}
