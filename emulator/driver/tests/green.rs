//! Green contexts and the resources that they are made of.

mod common;

use std::ffi::{CString, c_char, c_void};

use common::{Cuda, alloc, begin, free, isolated, memory};

type Handle = *mut c_void;
type HostFunction = extern "C" fn(Handle);
type Resource = [u32; 36];

const NULL: Handle = std::ptr::null_mut();
const INVALID_VALUE: u32 = 1;
const INVALID_CONTEXT: u32 = 201;
const INVALID_HANDLE: u32 = 400;
const DESTROYED: u32 = 709;
const CAPTURE_UNSUPPORTED: u32 = 900;
const INVALID_TYPE: u32 = 914;
const INVALID_CONFIGURATION: u32 = 915;
const DETACHED: u32 = 917;
/// `CU_DEV_RESOURCE_TYPE_SM` and the two of work queues.
const SM: u32 = 1;
const QUEUE_CONFIG: u32 = 1000;
const QUEUE: u32 = 10000;
/// `smCount` in a resource.
const COUNT: usize = 24;
/// 132 multiprocessors.
const H100: &[(&str, &str)] = &[("RADRM_EMULATE", "H100-80GB")];

const PTX: &str = ".version 8.0\n.target sm_80\n.entry k() { ret; }\n";

fn of_device(cuda: Cuda, kind: u32) -> Result<Resource, u32> {
    let mut resource = [0u32; 36];
    match call!(cuda, "cuDeviceGetDevResource"(0 => i32, &mut resource => *mut Resource, kind => u32)) {
        0 => Ok(resource),
        code => Err(code),
    }
}

fn split(cuda: Cuda, input: &Resource, wanted: u32, least: u32) -> Result<(Vec<Resource>, Resource), u32> {
    let (mut groups, mut rest, mut count) = (vec![[0u32; 36]; wanted as usize], [0u32; 36], wanted);
    let code = call!(cuda, "cuDevSmResourceSplitByCount"(
        groups.as_mut_ptr() => *mut Resource, &mut count => *mut u32, input => *const Resource,
        &mut rest => *mut Resource, 0 => u32, least => u32));
    groups.truncate(count as usize);
    if code == 0 { Ok((groups, rest)) } else { Err(code) }
}

fn green(cuda: Cuda, resource: &Resource) -> Handle {
    let (mut descriptor, mut green) = (NULL, NULL);
    assert_eq!(
        call!(cuda, "cuDevResourceGenerateDesc"(&mut descriptor => *mut Handle, resource => *const Resource, 1 => u32)),
        0
    );
    assert_eq!(
        call!(cuda, "cuGreenCtxCreate"(&mut green => *mut Handle, descriptor => Handle, 0 => i32, 1 => u32)),
        0
    );
    green
}

fn view(cuda: Cuda, green: Handle) -> Handle {
    let mut context = NULL;
    assert_eq!(call!(cuda, "cuCtxFromGreenCtx"(&mut context => *mut Handle, green => Handle)), 0);
    context
}

fn stream_in(cuda: Cuda, green: Handle) -> Handle {
    let mut stream = NULL;
    assert_eq!(
        call!(cuda, "cuGreenCtxStreamCreate"(&mut stream => *mut Handle, green => Handle, 1 => u32, 0 => i32)),
        0
    );
    stream
}

fn event(cuda: Cuda) -> Handle {
    let mut event = NULL;
    assert_eq!(call!(cuda, "cuEventCreate"(&mut event => *mut Handle, 0 => u32)), 0);
    event
}

