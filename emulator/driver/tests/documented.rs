//! Behaviour of calls that programs seldom make, by the driver's documentation and a genuine library.

mod common;

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use common::{Cuda, begin, isolated};
use radrm_cuda_abi::{CUmemAccessDesc, CUmemAllocationProp, CUmemLocation, CUmemPoolProps};

type Handle = *mut c_void;

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const NULL: Handle = std::ptr::null_mut();

fn at(kind: u32, id: i32) -> CUmemLocation {
    CUmemLocation { kind: radrm_cuda_abi::CUmemLocationType(kind), id }
}

fn stream(cuda: Cuda) -> Handle {
    let mut stream = NULL;
    assert_eq!(call!(cuda, "cuStreamCreate"(&mut stream => *mut Handle, 1 => u32)), 0);
    stream
}

fn event(cuda: Cuda) -> Handle {
    let mut event = NULL;
    assert_eq!(call!(cuda, "cuEventCreate"(&mut event => *mut Handle, 2 => u32)), 0);
    event
}

fn begin_capture(cuda: Cuda, stream: Handle, mode: u32) {
    assert_eq!(call!(cuda, "cuStreamBeginCapture_v2"(stream => Handle, mode => u32)), 0);
}

fn end_capture(cuda: Cuda, stream: Handle) -> u32 {
    let mut graph = NULL;
    call!(cuda, "cuStreamEndCapture"(stream => Handle, &mut graph => *mut Handle))
}

/// The mapping calls of a process say nothing to a device, so a capture does not forbid them in any mode.
#[test]
fn memory_is_mapped_during_a_capture_of_every_mode() {
    isolated("memory_is_mapped_during_a_capture_of_every_mode", &[], |cuda| {
        begin(cuda, 0);
        let (size, s) = (2usize << 20, stream(cuda));
        // SAFETY: numbers and a null pointer, for which zeros are valid.
        let mut prop: CUmemAllocationProp = unsafe { std::mem::zeroed() };
        (prop.kind, prop.location) = (radrm_cuda_abi::CU_MEM_ALLOCATION_TYPE_PINNED, at(1, 0));
        let access = CUmemAccessDesc { location: at(1, 0), flags: 3 };
        for mode in 0..3 {
            begin_capture(cuda, s, mode);
            let (mut va, mut handle) = (0u64, 0u64);
            let codes = [
                call!(cuda, "cuMemAddressReserve"(&mut va => *mut u64, size => usize, 0 => usize, 0 => u64, 0 => u64)),
                call!(cuda, "cuMemCreate"(&mut handle => *mut u64, size => usize, &prop => *const CUmemAllocationProp, 0 => u64)),
                call!(cuda, "cuMemMap"(va => u64, size => usize, 0 => usize, handle => u64, 0 => u64)),
                call!(cuda, "cuMemSetAccess"(va => u64, size => usize, &access => *const CUmemAccessDesc, 1 => usize)),
                call!(cuda, "cuMemUnmap"(va => u64, size => usize)),
                call!(cuda, "cuMemRelease"(handle => u64)),
                call!(cuda, "cuMemAddressFree"(va => u64, size => usize)),
            ];
            assert_eq!(codes, [0; 7], "mode {mode}");
            assert_eq!(end_capture(cuda, s), 0, "mode {mode}");
        }
        begin_capture(cuda, s, 0);
        assert_eq!(common::alloc(cuda, 1024), Err(900), "plain allocations stay forbidden");
        assert_eq!(end_capture(cuda, s), 901);
    });
}

