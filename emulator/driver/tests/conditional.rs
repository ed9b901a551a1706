//! Conditional nodes of graphs, as programs meet them.

mod common;

use std::ffi::{CStr, c_char, c_void};

use common::{Cuda, begin, isolated};

const INVALID_VALUE: u32 = 1;
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

/// Adds a conditional node (0 if, 1 while, 2 switch) whose graphs each launch a kernel; gives those graphs.
fn conditional(
    cuda: Cuda,
    graph: Handle,
    default: Option<u32>,
    how: u32,
    size: u32,
) -> Result<Vec<Handle>, u32> {
    let mut condition = 0_u64;
    let (value, flags) = (default.unwrap_or(0), u32::from(default.is_some()));
    let code = call!(cuda, "cuGraphConditionalHandleCreate"(
        &mut condition => *mut u64, graph => Handle, NULL => Handle, value => u32, flags => u32));
    assert_eq!(code, 0);
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
    for body in &bodies {
        let (mut kernel_params, mut kernel_node) = ([0_u64; 9], NULL);
        kernel_params[0] = kernel(cuda) as u64;
        kernel_params[1..4].copy_from_slice(&[1 | 1 << 32, 1 | 32 << 32, 1 | 1 << 32]);
        let code = call!(cuda, "cuGraphAddKernelNode_v2"(
            &mut kernel_node => *mut Handle, *body => Handle, NULL => Handle, 0 => usize,
            kernel_params.as_mut_ptr() => *mut u64));
        assert_eq!(code, 0);
    }
    Ok(bodies)
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
            let mut graph = NULL;
            assert_eq!(call!(cuda, "cuGraphCreate"(&mut graph => *mut Handle, 0 => u32)), 0);
            let bodies = conditional(cuda, graph, default, how, size).expect("a node");
            assert_eq!(first_kind(cuda, graph), 13);
            assert!(instantiate(cuda, bodies[0]).is_err(), "it belongs to the node");
            let exec = instantiate(cuda, graph).expect("an executable graph");
            let launches = || {
                let machine = radrm_emulator_machine::Machine::from_environment().unwrap();
                machine.ledgers()[0].gpu(0).unwrap().launches
            };
            let before = launches();
            assert_eq!(call!(cuda, "cuGraphLaunch"(exec => Handle, NULL => Handle)), 0);
            assert_eq!(launches() - before, runs, "{how} {size} {default:?}");
            let mut copy = NULL;
            assert_eq!(call!(cuda, "cuGraphClone"(&mut copy => *mut Handle, graph => Handle)), 0);
            assert_eq!(call!(cuda, "cuGraphDestroy"(graph => Handle)), 0);
            assert_eq!(
                call!(cuda, "cuGraphDestroy"(bodies[0] => Handle)),
                INVALID_VALUE,
                "gone with its node"
            );
            assert_eq!(first_kind(cuda, copy), 13);
        }
        let mut graph = NULL;
        assert_eq!(call!(cuda, "cuGraphCreate"(&mut graph => *mut Handle, 0 => u32)), 0);
        for (how, size) in [(0, 3), (0, 0), (1, 2), (2, 0), (3, 1)] {
            assert_eq!(conditional(cuda, graph, None, how, size), Err(INVALID_VALUE), "{how} {size}");
        }
    });
}
