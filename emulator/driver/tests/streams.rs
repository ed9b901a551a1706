//! Streams, events, virtual time, launches and code, as programs meet them.

mod common;

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use common::{Cuda, begin, isolated};

const INVALID_VALUE: u32 = 1;
const NO_BINARY: u32 = 209;
const INVALID_PTX: u32 = 218;
const INVALID_HANDLE: u32 = 400;
const NOT_FOUND: u32 = 500;
const NOT_READY: u32 = 600;
const LAUNCH_FAILED: u32 = 719;
const NOT_PERMITTED: u32 = 800;
const ILLEGAL_ADDRESS: u32 = 700;

type Handle = *mut c_void;
const NULL: Handle = std::ptr::null_mut();

const PTX: &CStr = c".version 8.0
.target sm_70
.address_size 64
.global .align 8 .b8 table[64];
.visible .entry work(.param .u64 a, .param .u32 n) .maxntid 256, 1, 1
{ .reg .b32 %r<9>; .shared .align 4 .b8 buffer[1024]; ret; }
.visible .entry empty() { ret; }
";

fn module(cuda: Cuda) -> Handle {
    let mut module = NULL;
    assert_eq!(call!(cuda, "cuModuleLoadData"(&mut module => *mut Handle, PTX.as_ptr() => *const c_char)), 0);
    module
}

fn function(cuda: Cuda, module: Handle, name: &CStr) -> Result<Handle, u32> {
    let mut function = NULL;
    match call!(cuda, "cuModuleGetFunction"(
        &mut function => *mut Handle, module => Handle, name.as_ptr() => *const c_char))
    {
        0 => Ok(function),
        code => Err(code),
    }
}

fn stream(cuda: Cuda, flags: u32) -> Handle {
    let mut stream = NULL;
    assert_eq!(call!(cuda, "cuStreamCreate"(&mut stream => *mut Handle, flags => u32)), 0);
    stream
}

fn event(cuda: Cuda, flags: u32) -> Handle {
    let mut event = NULL;
    assert_eq!(call!(cuda, "cuEventCreate"(&mut event => *mut Handle, flags => u32)), 0);
    event
}

fn launch(cuda: Cuda, function: Handle, blocks: u32, threads: u32, shared: u32, stream: Handle) -> u32 {
    call!(cuda, "cuLaunchKernel"(
        function => Handle, blocks => u32, 1 => u32, 1 => u32, threads => u32, 1 => u32, 1 => u32, shared => u32,
        stream => Handle, NULL => Handle, NULL => Handle))
}

fn record(cuda: Cuda, event: Handle, stream: Handle) {
    assert_eq!(call!(cuda, "cuEventRecord"(event => Handle, stream => Handle)), 0);
}

fn wait(cuda: Cuda, stream: Handle, event: Handle) {
    assert_eq!(call!(cuda, "cuStreamWaitEvent"(stream => Handle, event => Handle, 0 => u32)), 0);
}

/// Time between two events, after the work before them.
fn elapsed(cuda: Cuda, start: Handle, end: Handle) -> Result<f32, u32> {
    for event in [start, end] {
        assert_eq!(call!(cuda, "cuEventSynchronize"(event => Handle)), 0);
    }
    let mut ms = -1.0;
    match call!(cuda, "cuEventElapsedTime"(&mut ms => *mut f32, start => Handle, end => Handle)) {
        0 => Ok(ms),
        code => Err(code),
    }
}

fn synchronize(cuda: Cuda, stream: Handle) -> u32 {
    call!(cuda, "cuStreamSynchronize"(stream => Handle))
}

/// Time of one launch of `empty` in its own stream.
fn time_of(cuda: Cuda, kernel: Handle, blocks: u32) -> f32 {
    let (s, a, b) = (stream(cuda, 1), event(cuda, 0), event(cuda, 0));
    record(cuda, a, s);
    assert_eq!(launch(cuda, kernel, blocks, 256, 0, s), 0);
    record(cuda, b, s);
    elapsed(cuda, a, b).unwrap()
}

