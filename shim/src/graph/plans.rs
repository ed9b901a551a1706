//! The plans of the process's executable graphs.

use radrm_cuda_abi::*;

use super::plan::{Node, Plan};
use crate::map::HandleMap;

/// The process's executable graphs.
pub(crate) struct Graphs {
    /// Executable graph -> plan.
    plans: HandleMap,
}

impl Graphs {
    /// None known.
    pub(crate) const fn new() -> Self {
        Self { plans: HandleMap::new() }
    }

    /// The plan of an executable graph.
    pub(super) fn plan(&self, exec: CUgraphExec) -> Option<Plan> {
        Plan::from_word(self.plans.get(exec.addr())?)
    }

    /// Puts a plan in place of the one before.
    pub(super) fn put(&self, exec: CUgraphExec, nodes: &[Node]) -> bool {
        let before = self.plan(exec);
        let Some(plan) = Plan::new(nodes) else { return false };
        if !self.plans.insert(exec.addr(), plan.word()) {
            plan.free();
            return false;
        }
        if let Some(before) = before {
            before.free();
        }
        true
    }

    /// Takes an executable graph's plan out, as a word.
    pub(super) fn take(&self, exec: CUgraphExec) -> Option<u64> {
        self.plans.remove(exec.addr())
    }

    /// Puts back what [`Graphs::take`] gave.
    pub(super) fn put_back(&self, exec: CUgraphExec, word: u64) {
        self.plans.insert(exec.addr(), word);
    }
}
