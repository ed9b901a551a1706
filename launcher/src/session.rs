//! One run from the command line to the exit code.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use radrm_collector::NvmlSource;
use radrm_console::output;
use radrm_limits::cgroup::Fence;
use radrm_limits::charge::Charge;
use radrm_limits::config::{Mps, Percentage};
use radrm_limits::ledgers::Ledgers;
use radrm_limits::mps;
use radrm_limits::mps::doubts::SHARE_VARIABLE;
use radrm_limits::mps::service::{Service, Wanted};
use radrm_limits::program::environment::Environment;
use radrm_limits::program::libraries;
use radrm_limits::program::target::{self, Sight};
use radrm_limits::share;
use radrm_limits::start::{Limits, Machine, QUOTA_VARIABLE};
use radrm_os::nvml::Gpu;
use radrm_telemetry::ledger::Access;

use super::child::{self, NotStarted};
use super::cli::{Plan, ReportTo};
use super::emulated::Emulated;
use super::ending::{self, Ending};
use super::inherited::Inherited;
use super::place;
use super::recording::{Channel, Recording, Start, outer_machine};
use super::remarks::Remarks;
use super::signals::{self, Held};
use super::supervise::{self, Supervisor};
use super::witness::Witness;
use crate::NAME;
use crate::dry_run::Setup;

/// How `radrm-run` has to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// As the program did.
    Like(Ending),
    /// With a code of its own, since the program did not run.
    Code(i32),
}

/// Runs the program and records it.
#[must_use]
pub fn run(plan: &Plan, inherited: &Inherited) -> End {
    if let Some(find) = plan.dry_run.as_ref().and_then(|dry_run| dry_run.find_batch.as_ref()) {
        return End::Code(crate::dry_run::batch::run(plan, find));
    }
    match try_run(plan, inherited) {
        Ok(ending) => End::Like(ending),
        Err((code, sentence)) => {
            output::say(NAME, &sentence);
            End::Code(code)
        }
    }
}

type Refusal = (i32, String);