#[test]
fn time_between_events_is_the_work_between_them() {
    isolated("time_between_events_is_the_work_between_them", &[("RADRM_EMULATE", "A100-40GB")], |cuda| {
        begin(cuda, 0);
        let kernel = function(cuda, module(cuda), c"empty").unwrap();
        let once = time_of(cuda, kernel, 108 * 8);
        assert!(once > 0.0);
        assert_eq!(once, time_of(cuda, kernel, 108 * 8), "the same launch takes the same time");
        assert!(time_of(cuda, kernel, 108 * 80) > 5.0 * (once - 0.001));

        let (s, other) = (stream(cuda, 1), stream(cuda, 1));
        let [a, b, c, d] = [0; 4].map(|_| event(cuda, 0));
        record(cuda, a, s);
        assert_eq!(launch(cuda, kernel, 108 * 8, 256, 0, s), 0);
        record(cuda, b, s);
        assert_eq!(launch(cuda, kernel, 108 * 8, 256, 0, other), 0);
        record(cuda, c, other);
        assert!((elapsed(cuda, b, c).unwrap()).abs() < 1e-6, "streams run side by side");
        wait(cuda, other, b);
        assert_eq!(launch(cuda, kernel, 108 * 8, 256, 0, other), 0);
        record(cuda, d, other);
        assert!(
            (elapsed(cuda, b, d).unwrap() - once).abs() < 1e-6,
            "a stream that waited goes on after the event"
        );
        assert_eq!(synchronize(cuda, other), 0);
    });
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_only() {
    isolated("the_legacy_stream_waits_for_blocking_streams_only", &[], |cuda| {
        begin(cuda, 0);
        let kernel = function(cuda, module(cuda), c"empty").unwrap();
        let (blocking, free) = (stream(cuda, 0), stream(cuda, 1));
        let [start, in_blocking, in_free, in_legacy] = [0; 4].map(|_| event(cuda, 0));
        record(cuda, start, free);
        assert_eq!(launch(cuda, kernel, 100_000, 256, 0, blocking), 0);
        record(cuda, in_blocking, blocking);
        for _ in 0..3 {
            assert_eq!(launch(cuda, kernel, 100_000, 256, 0, free), 0);
        }
        record(cuda, in_free, free);
        assert_eq!(launch(cuda, kernel, 1, 32, 0, NULL), 0);
        record(cuda, in_legacy, NULL);
        assert!(elapsed(cuda, in_blocking, in_legacy).unwrap() > 0.0);
        assert!(elapsed(cuda, in_free, in_legacy).unwrap() < 0.0);
        // And the other way round.
        let after = event(cuda, 0);
        assert_eq!(launch(cuda, kernel, 1, 32, 0, blocking), 0);
        record(cuda, after, blocking);
        assert!(elapsed(cuda, in_legacy, after).unwrap() > 0.0);
    });
}

#[test]
fn events_answer_as_the_interface_says() {
    isolated("events_answer_as_the_interface_says", &[], |cuda| {
        begin(cuda, 0);
        let s = stream(cuda, 1);
        let (timed, untimed, never) = (event(cuda, 0), event(cuda, 2), event(cuda, 0));
        record(cuda, timed, s);
        record(cuda, untimed, s);
        assert_eq!(elapsed(cuda, timed, untimed), Err(INVALID_HANDLE), "an event without timing");
        assert_eq!(elapsed(cuda, timed, never), Err(INVALID_HANDLE), "an event that was never recorded");
        let kernel = function(cuda, module(cuda), c"empty").unwrap();
        assert_eq!(launch(cuda, kernel, 100_000, 256, 0, NULL), 0);
        record(cuda, timed, NULL);
        let mut ms = 0.0;
        let code = call!(cuda, "cuEventElapsedTime"(&mut ms => *mut f32, timed => Handle, never => Handle));
        assert_eq!(code, INVALID_HANDLE, "whether or not the other event is done");
        assert_eq!(call!(cuda, "cuEventQuery"(never => Handle)), 0);
        assert_eq!(call!(cuda, "cuEventSynchronize"(timed => Handle)), 0);
        assert_eq!(call!(cuda, "cuEventDestroy_v2"(timed => Handle)), 0);
        assert_eq!(call!(cuda, "cuEventQuery"(timed => Handle)), INVALID_HANDLE);
        assert_eq!(call!(cuda, "cuStreamQuery"(timed => Handle)), INVALID_HANDLE, "an event is not a stream");
    });
}

/// Queries an event as an allocator does with a block that two streams used.
/// The event is behind the other stream's work.
#[test]
fn work_is_done_in_modelled_time_where_time_is_not_real() {
    isolated("work_is_done_in_modelled_time_where_time_is_not_real", &[], |cuda| {
        begin(cuda, 0);
        let kernel = function(cuda, module(cuda), c"empty").unwrap();
        let (s, side) = (stream(cuda, 1), stream(cuda, 1));
        let e = event(cuda, 2);
        let handle = e as usize;
        let query = move || call!(cuda, "cuEventQuery"(std::ptr::without_provenance_mut(handle) => Handle));
        assert_eq!(launch(cuda, kernel, 100_000, 256, 0, side), 0);
        record(cuda, e, side);
        for _ in 0..100 {
            assert_eq!(query(), NOT_READY, "the side stream is busy");
            assert_eq!(launch(cuda, kernel, 1, 32, 0, s), 0);
        }
        assert_eq!(call!(cuda, "cuStreamQuery"(side => Handle)), NOT_READY);
        assert_eq!(
            std::thread::scope(|scope| scope.spawn(query).join().unwrap()),
            0,
            "a thread that only asks"
        );
        assert_eq!(query(), NOT_READY, "and changes nothing for others");
        // Later work that the host waits for brings the time of the earlier work.
        wait(cuda, s, e);
        assert_eq!((synchronize(cuda, s), query()), (0, 0));
        assert_eq!(call!(cuda, "cuStreamQuery"(side => Handle)), 0);

        // A loop that asks ends, and so does one that only launches.
        assert_eq!(launch(cuda, kernel, 100_000, 256, 0, side), 0);
        record(cuda, e, side);
        assert!((0..1000).any(|_| query() == 0));
        assert_eq!(launch(cuda, kernel, 1, 32, 0, side), 0);
        record(cuda, e, side);
        for _ in 0..2000 {
            assert_eq!(launch(cuda, kernel, 1, 32, 0, side), 0);
        }
        assert_eq!(query(), 0, "the stream holds no more than its queue");
    });
}

#[test]
fn real_time_passes_while_a_stream_is_busy() {
    let times = std::env::temp_dir().join(format!("radrm-kernel-times-{}", std::process::id()));
    std::fs::write(&times, "em* 80000000\n").unwrap();
    let environment = [
        ("RADRM_EMULATOR_TIME", "real"),
        ("RADRM_EMULATOR_KERNEL_TIMES", times.to_str().unwrap()),
        ("RADRM_EMULATE", "1xH200"),
    ];
    isolated("real_time_passes_while_a_stream_is_busy", &environment, |cuda| {
        begin(cuda, 0);
        let kernel = function(cuda, module(cuda), c"empty").unwrap();
        let s = stream(cuda, 1);
        let start = std::time::Instant::now();
        assert_eq!(launch(cuda, kernel, 1, 32, 0, s), 0);
        let e = event(cuda, 0);
        record(cuda, e, s);
        assert_eq!(call!(cuda, "cuStreamQuery"(s => Handle)), NOT_READY);
        assert_eq!(call!(cuda, "cuEventQuery"(e => Handle)), NOT_READY);
        assert_eq!(synchronize(cuda, s), 0);
        assert!(start.elapsed().as_millis() >= 80);
        assert_eq!(call!(cuda, "cuEventQuery"(e => Handle)), 0);
    });
    let _ = std::fs::remove_file(times);
}

static CALLS: AtomicU32 = AtomicU32::new(0);
static ORDER: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());

