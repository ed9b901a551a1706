//! Ranks of a communicator that run, where the others of a large job are modelled.
//!
//! NCCL's interface names no process beyond the own rank. The Python side of a dry run announces the members of a group:
//! with the unique id of a communicator that is about to be joined, or as the size of the next split.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The ranks of a communicator, and those of them that run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Members {
    ranks: usize,
    /// Ascending.
    run: Vec<usize>,
}

impl Members {
    /// All ranks run.
    pub(super) fn all(ranks: usize) -> Self {
        Self { ranks, run: (0..ranks).collect() }
    }

    /// These ranks run, of so many; `None` if one of them cannot be.
    pub(super) fn some(ranks: usize, mut run: Vec<usize>) -> Option<Self> {
        run.sort_unstable();
        run.dedup();
        let are_ranks = run.last().is_some_and(|last| *last < ranks);
        are_ranks.then_some(Self { ranks, run })
    }

    /// Number of all ranks.
    pub(super) fn ranks(&self) -> usize {
        self.ranks
    }

    /// Ranks that run, ascending.
    pub(super) fn run(&self) -> &[usize] {
        &self.run
    }

    /// The place of a rank among those that run; `None` if it is modelled.
    pub(super) fn place(&self, rank: usize) -> Option<usize> {
        self.run.binary_search(&rank).ok()
    }

    /// Returns true if every rank runs.
    pub(super) fn are_all(&self) -> bool {
        self.run.len() == self.ranks
    }
}

#[derive(Default)]
struct Announced {
    by_name: Option<HashMap<String, Members>>,
    next_split: Option<usize>,
}

static ANNOUNCED: Mutex<Announced> = Mutex::new(Announced { by_name: None, next_split: None });

/// Remembers who is in the communicator of that name.
pub(super) fn announce(name: String, members: Members) {
    let mut all = ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner);
    all.by_name.get_or_insert_default().insert(name, members);
}

/// Remembers how many ranks this rank's part of the next split has.
pub(super) fn announce_split(ranks: usize) {
    ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner).next_split = Some(ranks);
}

/// Members of the communicator of that name: all ranks, if nothing else was announced.
pub(super) fn of(name: &str, ranks: usize) -> Members {
    let all = ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner);
    let announced = all.by_name.as_ref().and_then(|all| all.get(name)).cloned();
    announced.filter(|members| members.ranks == ranks).unwrap_or_else(|| Members::all(ranks))
}

/// Number of ranks of the part that is split off now, if that was announced.
pub(super) fn of_split() -> Option<usize> {
    ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner).next_split.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_run_have_places_and_the_others_none() {
        let members = Members::some(64, vec![63, 0, 63]).unwrap();
        assert_eq!(members.run(), [0, 63]);
        assert_eq!([0, 5, 63].map(|rank| members.place(rank)), [Some(0), None, Some(1)]);
        assert!(!members.are_all() && Members::all(3).are_all());
        assert_eq!((Members::some(2, vec![2]), Members::some(2, Vec::new())), (None, None));
    }

    #[test]
    fn what_was_not_announced_runs() {
        announce("one".to_owned(), Members::some(4, vec![1]).unwrap());
        assert_eq!(of("one", 4).run(), [1]);
        assert_eq!(of("one", 8).run().len(), 8, "another communicator");
        assert_eq!(of("other", 2), Members::all(2));
    }
}
