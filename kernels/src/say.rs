//! Work in words.

use crate::known::{Checked, Known};

/// A program's work in a line.
pub fn in_words(known: &Known) -> String {
    let launches: u64 = known.kernels.values().map(|k| k.launches).sum();
    let nodes: u64 = known.kernels.values().map(|k| k.graph_launches).sum();
    let mut parts = Vec::new();
    if launches > 0 {
        parts.push(format!("{launches} launches"));
    }
    if known.graphs > 0 {
        parts.push(format!("{} launches of a graph, {nodes} kernels", known.graphs));
    }
    if known.allocations > 0 {
        parts.push(format!("{} allocations, {} bytes at the top", known.allocations, known.peak_bytes));
    }
    if let Some(seconds) =
        known.gpu_seconds.filter(|seconds| *seconds > 0.0 && known.checked == Checked::Right)
    {
        let rate =
            |what: u64, unit: &str| (what > 0).then(|| format!("{:.1} {unit}", what as f64 / seconds / 1e9));
        parts.extend(rate(known.bytes, "GB/s"));
        parts.extend(rate(known.flops, "GFLOP/s"));
    }
    let issued = known.graphs + launches;
    if let Some(seconds) = known.issue_seconds.filter(|_| issued > 0) {
        parts.push(format!("{:.2} us each on the host", seconds * 1e6 / issued as f64));
    }
    match known.checked {
        Checked::Right => parts.push("results right".to_owned()),
        Checked::NotExecuted => parts.push("kernels do not execute on this GPU".to_owned()),
        Checked::NoResult => {}
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::shape::Shape;

    #[test]
    fn rates_are_of_the_time_on_the_gpu() {
        let mut known = Known { gpu_seconds: Some(0.5), bytes: 2_000_000_000, flops: 0, ..Known::default() };
        known.launched("triad", Shape { blocks: 2, threads: 64 }, 3);
        known.checked = Checked::Right;
        assert_eq!(in_words(&known), "3 launches, 4.0 GB/s, results right");
        assert_eq!(known.kernels["triad"].threads, 3 * 2 * 64);
    }

    #[test]
    fn nodes_of_graphs_are_no_launches_of_the_program() {
        let mut known = Known { graphs: 5, issue_seconds: Some(1e-5), ..Known::default() };
        known.launched_in_graphs("increment", Shape { blocks: 1, threads: 32 }, 100);
        assert_eq!(in_words(&known), "5 launches of a graph, 100 kernels, 2.00 us each on the host");
    }
}
