//! The third phase of a launch: the program runs, and is recorded.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use radrm_collector::dataset;
use radrm_limits::cgroup::Fence;
use radrm_limits::charge::Charge;
use radrm_limits::contexts::Contexts;
use radrm_limits::group_figures::GroupFigures;
use radrm_limits::mps::clients::Check;

use crate::arm::{Armed, JobLedgers, Joined};
use crate::child;
use crate::cli::{ProfileTo, ReportTo, RowTo};
use crate::contexts;
use crate::dry_run::Setup;
use crate::emulated::{Emulated, spec_of};
use crate::error::LaunchError;
use crate::inherited::Inherited;
use crate::prepare::Prepared;
use crate::recording::{Channel, Recording, Start, outer_machine};
use crate::signals::{self, Held};
use crate::supervise::{self, Supervisor};
use crate::tensors::TensorRecording;
use crate::witness::Witness;

/// A program that was started.
pub struct Running<'a> {
    pub(crate) prepared: Prepared<'a>,
    pub(crate) inherited: &'a Inherited,
    pub(crate) supervisor: Supervisor,
    pub(crate) recording: Option<Recording>,
    pub(crate) dry_run: Option<Setup>,
    pub(crate) tensors: Option<TensorRecording>,
    pub(crate) mps: Joined,
    pub(crate) fence: Option<Fence>,
}

/// Processes that have just been started.
pub(crate) struct Started {
    pub(crate) channel: Channel,
    /// See [`Start::pid`].
    pub(crate) pid: libc::pid_t,
    /// Start time, since 1970.
    pub(crate) at: Duration,
    /// See [`Start::attended`].
    pub(crate) attended: bool,
    pub(crate) ledgers: JobLedgers,
    /// The control group that the driver limits, and with it the job.
    pub(crate) group: Option<PathBuf>,
}

/// The command of a batch script with the script named by its content; `None`: it cannot be read.
fn by_content(command: &[OsString]) -> Option<Vec<OsString>> {
    let (script, arguments) = command.split_first()?;
    let word = dataset::script_word(&fs::read(script).ok()?);
    Some([OsString::from(word)].into_iter().chain(arguments.iter().cloned()).collect())
}

impl Prepared<'_> {
    /// Known context overheads. A dry run reckons with those of its cards itself.
    fn known_contexts(&self) -> BTreeMap<String, u64> {
        if self.plan.dry_run.is_some() {
            return BTreeMap::new();
        }
        let outer = outer_machine();
        let measured = Contexts::load(self.emulated.is_some() || outer.is_some());
        let outer = outer.and_then(|file| spec_of(&file));
        contexts::known(&measured, self.emulated.as_ref().map(Emulated::spec).or(outer.as_ref()))
    }

    /// Begins to record; without a recording the processes run unwatched.
    pub(crate) fn recording(&self, started: Started, mps: &Joined) -> Option<Recording> {
        let (plan, remarks) = (self.plan, self.remarks);
        let emulated = self.emulated.as_ref();
        let by_content = plan.batch_script.then(|| by_content(&plan.command)).flatten();
        let start = Start {
            contexts: self.known_contexts(),
            command: by_content.as_deref().unwrap_or(&plan.command),
            program: self.program.as_deref(),
            pid: started.pid,
            attended: started.attended,
            at: started.at,
            emulated: emulated.map(|machine| (machine.label().to_owned(), machine.nvml().to_owned())),
            kept: !matches!(
                (&plan.profile, &plan.row, &plan.report),
                (ProfileTo::Nowhere, RowTo::Nowhere, ReportTo::Nowhere)
            ),
            dry: plan.dry_run.is_some(),
            ledgers: started.ledgers.views.clone(),
            profile_mode: plan.profile_mode.or_else(|| self.node.as_ref()?.scopes.profile_mode),
            notes: self.node.iter().filter_map(|limits| limits.from_variables.taken.clone()).collect(),
        };
        let unseen = self.preload.unseen(&plan.command[0], self.program.as_deref(), &self.environment);
        let mut recording = Recording::begin(started.channel, start, &self.profile, unseen)
            .map_err(|error| remarks.failure(&format!("{error}; nothing is recorded")))
            .ok()?;
        if let Some(control) = mps.control() {
            recording.check_clients(Check::new(control.clone()));
        }
        let measured = started.ledgers.views.iter().filter(|_| started.ledgers.is_measured);
        let measured = measured.map(|(_, view)| *view).collect();
        let charge = Charge::new(measured, self.ledgers.emulated());
        recording.charge(match started.group.filter(|_| started.ledgers.is_measured) {
            Some(group) => {
                // A ledger of the steps is the last one; without, all processes of the group are in the job's.
                let members = started.ledgers.views.len() - 1;
                let members = if self.plan.steps.is_some() { members } else { 0 };
                charge.of_group(GroupFigures::of(self.gpus.source().clone(), group), members)
            }
            None => charge,
        });
        if plan.live {
            recording.show_live();
        }
        Some(recording)
    }
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
        if (plan.dry_run.is_some() || plan.tensors || plan.mark_steps)
            && let Some(signal) = signals::told_to_end()
        {
            return Err(LaunchError::Interrupted(signal));
        }
        let held = Held::all().map_err(LaunchError::Signals)?;
        let environments = match &self.dry_run {
            Some(dry_run) => dry_run.environments(&self.environment),
            None => vec![self.environment.clone()],
        };
        let confinement = self.dry_run.as_ref().and_then(Setup::confinement);
        let child = child::start(&self.prepared.argv, &environments, inherited, confinement)
            .map_err(|reason| LaunchError::not_started(reason, &plan.command[0]))?;
        // At once, so that no signal to the group comes before it, and while this process is small.
        let witness = Witness::new();
        let Self {
            mut prepared,
            channel,
            started,
            ledgers,
            dry_run,
            tensors,
            mps,
            fence,
            steps: _steps,
            environment: _,
        } = self;
        prepared.profile.keep();
        let recording = channel.and_then(|channel| {
            let group = fence.as_ref().map(|fence| fence.group().to_owned());
            let start = Started { channel, pid: child, at: started, attended: false, ledgers, group };
            prepared.recording(start, &mps)
        });
        let mut supervisor = Supervisor::new(child, held, witness);
        if let Some(seconds) = plan.dry_run.as_ref().and_then(|dry_run| dry_run.timeout) {
            supervisor.end_after(Duration::from_secs(seconds));
        }
        Ok(Running { prepared, inherited, supervisor, recording, dry_run, tensors, mps, fence })
    }
}
