//! Jobs that slow each other on the host, on whatever device they are.

use crate::common::{self, DONE, Node as Machine, gib, started};
use radrm_base::HostUse;
use radrm_scheduler_core::{
    Activity, Bytes, Device, DeviceId, Event, Job, JobId, JobObservation, Node, NodeId, Permille, Phase,
    Policy, Settings, Wait,
};

fn node(cores: u64) -> Event {
    Event::NodeAdded {
        node: Node {
            id: NodeId(0),
            cpu_milli: cores * 1000,
            memory: Bytes::from_gib(256),
            memory_bandwidth: None,
        },
    }
}

/// A job that does little to its GPU and keeps so many cores busy.
fn loader(id: u64, threads: u32) -> Job {
    let activity = Some(Activity { smact: Permille(100), ..Activity::default() });
    let host_use = (threads > 0).then(|| used(threads));
    Job { activity, host_use, ..gib(id, 4) }
}

fn used(threads: u32) -> HostUse {
    HostUse { cpu_milli: threads * 1000, threads, resident: Bytes::from_gib(1), ..HostUse::default() }
}

fn machine(gpus: u32, cores: u64, policy: Policy) -> Machine {
    let mut machine = Machine::new(gpus, common::with(policy));
    machine.step(node(cores));
    machine
}

#[test]
fn jobs_of_the_same_cores_do_not_share_a_device() {
    let joins = |cores, threads, policy| {
        let mut machine = machine(1, cores, policy);
        machine.run(loader(1, 4));
        let joined = started(&machine.run(loader(2, threads)), 2).is_some();
        (joined, machine.state.job(JobId(2)).unwrap().wait)
    };
    let (joined, wait) = joins(4, 4, Policy::Aware);
    // Each would get half of the cores, so both together get done what one does.
    assert!(!joined && matches!(wait, Some(Wait::Slowdown { gain, .. }) if gain < Permille(100)), "{wait:?}");
    assert!(joins(8, 4, Policy::Aware).0, "a core for each thread");
    assert!(joins(4, 0, Policy::Aware).0, "what was not measured counts as nothing");
    assert!(joins(4, 4, Policy::BestFit).0, "only `aware` predicts");
}

#[test]
fn an_idle_device_is_never_refused_for_the_hosts_sake() {
    let mut machine = machine(3, 4, Policy::Aware);
    for id in 1..=3 {
        assert!(started(&machine.run(loader(id, 4)), id).is_some(), "{id}");
    }
    machine.run(loader(4, 4));
    assert_eq!(machine.phase(4), Phase::Waiting);
    // It starts when a device is idle, though all cores are still taken.
    let decisions = machine.at(10).finish(2, DONE);
    assert!(started(&decisions, 4).is_some());
}

#[test]
fn of_two_nodes_the_one_with_free_cores_comes_first() {
    let mut machine = machine(2, 4, Policy::Aware);
    machine.step(Event::NodeAdded {
        node: Node { id: NodeId(1), cpu_milli: 4000, memory: Bytes::from_gib(256), memory_bandwidth: None },
    });
    let device = |id| Device {
        id: DeviceId(id),
        node: NodeId(1),
        model: common::MODEL.into(),
        capacity: Bytes::from_gib(40),
        parent: None,
        shared: true,
    };
    for id in 2..5 {
        machine.step(Event::DeviceAdded { device: device(id) });
    }
    let place =
        |machine: &mut Machine, id, threads| started(&machine.run(loader(id, threads)), id).unwrap().1[0];
    assert!(place(&mut machine, 1, 4) < 2, "where the fewest others are idle");
    // The same node would be next by that rule.
    assert!(place(&mut machine, 2, 4) >= 2);
    assert!(place(&mut machine, 3, 0) < 2);
}

#[test]
fn a_more_important_job_of_another_device_is_protected() {
    let phase = |priority| {
        let mut machine = machine(2, 4, Policy::Aware);
        machine.run(Job { priority, ..loader(1, 4) });
        machine.run(loader(2, 0));
        machine.run(Job { host_use: Some(HostUse { cpu_milli: 2000, ..used(2) }), ..loader(3, 0) });
        (machine.phase(3), machine.state.job(JobId(3)).unwrap().wait)
    };
    assert_eq!(phase(0).0, Phase::Running);
    let (phase, wait) = phase(5);
    assert!(phase == Phase::Waiting && matches!(wait, Some(Wait::Protected { .. })), "{wait:?}");
}

