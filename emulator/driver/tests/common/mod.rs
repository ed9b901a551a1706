//! Shared parts of the tests: the driver as programs meet it (`dlopen`), each test in a process of its own.
#![allow(dead_code)]

use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;
use std::process::{Child, Command};

/// Path of the library: beside the test, where `cargo test` builds it. The copy one folder up is made
/// by `cargo build` only and may be old.
pub fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("the test has a path");
    exe.with_file_name("libradrm_emulated_cuda.so")
}

/// The opened library.
#[derive(Clone, Copy)]
pub struct Cuda(*mut c_void);

// SAFETY: a handle of dlopen, which any thread may use.
unsafe impl Send for Cuda {}
// SAFETY: as for `Send`.
unsafe impl Sync for Cuda {}

impl Cuda {
    /// Opens the library.
    pub fn open() -> Self {
        let path = CString::new(library().into_os_string().into_encoded_bytes()).expect("a path");
        // SAFETY: loading runs the library's initialisers, which it has none of.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?}: {:?}", unsafe_error());
        Self(handle)
    }

    /// Address of an exported name; null if there is none.
    pub fn find(self, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("a name");
        // SAFETY: the handle is open.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    /// Address of an exported name.
    pub fn symbol(self, name: &str) -> *mut c_void {
        let address = self.find(name);
        assert!(!address.is_null(), "{name} is not exported");
        address
    }
}

fn unsafe_error() -> String {
    // SAFETY: dlerror gives a text or null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Calls an entry point: `call!(cuda, "cuMemAlloc_v2"(&mut address as *mut u64, 5usize))` gives the
/// result's number.
#[macro_export]
macro_rules! call {
    ($cuda:expr, $name:literal ($($arg:expr => $ty:ty),* $(,)?)) => {{
        let symbol = $cuda.symbol($name);
        // SAFETY: the types are those of the C prototype, and the driver checks what it is given.
        let f: extern "C" fn($($ty),*) -> u32 = unsafe { std::mem::transmute(symbol) };
        f($($arg),*)
    }};
}

const CHILD: &str = "RADRM_EMULATOR_TEST_CHILD";

/// Role of this process, if [`isolated`] or [`start`] started it to run the body.
pub fn role() -> Option<String> {
    std::env::var(CHILD).ok()
}

fn command(test: &str, role: &str, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test has a path"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    for name in ["CUDA_VISIBLE_DEVICES", "RADRM_EMULATED_MACHINE", "RADRM_EMULATE", "RADRM_EMULATOR_FAULTS"] {
        command.env_remove(name);
    }
    command.env(CHILD, role).envs(environment.iter().copied());
    command
}

/// Runs a test's body in a process of its own, which is ended after a minute.
pub fn isolated(test: &str, environment: &[(&str, &str)], body: impl FnOnce(Cuda)) {
    if role().is_some() {
        watchdog();
        body(Cuda::open());
        return;
    }
    let output = command(test, "main", environment).output().expect("the test can start itself");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test}: {}\n{text}", output.status);
}

/// Starts the same test in another process, with another role.
pub fn start(test: &str, role: &str, environment: &[(&str, &str)]) -> Child {
    command(test, role, environment)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the test can start itself")
}

/// Ends this process after a minute, whatever it does.
pub fn watchdog() {
    // SAFETY: the default action of the signal ends the process.
    unsafe { libc::alarm(60) };
}

/// Initialises the driver and makes a device's primary context current.
pub fn begin(cuda: Cuda, device: i32) -> *mut c_void {
    assert_eq!(call!(cuda, "cuInit"(0 => u32)), 0);
    let mut context: *mut c_void = std::ptr::null_mut();
    assert_eq!(call!(cuda, "cuDevicePrimaryCtxRetain"(&mut context => *mut *mut c_void, device => i32)), 0);
    assert_eq!(call!(cuda, "cuCtxSetCurrent"(context => *mut c_void)), 0);
    context
}

/// Free and total memory of the current device.
pub fn memory(cuda: Cuda) -> (u64, u64) {
    let (mut free, mut total) = (0usize, 0usize);
    assert_eq!(call!(cuda, "cuMemGetInfo_v2"(&mut free => *mut usize, &mut total => *mut usize)), 0);
    (free as u64, total as u64)
}

/// Allocates, or gives the code.
pub fn alloc(cuda: Cuda, bytes: usize) -> Result<u64, u32> {
    let mut address = 0;
    match call!(cuda, "cuMemAlloc_v2"(&mut address => *mut u64, bytes => usize)) {
        0 => Ok(address),
        code => Err(code),
    }
}

/// Frees.
pub fn free(cuda: Cuda, address: u64) -> u32 {
    call!(cuda, "cuMemFree_v2"(address => u64))
}
