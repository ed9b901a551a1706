//! Bringing limits into force before the program starts.

use std::cell::OnceCell;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use radrm_os::nvml::{Gpu, Inventory, Nvml, NvmlSource};
use radrm_telemetry::ledger::{
    Access, LedgerError, LedgerView, Limit, Place, ScopeDirectory, ScopeReport, SharedPeek, state,
};
use radrm_telemetry::{JoinError, Scope};

use super::config::Context;
use super::contexts;
use super::ledgers::Ledgers;
use super::overrides;
use super::requested::RequestedLimits;
use super::resolve::{amount_for, fenced, resolve, stricter};
use super::scopes::{self, Person, Scopes};
use super::steps::{StepsRequest, StepsScope};
use super::variables::{self, FromVariables, Stated};
use super::{amount, files};
use crate::LimitError;
use crate::program::environment::Environment;

/// Says to the shim that a limit is in force: a process that cannot keep to it gets no memory.
pub const QUOTA_VARIABLE: &str = "RADRM_QUOTA";
/// Names the ledgers of the user and of groups, with colons between them.
pub const LEDGERS_VARIABLE: &str = "RADRM_LEDGERS";

/// States the limits for processes that cannot reach the ledger (`radrm_telemetry::ledger::state`).
pub const LIMITS_VARIABLE: &str = "RADRM_LIMITS";
/// Number of the board on which processes report that cannot reach the segment.
pub const NOTICES_VARIABLE: &str = "RADRM_NOTICES";
/// Keeps the shim from printing why a process gets no memory.
pub const QUIET_VARIABLE: &str = "RADRM_QUIET";

/// The limits of a job that is about to start.
#[derive(Debug)]
pub struct Limits {
    /// Limits that hold.
    pub scopes: Scopes,
    person: Person,
    machine: Machine,
    ledgers: Ledgers,
    /// The job whose steps share [`Scopes::steps`].
    steps_of: Option<String>,
    /// Limits that the environment adds.
    pub from_variables: FromVariables,
    /// The job has no limit but [`Limits::only_on`].
    is_fence_only: bool,
    /// It has nothing on some GPUs because they are others'.
    is_fenced: bool,
}

/// Limits that hold. The ledgers live in files; with this goes what has to be given up at the end.
#[derive(Debug)]
pub struct InForce {
    /// The ledgers with whom their limits apply to, the job's first.
    pub views: Vec<(Scope, LedgerView)>,
    /// The place among the steps of the job.
    pub steps: Option<StepsScope>,
}

/// A scope that a job counts in together with other jobs.
struct Shared<'l> {
    access: Access,
    name: String,
    limits: &'l [Limit],
    is_administered: bool,
}

/// The machine's GPUs, asked for at most once.
#[derive(Debug)]
pub struct Machine {
    source: NvmlSource,
    known: OnceCell<Result<Inventory, LimitError>>,
}

impl Machine {
    /// The machine of this NVML.
    #[must_use]
    pub fn new(source: NvmlSource) -> Self {
        Self { source, known: OnceCell::new() }
    }

    /// Its NVML.
    #[must_use]
    pub fn source(&self) -> &NvmlSource {
        &self.source
    }

    /// Its GPUs.
    ///
    /// # Errors
    /// NVML does not work.
    pub fn inventory(&self) -> Result<Inventory, LimitError> {
        let find = || Nvml::open(&self.source).and_then(|nvml| nvml.inventory());
        self.known.get_or_init(|| find().map_err(|error| LimitError::Nvml(error.to_string()))).clone()
    }
}

impl Limits {
    /// Finds out what holds for a job of this user.
    ///
    /// # Errors
    /// One sentence: a file is wrong, or a GPU cannot be found.
    pub fn of_job(
        asked: Option<&RequestedLimits>,
        ledgers: Ledgers,
        source: NvmlSource,
    ) -> Result<Self, LimitError> {
        let machine = Machine::new(source);
        let files = files::all()?;
        let person = if files.is_empty() { Person::own_ids() } else { Person::own() };
        let mut scopes = scopes::gather(asked, &files, &person, &|| machine.inventory())?;
        overrides::apply(&ledgers, &mut scopes, &person, &|| machine.inventory())?;
        let from_variables = FromVariables::default();
        let (is_fence_only, is_fenced) = (false, false);
        Ok(Self {
            scopes,
            person,
            machine,
            ledgers,
            steps_of: None,
            from_variables,
            is_fence_only,
            is_fenced,
        })
    }

    /// Tightens the job's limits by those that other tools state in its environment, where the configuration permits it.
    ///
    /// # Errors
    /// As [`variables::tighten`].
    pub fn with_variables(mut self, environment: &Environment, stated: Stated) -> Result<Self, LimitError> {
        let gpus = || self.machine.inventory();
        self.from_variables = variables::tighten(environment, stated, &mut self.scopes, &gpus)?;
        Ok(self)
    }

