//! The plug-in by which Slurm limits and records GPU memory: `--gpu-mem`, `--gpu-share`, `--gpu-attempts` and `--radrm`
//! for `srun`, `sbatch` and `salloc`.
//!
//! Slurm loads it into these programs and into `slurmstepd` (SPANK, `spank.h`). In a step of a job that uses it,
//! `slurmstepd` starts one `radrm-run` beside the tasks ([`recorder`]) and gives the environment that it hands out to
//! each task ([`step`]). The tasks stay children of `slurmstepd` with their own arguments, streams, signals and exit codes.
//!
//! Every hook returns success: a failing hook makes Slurm drain nodes. A limit that cannot be enforced keeps the tasks
//! from starting, one by one, with the reason on their standard error.

mod abi;
mod container;
mod fence;
mod grant;
mod options;
mod recorder;
mod report;
mod request;
mod retry;
mod settings;
mod step;
mod version;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use abi::{Context, Spank, SpankOption};
use options::{Name, Words};
use settings::Settings;

/// A string that Slurm reads from the plug-in's symbol table.
#[repr(transparent)]
pub struct Text<const N: usize>([u8; N]);

/// The name in messages of Slurm's, and a part of the variables by which Slurm hands on options.
#[unsafe(export_name = "plugin_name")]
pub static PLUGIN_NAME: Text<6> = Text(*b"radrm\0");
/// Its kind.
#[unsafe(export_name = "plugin_type")]
pub static PLUGIN_TYPE: Text<6> = Text(*b"spank\0");
/// The plug-in's own version.
#[unsafe(export_name = "spank_plugin_version")]
pub static SPANK_PLUGIN_VERSION: u32 = 1;

struct Table([SpankOption; 4]);
// SAFETY: pointers to constants, never written.
unsafe impl Sync for Table {}

static OPTIONS: Table = Table([
    SpankOption {
        name: c"gpu-mem".as_ptr(),
        argument: c"LIMIT".as_ptr(),
        usage: c"GPU memory that all tasks of the job on a node may take together on each GPU: 10GiB, 50%, 0=10GiB,1=4GiB"
            .as_ptr(),
        has_argument: 1,
        value: 0,
        callback: take_option,
    },
    SpankOption {
        name: c"gpu-share".as_ptr(),
        argument: c"PERCENT".as_ptr(),
        usage: c"share of each GPU's time that the tasks of a step on a node may take together".as_ptr(),
        has_argument: 1,
        value: 1,
        callback: take_option,
    },
    SpankOption {
        name: c"radrm".as_ptr(),
        argument: c"MODE".as_ptr(),
        usage: c"off, limit: no profile is written, or profile: GPU memory and kernels are recorded".as_ptr(),
        has_argument: 1,
        value: 2,
        callback: take_option,
    },
    SpankOption {
        name: c"gpu-attempts".as_ptr(),
        argument: c"N".as_ptr(),
        usage: c"run a batch job that ran out of the memory of its shards again with more, at most N times in all".as_ptr(),
        has_argument: 1,
        value: 3,
        callback: take_option,
    },
]);

const NAMES: [Name; 4] = [Name::Memory, Name::Share, Name::Mode, Name::Attempts];

/// Argument given for each option. Replaced strings are never freed: there are few, and a hook may be reading one.
static GIVEN: [AtomicPtr<c_char>; 4] = [const { AtomicPtr::new(null_mut()) }; 4];

fn words() -> Words {
    NAMES.iter().zip(&GIVEN).fold(Words::default(), |words, (name, given)| {
        let text = given.load(Acquire);
        if text.is_null() {
            return words;
        }
        // SAFETY: from `CString::into_raw`, never freed.
        words.with(*name, &unsafe { CStr::from_ptr(text) }.to_string_lossy())
    })
}

/// Runs a hook so that nothing of it leaves this library but success.
fn guarded(hook: impl FnOnce()) -> c_int {
    guarded_or(hook, || abi::error(INTERNAL))
}

/// The same; `instead`, if the hook failed.
fn guarded_or(hook: impl FnOnce(), instead: impl FnOnce()) -> c_int {
    if panic::catch_unwind(panic::AssertUnwindSafe(hook)).is_err() {
        instead();
    }
    0
}

const INTERNAL: &str = "internal error in the plug-in";

extern "C" fn take_option(value: c_int, text: *const c_char, remote: c_int) -> c_int {
    let taken = panic::catch_unwind(|| {
        let place = usize::try_from(value).ok()?;
        let (given, name) = (GIVEN.get(place)?, NAMES.get(place)?);
        // SAFETY: Slurm gives a string, or null for an option without an argument.
        let text = if text.is_null() { c"" } else { unsafe { CStr::from_ptr(text) } };
        if remote == 0
            && let Err(error) = words().with(*name, &text.to_string_lossy()).parse()
        {
            abi::error(&error.to_string());
            return None;
        }
        given.store(CString::from(text).into_raw(), Release);
        Some(())
    });
    if matches!(taken, Ok(Some(()))) { 0 } else { -1 }
}

