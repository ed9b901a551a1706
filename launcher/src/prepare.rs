//! The first phase of a launch: what was asked for is found and checked. All that is made for it goes again if the
//! launch ends here or in the next phase.

use std::env;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use radrm_collector::NvmlSource;
use radrm_limits::config::{Mps, Percentage};
use radrm_limits::ledgers::Ledgers;
use radrm_limits::mps::service;
use radrm_limits::program::environment::Environment;
use radrm_limits::program::target;
use radrm_limits::share;
use radrm_limits::start::{Limits, Machine};
use radrm_limits::variables::{self, FromVariables, Stated};

use crate::cli::{Plan, ReportTo};
use crate::emulated::Emulated;
use crate::error::{LaunchError, shown};
use crate::outer;
use crate::place::{self, Place, PlaceError};
use crate::preload::{Preload, inside_limits};
use crate::recording::outer_machine;
use crate::remarks::Remarks;
use crate::signals::Held;

/// A launch whose parts are known and can work together.
pub struct Prepared<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) argv: Vec<CString>,
    /// The file that will be executed, if it is known.
    pub(crate) program: Option<PathBuf>,
    /// As this process found it.
    pub(crate) environment: Environment,
    pub(crate) profile: Place,
    pub(crate) emulated: Option<Emulated>,
    pub(crate) preload: Preload,
    /// The emulated machine's file; `None` is this computer.
    pub(crate) machine: Option<PathBuf>,
    pub(crate) ledgers: Ledgers,
    pub(crate) gpus: Machine,
    /// Limits that hold on this node; `None` inside a job with a limit, which has its own.
    pub(crate) node: Option<Limits>,
    /// True if MPS is to be used.
    pub(crate) mps: bool,
    /// The share of the GPUs that the job may use: of the command line, or of the environment.
    pub(crate) sm_limit: Option<Percentage>,
    /// A share of the GPUs' time that MPS does not keep.
    pub(crate) budget: Option<Percentage>,
    pub(crate) remarks: Remarks,
}

