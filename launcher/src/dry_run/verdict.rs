//! Whether a program fits on a card, by a dry run on such a card. The plain run, `--fits` and `--find-batch` say the same,
//! because only this module says it.

use radrm_profile::Bytes;
use radrm_profile::model::dry_run::Verdict;

/// What one dry run showed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Evidence {
    /// How the program failed, as a clause; `None`: it succeeded.
    pub failed: Option<String>,
    /// A request for memory was refused, whatever the program made of it.
    pub refused: bool,
    /// Why there are no figures.
    pub withheld: Option<String>,
    /// Times that the allocator gave its reserve back to go on.
    pub retries: u64,
    /// Most that the driver would hold on one GPU, bytes.
    pub held: u64,
    /// Upper bound of the need on a real GPU, bytes; `None`: there is none.
    pub upper: Option<u64>,
    /// Optimizer steps.
    pub steps: u64,
    /// The program was stopped after its steps: what it does later was not seen.
    pub is_stopped: bool,
}

/// A verdict, and why there is no better one, as a clause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// `None`: it fits.
    pub why: Option<String>,
}

impl Judged {
    /// In words, as an answer to "does it fit?".
    #[must_use]
    pub fn words(&self) -> String {
        let word = match self.verdict {
            Verdict::Yes => "fits",
            Verdict::Tight => "tight",
            Verdict::No => "does not fit",
            Verdict::Unknown => "unknown",
            // Its reason begins with what fits.
            Verdict::Partly => return self.why.clone().unwrap_or_default(),
        };
        self.why.as_ref().map_or_else(|| word.to_owned(), |why| format!("{word} ({why})"))
    }
}

impl Evidence {
    /// The verdict on the card on which the program ran, of whose memory CUDA shows programs `usable` bytes.
    #[must_use]
    pub fn judge(&self, usable: u64) -> Judged {
        let held = Bytes(self.held);
        let of = |verdict, why: String| Judged { verdict, why: Some(why) };
        if self.refused {
            return of(Verdict::No, format!("out of memory, holding {held}"));
        }
        if let Some(how) = &self.failed {
            return of(
                Verdict::Unknown,
                format!("the program ended there {how}, and not for lack of GPU memory"),
            );
        }
        if let Some(why) = &self.withheld {
            return of(Verdict::Unknown, why.clone());
        }
        if self.held == 0 {
            return of(Verdict::Unknown, "the program used no GPU".to_owned());
        }
        // An emulated card has all of its memory for programs, a real one shows them less.
        if self.held > usable {
            let why = format!("it takes more than the {} that CUDA shows programs there", Bytes(usable));
            return of(Verdict::Unknown, why);
        }
        match self.retries {
            0 => self.beyond_the_run(usable),
            1 => of(Verdict::Tight, "memory ran short once".to_owned()),
            many => of(Verdict::Tight, format!("memory ran short {many} times")),
        }
    }

    /// The verdict of a run for which memory sufficed.
    fn beyond_the_run(&self, usable: u64) -> Judged {
        let of = |verdict, why: String| Judged { verdict, why: Some(why) };
        match self.upper {
            None => of(Verdict::Tight, "there is no bound on its need".to_owned()),
            Some(upper) if upper > usable => {
                of(Verdict::Tight, format!("it may need {} of {}", Bytes(upper), Bytes(usable)))
            }
            Some(_) if self.is_stopped => of(Verdict::Partly, stopped(self.steps)),
            Some(_) => Judged { verdict: Verdict::Yes, why: None },
        }
    }
}

/// What fits of a program that was stopped.
#[must_use]
pub fn stopped(steps: u64) -> String {
    let noun = if steps == 1 { "step" } else { "steps" };
    format!("fits for {steps} {noun}, evaluation not reached")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran() -> Evidence {
        Evidence { held: 9, upper: Some(11), steps: 3, ..Evidence::default() }
    }

    #[test]
    fn only_a_whole_run_with_a_bound_below_the_card_fits() {
        let words = |evidence: Evidence| evidence.judge(12).words();
        assert_eq!(words(ran()), "fits");
        for (evidence, expected) in [
            (Evidence { is_stopped: true, ..ran() }, "fits for 3 steps, evaluation not reached"),
            (Evidence { upper: Some(13), ..ran() }, "tight (it may need 13 B of 12 B)"),
            (Evidence { upper: None, ..ran() }, "tight (there is no bound on its need)"),
            (Evidence { retries: 2, ..ran() }, "tight (memory ran short 2 times)"),
            (Evidence { held: 0, ..ran() }, "unknown (the program used no GPU)"),
            (Evidence { withheld: Some("x was called".to_owned()), ..ran() }, "unknown (x was called)"),
        ] {
            assert_eq!(words(evidence), expected);
        }
    }

    #[test]
    fn a_refusal_that_the_program_survived_is_no_fit() {
        let survived = Evidence { refused: true, ..ran() };
        assert_eq!(survived.judge(100).words(), "does not fit (out of memory, holding 9 B)");
        let failed = Evidence { failed: Some("with exit code 1".to_owned()), ..survived };
        assert_eq!(failed.judge(100).verdict, Verdict::No);
        let other = Evidence { failed: Some("with exit code 3".to_owned()), ..ran() };
        assert_eq!(other.judge(100).verdict, Verdict::Unknown);
    }
}
