//! The second phase of a launch: the segment, the limits in force, MPS and the program's environment.

use std::path::Path;
use std::time::Duration;

use radrm_limits::cgroup::Fence;
use radrm_limits::config::{Mps, Percentage};
use radrm_limits::mps::control::Control;
use radrm_limits::mps::service::{Service, Wanted};
use radrm_limits::mps::warnings::{self, SHARE_VARIABLE};
use radrm_limits::program::environment::Environment;
use radrm_limits::program::sanitizers;
use radrm_limits::share;
use radrm_limits::start::{NOTICES_VARIABLE, QUIET_VARIABLE};
use radrm_limits::steps::StepsScope;
use radrm_os::nvml::Gpu;
use radrm_telemetry::Scope;
use radrm_telemetry::ledger::LedgerView;

use crate::dry_run::Setup;
use crate::dry_run::setup::SetupError;
use crate::error::LaunchError;
use crate::filters;
use crate::preload::inside_limits;
use crate::prepare::Prepared;
use crate::recording::Channel;
use crate::remarks::Remarks;
use crate::tensors::TensorRecording;

/// Number of seccomp filters under which recording call stacks was tried.
const FILTERS_VARIABLE: &str = "RADRM_STACKS_FILTERS";
/// Names the library to which NVTX, in the program, reports ranges and marks.
const NVTX_VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// A launch that only lacks its program.
pub struct Armed<'a> {
    pub(crate) prepared: Prepared<'a>,
    /// Environment of the program.
    pub(crate) environment: Environment,
    /// `None`: the program runs unwatched.
    pub(crate) channel: Option<Channel>,
    /// Start time of the launch, since 1970.
    pub(crate) started: Duration,
    pub(crate) ledgers: JobLedgers,
    /// The place among the steps of a job, held until the processes have ended.
    pub(crate) steps: Option<StepsScope>,
    pub(crate) dry_run: Option<Setup>,
    pub(crate) tensors: Option<TensorRecording>,
    pub(crate) mps: Joined,
    /// Held until the program has ended.
    pub(crate) fence: Option<Fence>,
}

/// The ledgers of the limits that a job is under.
#[derive(Default)]
pub(crate) struct JobLedgers {
    /// With whom they apply to.
    pub(crate) views: Vec<(Scope, LedgerView)>,
    /// True if what the driver takes for processes is measured and charged to them.
    pub(crate) is_measured: bool,
}

