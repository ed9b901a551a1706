//! Capture and graphs, as programs meet them.

mod common;

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use common::{Cuda, alloc, begin, free, isolated, memory};

const INVALID_VALUE: u32 = 1;
const ILLEGAL_STATE: u32 = 401;
const NOT_SUPPORTED: u32 = 801;
const UNSUPPORTED: u32 = 900;
const INVALIDATED: u32 = 901;
const MERGE: u32 = 902;
const UNMATCHED: u32 = 903;
const UNJOINED: u32 = 904;
const ISOLATION: u32 = 905;
const IMPLICIT: u32 = 906;
const CAPTURED_EVENT: u32 = 907;
const WRONG_THREAD: u32 = 908;
const UPDATE_FAILURE: u32 = 910;

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

type Handle = *mut c_void;
const NULL: Handle = std::ptr::null_mut();
const MIB: u64 = 1 << 20;

const PTX: &CStr =
    c".version 8.0\n.target sm_70\n.visible .entry empty() { ret; }\n.visible .entry other(.param .u32 n) { ret; }\n";

fn kernel(cuda: Cuda, name: &CStr) -> Handle {
    let (mut module, mut function) = (NULL, NULL);
    assert_eq!(call!(cuda, "cuModuleLoadData"(&mut module => *mut Handle, PTX.as_ptr() => *const c_char)), 0);
    assert_eq!(
        call!(cuda, "cuModuleGetFunction"(
        &mut function => *mut Handle, module => Handle, name.as_ptr() => *const c_char)),
        0
    );
    function
}

fn stream(cuda: Cuda, flags: u32) -> Handle {
    let mut stream = NULL;
    assert_eq!(call!(cuda, "cuStreamCreate"(&mut stream => *mut Handle, flags => u32)), 0);
    stream
}

fn event(cuda: Cuda) -> Handle {
    let mut event = NULL;
    assert_eq!(call!(cuda, "cuEventCreate"(&mut event => *mut Handle, 0 => u32)), 0);
    event
}

fn launch(cuda: Cuda, function: Handle, stream: Handle) -> u32 {
    call!(cuda, "cuLaunchKernel"(
        function => Handle, 64 => u32, 1 => u32, 1 => u32, 256 => u32, 1 => u32, 1 => u32, 0 => u32,
        stream => Handle, NULL => Handle, NULL => Handle))
}

fn begin_capture(cuda: Cuda, stream: Handle, mode: u32) -> u32 {
    call!(cuda, "cuStreamBeginCapture_v2"(stream => Handle, mode => u32))
}

fn end_capture(cuda: Cuda, stream: Handle) -> Result<Handle, u32> {
    let mut graph = 1 as Handle;
    match call!(cuda, "cuStreamEndCapture"(stream => Handle, &mut graph => *mut Handle)) {
        0 => Ok(graph),
        code => {
            assert!(graph.is_null(), "a capture that failed gives no graph");
            Err(code)
        }
    }
}

fn record(cuda: Cuda, event: Handle, stream: Handle) -> u32 {
    call!(cuda, "cuEventRecord"(event => Handle, stream => Handle))
}

fn wait(cuda: Cuda, stream: Handle, event: Handle) -> u32 {
    call!(cuda, "cuStreamWaitEvent"(stream => Handle, event => Handle, 0 => u32))
}

fn synchronize(cuda: Cuda, stream: Handle) -> u32 {
    call!(cuda, "cuStreamSynchronize"(stream => Handle))
}

fn status(cuda: Cuda, stream: Handle) -> Result<u32, u32> {
    let mut status = 9;
    match call!(cuda, "cuStreamIsCapturing"(stream => Handle, &mut status => *mut u32)) {
        0 => Ok(status),
        code => Err(code),
    }
}

fn nodes(cuda: Cuda, graph: Handle) -> Vec<Handle> {
    let mut count = 0_usize;
    assert_eq!(call!(cuda, "cuGraphGetNodes"(graph => Handle, NULL => Handle, &mut count => *mut usize)), 0);
    let mut nodes = vec![NULL; count];
    assert_eq!(
        call!(cuda, "cuGraphGetNodes"(
        graph => Handle, nodes.as_mut_ptr() => *mut Handle, &mut count => *mut usize)),
        0
    );
    nodes
}

