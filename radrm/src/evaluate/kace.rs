//! Reports on KACE's tables: pairs with metrics, and throughputs by partition.

use std::fmt::Write;

use radrm_lab::kace::{
    Baseline, KacePair, PartitionScores, PartitionedSet, TrainedOn, baselines, by_training_size,
    speeds_by_forest,
};
use radrm_text::{Table, left, right};
use serde_json::{Value, json};

/// Scores on pairs with metrics.
#[derive(Debug)]
pub(super) struct Pairs {
    /// Predictors and rules, on families that they did not see.
    unseen: Vec<Baseline>,
    /// The published predictor on workloads that it knows.
    known: Vec<TrainedOn>,
    /// The error of each job's speed, and of the mean speed.
    speeds: Option<[f64; 2]>,
}

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

impl Pairs {
    pub(super) fn of(pairs: &[KacePair]) -> Self {
        Self { unseen: baselines(pairs), known: by_training_size(pairs), speeds: speeds_by_forest(pairs) }
    }

    pub(super) fn text(&self) -> String {
        let heads =
            [left("SUMMED THROUGHPUT BY"), right("ERROR"), right("BEST PARTNER"), right("OF ITS SUM")];
        let mut table = Table::new(heads);
        for of in &self.unseen {
            table.row([
                of.name.clone(),
                of.error.map_or("-".to_owned(), percent),
                format!("{} of {}", of.best, of.workloads),
                percent(of.part),
            ]);
        }
        let mut out = table.to_string();
        if let Some([forest, mean]) = self.speeds {
            let _ = writeln!(
                out,
                "Error of each job's speed: random forest {forest:.3}, the mean speed {mean:.3}"
            );
        }
        out.push_str("Each family is predicted from the others; rules pick a partner and learn nothing.\n");
        if !self.known.is_empty() {
            let heads = [left("KNOWN WORKLOADS"), right("ERROR"), right("BEST PARTNER"), right("OF ITS SUM")];
            let mut table = Table::new(heads);
            for of in &self.known {
                let name = format!("linear regression, {} pairs", of.pairs);
                table.row([name, percent(of.error), percent(of.best), percent(of.part)]);
            }
            let _ = write!(
                out,
                "\n{table}Judged are the other pairs of workloads that each are in one of these; means of 40 draws.\n"
            );
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        let baseline = |of: &Baseline| json!({"predictor": of.name, "error": of.error, "best": of.best, "workloads": of.workloads, "part_of_best": of.part});
        let known = |of: &TrainedOn| json!({"pairs": of.pairs, "error": of.error, "best_part": of.best, "part_of_best": of.part});
        json!({
            "pairs": self.unseen.iter().map(baseline).collect::<Vec<_>>(),
            "known": self.known.iter().map(known).collect::<Vec<_>>(),
            "speed_error": self.speeds.map(|of| of[0]),
            "speed_error_of_mean": self.speeds.map(|of| of[1]),
        })
    }
}

/// Scores on throughputs by partition.
#[derive(Debug)]
pub(super) struct Partitions(PartitionScores);

impl Partitions {
    pub(super) fn of(sets: &[PartitionedSet]) -> Self {
        Self(PartitionScores::of(sets))
    }

    pub(super) fn text(&self) -> String {
        let PartitionScores { sets, workloads, whole, compared, better, best, blind } = &self.0;
        let mut out = format!("{sets} sets of {workloads} workloads, {whole} measured without partitions\n");
        let signed = |gain: f64| format!("{:+.1} %", 100.0 * gain);
        match (best, blind) {
            (Some(best), Some((name, gain, of))) => {
                let _ = writeln!(
                    out,
                    "{compared} of them measured with partitions, too: {better} have a larger sum with one\n\
                     The best partition of each: {} of the sum, in the mean\n\
                     The best one for all, {name}: {}, in the mean of {of}",
                    signed(*best),
                    signed(*gain)
                );
            }
            _ => out.push_str("None of them was measured with a partition\n"),
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        let PartitionScores { sets, workloads, whole, compared, better, best, blind } = &self.0;
        let blind = blind.as_ref();
        json!({
            "sets": sets, "workloads": workloads, "measured_whole": whole, "compared": compared, "better": better,
            "gain_of_best": best, "best_for_all": blind.map(|of| &of.0), "gain_of_best_for_all": blind.map(|of| of.1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_without_partitions_say_so() {
        let set = PartitionedSet { workloads: vec!["a".into(); 3], whole: Some(6.0), parts: [].into() };
        let text = Partitions::of(&[set.clone(), PartitionedSet { whole: None, ..set.clone() }]).text();
        assert_eq!(
            text,
            "2 sets of 3 workloads, 1 measured without partitions\nNone of them was measured with a partition\n"
        );
        let parts = [("(LS20, BE80)".to_owned(), 9.0)].into();
        let text = Partitions::of(&[PartitionedSet { parts, ..set }]).text();
        assert!(
            text.contains("1 have a larger sum with one") && text.contains("(LS20, BE80): +50.0 %"),
            "{text}"
        );
    }
}
