//! One tree, best split first, over histograms.

use super::bins::Binned;
use super::tree::{Node, Tree};
use super::{Loss, Settings, quantile};

/// Sum of gradients and number of rows of a bin.
type Bin = (f64, u32);

/// A leaf that may be split.
struct Leaf {
    node: usize,
    /// Its rows: a range of the list of rows.
    from: usize,
    to: usize,
    histogram: Vec<Bin>,
    best: Option<Split>,
}

#[derive(Clone, Copy)]
struct Split {
    gain: f64,
    feature: usize,
    /// The last bin that goes left.
    bin: usize,
}

/// Grows a tree on what is left to explain of each row, and takes its corrections off.
pub(super) fn tree(binned: &Binned, left: &mut [f64], settings: &Settings) -> Tree {
    let gradients: Vec<f64> = match settings.loss {
        Loss::Squared => left.to_vec(),
        Loss::Pinball(level) => {
            left.iter().map(|rest| if *rest > 0.0 { level } else { level - 1.0 }).collect()
        }
    };
    let starts = starts(binned);
    let mut rows: Vec<u32> = (0..u32::try_from(binned.rows).unwrap_or(u32::MAX)).collect();
    let mut nodes = vec![Node::Leaf(0.0)];
    let count = |rows: &[u32]| histogram(binned, &starts, rows, &gradients);
    let mut leaves = vec![Leaf { node: 0, from: 0, to: rows.len(), histogram: count(&rows), best: None }];
    leaves[0].best = best(&starts, &leaves[0], settings);
    while leaves.len() < settings.leaves {
        let gain = |leaf: &Leaf| leaf.best.map_or(0.0, |split| split.gain);
        // The first of equals: the result must not depend on anything but the rows.
        let Some((at, split)) = (0..leaves.len())
            .filter_map(|at| Some((at, leaves[at].best?)))
            .reduce(|most, next| if gain(&leaves[next.0]) > gain(&leaves[most.0]) { next } else { most })
        else {
            break;
        };
        let Leaf { node, from, to, histogram, .. } = leaves.swap_remove(at);
        let codes = binned.feature(split.feature);
        let middle =
            from + partition(&mut rows[from..to], |row| usize::from(codes[row as usize]) <= split.bin);
        let (one, other) = (nodes.len(), nodes.len() + 1);
        let cut = match split.bin {
            0 => f64::MIN,
            bin => binned.cuts[split.feature][bin - 1],
        };
        nodes[node] = Node::Split(split.feature as u32, cut, one as u32, other as u32);
        nodes.extend([Node::Leaf(0.0); 2]);
        // The smaller half is counted, the larger one is what remains.
        let small_left = middle - from <= to - middle;
        let small = if small_left { count(&rows[from..middle]) } else { count(&rows[middle..to]) };
        let mut large = histogram;
        for (bin, taken) in large.iter_mut().zip(&small) {
            *bin = (bin.0 - taken.0, bin.1 - taken.1);
        }
        let (lower, upper) = if small_left { (small, large) } else { (large, small) };
        for (node, from, to, histogram) in [(one, from, middle, lower), (other, middle, to, upper)] {
            let mut leaf = Leaf { node, from, to, histogram, best: None };
            leaf.best = best(&starts, &leaf, settings);
            leaves.push(leaf);
        }
    }
    for leaf in &leaves {
        let members = &rows[leaf.from..leaf.to];
        let count = members.len() as f64;
        let value = match settings.loss {
            Loss::Squared => {
                members.iter().map(|row| left[*row as usize]).sum::<f64>() / (count + settings.shrink)
            }
            Loss::Pinball(level) => {
                let mut rest: Vec<f64> = members.iter().map(|row| left[*row as usize]).collect();
                quantile(&mut rest, level) * count / (count + settings.shrink)
            }
        };
        let value = settings.rate * value;
        nodes[leaf.node] = Node::Leaf(value);
        members.iter().for_each(|row| left[*row as usize] -= value);
    }
    Tree(nodes)
}

/// Returns the index of each feature's first bin in a histogram, and its length as the last one.
fn starts(binned: &Binned) -> Vec<usize> {
    let mut at = 0;
    let mut starts = vec![0];
    for cuts in &binned.cuts {
        at += cuts.len() + 2;
        starts.push(at);
    }
    starts
}

fn histogram(binned: &Binned, starts: &[usize], rows: &[u32], gradients: &[f64]) -> Vec<Bin> {
    let mut all = vec![(0.0, 0); starts.last().copied().unwrap_or(0)];
    for (feature, ends) in starts.windows(2).enumerate() {
        let bins = &mut all[ends[0]..ends[1]];
        let codes = binned.feature(feature);
        for row in rows {
            let bin = &mut bins[usize::from(codes[*row as usize])];
            bin.0 += gradients[*row as usize];
            bin.1 += 1;
        }
    }
    all
}

/// The split that explains most of the sum of squared gradients.
fn best(starts: &[usize], leaf: &Leaf, settings: &Settings) -> Option<Split> {
    let rows = leaf.to - leaf.from;
    if rows < 2 * settings.min_rows.max(1) {
        return None;
    }
    let part = |sum: f64, count: f64| sum * sum / (count + settings.shrink);
    let mut best: Option<Split> = None;
    for (feature, ends) in starts.windows(2).enumerate() {
        let bins = &leaf.histogram[ends[0]..ends[1]];
        let total: f64 = bins.iter().map(|bin| bin.0).sum();
        let whole = part(total, rows as f64);
        let (mut sum, mut count) = (0.0, 0usize);
        for (at, bin) in bins[..bins.len() - 1].iter().enumerate() {
            sum += bin.0;
            count += bin.1 as usize;
            if bin.1 == 0 || count < settings.min_rows.max(1) {
                continue;
            }
            if rows - count < settings.min_rows.max(1) {
                break;
            }
            let gain = part(sum, count as f64) + part(total - sum, (rows - count) as f64) - whole;
            // Below this it is rounding.
            if gain > best.map_or(1e-9 * (1.0 + whole), |split| split.gain) {
                best = Some(Split { gain, feature, bin: at });
            }
        }
    }
    best
}

/// Rows for which it holds first, the others behind, both in their order; how many come first.
fn partition(rows: &mut [u32], mut first: impl FnMut(u32) -> bool) -> usize {
    let mut others = Vec::with_capacity(rows.len());
    let mut kept = 0;
    for at in 0..rows.len() {
        if first(rows[at]) {
            rows[kept] = rows[at];
            kept += 1;
        } else {
            others.push(rows[at]);
        }
    }
    rows[kept..].copy_from_slice(&others);
    kept
}
