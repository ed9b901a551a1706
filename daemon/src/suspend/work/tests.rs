//! A driver in which each call can be made to fail.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use super::*;

const RUNNING: CUprocessState = CU_PROCESS_STATE_RUNNING;
const CHECKPOINTED: CUprocessState = CU_PROCESS_STATE_CHECKPOINTED;

/// Two processes, and what goes wrong: the n-th change of a state, or the loss of a process before it.
#[derive(Default)]
struct World {
    states: RefCell<BTreeMap<u32, CUprocessState>>,
    acts: RefCell<Vec<(Act, u32)>>,
    fails_at: Option<usize>,
    dies_at: Option<(usize, u32)>,
    dead: RefCell<BTreeSet<u32>>,
    refused_at: Option<(usize, SuspendRefusal)>,
    checks: usize,
    comes_late: bool,
    /// Number of times that a GPU lists a process that died.
    lingers: Cell<u32>,
    no_room: bool,
}

fn who(pid: u32) -> ProcessIdentity {
    ProcessIdentity { pid, start: 1 }
}

impl World {
    fn new() -> Self {
        Self { states: RefCell::new([(1, RUNNING), (2, RUNNING)].into()), ..Self::default() }
    }

    fn all(&self, state: CUprocessState) -> bool {
        let dead = self.dead.borrow();
        self.states.borrow().iter().all(|(pid, found)| *found == state || dead.contains(pid))
    }
}

impl Driver for World {
    fn state(&self, pid: u32) -> Result<CUprocessState, CUresult> {
        if self.dead.borrow().contains(&pid) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.states.borrow().get(&pid).copied().ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    fn act(&self, act: Act, pid: u32) -> Result<(), CUresult> {
        let number = self.acts.borrow().len();
        self.acts.borrow_mut().push((act, pid));
        if let Some((at, dies)) = self.dies_at
            && at == number
        {
            self.dead.borrow_mut().insert(dies);
        }
        let state = self.state(pid)?;
        let (from, to) = match act {
            Act::Lock(_) => (RUNNING, CU_PROCESS_STATE_LOCKED),
            Act::Checkpoint => (CU_PROCESS_STATE_LOCKED, CHECKPOINTED),
            Act::Restore => (CHECKPOINTED, CU_PROCESS_STATE_LOCKED),
            Act::Unlock => (CU_PROCESS_STATE_LOCKED, RUNNING),
        };
        if self.fails_at == Some(number) {
            return Err(CUDA_ERROR_NOT_READY);
        }
        if state != from {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        self.states.borrow_mut().insert(pid, to);
        Ok(())
    }
}

struct View<'a>(&'a World, usize);

impl Job for View<'_> {
    fn processes(&mut self) -> Result<Vec<ProcessIdentity>, SuspendRefusal> {
        self.1 += 1;
        if let Some((at, refusal)) = self.0.refused_at
            && at == self.1
        {
            return Err(refusal);
        }
        let late = self.0.comes_late && self.1 == 1;
        let states = self.0.states.borrow();
        let living = states.keys().map(|pid| who(*pid)).filter(|who| self.lives(*who));
        Ok(living.filter(|who| !(late && who.pid == 2)).collect())
    }

    fn lives(&self, who: ProcessIdentity) -> bool {
        !self.0.dead.borrow().contains(&who.pid)
    }

    fn lingering(&self, suspended: &[Saved]) -> Option<u32> {
        let dead =
            self.0.dead.borrow().iter().copied().find(|pid| suspended.iter().all(|s| s.who.pid != *pid));
        dead.filter(|_| {
            let left = self.0.lingers.get();
            self.0.lingers.set(left.saturating_sub(1));
            left > 0
        })
    }

    fn held(&self, who: ProcessIdentity) -> ByGpu {
        [("GPU-a".to_owned(), u64::from(who.pid) * 10)].into()
    }

    fn room(&self, bytes: &ByGpu) -> Result<(), DaemonError> {
        assert!(!bytes.is_empty());
        let (free, needed) = (radrm_scheduler_core::Bytes(1), radrm_scheduler_core::Bytes(2));
        match self.0.no_room {
            true => Err(DaemonError::NoGpuMemory { gpu: "A".to_owned(), free, needed }),
            false => Ok(()),
        }
    }
}

fn run(world: &World) -> Answer {
    let known = [("GPU-a".to_owned(), 25), ("GPU-b".to_owned(), 4)].into();
    suspend(world, &mut View(world, world.checks), &known, Duration::from_secs(1))
}

fn saved(world: &World) -> Vec<Saved> {
    let pids: Vec<u32> = world.states.borrow().keys().copied().collect();
    pids.into_iter().map(|pid| Saved { who: who(pid), bytes: View(world, 0).held(who(pid)) }).collect()
}