extern "C" fn note(data: *mut c_void) {
    ORDER.lock().unwrap().push(data as usize);
}

extern "C" fn slow(_: *mut c_void) {
    std::thread::sleep(std::time::Duration::from_millis(30));
    CALLS.fetch_add(1, SeqCst);
}

extern "C" fn callback(_stream: Handle, status: u32, data: *mut c_void) {
    ORDER.lock().unwrap().push(data as usize + status as usize);
}

fn host(cuda: Cuda, stream: Handle, function: extern "C" fn(*mut c_void), data: usize) {
    assert_eq!(
        call!(cuda, "cuLaunchHostFunc"(
        stream => Handle, function => extern "C" fn(*mut c_void), data as *mut c_void => Handle)),
        0
    );
}

#[test]
fn host_functions_run_once_each_in_the_order_of_their_streams() {
    isolated("host_functions_run_once_each_in_the_order_of_their_streams", &[], |cuda| {
        begin(cuda, 0);
        let (s, other) = (stream(cuda, 1), stream(cuda, 1));
        for i in 0..100 {
            host(cuda, s, note, i);
        }
        assert_eq!(
            call!(cuda, "cuStreamAddCallback"(
            s => Handle, callback => extern "C" fn(Handle, u32, *mut c_void), 100 as *mut c_void => Handle,
            0 => u32)),
            0
        );
        // Another stream that waits for this one comes after.
        let e = event(cuda, 2);
        record(cuda, e, s);
        wait(cuda, other, e);
        host(cuda, other, note, 101);
        assert_eq!(synchronize(cuda, other), 0);
        assert_eq!(*ORDER.lock().unwrap(), (0..102).collect::<Vec<_>>());

        host(cuda, s, slow, 0);
        assert_eq!(call!(cuda, "cuEventQuery"(e => Handle)), 0);
        record(cuda, e, s);
        assert_eq!(call!(cuda, "cuStreamQuery"(s => Handle)), NOT_READY);
        assert_eq!(call!(cuda, "cuEventSynchronize"(e => Handle)), 0);
        assert_eq!(CALLS.load(SeqCst), 1);
        // Destroying a stream does not lose its work.
        host(cuda, s, slow, 0);
        assert_eq!(call!(cuda, "cuStreamDestroy_v2"(s => Handle)), 0);
        assert_eq!(call!(cuda, "cuCtxSynchronize"()), 0);
        assert_eq!(CALLS.load(SeqCst), 2);
    });
}

