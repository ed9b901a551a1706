//! The world around an engine, as a test has it: attempts, and no processes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use radrm_collector::{MemoryCount, MemoryMeter};
use radrm_limits::cgroup_v2::Group;
use radrm_os::ProcessIdentity;
use radrm_protocol::wire::HostLimits;
use radrm_scheduler_core::{HostNeed, Millis};
use radrm_telemetry::Segment;

use crate::attempt::Attempt;
use crate::dry_run::{self, NodeLoad};
use crate::engine::effects::{Attempts, Helpers, Node, Owner};
use crate::error::DaemonError;
use crate::fence::Missing;
use crate::hooks::Call;
use crate::job_output::Disk;
use crate::limited_groups::{Groups, LimitedGroups};
use crate::mps;
use crate::status::{End, Report, Status};
use crate::supervisor::Order;
use crate::suspend;
use crate::time::Now;

/// The daemon is killed here.
pub(super) struct Crash;

/// Behaviour of programs, and the passing of time.
pub(super) trait Programs: 'static {
    fn now(&self) -> Now {
        Now::read()
    }

    /// An attempt is started: its supervisor is there, its program not yet.
    fn start(&mut self, _: Attempt, _: &Order) {}

    /// A program gets a signal. Returns whether it ends at once.
    fn signal(&mut self, attempt: Attempt, number: i32) -> bool;

    /// The segment of an attempt whose program is there, if it can be suspended.
    fn segment(&self, _: Attempt) -> Option<Segment> {
        None
    }

    /// A helper starts to suspend an attempt or to bring it back.
    fn start_helper(&mut self, _: Attempt, _: &suspend::Order) -> Result<(), DaemonError> {
        Err(DaemonError::JobGone)
    }
}

/// Programs that begin when the test says so, and end when it says so or at a signal.
#[derive(Default)]
pub(super) struct Idle;

impl Programs for Idle {
    fn signal(&mut self, _: Attempt, _: i32) -> bool {
        true
    }
}

/// World beside the daemon: it stays when that is killed.
#[derive(Default)]
pub(super) struct World<P = Idle> {
    attempts: BTreeMap<Attempt, Report>,
    /// The disk of the state directory, if it can be asked.
    pub(super) disk: Option<Disk>,
    /// All attempts that were started, in order.
    pub(super) started: Vec<Attempt>,
    /// Supervisors that ended and were not reported yet.
    pub(super) ended: Vec<Attempt>,
    /// Points at which the daemon can be killed that were passed, and the one at which it is.
    pub(super) points: usize,
    pub(super) crash_at: Option<usize>,
    /// Dry runs that were begun, and those that were to end.
    pub(super) dry_runs: Vec<(u64, dry_run::Order)>,
    pub(super) ended_dry_runs: Vec<u64>,
    /// No dry run can be started.
    pub(super) refuses_dry_runs: bool,
    /// Host limits of each attempt's processes.
    pub(super) limited: Vec<(Attempt, HostNeed)>,
    pub(super) cleared: Vec<Attempt>,
    /// Attempts without an end of which what they left was searched for; and whether such a search takes long.
    pub(super) swept: Vec<Attempt>,
    pub(super) sweeps_late: bool,
    /// Further kills: whether the launcher was spared, and whether it was the last try.
    pub(super) killed_again: Vec<(bool, bool)>,
    pub(super) load: NodeLoad,
    /// By how much the wall clock is ahead, ms.
    pub(super) jump_ms: Option<u64>,
    /// No attempt can be started.
    pub(super) refuses_starts: bool,
    /// Time for which effects are carried out at once; `None`: all are.
    pub(super) stint: Option<Duration>,
    /// By how much the wall clock is ahead besides, or behind.
    pub(super) wall_ahead_ms: i64,
    pub(super) programs: P,
}

fn process(attempt: Attempt, of: u32) -> ProcessIdentity {
    ProcessIdentity { pid: 1000 + attempt.0 as u32 * 100 + attempt.1 * 10 + of, start: 1 }
}

impl<P: Programs> World<P> {
    pub(super) fn of(programs: P) -> Self {
        let (attempts, started, ended) = Default::default();
        let (dry_runs, ended_dry_runs, limited, cleared, killed_again) = Default::default();
        let load = NodeLoad { percent: 0, free: u64::MAX };
        Self {
            disk: None,
            attempts,
            started,
            ended,
            points: 0,
            crash_at: None,
            dry_runs,
            ended_dry_runs,
            refuses_dry_runs: false,
            limited,
            cleared,
            swept: Vec::new(),
            sweeps_late: false,
            killed_again,
            load,
            jump_ms: Some(0),
            refuses_starts: false,
            stint: None,
            wall_ahead_ms: 0,
            programs,
        }
    }