impl<'a> Prepared<'a> {
    /// Finds and checks everything. What was asked for by name must hold before the program starts; what is only
    /// observed never keeps it from starting.
    ///
    /// # Errors
    /// [`LaunchError`]; nothing is left behind.
    pub fn new(plan: &'a Plan) -> Result<Self, LaunchError> {
        let argv = plan.command.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>();
        let argv = argv.map_err(|_| LaunchError::ZeroByte)?;
        let mut environment = Environment::inherited();
        let outer_ended = outer::leave_if_ended(&mut environment);
        let rejoined = outer::rejoin(&mut environment);
        // A file of that name here is another one than in a container.
        let program = (!plan.in_container)
            .then(|| target::find(&plan.command[0], env::var_os("PATH").as_deref()))
            .flatten();
        let remarks = Remarks { quiet: plan.quiet };
        let profile = match place::prepare(&plan.profile) {
            // The disk is the supervisor's, and the user wants the program to run.
            Err(error @ PlaceError::Unwritable { .. }) if plan.supervised => {
                remarks.failure(&format!("{error}; the job goes on without one"));
                Place::Nowhere
            }
            other => other?,
        };
        if let ReportTo::JsonFile(file) = &plan.report {
            profile.with_report(file)?;
        }
        if plan.dry_run.is_some() || plan.tensors || plan.mark_steps {
            // What is laid out for the program goes again also if a signal comes before there is a program.
            Held::all().map_err(LaunchError::Signals)?;
        }
        let emulated = plan.emulate.as_ref().map(Emulated::prepare).transpose()?;
        let nvml = emulated.as_ref().map_or(NvmlSource::System, |machine| {
            machine.enter_self();
            NvmlSource::Library(machine.nvml().to_owned())
        });
        let preload = Preload::choose(program.as_deref());
        if let Some(shim) = preload.shim().filter(|_| rejoined) {
            // It is lost where the whole environment was.
            environment.preload(shim);
        }
        if emulated.is_some()
            && let Some(reason) = preload.hinders_emulation()
        {
            let (program, reason) = (shown(&plan.command[0]), reason.to_owned());
            return Err(LaunchError::NotEmulable { program, reason });
        }
        let machine = emulated.as_ref().map(|machine| machine.machine_file().to_owned());
        let machine = machine.or_else(outer_machine);
        let ledgers = Ledgers::of(machine.as_deref());
        let gpus = Machine::new(nvml.clone());
        let node = if !inside_limits(&environment) {
            let limits = Limits::of_job(plan.mem_limit.as_ref(), ledgers.clone(), nvml)?;
            let share = plan.sm_limit.is_some() || matches!(plan.mps, Some(Some(_)));
            // The limits of a step are its administrator's as often as its user's: a variable may tighten them.
            let stated = Stated { memory: plan.mem_limit.is_some() && plan.steps.is_none(), share };
            let limits = limits.with_variables(&environment, stated)?;
            let limits = match &plan.only_gpus {
                Some(own) => limits.only_on(own)?,
                None => limits,
            };
            Some(match &plan.steps {
                Some(request) => limits.among_steps(request)?,
                None => limits,
            })
        } else if plan.mem_limit.is_some() || plan.sm_limit.is_some() {
            return Err(LaunchError::NestedLimit);
        } else {
            None
        };
        let no_mps = Mps::default();
        let mps = service::wanted(plan.mps, node.as_ref().map_or(&no_mps, |limits| &limits.scopes.mps));
        let sm_limit = plan.sm_limit.or_else(|| {
            let limits = node.as_ref()?;
            let configured = limits.scopes.mps.active_thread_percentage.filter(|_| mps);
            let share = limits.from_variables.share?;
            Some(configured.map_or(share, |configured| share.min(configured)))
        });
        // MPS takes the share where the program will use it; elsewhere its launches are held back.
        let budget = sm_limit.filter(|_| !mps && !share::by_mps(&environment));
        let prepared = Self {
            plan,
            argv,
            program,
            environment,
            profile,
            emulated,
            preload,
            machine,
            ledgers,
            gpus,
            node,
            mps,
            sm_limit,
            budget,
            remarks,
        };
        if let Some(what) = prepared.limited() {
            let reaches_all =
                !prepared.limits().is_some_and(Limits::is_fence_only) || prepared.budget.is_some();
            prepared.preload.keeps(what, reaches_all, &plan.command[0], &prepared.environment)?;
        }
        if outer_ended {
            remarks.one("the job that this session was part of has ended: this is a job of its own");
        }
        if rejoined {
            remarks.one("this session is part of a job with a limit, which RADRM_SEGMENT no longer named: it holds here too");
        }
        if let Some(limits) = &prepared.node {
            let FromVariables { taken, ignored, .. } = limits.from_variables.clone();
            remarks.all(taken.into_iter().chain(ignored));
        }
        if inside_limits(&prepared.environment) {
            remarks.all(variables::inside_another_job(&prepared.environment));
        }
        remarks.all(prepared.preload.remarks(&plan.command[0], &prepared.environment));
        remarks.all(prepared.limits().iter().flat_map(|limits| limits.remarks()));
        Ok(prepared)
    }

    /// The limits on memory, if there are any.
    pub(crate) fn limits(&self) -> Option<&Limits> {
        self.node.as_ref().filter(|limits| limits.any())
    }

    /// Limit that the shim has to keep, in words.
    pub(crate) fn limited(&self) -> Option<&'static str> {
        match (self.limits(), self.budget) {
            (Some(limits), None) if limits.is_fence_only() => Some("the fence around its GPUs"),
            (Some(_), _) => Some("a limit on GPU memory"),
            (None, Some(_)) => Some("a share of the GPUs"),
            (None, None) => None,
        }
    }
}