/// A stream that joins a capture, records something there, and is destroyed.
fn fork_and_destroy(cuda: Cuda, origin: Handle, join: bool) -> u32 {
    const UNJOINED: u32 = 904;
    let (fork, forked, done) = (stream(cuda), event(cuda), event(cuda));
    let memory = common::alloc(cuda, 1 << 20).unwrap();
    begin_capture(cuda, origin, 2);
    let set = |s: Handle| call!(cuda, "cuMemsetD8Async"(memory => u64, 0 => u8, 1024 => usize, s => Handle));
    assert_eq!(set(origin), 0);
    assert_eq!(call!(cuda, "cuEventRecord"(forked => Handle, origin => Handle)), 0);
    assert_eq!(call!(cuda, "cuStreamWaitEvent"(fork => Handle, forked => Handle, 0 => u32)), 0);
    assert_eq!(set(fork), 0);
    assert_eq!(call!(cuda, "cuEventRecord"(done => Handle, fork => Handle)), 0);
    assert_eq!(call!(cuda, "cuStreamDestroy_v2"(fork => Handle)), 0);
    if join {
        assert_eq!(call!(cuda, "cuStreamWaitEvent"(origin => Handle, done => Handle, 0 => u32)), 0);
    }
    let mut status = 9;
    assert_eq!(call!(cuda, "cuStreamIsCapturing"(origin => Handle, &mut status => *mut u32)), 0);
    assert_eq!(status, 1, "still active");
    let code = end_capture(cuda, origin);
    assert!(matches!(code, 0 | UNJOINED), "{code}");
    code
}

#[test]
fn destroying_a_forked_stream_ends_no_capture() {
    isolated("destroying_a_forked_stream_ends_no_capture", &[], |cuda| {
        begin(cuda, 0);
        let origin = stream(cuda);
        assert_eq!(fork_and_destroy(cuda, origin, true), 0);
        assert_eq!(fork_and_destroy(cuda, origin, false), 904, "what it did was never joined");
    });
}

fn pool_props(kind: u32, location: CUmemLocation, max: usize) -> CUmemPoolProps {
    // SAFETY: numbers and a null pointer, for which zeros are valid.
    let mut props: CUmemPoolProps = unsafe { std::mem::zeroed() };
    (props.allocType, props.location, props.maxSize) =
        (radrm_cuda_abi::CUmemAllocationType(kind), location, max);
    props
}

fn pool(cuda: Cuda, props: &CUmemPoolProps) -> Result<Handle, u32> {
    let mut pool = NULL;
    match call!(cuda, "cuMemPoolCreate"(&mut pool => *mut Handle, props => *const CUmemPoolProps)) {
        0 => Ok(pool),
        code => Err(code),
    }
}

fn from_pool(cuda: Cuda, pool: Handle, bytes: usize) -> Result<u64, u32> {
    let mut address = 0;
    match call!(cuda, "cuMemAllocFromPoolAsync"(&mut address => *mut u64, bytes => usize, pool => Handle, NULL => Handle))
    {
        0 => Ok(address),
        code => Err(code),
    }
}

#[test]
fn the_largest_size_of_a_pool_is_rounded_up() {
    isolated("the_largest_size_of_a_pool_is_rounded_up", &[], |cuda| {
        begin(cuda, 0);
        let small = pool(cuda, &pool_props(1, at(1, 0), 2048)).unwrap();
        assert!(from_pool(cuda, small, 64).is_ok());
        let larger = pool(cuda, &pool_props(1, at(1, 0), 3 << 20)).unwrap();
        assert!(from_pool(cuda, larger, 2 << 20).is_ok() && from_pool(cuda, larger, 2 << 20).is_ok());
        assert_eq!(from_pool(cuda, larger, 64), Err(OUT_OF_MEMORY));
    });
}

#[test]
fn no_bytes_of_a_pool_are_an_allocation() {
    isolated("no_bytes_of_a_pool_are_an_allocation", &[], |cuda| {
        begin(cuda, 0);
        let take = || {
            let mut address = 0u64;
            let code = call!(cuda, "cuMemAllocAsync"(&mut address => *mut u64, 0 => usize, NULL => Handle));
            (code, address)
        };
        let (one, other) = (take(), take());
        assert_eq!((one.0, other.0), (0, 0));
        assert!(one.1 != 0 && one.1 != other.1);
        for (_, address) in [one, other] {
            assert_eq!(call!(cuda, "cuMemFreeAsync"(address => u64, NULL => Handle)), 0);
        }
    });
}