    pub(super) fn end(&mut self, attempt: Attempt, end: End) {
        if let Some(report) = self.attempts.get_mut(&attempt).filter(|report| report.kept) {
            report.kept = false;
            report.status.end = Some(end);
            self.ended.push(attempt);
        }
    }

    /// The supervisor of an attempt is killed.
    pub(super) fn lose(&mut self, attempt: Attempt) {
        if let Some(report) = self.attempts.get_mut(&attempt) {
            report.kept = false;
            self.ended.push(attempt);
        }
    }

    fn signal(&mut self, process: ProcessIdentity, number: i32) {
        let mut attempts = self.attempts.iter();
        let of = attempts
            .find(|(_, report)| [report.status.supervisor, report.status.program].contains(&Some(process)));
        if let Some(attempt) = of.map(|(attempt, _)| *attempt)
            && self.programs.signal(attempt, number)
        {
            self.end(attempt, End { signal: Some(number), ..End::default() });
        }
    }

    /// The program of an attempt is there.
    pub(super) fn begin(&mut self, attempt: Attempt, began_ms: u64) {
        if let Some(report) = self.attempts.get_mut(&attempt) {
            (report.status.program, report.status.began_ms) = (Some(process(attempt, 1)), began_ms);
        }
    }

    /// Fences that could not be set for an attempt.
    pub(super) fn lacks(&mut self, attempt: Attempt, missing: Missing) {
        if let Some(report) = self.attempts.get_mut(&attempt) {
            report.status.missing = Some(missing);
        }
    }

    /// Every attempt makes one step: its program is there, then it ends.
    pub(super) fn advance(&mut self, code: impl Fn(u64) -> Option<i32>) {
        let kept: Vec<Attempt> =
            self.attempts.iter().filter(|(_, report)| report.kept).map(|(attempt, _)| *attempt).collect();
        for attempt in kept {
            if self.attempts[&attempt].status.program.is_none() {
                self.begin(attempt, 0);
            } else if let Some(code) = code(attempt.0) {
                self.end(attempt, End { code: Some(code), ..End::default() });
            }
        }
    }
}

#[derive(Default)]
pub(super) struct Recorder<P = Idle>(pub(super) Rc<RefCell<World<P>>>);

impl<P> Clone for Recorder<P> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<P> Recorder<P> {
    /// A point at which the daemon may be killed.
    fn point(&self) {
        let mut world = self.0.borrow_mut();
        world.points += 1;
        if world.crash_at == Some(world.points) {
            drop(world);
            resume_unwind(Box::new(Crash));
        }
    }

    /// An effect, with a point before and after it.
    fn act<T>(&self, act: impl FnOnce(&mut World<P>) -> T) -> T {
        self.point();
        let done = act(&mut self.0.borrow_mut());
        self.point();
        done
    }
}

impl<P: Programs> Attempts for Recorder<P> {
    fn start(
        &mut self,
        attempt: Attempt,
        _: Owner,
        order: &Order,
    ) -> Result<Option<ProcessIdentity>, DaemonError> {
        if self.0.borrow().refuses_starts {
            return Err(DaemonError::JobGone);
        }
        self.act(|world| {
            assert!(!world.started.contains(&attempt), "{attempt:?} is started twice");
            world.started.push(attempt);
            let supervisor = Some(process(attempt, 0));
            world.programs.start(attempt, order);
            let status = Status { supervisor, ..Status::default() };
            world.attempts.insert(attempt, Report { kept: true, status });
            Ok(supervisor)
        })
    }

    fn launcher(&self) -> Result<String, DaemonError> {
        Ok("radrm-run".to_owned())
    }

    fn watch(&mut self, _: Attempt, _: ProcessIdentity) {}

    fn reap(&mut self, _: Attempt) {}

    fn status(&mut self, attempt: Attempt) -> std::io::Result<Option<Report>> {
        Ok(self.0.borrow().attempts.get(&attempt).cloned())
    }

    fn lives(&self, who: ProcessIdentity) -> bool {
        let world = self.0.borrow();
        world.attempts.values().any(|report| {
            report.kept && [report.status.supervisor, report.status.program].contains(&Some(who))
        })
    }