/// Adds the options. Slurm calls it first.
///
/// # Safety
/// Called by Slurm, as all of these.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init(spank: *mut c_void, _: c_int, _: *const *const c_char) -> c_int {
    guarded(|| {
        if matches!(abi::context(), Context::LOCAL | Context::REMOTE | Context::ALLOCATOR) {
            for option in &OPTIONS.0 {
                if !Spank(spank).register(option) {
                    abi::error(
                        "the options --gpu-mem, --gpu-share, --radrm and --gpu-attempts cannot be registered",
                    );
                    return;
                }
            }
        }
    })
}

/// Hands the options of a new job on to its steps; in `slurmstepd`, decides what holds for the step.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init_post_opt(
    spank: *mut c_void,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let hook = || {
        // SAFETY: Slurm gives the words of plugstack.conf.
        let settings = unsafe { Settings::of_hook(count, arguments) };
        let has_shards = settings.as_ref().is_ok_and(|settings| settings.shard.is_some());
        match abi::context() {
            Context::REMOTE => step::decide(Spank(spank), words(), settings),
            Context::ALLOCATOR => hand_on(Spank(spank), has_shards),
            // `srun` outside of a job makes one.
            // SAFETY: reads a variable; this program has one thread now.
            Context::LOCAL if unsafe { libc::getenv(c"SLURM_JOB_ID".as_ptr()) }.is_null() => {
                hand_on(Spank(spank), has_shards)
            }
            _ => {}
        }
    };
    guarded_or(hook, || step::refuse(INTERNAL.to_owned()))
}

/// The variable in which `job_submit.lua` finds what `--gpu-mem` asks for.
const CONTROL: &CStr = c"RADRM_GPU_MEM";

/// Puts the options of a job that is about to be made into the environment that it inherits, and takes out what this
/// program has inherited from a job around it.
fn hand_on(spank: Spank, has_shards: bool) {
    for ((variable, _), given) in step::HANDED_ON.iter().zip(&GIVEN) {
        let text = given.load(Acquire);
        // SAFETY: srun, sbatch and salloc have one thread here; the string is never freed.
        unsafe {
            if text.is_null() {
                libc::unsetenv(variable.as_ptr());
            } else {
                libc::setenv(variable.as_ptr(), text, 1);
            }
        }
    }
    let memory = words().memory.and_then(|text| CString::new(options::for_controller(&text)?).ok());
    spank.hand_to_controller(CONTROL, memory.as_deref());
    if memory.is_none() {
        // What a job around this one was submitted with.
        // SAFETY: as above.
        unsafe { libc::unsetenv(c"SLURM_SPANK_RADRM_GPU_MEM".as_ptr()) };
    }
    // `job_submit.lua` sets it where it made the shards.
    // SAFETY: as above.
    unsafe { libc::unsetenv(step::OF_OPTION.as_ptr()) };
    // The container of a job around this one.
    // SAFETY: as above.
    unsafe { libc::unsetenv(container::VARIABLE.as_ptr()) };
    if has_shards {
        // Slurm sets it for jobs with shards, and leaves another job's value where there are none.
        // SAFETY: as above.
        unsafe { libc::unsetenv(c"SLURM_SHARDS_ON_NODE".as_ptr()) };
    }
}

/// In `slurmstepd` with the user's rights, before the tasks are forked.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_user_init(
    spank: *mut c_void,
    _: c_int,
    _: *const *const c_char,
) -> c_int {
    guarded_or(|| step::prepare(Spank(spank)), || step::refuse(INTERNAL.to_owned()))
}

/// In `slurmstepd` as root, when tasks are forked and wait to become their programs.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_post_fork(
    spank: *mut c_void,
    _: c_int,
    _: *const *const c_char,
) -> c_int {
    guarded(|| step::forked(Spank(spank)))
}

/// In each forked task, before it becomes the program.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_init(
    spank: *mut c_void,
    _: c_int,
    _: *const *const c_char,
) -> c_int {
    guarded_or(|| step::enter(Spank(spank)), || step::not_started(INTERNAL))
}

/// In `slurmstepd` when a task has ended.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_exit(
    spank: *mut c_void,
    _: c_int,
    _: *const *const c_char,
) -> c_int {
    guarded(|| step::ended(Spank(spank)))
}

/// In `slurmstepd` after all tasks, and at the end of the commands.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_exit(_: *mut c_void, _: c_int, _: *const *const c_char) -> c_int {
    guarded(step::finish)
}