fn kinds(cuda: Cuda, graph: Handle) -> Vec<u32> {
    let kind = |node: &Handle| {
        let mut kind = 99;
        assert_eq!(call!(cuda, "cuGraphNodeGetType"(*node => Handle, &mut kind => *mut u32)), 0);
        kind
    };
    nodes(cuda, graph).iter().map(kind).collect()
}

fn dependencies(cuda: Cuda, node: Handle) -> usize {
    let mut count = 99_usize;
    assert_eq!(
        call!(cuda, "cuGraphNodeGetDependencies"(
        node => Handle, NULL => Handle, &mut count => *mut usize)),
        0
    );
    count
}

fn instantiate(cuda: Cuda, graph: Handle, flags: u64) -> Result<Handle, u32> {
    let mut exec = NULL;
    match call!(cuda, "cuGraphInstantiateWithFlags"(&mut exec => *mut Handle, graph => Handle, flags => u64))
    {
        0 => Ok(exec),
        code => Err(code),
    }
}

fn launch_graph(cuda: Cuda, exec: Handle, stream: Handle) -> u32 {
    call!(cuda, "cuGraphLaunch"(exec => Handle, stream => Handle))
}

fn graph_memory(cuda: Cuda) -> [u64; 4] {
    [0, 1, 2, 3].map(|attribute: u32| {
        let mut value = 99_u64;
        assert_eq!(
            call!(cuda, "cuDeviceGetGraphMemAttribute"(
            0 => i32, attribute => u32, &mut value => *mut u64)),
            0
        );
        value
    })
}

#[test]
fn a_capture_makes_a_graph_of_what_was_submitted() {
    isolated("a_capture_makes_a_graph_of_what_was_submitted", &[], |cuda| {
        begin(cuda, 0);
        let (f, s, side) = (kernel(cuda, c"empty"), stream(cuda, 1), stream(cuda, 1));
        let address = alloc(cuda, 4096).unwrap();
        let (fork, join) = (event(cuda), event(cuda));
        assert_eq!(begin_capture(cuda, s, GLOBAL), 0);
        assert_eq!(begin_capture(cuda, s, GLOBAL), ILLEGAL_STATE);
        assert_eq!((status(cuda, s), status(cuda, side)), (Ok(1), Ok(0)));
        assert_eq!(launch(cuda, f, s), 0);
        assert_eq!(record(cuda, fork, s), 0);
        assert_eq!(wait(cuda, side, fork), 0);
        assert_eq!(status(cuda, side), Ok(1), "a stream that waits for a captured event joins");
        assert_eq!(launch(cuda, f, side), 0);
        assert_eq!(call!(cuda, "cuMemsetD8Async"(address => u64, 1 => u8, 64 => usize, s => Handle)), 0);
        assert_eq!(record(cuda, join, side), 0);
        assert_eq!(wait(cuda, s, join), 0);
        assert_eq!(
            call!(cuda, "cuMemcpyDtoDAsync_v2"(
            address + 64 => u64, address => u64, 64 => usize, s => Handle)),
            0
        );
        let graph = end_capture(cuda, s).unwrap();
        assert_eq!((status(cuda, s), status(cuda, side)), (Ok(0), Ok(0)));
        let kinds = kinds(cuda, graph);
        assert_eq!(kinds, [0, 0, 2, 1], "kernel, kernel, memset, copy");
        let counts: Vec<usize> = nodes(cuda, graph).into_iter().map(|n| dependencies(cuda, n)).collect();
        assert_eq!(counts, [0, 1, 1, 2]);
        assert_eq!(call!(cuda, "cuEventQuery"(fork => Handle)), CAPTURED_EVENT, "also after the capture");
        assert_eq!(wait(cuda, s, fork), CAPTURED_EVENT);
        assert_eq!(record(cuda, fork, s), 0);
        assert_eq!(call!(cuda, "cuEventQuery"(fork => Handle)), 0, "recorded again, it is an ordinary event");
        assert_eq!(call!(cuda, "cuGraphDestroy"(graph => Handle)), 0);
    });
}

