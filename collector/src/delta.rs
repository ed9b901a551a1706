//! Changes of a process since it was last written.

use radrm_profile::model::{Kernel, Process, Timeline};
use radrm_profile::{KernelCounters, KernelDefinition, ProcessDelta, TimelineChunk};

/// Kernels whose counters go into a state while the process lives: those with
/// the most launches. The others follow with its last one.
const KERNELS_PER_STATE: usize = 256;

/// The difference between what is `known` of a process (nothing at first) and
/// what it is `now`; `None` if there is none.
pub(crate) fn delta(known: Option<&Process>, now: &Process, last: bool) -> Option<ProcessDelta> {
    let kernels = known.map_or(&[][..], |known| &known.kernels);
    let delta = ProcessDelta {
        key: now.key,
        identity: known.is_none_or(|known| known.identity != now.identity).then(|| now.identity.clone()),
        state: now.state.clone(),
        definitions: definitions(kernels, &now.kernels),
        counters: counters(kernels, &now.kernels, last),
        timelines: now
            .timelines
            .iter()
            .filter_map(|timeline| chunk(known.and_then(|known| known.timeline(timeline.gpu)), timeline))
            .collect(),
    };
    let nothing_new = known.is_some_and(|known| known.state == delta.state)
        && delta.identity.is_none()
        && delta.definitions.is_empty()
        && delta.counters.is_empty()
        && delta.timelines.is_empty();
    (!nothing_new).then_some(delta)
}

fn find(kernels: &[Kernel], id: u32) -> Option<&Kernel> {
    kernels.binary_search_by_key(&id, |kernel| kernel.id).ok().and_then(|at| kernels.get(at))
}

fn definitions(known: &[Kernel], now: &[Kernel]) -> Vec<KernelDefinition> {
    // A kernel keeps its number, and its definition once it is complete.
    let new = |kernel: &&Kernel| {
        find(known, kernel.id).is_none_or(|old| {
            old.name != kernel.name
                || old.registers != kernel.registers
                || old.max_threads != kernel.max_threads
        })
    };
    now.iter().filter(new).map(KernelDefinition::from).collect()
}

fn counters(known: &[Kernel], now: &[Kernel], last: bool) -> Vec<KernelCounters> {
    let changed = |kernel: &&Kernel| match find(known, kernel.id) {
        Some(old) => KernelCounters::from(old) != KernelCounters::from(*kernel),
        None => kernel.all_launches() > 0,
    };
    let mut counters: Vec<KernelCounters> = now.iter().filter(changed).map(KernelCounters::from).collect();
    if !last && counters.len() > KERNELS_PER_STATE {
        counters.sort_by_key(|c| std::cmp::Reverse(c.launches.saturating_add(c.graph_launches)));
        counters.truncate(KERNELS_PER_STATE);
    }
    counters
}

/// The points from the last known one on: its span may have been unfinished.
fn chunk(known: Option<&Timeline>, now: &Timeline) -> Option<TimelineChunk> {
    let points = match known.and_then(|known| known.points.last()) {
        None => &now.points[..],
        Some(last) => {
            let from = now.points.partition_point(|point| point.t < last.t);
            let points = now.points.get(from..).unwrap_or_default();
            if points == [*last] { &[] } else { points }
        }
    };
    (!points.is_empty()).then(|| TimelineChunk { gpu: now.gpu, points: points.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::{GpuIndex, Job, Profile, TimelinePoint};
    use radrm_profile::{Bytes, Nanos, Record, State};

    fn kernel(id: u32, launches: u64) -> Kernel {
        Kernel { id, name: format!("k{id}"), launches, ..Kernel::default() }
    }

    fn process(kernels: Vec<Kernel>, points: &[(u64, u64)]) -> Process {
        let points = points
            .iter()
            .map(|&(t, max)| TimelinePoint { t: Nanos(t), max_total: Bytes(max), ..TimelinePoint::default() })
            .collect();
        Process { kernels, timelines: vec![Timeline { gpu: GpuIndex(0), points }], ..Process::default() }
    }

    /// Applies the difference and checks that nothing is missing.
    fn step(profile: &mut Profile, now: &Process) -> ProcessDelta {
        let delta = delta(profile.processes.first(), now, true).unwrap();
        profile.apply(Record::State(State { processes: vec![delta.clone()], ..State::default() }));
        assert_eq!(&profile.processes[0], now);
        delta
    }

    #[test]
    fn only_what_is_new_is_written() {
        let mut profile = Profile::new(Job::default());
        let first = process(vec![kernel(0, 0), kernel(1, 5)], &[(0, 1), (10, 2)]);
        let delta_1 = step(&mut profile, &first);
        assert!(delta_1.identity.is_some());
        assert_eq!((delta_1.definitions.len(), delta_1.counters.len()), (2, 1));

        assert_eq!(delta(profile.processes.first(), &first, true), None);

        let second = process(vec![kernel(0, 0), kernel(1, 6), kernel(2, 1)], &[(0, 1), (10, 3), (20, 4)]);
        let delta_2 = step(&mut profile, &second);
        assert!(delta_2.identity.is_none());
        assert_eq!((delta_2.definitions.len(), delta_2.counters.len()), (1, 2));
        assert_eq!(delta_2.timelines[0].points.len(), 2);
    }

    #[test]
    fn counters_of_rare_kernels_wait_for_the_end() {
        let kernels: Vec<Kernel> = (0..1000).map(|id| kernel(id, u64::from(id) + 1)).collect();
        let now = process(kernels, &[]);
        let living = delta(None, &now, false).unwrap();
        assert_eq!(living.counters.len(), KERNELS_PER_STATE);
        assert!(living.counters.iter().all(|counters| counters.launches > 700));
        assert_eq!(delta(None, &now, true).unwrap().counters.len(), 1000);
    }
}