#[test]
fn resources_are_split_and_become_a_green_context() {
    isolated("resources_are_split_and_become_a_green_context", H100, |cuda| {
        begin(cuda, 0);
        let all = of_device(cuda, SM).unwrap();
        assert_eq!((all[0], &all[COUNT..COUNT + 3]), (SM, &[132, 8, 8][..]));
        assert_eq!(of_device(cuda, QUEUE_CONFIG).unwrap()[COUNT + 1], 8, "connections");
        assert_eq!(of_device(cuda, QUEUE), Err(INVALID_TYPE));
        assert_eq!(of_device(cuda, 7), Err(INVALID_TYPE));
        let mut asked = 0;
        let code = call!(cuda, "cuDevSmResourceSplitByCount"(NULL => Handle, &mut asked => *mut u32,
            &all => *const Resource, NULL => Handle, 0 => u32, 16 => u32));
        assert_eq!((code, asked), (0, 8));
        let (groups, rest) = split(cuda, &all, 2, 33).unwrap();
        assert_eq!((groups[0][COUNT], groups[1][COUNT], rest[COUNT]), (40, 40, 52));
        assert_eq!(split(cuda, &rest, 1, 8), Err(INVALID_CONFIGURATION), "not split again");
        assert_eq!(split(cuda, &all, 1, 133), Err(INVALID_VALUE));
        let own = green(cuda, &groups[0]);
        let mut has = [0u32; 36];
        assert_eq!(
            call!(cuda, "cuGreenCtxGetDevResource"(own => Handle, &mut has => *mut Resource, SM => u32)),
            0
        );
        assert_eq!(has[COUNT], 40);
        assert_eq!(
            call!(cuda, "cuCtxGetDevResource"(view(cuda, own) => Handle, &mut has => *mut Resource, SM => u32)),
            0
        );
        assert_eq!(has[COUNT], 40);
        assert_eq!(
            call!(cuda, "cuCtxGetDevResource"(NULL => Handle, &mut has => *mut Resource, SM => u32)),
            0
        );
        assert_eq!(has[COUNT], 132, "the current context is the primary one");
        let mut stream = NULL;
        let blocking = call!(cuda, "cuGreenCtxStreamCreate"(&mut stream => *mut Handle, own => Handle, 0 => u32, 0 => i32));
        assert_eq!(blocking, INVALID_VALUE);
        assert_eq!(
            call!(cuda, "cuCtxSetCurrent"(own => Handle)),
            INVALID_CONTEXT,
            "it must be converted first"
        );
        assert_eq!(split(cuda, &has, 1, 8).unwrap().0.len(), 1, "what a context has can be split");
    });
}

#[test]
fn groups_of_various_sizes_are_split_off() {
    isolated("groups_of_various_sizes_are_split_off", H100, |cuda| {
        begin(cuda, 0);
        let all = of_device(cuda, SM).unwrap();
        let (mut groups, mut results, mut rest) = ([[0u32; 16]; 2], [[0u32; 36]; 2], [0u32; 36]);
        (groups[0][0], groups[0][1]) = (20, 4);
        let mut ask = |groups: &mut [[u32; 16]; 2], flags: u32| {
            call!(cuda, "cuDevSmResourceSplit"(results.as_mut_ptr() => *mut Resource, 2 => u32, &all => *const Resource,
                &mut rest => *mut Resource, flags => u32, groups.as_mut_ptr() => *mut [u32; 16]))
        };
        assert_eq!(ask(&mut groups, 0), 0);
        assert_eq!((groups[0][0], groups[1][0]), (20, 112), "the second was to find out");
        assert_eq!(ask(&mut groups, 1), INVALID_VALUE, "no flags");
        groups[1][0] = 114;
        assert_eq!(ask(&mut groups, 0), INVALID_VALUE, "no multiple of 8");
        assert_eq!((results[0][COUNT], results[1][COUNT], rest[COUNT]), (20, 112, 0));
        assert_eq!(rest[0], 0, "nothing is not a resource");
    });
}

#[test]
fn memory_of_a_green_context_is_the_primary_contexts() {
    isolated("memory_of_a_green_context_is_the_primary_contexts", H100, |cuda| {
        let primary = begin(cuda, 0);
        let own = green(cuda, &of_device(cuda, SM).unwrap());
        assert_eq!(call!(cuda, "cuCtxPushCurrent_v2"(view(cuda, own) => Handle)), 0);
        let mut current = NULL;
        assert_eq!(call!(cuda, "cuCtxGetCurrent"(&mut current => *mut Handle)), 0);
        assert_eq!(current, view(cuda, own));
        let before = memory(cuda).0;
        let block = alloc(cuda, 8 << 20).unwrap();
        let mut id = 0u64;
        assert_eq!(call!(cuda, "cuGreenCtxGetId"(NULL => Handle, &mut id => *mut u64)), 0);
        assert_eq!(call!(cuda, "cuGreenCtxDestroy"(own => Handle)), 0);
        assert_eq!(call!(cuda, "cuGreenCtxDestroy"(own => Handle)), INVALID_CONTEXT);
        assert_eq!(alloc(cuda, 1), Err(DESTROYED), "what is current is gone");
        assert_eq!(call!(cuda, "cuCtxPopCurrent_v2"(&mut current => *mut Handle)), 0);
        assert_eq!(call!(cuda, "cuCtxGetCurrent"(&mut current => *mut Handle)), 0);
        assert_eq!(current, primary);
        assert_eq!(memory(cuda).0, before - (8 << 20), "the block stays");
        assert_eq!(free(cuda, block), 0);
    });
}

