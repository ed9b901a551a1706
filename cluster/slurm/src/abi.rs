//! Slurm's plug-in interface as far as it is used, declared from `spank.h`, whose names and numbers are a stable
//! interface: items are only ever added at the end.
//!
//! The functions are looked up when they are first needed, because the program that loads the plug-in has them: the
//! same file then loads into every version, and into the tests.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// Slurm's handle of a job in a hook.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Spank(pub *mut c_void);

/// `enum spank_context`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Context(pub c_int);

impl Context {
    /// `srun`.
    pub const LOCAL: Self = Self(1);
    /// `slurmstepd`.
    pub const REMOTE: Self = Self(2);
    /// `sbatch` and `salloc`.
    pub const ALLOCATOR: Self = Self(3);
}

/// `enum spank_item`, those that are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Item(pub c_int);

impl Item {
    /// `uid_t *`.
    pub const JOB_UID: Self = Self(0);
    /// `gid_t *`.
    pub const JOB_GID: Self = Self(1);
    /// `uint32_t *`.
    pub const JOB_ID: Self = Self(2);
    /// `uint32_t *`.
    pub const JOB_STEP: Self = Self(3);
    /// `uint32_t *`.
    pub const JOB_LOCAL_TASK_COUNT: Self = Self(6);
    /// `int *, char ***`.
    pub const JOB_ARGV: Self = Self(9);
    /// `char ***`.
    pub const JOB_ENV: Self = Self(10);
    /// `int *`.
    pub const TASK_EXIT_STATUS: Self = Self(13);
    /// `pid_t *`.
    pub const TASK_PID: Self = Self(14);
    /// `gid_t **, int *`.
    pub const JOB_SUPPLEMENTARY_GIDS: Self = Self(18);
}

/// Called with the value of an option; not 0: it is wrong.
pub type OptionCallback = extern "C" fn(value: c_int, text: *const c_char, remote: c_int) -> c_int;

/// `struct spank_option`.
#[repr(C)]
pub struct SpankOption {
    /// Without the dashes.
    pub name: *const c_char,
    /// Name of the argument in the help; null: none.
    pub argument: *const c_char,
    /// The help.
    pub usage: *const c_char,
    /// 1: with an argument.
    pub has_argument: c_int,
    /// Value that the callback gets.
    pub value: c_int,
    /// Never null here.
    pub callback: OptionCallback,
}

type GetItem = unsafe extern "C" fn(*mut c_void, c_int, ...) -> c_int;
type GetEnv = unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_char, c_int) -> c_int;
type SetEnv = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, c_int) -> c_int;
/// Of a variable that is not a task's, but the job's at the controller.
type SetControl = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, c_int) -> c_int;
type UnsetEnv = unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int;
type Register = unsafe extern "C" fn(*mut c_void, *const SpankOption) -> c_int;
type Log = unsafe extern "C" fn(*const c_char, ...);

/// Longest value of a variable that is read.
const MAX_VALUE: usize = 64 * 1024;

/// The address of a function of Slurm's.
fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: looks up a name among what is loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Context in which this hook runs.
pub fn context() -> Context {
    type Ask = unsafe extern "C" fn() -> c_int;
    let Some(ask) = function(c"spank_context") else { return Context(0) };
    // SAFETY: spank.h declares it so.
    Context(unsafe { std::mem::transmute::<*mut c_void, Ask>(ask)() })
}

/// Writes an error to the log, which for `srun`, `sbatch` and tasks is standard error.
pub fn error(text: &str) {
    log(c"slurm_error", text);
}

/// Writes a line to the log.
pub fn info(text: &str) {
    log(c"slurm_info", text);
}

fn log(name: &CStr, text: &str) {
    let Some(log) = function(name) else { return };
    let Ok(text) = CString::new(format!("radrm: {}", text.replace('\0', " "))) else { return };
    // SAFETY: spank.h declares it so; the format takes one string.
    unsafe { std::mem::transmute::<*mut c_void, Log>(log)(c"%s".as_ptr(), text.as_ptr()) };
}

impl Spank {
    /// Adds an option to the command line. `option` is kept for ever.
    pub fn register(self, option: &'static SpankOption) -> bool {
        let Some(register) = function(c"spank_option_register") else { return false };
        // SAFETY: spank.h declares it so; the structure and its strings are never freed.
        unsafe { std::mem::transmute::<*mut c_void, Register>(register)(self.0, option) == 0 }
    }

