//! Refused requests for a GPU's memory that can have ended their program.

use crate::model::{FailedRequest, Kind, Process, Profile};

impl Process {
    /// The last request that was refused for lack of memory, on each GPU where nothing was granted after it. A program that
    /// asked for less, gave some back and asked again, or only tried what it might get, goes on with what it is
    /// granted: if it fails later, that was not the reason.
    pub fn standing_refusals(&self) -> impl Iterator<Item = &FailedRequest> {
        let stuck = self.state.accounts.iter().filter(|account| account.granted_since_refusal == Some(0));
        stuck.filter_map(|account| {
            let on_gpu = |failure: &&FailedRequest| {
                let is_of_gpu = Kind::from_raw(failure.kind).is_none_or(Kind::is_of_gpu);
                failure.gpu == account.gpu && failure.out_of_memory() && is_of_gpu
            };
            self.state.failures.iter().filter(on_gpu).max_by_key(|failure| failure.t)
        })
    }
}

impl Profile {
    /// The standing refusals of the processes that used a GPU last: where another one came to a GPU after a process
    /// had ended, the job went on without that one.
    pub fn standing_refusals(&self) -> impl Iterator<Item = (&Process, &FailedRequest)> {
        let users = || self.processes.iter().filter(|process| !process.state.accounts.is_empty());
        let replaced = move |process: &Process| {
            process.state.ended.is_some_and(|end| users().any(|other| other.identity.joined > end))
        };
        let last = self.processes.iter().filter(move |process| !replaced(process));
        last.flat_map(|process| process.standing_refusals().map(move |failure| (process, failure)))
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{Account, GpuIndex, Identity, Job, ProcessState, RESULT_OUT_OF_MEMORY};
    use crate::units::{Bytes, Nanos};

    use super::*;

    /// Refused at 10 and at 20; `granted`: requests after that.
    fn process(joined: u64, ended: Option<u64>, granted: Option<u64>) -> Process {
        let refused = |t| FailedRequest {
            t: Nanos(t),
            size: Bytes(t),
            result: RESULT_OUT_OF_MEMORY,
            ..FailedRequest::default()
        };
        let account = Account { granted_since_refusal: granted, ..Account::default() };
        Process {
            identity: Identity { joined: Nanos(joined), ..Identity::default() },
            state: ProcessState {
                accounts: vec![account, Account { gpu: GpuIndex(1), ..Account::default() }],
                failures: if granted.is_some() { vec![refused(20), refused(10)] } else { Vec::new() },
                ended: ended.map(Nanos),
                ..ProcessState::default()
            },
            ..Process::default()
        }
    }

    fn stand(processes: Vec<Process>) -> Vec<u64> {
        let profile = Profile { processes, ..Profile::new(Job::default()) };
        profile.standing_refusals().map(|(_, failure)| failure.size.0).collect()
    }

    #[test]
    fn the_last_refusal_stands_unless_something_was_granted_after_it() {
        assert_eq!(stand(vec![process(0, None, Some(0))]), [20]);
        assert_eq!(stand(vec![process(0, None, Some(1))]), [] as [u64; 0]);
        assert_eq!(stand(vec![process(0, None, None)]), [] as [u64; 0]);
    }

    #[test]
    fn a_refusal_of_host_memory_is_none_of_the_gpus() {
        let mut process = process(0, None, Some(0));
        process.state.failures.iter_mut().filter(|failure| failure.t == Nanos(20)).for_each(|failure| {
            failure.kind = Kind::PinnedHost as u8;
        });
        assert_eq!(stand(vec![process]), [10]);
    }

    #[test]
    fn a_process_that_others_came_after_did_not_end_the_job() {
        let refused = |ended| process(0, Some(ended), Some(0));
        assert_eq!(stand(vec![refused(50), process(60, None, None)]), [] as [u64; 0]);
        assert_eq!(stand(vec![refused(70), process(60, Some(80), None)]), [20], "both were there");
    }
}