#[test]
fn offences_invalidate_a_capture() {
    isolated("offences_invalidate_a_capture", &[], |cuda| {
        begin(cuda, 0);
        let (f, s, other) = (kernel(cuda, c"empty"), stream(cuda, 1), stream(cuda, 1));
        let plain = event(cuda);
        assert_eq!(record(cuda, plain, other), 0);
        let offence = |code: u32, work: &dyn Fn() -> u32| {
            assert_eq!(begin_capture(cuda, s, GLOBAL), 0);
            assert_eq!(launch(cuda, f, s), 0);
            assert_eq!(work(), code);
            assert_eq!(status(cuda, s), Ok(2));
            assert_eq!(launch(cuda, f, s), INVALIDATED);
            assert_eq!(end_capture(cuda, s), Err(INVALIDATED));
            assert_eq!(end_capture(cuda, s), Err(ILLEGAL_STATE));
        };
        offence(UNSUPPORTED, &|| alloc(cuda, 100).unwrap_err());
        offence(UNSUPPORTED, &|| call!(cuda, "cuEventQuery"(plain => Handle)));
        offence(UNSUPPORTED, &|| synchronize(cuda, s));
        offence(UNSUPPORTED, &|| call!(cuda, "cuStreamQuery"(s => Handle)));
        offence(UNSUPPORTED, &|| call!(cuda, "cuCtxSynchronize"()));
        offence(ISOLATION, &|| wait(cuda, s, plain));
        offence(MERGE, &|| {
            assert_eq!(begin_capture(cuda, other, GLOBAL), 0);
            let captured = event(cuda);
            assert_eq!(record(cuda, captured, s), 0);
            let code = wait(cuda, other, captured);
            assert_eq!(end_capture(cuda, other), Err(INVALIDATED));
            code
        });
        assert_eq!(begin_capture(cuda, NULL, GLOBAL), UNSUPPORTED, "the legacy stream");
    });
}

#[test]
fn the_legacy_stream_is_closed_while_a_blocking_stream_captures() {
    isolated("the_legacy_stream_is_closed_while_a_blocking_stream_captures", &[], |cuda| {
        begin(cuda, 0);
        let (f, blocking, free_stream) = (kernel(cuda, c"empty"), stream(cuda, 0), stream(cuda, 1));
        assert_eq!(begin_capture(cuda, free_stream, RELAXED), 0);
        assert_eq!((status(cuda, NULL), launch(cuda, f, NULL)), (Ok(0), 0));
        assert!(end_capture(cuda, free_stream).is_ok());
        assert_eq!(begin_capture(cuda, blocking, RELAXED), 0);
        assert_eq!(status(cuda, NULL), Err(IMPLICIT));
        assert_eq!(status(cuda, blocking), Ok(1), "asking does no harm");
        assert_eq!(launch(cuda, f, NULL), IMPLICIT);
        assert_eq!(end_capture(cuda, blocking), Err(INVALIDATED));
        let (address, mut word) = (alloc(cuda, 8).unwrap(), 0_u64);
        assert_eq!(begin_capture(cuda, blocking, RELAXED), 0);
        let copy = call!(cuda, "cuMemcpyDtoH_v2"(&mut word => *mut u64, address => u64, 8 => usize));
        assert_eq!(copy, IMPLICIT, "a synchronous copy uses the legacy stream");
        assert_eq!(end_capture(cuda, blocking), Err(INVALIDATED));
    });
}

