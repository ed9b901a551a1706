//! A regression tree.

use serde::{Deserialize, Serialize};

use super::MAX_LEAVES;

/// A node. In a file a leaf is a number, a split is `[feature, at, left, right]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Node {
    /// Value that is added to the prediction.
    Leaf(f64),
    /// Values of the feature above `at` go to the right child, others and unknown ones to the left one.
    Split(u32, f64, u32, u32),
}

/// A tree: nodes from the root on, children behind their parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tree(pub(super) Vec<Node>);

/// Reason that nodes are not a tree; the nodes of a file come from anywhere.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    #[error("it has {0} nodes, a tree has 1 to {most}", most = 2 * MAX_LEAVES - 1)]
    Nodes(usize),
    #[error("the value of node {0} is not a finite number")]
    Value(usize),
    #[error("node {at} splits feature {feature} of {features}")]
    Feature { at: usize, feature: u32, features: usize },
    #[error("the threshold of node {0} is not a finite number")]
    Threshold(usize),
    #[error("node {at} has {child} as a child")]
    Child { at: usize, child: usize },
    #[error("node {0} has no parent")]
    Orphan(usize),
}

/// The number with four digits, and at most six behind the point. The threshold of "is it known", the lowest number, stays.
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 || value.abs() >= 1e15 {
        return value;
    }
    let digits = (3 - value.abs().log10().floor() as i32).min(6);
    let scale = 10_f64.powi(digits.abs());
    if digits >= 0 { (value * scale).round() / scale } else { (value / scale).round() * scale }
}

impl Tree {
    pub(super) fn is_leaf(&self) -> bool {
        self.0.len() < 2
    }

    /// Value that the tree adds for a row.
    pub(super) fn value(&self, row: &[f64]) -> f64 {
        let mut at = 0;
        loop {
            match self.0.get(at) {
                Some(Node::Leaf(value)) => return *value,
                Some(Node::Split(feature, cut, left, right)) => {
                    let value = row.get(*feature as usize).copied().unwrap_or(f64::NAN);
                    let next = if value > *cut { *right } else { *left } as usize;
                    // `check` refuses such trees; without it this ends all the same.
                    if next <= at {
                        return 0.0;
                    }
                    at = next;
                }
                None => return 0.0,
            }
        }
    }

    /// Leaves and thresholds with four digits.
    pub(super) fn round(&mut self) {
        for node in &mut self.0 {
            match node {
                Node::Leaf(value) | Node::Split(_, value, ..) => *value = rounded(*value),
            }
        }
    }

    /// Each node but the root must have one parent, which stands before it: then the nodes are a tree, and every walk
    /// from the root ends in a leaf.
    pub(super) fn check(&self, features: usize) -> Result<(), TreeError> {
        let nodes = self.0.len();
        if nodes == 0 || nodes >= 2 * MAX_LEAVES {
            return Err(TreeError::Nodes(nodes));
        }
        let mut has_parent = vec![false; nodes];
        for (at, node) in self.0.iter().enumerate() {
            match *node {
                Node::Leaf(value) if value.is_finite() => {}
                Node::Leaf(_) => return Err(TreeError::Value(at)),
                Node::Split(feature, cut, left, right) => {
                    if feature as usize >= features {
                        return Err(TreeError::Feature { at, feature, features });
                    }
                    if !cut.is_finite() {
                        return Err(TreeError::Threshold(at));
                    }
                    for child in [left as usize, right as usize] {
                        match has_parent.get_mut(child) {
                            Some(seen) if child > at && !*seen => *seen = true,
                            _ => return Err(TreeError::Child { at, child }),
                        }
                    }
                }
            }
        }
        match has_parent.iter().skip(1).position(|seen| !seen) {
            Some(lost) => Err(TreeError::Orphan(lost + 1)),
            None => Ok(()),
        }
    }
}
