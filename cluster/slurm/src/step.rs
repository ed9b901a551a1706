//! A step in `slurmstepd`: what is set up before its tasks are forked, given to each of them, and taken down.
//!
//! Data that a forked task reads is written once before the fork and never again, and there is no lock: a task is
//! forked from a process with threads.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr};

use radrm_limits::program::given;

use crate::abi::{self, Item, Spank};
use crate::container::{self, HandedOver, Runtime};
use crate::fence;
use crate::grant::Held;
use crate::options::Words;
use crate::recorder::{Begun, Identity, Recorder};
use crate::report::{About, Report};
use crate::request::{Known, Request};
use crate::retry;
use crate::settings::{Settings, SettingsError};
use crate::version::VERSION;

/// `SLURM_BATCH_SCRIPT`, the step of a batch script.
pub const BATCH: u32 = 0xffff_fffb;
/// `SLURM_EXTERN_CONT`, the step for processes that Slurm has not started.
pub const EXTERN: u32 = 0xffff_fffc;
/// `SLURM_INTERACTIVE_STEP`, the shell of `salloc`.
pub const INTERACTIVE: u32 = 0xffff_fffa;

/// Variables by which the plug-in hands a job's options to its steps. Slurm keeps those that begin with SLURM also
/// where `--export=NONE` drops all others.
pub const HANDED_ON: [(&CStr, crate::options::Name); 4] = [
    (c"SLURM_RADRM_GPU_MEM", crate::options::Name::Memory),
    (c"SLURM_RADRM_GPU_SHARE", crate::options::Name::Share),
    (c"SLURM_RADRM_MODE", crate::options::Name::Mode),
    (c"SLURM_RADRM_ATTEMPTS", crate::options::Name::Attempts),
];
/// By this `job_submit.lua` states that a job's shards are what its `--gpu-mem` asked for.
pub const OF_OPTION: &CStr = c"SLURM_RADRM_SHARDS";
/// From then on a later attempt replaces the profile of an earlier one.
const MAX_PROFILES: u32 = 1000;
/// Exit code of `radrm-run` if it starts no program.
const NOT_STARTED: i32 = 125;

/// Setup of the step's tasks.
enum Prepared {
    /// These variables. `is_limited`: the user cannot switch the shim off. `container`: what its container gets.
    Task { variables: Vec<(CString, CString)>, is_limited: bool, container: Option<HandedOver> },
    /// They must not run: why.
    Refused(String),
}

static REQUEST: OnceLock<(Request, Settings)> = OnceLock::new();
static PREPARED: OnceLock<Prepared> = OnceLock::new();
static BEGUN: AtomicPtr<Begun> = AtomicPtr::new(std::ptr::null_mut());
static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(std::ptr::null_mut());
static GRANT: AtomicPtr<Held> = AtomicPtr::new(std::ptr::null_mut());
static REPORT: AtomicPtr<Report> = AtomicPtr::new(std::ptr::null_mut());
/// Wait status of the first task that failed.
static STATUS: AtomicI32 = AtomicI32::new(0);

/// Keeps the tasks of the step from starting.
pub fn refuse(reason: String) {
    let _ = PREPARED.set(Prepared::Refused(reason));
}

/// Ends a task that has not become its program yet, as Slurm itself does when a task cannot be started.
pub fn not_started(reason: &str) -> ! {
    abi::error(&format!("the task is not started: {reason}"));
    // SAFETY: ends this process, a fork of slurmstepd, without running what that has registered for its end.
    unsafe { libc::_exit(NOT_STARTED) }
}