    fn segment(&self, program: ProcessIdentity) -> Option<Segment> {
        let world = self.0.borrow();
        let mut attempts = world.attempts.iter();
        let (attempt, _) = attempts.find(|(_, report)| report.status.program == Some(program))?;
        world.programs.segment(*attempt)
    }

    fn signal_job(
        &mut self,
        _: Attempt,
        _: Option<ProcessIdentity>,
        program: Option<ProcessIdentity>,
        number: i32,
    ) {
        if let Some(program) = program {
            self.act(|world| world.signal(program, number));
        }
    }

    fn kill_below(&mut self, supervisor: ProcessIdentity, _: Option<ProcessIdentity>) {
        self.act(|world| world.signal(supervisor, libc::SIGKILL));
    }

    fn kill_again(&mut self, _: ProcessIdentity, launcher: Option<ProcessIdentity>, last: bool) {
        self.0.borrow_mut().killed_again.push((launcher.is_some(), last));
    }

    fn sweep(&mut self, attempt: Attempt, _: Option<u32>, status: &Status) -> Option<BTreeSet<u32>> {
        let mut world = self.0.borrow_mut();
        if status.end.is_none() {
            world.swept.push(attempt);
        }
        (status.end.is_some() || !world.sweeps_late).then(BTreeSet::new)
    }

    fn clear(&mut self, attempt: Attempt) {
        self.act(|world| {
            world.cleared.push(attempt);
            world.attempts.remove(&attempt)
        });
    }

    fn clear_others(&mut self, _: &BTreeMap<u64, u32>) {}
}

impl<P: Programs> Helpers for Recorder<P> {
    fn start_helper(&mut self, attempt: Attempt, order: suspend::Order) -> Result<(), DaemonError> {
        self.act(|world| world.programs.start_helper(attempt, &order))
    }

    fn start_epilog(&mut self, _: Attempt, _: &Call) -> Result<(), DaemonError> {
        Err(DaemonError::JobGone)
    }

    fn start_dry_run(&mut self, job: u64, order: &dry_run::Order) -> Result<(), DaemonError> {
        if self.0.borrow().refuses_dry_runs {
            return Err(DaemonError::JobGone);
        }
        self.act(|world| world.dry_runs.push((job, order.clone())));
        Ok(())
    }

    fn end_dry_run(&mut self, job: u64) {
        self.act(|world| world.ended_dry_runs.push(job));
    }

    fn sweep_dry_runs(&mut self, _: &dyn Fn(u64) -> Option<u32>) {}

    fn serve_mps(&mut self, _: mps::Client, _: &mps::Order) -> Result<mps::Ready, DaemonError> {
        Err(DaemonError::JobGone)
    }

    fn keep_mps(&mut self, _: &BTreeSet<mps::Client>) {}
}

impl<P: Programs> Node for Recorder<P> {
    fn now(&self) -> Now {
        self.0.borrow().programs.now()
    }

    fn jump_ms(&self) -> Option<u64> {
        self.0.borrow().jump_ms
    }

    fn load(&self) -> NodeLoad {
        self.0.borrow().load
    }

    fn read_processes(&mut self) {}

    fn limit_host(
        &mut self,
        attempt: Attempt,
        need: HostNeed,
        _: bool,
    ) -> Result<Option<Group>, DaemonError> {
        self.0.borrow_mut().limited.push((attempt, need));
        Ok(None)
    }

    fn host_limits(&self) -> HostLimits {
        HostLimits::default()
    }

    fn memory_count(&self, _: Attempt, _: &[u32]) -> Option<MemoryCount> {
        None
    }

    fn memory_meter(&self) -> Option<&MemoryMeter> {
        None
    }

    fn has_groups(&self) -> bool {
        true
    }

    fn disk(&self) -> Option<Disk> {
        self.0.borrow().disk
    }

    fn measure_disk(&self, _: u64, _: u32) {}

    fn stint(&self) -> Duration {
        self.0.borrow().stint.unwrap_or(Duration::MAX)
    }

    fn wall(&self) -> Millis {
        let world = self.0.borrow();
        let ahead = i64::try_from(world.jump_ms.unwrap_or(0)).unwrap_or(i64::MAX);
        Millis(self.now().at.0.saturating_add_signed(ahead.saturating_add(world.wall_ahead_ms)))
    }

    fn look_up_groups(
        &self,
        limited: &Arc<LimitedGroups>,
        accounts: Vec<(u32, String)>,
        _: Duration,
    ) -> Vec<(u32, Groups)> {
        limited.of_all(accounts)
    }

    fn clean(&mut self, _: Vec<u64>, _: u64, _: u64) -> bool {
        false
    }
}
