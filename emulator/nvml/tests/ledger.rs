//! The library as programs load it, against the ledgers of a machine.

use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;

use radrm_emulator_machine::{Charge, ENV_MACHINE, Kind, Machine, MachineSpec};

struct Nvml(*mut c_void);

impl Nvml {
    fn open() -> Self {
        let exe = std::env::current_exe().unwrap();
        let path: PathBuf = exe.parent().unwrap().parent().unwrap().join("libradrm_emulated_nvml.so");
        let path = CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: loading runs the library's initialisers, which it has none of.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?}");
        Self(handle)
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the handle is open.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?} is not exported");
        address
    }
}

macro_rules! call {
    ($nvml:expr, $name:literal ($($arg:expr => $ty:ty),* $(,)?)) => {{
        // SAFETY: the types are those of the C prototype.
        let f: extern "C" fn($($ty),*) -> u32 = unsafe { std::mem::transmute($nvml.symbol($name)) };
        f($($arg),*)
    }};
}

const UNINITIALIZED: u32 = 1;
const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const INSUFFICIENT_SIZE: u32 = 7;
const VERSION_MISMATCH: u32 = 25;

#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Process {
    pid: u32,
    used: u64,
    instances: [u32; 2],
}

/// The structure of the first version: what lies between its fields is not the library's to fill.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct OldProcess {
    pid: u32,
    used: u64,
}

fn device(nvml: &Nvml, index: u32) -> usize {
    let mut device = 0_usize;
    assert_eq!(call!(nvml, "nvmlDeviceGetHandleByIndex_v2"(index => u32, &mut device => *mut usize)), 0);
    device
}

