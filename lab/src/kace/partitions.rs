//! KACE's throughputs by partition: two or three workloads that shared a GPU under MPS, each on a part of the multiprocessors.

use std::collections::BTreeMap;

use csv::StringRecord;

/// Workloads that shared a GPU, with their summed throughput by partition.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionedSet {
    /// Names of the workloads.
    pub workloads: Vec<String>,
    /// Summed throughput without partitions: each may use all multiprocessors.
    pub whole: Option<f64>,
    /// By partition, as the column names it. Those that were not measured are left out.
    pub parts: BTreeMap<String, f64>,
}

/// Gain by partitions, in summed throughput over that without.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionScores {
    /// Sets in the file.
    pub sets: usize,
    /// Workloads of each.
    pub workloads: usize,
    /// Sets that were measured without partitions.
    pub whole: usize,
    /// Those of them that were measured with partitions, too.
    pub compared: usize,
    /// Those of these that did more with one.
    pub better: usize,
    /// Mean gain of the best partition of each set, where sets were compared.
    pub best: Option<f64>,
    /// The partition that is best in the mean over the sets that have it, its mean gain, and their number.
    pub blind: Option<(String, f64, usize)>,
}

/// Reads sets by their columns; `None`: they have other columns.
#[must_use]
pub fn read_partitions<'a>(
    head: &StringRecord,
    rows: impl Iterator<Item = &'a StringRecord>,
) -> Option<Vec<PartitionedSet>> {
    let names: Vec<usize> =
        (1..).map_while(|at| head.iter().position(|name| *name == format!("workload{at}"))).collect();
    let parts: Vec<(usize, &str, bool)> = head
        .iter()
        .enumerate()
        .filter_map(|(at, name)| Some((at, name, percents(name)?)))
        .map(|(at, name, of)| (at, name, of.len() == names.len() && of.iter().all(|part| *part == 100)))
        .collect();
    let whole = parts.iter().find(|part| part.2)?.0;
    if names.len() < 2 {
        return None;
    }
    let set = |row: &StringRecord| {
        let sum = |at: usize| throughputs(row.get(at)?).filter(|of| of.len() == names.len());
        let sum = |at: usize| sum(at).map(|of| of.iter().sum::<f64>());
        PartitionedSet {
            workloads: names.iter().map(|at| row.get(*at).unwrap_or_default().to_owned()).collect(),
            whole: sum(whole),
            parts: parts
                .iter()
                .filter(|part| !part.2)
                .filter_map(|(at, name, _)| Some(((*name).to_owned(), sum(*at)?)))
                .collect(),
        }
    };
    Some(rows.map(set).collect())
}

/// Parts of the multiprocessors that a column names, in per cent: `(LS20, BE80)`, `(w1_10, w2_20, w3_70)`.
fn percents(name: &str) -> Option<Vec<u32>> {
    let inner = name.strip_prefix('(')?.strip_suffix(')')?;
    let digits = |part: &str| {
        let end = part.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
        part[end..].parse().ok()
    };
    inner.split(',').map(|part| digits(part.trim())).collect()
}

/// Throughput of each workload; `None`: not measured.
fn throughputs(tuple: &str) -> Option<Vec<f64>> {
    let inner = tuple.trim().strip_prefix('(')?.strip_suffix(')')?;
    let all: Option<Vec<f64>> = inner.split(',').map(|part| part.trim().parse().ok()).collect();
    all.filter(|all| all.iter().all(|rate| rate.is_finite() && *rate >= 0.0))
}

impl PartitionScores {
    /// Scores of these sets.
    #[must_use]
    pub fn of(sets: &[PartitionedSet]) -> Self {
        let mut scores = Self {
            sets: sets.len(),
            workloads: sets.first().map_or(0, |set| set.workloads.len()),
            ..Self::default()
        };
        let (mut gains, mut by_part) = (0.0, BTreeMap::<&str, Vec<f64>>::new());
        for set in sets {
            let Some(whole) = set.whole.filter(|sum| *sum > 0.0) else { continue };
            scores.whole += 1;
            for (name, sum) in &set.parts {
                by_part.entry(name).or_default().push(sum / whole);
            }
            let Some(best) = set.parts.values().copied().reduce(f64::max) else { continue };
            scores.compared += 1;
            scores.better += usize::from(best > whole);
            gains += best / whole;
        }
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64 - 1.0;
        scores.best = (scores.compared > 0).then(|| gains / scores.compared as f64 - 1.0);
        let blind = by_part.iter().map(|(name, of)| ((*name).to_owned(), mean(of), of.len()));
        scores.blind = blind.max_by(|one, other| one.1.total_cmp(&other.1));
        scores
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Data, read};

    #[test]
    fn pairs_and_triples_are_read_by_partition_and_scored() {
        let text = "workload1,workload2,\"(LS10, BE90)\",\"(LS50, BE50)\",\"(LS100, BE100)\"\n\
            a,b,\"(1.0, 6.0)\",\"(5.0, 6.0)\",\"(4.0, 6.0)\"\n\
            a,c,\"(None, None)\",\"(3.0, 3.0)\",\"(6.0, 6.0)\"\n\
            b,c,\"(None, None)\",\"(None, None)\",\"(1.0, 1.0)\"\n\
            c,c,\"(1.0, 1.0)\",\"(None, None)\",\"(None, None)\"\n";
        let Ok(Data::Partitions(sets)) = read(text) else { panic!("partitions") };
        assert_eq!(sets[0].whole, Some(10.0));
        assert_eq!(sets[0].parts.values().copied().collect::<Vec<_>>(), [7.0, 11.0]);
        let scores = PartitionScores::of(&sets);
        assert_eq!(
            (scores.sets, scores.workloads, scores.whole, scores.compared, scores.better),
            (4, 2, 3, 2, 1)
        );
        assert!((scores.best.unwrap() - (1.1 + 0.5) / 2.0 + 1.0).abs() < 1e-12);
        let (name, gain, of) = scores.blind.unwrap();
        assert_eq!((name.as_str(), of), ("(LS50, BE50)", 2));
        assert!((gain + 0.2).abs() < 1e-12, "{gain}");

        let text = "workload1,workload2,workload3,\"(w1_100, w2_100, w3_100)\",\"(w1_10, w2_20, w3_70)\"\n\
            a,b,c,\"(1.0, 2.0, 3.0)\",\"(None, None, None)\"\n";
        let Ok(Data::Partitions(sets)) = read(text) else { panic!("triples") };
        let scores = PartitionScores::of(&sets);
        assert_eq!((scores.workloads, scores.whole, scores.compared), (3, 1, 0));
        assert_eq!((scores.best, scores.blind), (None, None));
    }
}