static INSIDE: AtomicU32 = AtomicU32::new(u32::MAX);

extern "C" fn calls_the_driver(data: *mut c_void) {
    // SAFETY: the test hands over the address of cuStreamSynchronize.
    let f: extern "C" fn(Handle) -> u32 = unsafe { std::mem::transmute(data) };
    INSIDE.store(f(2 as Handle), SeqCst);
}

#[test]
fn a_host_function_that_waits_for_the_driver_is_refused() {
    isolated("a_host_function_that_waits_for_the_driver_is_refused", &[], |cuda| {
        begin(cuda, 0);
        let s = stream(cuda, 0);
        host(cuda, s, calls_the_driver, cuda.symbol("cuStreamSynchronize") as usize);
        assert_eq!(synchronize(cuda, s), 0);
        assert_eq!(INSIDE.load(SeqCst), NOT_PERMITTED);
    });
}

#[test]
fn a_stream_waits_for_a_value_that_another_one_writes() {
    isolated("a_stream_waits_for_a_value_that_another_one_writes", &[], |cuda| {
        begin(cuda, 0);
        let (waits, writes) = (stream(cuda, 1), stream(cuda, 1));
        let mut word = NULL;
        assert_eq!(call!(cuda, "cuMemAllocHost_v2"(&mut word => *mut Handle, 64 => usize)), 0);
        let address = word as u64;
        // SAFETY: host memory of 64 bytes.
        unsafe { word.cast::<u64>().write(0) };
        assert_eq!(
            call!(cuda, "cuStreamWaitValue64_v2"(waits => Handle, address => u64, 7 => u64, 0 => u32)),
            0
        );
        host(cuda, waits, note, 1);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(ORDER.lock().unwrap().is_empty());
        assert_eq!(call!(cuda, "cuStreamQuery"(waits => Handle)), NOT_READY);
        assert_eq!(
            call!(cuda, "cuStreamWriteValue64_v2"(writes => Handle, address => u64, 7 => u64, 0 => u32)),
            0
        );
        assert_eq!(synchronize(cuda, waits), 0);
        assert_eq!(*ORDER.lock().unwrap(), [1]);
    });
}

