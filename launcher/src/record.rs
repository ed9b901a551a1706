//! The last phase of a launch: the program has ended, and what it did is written down.

use std::mem::forget;

use radrm_limits::amount;
use radrm_limits::carriers::Carriers;
use radrm_limits::cgroup::Fence;

use crate::arm::Joined;
use crate::cli::{Plan, ReportTo, RowTo};
use crate::dry_run::Setup;
use crate::ending::Ending;
use crate::inherited::Inherited;
use crate::prepare::Prepared;
use crate::recorder::{self, Side};
use crate::recording::Recording;
use crate::remarks::Remarks;
use crate::spawn::Running;
use crate::supervise::{Ended, Supervisor};
use crate::tensors::TensorRecording;

/// A program that has ended.
pub struct Finished<'a> {
    prepared: Prepared<'a>,
    inherited: &'a Inherited,
    supervisor: Supervisor,
    recording: Option<Recording>,
    dry_run: Option<Setup>,
    tensors: Option<TensorRecording>,
    mps: Joined,
    // Falls when all is written.
    fence: Option<Fence>,
    ended: Ended,
}

impl<'a> Running<'a> {
    /// Waits until the program has ended, and with `--wait-all` all that it started.
    #[must_use]
    pub fn wait(self) -> Finished<'a> {
        let Self { prepared, inherited, mut supervisor, mut recording, dry_run, tensors, mps, fence } = self;
        let ended = supervisor.wait(&mut recording);
        if let Some(recording) = &mut recording {
            recording.program_ended();
        }
        if prepared.plan.wait_all && !supervisor.wait_for_all(ended.ending, &mut recording) {
            prepared.remarks.one("not waiting any longer for what the program left running");
        }
        supervisor.drain();
        Finished { prepared, inherited, supervisor, recording, dry_run, tensors, mps, fence, ended }
    }
}

impl Finished<'_> {
    /// Writes profile, dataset row and report. Gives how the program ended. Where processes of the job live on, a recorder
    /// stays with them.
    #[must_use]
    pub fn record(mut self) -> Ending {
        let (plan, remarks) = (self.prepared.plan, self.prepared.remarks);
        let stopped_by = self.supervisor.stopped_by();
        let outcome = self.dry_run.as_mut().map(|dry_run| dry_run.collect(stopped_by));
        let Some(mut recording) = self.recording.take() else {
            remarks.all(self.mps.leave(false));
            let is_used =
                self.prepared.emulated.as_ref().is_some_and(|emulated| emulated.is_used(self.folder_owner()));
            leave(self.dry_run.take(), is_used);
            self.leave_machine();
            return self.ended.ending;
        };
        recording.used(&self.ended);
        let carriers = recorder::left(&recording);
        let mut successor = None;
        if !carriers.is_empty() && self.prepared.outlives(&recording) {
            recording.pause(self.ended.ending);
            match recorder::fork() {
                Ok(Side::Recorder) => self.go_on(recording, carriers),
                Ok(Side::Launcher(recorder)) => successor = Some(recorder),
                Err(error) => {
                    recording.resume();
                    remarks.failure(&format!("no recorder stays with what still runs: {error}"));
                }
            }
        }
        match successor {
            Some(_) => self.hand_over(&mut recording),
            None => {
                recording.decide(!carriers.is_empty() && self.prepared.limited().is_some());
                leave(self.dry_run.take(), !carriers.is_empty());
            }
        }
        let left =
            (!carriers.is_empty()).then(|| self.prepared.left(&carriers, &recording, successor.is_some()));
        recording.dry_run(outcome);
        recording.tensors(self.tensors.take());
        let mut left_mps = None;
        let goes_on = successor.is_some() && !self.prepared.is_final();
        let channel = recording.finish(plan, self.ended.ending, remarks, goes_on, &mut |_| {
            left_mps = self.mps.leave(!carriers.is_empty());
            if carriers.is_empty() {
                drop(self.prepared.emulated.take());
            }
            // From here on only the report is written: a second Ctrl-C may cut that short.
            self.supervisor.drain();
            self.inherited.unblock();
        });
        drop(channel);
        remarks.all(left_mps);
        remarks.all(left);
        self.leave_machine();
        self.ended.ending
    }

    /// Leaves all that lives as long as the processes of the job to the recorder.
    fn hand_over(&mut self, recording: &mut Recording) {
        recording.hand_over(!self.prepared.is_final());
        if !self.prepared.is_final() {
            // The recorder reads what the last process leaves.
            forget(self.tensors.take());
        }
        forget(self.dry_run.take());
        forget(self.mps.take());
        forget(self.fence.take());
        forget(self.prepared.emulated.take());
    }

    /// The process from which those descend that use the emulated machine's folder; 0 where that is not known, as in a
    /// container, whose processes are no children of this one.
    fn folder_owner(&self) -> u32 {
        if self.prepared.plan.in_container { 0 } else { std::process::id() }
    }

    /// Takes the emulated machine's folder away, unless processes use it.
    fn leave_machine(&mut self) {
        let Some(emulated) = self.prepared.emulated.take() else { return };
        if emulated.is_used(self.folder_owner()) {
            let kept = emulated.keep();
            let sentence = format!("processes still use the emulated machine: {} stays", kept.display());
            self.prepared.remarks.one(&sentence);
        }
    }

    /// The recorder's life: until no process of the job is left. Then all is completed and taken away.
    fn go_on(self, mut recording: Recording, carriers: Carriers) -> ! {
        let Self { prepared, dry_run, tensors, mut mps, fence, ended, .. } = self;
        let is_final = prepared.is_final();
        if is_final {
            // The launcher completes it; this process only takes away what is left.
            recording.detach();
        } else {
            recording.resume();
        }
        let left = recorder::wait(&mut recording, is_final, carriers);
        recording.decide(!left.is_empty());
        let plan = Plan { report: ReportTo::Nowhere, ..prepared.plan.clone() };
        if !is_final {
            recording.tensors(tensors);
            drop(recording.finish(&plan, ended.ending, Remarks { quiet: true }, false, &mut |_| ()));
        } else {
            drop(recording);
        }
        let _ = mps.leave(!left.is_empty());
        leave(dry_run, !left.is_empty());
        match prepared.emulated {
            Some(emulated) if !left.is_empty() => drop(emulated.keep()),
            other => drop(other),
        }
        drop(fence);
        recorder::exit()
    }
}