#[test]
fn modes_say_whose_calls_are_prohibited() {
    isolated("modes_say_whose_calls_are_prohibited", &[], |cuda| {
        let context = begin(cuda, 0) as usize;
        let s = stream(cuda, 1);
        let elsewhere = |work: fn(Cuda) -> u32| {
            let enter = move || {
                assert_eq!(call!(cuda, "cuCtxSetCurrent"(context as Handle => Handle)), 0);
                work(cuda)
            };
            std::thread::spawn(enter).join().unwrap()
        };
        let allocate: fn(Cuda) -> u32 =
            |cuda| alloc(cuda, 100).map_or_else(|code| code, |address| free(cuda, address));
        let relaxed: fn(Cuda) -> u32 = |cuda| {
            let mut mode = RELAXED;
            assert_eq!(call!(cuda, "cuThreadExchangeStreamCaptureMode"(&mut mode => *mut u32)), 0);
            assert_eq!(mode, GLOBAL);
            alloc(cuda, 100).map_or_else(|code| code, |address| free(cuda, address))
        };
        let cases: [(u32, u32, u32); 3] =
            [(GLOBAL, UNSUPPORTED, UNSUPPORTED), (THREAD_LOCAL, UNSUPPORTED, 0), (RELAXED, 0, 0)];
        for (mode, here, there) in cases {
            assert_eq!(begin_capture(cuda, s, mode), 0);
            assert_eq!(elsewhere(relaxed), 0, "a thread that does not care, mode {mode}");
            assert_eq!(end_capture(cuda, s).map(drop), Ok(()));
            assert_eq!(begin_capture(cuda, s, mode), 0);
            assert_eq!(elsewhere(allocate), there, "another thread, mode {mode}");
            assert_eq!(end_capture(cuda, s).is_ok(), there == 0);
            assert_eq!(begin_capture(cuda, s, mode), 0);
            assert_eq!(allocate(cuda), here, "this thread, mode {mode}");
            assert_eq!(end_capture(cuda, s).is_ok(), here == 0);
        }
    });
}

#[test]
fn a_capture_ends_where_it_began() {
    isolated("a_capture_ends_where_it_began", &[], |cuda| {
        let context = begin(cuda, 0) as usize;
        let (f, s, side) = (kernel(cuda, c"empty"), stream(cuda, 1), stream(cuda, 1));
        let fork = event(cuda);
        let fork_off = || {
            assert_eq!(begin_capture(cuda, s, GLOBAL), 0);
            assert_eq!(record(cuda, fork, s), 0);
            assert_eq!(wait(cuda, side, fork), 0);
        };
        fork_off();
        assert_eq!(launch(cuda, f, side), 0);
        assert_eq!(end_capture(cuda, s), Err(UNJOINED));
        assert_eq!(status(cuda, side), Ok(0));
        fork_off();
        assert!(end_capture(cuda, s).is_ok(), "a side stream without work need not come back");
        fork_off();
        assert_eq!(end_capture(cuda, side), Err(UNMATCHED));
        assert_eq!(end_capture(cuda, s), Err(INVALIDATED));
        assert_eq!(begin_capture(cuda, s, GLOBAL), 0);
        let stream = s as usize;
        let elsewhere = std::thread::spawn(move || {
            assert_eq!(call!(cuda, "cuCtxSetCurrent"(context as Handle => Handle)), 0);
            end_capture(cuda, stream as Handle).map(drop)
        });
        assert_eq!(elsewhere.join().unwrap(), Err(WRONG_THREAD));
        assert!(end_capture(cuda, s).is_ok());
    });
}

#[test]
fn replayed_kernels_are_counted_and_take_time() {
    isolated("replayed_kernels_are_counted_and_take_time", &[], |cuda| {
        begin(cuda, 0);
        let (f, s) = (kernel(cuda, c"empty"), stream(cuda, 1));
        let (a, b, c) = (event(cuda), event(cuda), event(cuda));
        record(cuda, a, s);
        assert_eq!(launch(cuda, f, s), 0);
        record(cuda, b, s);
        assert_eq!(begin_capture(cuda, s, GLOBAL), 0);
        for _ in 0..5 {
            assert_eq!(launch(cuda, f, s), 0);
        }
        let graph = end_capture(cuda, s).unwrap();
        let exec = instantiate(cuda, graph, 0).unwrap();
        assert_eq!(call!(cuda, "cuGraphDestroy"(graph => Handle)), 0, "what is executable lives on its own");
        assert_eq!(launch_graph(cuda, exec, s), 0);
        record(cuda, c, s);
        assert_eq!(synchronize(cuda, s), 0);
        let elapsed = |from: Handle, to: Handle| {
            let mut ms = 0.0_f32;
            assert_eq!(
                call!(cuda, "cuEventElapsedTime"(&mut ms => *mut f32, from => Handle, to => Handle)),
                0
            );
            ms
        };
        let (one, five) = (elapsed(a, b), elapsed(b, c));
        assert!((five - 5.0 * one).abs() < 1e-5, "{five} is five times {one}");
        let machine = radrm_emulator_machine::Machine::from_environment().unwrap();
        let ledgers = machine.ledgers();
        assert_eq!(ledgers[0].gpu(0).unwrap().launches, 6);
        assert_eq!(call!(cuda, "cuGraphExecDestroy"(exec => Handle)), 0);
        assert_eq!(launch_graph(cuda, exec, s), INVALID_VALUE);
    });
}

