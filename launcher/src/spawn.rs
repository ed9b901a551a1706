//! The third phase of a launch: the program runs, and is recorded.

use radrm_limits::cgroup::Fence;
use radrm_limits::charge::Charge;
use radrm_limits::mps::clients::Check;

use crate::arm::{Armed, Joined};
use crate::child;
use crate::dry_run::Setup;
use crate::error::LaunchError;
use crate::inherited::Inherited;
use crate::prepare::Prepared;
use crate::recording::{Recording, Start};
use crate::signals::{self, Held};
use crate::supervise::{self, Supervisor};
use crate::witness::Witness;

/// A program that was started.
pub struct Running<'a> {
    pub(crate) prepared: Prepared<'a>,
    pub(crate) inherited: &'a Inherited,
    pub(crate) supervisor: Supervisor,
    pub(crate) recording: Option<Recording>,
    pub(crate) dry_run: Option<Setup>,
    pub(crate) mps: Joined,
    pub(crate) fence: Option<Fence>,
}

impl<'a> Armed<'a> {
    /// Starts the program. From then on what was made for it stays.
    ///
    /// # Errors
    /// [`LaunchError`]; there is no process, and nothing is left behind.
    pub fn spawn(self, inherited: &'a Inherited) -> Result<Running<'a>, LaunchError> {
        let plan = self.prepared.plan;
        if plan.wait_all {
            supervise::adopt_orphans();
        }
        if plan.dry_run.is_some()
            && let Some(signal) = signals::told_to_end()
        {
            return Err(LaunchError::Interrupted(signal));
        }
        let held = Held::all().map_err(LaunchError::Signals)?;
        let child = child::start(&self.prepared.argv, &self.environment, inherited)
            .map_err(|reason| LaunchError::not_started(reason, &plan.command[0]))?;
        // At once, so that no signal to the group comes before it, and while this process is small.
        let witness = Witness::new();
        let Self { mut prepared, channel, started, measured, dry_run, mps, fence, environment: _ } = self;
        prepared.profile.keep();
        let (remarks, word) = (prepared.remarks, &plan.command[0]);
        let mut recording = channel.and_then(|channel| {
            let emulated = prepared.emulated.as_ref();
            let start = Start {
                command: &plan.command,
                program: prepared.program.as_deref(),
                pid: child,
                at: started,
                emulated: emulated.map(|machine| (machine.label().to_owned(), machine.nvml().to_owned())),
                dry: plan.dry_run.is_some(),
                profile_mode: plan.profile_mode.or_else(|| prepared.node.as_ref()?.scopes.profile_mode),
            };
            let unseen = prepared.preload.unseen(word, prepared.program.as_deref(), &prepared.environment);
            Recording::begin(channel, start, &prepared.profile, unseen)
                .map_err(|error| remarks.failure(&format!("{error}; nothing is recorded")))
                .ok()
        });
        if let Some(recording) = &mut recording {
            if let Some(control) = mps.control() {
                recording.check_clients(Check::new(control.clone()));
            }
            recording.charge(Charge::new(measured, prepared.ledgers.emulated()));
            if prepared.plan.live {
                recording.show_live();
            }
        }
        let supervisor = Supervisor::new(child, held, witness);
        Ok(Running { prepared, inherited, supervisor, recording, dry_run, mps, fence })
    }
}