#[test]
fn pools_of_managed_memory_exist_since_cuda_13() {
    const RESERVED_CURRENT: u32 = 5;
    const USED_CURRENT: u32 = 7;
    isolated(
        "pools_of_managed_memory_exist_since_cuda_13",
        &[("RADRM_EMULATE", "H200,driver=13000")],
        |cuda| {
            begin(cuda, 0);
            let attribute = |pool: Handle, number: u32| {
                let mut value = 0u64;
                assert_eq!(
                    call!(cuda, "cuMemPoolGetAttribute"(pool => Handle, number => u32, &mut value => *mut u64)),
                    0
                );
                value
            };
            let made = pool(cuda, &pool_props(2, at(1, 0), 4 << 20)).unwrap();
            let address = from_pool(cuda, made, 3 << 20).unwrap();
            assert_eq!([RESERVED_CURRENT, USED_CURRENT].map(|a| attribute(made, a)), [3 << 20; 2]);
            assert_eq!(from_pool(cuda, made, 2 << 20), Err(OUT_OF_MEMORY));
            let mut managed = 0u32;
            let code =
                call!(cuda, "cuPointerGetAttribute"(&mut managed => *mut u32, 8 => u32, address => u64));
            assert_eq!((code, managed), (0, 1));
            assert_eq!(call!(cuda, "cuMemFreeAsync"(address => u64, NULL => Handle)), 0);
            assert_eq!(attribute(made, USED_CURRENT), 0);
            // The default and the current pool of a place; a pool of another place cannot be it.
            let place = at(0, 0);
            let get = |name: &str| {
                let mut pool = NULL;
                let code = match name {
                    "default" => {
                        call!(cuda, "cuMemGetDefaultMemPool"(&mut pool => *mut Handle, &place => *const CUmemLocation, 2 => u32))
                    }
                    _ => {
                        call!(cuda, "cuMemGetMemPool"(&mut pool => *mut Handle, &place => *const CUmemLocation, 2 => u32))
                    }
                };
                (code, pool)
            };
            let (code, default) = get("default");
            assert!(code == 0 && !default.is_null() && get("current").1 == default);
            let set = |pool: Handle| call!(cuda, "cuMemSetMemPool"(&place => *const CUmemLocation, 2 => u32, pool => Handle));
            assert_eq!(set(made), INVALID_VALUE);
            let own = pool(cuda, &pool_props(2, place, 0)).unwrap();
            assert_eq!((set(own), get("current").1 == own, get("default").1 == default), (0, true, true));
            assert_eq!(call!(cuda, "cuMemPoolDestroy"(default => Handle)), INVALID_VALUE);
            assert_eq!(call!(cuda, "cuMemPoolDestroy"(own => Handle)), 0);
            assert!(get("current").1 == default);
            assert_eq!(call!(cuda, "cuMemPoolDestroy"(made => Handle)), 0);
        },
    );
}

#[test]
fn older_drivers_have_no_pools_of_managed_memory() {
    let environment = [("RADRM_EMULATE", "H200,driver=12080")];
    isolated("older_drivers_have_no_pools_of_managed_memory", &environment, |cuda| {
        begin(cuda, 0);
        assert_eq!(pool(cuda, &pool_props(2, at(1, 0), 0)), Err(INVALID_VALUE));
    });
}