#[test]
fn graph_memory_is_charged_at_launch_and_given_back_by_trimming() {
    isolated("graph_memory_is_charged_at_launch_and_given_back_by_trimming", &[], |cuda| {
        begin(cuda, 0);
        let s = stream(cuda, 1);
        let alloc_async = |bytes: usize| {
            let mut address = 0_u64;
            let code = call!(cuda, "cuMemAllocAsync"(&mut address => *mut u64, bytes => usize, s => Handle));
            assert_eq!(code, 0);
            address
        };
        let free_async =
            |address: u64| assert_eq!(call!(cuda, "cuMemFreeAsync"(address => u64, s => Handle)), 0);
        let before = memory(cuda).0;
        assert_eq!(begin_capture(cuda, s, GLOBAL), 0);
        let (first, kept) = (alloc_async(6 << 20), alloc_async(3 << 20));
        assert!(first != kept && first != 0 && kept != 0);
        free_async(first);
        let graph = end_capture(cuda, s).unwrap();
        assert_eq!(kinds(cuda, graph), [10, 10, 11]);
        let exec = instantiate(cuda, graph, 0).unwrap();
        assert_eq!(instantiate(cuda, graph, 0), Err(NOT_SUPPORTED), "one at a time");
        let mut copy = NULL;
        assert_eq!(call!(cuda, "cuGraphClone"(&mut copy => *mut Handle, graph => Handle)), NOT_SUPPORTED);
        assert_eq!((memory(cuda).0, graph_memory(cuda)), (before, [0; 4]), "nothing before the launch");

        assert_eq!(launch_graph(cuda, exec, s), 0);
        assert_eq!(graph_memory(cuda), [10 * MIB; 4], "the graph keeps what it had mapped");
        assert_eq!(memory(cuda).0, before - 10 * MIB);
        assert_eq!(launch_graph(cuda, exec, s), INVALID_VALUE, "what it allocated is still there");
        assert_eq!(call!(cuda, "cuMemsetD8_v2"(kept => u64, 0 => u8, 3 << 20 => usize)), 0);
        assert_eq!(call!(cuda, "cuDeviceGraphMemTrim"(0 => i32)), 0);
        assert_eq!((memory(cuda).0, graph_memory(cuda)[0]), (before - 4 * MIB, 4 * MIB), "what is in use");
        free_async(kept);
        assert_eq!(launch_graph(cuda, exec, s), 0);
        assert_eq!(free(cuda, kept), 0, "the plain way does too");
        assert_eq!(free(cuda, kept), INVALID_VALUE, "but not twice");
        assert_eq!(graph_memory(cuda)[0], 10 * MIB);
        assert_eq!(call!(cuda, "cuDeviceGraphMemTrim"(0 => i32)), 0);
        assert_eq!((memory(cuda).0, graph_memory(cuda)[0], graph_memory(cuda)[2]), (before, 0, 0));

        // With the flag a launch frees what the one before it left.
        assert_eq!(call!(cuda, "cuGraphExecDestroy"(exec => Handle)), 0);
        let exec = instantiate(cuda, graph, 1).unwrap();
        assert_eq!((launch_graph(cuda, exec, s), launch_graph(cuda, exec, s)), (0, 0));
        assert_eq!(graph_memory(cuda)[0], 10 * MIB);
    });
}

