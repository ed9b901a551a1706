//! Policies over factors on slowdowns, against the best of the thesis's.

use std::fmt::Write as _;

use radrm_scheduler_core::Policy;
use radrm_scheduler_core::replay::Metrics;
use radrm_text::{Table, left, right};

use super::chosen::Chosen;
use super::outcome::{Outcome, Traced};
use super::{Flags, show};

fn is_thesis(policy: &Chosen) -> bool {
    policy.named().is_some_and(Policy::is_thesis)
}

/// Makespan and mean completion of one outcome, means over seeds.
fn figures(outcome: &Outcome) -> [f64; 2] {
    let of: [fn(&Metrics) -> f64; 2] = [|m| m.makespan_s, |m| m.jct_mean_s];
    of.map(|of| show::interval(outcome, of).mean)
}

/// The least of each figure among the thesis's policies, each on its own.
fn best<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Option<[f64; 2]> {
    outcomes
        .filter(|outcome| is_thesis(&outcome.policy))
        .map(figures)
        .reduce(|[a, b], [c, d]| [a.min(c), b.min(d)])
}

pub(super) fn table(
    traces: &[Traced],
    outcomes: &[Outcome],
    order: &Flags,
    devices: usize,
    gpus: usize,
) -> String {
    let mut text = String::new();
    let thesis = order.policy.0.iter().any(is_thesis);
    let columns: Vec<&Chosen> =
        order.policy.0.iter().filter(|policy| !thesis || !is_thesis(policy)).collect();
    for (number, trace) in traces.iter().enumerate() {
        text.push_str(&show::heading(trace, order, devices, gpus));
        let against = match thesis {
            true => {
                "hours; then makespan and mean JCT against the best of the thesis's policies, each figure on its own"
            }
            false => "makespan and mean JCT, hours",
        };
        let _ = writeln!(text, "  {against}");
        let own = thesis.then(|| right("best"));
        let heads = std::iter::once(left("factor"))
            .chain(own)
            .chain(columns.iter().map(|policy| right(policy.to_string())));
        let mut table = Table::new(heads).indented(2);
        for factor in &order.interference.0 {
            let here =
                || outcomes.iter().filter(|outcome| outcome.trace == number && outcome.factor == *factor);
            let best = best(here());
            let mut row = vec![factor.to_string()];
            let hours = |of: [f64; 2]| format!("{:.2}, {:.2}", of[0] / 3600.0, of[1] / 3600.0);
            row.extend(best.map(hours));
            for policy in &columns {
                let found = here().find(|outcome| outcome.policy == **policy).map(figures);
                let less = |of: f64, best: f64| (of / best - 1.0) * 100.0;
                row.push(match (found, best) {
                    (Some(of), Some(best)) => {
                        format!("{:+.1} %, {:+.1} %", less(of[0], best[0]), less(of[1], best[1]))
                    }
                    (Some(of), None) => hours(of),
                    (None, _) => String::new(),
                });
            }
            table.row(row);
        }
        text.push_str(&table.to_string());
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
