//! Description of a job: its user, command and host.

use radrm_profile::model::Job;
use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Environment variables that change what a GPU program does with memory and
/// devices. Only these go into a profile: others may hold secrets.
const ENVIRONMENT: [&str; 20] = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_SM_LIMIT",
    "NVIDIA_GPU_MEMORY_LIMIT",
    "NVIDIA_GPU_MEMORY_REQUEST",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_FLAGS",
];

/// The job of a command that was started as process `pid` (0 if it could not
/// be). `program` is the file that was executed, if known; `start_unix_ns` is
/// CLOCK_REALTIME when the job began. The emulated machine is the caller's to
/// fill in.
pub fn describe_job(command: &[OsString], program: Option<&Path>, pid: u32, start_unix_ns: u64) -> Job {
    let uid = rustix::process::getuid().as_raw();
    Job {
        radrm_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        program: program.map(|path| path.to_string_lossy().into_owned()),
        program_sha256: None,
        cwd: std::env::current_dir().map_or_else(|_| "?".into(), |dir| dir.to_string_lossy().into_owned()),
        uid,
        user: account(uid).map(|account| account.name),
        host: radrm_os::host::node_name(),
        pid,
        start_unix_ns,
        emulated: None,
        environment: ENVIRONMENT
            .iter()
            .filter_map(|name| {
                Some(((*name).to_owned(), std::env::var_os(name)?.to_string_lossy().into_owned()))
            })
            .collect(),
    }
}

/// Account of a user, from the user database.
pub(crate) struct UserAccount {
    pub(crate) name: String,
    pub(crate) home: PathBuf,
}

pub(crate) fn account(uid: u32) -> Option<UserAccount> {
    // Directory services can hand out long entries; 64 KiB is beyond all.
    let mut buffer = vec![0u8; 64 << 10];
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call, and the length is the
    // buffer's.
    let error = unsafe {
        libc::getpwuid_r(uid, entry.as_mut_ptr(), buffer.as_mut_ptr().cast(), buffer.len(), &mut found)
    };
    if error != 0 || found.is_null() {
        return None;
    }
    // SAFETY: on success `found` points to `entry`, which is filled in, and
    // its strings are NUL-terminated and lie in `buffer`, which is alive.
    let (name, home) = unsafe { (CStr::from_ptr((*found).pw_name), CStr::from_ptr((*found).pw_dir)) };
    Some(UserAccount {
        name: name.to_string_lossy().into_owned(),
        home: PathBuf::from(OsString::from_vec(home.to_bytes().to_vec())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_knows_where_it_is() {
        let job = describe_job(&["python".into(), "a b".into()], Some(Path::new("/bin/python")), 7, 8);
        assert_eq!((job.command.len(), job.pid, job.start_unix_ns), (2, 7, 8));
        assert_eq!(job.cwd, std::env::current_dir().unwrap().to_string_lossy());
        assert!(!job.host.is_empty());
        assert!(job.environment.iter().all(|(name, _)| ENVIRONMENT.contains(&name.as_str())));
    }

    #[test]
    fn the_user_database_is_asked() {
        let root = account(0).unwrap();
        assert_eq!(root.name, "root");
        assert!(account(u32::MAX - 7).is_none());
    }
}
