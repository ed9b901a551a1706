//! The functions that exist, and what those answer that monitors ask.

use std::ffi::{CString, c_void};

use radrm_emulator_machine::{ENV_MACHINE, Machine, MachineSpec};

struct Nvml(*mut c_void);

impl Nvml {
    fn open() -> Self {
        let exe = std::env::current_exe().unwrap();
        let path = exe.parent().unwrap().parent().unwrap().join("libradrm_emulated_nvml.so");
        let path = CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: loading runs the library's initialisers, which it has none of.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?}");
        Self(handle)
    }

    /// Calls a function with pointers and numbers; a C caller may pass more than it takes.
    fn call(&self, name: &str, arguments: &[usize]) -> u32 {
        let text = CString::new(name).unwrap();
        // SAFETY: the handle is open.
        let address = unsafe { libc::dlsym(self.0, text.as_ptr()) };
        assert!(!address.is_null(), "{name} is not exported");
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        let [a, b, c, d, e, f] = all;
        // SAFETY: every argument has a register of its own, and pointers lead to what the function writes.
        let function: extern "C" fn(usize, usize, usize, usize, usize, usize) -> u32 =
            unsafe { std::mem::transmute(address) };
        function(a, b, c, d, e, f)
    }
}

fn at<T>(place: &mut T) -> usize {
    std::ptr::from_mut(place) as usize
}

const UNINITIALIZED: u32 = 1;
const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const TIMEOUT: u32 = 10;
const VERSION_MISMATCH: u32 = 25;