#[test]
fn what_a_running_job_takes_of_the_host_is_learned_where_nothing_was_known() {
    let mut machine = machine(1, 4, Policy::Aware);
    machine.run(loader(1, 0));
    let seen = JobObservation { host_use: Some(used(4)), ..JobObservation::default() };
    machine.step(Event::JobObserved { job: JobId(1), device: DeviceId(0), seen });
    machine.run(loader(2, 4));
    assert_eq!(machine.phase(2), Phase::Waiting);
    // It turns out to take less.
    let seen = JobObservation { host_use: Some(HostUse { cpu_milli: 100, ..used(1) }), ..seen };
    let decisions = machine.step(Event::JobObserved { job: JobId(1), device: DeviceId(0), seen });
    assert!(started(&decisions, 2).is_some());
}

#[test]
fn jobs_behind_one_that_waits_bring_no_threads_to_its_node() {
    let need = |gibs| Some(radrm_scheduler_core::Need::measured(Bytes::from_gib(gibs)));
    let behind = |threads| {
        let mut machine = machine(2, 8, Policy::Aware);
        machine.run(Job { need: need(30), ..loader(1, 3) });
        machine.run(Job { need: need(30), ..loader(2, 2) });
        // It waits for memory, and the device of one of the two is kept for it. The other device has room.
        machine.run(Job { need: need(20), ..loader(3, 2) });
        assert_eq!(machine.phase(3), Phase::Waiting);
        machine.run(loader(4, threads));
        (machine.phase(4), machine.state.job(JobId(4)).unwrap().wait)
    };
    assert_eq!(behind(1).0, Phase::Running, "each thread has a core, with those of the job that waits");
    // Alone it would find a core for each thread.
    assert_eq!(behind(2), (Phase::Waiting, Some(Wait::Reserved { job: JobId(3) })));
}

#[test]
fn without_a_bound_on_cores_nothing_is_known_of_the_host() {
    let mut machine = Machine::new(1, Settings::default());
    machine.run(loader(1, 64));
    assert!(started(&machine.run(loader(2, 64)), 2).is_some());
}

#[test]
fn jobs_that_wait_for_memory_slow_each_other_with_a_core_for_each_thread() {
    let phase = |stalled: Option<u32>| {
        let mut machine = machine(2, 16, Policy::Aware);
        let waits = |id| {
            let host_use = Some(HostUse { memory_stalled: stalled.map(Permille), ..used(5) });
            Job { host_use, ..loader(id, 0) }
        };
        machine.run(Job { priority: 5, ..waits(1) });
        machine.run(waits(2));
        machine.run(waits(3));
        machine.phase(3)
    };
    // Each would be at 1 / (1 + 10 / 16 * .70) = .70 of its speed, and a little less on the GPU.
    assert_eq!(phase(Some(1000)), Phase::Waiting);
    assert_eq!(phase(Some(100)), Phase::Running, "it waits for little of its time");
    assert_eq!(phase(None), Phase::Running, "not measured");
}

#[test]
fn memory_traffic_above_that_of_the_host_slows_its_jobs() {
    let phase = |bandwidth: Option<u64>, traffic: Option<u64>| {
        let mut machine = machine(2, 16, Policy::Aware);
        let node = Node {
            id: NodeId(0),
            cpu_milli: 16_000,
            memory: Bytes::from_gib(256),
            memory_bandwidth: bandwidth,
        };
        machine.step(Event::NodeAdded { node });
        let reads = |id| {
            let host_use = Some(HostUse { memory_traffic: traffic, ..used(1) });
            Job { host_use, ..loader(id, 0) }
        };
        machine.run(Job { priority: 5, ..reads(1) });
        machine.run(reads(2));
        machine.run(reads(3));
        (machine.phase(3), machine.state.job(JobId(3)).unwrap().wait)
    };
    let most = Some(200_000_000_000);
    let (found, wait) = phase(most, most);
    // Each would be at .58 of its speed, with cores of its own.
    assert!(found == Phase::Waiting && matches!(wait, Some(Wait::Protected { .. })), "{wait:?}");
    assert_eq!(phase(most, Some(60_000_000_000)).0, Phase::Running, "together no more than there is");
    assert_eq!(phase(None, most).0, Phase::Running, "nothing is known of the host");
    assert_eq!(phase(most, None).0, Phase::Running, "nothing is known of the jobs");
}
