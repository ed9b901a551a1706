//! Sentences beside the report.

use radrm_text::output;

use crate::NAME;

/// Sentences beside the report, unless they are not wanted.
#[derive(Clone, Copy, Debug)]
pub struct Remarks {
    /// Only failures are reported.
    pub(crate) quiet: bool,
}

impl Remarks {
    /// Says one sentence.
    pub fn one(&self, sentence: &str) {
        if !self.quiet {
            output::say(NAME, sentence);
        }
    }

    /// Says what was asked for and not done, also if remarks are not wanted.
    pub fn failure(&self, sentence: &str) {
        output::say(NAME, sentence);
    }

    /// Says several.
    pub fn all(&self, sentences: impl IntoIterator<Item = String>) {
        for sentence in sentences {
            self.one(&sentence);
        }
    }
}