/// One test: the library keeps one machine per process, and the environment names it.
#[test]
fn figures_are_those_of_the_machines_ledgers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine");
    let machine = Machine::create(&MachineSpec::parse("1xH200+1xT4").unwrap(), &path).unwrap();
    // SAFETY: no other thread of this test reads the environment at this time.
    unsafe { std::env::set_var(ENV_MACHINE, &path) };
    let nvml = Nvml::open();

    let mut count = 0_u32;
    assert_eq!(call!(nvml, "nvmlDeviceGetCount_v2"(&mut count => *mut u32)), UNINITIALIZED);
    assert_eq!(call!(nvml, "nvmlInit_v2"()), 0);
    assert_eq!(call!(nvml, "nvmlInitWithFlags"(0 => u32)), 0);
    assert_eq!(call!(nvml, "nvmlDeviceGetCount_v2"(&mut count => *mut u32)), 0);
    assert_eq!(count, 2);
    let h200 = device(&nvml, 0);
    let mut none = 0_usize;
    assert_eq!(
        call!(nvml, "nvmlDeviceGetHandleByIndex_v2"(2 => u32, &mut none => *mut usize)),
        INVALID_ARGUMENT
    );

    let process = machine.join().unwrap();
    let mib = 1 << 20;
    process.context(0, true);
    process.charge(0, Charge::Context, 500 * mib, 500 * mib).unwrap();
    process.charge(0, Kind::Device, 3 * mib - 5, 4 * mib).unwrap();

    // Memory, both versions of the structure.
    let total = machine.memory(0).total;
    let mut v1 = [0_u64; 3];
    assert_eq!(call!(nvml, "nvmlDeviceGetMemoryInfo"(h200 => usize, &mut v1 => *mut [u64; 3])), 0);
    assert_eq!(v1, [total, total - 504 * mib, 504 * mib]);
    let mut v2 = [0_u64; 5];
    let ask =
        |v2: &mut [u64; 5]| call!(nvml, "nvmlDeviceGetMemoryInfo_v2"(h200 => usize, v2 => *mut [u64; 5]));
    assert_eq!(ask(&mut v2), VERSION_MISMATCH);
    assert_eq!(v2, [0; 5], "nothing is written to a structure of unknown version");
    v2[0] = 40 | 2 << 24;
    assert_eq!(ask(&mut v2), 0);
    assert_eq!(v2[1..], [total, 0, total - 504 * mib, 504 * mib]);

    // Processes: too little room says how much is needed.
    let (mut count, mut list) = (0_u32, [Process::default(); 2]);
    let ask = |count: &mut u32, list: *mut Process| call!(nvml, "nvmlDeviceGetComputeRunningProcesses_v3"(h200 => usize, count => *mut u32, list => *mut Process));
    assert_eq!((ask(&mut count, std::ptr::null_mut()), count), (INSUFFICIENT_SIZE, 1));
    count = 2;
    assert_eq!((ask(&mut count, list.as_mut_ptr()), count), (0, 1));
    assert_eq!((list[0].pid, list[0].used), (std::process::id(), 504 * mib));
    let (mut count, mut old) = (1_u32, OldProcess::default());
    let answer = call!(nvml, "nvmlDeviceGetComputeRunningProcesses"(
        h200 => usize, &mut count => *mut u32, &mut old => *mut OldProcess));
    assert_eq!((answer, old.pid, old.used), (0, std::process::id(), 504 * mib));

    // What belongs to the model of the device.
    let t4 = device(&nvml, 1);
    let mut architecture = 0_u32;
    assert_eq!(call!(nvml, "nvmlDeviceGetArchitecture"(t4 => usize, &mut architecture => *mut u32)), 0);
    assert_eq!(architecture, 6);
    let mut mode = [0_u32; 2];
    let mig = |device: usize, mode: &mut [u32; 2]| {
        let [now, pending] = mode;
        call!(nvml, "nvmlDeviceGetMigMode"(device => usize, now => *mut u32, pending => *mut u32))
    };
    assert_eq!((mig(t4, &mut mode), mig(h200, &mut mode)), (NOT_SUPPORTED, 0));
    let mut power = 0_u32;
    assert_eq!(call!(nvml, "nvmlDeviceGetPowerUsage"(t4 => usize, &mut power => *mut u32)), 0);
    assert_eq!(power, machine.gpu(1).unwrap().idle_power_w * 1000);

    // Everything comes back with the process.
    drop(process);
    assert_eq!(call!(nvml, "nvmlDeviceGetMemoryInfo"(h200 => usize, &mut v1 => *mut [u64; 3])), 0);
    assert_eq!(v1, [total, total, 0]);
    let mut count = 5_u32;
    assert_eq!((ask_none(&nvml, h200, &mut count), count), (0, 0));

    // A GPU off the bus, and back.
    const GPU_IS_LOST: u32 = 15;
    machine.set_lost(0, true);
    assert_eq!(call!(nvml, "nvmlDeviceGetMemoryInfo"(h200 => usize, &mut v1 => *mut [u64; 3])), GPU_IS_LOST);
    assert_eq!(call!(nvml, "nvmlDeviceGetMemoryInfo"(t4 => usize, &mut v1 => *mut [u64; 3])), 0);
    machine.set_lost(0, false);
    assert_eq!(call!(nvml, "nvmlDeviceGetMemoryInfo"(h200 => usize, &mut v1 => *mut [u64; 3])), 0);

    // As many shutdowns as initialisations.
    assert_eq!(call!(nvml, "nvmlShutdown"()), 0);
    assert_eq!(call!(nvml, "nvmlDeviceGetCount_v2"(&mut count => *mut u32)), 0);
    assert_eq!(call!(nvml, "nvmlShutdown"()), 0);
    assert_eq!(call!(nvml, "nvmlShutdown"()), 0, "the genuine library has no objection");
    // SAFETY: the text is a static of the library.
    let text = unsafe {
        let f: extern "C" fn(u32) -> *const std::ffi::c_char =
            std::mem::transmute(nvml.symbol("nvmlErrorString"));
        CStr::from_ptr(f(UNINITIALIZED))
    };
    assert_eq!(text, c"Uninitialized");
}

fn ask_none(nvml: &Nvml, device: usize, count: &mut u32) -> u32 {
    call!(nvml, "nvmlDeviceGetComputeRunningProcesses_v3"(
        device => usize, count => *mut u32, std::ptr::null_mut() => *mut Process))
}

#[test]
fn gpm_metrics_are_those_of_the_time_between_two_samples() {
    let machine = Machine::private(&MachineSpec::parse("H200").unwrap()).unwrap();
    let process = machine.join().unwrap();
    let (start, later) = (1_000_000_000, 2_000_000_000);
    let first = radrm_emulated_nvml::model::Sums::read(&machine, 0, start);
    process.launched(0, 3, 250_000_000);
    process.copied(0, 500_000_000);
    let second = radrm_emulated_nvml::model::Sums::read(&machine, 0, later);
    assert_eq!(second.shares_since(&first), (0.25, 0.5));
}
