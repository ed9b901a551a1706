//! Conditional nodes of graphs, as programs meet them.

mod common;

use std::ffi::{CStr, c_char, c_void};

use common::{Cuda, begin, isolated};

const INVALID_VALUE: u32 = 1;
const NOT_SUPPORTED: u32 = 801;
const UPDATE_FAILURE: u32 = 910;
const PTX: &CStr = c".version 8.0\n.target sm_70\n.visible .entry empty() { ret; }\n";

type Handle = *mut c_void;
const NULL: Handle = std::ptr::null_mut();

fn kernel(cuda: Cuda) -> Handle {
    let (mut module, mut function) = (NULL, NULL);
    assert_eq!(call!(cuda, "cuModuleLoadData"(&mut module => *mut Handle, PTX.as_ptr() => *const c_char)), 0);
    let code = call!(cuda, "cuModuleGetFunction"(
        &mut function => *mut Handle, module => Handle, c"empty".as_ptr() => *const c_char));
    assert_eq!(code, 0);
    function
}

fn first_kind(cuda: Cuda, graph: Handle) -> u32 {
    let (mut node, mut count, mut kind) = (NULL, 1_usize, 99);
    let code =
        call!(cuda, "cuGraphGetNodes"(graph => Handle, &mut node => *mut Handle, &mut count => *mut usize));
    assert_eq!((code, count), (0, 1));
    assert_eq!(call!(cuda, "cuGraphNodeGetType"(node => Handle, &mut kind => *mut u32)), 0);
    kind
}

fn instantiate(cuda: Cuda, graph: Handle) -> Result<Handle, u32> {
    let mut exec = NULL;
    match call!(cuda, "cuGraphInstantiateWithFlags"(&mut exec => *mut Handle, graph => Handle, 0 => u64)) {
        0 => Ok(exec),
        code => Err(code),
    }
}

fn condition(cuda: Cuda, graph: Handle, default: Option<u32>) -> u64 {
    let mut condition = 0_u64;
    let (value, flags) = (default.unwrap_or(0), u32::from(default.is_some()));
    let code = call!(cuda, "cuGraphConditionalHandleCreate"(
        &mut condition => *mut u64, graph => Handle, NULL => Handle, value => u32, flags => u32));
    assert_eq!(code, 0);
    condition
}

/// Adds a conditional node (0 if, 1 while, 2 switch) with a condition; gives the node and its graphs.
fn add(cuda: Cuda, graph: Handle, condition: u64, how: u32, size: u32) -> Result<(Handle, Vec<Handle>), u32> {
    let mut params = [0_u64; 32];
    params[0] = 13;
    params[2] = condition;
    params[3] = u64::from(how) | u64::from(size) << 32;
    let mut node = NULL;
    let code = call!(cuda, "cuGraphAddNode"(
        &mut node => *mut Handle, graph => Handle, NULL => Handle, 0 => usize, params.as_mut_ptr() => *mut u64));
    if code != 0 {
        return Err(code);
    }
    // SAFETY: the driver gave a list of as many graphs, which lives as long as the node.
    let bodies = unsafe { std::slice::from_raw_parts(params[4] as *const Handle, size as usize) }.to_vec();
    Ok((node, bodies))
}

/// Adds a launch of so many blocks; gives the node.
fn add_kernel(cuda: Cuda, graph: Handle, blocks: u64) -> Handle {
    let (mut params, mut node) = (kernel_params(cuda, blocks), NULL);
    let code = call!(cuda, "cuGraphAddKernelNode_v2"(
        &mut node => *mut Handle, graph => Handle, NULL => Handle, 0 => usize, params.as_mut_ptr() => *mut u64));
    assert_eq!(code, 0);
    node
}

fn kernel_params(cuda: Cuda, blocks: u64) -> [u64; 9] {
    let mut params = [0; 9];
    params[0] = kernel(cuda) as u64;
    params[1..4].copy_from_slice(&[blocks | 1 << 32, 1 | 32 << 32, 1 | 1 << 32]);
    params
}

fn new_graph(cuda: Cuda) -> Handle {
    let mut graph = NULL;
    assert_eq!(call!(cuda, "cuGraphCreate"(&mut graph => *mut Handle, 0 => u32)), 0);
    graph
}

/// A conditional node whose graphs each launch a kernel; gives those graphs.
fn conditional(
    cuda: Cuda,
    graph: Handle,
    default: Option<u32>,
    how: u32,
    size: u32,
) -> Result<Vec<Handle>, u32> {
    let (_, bodies) = add(cuda, graph, condition(cuda, graph, default), how, size)?;
    bodies.iter().for_each(|body| _ = add_kernel(cuda, *body, 1));
    Ok(bodies)
}

/// Launches of kernels that a launch of an executable graph makes.
fn launched(cuda: Cuda, exec: Handle) -> u64 {
    let launches = || {
        let machine = radrm_emulator_machine::Machine::from_environment().unwrap();
        machine.ledgers()[0].gpu(0).unwrap().launches
    };
    let before = launches();
    assert_eq!(call!(cuda, "cuGraphLaunch"(exec => Handle, NULL => Handle)), 0);
    launches() - before
}

