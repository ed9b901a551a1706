//! First lines of a dry run's report: what a real GPU needs, the cards, and what holds the peak. The rest follows below.

use super::dry_run::bounded;
use super::sections::Report;
use super::step;
use crate::model::{DryRunSummary, Summary};
use radrm_profile::Bytes;
use radrm_profile::model::dry_run::{Fit, Verdict};
use radrm_text::{clean, fit, wrapped};

/// Columns of these lines, whatever the terminal has.
const WIDTH: usize = 80;
const LABEL: usize = 21;
/// Columns behind the labels.
const ROOM: usize = WIDTH - LABEL - 1;
/// Lines of code that are named; one less for each further line that a reason takes.
const LINES: usize = 3;
/// Rows of cards: with the head of the report and the rest of the answer they make twelve lines.
const CARD_ROWS: usize = 3;

/// Rows of cards: label, verdicts, and words behind them.
const CARDS: [(&str, Verdict, &str); 5] = [
    ("fits", Verdict::Yes, ""),
    ("fits as far as it ran", Verdict::Partly, ""),
    ("does not fit", Verdict::No, ""),
    ("tight", Verdict::Tight, ""),
    ("not known", Verdict::Unknown, " (--fits runs the program there)"),
];

/// A row of the answer.
pub(crate) struct Row {
    /// Its label; empty: as the row before it.
    pub(crate) label: &'static str,
    /// In words.
    pub(crate) words: String,
    /// True if the words are a reason, which is of use as a whole only.
    is_reason: bool,
}

impl Row {
    fn new(label: &'static str, words: impl Into<String>) -> Self {
        Self { label, words: words.into(), is_reason: false }
    }

    fn reason(label: &'static str, words: &str) -> Self {
        Self { is_reason: true, ..Self::new(label, words) }
    }

    /// Lines of the text report.
    fn lines(&self) -> Vec<String> {
        let words = clean(&self.words);
        if self.is_reason { wrapped(&words, ROOM) } else { vec![fit(&words, ROOM)] }
    }
}

/// The answer, if the run was a dry run: the rows with which each form of its report begins.
pub(crate) fn rows(summary: &Summary) -> Vec<Row> {
    let failed = !summary.outcome.success;
    let dry_run = summary.dry_run.as_ref();
    dry_run.map(|dry_run| answer(dry_run, failed, &held_at_peak(summary))).unwrap_or_default()
}

impl Report<'_> {
    /// Writes the answer, if the run was a dry run.
    pub(super) fn answer(&self, out: &mut String) {
        let rows = rows(self.summary);
        if !rows.is_empty() {
            out.push('\n');
        }
        for row in rows {
            for (number, line) in row.lines().into_iter().enumerate() {
                let label = if number == 0 { row.label } else { "" };
                let label = self.paint.bold(&format!("{label:<LABEL$}"));
                out.push_str(&format!("{label} {line}\n"));
            }
        }
    }
}

/// Lines of code and the memory that they hold at the peak, largest first.
fn held_at_peak(summary: &Summary) -> Vec<(Bytes, &str)> {
    let tensors = summary.tensors.iter().flat_map(|process| &process.gpus);
    let tensors = tensors.max_by_key(|gpu| gpu.allocated_bytes);
    let tensors: Vec<_> =
        tensors.iter().flat_map(|gpu| &gpu.lines).map(|line| (line.bytes, line.site.as_str())).collect();
    if !tensors.is_empty() {
        return tensors;
    }
    let stacks = summary.stacks.iter().max_by_key(|of| of.peak_bytes);
    stacks.iter().flat_map(|of| &of.sites).map(|site| (site.peak_bytes, site.site.as_str())).collect()
}