#[test]
fn advice_about_managed_memory_is_remembered() {
    isolated("advice_about_managed_memory_is_remembered", &[], |cuda| {
        begin(cuda, 0);
        let (mut memory, size) = (0u64, 4usize << 20);
        assert_eq!(call!(cuda, "cuMemAllocManaged"(&mut memory => *mut u64, size => usize, 1 => u32)), 0);
        let get = |attribute: u32, address: u64, size: usize| {
            let mut value = [7i32; 2];
            let bytes = if attribute == 3 { 8 } else { 4 };
            let code = call!(cuda, "cuMemRangeGetAttribute"(
                &mut value => *mut [i32; 2], bytes => usize, attribute => u32, address => u64, size => usize));
            assert_eq!(code, 0);
            value
        };
        let all = |attribute| get(attribute, memory, size);
        assert_eq!([1, 2, 4].map(|a| all(a)[0]), [0, -2, -2]);
        assert_eq!(all(3), [-2, -2]);
        let advise = |advice: u32, location: CUmemLocation, size: usize| call!(cuda, "cuMemAdvise_v2"(memory => u64, size => usize, advice => u32, location => CUmemLocation));
        assert_eq!([1, 3, 5].map(|advice| advise(advice, at(1, 0), size)), [0; 3]);
        assert_eq!(advise(5, at(2, 0), size / 2), 0);
        assert_eq!(([1, 2, 5, 6].map(|a| all(a)[0]), all(3)), ([1, 0, 1, 0], [0, -2]));
        assert_eq!(get(3, memory, size / 2), [0, -1], "the host comes last");
        assert_eq!(advise(2, at(0, 0), size / 2), 0, "the location does not count");
        assert_eq!((all(1)[0], get(1, memory + (size / 2) as u64, size / 2)[0]), (0, 1));
        assert_eq!(
            call!(cuda, "cuMemPrefetchAsync"(memory => u64, size => usize, -1 => i32, NULL => Handle)),
            0
        );
        assert_eq!((all(4)[0], all(7)[0]), (-1, 2));
        assert_eq!(advise(3, at(9, 0), size), INVALID_VALUE);
        assert_eq!(common::free(cuda, memory), 0);
    });
}

#[test]
fn every_error_has_the_drivers_name_and_words() {
    isolated("every_error_has_the_drivers_name_and_words", &[], |cuda| {
        let text = |code: u32| {
            let (mut name, mut words): (*const c_char, *const c_char) = (std::ptr::null(), std::ptr::null());
            let found = call!(cuda, "cuGetErrorName"(code => u32, &mut name => *mut *const c_char));
            assert_eq!(call!(cuda, "cuGetErrorString"(code => u32, &mut words => *mut *const c_char)), found);
            // SAFETY: the driver gave texts.
            (found == 0)
                .then(|| unsafe { (CStr::from_ptr(name).to_owned(), CStr::from_ptr(words).to_owned()) })
        };
        assert_eq!((0..1100).filter(|code| text(*code).is_some()).count(), 106);
        assert_eq!(text(5).unwrap().0, *c"CUDA_ERROR_PROFILER_DISABLED");
        assert_eq!(
            text(912).unwrap().1,
            *c"a kernel launch error has occurred due to cluster misconfiguration"
        );
        assert_eq!(text(919).unwrap().0, *c"CUDA_ERROR_FABRIC_NOT_READY");
    });
}

/// The driver checks some arguments before its own state.
#[test]
fn arguments_are_checked_before_the_state() {
    isolated("arguments_are_checked_before_the_state", &[], |cuda| {
        let empty = |name: &str| {
            let symbol = cuda.symbol(name);
            // SAFETY: more arguments than the functions take; the C convention lets callers pass them.
            let f: extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64) -> u32 =
                unsafe { std::mem::transmute(symbol) };
            f(0, 0, 0, 0, 0, 0, 0, 0)
        };
        let expected = [
            ("cuStreamCreate", 1),
            ("cuStreamIsCapturing_ptsz", 1),
            ("cuEventQuery", 400),
            ("cuArrayGetDescriptor_v2", 400),
            ("cuEGLStreamConsumerConnect", 400),
            ("cuGreenCtxRecordEvent", 201),
            ("cuMemGetAddressRange_v2", 0),
            ("cuDriverGetVersion", 1),
            ("cuGetExportTable", 1),
            ("cuMemAlloc_v2", 3),
            ("cuTexRefCreate", 3),
            ("cuGLInit", 3),
        ];
        for (name, code) in expected {
            assert_eq!(empty(name), code, "{name}");
        }
        let (mut stream, mut state) = (NULL, 0u32);
        assert_eq!(call!(cuda, "cuStreamCreate"(&mut stream => *mut Handle, 0 => u32)), 3);
        // Checkpoints need no initialised driver in the process that makes them.
        assert_eq!(
            call!(cuda, "cuCheckpointProcessGetState"(0 => i32, &mut state => *mut u32)),
            INVALID_VALUE
        );
    });
}

