//! Names of a program's steps: ranges such as `step 17`, `Iteration #4` or `ProfilerStep#9`.
//!
//! Programs put the number of a step into its name. All steps together are one phase, so the number is not a part of what
//! the phase is called.

/// Names of steps in programs, in lower case, without what separates words.
/// One text, and no list of texts: the shim has it, and the loader writes each address of a list into every program of
/// a job.
const STEPS: &str = "step iteration iter batch minibatch trainstep trainingstep trainiteration trainbatch globalstep \
                     profilerstep optimizerstep";
/// Those of them that are steps of an optimizer: several batches or iterations may make one.
const OF_OPTIMIZERS: &str = "step trainstep trainingstep globalstep optimizerstep";
/// Repetitions that are numbered likewise, and are no steps.
const NUMBERED: &str = "epoch trainepoch";
/// The longest of them.
const MAX_LEN: usize = 17;

/// The name of the marks that hooks of PyTorch's optimizers make where `radrm-run` has set them
/// (`launcher/src/hook/radrm_steps.py`): the program itself names no step.
pub const STEP_BY_HOOK: &str = "optimizer step [radrm-run]";

/// Returns true if ranges of this name are steps.
#[must_use]
pub fn is_step(name: &str) -> bool {
    let (name, _) = name.split_once(" [").unwrap_or((name, ""));
    squeezed(name.as_bytes(), |word| has(STEPS, word))
}

/// Returns true if ranges of this name are steps of an optimizer.
#[must_use]
pub fn is_optimizer_step(name: &str) -> bool {
    let (name, _) = name.split_once(" [").unwrap_or((name, ""));
    squeezed(name.as_bytes(), |word| has(OF_OPTIMIZERS, word))
}

/// Steps per second, from when one began to when the last of `count` more began; `None` where there is no such time.
#[must_use]
pub fn per_second(count: u64, first_ns: u64, last_ns: u64) -> Option<f64> {
    (count > 0 && last_ns > first_ns).then(|| count as f64 * 1e9 / (last_ns - first_ns) as f64)
}

/// The name of a numbered repetition without its number, and the number: of `step_12` it is `step` and 12. `None` for all
/// other names, so that `layer1` and `layer2` stay apart.
#[must_use]
pub fn numbered(name: &[u8]) -> Option<(&[u8], u64)> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > 18 {
        return None;
    }
    let (base, digits) = name.split_at_checked(name.len().checked_sub(digits)?)?;
    let is_separator = |byte: &u8| matches!(byte, b' ' | b'_' | b'-' | b':' | b'#' | b'=' | b'.' | b'/');
    let end = base.iter().rposition(|byte| !is_separator(byte))?;
    let base = base.get(..=end)?;
    let number = digits
        .iter()
        .fold(0u64, |sum, byte| sum.wrapping_mul(10).wrapping_add(u64::from(byte.wrapping_sub(b'0'))));
    squeezed(base, |word| has(STEPS, word) || has(NUMBERED, word)).then_some((base, number))
}

/// Returns true if a word stands in a text of words.
fn has(words: &str, word: &str) -> bool {
    words.as_bytes().split(|byte| *byte == b' ').any(|one| one == word.as_bytes())
}

/// Hands over a name in lower case without what separates words; false for one that is too long to be a step's.
fn squeezed(name: &[u8], then: impl FnOnce(&str) -> bool) -> bool {
    let mut place = [0u8; MAX_LEN];
    let mut len = 0;
    if name.len() > 2 * MAX_LEN {
        return false;
    }
    for byte in name.iter().filter(|byte| !matches!(byte, b' ' | b'_' | b'-' | b'.')) {
        let Some(to) = place.get_mut(len) else { return false };
        *to = byte.to_ascii_lowercase();
        len += 1;
    }
    place.get(..len).and_then(|word| core::str::from_utf8(word).ok()).is_some_and(then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_known_by_their_names() {
        for name in [
            "step",
            "Step",
            "train_step",
            "Iteration",
            "ProfilerStep",
            "training step",
            "step [loop]",
            STEP_BY_HOOK,
        ] {
            assert!(is_step(name), "{name}");
        }
        for name in
            ["", "epoch", "stepper", "forward", "steps of a very long name that is none", "é", "step 1"]
        {
            assert!(!is_step(name), "{name}");
        }
    }

    #[test]
    fn batches_and_iterations_are_no_steps_of_an_optimizer() {
        for name in ["step", "train_step", "global_step", "Optimizer.step", STEP_BY_HOOK] {
            assert!(is_step(name) && is_optimizer_step(name), "{name}");
        }
        for name in ["batch", "minibatch", "iteration", "iter", "train_batch", "ProfilerStep"] {
            assert!(is_step(name) && !is_optimizer_step(name), "{name}");
        }
        assert!(!is_optimizer_step("epoch"));
    }

    #[test]
    fn numbers_of_steps_are_no_part_of_their_names() {
        let check = |name: &str, expected: Option<(&str, u64)>| {
            let got = numbered(name.as_bytes()).map(|(base, number)| (str::from_utf8(base).unwrap(), number));
            assert_eq!(got, expected, "{name}");
        };
        check("step 17", Some(("step", 17)));
        check("ProfilerStep#9", Some(("ProfilerStep", 9)));
        check("epoch_03", Some(("epoch", 3)));
        check("iteration0", Some(("iteration", 0)));
        check("layer1", None);
        check("step", None);
        check("17", None);
        check("step 99999999999999999999", None);
        check("", None);
    }
}
