//! The stacks of all processes of a job together.
//!
//! A sum over processes is of one moment. The recorder writes what each process holds at moments that all processes share,
//! where anything changed since the one before. At such a moment what every process held is known: what its last record
//! says, nothing before its first one and after its end. A process's own peak lies in between, where what the others held
//! is not known. So of the shared moments the one is taken at which most was held together.

use super::frames::FrameLabel;
use super::table::tables_at;
use super::{Flame, FlameStack, by_size};
use radrm_profile::model::{GpuIndex, Process, Profile};
use radrm_profile::{Bytes, Nanos};
use std::collections::{BTreeMap, BTreeSet};

/// Memory of all processes at one moment, by call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobStacks {
    /// The moment.
    pub t: Nanos,
    /// Processes that held anything then.
    pub processes: usize,
    /// Of each GPU, the same stack of several processes once.
    pub flames: Vec<Flame>,
}

impl JobStacks {
    /// Memory held on all GPUs.
    pub fn total(&self) -> Bytes {
        Bytes(self.flames.iter().fold(0, |sum, flame| sum.saturating_add(flame.total().0)))
    }
}

/// The stacks of a job at the shared moment at which its processes held most together; `None`: no such moment is recorded.
pub fn job_stacks(profile: &Profile, all_frames: bool) -> Option<JobStacks> {
    let recorded = || profile.processes.iter().filter(|process| process.stacks.is_some());
    let shared: BTreeSet<Nanos> = recorded().flat_map(shared_times).collect();
    let total = |t: Nanos| recorded().fold(0u64, |sum, process| sum.saturating_add(total(process, t)));
    // The first of several.
    let t = shared.into_iter().rev().max_by_key(|t| total(*t))?;
    let tables = tables_at(profile, all_frames, t);
    let mut processes = BTreeSet::new();
    let mut gpus = BTreeMap::<GpuIndex, BTreeMap<&[FrameLabel], u64>>::new();
    for table in tables.iter().filter(|table| lives(table.process, t)) {
        let held = table.moments.iter().flat_map(|moment| &moment.held);
        for (row, bytes) in table.rows.iter().zip(held).filter(|(_, bytes)| !bytes.is_zero()) {
            processes.insert(table.pid());
            let stacks = gpus.entry(table.account.gpu).or_default();
            let sum = stacks.entry(&row.frames).or_default();
            *sum = sum.saturating_add(bytes.0);
        }
    }
    let flames = gpus.into_iter().map(|(gpu, stacks)| {
        let stack = |(frames, bytes): (&[FrameLabel], u64)| FlameStack {
            frames: frames.to_vec(),
            bytes: Bytes(bytes),
        };
        let stacks = by_size(stacks.into_iter().map(stack).collect());
        Flame { pid: None, program: String::new(), gpu, stacks }
    });
    Some(JobStacks { t, processes: processes.len(), flames: flames.collect() })
}

/// Moments of a process that all processes share. At its end the others were not read.
fn shared_times(process: &Process) -> impl Iterator<Item = Nanos> + '_ {
    let moments = process.stack_moments.iter().filter(|moment| !moment.is_peak);
    moments.map(|moment| moment.t).filter(|t| lives(process, *t))
}

fn lives(process: &Process, t: Nanos) -> bool {
    process.state.ended.is_none_or(|ended| t < ended)
}

/// Memory that a process held on all GPUs at a shared moment, bytes.
fn total(process: &Process, t: Nanos) -> u64 {
    if !lives(process, t) {
        return 0;
    }
    let last = |gpu: GpuIndex| {
        let mut moments = process.stack_moments.iter().rev().filter(|moment| moment.gpu == gpu);
        moments.find(|moment| moment.t <= t).map_or(0, |moment| moment.total.0)
    };
    process.state.accounts.iter().fold(0, |sum, account| sum.saturating_add(last(account.gpu)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stacks::profile_with_moments;
    use radrm_profile::model::{ProcessKey, StackMoment};

    /// Two processes of one program: one frees what the other takes, so their own peaks never meet.
    fn profile() -> Profile {
        let mut profile = profile_with_moments();
        let first = &mut profile.processes[0];
        let [load, step] = [0, 1].map(|at| first.stacks.as_ref().unwrap().sites[at].id());
        let moment = |t, total: u64, changed: &[(u64, u64)]| StackMoment {
            t: Nanos(t),
            total: Bytes(total),
            changed: changed.iter().map(|(site, bytes)| (*site, Bytes(*bytes))).collect(),
            ..StackMoment::default()
        };
        first.state.ended = Some(Nanos(90));
        first.stack_moments = vec![
            moment(10, 400, &[(load, 400)]),
            StackMoment { is_peak: true, ..moment(15, 900, &[(load, 900)]) },
            moment(20, 300, &[(load, 300)]),
            moment(40, 100, &[(load, 100)]),
        ];
        let mut second = first.clone();
        second.key = ProcessKey { slot: 1, generation: 1 };
        second.identity.pid = 77;
        second.state.ended = Some(Nanos(35));
        second.stack_moments =
            vec![moment(20, 250, &[(load, 200), (step, 50)]), moment(35, 5000, &[(step, 5000)])];
        profile.processes.push(second);
        profile
    }

    #[test]
    fn processes_are_added_up_at_one_moment_that_they_share() {
        let job = job_stacks(&profile(), false).unwrap();
        // Neither the first one's own peak, nor what the second one held when it ended: the other was not read then.
        assert_eq!((job.t, job.processes, job.total()), (Nanos(20), 2, Bytes(550)));
        let [flame] = &job.flames[..] else { panic!("{job:?}") };
        let stacks: Vec<(&str, u64)> =
            flame.stacks.iter().map(|stack| (stack.frames[0].function.as_str(), stack.bytes.0)).collect();
        assert_eq!((flame.pid, stacks), (None, vec![("load", 500), ("step", 50)]));
    }

    #[test]
    fn a_job_without_shared_moments_has_no_sum() {
        let mut profile = profile();
        for process in &mut profile.processes {
            process.stack_moments.retain(|moment| moment.is_peak);
        }
        assert_eq!(job_stacks(&profile, false), None);
    }
}