#[test]
fn a_job_is_suspended_as_a_whole_and_comes_back_as_a_whole() {
    let world = World::new();
    let Answer::Suspended { processes, bytes } = run(&world) else { panic!("suspended") };
    assert!(world.all(CHECKPOINTED));
    let order: Vec<Act> = world.acts.borrow().iter().map(|(act, _)| *act).collect();
    assert!(matches!(order[..], [Act::Lock(_), Act::Lock(_), Act::Checkpoint, Act::Checkpoint]), "{order:?}");
    assert_eq!(bytes, [("GPU-a".to_owned(), 30), ("GPU-b".to_owned(), 4)].into());
    assert_eq!(resume(&world, &View(&world, 0), &processes, &bytes), Answer::Resumed);
    assert!(world.all(RUNNING));
    let order: Vec<Act> = world.acts.borrow()[4..].iter().map(|(act, _)| *act).collect();
    assert_eq!(order, [Act::Restore, Act::Restore, Act::Unlock, Act::Unlock]);
}

#[test]
fn whichever_call_fails_a_job_that_is_not_suspended_runs() {
    for at in 0..4 {
        let world = World { fails_at: Some(at), ..World::new() };
        let answer = run(&world);
        let Answer::Refused { refusal: SuspendRefusal::Failed, sentence } = answer else {
            panic!("{at}: {answer:?}")
        };
        assert!(world.all(RUNNING), "{at}: {:?}", world.states);
        assert!(sentence.contains("CUDA_ERROR_NOT_READY"), "{sentence}");
    }
}

#[test]
fn what_a_job_did_until_its_last_process_was_locked_still_counts() {
    let world = World { refused_at: Some((2, SuspendRefusal::ManagedMemory)), ..World::new() };
    assert!(matches!(run(&world), Answer::Refused { refusal: SuspendRefusal::ManagedMemory, .. }));
    assert!(world.all(RUNNING));
    assert!(world.acts.borrow().iter().all(|(act, _)| *act != Act::Checkpoint), "nothing was frozen");
    let world = World { comes_late: true, ..World::new() };
    assert!(matches!(run(&world), Answer::Suspended { processes, .. } if processes.len() == 2));
    assert!(world.all(CHECKPOINTED));
}

#[test]
fn a_process_that_dies_meanwhile_stops_nothing() {
    for at in 0..4 {
        for dies in [1, 2] {
            let world = World { dies_at: Some((at, dies)), ..World::new() };
            let answer = run(&world);
            assert!(
                matches!(&answer, Answer::Suspended { processes, .. } if processes.len() == 1),
                "{answer:?}"
            );
            assert!(world.all(CHECKPOINTED), "{at} {dies}");
        }
    }
    let world = World::new();
    run(&world);
    let both = saved(&world);
    world.dead.borrow_mut().insert(1);
    assert_eq!(resume(&world, &View(&world, 0), &both, &[("GPU-a".into(), 1)].into()), Answer::Resumed);
    assert!(world.all(RUNNING));
}

#[test]
fn a_job_is_suspended_only_when_its_dead_processes_left_the_gpu() {
    let world = World { dies_at: Some((2, 1)), lingers: Cell::new(5), ..World::new() };
    assert!(matches!(run(&world), Answer::Suspended { processes, .. } if processes.len() == 1));
    assert_eq!(world.lingers.get(), 0, "it was waited for");
    let world = World { dies_at: Some((2, 1)), lingers: Cell::new(u32::MAX), ..World::new() };
    let mut view = View(&world, world.checks);
    let answer = suspend(&world, &mut view, &ByGpu::new(), Duration::from_millis(40));
    let Answer::Refused { refusal: SuspendRefusal::Failed, sentence } = answer else { panic!("{answer:?}") };
    assert!(sentence.contains("process 1 "), "{sentence}");
    assert!(world.all(RUNNING), "what lives of it goes on");
}

#[test]
fn without_room_no_restore_is_begun() {
    let world = World { no_room: true, ..World::new() };
    let Answer::Suspended { processes, bytes } = run(&world) else { panic!("suspended") };
    let acts = world.acts.borrow().len();
    let answer = resume(&world, &View(&world, 0), &processes, &bytes);
    assert_eq!(answer, Answer::NoRoom { sentence: "A has 1 B free, and 2 B are needed".to_owned() });
    assert!(world.all(CHECKPOINTED) && world.acts.borrow().len() == acts);
}

#[test]
fn a_restore_that_fails_is_told_and_what_is_half_back_is_brought_back() {
    let mut world = World::new();
    let Answer::Suspended { processes, bytes } = run(&world) else { panic!("suspended") };
    world.fails_at = Some(5);
    let answer = resume(&world, &View(&world, 0), &processes, &bytes);
    assert!(matches!(answer, Answer::Lost { .. }), "{answer:?}");
    // The helper was killed between two restores, or between two unlocks.
    for states in [
        [CU_PROCESS_STATE_LOCKED, CHECKPOINTED],
        [CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_LOCKED],
        [RUNNING, CU_PROCESS_STATE_LOCKED],
        [RUNNING, RUNNING],
    ] {
        let world =
            World { states: RefCell::new([(1, states[0]), (2, states[1])].into()), ..World::default() };
        assert_eq!(resume(&world, &View(&world, 0), &processes, &bytes), Answer::Resumed, "{states:?}");
        assert!(world.all(RUNNING));
    }
}
