//! Completeness of a summary: whether it contains all launches and copies of its processes.

use super::{ProcessSummary, Summary};
use std::cmp::Reverse;

impl Summary {
    /// Processes that launched most, most first, at most so many; of those that launched as often the first one.
    pub fn busiest(&self, most: usize) -> Vec<&ProcessSummary> {
        let mut order: Vec<&ProcessSummary> = self.processes.iter().collect();
        order.sort_by_key(|process| Reverse(process.launches.saturating_add(process.graph_launches)));
        order.truncate(most);
        order
    }

    /// Returns true if the figures contain the launches, kernels and copies of every process.
    /// Otherwise these figures are too low, and a zero may stand for any number.
    pub fn has_all_kernels(&self) -> bool {
        self.processes_without_kernels == 0
    }
}