/// With root's rights: finds out what holds for the step, and keeps it for the job's later ones.
pub fn decide(spank: Spank, words: Words, settings: Result<Settings, SettingsError>) {
    let (Some(job), Some(step)) = (spank.number(Item::JOB_ID), spank.number(Item::JOB_STEP)) else { return };
    if step == EXTERN {
        return;
    }
    let text = |name: &CStr| Some(String::from_utf8_lossy(&spank.variable(name)?).into_owned());
    let handed_on = HANDED_ON.iter().fold(Words::default(), |words, (variable, name)| match text(variable) {
        Some(value) => words.with(*name, &value),
        None => words,
    });
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) => {
            // Without settings it is not known what shards mean. Jobs that cannot be limited run.
            let unused = Words::default();
            if words != unused || handed_on != unused || text(c"SLURM_SHARDS_ON_NODE").is_some() {
                refuse(error.to_string());
            }
            return;
        }
    };
    let gpus = if step == BATCH { c"SLURM_JOB_GPUS" } else { c"SLURM_STEP_GPUS" };
    let shards = settings.shard.and_then(|_| text(c"SLURM_SHARDS_ON_NODE"));
    let known = Known {
        step: words,
        job: handed_on,
        gpus: shards.as_ref().and_then(|_| text(gpus)),
        shards,
        of_option: text(OF_OPTION).is_some(),
    };
    let request = match Request::of(&known, &settings) {
        Ok(request) => request,
        Err(error) => {
            refuse(error.to_string());
            return;
        }
    };
    let request = match Held::take(&settings.state, job, &request.job, step == BATCH) {
        Ok(None) => request,
        Ok(Some(held)) => {
            let request = request.under(&held.grant);
            GRANT.store(Box::into_raw(Box::new(held)), Release);
            request
        }
        Err(error) => {
            refuse(format!(
                "no limit can hold: {}: {error}; the administrator names another directory by state= in plugstack.conf",
                settings.state.display()
            ));
            return;
        }
    };
    if request.wanted {
        report(spank, job, &request, &settings);
        begin(spank, job, &settings);
        let _ = REQUEST.set((request, settings));
    }
}

/// Starts the recorder: what it takes for that passes while Slurm connects the step's streams. Where this fails it is
/// started in [`prepare`].
fn begin(spank: Spank, job: u32, settings: &Settings) {
    let (Some(uid), Some(gid)) = (spank.number(Item::JOB_UID), spank.number(Item::JOB_GID)) else { return };
    let stated = spank.groups().map(|groups| Identity { uid, gid, groups });
    let Some(identity) = stated.or_else(|| Identity::of_tables(uid, gid)) else { return };
    let Some((program, mut arguments)) = first_words(job, settings) else { return };
    arguments.insert(1, c"--later".to_owned());
    if let Ok(begun) = Begun::start(&program, &arguments, &environment(spank, settings), &identity) {
        BEGUN.store(Box::into_raw(Box::new(begun)), Release);
    }
}

/// The recorder, and by what it is known among processes.
fn first_words(job: u32, settings: &Settings) -> Option<(CString, Vec<CString>)> {
    let program = CString::new(settings.run.as_os_str().as_bytes()).ok()?;
    let mut words = vec![program.clone(), c"--attend".to_owned(), c"--quiet".to_owned()];
    words.push(CString::new(format!("--step-of=slurm-{job}")).ok()?);
    if let Some(machine) = &settings.machine {
        words.push(CString::new([b"--machine=", machine.as_os_str().as_bytes()].concat()).ok()?);
    }
    Some((program, words))
}

/// Begins the step's file for radrmd.
fn report(spank: Spank, job: u32, request: &Request, settings: &Settings) {
    let Some(uid) = spank.number(Item::JOB_UID) else { return };
    let (step, node) = (step_name(spank), node_name(spank));
    let about = About { job, step: &step, node: &node, uid, granted: request.granted };
    if let Some(report) = Report::begin(&settings.state, &about) {
        REPORT.store(Box::into_raw(Box::new(report)), Release);
    }
}