fn try_run(plan: &Plan, inherited: &Inherited) -> Result<Ending, Refusal> {
    let refuse = |sentence: String| (ending::FAILED, sentence);
    let argv = plan
        .command
        .iter()
        .map(|word| CString::new(word.as_bytes()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| refuse("an argument contains a zero byte".to_owned()))?;
    let mut environment = Environment::inherited();
    let environment_before = environment.clone();
    let program = target::find(&plan.command[0], env::var_os("PATH").as_deref());

    // What was asked for by name must hold before the program starts; what is only observed
    // never keeps it from starting.
    let profile = place::prepare(&plan.profile).map_err(refuse)?;
    if let ReportTo::JsonFile(file) = &plan.report {
        profile.with_report(file).map_err(|sentence| {
            profile.abandon();
            refuse(sentence)
        })?;
    }
    let hold = || Held::all().map_err(|error| (ending::FAILED, format!("signals cannot be held: {error}")));
    // What a dry run lays out is taken away again, also if a signal comes before the program is there.
    let held_early = plan.dry_run.is_some().then(hold).transpose()?;
    let mut emulated = plan.emulate.as_ref().map(Emulated::prepare).transpose().map_err(refuse)?;
    let nvml = emulated.as_ref().map_or(NvmlSource::System, |machine| {
        machine.enter_self();
        NvmlSource::Library(machine.nvml().to_owned())
    });
    let preload = Preload::choose(program.as_deref());
    if emulated.is_some()
        && let Some(reason) = preload.hinders_emulation()
    {
        profile.abandon();
        return Err(refuse(format!(
            "{} cannot be run on emulated GPUs: it {reason}",
            shown(&plan.command[0])
        )));
    }
    let machine = emulated.as_ref().map(|machine| machine.machine_file().to_owned());
    let machine = machine.or_else(outer_machine);
    let ledgers = Ledgers::of(machine.as_deref());
    let gpus = Machine::new(nvml.clone());
    let gpus = || gpus.inventory();
    let node = if inside_limits(&environment) {
        if plan.mem_limit.is_some() || plan.sm_limit.is_some() {
            profile.abandon();
            return Err(refuse(
                "this is already inside a job with a limit, which would not see another one".to_owned(),
            ));
        }
        None
    } else {
        let limits = Limits::of_job(plan.mem_limit.as_ref(), ledgers.clone(), nvml).map_err(|sentence| {
            profile.abandon();
            refuse(sentence)
        })?;
        Some(limits)
    };
    let no_mps = Mps::default();
    let limits = node.as_ref().filter(|limits| limits.any());
    let wanted = Wanted {
        asked: plan.mps,
        share: plan.sm_limit,
        config: node.as_ref().map_or(&no_mps, |limits| &limits.scopes.mps),
        directory: &ledgers.directory(Access::User(rustix::process::getuid().as_raw())),
        of_user: &|gpu| limits.map_or(u64::MAX, |limits| limits.of_user(gpu)),
    };
    // MPS takes the share where the program will use it; elsewhere its launches are held back.
    let budget = plan.sm_limit.filter(|_| !wanted.any() && !share::by_mps(&environment));
    let limited = match (limits, budget) {
        (Some(_), _) => Some("a limit on GPU memory"),
        (None, Some(_)) => Some("a share of the GPUs"),
        _ => None,
    };
    if let Some(what) = limited
        && let Some(reason) = preload.hinders_limits(what, &plan.command[0], &environment)
    {
        profile.abandon();
        return Err(refuse(reason));
    }
    let mut remarks = Remarks { quiet: plan.quiet };
    remarks.all(preload.remarks(&plan.command[0], &environment));
    remarks.all(limits.iter().flat_map(|limits| limits.remarks()));

    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let channel = match Channel::open(started) {
        // With another segment the outer job's limit would be lost.
        _ if inside_limits(&environment) => None,
        Ok(channel) => Some(channel),
        Err(sentence) if limited.is_some() => {
            profile.abandon();
            return Err(refuse(format!("no limit can hold: {sentence}")));
        }
        Err(sentence) => {
            remarks.failure(&format!("{sentence}; the program runs unwatched"));
            None
        }
    };
    let mut in_force = Vec::new();
    if let (Some(channel), Some(limits)) = (&channel, limits) {
        let armed = limits.bring_into_force(|limits| channel.arm(limits), &mut environment);
        let views = armed.map_err(|sentence| {
            profile.abandon();
            refuse(sentence)
        })?;
        if limits.measures_contexts() {
            in_force = views;
        }
    }
    if let (Some(channel), Some(percent)) = (&channel, budget) {
        channel.share(percent, machine.as_deref()).map_err(|sentence| {
            profile.abandon();
            refuse(sentence)
        })?;
        remarks.one(&format!(
            "MPS is not used: --sm-limit is held by a launch budget, {} % of the time on each GPU",
            percent.0
        ));
    } else if let (Some(Percentage(percent)), false) = (plan.sm_limit, wanted.any()) {
        environment.set(SHARE_VARIABLE, percent.to_string().as_bytes());
    }
    if let (Some(channel), Some(shim)) = (&channel, preload.shim()) {
        environment.prepend_path("LD_PRELOAD", shim);
        environment.set("RADRM_SEGMENT", channel.path().as_os_str().as_bytes());
        if let Some(kernels) = &plan.kernels {
            kernels.enter(&mut environment);
        }
    }
    if let Some(emulated) = &emulated {
        emulated.enter(&mut environment);
    }
    let dry_run = match (&plan.dry_run, &emulated) {
        (Some(wanted), Some(emulated)) => Some(Setup::prepare(wanted, emulated).map_err(|sentence| {
            profile.abandon();
            refuse(sentence)
        })?),
        _ => None,
    };
    if let Some(dry_run) = &dry_run {
        dry_run.enter(&mut environment);
    }
    // Held until the program has ended.
    let _fence = limits
        .filter(|_| !ledgers.emulated())
        .and_then(|limits| Fence::raise(&gpus, &|gpu| limits.least(gpu)));
    let least = |gpu: &Gpu| limits.map_or(u64::MAX, |limits| limits.least(gpu));
    let mut service = if wanted.any() {
        let (service, remark) =
            Service::begin_fenced(&wanted, &mut environment, &gpus, &least).map_err(|sentence| {
                profile.abandon();
                refuse(sentence)
            })?;
        remarks.all(remark);
        Some(service)
    } else {
        remarks.all(mps::doubts::about(&environment, limits.is_some(), &gpus));
        None
    };
    if plan.wait_all {
        supervise::adopt_orphans();
    }

    if let Some(signal) = held_early.and_then(|_| signals::told_to_end()) {
        profile.abandon();
        remarks.all(service.and_then(|service| service.end(false)));
        return Ok(Ending::Killed { signal, core: false });
    }
    let held = hold()?;
    let child = match child::start(&argv, &environment, inherited) {
        Ok(child) => child,
        Err(reason) => {
            profile.abandon();
            remarks.all(service.and_then(|service| service.end(false)));
            return Err(not_started(reason, &plan.command[0]));
        }
    };

    // At once, so that no signal to the group comes before it, and while this process is small.
    let witness = Witness::new();
    let mut recording = channel.and_then(|channel| {
        let emulated =
            emulated.as_ref().map(|machine| (machine.label().to_owned(), machine.nvml().to_owned()));
        let start = Start {
            command: &plan.command,
            program: program.as_deref(),
            pid: child,
            at: started,
            emulated,
            dry: plan.dry_run.is_some(),
        };
        let unseen = preload.unseen(&plan.command[0], program.as_deref(), &environment_before);
        Recording::begin(channel, start, &profile, unseen)
            .map_err(|sentence| remarks.failure(&format!("{sentence}; nothing is recorded")))
            .ok()
    });
    if let (Some(recording), Some(service)) = (&mut recording, &service) {
        recording.check_clients(mps::clients::Check::new(service.control().clone()));
    }
    if let Some(recording) = &mut recording {
        recording.charge(Charge::new(in_force, ledgers.emulated()));
    }
    let mut supervisor = Supervisor::new(child, held, witness);
    let ended = supervisor.wait(&mut recording);
    if plan.wait_all && !supervisor.wait_for_all(&mut recording) {
        remarks.one("not waiting any longer for what the program left running");
    }
    supervisor.drain();

    let outcome = dry_run.map(Setup::collect);
    let mut kept = None;
    let mut mps_remark = None;
    if let Some(mut recording) = recording {
        recording.dry_run(outcome);
        recording.finish(plan, &ended, &mut remarks, &mut |alive| {
            mps_remark = service.take().and_then(|service| service.end(alive > 0));
            match emulated.take() {
                Some(emulated) if alive > 0 => kept = Some(emulated.keep()),
                other => drop(other),
            }
            // From here on only the report is written: a second Ctrl-C may cut that short.
            supervisor.drain();
            inherited.unblock();
        });
    }
    remarks.all(mps_remark.or_else(|| service.and_then(|service| service.end(false))));
    if let Some(kept) = kept {
        remarks.one(&format!("processes still use the emulated machine: {} stays", kept.display()));
    }
    Ok(ended.ending)
}

/// Whether and why the shim goes into the program.
struct Preload {
    shim: Result<PathBuf, String>,
    sight: Sight,
}

impl Preload {
    fn choose(program: Option<&Path>) -> Self {
        let shim =
            libraries::find(libraries::SHIM).and_then(|file| libraries::check_preload(&file).map(|()| file));
        Self { shim, sight: program.map_or(Sight::Seen, target::examine) }
    }

    /// The library to preload.
    fn shim(&self) -> Option<&Path> {
        match self.sight {
            Sight::Nothing(_) => None,
            Sight::Seen | Sight::OnlyChildren(_) => self.shim.as_deref().ok(),
        }
    }

    /// Why the emulated libraries could not reach the program.
    fn hinders_emulation(&self) -> Option<&str> {
        self.sight.reason()
    }

    /// Why a limit could not hold.
    fn hinders_limits(&self, what: &str, program: &OsStr, environment: &Environment) -> Option<String> {
        let program = shown(program);
        let reason = if switched_off(environment) {
            "RADRM_DISABLE is set".to_owned()
        } else if let Err(reason) = &self.shim {
            reason.clone()
        } else {
            format!("it {}", self.sight.reason()?)
        };
        Some(format!("{what} is asked for that cannot hold for {program}: {reason}"))
    }

    /// What of the job cannot be looked at, as clauses for its profile.
    fn unseen(&self, word: &OsStr, program: Option<&Path>, environment: &Environment) -> Vec<String> {
        let real = |path: &Path| path.canonicalize().ok();
        let nested = program.and_then(real).is_some_and(|file| env::current_exe().ok() == Some(file));
        let word = shown(word);
        if switched_off(environment) {
            return vec!["RADRM_DISABLE is set".to_owned()];
        }
        match (&self.shim, &self.sight) {
            (Err(reason), _) => vec![reason.clone()],
            _ if nested => vec![format!("{word} keeps a record of its own of what it runs")],
            (_, Sight::Seen) => Vec::new(),
            (_, Sight::OnlyChildren(reason)) => {
                vec![format!("{word} {reason}, so only programs that it starts can be")]
            }
            (_, Sight::Nothing(reason)) => vec![format!("{word} {reason}")],
        }
    }

    fn remarks(&self, program: &OsStr, environment: &Environment) -> Vec<String> {
        let program = shown(program);
        if switched_off(environment) {
            return vec![format!("RADRM_DISABLE is set, so nothing that {program} does is counted")];
        }
        let mut remarks = Vec::new();
        if let Err(reason) = &self.shim {
            remarks.push(format!("nothing that {program} does will be counted: {reason}"));
            return remarks;
        }
        match &self.sight {
            Sight::Seen => {}
            Sight::OnlyChildren(reason) => remarks
                .push(format!("{program} will not be counted, only programs that it starts: it {reason}")),
            Sight::Nothing(reason) => {
                remarks.push(format!("{program} will not be counted, nor what it starts: it {reason}"));
            }
        }
        if inside_limits(environment) {
            remarks.push(
                "this job is inside one with a limit and is counted there: it has no report of its own"
                    .to_owned(),
            );
        } else if environment.get("RADRM_SEGMENT").is_some_and(|value| !value.is_empty()) {
            remarks.push("this job is inside another one, which will not see it".to_owned());
        }
        remarks
    }
}

/// Whether this runs inside a job with a limit.
fn inside_limits(environment: &Environment) -> bool {
    let set = |name| environment.get(name).is_some_and(|value| !value.is_empty());
    set(QUOTA_VARIABLE) && set("RADRM_SEGMENT")
}

/// Whether the user switched the shim off.
fn switched_off(environment: &Environment) -> bool {
    environment.get("RADRM_DISABLE").is_some_and(|value| !value.is_empty() && value != b"0")
}

fn not_started(reason: NotStarted, program: &OsStr) -> Refusal {
    let program = shown(program);
    match reason {
        NotStarted::NotFound if program.contains('/') && Path::new(&program).exists() => {
            (ending::NOT_FOUND, format!("{program} cannot be started: its interpreter or loader is missing"))
        }
        NotStarted::NotFound => (ending::NOT_FOUND, format!("{program}: there is no such program")),
        NotStarted::NotExecutable(error) => {
            (ending::NOT_EXECUTABLE, format!("{program} cannot be executed: {}", output::reason(&error)))
        }
        NotStarted::NoProcess(error) => {
            (ending::FAILED, format!("no process for {program}: {}", output::reason(&error)))
        }
    }
}

fn shown(word: &OsStr) -> String {
    OsString::from(word).to_string_lossy().into_owned()
}