#[test]
fn conditional_nodes_run_the_graph_of_their_default() {
    isolated("conditional_nodes_run_the_graph_of_their_default", &[], |cuda| {
        begin(cuda, 0);
        // Kind, number of graphs, default, and how many kernels run.
        for (how, size, default, runs) in [
            (0, 1, Some(1), 1),
            (0, 1, Some(0), 0),
            (0, 2, Some(0), 1),
            (0, 1, None, 1),
            (1, 1, Some(1), 1),
            (1, 1, Some(0), 0),
            (2, 3, Some(2), 1),
            (2, 3, Some(3), 0),
        ] {
            let graph = new_graph(cuda);
            let bodies = conditional(cuda, graph, default, how, size).expect("a node");
            assert_eq!(first_kind(cuda, graph), 13);
            assert!(instantiate(cuda, bodies[0]).is_err(), "it belongs to the node");
            let exec = instantiate(cuda, graph).expect("an executable graph");
            assert_eq!(launched(cuda, exec), runs, "{how} {size} {default:?}");
            assert_eq!(call!(cuda, "cuGraphDestroy"(graph => Handle)), 0);
            assert_eq!(
                call!(cuda, "cuGraphDestroy"(bodies[0] => Handle)),
                INVALID_VALUE,
                "gone with its node"
            );
            assert_eq!(launched(cuda, exec), runs, "an executable graph needs no graph");
        }
        let graph = new_graph(cuda);
        for (how, size) in [(0, 3), (0, 0), (1, 2), (2, 0), (3, 1)] {
            assert_eq!(conditional(cuda, graph, None, how, size), Err(INVALID_VALUE), "{how} {size}");
        }
    });
}

#[test]
fn nested_conditional_nodes_run_what_all_of_them_take() {
    isolated("nested_conditional_nodes_run_what_all_of_them_take", &[], |cuda| {
        begin(cuda, 0);
        for (outer, inner, runs) in [(1, 1, 2), (1, 0, 1), (0, 1, 0)] {
            let graph = new_graph(cuda);
            // Both conditions are of the outer graph, as a node in a graph of a node may have them.
            let (of_outer, of_inner) =
                (condition(cuda, graph, Some(outer)), condition(cuda, graph, Some(inner)));
            let (_, bodies) = add(cuda, graph, of_outer, 0, 1).expect("a node");
            add_kernel(cuda, bodies[0], 1);
            let (_, inner_bodies) = add(cuda, bodies[0], of_inner, 1, 1).expect("a node in a body");
            add_kernel(cuda, inner_bodies[0], 1);
            let exec = instantiate(cuda, graph).expect("an executable graph");
            assert_eq!(launched(cuda, exec), runs, "{outer} {inner}");
        }
    });
}

#[test]
fn a_condition_decides_one_node_of_its_graph() {
    isolated("a_condition_decides_one_node_of_its_graph", &[], |cuda| {
        begin(cuda, 0);
        let (graph, other) = (new_graph(cuda), new_graph(cuda));
        let of_graph = condition(cuda, graph, Some(1));
        assert_eq!(add(cuda, other, of_graph, 0, 1).err(), Some(INVALID_VALUE), "another graph");
        // Instantiation fails while a condition has no node, and says so.
        let (mut exec, mut params) = (NULL, [0_u64; 4]);
        let code = call!(cuda, "cuGraphInstantiateWithParams"(
            &mut exec => *mut Handle, graph => Handle, params.as_mut_ptr() => *mut u64));
        assert_eq!((code, params[3] as u32), (INVALID_VALUE, 5));
        add(cuda, graph, of_graph, 0, 1).expect("a node");
        assert_eq!(add(cuda, graph, of_graph, 0, 1).err(), Some(INVALID_VALUE), "a second node");
        assert_eq!(add(cuda, graph, 0xdead, 0, 1).err(), Some(INVALID_VALUE), "no condition");
        instantiate(cuda, graph).expect("an executable graph");
        let mut odd = 0_u64;
        let code = call!(cuda, "cuGraphConditionalHandleCreate"(
            &mut odd => *mut u64, graph => Handle, NULL => Handle, 0 => u32, 2 => u32));
        assert_eq!(code, INVALID_VALUE, "flags");
    });
}