/// With the user's rights, in the job's directory: starts the recorder.
pub fn prepare(spank: Spank) {
    let Some((request, settings)) = REQUEST.get() else { return };
    if PREPARED.get().is_some() {
        return;
    }
    let (Some(uid), Some(gid)) = (spank.number(Item::JOB_UID), spank.number(Item::JOB_GID)) else { return };
    let begun = BEGUN.swap(std::ptr::null_mut(), AcqRel);
    // SAFETY: from `Box::into_raw`, and taken out for good.
    let begun = (!begun.is_null()).then(|| unsafe { Box::from_raw(begun) });
    let runtime = container::runtime();
    let is_one = container::is_one(spank);
    let refusal = runtime.refusal(is_one, VERSION.load(Relaxed));
    if let Some(reason) = refusal.filter(|_| request.is_limited()) {
        let _ = PREPARED.set(Prepared::Refused(reason.to_owned()));
        return;
    }
    if runtime.is_bare() && is_one {
        abi::error(&format!("nothing is recorded: {}", container::NOT_APPLIED));
        return;
    }
    let identity = Identity::with_own_groups(uid, gid);
    retry::prepare(spank, request, settings, &identity);
    let prepared = match command(spank, request, settings, runtime) {
        Some((program, arguments, further, environment)) => {
            let started = match (begun, container::directory(spank)) {
                (Some(begun), Some(directory)) => {
                    begun.complete(directory.as_os_str().as_bytes(), umask(), &further);
                    begun.answer()
                }
                _ => Recorder::start(&program, &[arguments, further].concat(), &environment, &identity),
            };
            match started {
                Ok(mut recorder) => {
                    let variables = std::mem::take(&mut recorder.variables);
                    let place = Box::into_raw(Box::new(recorder));
                    RECORDER.store(place, Release);
                    let is_limited = request.is_limited();
                    match runtime.hand_over(&variables, is_limited) {
                        Ok(container) => Prepared::Task { variables, is_limited, container },
                        Err(reason) => Prepared::Refused(reason),
                    }
                }
                Err(error) if request.is_limited() => Prepared::Refused(error.to_string()),
                Err(error) => {
                    abi::info(&format!("{error}; nothing is recorded"));
                    return;
                }
            }
        }
        None if request.is_limited() => {
            Prepared::Refused("the command line of the step is not known".to_owned())
        }
        None => return,
    };
    let _ = PREPARED.set(prepared);
}

/// The umask of this process, which is the job's.
fn umask() -> libc::mode_t {
    // SAFETY: plain system calls that cannot fail. No other thread makes files meanwhile: those of slurmstepd for standard
    // streams are open, or are made with a mode of their own.
    unsafe {
        let umask = libc::umask(0o077);
        libc::umask(umask);
        umask
    }
}

type Command = (CString, Vec<CString>, Vec<CString>, Vec<CString>);

/// Program, first and further arguments, and environment of the recorder.
fn command(spank: Spank, request: &Request, settings: &Settings, runtime: Runtime) -> Option<Command> {
    let job = spank.number(Item::JOB_ID)?;
    let tasks = spank.arguments();
    if tasks.is_empty() {
        return None;
    }
    let (program, first) = first_words(job, settings)?;
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut add = |name: &str, value: &[u8]| words.push([name.as_bytes(), value].concat());
    if request.profile {
        add("--output=", profile(spank, job).as_os_str().as_bytes());
    } else {
        add("--no-profile", b"");
        add("--no-dataset", b"");
    }
    if spank.number(Item::JOB_STEP) == Some(BATCH) {
        add("--batch-script", b"");
    }
    for limits in &request.job.memory {
        add("--job-limit=", limits.as_bytes());
    }
    if let Some((first, further)) = request.memory.split_first() {
        add("--mem-limit=", first.as_bytes());
        for limits in further {
            add("--step-limit=", limits.as_bytes());
        }
    }
    if let Some(group) = fence::group(job, settings).filter(|_| !request.job.memory.is_empty()) {
        add("--control-group=", group.as_os_str().as_bytes());
    }
    if let Some(percent) = request.share {
        add("--sm-limit=", percent.to_string().as_bytes());
    }
    if let Some(word) = container::word(spank, runtime) {
        add(&word, b"");
    }
    add("--", b"");
    words.extend(tasks.iter().map(|word| word.to_bytes().to_vec()));
    let further: Vec<CString> = words.into_iter().map(CString::new).collect::<Result<_, _>>().ok()?;
    Some((program, first, further, environment(spank, settings)))
}

