//! The advice as text.

use radrm_scheduler_core::{Activity, Bytes, Permille};
use radrm_text::{Table, fit, left, right};

use super::activity::Source;
use super::{Card, Compared, Figure, Pair, Shared};
use crate::show::dataset::command_line;

/// Tables of programs, pairs and cards.
pub(super) fn of(all: &[Compared], pairs: &[Pair], shared: &[Shared], cards: &[Card]) -> String {
    let mut programs =
        Table::new([right("RUN"), left("GPU"), right("SM"), right("DRAM"), right("PEAK"), left("COMMAND")]);
    for of in all {
        let part = |pick: fn(&Activity) -> Permille| {
            of.activity.as_ref().map_or_else(
                || "n/a".to_owned(),
                |(activity, source)| match source {
                    Source::Measured => pick(activity).to_string(),
                    Source::Launches => format!("~{}", pick(activity)),
                },
            )
        };
        programs.row([
            of.row.id.to_string(),
            of.row.gpu_model.clone().unwrap_or_else(|| "n/a".to_owned()),
            part(|activity| activity.smact),
            part(|activity| activity.drama),
            of.row.footprint_bytes.map_or_else(|| "n/a".to_owned(), |bytes| Bytes(bytes).to_string()),
            fit(&command_line(&of.row), 60),
        ]);
    }
    let mut out = programs.to_string();
    if all.iter().any(|of| of.activity.is_some_and(|(_, source)| source == Source::Launches)) {
        out.push_str("  ~: estimated from the shapes of launches; DRAM as is assumed at that SM activity\n");
    }
    out.push_str("\nWhat limits each\n");
    for of in all {
        out.push_str(&format!("  {}: {}\n", of.row.id, radrm_text::clean(&of.limit)));
    }
    out.push_str(
        "\nPairs on one GPU under MPS, predicted: speed of each against running alone, with its 95 % interval; the best first.\n  By constants of an A100 40 GB and what radrmd observed on GPUs of the model; the interval is without errors of the activity\n  HOST: what the cores of this host alone would leave them\n",
    );
    if pairs.is_empty() {
        out.push_str("  n/a: SM activity is known of no run\n");
    } else {
        let mut table = Table::new([
            left("RUNS"),
            left("FIRST"),
            left("SECOND"),
            left("HOST"),
            right("MEMORY"),
            left("FITS"),
        ]);
        for pair in pairs {
            let [one, other] =
                pair.speeds.map(|of| format!("{:.2} ({:.2} to {:.2})", of.value, of.low, of.high));
            table.row([
                format!("{} + {}", pair.runs[0], pair.runs[1]),
                one,
                other,
                pair.host_speeds.map_or_else(|| "n/a".to_owned(), |[a, b]| format!("{a:.2}, {b:.2}")),
                pair.bytes.map_or_else(|| "n/a".to_owned(), |bytes| Bytes(bytes).to_string()),
                pair.fits.map_or("n/a", |fits| if fits { "yes" } else { "no" }).to_owned(),
            ]);
        }
        out.push_str(&table.indented(2).to_string());
    }
    for Shared { runs: [one, other], gain } in shared {
        out.push_str(&format!(
            "  {one} + {other} seem to load the same data, and the host to limit them; predicted {gain:.1}x with one loader (radrm share)\n",
        ));
    }
    if !cards.is_empty() {
        out.push_str("\nCards: one run of each program, with its 95 % interval; the least cost is marked\n");
        let mut table =
            Table::new([right("RUN"), left("CARD"), left("HOURS"), left("COST"), left(""), left("BASIS")]);
        for card in cards {
            let figure = |of: Option<Figure>| {
                of.map_or_else(
                    || "n/a".to_owned(),
                    |of| format!("{:.3} ({:.3} to {:.3})", of.value, of.low, of.high),
                )
            };
            let cost = |of: &Card| of.cost.map_or(f64::INFINITY, |cost| cost.value);
            let cheapest =
                cards.iter().filter(|other| other.run == card.run).map(cost).fold(f64::INFINITY, f64::min);
            let mark = if card.cost.is_some() && cost(card) <= cheapest { "*" } else { "" };
            table.row([
                card.run.to_string(),
                card.card.clone(),
                figure(card.hours),
                figure(card.cost),
                mark.to_owned(),
                card.why.clone(),
            ]);
        }
        out.push_str(&table.indented(2).to_string());
    }
    out
}
