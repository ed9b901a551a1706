//! The page of published figures and dry runs.

use std::collections::{BTreeMap, BTreeSet};

use super::results::Outcome;
use super::table::{Row, Source};

/// Absolute error above which a kind needs a stated mechanism.
const MAX_UNEXPLAINED: f64 = 0.05;

const HEAD: &str = "# Published figures of real GPUs, and dry runs

Made by `cargo xtask published`. Memory figures that others measured on real GPUs and published, beside dry runs of
programs of the published configuration (`bench/published`), with random weights and random tokens. The packages are
those of `bench/published/requirements-*.txt`, which differ from the software of the source where the page names both.
Only equal quantities are compared: *allocated* and *reserved* are PyTorch's peaks, *active* also counts freed blocks
that a stream still uses, *nvidia-smi* also counts the context. Errors are those of the dry run.

Where a setting was chosen after a dry run's figure was seen, of this figure or of another one of the same program, the
figure is marked with `*`, and the last table has the choice. A figure without a dry run stands in a table of its own.
";

/// Figure with its source and outcome.
pub(super) type Shown<'a> = (&'a Row, &'a Source, &'a Outcome);

/// Line of one figure in the large table.
pub(super) fn line(row: &Row, source: &Source, outcome: &Outcome) -> String {
    let unit = row.bytes() / row.published;
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let ours = outcome.figure.as_ref().map_or_else(|_| "–".to_owned(), |bytes| number(*bytes as f64 / unit));
    format!(
        "| {}{} | {} | {} | {} | {} | {} | {} | {ours} | {} | {} |",
        row.id,
        if row.after.is_empty() { "" } else { " \\*" },
        source.gpu,
        row.configuration,
        row.stack,
        row.quantity.name(),
        number(row.published),
        row.unit,
        outcome.error(row).map_or_else(|| "–".to_owned(), percent),
        outcome.seconds,
    )
}