/// Path of the profile: beside Slurm's own output file, in the directory of the job.
fn profile(spank: Spank, job: u32) -> PathBuf {
    let directory = container::directory(spank).unwrap_or_default();
    let (step, node) = (step_name(spank), node_name(spank));
    let name = |restarts: u32| {
        let attempt = if restarts == 0 { String::new() } else { format!("-r{restarts}") };
        format!("slurm-{job}{attempt}.{step}.{node}.radrm")
    };
    // Slurm states the number to the script and what it starts, but not to the script's own step: S_SLURM_RESTART_COUNT
    // is always 0. There the profiles of earlier attempts count.
    let stated = spank.variable(c"SLURM_RESTART_COUNT").filter(|_| step != "batch");
    let stated = stated.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
    directory
        .join(name(stated.unwrap_or_else(|| earlier(|restarts| directory.join(name(restarts)).exists()))))
}

/// As Slurm names it behind the job's number.
fn step_name(spank: Spank) -> String {
    match spank.number(Item::JOB_STEP) {
        Some(BATCH) => "batch".to_owned(),
        Some(INTERACTIVE) => "interactive".to_owned(),
        Some(step) => step.to_string(),
        None => "unknown".to_owned(),
    }
}

fn node_name(spank: Spank) -> String {
    let name = spank.variable(c"SLURMD_NODENAME").map(|name| String::from_utf8_lossy(&name).into_owned());
    name.filter(|name| !name.contains(['/', '\n', ' '])).unwrap_or_else(host)
}

/// Number of earlier attempts that left a profile here.
fn earlier(is_there: impl Fn(u32) -> bool) -> u32 {
    (0..MAX_PROFILES).find(|restarts| !is_there(*restarts)).unwrap_or(MAX_PROFILES)
}

fn host() -> String {
    let mut room = [0_u8; 256];
    // SAFETY: room of this size.
    unsafe { libc::gethostname(room.as_mut_ptr().cast(), room.len() - 1) };
    let name = CStr::from_bytes_until_nul(&room).map_or_else(|_| "node".into(), CStr::to_string_lossy);
    name.replace('/', "_")
}

/// Environment of the recorder, from the job's.
/// It omits variables that load a library and those of `RADRM_` except `RADRM_CONFIG`: limits are not the user's to
/// choose. Limits that HAMi (`CUDA_`) and NVIDIA's container toolkit state can only tighten them.
pub fn environment(spank: Spank, settings: &Settings) -> Vec<CString> {
    const NAMES: [&[u8]; 9] = [
        b"HOME",
        b"USER",
        b"LOGNAME",
        b"PATH",
        b"TMPDIR",
        b"LANG",
        b"XDG_DATA_HOME",
        b"XDG_CONFIG_HOME",
        b"RADRM_CONFIG",
    ];
    let is_needed = |entry: &CString| {
        let bytes = entry.to_bytes();
        let name = bytes.split(|byte| *byte == b'=').next().unwrap_or_default();
        let begins: [&[u8]; 3] = [b"CUDA_", b"NVIDIA_GPU_MEMORY_", b"SLURM_JOB"];
        NAMES.contains(&name) || begins.iter().any(|begin| bytes.starts_with(begin))
    };
    let mut entries: Vec<CString> = spank.environment().into_iter().filter(is_needed).collect();
    if let Some(libraries) = &settings.libraries {
        entries
            .extend(CString::new([b"RADRM_LIB_DIR=".as_slice(), libraries.as_os_str().as_bytes()].concat()));
    }
    entries
}