/// Rows of the answer. `failed`: the program did not come to its end.
fn answer(dry_run: &DryRunSummary, failed: bool, held: &[(Bytes, &str)]) -> Vec<Row> {
    let DryRunSummary { figures, fits, expected, step, training, .. } = dry_run;
    if let Some(reason) = &figures.withheld {
        return vec![Row::reason("NO FIGURE", reason)];
    }
    let most = figures.gpus.iter().map(|gpu| gpu.held_peak).max().unwrap_or(0);
    let need = match expected {
        Some(expected) => bounded(expected),
        None if most == 0 && failed => "not known: the program ended before it took GPU memory".to_owned(),
        None if most == 0 => "none: the program took no GPU memory".to_owned(),
        None if figures.out_of_memory > 0 => {
            format!("more than {}: memory did not suffice on {}", Bytes(most), figures.machine)
        }
        None if failed => format!("not estimated: the program failed, with {} until then", Bytes(most)),
        None => format!("not estimated; {} here", Bytes(most)),
    };
    let label = if figures.gpus.len() > 1 { "needed on one GPU" } else { "needed on a real GPU" };
    let mut rows = vec![Row::new(label, need)];
    if expected.as_ref().is_some_and(|expected| expected.upper.is_none()) {
        rows.extend(figures.no_bound().map(|why| Row::reason("no bound", why)));
    }
    let further: usize = rows.iter().map(|row| row.lines().len() - 1).sum();
    let time = step.as_ref().and_then(step::of_step).map(|time| Row::new("a step, predicted", time));
    let training = step.as_ref().zip(training.as_ref());
    let training = training.and_then(|(step, training)| step::of_training(training, &step.card));
    let training = training.map(|line| Row::reason("the whole training", &line));
    let card_rows = CARD_ROWS - usize::from(time.is_some());
    let further = further + training.as_ref().map_or(0, |row| row.lines().len());
    rows.extend(time.into_iter().chain(training));
    rows.extend(CARDS.iter().filter_map(|row| cards(row, fits)).take(card_rows));
    let labels = ["at the peak"].into_iter().chain(std::iter::repeat(""));
    match held {
        [] if most > 0 => {
            rows.push(Row::new("at the peak", "--stacks=tensors names the lines that hold it"));
        }
        _ => {
            let lines = labels.zip(held).take(LINES.saturating_sub(further).max(1));
            rows.extend(lines.map(|(label, (bytes, site))| Row::new(label, format!("{bytes} {site}"))));
        }
    }
    rows
}