impl<'a> Prepared<'a> {
    /// Brings into force what was asked for.
    ///
    /// # Errors
    /// [`LaunchError`]; nothing is left behind.
    pub fn arm(self) -> Result<Armed<'a>, LaunchError> {
        let remarks = self.remarks;
        let mut environment = self.environment.clone();
        let started = radrm_os::time::since_epoch();
        let channel = self.channel(started)?;
        let (ledgers, steps) = self.limit(channel.as_ref(), &mut environment)?;
        self.share(channel.as_ref(), &mut environment)?;
        if let (Some(channel), Some(shim)) = (&channel, self.preload.shim()) {
            environment.preload(shim);
            if let Some(program) = &self.program {
                sanitizers::allow_any_order(program, &mut environment);
            }
            // NVTX of the program then says its ranges to the shim. Another tool's library stays.
            if environment.get(NVTX_VARIABLE).is_none_or(|value| value.is_empty()) {
                environment.set(NVTX_VARIABLE, shim.as_os_str().as_encoded_bytes());
            }
            environment.set("RADRM_SEGMENT", channel.path().as_os_str().as_encoded_bytes());
            match channel.board() {
                Some(board) => environment.set(NOTICES_VARIABLE, board.to_string().as_bytes()),
                None => environment.remove(NOTICES_VARIABLE),
            }
            match remarks.quiet {
                true => environment.set(QUIET_VARIABLE, b"1"),
                false => environment.remove(QUIET_VARIABLE),
            }
            if let Some(kernels) = &self.plan.kernels {
                kernels.enter(&mut environment);
            }
            if let Some(smallest) = self.plan.stacks {
                environment.set("RADRM_STACKS", smallest.max(1).to_string().as_bytes());
                // A dry run's program is under one more, which changes nothing that recording takes.
                let own = u64::from(self.plan.dry_run.is_some());
                match filters::tried() {
                    Some(tried) => environment.set(FILTERS_VARIABLE, (tried + own).to_string().as_bytes()),
                    None => {
                        environment.remove(FILTERS_VARIABLE);
                        remarks.one(
                            "no call stacks are recorded: a seccomp filter of this session forbids process_vm_readv",
                        );
                    }
                }
            }
        }
        if let Some(emulated) = &self.emulated {
            emulated.enter(&mut environment);
        }
        let mut dry_run = match (&self.plan.dry_run, &self.emulated) {
            (Some(wanted), Some(emulated)) => Some(Setup::prepare(wanted, emulated)?),
            _ => None,
        };
        // What is only observed never keeps a program from starting.
        let only_steps = self.plan.mark_steps && !self.plan.tensors && dry_run.is_none();
        let tensors = ((self.plan.tensors || only_steps) && channel.is_some())
            .then(|| match only_steps {
                true => TensorRecording::of_steps(),
                false => TensorRecording::prepare(dry_run.is_none()),
            })
            .and_then(|prepared| prepared.map_err(|error| remarks.failure(&error.to_string())).ok());
        if let Some(tensors) = &tensors {
            tensors.enter(&mut environment);
        }
        if let Some(dry_run) = &mut dry_run {
            dry_run.enter(&mut environment);
            let segment = channel.as_ref().and_then(|channel| channel.path().parent());
            let shared: Vec<&Path> =
                segment.into_iter().chain(tensors.as_ref().map(TensorRecording::folder)).collect();
            dry_run.protect(&shared, &mut environment).map_err(SetupError::from)?;
        }
        let gpus = || self.gpus.inventory();
        let limits = self.limits();
        // The one who attends tasks is not their ancestor.
        let limited = limits.filter(|_| !self.plan.attend);
        let fence =
            limited.and_then(|limits| Fence::raise(self.gpus.source(), &gpus, &|gpu| limits.least(gpu)));
        let service = if self.mps {
            Some(self.join_mps(&mut environment)?)
        } else {
            remarks.all(warnings::about(&environment, limits.is_some(), &gpus));
            None
        };
        let mps = Joined { service, remarks };
        Ok(Armed {
            prepared: self,
            environment,
            channel,
            started,
            ledgers,
            steps,
            dry_run,
            tensors,
            mps,
            fence,
        })
    }

    fn channel(&self, started: Duration) -> Result<Option<Channel>, LaunchError> {
        if inside_limits(&self.environment) {
            // With another segment the outer job's limit would be lost.
            return Ok(None);
        }
        match Channel::open(started) {
            Ok(channel) => Ok(Some(channel)),
            Err(error) if self.limited().is_some() => Err(LaunchError::NoSegment(error)),
            Err(error) => {
                self.remarks.failure(&format!("{error}; the program runs unwatched"));
                Ok(None)
            }
        }
    }

    /// Brings the limits on memory into force; gives their ledgers, and the place among the steps of a job.
    fn limit(
        &self,
        channel: Option<&Channel>,
        environment: &mut Environment,
    ) -> Result<(JobLedgers, Option<StepsScope>), LaunchError> {
        let (Some(channel), Some(limits)) = (channel, self.limits()) else { return Ok(Default::default()) };
        let in_force = limits.bring_into_force(|limits| channel.arm(limits), environment)?;
        let ledgers = JobLedgers { views: in_force.views, is_measured: limits.measures_contexts() };
        Ok((ledgers, in_force.steps))
    }

    fn share(&self, channel: Option<&Channel>, environment: &mut Environment) -> Result<(), LaunchError> {
        if let (Some(channel), Some(percent)) = (channel, self.budget) {
            channel.share(percent, self.machine.as_deref()).map_err(LaunchError::Share)?;
            let limit = if self.plan.sm_limit.is_some() { "--sm-limit" } else { "the share" };
            self.remarks.one(&format!(
                "MPS is not used: {limit} is held by a launch budget, {} % of the time on each GPU",
                percent.0
            ));
        } else if let (Some(Percentage(percent)), false) = (self.sm_limit, self.mps) {
            environment.set(SHARE_VARIABLE, percent.to_string().as_bytes());
        } else if let (Some(Percentage(percent)), false) = (self.plan.measured_share, self.mps)
            && self.sm_limit.is_none()
            && environment.get(SHARE_VARIABLE).is_none()
            && share::by_mps(environment)
        {
            environment.set(SHARE_VARIABLE, percent.to_string().as_bytes());
        }
        Ok(())
    }

    fn join_mps(&self, environment: &mut Environment) -> Result<Service, LaunchError> {
        let (no_mps, limits) = (Mps::default(), self.limits());
        let wanted = Wanted {
            asked: self.plan.mps,
            share: self.sm_limit,
            measured: self.plan.measured_share,
            protocol: self.plan.mps_protocol,
            partition: self.plan.mps_partition,
            config: self.node.as_ref().map_or(&no_mps, |limits| &limits.scopes.mps),
            directory: &self.ledgers.private_directory(rustix::process::getuid().as_raw()),
            of_user: &|gpu| limits.map_or(u64::MAX, |limits| limits.of_user(gpu)),
        };
        let least = |gpu: &Gpu| limits.map_or(u64::MAX, |limits| limits.least(gpu));
        let joined = Service::begin_fenced(&wanted, environment, &|| self.gpus.inventory(), &least);
        let (service, remarks) = joined?;
        self.remarks.all(remarks);
        Ok(service)
    }
}

/// The Multi-Process Service, if this job uses it. It is left again when this goes.
pub(crate) struct Joined {
    service: Option<Service>,
    remarks: Remarks,
}

impl Joined {
    /// Control through which its MPS daemon is asked.
    pub(crate) fn control(&self) -> Option<&Control> {
        self.service.as_ref().map(Service::control)
    }

    /// Takes it out, for another process to leave it.
    pub(crate) fn take(&mut self) -> Option<Service> {
        self.service.take()
    }

    /// Leaves it; `running`: processes of the job still use it. Gives what is to be said of that.
    pub(crate) fn leave(&mut self, running: bool) -> Option<String> {
        self.service.take().and_then(|service| service.end(running))
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let said = self.leave(false);
        self.remarks.all(said);
    }
}
