//! Whether what is in a summary is all that its processes launched and copied.

use super::{ProcessSummary, Summary};
use crate::text::style::grouped;
use std::cmp::Reverse;

impl Summary {
    /// Processes that launched most, most first, at most so many; of those that launched as often the first one.
    pub fn busiest(&self, most: usize) -> Vec<&ProcessSummary> {
        let mut order: Vec<&ProcessSummary> = self.processes.iter().collect();
        order.sort_by_key(|process| Reverse(process.launches.saturating_add(process.graph_launches)));
        order.truncate(most);
        order
    }

    /// Whether launches, kernels and copies of every process are in the figures. Where they are not, these figures
    /// are too low, and zero may be anything.
    pub fn has_all_kernels(&self) -> bool {
        self.processes_without_kernels == 0
    }

    /// What is missing of them, as a sentence; `None` if nothing is.
    pub fn kernels_missing(&self) -> Option<String> {
        let (without, all) = (self.processes_without_kernels, self.processes.len() as u64);
        match without {
            0 => None,
            _ if without >= all => {
                Some("kernels were not recorded (--kernels off), nor launches and copies".into())
            }
            _ => Some(format!(
                "kernels of {} of {} processes were not recorded (--kernels off): their launches and copies are in no \
                 figure",
                grouped(without),
                grouped(all)
            )),
        }
    }
}
