//! The last phase of a launch: the program has ended, and what it did is written down.

use radrm_limits::cgroup::Fence;

use crate::arm::Joined;
use crate::dry_run::Setup;
use crate::ending::Ending;
use crate::inherited::Inherited;
use crate::prepare::Prepared;
use crate::recording::Recording;
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
    _fence: Option<Fence>,
    ended: Ended,
}

impl<'a> Running<'a> {
    /// Waits until the program has ended, and with `--wait-all` all that it started.
    #[must_use]
    pub fn wait(self) -> Finished<'a> {
        let Self { prepared, inherited, mut supervisor, mut recording, dry_run, tensors, mps, fence } = self;
        let ended = supervisor.wait(&mut recording);
        if prepared.plan.wait_all && !supervisor.wait_for_all(&mut recording) {
            prepared.remarks.one("not waiting any longer for what the program left running");
        }
        supervisor.drain();
        Finished { prepared, inherited, supervisor, recording, dry_run, tensors, mps, _fence: fence, ended }
    }
}

impl Finished<'_> {
    /// Writes profile, dataset row and report. Gives how the program ended.
    #[must_use]
    pub fn record(mut self) -> Ending {
        let (plan, remarks) = (self.prepared.plan, self.prepared.remarks);
        let outcome = self.dry_run.take().map(Setup::collect);
        let mut kept = None;
        let mut left_mps = None;
        if let Some(mut recording) = self.recording.take() {
            recording.dry_run(outcome);
            recording.tensors(self.tensors.take());
            recording.used(&self.ended);
            recording.finish(plan, self.ended.ending, remarks, &mut |alive, _| {
                left_mps = self.mps.leave(alive > 0);
                match self.prepared.emulated.take() {
                    Some(emulated) if alive > 0 => kept = Some(emulated.keep()),
                    other => drop(other),
                }
                // From here on only the report is written: a second Ctrl-C may cut that short.
                self.supervisor.drain();
                self.inherited.unblock();
            });
        }
        remarks.all(left_mps.or_else(|| self.mps.leave(false)));
        if let Some(kept) = kept {
            remarks.one(&format!("processes still use the emulated machine: {} stays", kept.display()));
        }
        self.ended.ending
    }
}
