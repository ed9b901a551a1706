//! Verdict on whether a program fits on a card, by a dry run on such a card. The plain run, `--fits` and
//! `--find-batch` give the same one, because only this module gives it.

use radrm_profile::Bytes;
use radrm_profile::model::dry_run::Verdict;

/// Evidence of one dry run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Evidence {
    /// Failure of the program, as a clause; `None`: it succeeded.
    pub failed: Option<String>,
    /// A request for memory was refused, whatever the program made of it.
    pub refused: bool,
    /// The request that a framework refused by its own limit, in its words.
    pub request: Option<String>,
    /// Reason that there are no figures.
    pub withheld: Option<String>,
    /// Times that the allocator gave its reserve back to go on.
    pub retries: u64,
    /// Most that the driver would hold on one GPU, bytes.
    pub held: u64,
    /// Upper bound of the need on a real GPU, bytes; `None`: there is none.
    pub upper: Option<u64>,
    /// Optimizer steps.
    pub steps: u64,
    /// Way in which the program was stopped: what it does later was not seen; `None`: it came to its own end.
    pub stopped: Option<Stopped>,
}

/// Part of an evaluation that was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evaluation {
    /// Nothing.
    NotReached,
    /// Its begin.
    CutShort,
    /// All of it.
    Whole,
}

/// Way in which a program was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// After so many optimizer steps.
    AfterSteps {
        /// Part of an evaluation that was seen.
        evaluation: Evaluation,
    },
    /// It stopped itself when its time was up.
    AtItsTime,
    /// Its loop would never have ended, as it waits for a value of the GPU.
    Waiting,
    /// It was stopped when its time was up, by a signal: it is no Python program, or did not react.
    BySignal,
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
            let request = self
                .request
                .as_ref()
                .map_or_else(String::new, |request| format!(": the framework's own limit refused {request}"));
            return of(Verdict::No, format!("out of memory{request}, holding {held}"));
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
            Some(_) => match self.stopped {
                None | Some(Stopped::AfterSteps { evaluation: Evaluation::Whole }) => {
                    Judged { verdict: Verdict::Yes, why: None }
                }
                Some(stopped) => of(Verdict::Partly, fits_so_far(self.steps, stopped)),
            },
        }
    }
}

/// Sentence on what fits of a program that was stopped.
fn fits_so_far(steps: u64, stopped: Stopped) -> String {
    let noun = if steps == 1 { "step" } else { "steps" };
    let rest = match stopped {
        Stopped::AfterSteps { evaluation: Evaluation::CutShort } => {
            "evaluation cut short: a smaller evaluation set would be seen whole".to_owned()
        }
        // An evaluation of PyTorch's data loaders was reached by then, if there is one.
        Stopped::AfterSteps { .. } => {
            format!(
                "evaluation not reached: --steps N runs on, with N above {steps}, as would a shorter epoch"
            )
        }
        Stopped::AtItsTime => "stopped when its time was up: a longer --timeout goes on".to_owned(),
        Stopped::Waiting => {
            "a loop waits for a value of the GPU: bound its number of rounds to see what follows".to_owned()
        }
        Stopped::BySignal => {
            "stopped by a signal when its time was up: a longer --timeout goes on".to_owned()
        }
    };
    format!("fits for {steps} {noun}, {rest}")
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
        let after = |evaluation| Evidence { stopped: Some(Stopped::AfterSteps { evaluation }), ..ran() };
        let stopped = |stopped| Evidence { stopped: Some(stopped), ..ran() };
        assert_eq!(words(ran()), "fits");
        for (evidence, expected) in [
            (
                after(Evaluation::NotReached),
                "fits for 3 steps, evaluation not reached: --steps N runs on, with N above 3, as would a shorter \
                 epoch",
            ),
            (
                after(Evaluation::CutShort),
                "fits for 3 steps, evaluation cut short: a smaller evaluation set would be seen whole",
            ),
            (after(Evaluation::Whole), "fits"),
            (
                stopped(Stopped::AtItsTime),
                "fits for 3 steps, stopped when its time was up: a longer --timeout goes on",
            ),
            (
                stopped(Stopped::Waiting),
                "fits for 3 steps, a loop waits for a value of the GPU: bound its number of rounds to see what \
                 follows",
            ),
            (
                stopped(Stopped::BySignal),
                "fits for 3 steps, stopped by a signal when its time was up: a longer --timeout goes on",
            ),
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
        let own = Evidence { request: Some("8.58GiB".to_owned()), ..survived.clone() };
        assert_eq!(
            own.judge(100).words(),
            "does not fit (out of memory: the framework's own limit refused 8.58GiB, holding 9 B)"
        );
        let failed = Evidence { failed: Some("with exit code 1".to_owned()), ..survived };
        assert_eq!(failed.judge(100).verdict, Verdict::No);
        let other = Evidence { failed: Some("with exit code 3".to_owned()), ..ran() };
        assert_eq!(other.judge(100).verdict, Verdict::Unknown);
    }
}
