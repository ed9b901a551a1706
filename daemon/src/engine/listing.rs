//! Lists of jobs for `radrm queue` and `radrm top`.

use std::collections::HashSet;
use std::ops::ControlFlow;

use radrm_base::UserId;
use radrm_scheduler_core::JobId;

use super::Engine;
use super::entry_index::LineKey;
use crate::message::{JobList, Listing};
use crate::peer::Peer;
use crate::store::Stage;

/// The most jobs that are shown at once, of those that are over.
const MAX_SHOWN: u32 = 10_000;

impl Engine {
    /// Jobs of a list, in its order: those that are over, those that have begun, and waiting ones in the order of the queue.
    pub(super) fn listed(&self, peer: &Peer, listing: Listing) -> JobList {
        let whose = (!(listing.all && peer.admin)).then_some(peer.uid);
        let mut jobs = match listing.ended.min(MAX_SHOWN) {
            0 => Vec::new(),
            most => self.outbox.store().numbers_of_ended(whose, most).unwrap_or_default(),
        };
        jobs.reverse();
        let begun = self.jobs.entries().begun().filter(|entry| whose.is_none_or(|uid| uid == entry.uid));
        jobs.extend(begun.map(|entry| entry.id));
        let jobs = jobs.into_iter().map(|job| (job, String::new())).collect();
        let mut list = JobList { jobs, ..JobList::default() };
        let most = if listing.first == 0 { usize::MAX } else { listing.first as usize };
        if listing.merge {
            self.list_lines(whose, most, &mut list);
        } else {
            self.list_waiting(whose, most, &mut list);
        }
        list
    }

    /// Adds waiting jobs, those of an array in one state by the first of them.
    fn list_lines(&self, whose: Option<u32>, most: usize, list: &mut JobList) {
        let index = self.jobs.entries().index();
        let before = list.jobs.len();
        let (mut seen, mut shown) = (HashSet::new(), 0);
        self.core.state.visit_queue(whose.map(UserId), |JobId(job)| {
            let Some((key, line, last)) = index.line_of(job) else {
                return ControlFlow::Continue(JobId(job));
            };
            if seen.len() == most {
                return ControlFlow::Break(());
            }
            if seen.insert(key) {
                shown += line.len();
                list.jobs.push((job, line.tasks()));
            }
            // Those that follow it in the array mostly follow it in the queue.
            ControlFlow::Continue(JobId(last))
        });
        // Jobs that are not in the queue: held, or waiting for others.
        let rest =
            index.lines(whose).filter(|(key, _)| !seen.contains(key)).take(most - (list.jobs.len() - before));
        let mut rest: Vec<(u64, LineKey, String, u64)> = rest
            .filter_map(|(key, line)| Some((line.jobs().next()?, key, line.tasks(), line.len())))
            .collect();
        rest.sort_unstable();
        for (job, _, tasks, jobs) in rest {
            shown += jobs;
            list.jobs.push((job, tasks));
        }
        list.left_out = index.waiting(whose) - shown;
    }

    /// Adds waiting jobs one by one.
    fn list_waiting(&self, whose: Option<u32>, most: usize, list: &mut JobList) {
        let index = self.jobs.entries().index();
        let mut seen = HashSet::new();
        let waits = |job: u64| self.jobs.entry(job).is_some_and(|entry| entry.stage == Stage::Waiting);
        self.core.state.visit_queue(whose.map(UserId), |JobId(job)| {
            if seen.len() == most {
                return ControlFlow::Break(());
            }
            if waits(job) && seen.insert(job) {
                list.jobs.push((job, String::new()));
            }
            ControlFlow::Continue(JobId(job))
        });
        let rest = index.lines(whose).flat_map(|(_, line)| line.jobs()).filter(|job| !seen.contains(job));
        let mut rest: Vec<u64> = rest.take(most - seen.len()).collect();
        rest.sort_unstable();
        let shown = (seen.len() + rest.len()) as u64;
        list.jobs.extend(rest.into_iter().map(|job| (job, String::new())));
        list.left_out = index.waiting(whose) - shown;
    }
}