    /// A number of the job or task.
    pub fn number(self, item: Item) -> Option<u32> {
        let mut number = 0_u32;
        // SAFETY: these items are 4 bytes wide (ids, pid_t and int are too).
        (unsafe { item_of(self, item, [(&raw mut number).cast()]) }).then_some(number)
    }

    /// The command line of the tasks.
    pub fn arguments(self) -> Vec<CString> {
        let mut count: c_int = 0;
        let mut list: *mut *mut c_char = std::ptr::null_mut();
        let Some(get) = get_item() else { return Vec::new() };
        // The number is that of the words that the user gave: Slurm may have put others in their place.
        // SAFETY: this item takes two pointers; the list ends with null, as the kernel wants it, and stays while the hook
        // runs.
        unsafe {
            if get(self.0, Item::JOB_ARGV.0, &raw mut count, &raw mut list) != 0 || list.is_null() {
                return Vec::new();
            }
            (0..)
                .map(|at| *list.add(at))
                .take_while(|word| !word.is_null())
                .map(|word| CStr::from_ptr(word).to_owned())
                .collect()
        }
    }

    /// The further groups of the job's user. `None`: Slurm does not state them here.
    pub fn groups(self) -> Option<Vec<libc::gid_t>> {
        let mut count: c_int = 0;
        let mut list: *mut libc::gid_t = std::ptr::null_mut();
        let get = get_item()?;
        // SAFETY: this item takes two pointers; the list has so many numbers, and stays while the hook runs.
        unsafe {
            if get(self.0, Item::JOB_SUPPLEMENTARY_GIDS.0, &raw mut list, &raw mut count) != 0
                || list.is_null()
            {
                return None;
            }
            Some((0..usize::try_from(count).unwrap_or(0)).map(|at| *list.add(at)).collect())
        }
    }

    /// The environment of the job, `NAME=VALUE` each.
    pub fn environment(self) -> Vec<CString> {
        let mut list: *mut *mut c_char = std::ptr::null_mut();
        // SAFETY: this item takes one pointer; the list ends with null and stays while the hook runs.
        unsafe {
            if !item_of(self, Item::JOB_ENV, [(&raw mut list).cast()]) || list.is_null() {
                return Vec::new();
            }
            let mut entries = Vec::new();
            while !(*list).is_null() {
                entries.push(CStr::from_ptr(*list).to_owned());
                list = list.add(1);
            }
            entries
        }
    }

    /// A variable of the job or task.
    pub fn variable(self, name: &CStr) -> Option<Vec<u8>> {
        let get = function(c"spank_getenv")?;
        let mut room = [0_u8; 1024];
        // SAFETY: spank.h declares it so; the room has the size that is given.
        let get = unsafe { std::mem::transmute::<*mut c_void, GetEnv>(get) };
        // SAFETY: as above.
        let code = unsafe { get(self.0, name.as_ptr(), room.as_mut_ptr().cast(), 1024) };
        if code == 0 {
            return Some(CStr::from_bytes_until_nul(&room).ok()?.to_bytes().to_vec());
        }
        // The value does not fit, or there is none.
        let mut room = vec![0_u8; MAX_VALUE];
        let size = c_int::try_from(room.len()).unwrap_or(0);
        // SAFETY: as above.
        if unsafe { get(self.0, name.as_ptr(), room.as_mut_ptr().cast(), size) } != 0 {
            return None;
        }
        Some(CStr::from_bytes_until_nul(&room).ok()?.to_bytes().to_vec())
    }

    /// Sets a variable of the job or task.
    pub fn set_variable(self, name: &CStr, value: &CStr) -> bool {
        let Some(set) = function(c"spank_setenv") else { return false };
        // SAFETY: spank.h declares it so.
        unsafe {
            std::mem::transmute::<*mut c_void, SetEnv>(set)(self.0, name.as_ptr(), value.as_ptr(), 1) == 0
        }
    }

    /// Hands a variable to the controller with a job that `sbatch`, `salloc` or `srun` is about to submit, for its
    /// `job_submit` plug-ins; `None` takes one out that this program has inherited.
    pub fn hand_to_controller(self, name: &CStr, value: Option<&CStr>) {
        let Some(value) = value else {
            let Some(unset) = function(c"spank_job_control_unsetenv") else { return };
            // SAFETY: spank.h declares it so.
            unsafe { std::mem::transmute::<*mut c_void, UnsetEnv>(unset)(self.0, name.as_ptr()) };
            return;
        };
        let Some(set) = function(c"spank_job_control_setenv") else { return };
        // SAFETY: spank.h declares it so.
        unsafe {
            std::mem::transmute::<*mut c_void, SetControl>(set)(self.0, name.as_ptr(), value.as_ptr(), 1)
        };
    }