#[test]
fn launches_beyond_a_limit_are_refused() {
    isolated("launches_beyond_a_limit_are_refused", &[("RADRM_EMULATE", "A100-40GB")], |cuda| {
        begin(cuda, 0);
        let m = module(cuda);
        let (empty, bounded) = (function(cuda, m, c"empty").unwrap(), function(cuda, m, c"work").unwrap());
        assert_eq!(launch(cuda, empty, 1, 1024, 0, NULL), 0);
        assert_eq!(launch(cuda, empty, 1, 1025, 0, NULL), INVALID_VALUE, "block");
        assert_eq!(launch(cuda, empty, 0, 32, 0, NULL), INVALID_VALUE, "empty grid");
        assert_eq!(launch(cuda, empty, 1, 32, 48 << 10, NULL), 0);
        assert_eq!(launch(cuda, empty, 1, 32, (48 << 10) + 1, NULL), INVALID_VALUE, "shared memory");
        assert_eq!(call!(cuda, "cuFuncSetAttribute"(empty => Handle, 8 => u32, 100 << 10 => i32)), 0);
        assert_eq!(launch(cuda, empty, 1, 32, 100 << 10, NULL), 0, "after asking for more");
        assert_eq!(
            call!(cuda, "cuFuncSetAttribute"(empty => Handle, 8 => u32, 164 << 10 => i32)),
            INVALID_VALUE
        );
        assert_eq!(launch(cuda, bounded, 1, 32, 0, NULL), INVALID_VALUE, "no parameters");
        assert_eq!(launch(cuda, NULL, 1, 32, 0, NULL), INVALID_HANDLE);
        assert_eq!(launch(cuda, m, 1, 32, 0, NULL), INVALID_HANDLE, "a module is not a function");
        let cooperative = |blocks: u32| {
            call!(cuda, "cuLaunchCooperativeKernel"(
                empty => Handle, blocks => u32, 1 => u32, 1 => u32, 1024 => u32, 1 => u32, 1 => u32, 0 => u32,
                NULL => Handle, NULL => Handle))
        };
        assert_eq!((cooperative(216), cooperative(217)), (0, 720));
    });
}

#[test]
fn names_and_figures_of_functions_come_from_the_image() {
    isolated("names_and_figures_of_functions_come_from_the_image", &[("RADRM_EMULATE", "T4")], |cuda| {
        begin(cuda, 0);
        let m = module(cuda);
        assert_eq!(function(cuda, m, c"missing"), Err(NOT_FOUND));
        let work = function(cuda, m, c"work").unwrap();
        assert_eq!(function(cuda, m, c"work"), Ok(work), "one handle for one function");
        let attribute = |id: u32| {
            let mut value = -7;
            assert_eq!(
                call!(cuda, "cuFuncGetAttribute"(&mut value => *mut i32, id => u32, work => Handle)),
                0
            );
            value
        };
        assert_eq!((attribute(0), attribute(1), attribute(5), attribute(6)), (256, 1024, 70, 75));
        let (mut offset, mut size) = (0_usize, 0_usize);
        let info = |index: usize, offset: &mut usize, size: &mut usize| {
            call!(cuda, "cuFuncGetParamInfo"(
                work => Handle, index => usize, offset => *mut usize, size => *mut usize))
        };
        assert_eq!((info(1, &mut offset, &mut size), offset, size), (0, 8, 4));
        assert_eq!(info(2, &mut offset, &mut size), INVALID_VALUE);
        let (mut address, mut bytes) = (0_u64, 0_usize);
        assert_eq!(
            call!(cuda, "cuModuleGetGlobal_v2"(
            &mut address => *mut u64, &mut bytes => *mut usize, m => Handle, c"table".as_ptr() => *const c_char)),
            0
        );
        assert_eq!(bytes, 64);
        assert_eq!(call!(cuda, "cuMemsetD8_v2"(address => u64, 1 => u8, 64 => usize)), 0);
        assert_eq!(call!(cuda, "cuModuleUnload"(m => Handle)), 0);
        assert_eq!(launch(cuda, work, 1, 32, 0, NULL), INVALID_HANDLE, "functions go with their module");

        // A kernel in place of a function: launches take it, cuFuncGetName does not.
        let (mut library, mut kernel, mut name) = (NULL, NULL, std::ptr::null::<c_char>());
        assert_eq!(
            call!(cuda, "cuLibraryLoadData"(
            &mut library => *mut Handle, PTX.as_ptr() => *const c_char, NULL => Handle, NULL => Handle, 0 => u32,
            NULL => Handle, NULL => Handle, 0 => u32)),
            0
        );
        assert_eq!(
            call!(cuda, "cuLibraryGetKernel"(
            &mut kernel => *mut Handle, library => Handle, c"empty".as_ptr() => *const c_char)),
            0
        );
        assert_eq!(launch(cuda, kernel, 1, 32, 0, NULL), 0);
        assert_eq!(
            call!(cuda, "cuFuncGetName"(&mut name => *mut *const c_char, kernel => Handle)),
            INVALID_HANDLE
        );
        assert_eq!(call!(cuda, "cuKernelGetName"(&mut name => *mut *const c_char, kernel => Handle)), 0);
        // SAFETY: the name lives as long as the kernel.
        assert_eq!(unsafe { CStr::from_ptr(name) }, c"empty");
        let mut of_kernel = NULL;
        assert_eq!(call!(cuda, "cuKernelGetFunction"(&mut of_kernel => *mut Handle, kernel => Handle)), 0);
        assert_eq!(call!(cuda, "cuFuncGetName"(&mut name => *mut *const c_char, of_kernel => Handle)), 0);
    });
}