#[test]
fn a_green_context_keeps_the_primary_one_alive() {
    isolated("a_green_context_keeps_the_primary_one_alive", H100, |cuda| {
        assert_eq!(call!(cuda, "cuInit"(0 => u32)), 0);
        let state = || {
            let (mut flags, mut active) = (0u32, 9);
            assert_eq!(
                call!(cuda, "cuDevicePrimaryCtxGetState"(0 => i32, &mut flags => *mut u32, &mut active => *mut i32)),
                0
            );
            active
        };
        let own = green(cuda, &of_device(cuda, SM).unwrap());
        assert_eq!(state(), 1);
        begin(cuda, 0);
        assert_eq!(call!(cuda, "cuDevicePrimaryCtxRelease_v2"(0 => i32)), 0);
        assert_eq!(state(), 1);
        assert_eq!(call!(cuda, "cuGreenCtxDestroy"(own => Handle)), 0);
        assert_eq!(state(), 0);
    });
}

#[test]
fn streams_of_a_destroyed_green_context_are_detached() {
    isolated("streams_of_a_destroyed_green_context_are_detached", H100, |cuda| {
        begin(cuda, 0);
        let own = green(cuda, &of_device(cuda, SM).unwrap());
        let stream = stream_in(cuda, own);
        let (mut context, mut of) = (NULL, NULL);
        assert_eq!(call!(cuda, "cuStreamGetCtx"(stream => Handle, &mut context => *mut Handle)), 0);
        assert_eq!(context, view(cuda, own));
        let both = call!(cuda, "cuStreamGetCtx_v2"(stream => Handle, &mut context => *mut Handle, &mut of => *mut Handle));
        assert_eq!((both, context, of), (0, NULL, own));
        let mut plain = NULL;
        assert_eq!(call!(cuda, "cuStreamCreate"(&mut plain => *mut Handle, 1 => u32)), 0);
        assert_eq!(call!(cuda, "cuStreamGetGreenCtx"(plain => Handle, &mut of => *mut Handle)), 0);
        assert_eq!(of, NULL);
        assert_eq!(call!(cuda, "cuCtxSetCurrent"(view(cuda, own) => Handle)), 0);
        assert_eq!(call!(cuda, "cuStreamGetGreenCtx"(NULL => Handle, &mut of => *mut Handle)), 0);
        assert_eq!(of, own, "its default stream");
        assert_eq!(call!(cuda, "cuStreamBeginCapture_v2"(stream => Handle, 2 => u32)), 0);
        assert_eq!(call!(cuda, "cuGreenCtxDestroy"(own => Handle)), 0);
        assert_eq!(call!(cuda, "cuStreamQuery"(stream => Handle)), DETACHED);
        assert_eq!(call!(cuda, "cuStreamSynchronize"(stream => Handle)), DETACHED);
        assert_eq!(call!(cuda, "cuStreamDestroy_v2"(stream => Handle)), 0);
        assert_eq!(call!(cuda, "cuStreamDestroy_v2"(stream => Handle)), INVALID_HANDLE);
        assert_eq!(call!(cuda, "cuStreamQuery"(plain => Handle)), 0, "others go on");
    });
}

/// Time that a grid of 2,640 blocks takes in a stream (ms), on emulated GPUs whose time is real.
fn time_of(cuda: Cuda, function: Handle, stream: Handle) -> f32 {
    let (start, end, mut ms) = (event(cuda), event(cuda), 0f32);
    assert_eq!(call!(cuda, "cuEventRecord"(start => Handle, stream => Handle)), 0);
    assert_eq!(
        call!(cuda, "cuLaunchKernel"(function => Handle, 2640 => u32, 1 => u32, 1 => u32, 1024 => u32, 1 => u32,
        1 => u32, 0 => u32, stream => Handle, NULL => Handle, NULL => Handle)),
        0
    );
    assert_eq!(call!(cuda, "cuEventRecord"(end => Handle, stream => Handle)), 0);
    assert_eq!(call!(cuda, "cuEventSynchronize"(end => Handle)), 0);
    assert_eq!(call!(cuda, "cuEventElapsedTime"(&mut ms => *mut f32, start => Handle, end => Handle)), 0);
    ms
}

#[test]
fn kernels_of_a_green_context_have_its_multiprocessors_only() {
    isolated("kernels_of_a_green_context_have_its_multiprocessors_only", H100, |cuda| {
        begin(cuda, 0);
        let (mut module, mut function, ptx, name) = (NULL, NULL, CString::new(PTX).unwrap(), c"k");
        assert_eq!(
            call!(cuda, "cuModuleLoadData"(&mut module => *mut Handle, ptx.as_ptr() => *const c_char)),
            0
        );
        assert_eq!(
            call!(cuda, "cuModuleGetFunction"(&mut function => *mut Handle, module => Handle, name.as_ptr() => *const c_char)),
            0
        );
        let (groups, _) = split(cuda, &of_device(cuda, SM).unwrap(), 1, 16).unwrap();
        let part = stream_in(cuda, green(cuda, &groups[0]));
        let mut whole = NULL;
        assert_eq!(call!(cuda, "cuStreamCreate"(&mut whole => *mut Handle, 1 => u32)), 0);
        let (all, some) = (time_of(cuda, function, whole), time_of(cuda, function, part));
        // 10 waves on 132 multiprocessors with two blocks each, 83 on 16; a start of 1 us each.
        let waves = (some - 0.001) / (all - 0.001);
        assert!((8.0..8.6).contains(&waves), "{all} {some}");
    });
}