    /// Takes a variable out of the job's or task's environment.
    pub fn unset_variable(self, name: &CStr) {
        let Some(unset) = function(c"spank_unsetenv") else { return };
        // SAFETY: spank.h declares it so.
        unsafe { std::mem::transmute::<*mut c_void, UnsetEnv>(unset)(self.0, name.as_ptr()) };
    }
}

fn get_item() -> Option<GetItem> {
    // SAFETY: spank.h declares it so.
    function(c"spank_get_item").map(|get| unsafe { std::mem::transmute::<*mut c_void, GetItem>(get) })
}

/// # Safety
/// The pointer leads to a place of the item's type.
unsafe fn item_of(spank: Spank, item: Item, [to]: [*mut c_void; 1]) -> bool {
    // SAFETY: as the caller promises.
    get_item().is_some_and(|get| unsafe { get(spank.0, item.0, to) } == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};
    use std::process::Command;

    const HEADER: &str = "/usr/include/slurm/spank.h";

    #[test]
    fn numbers_and_offsets_are_those_of_the_header() {
        if !std::path::Path::new(HEADER).exists() {
            eprintln!("skipped: {HEADER} is not there (package libslurm-dev)");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("abi.c");
        let asserts = [
            ("S_CTX_LOCAL", i64::from(Context::LOCAL.0)),
            ("S_CTX_REMOTE", i64::from(Context::REMOTE.0)),
            ("S_CTX_ALLOCATOR", i64::from(Context::ALLOCATOR.0)),
            ("S_JOB_UID", i64::from(Item::JOB_UID.0)),
            ("S_JOB_GID", i64::from(Item::JOB_GID.0)),
            ("S_JOB_ID", i64::from(Item::JOB_ID.0)),
            ("S_JOB_STEPID", i64::from(Item::JOB_STEP.0)),
            ("S_JOB_LOCAL_TASK_COUNT", i64::from(Item::JOB_LOCAL_TASK_COUNT.0)),
            ("S_JOB_ARGV", i64::from(Item::JOB_ARGV.0)),
            ("S_JOB_ENV", i64::from(Item::JOB_ENV.0)),
            ("S_TASK_EXIT_STATUS", i64::from(Item::TASK_EXIT_STATUS.0)),
            ("S_TASK_PID", i64::from(Item::TASK_PID.0)),
            ("sizeof(struct spank_option)", size_of::<SpankOption>() as i64),
            ("offsetof(struct spank_option, arginfo)", offset_of!(SpankOption, argument) as i64),
            ("offsetof(struct spank_option, usage)", offset_of!(SpankOption, usage) as i64),
            ("offsetof(struct spank_option, has_arg)", offset_of!(SpankOption, has_argument) as i64),
            ("offsetof(struct spank_option, val)", offset_of!(SpankOption, value) as i64),
            ("offsetof(struct spank_option, cb)", offset_of!(SpankOption, callback) as i64),
            ("SLURM_BATCH_SCRIPT", i64::from(crate::step::BATCH)),
            ("SLURM_EXTERN_CONT", i64::from(crate::step::EXTERN)),
            ("SLURM_INTERACTIVE_STEP", i64::from(crate::step::INTERACTIVE)),
        ];
        let lines: String =
            asserts.iter().map(|(c, ours)| format!("_Static_assert({c} == {ours}, \"{c}\");\n")).collect();
        let text =
            format!("#include <stddef.h>\n#include <slurm/slurm.h>\n#include <slurm/spank.h>\n{lines}");
        std::fs::write(&source, text).unwrap();
        let built = Command::new("gcc").args(["-fsyntax-only"]).arg(&source).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }

    #[test]
    fn without_slurm_nothing_is_called() {
        let spank = Spank(std::ptr::null_mut());
        assert_eq!((context(), spank.number(Item::JOB_ID)), (Context(0), None));
        assert!(spank.arguments().is_empty() && spank.variable(c"A").is_none());
        error("goes nowhere");
    }
}