/// The whole page. `reasons` are mechanisms by the beginning of figures' names.
pub(super) fn page(shown: &[Shown<'_>], reasons: &[(String, String)]) -> String {
    let mut parts = vec![HEAD.to_owned(), totals(shown), kinds(shown, reasons)];
    let sources: BTreeSet<&str> = shown.iter().map(|(row, _, _)| row.source.as_str()).collect();
    parts.push("## Figures\n".to_owned());
    for name in sources {
        let of_source: Vec<&Shown<'_>> = shown.iter().filter(|(row, _, _)| row.source == name).collect();
        let Some((_, source, _)) = of_source.first() else { continue };
        let lines: Vec<String> =
            of_source.iter().map(|(row, source, outcome)| line(row, source, outcome)).collect();
        parts.push(format!(
            "### {name}\n\n{}; {}\n\n| figure | GPU | configuration | stack of the dry run | quantity | published | unit | dry run | error | seconds |\n|---|---|---|---|---|--:|---|--:|--:|--:|\n{}\n",
            source.address,
            source.stack,
            lines.join("\n")
        ));
    }
    parts.push(failures(shown));
    parts.push(choices(shown));
    parts.join("\n").trim_end().to_owned() + "\n"
}

fn totals(shown: &[Shown<'_>]) -> String {
    let sources: BTreeSet<&str> = shown.iter().map(|(row, _, _)| row.source.as_str()).collect();
    let all = errors(shown.iter());
    let unseen = errors(shown.iter().filter(|(row, _, _)| row.after.is_empty()));
    let failed = shown.iter().filter(|(_, _, outcome)| outcome.figure.is_err()).count();
    // A source with many figures must not decide alone.
    let of_sources: Vec<f64> = sources
        .iter()
        .filter_map(|name| median(&errors(shown.iter().filter(|(row, _, _)| row.source == **name))))
        .collect();
    format!(
        "**{} figures of {} sources: median error {} (of the sources' medians {}), {} of {} within 1 %, {} within 5 %.** Without the {} marked ones: median {}. {failed} have no figure.\n",
        shown.len(),
        sources.len(),
        share(median(&all)),
        share(median(&of_sources)),
        within(&all, 0.01),
        all.len(),
        within(&all, MAX_UNEXPLAINED),
        shown.iter().filter(|(row, _, _)| !row.after.is_empty()).count(),
        share(median(&unseen)),
    )
}

fn kinds(shown: &[Shown<'_>], reasons: &[(String, String)]) -> String {
    let mut by_kind: BTreeMap<&str, Vec<&Shown<'_>>> = BTreeMap::new();
    for one in shown {
        by_kind.entry(&one.0.kind).or_default().push(one);
    }
    let mut lines = vec![
        "| kind | figures | sources | median error | worst | figure | mechanism of errors above 5 % |"
            .to_owned(),
        "|---|--:|--:|--:|--:|---|---|".to_owned(),
    ];
    for (kind, of_kind) in by_kind {
        let sources: BTreeSet<&str> = of_kind.iter().map(|(row, _, _)| row.source.as_str()).collect();
        let worst = of_kind
            .iter()
            .filter_map(|(row, _, outcome)| Some((outcome.error(row)?, row.id.as_str())))
            .max_by(|one, other| one.0.abs().total_cmp(&other.0.abs()));
        let off: Vec<&str> = of_kind
            .iter()
            .filter(|(row, _, outcome)| outcome.error(row).is_some_and(|error| error.abs() > MAX_UNEXPLAINED))
            .map(|(row, _, _)| row.id.as_str())
            .collect();
        lines.push(format!(
            "| {kind} | {} | {} | {} | {} | {} | {} |",
            of_kind.len(),
            sources.len(),
            share(median(&errors(of_kind.iter().copied()))),
            worst.map_or_else(|| "–".to_owned(), |(error, _)| percent(error)),
            worst.map_or("–", |(_, id)| id),
            mechanisms(&off, reasons),
        ));
    }
    format!("## By kind\n\n{}\n", lines.join("\n"))
}

/// Mechanisms of figures, and the number of those without one.
fn mechanisms(off: &[&str], reasons: &[(String, String)]) -> String {
    let reason = |id: &str| reasons.iter().find(|(names, _)| id.starts_with(names.as_str()));
    let mut found: Vec<&str> = Vec::new();
    for (_, text) in off.iter().filter_map(|id| reason(id)) {
        if !found.contains(&text.as_str()) {
            found.push(text);
        }
    }
    let unknown = off.iter().filter(|id| reason(id).is_none()).count();
    let rest = (unknown > 0).then(|| format!("{unknown} not found"));
    found.into_iter().map(str::to_owned).chain(rest).collect::<Vec<_>>().join("; ")
}

fn failures(shown: &[Shown<'_>]) -> String {
    let lines: Vec<String> = shown
        .iter()
        .filter_map(|(row, _, outcome)| {
            let reason = outcome.figure.as_ref().err()?;
            Some(format!("| {} | {} |", row.id, reason.replace('|', "\\|")))
        })
        .collect();
    if lines.is_empty() {
        return "## Without a figure\n\nNone.\n".to_owned();
    }
    format!("## Without a figure\n\n| figure | reason |\n|---|---|\n{}\n", lines.join("\n"))
}

fn choices(shown: &[Shown<'_>]) -> String {
    let lines: Vec<String> = shown
        .iter()
        .filter(|(row, _, _)| !row.after.is_empty())
        .map(|(row, _, _)| format!("| {} | {} |", row.id, row.after))
        .collect();
    format!("## Chosen after the figure was seen\n\n| figure | choice |\n|---|---|\n{}\n", lines.join("\n"))
}

fn errors<'a>(shown: impl Iterator<Item = &'a Shown<'a>>) -> Vec<f64> {
    shown.filter_map(|(row, _, outcome)| outcome.error(row).map(f64::abs)).collect()
}

fn within(errors: &[f64], most: f64) -> usize {
    errors.iter().filter(|error| **error <= most).count()
}

fn median(errors: &[f64]) -> Option<f64> {
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

fn share(error: Option<f64>) -> String {
    error.map_or_else(|| "–".to_owned(), |error| format!("{:.2} %", error * 100.0))
}

fn percent(error: f64) -> String {
    format!("{:+.2} %", error * 100.0)
}

/// Number with at most three digits after the point.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::table::Quantity;
    use super::*;

    fn row(id: &str, kind: &str, after: &str) -> Row {
        Row {
            id: id.to_owned(),
            kind: kind.to_owned(),
            source: "s".to_owned(),
            card: "T4".to_owned(),
            stack: "torch-2.7".to_owned(),
            program: "a.py".to_owned(),
            case: "-".to_owned(),
            quantity: Quantity::Reserved,
            published: 2.0,
            unit: "GB".to_owned(),
            configuration: "batch 1".to_owned(),
            after: after.to_owned(),
        }
    }

    fn outcome(figure: Result<u64, &str>) -> Outcome {
        Outcome { figure: figure.map_err(str::to_owned), seconds: 3, torch: String::new() }
    }

    #[test]
    fn the_page_has_each_figure_its_error_and_what_was_chosen() {
        let source = Source { address: "repository".into(), gpu: "T4".into(), stack: "torch 2.1".into() };
        let rows = [row("a1", "lora", ""), row("a2", "lora", "the optimizer"), row("b1", "int4", "")];
        let outcomes = [outcome(Ok(2_000_000_000)), outcome(Ok(2_200_000_000)), outcome(Err("no | kernel"))];
        let shown: Vec<Shown<'_>> =
            rows.iter().zip(&outcomes).map(|(row, outcome)| (row, &source, outcome)).collect();
        let page = page(&shown, &[("a".to_owned(), "buffers".to_owned())]);
        for expected in [
            "3 figures of 1 sources: median error 5.00 % (of the sources' medians 5.00 %), 1 of 2 within 1 %",
            "marked ones: median 0.00 %. 1 have no figure.",
            "| lora | 2 | 1 | 5.00 % | +10.00 % | a2 | buffers |",
            "| int4 | 1 | 1 | – | – | – |  |",
            "| a2 \\* | T4 | batch 1 | torch-2.7 | reserved | 2 | GB | 2.2 | +10.00 % | 3 |",
            "| b1 | no \\| kernel |",
            "| a2 | the optimizer |",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
    }

    #[test]
    fn an_error_without_a_mechanism_is_counted() {
        let reasons = [("a".to_owned(), "x".to_owned())];
        assert_eq!(mechanisms(&["a1", "a2", "b1"], &reasons), "x; 1 not found");
        assert_eq!(mechanisms(&[], &reasons), "");
    }

    #[test]
    fn a_median_of_two_is_between_them() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 2.0]), Some(3.0));
        assert_eq!(number(10.0), "10");
        assert_eq!(number(1.2345), "1.234");
    }
}