#[test]
fn a_graph_that_does_not_fit_takes_nothing() {
    isolated("a_graph_that_does_not_fit_takes_nothing", &[("RADRM_EMULATE", "T4")], |cuda| {
        begin(cuda, 0);
        let (s, before) = (stream(cuda, 1), memory(cuda).0);
        assert_eq!(begin_capture(cuda, s, GLOBAL), 0);
        let mut address = 0_u64;
        assert_eq!(
            call!(cuda, "cuMemAllocAsync"(&mut address => *mut u64, 64 << 30 => usize, s => Handle)),
            0
        );
        let graph = end_capture(cuda, s).unwrap();
        let exec = instantiate(cuda, graph, 0).unwrap();
        assert_eq!(launch_graph(cuda, exec, s), 2);
        assert_eq!((memory(cuda).0, graph_memory(cuda)[2]), (before, 0));
    });
}

static CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: *mut c_void) {
    CALLS.fetch_add(1, SeqCst);
}

#[test]
fn nodes_can_be_changed_disabled_and_updated() {
    isolated("nodes_can_be_changed_disabled_and_updated", &[], |cuda| {
        begin(cuda, 0);
        let (f, s) = (kernel(cuda, c"empty"), stream(cuda, 1));
        let record_graph = |kernels: u32, host: bool| {
            assert_eq!(begin_capture(cuda, s, GLOBAL), 0);
            for _ in 0..kernels {
                assert_eq!(launch(cuda, f, s), 0);
            }
            if host {
                assert_eq!(
                    call!(cuda, "cuLaunchHostFunc"(
                    s => Handle, count => extern "C" fn(*mut c_void), NULL => Handle)),
                    0
                );
            }
            end_capture(cuda, s).unwrap()
        };
        let graph = record_graph(2, true);
        let exec = instantiate(cuda, graph, 0).unwrap();
        for expected in 1..=3 {
            assert_eq!(launch_graph(cuda, exec, s), 0);
            assert_eq!(synchronize(cuda, s), 0);
            assert_eq!(CALLS.load(SeqCst), expected, "the host node is called at each launch");
        }
        let launches = || {
            let machine = radrm_emulator_machine::Machine::from_environment().unwrap();
            machine.ledgers()[0].gpu(0).unwrap().launches
        };
        let before = launches();
        let first = nodes(cuda, graph)[0];
        let enable =
            |on: u32| call!(cuda, "cuGraphNodeSetEnabled"(exec => Handle, first => Handle, on => u32));
        assert_eq!(enable(0), 0);
        assert_eq!((launch_graph(cuda, exec, s), launches()), (0, before + 1));
        assert_eq!(enable(1), 0);

        // Parameters: 7 words of shape behind the function.
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct Params {
            function: Handle,
            shape: [u32; 7],
            pointers: [Handle; 4],
        }
        let mut params = Params { function: NULL, shape: [0; 7], pointers: [NULL; 4] };
        assert_eq!(
            call!(cuda, "cuGraphKernelNodeGetParams_v2"(first => Handle, &mut params => *mut Params)),
            0
        );
        assert_eq!((params.function, params.shape), (f, [64, 1, 1, 256, 1, 1, 0]));
        params.shape[0] = 0;
        let set = |params: &Params| call!(cuda, "cuGraphExecKernelNodeSetParams_v2"(exec => Handle, first => Handle, params => *const Params));
        assert_eq!(set(&params), INVALID_VALUE);
        params.shape[0] = 7;
        assert_eq!(set(&params), 0);
        assert_eq!(
            call!(cuda, "cuGraphKernelNodeSetParams_v2"(first => Handle, &params => *const Params)),
            0
        );
        let mut again = params;
        assert_eq!(
            call!(cuda, "cuGraphKernelNodeGetParams_v2"(first => Handle, &mut again => *mut Params)),
            0
        );
        assert_eq!(again.shape[0], 7);

        let update = |graph: Handle| {
            let mut info = [9_u64; 3];
            let code = call!(cuda, "cuGraphExecUpdate_v2"(exec => Handle, graph => Handle, &mut info => *mut [u64; 3]));
            (code, info[0] as u32)
        };
        assert_eq!(update(record_graph(2, true)), (0, 0));
        assert_eq!(update(record_graph(3, true)), (UPDATE_FAILURE, 2), "another number of nodes");
        assert_eq!(update(record_graph(3, false)), (UPDATE_FAILURE, 3), "another kind of node");
    });
}