/// One row of cards; none if there are no such cards.
fn cards((label, verdict, rest): &(&'static str, Verdict, &str), fits: &[Fit]) -> Option<Row> {
    let mut names = fits.iter().filter(|fit| fit.verdict == *verdict).map(|fit| fit.card.as_str());
    let mut words = names.next()?.to_owned();
    let room = ROOM - rest.len() - ", and 99 more".len();
    let mut left = 0;
    for name in names {
        if left > 0 || words.len() + 2 + name.len() > room {
            left += 1;
        } else {
            words.push_str(", ");
            words.push_str(name);
        }
    }
    if left > 0 {
        words.push_str(&format!(", and {left} more"));
    }
    Some(Row::new(label, words + rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::TextOptions;
    use crate::{Summary, text};
    use radrm_profile::model::Job;
    use radrm_profile::model::dry_run::{DryRunFigures, Expected, GpuFigures, NO_BOUND};

    fn shown(figures: DryRunFigures, expected: Option<Expected>, fits: Vec<Fit>) -> String {
        let mut profile = crate::model::tensors::profile_with_tensors();
        profile.job = Job { command: vec!["python".into(), "train.py".into()], ..Job::default() };
        (profile.dry_run, profile.expected, profile.fits) = (Some(figures), expected, fits);
        text(&profile, &Summary::from_profile(&profile), &TextOptions::default())
    }

    fn figures(remarks: &[&str]) -> DryRunFigures {
        let gpu = GpuFigures { held_peak: 530 << 20, ..GpuFigures::default() };
        let remarks = remarks.iter().map(|remark| (*remark).to_owned()).collect();
        DryRunFigures { gpus: vec![gpu], remarks, ..DryRunFigures::default() }
    }

    fn card(card: &str, verdict: Verdict) -> Fit {
        Fit { card: card.into(), verdict, why: None, need: 1, memory: 2, seconds: None }
    }

    #[test]
    fn the_answer_stands_in_the_first_twelve_lines_at_80_columns() {
        let expected = Expected { bytes: 900 << 20, upper: None, ..Expected::default() };
        let long = format!("{NO_BOUND}{}", "memory grows and grows ".repeat(4).trim_end());
        let mut fits: Vec<Fit> =
            (0..30).map(|number| card(&format!("CARD-{number}"), Verdict::Yes)).collect();
        fits.extend([Verdict::No, Verdict::Tight, Verdict::Unknown].map(|verdict| card("T4", verdict)));
        let shown = shown(figures(&[&long]), Some(expected), fits);
        let lines: Vec<&str> = shown.lines().filter(|line| !line.is_empty()).collect();
        let at = |label: &str| lines.iter().position(|line| line.starts_with(label)).expect(label);
        let first = at("needed on a real GPU");
        assert_eq!(lines[first], "needed on a real GPU  900.0 MiB, without a bound");
        let reason = format!(
            "no bound              memory grows and grows memory grows and grows memory grows\n{:22}and grows \
             memory grows and grows\n",
            ""
        );
        assert!(shown.contains(&reason), "the reason is not cut: {shown}");
        assert!(
            lines[at("fits")].contains("CARD-0, CARD-1") && lines[at("fits")].contains(" more"),
            "{shown}"
        );
        assert_eq!(lines[at("does not fit")], "does not fit          T4");
        let last = at("at the peak") + LINES - 2;
        assert_eq!(lines[last - 1], "at the peak           660 B <module> (train.py:7)");
        assert_eq!(lines[last], "                      300 B <module> (train.py:3)");
        assert!(last < 12, "{shown}");
        assert!(lines[first..=last].iter().all(|line| line.chars().count() <= WIDTH), "{shown}");
    }

    #[test]
    fn a_run_that_was_stopped_fits_as_far_as_it_ran() {
        let expected = Expected { bytes: 1, upper: Some(2), ..Expected::default() };
        let fits = [("H200", Verdict::Partly), ("A10", Verdict::Partly), ("T4", Verdict::No)];
        let fits = fits.map(|(name, verdict)| card(name, verdict)).to_vec();
        let shown = shown(figures(&[]), Some(expected), fits);
        assert!(shown.contains("\nfits as far as it ran H200, A10\ndoes not fit          T4\n"), "{shown}");
    }

    #[test]
    fn a_run_that_failed_shows_what_it_took_until_then_as_no_need() {
        let words = |figures: DryRunFigures| {
            let summary = DryRunSummary {
                figures,
                fits: Vec::new(),
                expected: None,
                ranks: None,
                step: None,
                training: None,
            };
            answer(&summary, true, &[]).remove(0).words
        };
        assert_eq!(words(DryRunFigures::default()), "not known: the program ended before it took GPU memory");
        assert_eq!(words(figures(&[])), "not estimated: the program failed, with 530.0 MiB until then");
    }

    #[test]
    fn the_page_begins_with_the_rows_of_the_text_report() {
        let mut profile = crate::model::tensors::profile_with_tensors();
        profile.dry_run = Some(figures(&[&format!("{NO_BOUND}memory grows")]));
        profile.expected = Some(Expected { bytes: 900 << 20, upper: None, ..Expected::default() });
        let summary = Summary::from_profile(&profile);
        let page = crate::html(&profile, &summary);
        let page = page.split_once("<main").expect("its content").1;
        let mut at = 0;
        for row in rows(&summary) {
            let words = row.words.split('<').next().unwrap_or_default();
            let row = format!("<dt>{}</dt><dd>{words}", row.label);
            let found = page.find(&row).unwrap_or_else(|| panic!("{row} in {page}"));
            assert!(found > at, "{row}");
            at = found;
        }
        assert!(
            page.find("<section").is_some_and(|first| page[first..].starts_with("<section id=\"answer\""))
        );
    }

    #[test]
    fn no_need_is_shown_where_there_is_none() {
        let withheld = DryRunFigures { withheld: Some("it called x".into()), ..figures(&[]) };
        assert!(shown(withheld, None, Vec::new()).contains("NO FIGURE             it called x\n"));
        let refused = DryRunFigures { machine: "T4".into(), out_of_memory: 1, ..figures(&[]) };
        let text = shown(refused, None, Vec::new());
        assert!(text.contains("more than 530.0 MiB: memory did not suffice on T4\n"), "{text}");
    }
}
