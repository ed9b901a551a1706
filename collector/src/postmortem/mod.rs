//! Post-mortems of refused requests: the processes wrote them down, NVML adds the neighbours.

pub(crate) mod convert;
mod who;

use radrm_profile::Nanos;
use radrm_profile::model::postmortem::{Neighbour, Neighbours, Postmortem};
use radrm_profile::model::{GpuIndex, NvmlSample};
use std::collections::BTreeMap;

/// Neighbours that are kept, those that hold most.
const NEIGHBOURS: usize = 64;

/// Post-mortems of a job that a profile keeps. A job of a thousand processes
/// that all run out of memory says the same a thousand times.
const KEPT: usize = 512;

/// The post-mortems of a job, as they become known.
#[derive(Debug, Default)]
pub(crate) struct Postmortems {
    known: Vec<Known>,
    /// NVML's last list of each GPU.
    lists: BTreeMap<GpuIndex, NvmlSample>,
}

#[derive(Debug)]
struct Known {
    postmortem: Postmortem,
    written: Written,
}

/// Part of a post-mortem that the profile has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Written {
    /// Nothing, or not its neighbours: to be written at once.
    Not,
    /// Not all. The rest can wait for the next state: a program may go on with
    /// refusals for days.
    Behind,
    /// All.
    Whole,
}

impl Postmortems {
    /// Takes in what a process has written down; true if it is a refusal that
    /// was not known, which is then completed by `enrich`.
    pub(crate) fn found(
        &mut self,
        mut postmortem: Postmortem,
        is_own: impl Fn(u32) -> bool,
        enrich: impl FnOnce(&mut Postmortem),
    ) -> bool {
        let at = self.known.iter().position(|known| known.postmortem.is_same(&postmortem));
        if let Some(known) = at.and_then(|at| self.known.get_mut(at))
            && known.postmortem.request == postmortem.request
            && known.postmortem.is_complete == postmortem.is_complete
        {
            if known.postmortem.later != postmortem.later {
                known.postmortem.later = postmortem.later;
                known.written = known.written.min(Written::Behind);
            }
            return false;
        }
        if at.is_none() && self.known.len() >= KEPT {
            return false;
        }
        enrich(&mut postmortem);
        for holder in &mut postmortem.holders {
            holder.who = who::of_process(holder.pid);
        }
        if let Some(list) = self.lists.get(&postmortem.gpu()) {
            postmortem.nvml = Some(neighbours(list, &is_own));
        }
        let written = Written::news(&postmortem);
        let known = Known { postmortem, written };
        match at.and_then(|at| self.known.get_mut(at)) {
            Some(place) => *place = known,
            None => self.known.push(known),
        }
        true
    }

    /// Takes in a list of NVML, with the processes of everybody: that nearest
    /// to a refusal stands beside it.
    pub(crate) fn hear(&mut self, list: &NvmlSample, is_own: impl Fn(u32) -> bool) {
        for known in self.known.iter_mut().filter(|known| known.postmortem.gpu() == list.gpu) {
            let moment = known.postmortem.request.t;
            let before = known.postmortem.nvml.as_ref().map(|neighbours| distance(neighbours.t, moment));
            if before.is_none_or(|before| distance(list.t, moment) < before) {
                known.postmortem.nvml = Some(neighbours(list, &is_own));
                known.written = known.written.min(Written::news(&known.postmortem));
            }
        }
        self.lists.insert(list.gpu, list.clone());
    }

    /// Takes the post-mortems that are to be written. `all`: also those that could wait.
    pub(crate) fn take(&mut self, all: bool) -> Vec<Postmortem> {
        let due = |written| written == Written::Not || (all && written == Written::Behind);
        let mut ready = Vec::new();
        for known in self.known.iter_mut().filter(|known| due(known.written)) {
            known.written = Written::Whole;
            ready.push(known.postmortem.clone());
        }
        ready
    }
}

impl Written {
    /// After something new: the first refusal is written at once.
    fn news(postmortem: &Postmortem) -> Written {
        if postmortem.is_latest { Written::Behind } else { Written::Not }
    }
}

fn distance(a: Nanos, b: Nanos) -> u64 {
    a.0.abs_diff(b.0)
}

fn neighbours(list: &NvmlSample, is_own: &impl Fn(u32) -> bool) -> Neighbours {
    let mut processes: Vec<Neighbour> = list
        .processes
        .iter()
        .map(|entry| Neighbour {
            pid: entry.pid,
            who: who::of_process(entry.pid),
            used: entry.used,
            is_own: is_own(entry.pid),
        })
        .collect();
    processes.sort_by_key(|process| (std::cmp::Reverse(process.used), process.pid));
    processes.truncate(NEIGHBOURS);
    Neighbours { t: list.t, used: list.used, total: list.total, processes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::Bytes;
    use radrm_profile::model::postmortem::Later;
    use radrm_profile::model::{FailedRequest, ProcessUse};

    fn refusal(t: u64) -> Postmortem {
        Postmortem {
            is_complete: true,
            request: FailedRequest { t: Nanos(t), ..FailedRequest::default() },
            ..Postmortem::default()
        }
    }

    fn list(t: u64, pids: &[(u32, u64)]) -> NvmlSample {
        let processes = pids.iter().map(|&(pid, used)| ProcessUse { pid, used: Some(Bytes(used)) }).collect();
        NvmlSample { t: Nanos(t), processes, ..NvmlSample::default() }
    }

    #[test]
    fn the_list_that_is_nearest_to_the_refusal_stands_beside_it() {
        let mut all = Postmortems::default();
        let own = |pid| pid == 2;
        all.hear(&list(50, &[(1, 10)]), own);
        assert!(all.found(refusal(100), own, |_| {}));
        assert_eq!(all.take(false)[0].nvml.as_ref().unwrap().t, Nanos(50));
        // Farther away than the one before.
        all.hear(&list(170, &[(1, 10)]), own);
        assert_eq!(all.take(true), []);
        all.hear(&list(120, &[(1, 10), (2, 30)]), own);
        let nvml = all.take(false).remove(0).nvml.unwrap();
        let pids: Vec<_> = nvml.processes.iter().map(|process| (process.pid, process.is_own)).collect();
        assert_eq!((nvml.t, pids), (Nanos(120), vec![(2, true), (1, false)]));
    }

    #[test]
    fn counts_of_later_refusals_wait_for_a_state() {
        let mut all = Postmortems::default();
        assert!(all.found(refusal(100), |_| false, |_| {}));
        assert_eq!(all.take(false).len(), 1);
        let more = Postmortem { later: Later { device: 3, ..Later::default() }, ..refusal(100) };
        assert!(!all.found(more.clone(), |_| false, |_| {}));
        assert_eq!(all.take(false), []);
        assert_eq!(all.take(true), [more]);
        assert_eq!(all.take(true), []);
    }

    #[test]
    fn a_newer_refusal_takes_the_place_of_the_latest() {
        let mut all = Postmortems::default();
        let latest = |t| Postmortem { is_latest: true, ..refusal(t) };
        for postmortem in [refusal(1), latest(5), latest(9)] {
            assert!(all.found(postmortem, |_| false, |_| {}));
        }
        let first: Vec<u64> = all.take(false).iter().map(|it| it.request.t.0).collect();
        assert_eq!(first, [1], "the latest waits for a state");
        let times: Vec<u64> = all.take(true).iter().map(|it| it.request.t.0).collect();
        assert_eq!(times, [9]);
    }
}