    /// Leaves the job its own GPUs only ([`RequestedLimits::only_on`]), with the limits that it has there.
    ///
    /// # Errors
    /// A GPU cannot be found.
    pub fn only_on(mut self, own: &RequestedLimits) -> Result<Self, LimitError> {
        let gpus = || self.machine.inventory();
        // Whole identifiers need no NVML, which may not be found in a job's environment.
        let fence = own.without_lookup().map_or_else(|| resolve(own, &gpus), Ok)?;
        self.is_fence_only = !self.scopes.any();
        self.is_fenced = true;
        let before = self.scopes.job.take().unwrap_or_default();
        self.scopes.job = Some(fenced(&before, &fence, &gpus)?);
        Ok(self)
    }

    /// Returns true if a program without the shim may run: no amount has to be counted.
    #[must_use]
    pub fn is_fence_only(&self) -> bool {
        self.is_fence_only
    }

    /// Adds what a step of a job may take, and all its steps together.
    ///
    /// # Errors
    /// A GPU cannot be found, or two limits cannot be compared.
    pub fn among_steps(mut self, request: &StepsRequest) -> Result<Self, LimitError> {
        let gpus = || self.machine.inventory();
        let strictest = |mut limits: Vec<Limit>, further: &[RequestedLimits]| {
            for requested in further {
                limits = stricter(&limits, &resolve(requested, &gpus)?, &gpus)?;
            }
            Ok::<_, LimitError>(limits)
        };
        let together = strictest(Vec::new(), &request.together)?;
        let own = strictest(self.scopes.job.clone().unwrap_or_default(), &request.own)?;
        self.scopes.steps = together;
        self.scopes.job = self.scopes.job.is_some().then(|| own.clone()).or((!own.is_empty()).then_some(own));
        self.steps_of = Some(request.job.clone());
        Ok(self)
    }

    /// Returns true if anything is limited.
    #[must_use]
    pub fn any(&self) -> bool {
        self.scopes.any()
    }

    /// Memory that all jobs of the user may take together on a GPU, bytes.
    #[must_use]
    pub fn of_user(&self, gpu: &Gpu) -> u64 {
        amount_for(&self.scopes.user, &gpu.bytes).map_or(u64::MAX, |amount| amount.bytes(gpu.total))
    }

    /// The least that any of the limits allows on a GPU, bytes.
    #[must_use]
    pub fn least(&self, gpu: &Gpu) -> u64 {
        let job = self.scopes.job.as_deref().unwrap_or_default();
        let groups = self.scopes.groups.iter().map(|group| &*group.limits);
        [job, &self.scopes.user, &self.scopes.steps]
            .into_iter()
            .chain(groups)
            .filter_map(|limits| amount_for(limits, &gpu.bytes))
            .map(|amount| amount.bytes(gpu.total))
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Arms the job's segment, which `arm` does, joins the ledgers of the user, of groups and of the job's steps, and
    /// names them to the program.
    ///
    /// # Errors
    /// One sentence: a ledger cannot be used.
    pub fn bring_into_force(
        &self,
        arm: impl FnOnce(&[Limit]) -> Result<LedgerView, LedgerError>,
        environment: &mut Environment,
    ) -> Result<InForce, LimitError> {
        // The segment is armed whatever the scope: it is where a job's share is kept and shown.
        let job = arm(self.scopes.job.as_deref().unwrap_or_default())
            .map_err(|error| LimitError::NoLedger(error.to_string()))?;
        let mut views = vec![(Scope::Job, job)];
        let mut paths: Vec<PathBuf> = Vec::new();
        for shared in self.shared() {
            let (view, path) = self.join(&shared)?;
            let scope = match shared.access {
                Access::User(_) => Scope::User,
                Access::Group(_) => Scope::Group,
            };
            views.push((scope, view));
            paths.push(path);
        }
        let steps = match &self.steps_of {
            Some(job) if !self.scopes.steps.is_empty() => {
                let steps = StepsScope::enter(&self.ledgers, job, &self.scopes.steps)?;
                // As a process counts it that was refused by it.
                let view = steps.view().map_err(|error| LimitError::NoLedger(error.to_string()))?;
                views.push((Scope::User, view));
                paths.push(steps.member());
                Some(steps)
            }
            _ => None,
        };
        for (_, view) in &views {
            self.estimate_context(view);
        }
        environment.set(QUOTA_VARIABLE, b"1");
        let job = self.scopes.job.as_deref().unwrap_or_default();
        let groups = self.scopes.groups.iter().map(|group| &*group.limits);
        let scopes = [job, &self.scopes.user, &self.scopes.steps].into_iter().chain(groups);
        environment.set(LIMITS_VARIABLE, state(scopes).as_bytes());
        if paths.is_empty() {
            environment.remove(LEDGERS_VARIABLE);
        } else {
            let list: Vec<OsString> = paths.into_iter().map(PathBuf::into_os_string).collect();
            environment.set(LEDGERS_VARIABLE, &list.join(":".as_ref()).into_vec());
        }
        Ok(InForce { views, steps })
    }

    /// The scopes beyond the job's own.
    fn shared(&self) -> Vec<Shared<'_>> {
        let mut shared = Vec::new();
        if !self.scopes.user.is_empty() {
            shared.push(Shared {
                access: Access::User(self.person.uid),
                name: self.person.name(),
                limits: &self.scopes.user,
                is_administered: self.scopes.is_user_administered,
            });
        }
        shared.extend(self.scopes.groups.iter().map(|group| Shared {
            access: Access::Group(group.gid),
            name: group.name.clone(),
            limits: &group.limits,
            is_administered: true,
        }));
        shared
    }