/// One test: the library keeps one machine per process, and the environment names it.
#[test]
fn every_function_exists_and_monitors_get_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine");
    let machine = Machine::create(&MachineSpec::parse("1xH200+1xT4").unwrap(), &path).unwrap();
    // SAFETY: no other thread of this test reads the environment at this time.
    unsafe { std::env::set_var(ENV_MACHINE, &path) };
    let nvml = Nvml::open();
    let listed = include_str!("../data/functions.tsv").lines().filter(|line| !line.starts_with('#'));
    let names: Vec<&str> = listed.map(|line| line.split('\t').next().unwrap()).collect();
    assert!(names.len() >= 354, "{}", names.len());
    // The genuine library's shutdown has no objection.
    let free = ["nvmlErrorString", "nvmlShutdown"];
    for name in names.iter().filter(|name| !name.contains("Init") && !free.contains(name)) {
        assert_eq!(nvml.call(name, &[]), UNINITIALIZED, "{name}");
    }

    assert_eq!(nvml.call("nvmlInit_v2", &[]), 0);
    let device = |index: usize| {
        let mut device = 0_usize;
        assert_eq!(nvml.call("nvmlDeviceGetHandleByIndex", &[index, at(&mut device)]), 0);
        device
    };
    let (h200, t4) = (device(0), device(1));
    let number = |name: &str, device: usize| {
        let mut value = 7_u32;
        let code = nvml.call(name, &[device, at(&mut value)]);
        if code == 0 { Ok(value) } else { Err(code) }
    };
    assert_eq!(number("nvmlDeviceGetDriverModel", h200), Err(NOT_SUPPORTED));
    assert_eq!(number("nvmlDeviceGetPersistenceMode", h200), Ok(1));
    assert_eq!(number("nvmlDeviceGetPersistenceMode", 0), Err(INVALID_ARGUMENT));
    assert_eq!(
        [h200, t4].map(|d| number("nvmlDeviceGetRetiredPagesPendingStatus", d)),
        [Err(NOT_SUPPORTED), Ok(0)]
    );

    // A UUID with its prefix and without.
    let uuid = machine.spec().uuid_text(1);
    for text in [uuid.as_str(), uuid.strip_prefix("GPU-").unwrap(), &uuid.to_uppercase()] {
        let (text, mut found) = (CString::new(text).unwrap(), 0_usize);
        assert_eq!(nvml.call("nvmlDeviceGetHandleByUUID", &[text.as_ptr() as usize, at(&mut found)]), 0);
        assert_eq!(found, t4);
    }

    // Affinity: all processors, and the first NUMA node.
    let mut words = [7_u64; 3];
    assert_eq!(nvml.call("nvmlDeviceGetCpuAffinity", &[h200, 3, at(&mut words)]), 0);
    let cpus = std::fs::read_dir("/sys/devices/system/cpu").unwrap().flatten();
    let cpus = cpus.filter(|e| {
        e.file_name().to_str().is_some_and(|n| n.starts_with("cpu") && n[3..].parse::<u32>().is_ok())
    });
    assert_eq!(words.iter().map(|w| w.count_ones() as usize).sum::<usize>(), cpus.count().min(192));
    assert_eq!(nvml.call("nvmlDeviceGetMemoryAffinity", &[h200, 3, at(&mut words), 0]), 0);
    assert_eq!(words, [1, 0, 0]);
    assert_eq!(nvml.call("nvmlDeviceSetCpuAffinity", &[h200]), 0);

    // Clocks and states.
    let (mut low, mut high, spec) = (0_u32, 0_u32, machine.gpu(0).unwrap());
    assert_eq!(nvml.call("nvmlDeviceGetMinMaxClockOfPState", &[h200, 1, 0, at(&mut low), at(&mut high)]), 0);
    assert_eq!((low, high), (345, spec.clock_mhz));
    assert_eq!(
        nvml.call("nvmlDeviceGetMinMaxClockOfPState", &[h200, 1, 8, at(&mut low), at(&mut high)]),
        INVALID_ARGUMENT
    );
    let mut states = [9_u32; 4];
    assert_eq!(nvml.call("nvmlDeviceGetSupportedPerformanceStates", &[h200, at(&mut states), 16]), 0);
    assert_eq!(states, [0, 32, 32, 32]);

    // Structures that carry their version.
    let mut pdi = [0_u64; 2];
    assert_eq!(nvml.call("nvmlDeviceGetPdi", &[h200, at(&mut pdi)]), VERSION_MISMATCH);
    pdi[0] = 0x0100_0010;
    assert_eq!(nvml.call("nvmlDeviceGetPdi", &[h200, at(&mut pdi)]), 0);
    assert_ne!(pdi[1], 0);
    let mut capabilities = [0x0100_0008_u32, 7];
    assert_eq!(nvml.call("nvmlDeviceGetCapabilities", &[h200, at(&mut capabilities)]), 0);
    assert_eq!(capabilities[1], 0);
    let mut branch = [0_u8; 84];
    branch[..4].copy_from_slice(&0x0100_0054_u32.to_ne_bytes());
    assert_eq!(nvml.call("nvmlSystemGetDriverBranch", &[at(&mut branch), 80]), 0);
    assert!(branch[4..].starts_with(b"r5"), "{branch:?}");

    // Events: a wait ends without one, and with a GPU that falls off the bus.
    let (mut kinds, mut set) = (0_u64, 0_usize);
    assert_eq!(nvml.call("nvmlDeviceGetSupportedEventTypes", &[h200, at(&mut kinds)]), 0);
    assert_eq!(kinds & 8, 8);
    assert_eq!(nvml.call("nvmlEventSetCreate", &[at(&mut set)]), 0);
    assert_eq!(nvml.call("nvmlDeviceRegisterEvents", &[h200, 1 << 40, set]), NOT_SUPPORTED);
    assert_eq!(nvml.call("nvmlDeviceRegisterEvents", &[h200, kinds as usize, set]), 0);
    let mut event = [0_u64; 4];
    assert_eq!(nvml.call("nvmlEventSetWait_v2", &[set, at(&mut event), 1]), TIMEOUT);
    machine.set_lost(0, true);
    assert_eq!(nvml.call("nvmlEventSetWait_v2", &[set, at(&mut event), 1]), 0);
    assert_eq!(event[..3], [h200 as u64, 8, 79]);
    assert_eq!(nvml.call("nvmlEventSetWait_v2", &[set, at(&mut event), 1]), TIMEOUT, "reported once");
    assert_eq!(nvml.call("nvmlEventSetFree", &[set]), 0);
    assert_eq!(nvml.call("nvmlEventSetFree", &[set]), INVALID_ARGUMENT);
}