/// Takes away what a dry run laid out, unless processes use it.
fn leave(dry_run: Option<Setup>, is_used: bool) {
    if let Some(dry_run) = dry_run.filter(|_| is_used) {
        dry_run.leave();
    }
}

impl Prepared<'_> {
    /// Returns true if anything goes on when the program has ended and processes of the job live.
    fn outlives(&self, recording: &Recording) -> bool {
        let is_recorded = recording.has_profile() || self.plan.row != RowTo::Nowhere;
        !self.plan.supervised && (self.limited().is_some() || self.emulated.is_some() || is_recorded)
    }

    /// Returns true if the figures are those of the program's end, whatever follows.
    fn is_final(&self) -> bool {
        self.plan.dry_run.is_some()
    }

    /// States as one sentence what becomes of the processes that live on.
    fn left(&self, carriers: &Carriers, recording: &Recording, has_recorder: bool) -> String {
        let (processes, is_one) = (living(carriers), carriers.count() == 1);
        let they = if is_one { "it ends" } else { "they end" };
        let mut clauses = Vec::new();
        if self.limited().is_some() && !recording.can_outlive() {
            clauses.push(
                "those that have not used a GPU yet get no GPU memory, since no directory in memory can be written \
                 (set XDG_RUNTIME_DIR)"
                    .to_owned(),
            );
        }
        clauses.extend(self.in_force());
        let is_recorded = recording.has_profile() || self.plan.row != RowTo::Nowhere;
        if has_recorder && is_recorded && !self.is_final() {
            clauses.push("the recording goes on".to_owned());
        }
        let mut also = Vec::new();
        if !matches!(self.plan.report, ReportTo::Nowhere) {
            also.push("the report ends with the program");
        }
        if !self.plan.supervised {
            also.push(if is_one { "--wait-all waits for it" } else { "--wait-all waits for them" });
        }
        let also = also.iter().map(|clause| format!("; {clause}")).collect::<String>();
        match clauses.pop() {
            None => format!("{processes}{also}"),
            Some(last) if clauses.is_empty() => format!("{processes}: {last} until {they}{also}"),
            Some(last) => format!("{processes}: {} and {last} until {they}{also}", clauses.join(", ")),
        }
    }

    /// The limits that stay in force, as clauses.
    fn in_force(&self) -> Vec<String> {
        let mut clauses = Vec::new();
        if let Some(limits) = self.limits() {
            let own = limits.scopes.job.iter().flatten().map(|limit| amount::shown(limit.amount));
            let own: Vec<String> = own.collect();
            clauses.push(match own.is_empty() {
                true => "the limits of the user stay in force".to_owned(),
                false => format!("the limit of {} stays in force", own.join(", ")),
            });
        }
        clauses.extend(self.budget.map(|share| format!("the share of {} % stays in force", share.0)));
        clauses
    }
}

/// Names those that live on by their number.
fn living(carriers: &Carriers) -> String {
    let certain = match carriers.certain() {
        0 => None,
        1 => Some("1 process of the job still runs".to_owned()),
        count => Some(format!("{count} processes of the job still run")),
    };
    let possible = match (carriers.possible, certain.is_some()) {
        (0, _) => None,
        (1, true) => Some("1 more may be of it".to_owned()),
        (count, true) => Some(format!("{count} more may be of it")),
        (1, false) => Some("1 process that still runs may be of the job".to_owned()),
        (count, false) => Some(format!("{count} processes that still run may be of the job")),
    };
    [certain, possible].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_unclear_origin_are_not_called_those_of_the_job() {
        let of = |certain, possible| {
            living(&Carriers { elsewhere: certain + possible, possible, ..Carriers::default() })
        };
        assert_eq!(of(1, 0), "1 process of the job still runs");
        assert_eq!(of(2, 1), "2 processes of the job still run, 1 more may be of it");
        assert_eq!(of(0, 1), "1 process that still runs may be of the job");
        assert_eq!(of(0, 3), "3 processes that still run may be of the job");
    }
}
