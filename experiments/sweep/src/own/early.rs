//! Early stopping: `[early_stopping]`.

use serde::Deserialize;
use toml::Spanned;

use super::checks::At;
use crate::early::{Kind, Rule};
use crate::error::Wrong;
use crate::report::Metric;

/// One run of so many goes on, where the file does not say.
const REDUCTION: u64 = 3;

/// A rule as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRule {
    rule: RawKind,
    metric: Spanned<String>,
    min_steps: Option<Spanned<u64>>,
    reduction: Option<Spanned<u64>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawKind {
    Halving,
    Median,
}

/// The rule.
pub(super) fn checked(raw: &Spanned<RawRule>) -> Result<Rule, At> {
    let raw = raw.get_ref();
    let Some(Metric::Logged { name, is_highest_best }) = Metric::logged(raw.metric.get_ref()) else {
        return Err((raw.metric.span().start, Wrong::Metric(raw.metric.get_ref().clone())));
    };
    let kind = match (raw.rule, &raw.reduction) {
        (RawKind::Median, None) => Kind::Median,
        (RawKind::Halving, None) => Kind::Halving { reduction: REDUCTION },
        (RawKind::Halving, Some(stated)) if *stated.get_ref() > 1 => {
            Kind::Halving { reduction: *stated.get_ref() }
        }
        (_, Some(stated)) => return Err((stated.span().start, Wrong::Reduction)),
    };
    let min_steps = match &raw.min_steps {
        Some(steps) if *steps.get_ref() == 0 => return Err((steps.span().start, Wrong::Zero)),
        Some(steps) => *steps.get_ref(),
        None => 1,
    };
    Ok(Rule { kind, metric: name, is_highest_best, min_steps })
}
