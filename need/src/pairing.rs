//! Pairs of a dry run and a real run of one stack of software and one emulated GPU: decided here and nowhere else.
//!
//! A dry run stands for a run on its emulated GPU with the libraries that the program loads. It has stand-ins for the
//! libraries of CUDA, so it shows no versions of these, and a short run may end before its versions are read. So what
//! both show must agree, and what one does not show counts for neither.

use super::DryRun;

/// Libraries of CUDA that a dry run replaces by stand-ins, by their names in lists of frameworks.
pub const REPLACED: [&str; 5] = ["CUDA runtime", "cuBLAS", "cuDNN", "NCCL", "NVRTC"];

/// The frameworks and libraries that a run shows, with their versions where these are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack<'a>(Vec<(&'a str, Vec<&'a str>)>);

fn is_version(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
}

impl<'a> Stack<'a> {
    /// Of a list as rows of the dataset and dry runs have it: `PyTorch 2.15.0, CUDA runtime 13, 13.2.0.9`.
    #[must_use]
    pub fn parse(list: &'a str) -> Self {
        let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
        for part in list.split(", ").filter(|part| !part.is_empty()) {
            match (part.rsplit_once(' ').filter(|(_, version)| is_version(version)), all.last_mut()) {
                // More versions of one framework stand behind its name.
                (_, Some((_, versions))) if is_version(part) => versions.push(part),
                (Some((name, version)), _) => all.push((name, vec![version])),
                (None, _) => all.push((part, Vec::new())),
            }
        }
        Self(all)
    }

    /// Returns true if a dry run and a real run of these stacks are a pair. Of the frameworks that no dry run replaces one side
    /// shows all that the other shows, and no version contradicts another.
    #[must_use]
    pub fn pairs_with(&self, other: &Self) -> bool {
        let own = |of: &Self| of.0.iter().filter(|(name, _)| !REPLACED.contains(name)).count();
        let common = |of: &Self, with: &Self| {
            let is_common = |name: &str| !REPLACED.contains(&name) && with.versions(name).is_some();
            of.0.iter().filter(|(name, _)| is_common(name)).count()
        };
        let (fewer, common) = (own(self).min(own(other)), common(self, other));
        let is_contained = common == fewer && (fewer > 0 || own(self) == own(other));
        let agree = |name: &str, versions: &[&str]| {
            let Some(others) = other.versions(name) else { return true };
            let is_unknown = versions.is_empty() || others.is_empty();
            is_unknown || versions.iter().any(|one| others.iter().any(|other| is_one_version(one, other)))
        };
        is_contained && self.0.iter().all(|(name, versions)| agree(name, versions))
    }

    fn versions(&self, name: &str) -> Option<&[&'a str]> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, versions)| &versions[..])
    }
}

/// Returns true if two versions are one, of which one may be given to fewer places: 13 and 13.2.0.
fn is_one_version(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+']))
}

impl DryRun {
    /// The stack that it shows.
    #[must_use]
    pub fn stack(&self) -> Stack<'_> {
        Stack::parse(self.framework.as_deref().unwrap_or_default())
    }

    /// Returns true if both stand for runs of one stack on one model of GPU: what corrects one corrects the other.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.gpu == other.gpu && self.stack().pairs_with(&other.stack())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(a: &str, b: &str) -> bool {
        let (a, b) = (Stack::parse(a), Stack::parse(b));
        assert_eq!(a.pairs_with(&b), b.pairs_with(&a), "{a:?} {b:?}");
        a.pairs_with(&b)
    }

    #[test]
    fn lists_are_read_with_several_versions_and_spaces() {
        let found =
            Stack::parse("PyTorch 2.15.0+cu132, CUDA runtime, cuBLAS 13, 13.2.0.9, ONNX Runtime 1.20");
        let expected = [
            ("PyTorch", vec!["2.15.0+cu132"]),
            ("CUDA runtime", vec![]),
            ("cuBLAS", vec!["13", "13.2.0.9"]),
            ("ONNX Runtime", vec!["1.20"]),
        ];
        assert_eq!(found, Stack(expected.into()));
        assert_eq!(Stack::parse(""), Stack::default());
        assert_eq!(Stack::parse("13, x"), Stack(vec![("13", vec![]), ("x", vec![])]));
    }

    #[test]
    fn a_real_run_pairs_with_stand_ins_and_with_what_was_read_too_early() {
        let dry = "PyTorch 2.15.0+cu132, Triton 3.6.0, CUDA runtime, cuBLAS";
        for real in [
            "PyTorch 2.15.0+cu132, Triton 3.6.0, CUDA runtime 13, cuBLAS 13, 13.2.0.9, cuDNN 9, NCCL 2, NVRTC 13",
            "PyTorch, CUDA runtime",
            "PyTorch 2.15.0, CUDA runtime 13.2.17",
        ] {
            assert!(pairs(dry, real), "{real}");
        }
        assert!(pairs("", "CUDA runtime 13, cuBLAS 13") && pairs("CUDA runtime", "CUDA runtime 12"));
    }

    #[test]
    fn stacks_that_contradict_each_other_are_no_pair() {
        for (dry, real) in [
            ("PyTorch 2.15.0, CUDA runtime", "PyTorch 2.14.0, CUDA runtime 13"),
            ("PyTorch 2.1", "PyTorch 2.15.0"),
            ("PyTorch 2.15.0+cu132", "PyTorch 2.15.0+cu126"),
            ("PyTorch 2.15.0, CUDA runtime 12", "PyTorch 2.15.0, CUDA runtime 13"),
            ("PyTorch 2.15.0, Triton 3.6.0", "JAX 0.9, Triton 3.6.0"),
            ("PyTorch 2.15.0", "CUDA runtime 13"),
            ("", "PyTorch 2.15.0"),
        ] {
            assert!(!pairs(dry, real), "{dry} {real}");
        }
    }
}