#[test]
fn graphs_are_built_cloned_and_nested_by_hand() {
    isolated("graphs_are_built_cloned_and_nested_by_hand", &[], |cuda| {
        begin(cuda, 0);
        let s = stream(cuda, 1);
        let create = || {
            let mut graph = NULL;
            assert_eq!(call!(cuda, "cuGraphCreate"(&mut graph => *mut Handle, 0 => u32)), 0);
            graph
        };
        let (outer, inner) = (create(), create());
        let host_node = |graph: Handle, before: &[Handle]| {
            let mut node = NULL;
            let params = [count as extern "C" fn(*mut c_void) as usize, 0];
            assert_eq!(
                call!(cuda, "cuGraphAddHostNode"(
                &mut node => *mut Handle, graph => Handle, before.as_ptr() => *const Handle,
                before.len() => usize, &params => *const [usize; 2])),
                0
            );
            node
        };
        let a = host_node(inner, &[]);
        host_node(inner, &[a]);
        let mut child = NULL;
        assert_eq!(
            call!(cuda, "cuGraphAddChildGraphNode"(
            &mut child => *mut Handle, outer => Handle, std::ptr::null() => *const Handle, 0 => usize,
            inner => Handle)),
            0
        );
        let last = host_node(outer, &[child]);
        let mut bad = NULL;
        assert_eq!(
            call!(cuda, "cuGraphAddEmptyNode"(
            &mut bad => *mut Handle, outer => Handle, &a => *const Handle, 1 => usize)),
            INVALID_VALUE,
            "of another graph"
        );
        let mut copy = NULL;
        assert_eq!(call!(cuda, "cuGraphClone"(&mut copy => *mut Handle, outer => Handle)), 0);
        let mut in_copy = NULL;
        assert_eq!(
            call!(cuda, "cuGraphNodeFindInClone"(&mut in_copy => *mut Handle, last => Handle, copy => Handle)),
            0
        );
        assert_eq!(nodes(cuda, copy)[1], in_copy);
        for graph in [inner, outer] {
            assert_eq!(call!(cuda, "cuGraphDestroy"(graph => Handle)), 0);
        }
        let exec = instantiate(cuda, copy, 0).unwrap();
        assert_eq!(launch_graph(cuda, exec, s), 0);
        assert_eq!(synchronize(cuda, s), 0);
        assert_eq!(CALLS.load(SeqCst), 3, "two of the child and one of its parent");

        // A launch into a capture is a child graph.
        assert_eq!(begin_capture(cuda, s, GLOBAL), 0);
        assert_eq!(launch_graph(cuda, exec, s), 0);
        let graph = end_capture(cuda, s).unwrap();
        assert_eq!(kinds(cuda, graph), [4]);
        assert_eq!(CALLS.load(SeqCst), 3, "nothing ran");
    });
}

#[test]
fn user_objects_are_destroyed_with_their_last_reference() {
    isolated("user_objects_are_destroyed_with_their_last_reference", &[], |cuda| {
        begin(cuda, 0);
        let (mut object, mut graph) = (NULL, NULL);
        assert_eq!(
            call!(cuda, "cuUserObjectCreate"(
            &mut object => *mut Handle, NULL => Handle, count => extern "C" fn(*mut c_void), 1 => u32, 1 => u32)),
            0
        );
        assert_eq!(call!(cuda, "cuGraphCreate"(&mut graph => *mut Handle, 0 => u32)), 0);
        assert_eq!(
            call!(cuda, "cuGraphRetainUserObject"(graph => Handle, object => Handle, 1 => u32, 1 => u32)),
            0
        );
        let exec = instantiate(cuda, graph, 0).unwrap();
        assert_eq!(call!(cuda, "cuGraphDestroy"(graph => Handle)), 0);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(CALLS.load(SeqCst), 0, "the executable graph still refers to it");
        assert_eq!(call!(cuda, "cuGraphExecDestroy"(exec => Handle)), 0);
        // The watchdog ends a wait that never succeeds.
        while CALLS.load(SeqCst) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(call!(cuda, "cuUserObjectRelease"(object => Handle, 1 => u32)), INVALID_VALUE);
    });
}