#[test]
fn a_graph_with_conditional_nodes_exists_once() {
    isolated("a_graph_with_conditional_nodes_exists_once", &[], |cuda| {
        begin(cuda, 0);
        let graph = new_graph(cuda);
        conditional(cuda, graph, Some(1), 0, 1).expect("a node");
        let (mut copy, mut node) = (NULL, NULL);
        assert_eq!(call!(cuda, "cuGraphClone"(&mut copy => *mut Handle, graph => Handle)), NOT_SUPPORTED);
        let outer = new_graph(cuda);
        let code = call!(cuda, "cuGraphAddChildGraphNode"(
            &mut node => *mut Handle, outer => Handle, NULL => Handle, 0 => usize, graph => Handle));
        assert_eq!(code, NOT_SUPPORTED);
        // Given away as a child: neither that, nor a graph into itself.
        let give_away = |to: Handle, child: Handle| {
            let mut node = NULL;
            let mut params = [0_u64; 32];
            (params[0], params[2], params[3]) = (4, child as u64, 1);
            call!(cuda, "cuGraphAddNode"(
                &mut node => *mut Handle, to => Handle, NULL => Handle, 0 => usize,
                params.as_mut_ptr() => *mut u64))
        };
        assert_eq!(give_away(outer, graph), NOT_SUPPORTED);
        assert_eq!(give_away(outer, outer), INVALID_VALUE);
        let exec = instantiate(cuda, graph).expect("the first");
        assert_eq!(instantiate(cuda, graph), Err(NOT_SUPPORTED), "a second at the same time");
        assert_eq!(call!(cuda, "cuGraphExecDestroy"(exec => Handle)), 0);
        instantiate(cuda, graph).expect("one after the other");
    });
}

#[test]
fn bodies_hold_kernels_copies_and_sets_only() {
    isolated("bodies_hold_kernels_copies_and_sets_only", &[], |cuda| {
        begin(cuda, 0);
        let mut stream = NULL;
        assert_eq!(call!(cuda, "cuStreamCreate"(&mut stream => *mut Handle, 1 => u32)), 0);
        for allocates in [false, true] {
            let graph = new_graph(cuda);
            let (_, bodies) = add(cuda, graph, condition(cuda, graph, Some(1)), 0, 1).expect("a node");
            let code = call!(cuda, "cuStreamBeginCaptureToGraph"(
                stream => Handle, bodies[0] => Handle, NULL => Handle, NULL => Handle, 0 => usize, 2 => u32));
            assert_eq!(code, 0);
            let function = kernel(cuda);
            let code = call!(cuda, "cuLaunchKernel"(
                function => Handle, 1 => u32, 1 => u32, 1 => u32, 32 => u32, 1 => u32, 1 => u32, 0 => u32,
                stream => Handle, NULL => Handle, NULL => Handle));
            assert_eq!(code, 0);
            if allocates {
                let mut address = 0_u64;
                let code = call!(cuda, "cuMemAllocAsync"(
                    &mut address => *mut u64, 4096 => usize, stream => Handle));
                assert_eq!(code, 0);
            }
            let mut ended = NULL;
            assert_eq!(call!(cuda, "cuStreamEndCapture"(stream => Handle, &mut ended => *mut Handle)), 0);
            match allocates {
                false => assert_eq!(launched(cuda, instantiate(cuda, graph).expect("a kernel only")), 1),
                true => assert_eq!(instantiate(cuda, graph), Err(INVALID_VALUE), "memory in a body"),
            }
        }
    });
}

#[test]
fn an_update_changes_defaults_and_all_bodies() {
    isolated("an_update_changes_defaults_and_all_bodies", &[], |cuda| {
        begin(cuda, 0);
        let built = |default: u32, size: u32| {
            let graph = new_graph(cuda);
            let bodies = conditional(cuda, graph, Some(default), 0, size).expect("a node");
            (graph, bodies)
        };
        let (graph, bodies) = built(0, 1);
        let exec = instantiate(cuda, graph).expect("an executable graph");
        assert_eq!(launched(cuda, exec), 0);
        // A kernel of a graph that is not taken can be changed, the conditional node cannot.
        let (mut node, mut count) = (NULL, 1_usize);
        let code = call!(cuda, "cuGraphGetNodes"(
            bodies[0] => Handle, &mut node => *mut Handle, &mut count => *mut usize));
        assert_eq!(code, 0);
        let mut params = kernel_params(cuda, 7);
        let code = call!(cuda, "cuGraphExecKernelNodeSetParams_v2"(
            exec => Handle, node => Handle, params.as_mut_ptr() => *mut u64));
        assert_eq!(code, 0);
        let code = call!(cuda, "cuGraphGetNodes"(
            graph => Handle, &mut node => *mut Handle, &mut count => *mut usize));
        assert_eq!(code, 0);
        let mut whole = [0_u64; 32];
        (whole[0], whole[2], whole[3]) = (13, condition(cuda, new_graph(cuda), Some(1)), 1 << 32);
        let code = call!(cuda, "cuGraphExecNodeSetParams"(
            exec => Handle, node => Handle, whole.as_mut_ptr() => *mut u64));
        assert_eq!(code, INVALID_VALUE);
        let update = |graph: Handle| {
            let mut info = [0_u64; 3];
            let code = call!(cuda, "cuGraphExecUpdate_v2"(
                exec => Handle, graph => Handle, info.as_mut_ptr() => *mut u64));
            (code, info[0] as u32)
        };
        assert_eq!(update(built(1, 1).0), (0, 0));
        assert_eq!(launched(cuda, exec), 1, "the new default");
        assert_eq!(update(built(1, 2).0).0, UPDATE_FAILURE, "another number of graphs");
    });
}