#[test]
fn an_event_stands_for_all_streams_of_a_context() {
    isolated("an_event_stands_for_all_streams_of_a_context", H100, |cuda| {
        extern "C" fn wait(flag: *mut c_void) {
            // SAFETY: the test keeps the flag until all work is done.
            let flag = unsafe { &*flag.cast::<std::sync::atomic::AtomicBool>() };
            while !flag.load(std::sync::atomic::Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
        let primary = begin(cuda, 0);
        let own = green(cuda, &of_device(cuda, SM).unwrap());
        let (busy, go) = (stream_in(cuda, own), std::sync::atomic::AtomicBool::new(false));
        let wait_for: HostFunction = wait;
        let flag = (&raw const go).cast_mut().cast::<c_void>();
        assert_eq!(
            call!(cuda, "cuLaunchHostFunc"(busy => Handle, wait_for => HostFunction, flag => Handle)),
            0
        );
        let (of_green, of_all) = (event(cuda), event(cuda));
        assert_eq!(call!(cuda, "cuGreenCtxRecordEvent"(own => Handle, of_green => Handle)), 0);
        assert_eq!(call!(cuda, "cuCtxRecordEvent"(primary => Handle, of_all => Handle)), 0);
        let query = |event: Handle| call!(cuda, "cuEventQuery"(event => Handle));
        assert_eq!((query(of_green), query(of_all)), (600, 600));
        // A second green context waits, and so does what is made in it later.
        let other = green(cuda, &of_device(cuda, SM).unwrap());
        let early = stream_in(cuda, other);
        assert_eq!(call!(cuda, "cuGreenCtxWaitEvent"(other => Handle, of_green => Handle)), 0);
        let late = stream_in(cuda, other);
        let stream_query = |stream: Handle| call!(cuda, "cuStreamQuery"(stream => Handle));
        assert_eq!((stream_query(early), stream_query(late)), (600, 600));
        go.store(true, std::sync::atomic::Ordering::SeqCst);
        for stream in [busy, early, late] {
            assert_eq!(call!(cuda, "cuStreamSynchronize"(stream => Handle)), 0);
        }
        assert_eq!(call!(cuda, "cuEventSynchronize"(of_all => Handle)), 0);
        assert_eq!((query(of_green), stream_query(late)), (0, 0));
        let behind_what_is_done = stream_in(cuda, other);
        assert_eq!(call!(cuda, "cuStreamSynchronize"(behind_what_is_done => Handle)), 0);
        assert_eq!(call!(cuda, "cuStreamBeginCapture_v2"(late => Handle, 2 => u32)), 0);
        assert_eq!(
            call!(cuda, "cuGreenCtxRecordEvent"(other => Handle, of_green => Handle)),
            CAPTURE_UNSUPPORTED
        );
        let mut graph = NULL;
        assert_eq!(call!(cuda, "cuStreamEndCapture"(late => Handle, &mut graph => *mut Handle)), 901);
    });
}

#[test]
fn descriptors_and_flags_are_checked() {
    isolated("descriptors_and_flags_are_checked", H100, |cuda| {
        begin(cuda, 0);
        let (all, mut out) = (of_device(cuda, SM).unwrap(), NULL);
        let describe = |resources: &[Resource], out: &mut Handle| call!(cuda, "cuDevResourceGenerateDesc"(out => *mut Handle, resources.as_ptr() => *const Resource, resources.len() as u32 => u32));
        assert_eq!(describe(&[], &mut out), INVALID_VALUE);
        assert_eq!(describe(&[[0; 36]], &mut out), INVALID_TYPE);
        let (one, _) = split(cuda, &all, 2, 8).unwrap();
        let (other, _) = split(cuda, &all, 2, 8).unwrap();
        assert_eq!(describe(&[one[0], other[1]], &mut out), INVALID_CONFIGURATION, "of two splits");
        assert_eq!(describe(&one, &mut out), 0);
        let create = |descriptor: Handle, device: i32, flags: u32| {
            let mut green = NULL;
            call!(cuda, "cuGreenCtxCreate"(&mut green => *mut Handle, descriptor => Handle, device => i32, flags => u32))
        };
        assert_eq!((create(NULL, 0, 1), create(out, 0, 2), create(out, 99, 1)), (1, 1, 101));
        assert_eq!(create(out, 0, 1), 0);
    });
}