#[test]
fn code_for_other_devices_is_refused() {
    isolated("code_for_other_devices_is_refused", &[("RADRM_EMULATE", "T4")], |cuda| {
        begin(cuda, 0);
        let mut module = NULL;
        let mut load = |image: &[u8]| call!(cuda, "cuModuleLoadData"(&mut module => *mut Handle, image.as_ptr() => *const u8));
        assert_eq!(load(b".version 8.0\n.target sm_90\n.entry k() { ret; }\n\0"), INVALID_PTX);
        assert_eq!(load(b".version 8.0\n.target sm_70\n.entry k() {\0"), INVALID_PTX);
        assert_eq!(load(b"nothing of the kind\0"), 200);
        let mut fatbin = [0x50u8, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(load(&fatbin), NO_BINARY, "a container without code for this device");
        fatbin[8] = 8;
        assert_eq!(load(&[&fatbin[..], &[0; 8]].concat()), NO_BINARY);
    });
}

#[test]
fn linked_ptx_is_an_image_that_can_be_loaded() {
    isolated("linked_ptx_is_an_image_that_can_be_loaded", &[], |cuda| {
        begin(cuda, 0);
        let (mut link, mut image, mut size) = (NULL, NULL, 0_usize);
        assert_eq!(
            call!(cuda, "cuLinkCreate_v2"(
            0 => u32, NULL => Handle, NULL => Handle, &mut link => *mut Handle)),
            0
        );
        assert_eq!(
            call!(cuda, "cuLinkAddData_v2"(
            link => Handle, 1 => u32, PTX.as_ptr() => *const c_char, PTX.to_bytes_with_nul().len() => usize,
            c"a".as_ptr() => *const c_char, 0 => u32, NULL => Handle, NULL => Handle)),
            0
        );
        assert_eq!(
            call!(cuda, "cuLinkComplete"(
            link => Handle, &mut image => *mut Handle, &mut size => *mut usize)),
            0
        );
        assert!(size >= PTX.to_bytes().len());
        let mut module = NULL;
        assert_eq!(call!(cuda, "cuModuleLoadData"(&mut module => *mut Handle, image => Handle)), 0);
        assert_eq!(call!(cuda, "cuLinkDestroy"(link => Handle)), 0);
        assert!(function(cuda, module, c"empty").is_ok());
        assert_eq!(function(cuda, module, c"missing"), Err(NOT_FOUND));
    });
}

#[test]
fn faults_of_launches_come_when_they_were_asked_for() {
    let environment = [("RADRM_EMULATOR_FAULTS", "launch-fail@2,sticky@4")];
    isolated("faults_of_launches_come_when_they_were_asked_for", &environment, |cuda| {
        begin(cuda, 0);
        let kernel = function(cuda, module(cuda), c"empty").unwrap();
        let codes: Vec<u32> = (0..5).map(|_| launch(cuda, kernel, 1, 32, 0, NULL)).collect();
        assert_eq!(codes, [0, LAUNCH_FAILED, 0, ILLEGAL_ADDRESS, ILLEGAL_ADDRESS]);
        assert_eq!(synchronize(cuda, NULL), ILLEGAL_ADDRESS, "the context is broken");
    });
}