/// In the forked task, as the user, before it becomes the program.
pub fn enter(spank: Spank) {
    let (variables, is_limited, container) = match PREPARED.get() {
        None => return,
        Some(Prepared::Refused(reason)) => not_started(reason),
        Some(Prepared::Task { variables, is_limited, container }) => (variables, *is_limited, container),
    };
    for name in given::withheld(is_limited) {
        if let Ok(name) = CString::new(name) {
            spank.unset_variable(&name);
        }
    }
    for (name, ours) in variables {
        let own = spank.variable(name);
        let Some(value) = given::value(name.to_bytes(), ours.to_bytes(), own.as_deref()) else { continue };
        let is_set = CString::new(value).is_ok_and(|value| spank.set_variable(name, &value));
        if !is_set && is_limited {
            not_started("its environment cannot be changed");
        }
    }
    if let Some(container) = container
        && !container.enter(spank)
        && is_limited
    {
        not_started("its environment cannot be changed");
    }
}

/// With root's rights, when tasks are forked: the first step of a job has the driver limit all of it.
pub fn forked(spank: Spank) {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    // SAFETY: stored before the tasks are forked, and taken by `finish` in the same thread after them.
    let held = unsafe { GRANT.load(Acquire).as_ref() };
    let (Some(held), Some((_, settings))) = (held, REQUEST.get()) else { return };
    let Some(job) = spank.number(Item::JOB_ID).filter(|_| held.is_first && !held.grant.memory.is_empty())
    else {
        return;
    };
    if !IS_DONE.swap(true, Relaxed) {
        fence::raise(job, &held.grant, settings);
    }
}

/// A task has ended.
pub fn ended(spank: Spank) {
    // SAFETY: stored once, before any task was started, and taken by `finish` in the same thread after the last one.
    let recorder = unsafe { RECORDER.load(Acquire).as_ref() };
    if let (Some(recorder), Some(pid), Some(status)) =
        (recorder, spank.number(Item::TASK_PID), spank.number(Item::TASK_EXIT_STATUS))
    {
        recorder.ended(pid, status.cast_signed());
        // Slurm kills the runtime and not what runs in its container, and then waits a minute for what holds the output.
        if container::is_one(spank) && spank.number(Item::JOB_LOCAL_TASK_COUNT) == Some(1) {
            recorder.kill_rest();
        }
        retry::ended(status.cast_signed());
    }
    if let Some(status) = spank.number(Item::TASK_EXIT_STATUS).filter(|status| *status != 0) {
        let _ = STATUS.compare_exchange(0, status.cast_signed(), Relaxed, Relaxed);
    }
}

/// All tasks have ended: the recording is written, and the job's file goes with its last step.
pub fn finish() {
    let recorder = RECORDER.swap(std::ptr::null_mut(), AcqRel);
    let mut figures = Vec::new();
    if !recorder.is_null() {
        // SAFETY: from `Box::into_raw`, and taken out for good.
        let finished = unsafe { Box::from_raw(recorder) }.finish();
        if let Some(remark) = finished.remark {
            abi::info(&remark);
        }
        figures = finished.figures;
    }
    let report = REPORT.swap(std::ptr::null_mut(), AcqRel);
    if !report.is_null() {
        // SAFETY: as above.
        unsafe { Box::from_raw(report) }.end(STATUS.load(Relaxed), &figures);
    }
    retry::finish();
    let grant = GRANT.swap(std::ptr::null_mut(), AcqRel);
    if !grant.is_null() {
        // SAFETY: as above.
        let held = unsafe { Box::from_raw(grant) };
        if let Some((_, settings)) = REQUEST.get().filter(|_| !held.grant.memory.is_empty() && held.is_last())
        {
            fence::lower(held.job, settings);
        }
    }
}
