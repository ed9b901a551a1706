//! Random forests of regression trees (Breiman, Machine Learning 45, 2001).
//!
//! Each tree grows on rows that are drawn with replacement, and each split is the best of a few columns that are drawn
//! anew. Draws come from a generator with a fixed seed: the same rows give the same forest.

use radrm_base::random::Rng;

/// Hyperparameters of the trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of trees.
    pub trees: usize,
    /// Columns that a split is chosen from; 0: a third of them, as Breiman has it for regression.
    pub columns: usize,
    /// Fewest rows in a leaf.
    pub min_rows: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { trees: 300, columns: 0, min_rows: 1 }
    }
}

/// A node: children stand behind their parent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Node {
    Leaf(f64),
    /// Values of the column above the threshold go right.
    Split {
        column: usize,
        at: f64,
        left: usize,
        right: usize,
    },
}

/// A grown forest.
#[derive(Clone, Debug, PartialEq)]
pub struct Forest(Vec<Vec<Node>>);

/// A number below `n`.
fn below(rng: &mut Rng, n: usize) -> usize {
    ((u128::from(rng.bits()) * n as u128) >> 64) as usize
}

struct Growth<'a> {
    rows: &'a [Vec<f64>],
    target: &'a [f64],
    settings: Settings,
    rng: Rng,
    columns: Vec<usize>,
}

impl Forest {
    /// Grows trees for a target of each row; `None` without rows, columns or as many targets.
    #[must_use]
    pub fn fit(rows: &[Vec<f64>], target: &[f64], settings: Settings) -> Option<Self> {
        let columns = rows.first().map_or(0, Vec::len);
        if columns == 0 || rows.len() != target.len() || rows.iter().any(|row| row.len() != columns) {
            return None;
        }
        let chosen = match settings.columns {
            0 => columns.div_ceil(3),
            some => some.min(columns),
        };
        let settings = Settings { columns: chosen, min_rows: settings.min_rows.max(1), ..settings };
        let mut growth =
            Growth { rows, target, settings, rng: Rng::seeded(42), columns: (0..columns).collect() };
        Some(Self((0..settings.trees).map(|_| growth.tree()).collect()))
    }

    /// The prediction for a row with the columns of the rows that it was fitted to.
    #[must_use]
    pub fn predict(&self, row: &[f64]) -> f64 {
        let value = |tree: &Vec<Node>| {
            let mut at = 0;
            loop {
                match tree[at] {
                    Node::Leaf(value) => return value,
                    Node::Split { column, at: cut, left, right } => {
                        let above = row.get(column).is_some_and(|value| *value > cut);
                        at = if above { right } else { left };
                    }
                }
            }
        };
        self.0.iter().map(value).sum::<f64>() / self.0.len().max(1) as f64
    }
}

impl Growth<'_> {
    fn tree(&mut self) -> Vec<Node> {
        let n = self.rows.len();
        let mut members: Vec<usize> = (0..n).map(|_| below(&mut self.rng, n)).collect();
        let mut nodes = vec![Node::Leaf(0.0)];
        let mut todo = vec![(0, 0, n)];
        while let Some((node, from, to)) = todo.pop() {
            let Some((column, at)) = self.split(&mut members[from..to]) else {
                let sum: f64 = members[from..to].iter().map(|row| self.target[*row]).sum();
                nodes[node] = Node::Leaf(sum / (to - from) as f64);
                continue;
            };
            let part = &mut members[from..to];
            part.sort_unstable_by(|a, b| self.rows[*a][column].total_cmp(&self.rows[*b][column]));
            let middle = from + part.partition_point(|row| self.rows[*row][column] <= at);
            let (left, right) = (nodes.len(), nodes.len() + 1);
            nodes[node] = Node::Split { column, at, left, right };
            nodes.extend([Node::Leaf(0.0); 2]);
            todo.extend([(left, from, middle), (right, middle, to)]);
        }
        nodes
    }

    /// The column and threshold that leave the least squared error, among columns drawn anew; `None` where none leaves less. As
    /// long as those drawn do not vary more are drawn.
    fn split(&mut self, members: &mut [usize]) -> Option<(usize, f64)> {
        let (n, least) = (members.len(), self.settings.min_rows);
        let first = self.target[*members.first()?];
        if n < 2 * least || members.iter().all(|row| self.target[*row] == first) {
            return None;
        }
        let all: f64 = members.iter().map(|row| self.target[*row]).sum();
        let mut best: Option<(f64, usize, f64)> = None;
        for drawn in 0..self.columns.len() {
            if drawn >= self.settings.columns && best.is_some() {
                break;
            }
            let other = drawn + below(&mut self.rng, self.columns.len() - drawn);
            self.columns.swap(drawn, other);
            let column = self.columns[drawn];
            let value = |row: usize| self.rows[row][column];
            members.sort_unstable_by(|a, b| value(*a).total_cmp(&value(*b)).then(a.cmp(b)));
            let mut left = 0.0;
            for (at, pair) in members.windows(2).enumerate() {
                left += self.target[pair[0]];
                let (low, high, count) = (value(pair[0]), value(pair[1]), at + 1);
                if low >= high || count < least || n - count < least {
                    continue;
                }
                let right = all - left;
                let gain = left * left / count as f64 + right * right / (n - count) as f64;
                if best.is_none_or(|(most, ..)| gain > most) {
                    let middle = low / 2.0 + high / 2.0;
                    best = Some((gain, column, if middle < high { middle } else { low }));
                }
            }
        }
        best.map(|(_, column, at)| (column, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_and_products_are_learned_beside_a_column_of_noise() {
        let mut rng = Rng::seeded(7);
        let mut number = || below(&mut rng, 1000) as f64 / 1000.0;
        let rows: Vec<Vec<f64>> = (0..600).map(|_| vec![number(), number(), number(), 7.0]).collect();
        let truth = |row: &[f64]| f64::from(u8::from(row[0] > 0.5)) + row[0] * row[1];
        let target: Vec<f64> = rows.iter().map(|row| truth(row)).collect();
        let forest = Forest::fit(&rows[..400], &target[..400], Settings::default()).unwrap();
        let error = |row: &Vec<f64>| (forest.predict(row) - truth(row)).abs();
        let mean = rows[400..].iter().map(error).sum::<f64>() / 200.0;
        assert!(mean < 0.06, "{mean}");
        assert_eq!(Forest::fit(&rows[..400], &target[..400], Settings::default()), Some(forest));
    }

    #[test]
    fn a_leaf_has_as_many_rows_as_is_said_and_equal_rows_are_never_split() {
        let rows: Vec<Vec<f64>> = (0..40).map(|n| vec![f64::from(n / 20)]).collect();
        let target: Vec<f64> = (0..40).map(f64::from).collect();
        let forest = Forest::fit(&rows, &target, Settings::default()).unwrap();
        assert!(forest.0.iter().all(|tree| tree.len() == 3), "two values, two leaves");
        let forest = Forest::fit(&rows, &target, Settings { min_rows: 30, ..Settings::default() }).unwrap();
        assert!(forest.0.iter().all(|tree| tree.len() == 1));
        assert_eq!(Forest::fit(&rows, &target[1..], Settings::default()), None);
        assert_eq!(Forest::fit(&[], &[], Settings::default()), None);
    }
}