#[test]
fn pointers_and_ranges_answer_as_the_tests_of_cuda_python_expect() {
    isolated("pointers_and_ranges_answer_as_the_tests_of_cuda_python_expect", &[], |cuda| {
        begin(cuda, 0);
        let (mut managed, mut pool) = (0_u64, NULL);
        assert_eq!(call!(cuda, "cuMemAllocManaged"(&mut managed => *mut u64, 4096 => usize, 1 => u32)), 0);
        let code = call!(cuda, "cuPointerGetAttribute"(&mut pool => *mut Handle, 17 => u32, managed => u64));
        assert_eq!((code, pool), (0, NULL), "memory of no pool");
        for device in [-1, 0] {
            assert_eq!(call!(cuda, "cuMemAdvise"(managed => u64, 4096 => usize, 5 => u32, device => i32)), 0);
        }
        let mut accessed_by = [9_i32; 3];
        let code = call!(cuda, "cuMemRangeGetAttribute"(
            accessed_by.as_mut_ptr() => *mut i32, 12 => usize, 3 => u32, managed => u64, 4096 => usize));
        assert_eq!((code, accessed_by), (0, [0, -1, -2]), "devices, the host, nothing");
        let own = vec![0_u8; 8192];
        let code = call!(cuda, "cuMemHostRegister_v2"(own.as_ptr() => *const u8, 8192 => usize, 3 => u32));
        assert_eq!(code, 0);
        let unregister = |at: usize| call!(cuda, "cuMemHostUnregister"(own[at..].as_ptr() => *const u8));
        assert_eq!([unregister(4096), unregister(0), unregister(0)], [INVALID_VALUE, 0, 713]);
    });
}

#[test]
fn profiling_begins_and_ends_in_a_context() {
    isolated("profiling_begins_and_ends_in_a_context", &[], |cuda| {
        begin(cuda, 0);
        assert_eq!([call!(cuda, "cuProfilerStart"()), call!(cuda, "cuProfilerStop"())], [0, 0]);
    });
}

fn graph(cuda: Cuda) -> Handle {
    let mut graph = NULL;
    assert_eq!(call!(cuda, "cuGraphCreate"(&mut graph => *mut Handle, 0 => u32)), 0);
    graph
}

static DESTROYED: AtomicU32 = AtomicU32::new(0);

extern "C" fn destroyed(bit: *mut c_void) {
    DESTROYED.fetch_or(bit as usize as u32, SeqCst);
}

/// A graph with an empty node that holds the only reference to a user object.
fn with_object(cuda: Cuda, bit: usize) -> Handle {
    let (graph, mut object, mut node) = (graph(cuda), NULL, NULL);
    let data = std::ptr::without_provenance_mut::<c_void>(bit);
    let code = call!(cuda, "cuUserObjectCreate"(
        &mut object => *mut Handle, data => Handle, destroyed => extern "C" fn(*mut c_void), 1 => u32, 1 => u32));
    assert_eq!(code, 0);
    assert_eq!(
        call!(cuda, "cuGraphRetainUserObject"(graph => Handle, object => Handle, 1 => u32, 1 => u32)),
        0
    );
    let code = call!(cuda, "cuGraphAddEmptyNode"(
        &mut node => *mut Handle, graph => Handle, std::ptr::null() => *const Handle, 0 => usize));
    assert_eq!(code, 0);
    graph
}

fn add_child(cuda: Cuda, graph: Handle, child: Handle) -> Handle {
    let mut node = NULL;
    let code = call!(cuda, "cuGraphAddChildGraphNode"(
        &mut node => *mut Handle, graph => Handle, std::ptr::null() => *const Handle, 0 => usize, child => Handle));
    assert_eq!(code, 0);
    node
}