    /// The user's ledger in a scope, with the limits that this job was started under.
    fn join(&self, shared: &Shared<'_>) -> Result<(LedgerView, PathBuf), LimitError> {
        let uid = self.person.uid;
        let failed = |error: &dyn std::fmt::Display| {
            let kind = if matches!(shared.access, Access::User(_)) { "user" } else { "group" };
            LimitError::NotJoined {
                whose: format!("{kind} {}", shared.name),
                why: error.to_string(),
                administrator: if self.ledgers.emulated() {
                    "the owner of the emulated machine"
                } else {
                    "root"
                },
                command: self.ledgers.setup_command(&format!("user:{}", self.person.name())),
            }
        };
        let scope = self.scope(shared).map_err(|error| failed(&error))?;
        let path = scope.member(uid);
        let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(&error))?;
        let view = LedgerView::open(&path, Place::File).map_err(|error| failed(&error))?;
        // As a process of the job will do it: a ledger that it cannot join gives it no memory.
        match SharedPeek::open(&c_path) {
            Ok(_) => {}
            Err(JoinError::Map(errno)) => {
                return Err(failed(&format_args!(
                    "process_vm_readv(2) is not permitted here (errno {errno})"
                )));
            }
            Err(_) => {
                let why = "is not listed, or its owner has changed its permissions";
                return Err(failed(&format_args!("{} {why}", path.display())));
            }
        }
        view.set_limits(shared.limits);
        Ok((view, path))
    }

    /// A scope with a ledger of this user, made here by those who may.
    fn scope(&self, shared: &Shared<'_>) -> Result<ScopeDirectory, LedgerError> {
        let uid = self.person.uid;
        let scope = self.ledgers.open(shared.access);
        if self.ledgers.is_administered_here() {
            let is_new = scope.is_err();
            let scope = match scope {
                Err(LedgerError::NotSetUp(_)) => self.ledgers.make(shared.access)?,
                other => other?,
            };
            scope.add(uid)?;
            // The owner of an emulated machine needs no further command; root's are for all users' jobs, so that a job
            // of root's does not change them.
            if (is_new || self.ledgers.emulated()) && !ScopeReport::limits(&scope)?.by_hand {
                scope.set_limits(shared.limits, false)?;
            }
            return Ok(scope);
        }
        match scope {
            Err(LedgerError::NotSetUp(_)) if !shared.is_administered => {
                let scope = self.ledgers.make_own(uid)?;
                scope.add(uid)?;
                Ok(scope)
            }
            other => other,
        }
    }

    fn estimate_context(&self, view: &LedgerView) {
        match self.scopes.context.unwrap_or(Context::Auto) {
            Context::Bytes(bytes) => view.set_context(None, bytes),
            Context::Auto => {
                let known = contexts::Contexts::load(self.ledgers.emulated());
                if known.is_empty() {
                    return;
                }
                let Ok(inventory) = self.machine.inventory() else { return };
                for gpu in inventory.usable() {
                    if let Some(bytes) = known.get(&gpu.name, &inventory.driver) {
                        view.set_context(Some(&gpu.bytes), bytes);
                    }
                }
            }
        }
    }

    /// Returns true if what the driver takes for a process is to be measured and charged.
    #[must_use]
    pub fn measures_contexts(&self) -> bool {
        self.scopes.context.unwrap_or(Context::Auto) == Context::Auto
    }

    /// Sentences about limits that are not what was asked for.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.scopes.capped {
            let cap: Vec<String> =
                self.scopes.job.iter().flatten().map(|limit| amount::shown(limit.amount)).collect();
            remarks.push(format!(
                "the limit asked for is more than this node allows a job: {} holds",
                cap.join(", ")
            ));
        }
        remarks.extend(self.too_small());
        remarks
    }

    /// A sentence about a limit below what the driver itself was measured to take.
    fn too_small(&self) -> Option<String> {
        let known = contexts::Contexts::load(self.ledgers.emulated());
        if known.is_empty() || !self.measures_contexts() {
            return None;
        }
        let inventory = self.machine.inventory().ok()?;
        inventory.usable().find_map(|gpu| {
            let (needs, limit) = (known.get(&gpu.name, &inventory.driver)?, self.least(gpu));
            let is_others = self.is_fenced && limit == 0;
            (needs > limit && !is_others).then(|| {
                format!(
                    "no program can use {}: the driver itself takes {} for each, and the limit is {}",
                    gpu.uuid,
                    amount::rounded(needs),
                    amount::rounded(limit)
                )
            })
        })
    }
}