fn instantiate(cuda: Cuda, graph: Handle) -> Handle {
    let mut exec = NULL;
    assert_eq!(
        call!(cuda, "cuGraphInstantiateWithFlags"(&mut exec => *mut Handle, graph => Handle, 0 => u64)),
        0
    );
    exec
}

/// Waits for the worker to destroy what has no references; the watchdog ends a wait that never succeeds.
#[track_caller]
fn expect_destroyed(expected: u32) {
    while DESTROYED.load(SeqCst) & expected != expected {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert_eq!(DESTROYED.load(SeqCst), expected);
}

#[test]
fn user_objects_follow_the_updates_of_an_executable_graph() {
    isolated("user_objects_follow_the_updates_of_an_executable_graph", &[], |cuda| {
        begin(cuda, 0);
        let destroy = |graph: Handle| assert_eq!(call!(cuda, "cuGraphDestroy"(graph => Handle)), 0);
        // A child graph's object goes with the executable graph, after the graphs themselves are gone.
        let (outer, inner) = (with_object(cuda, 1), with_object(cuda, 2));
        let node = add_child(cuda, outer, inner);
        destroy(inner);
        let exec = instantiate(cuda, outer);
        expect_destroyed(0);
        // Another child of the same shape takes the place of the first, and its object with it.
        let other = with_object(cuda, 4);
        let set = call!(cuda, "cuGraphExecChildGraphNodeSetParams"(exec => Handle, node => Handle, other => Handle));
        assert_eq!(set, 0);
        destroy(other);
        expect_destroyed(0);
        destroy(outer);
        expect_destroyed(2);
        // An update takes all objects of the new graph, and gives all others back.
        let (outer, inner) = (with_object(cuda, 8), with_object(cuda, 16));
        add_child(cuda, outer, inner);
        destroy(inner);
        let mut info = [0u64; 3];
        let updated =
            call!(cuda, "cuGraphExecUpdate_v2"(exec => Handle, outer => Handle, &mut info => *mut [u64; 3]));
        assert_eq!((updated, info[0] as u32), (0, 0));
        destroy(outer);
        expect_destroyed(7);
        assert_eq!(call!(cuda, "cuGraphExecDestroy"(exec => Handle)), 0);
        expect_destroyed(31);
    });
}

#[test]
fn a_graph_that_allocates_keeps_its_nodes_and_edges() {
    const NOT_SUPPORTED: u32 = 801;
    isolated("a_graph_that_allocates_keeps_its_nodes_and_edges", &[], |cuda| {
        begin(cuda, 0);
        let (s, mut address, mut graph) = (stream(cuda), 0u64, NULL);
        begin_capture(cuda, s, 2);
        assert_eq!(
            call!(cuda, "cuMemAllocAsync"(&mut address => *mut u64, 1 << 20 => usize, s => Handle)),
            0
        );
        assert_eq!(call!(cuda, "cuMemsetD8Async"(address => u64, 0 => u8, 1024 => usize, s => Handle)), 0);
        assert_eq!(call!(cuda, "cuMemFreeAsync"(address => u64, s => Handle)), 0);
        assert_eq!(call!(cuda, "cuStreamEndCapture"(s => Handle, &mut graph => *mut Handle)), 0);
        let (mut nodes, mut count) = ([NULL; 3], 3usize);
        assert_eq!(
            call!(cuda, "cuGraphGetNodes"(graph => Handle, &mut nodes => *mut [Handle; 3], &mut count => *mut usize)),
            0
        );
        assert_eq!(nodes.map(|node| call!(cuda, "cuGraphDestroyNode"(node => Handle))), [NOT_SUPPORTED; 3]);
        let removed = call!(cuda, "cuGraphRemoveDependencies"(
            graph => Handle, &nodes[0] => *const Handle, &nodes[1] => *const Handle, 1 => usize));
        assert_eq!(removed, NOT_SUPPORTED);
    });
}
