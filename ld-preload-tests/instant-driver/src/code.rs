//! Modules, kernels and graphs: just enough that an interposer can learn names and node lists.

use core::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr::null_mut,
};

use radrm_cuda_abi::*;

use crate::entry::put;

const MODULE: CUmodule = CUmodule(0x6000 as *mut c_void);
const LIBRARY: CUlibrary = CUlibrary(0x7000 as *mut c_void);

/// A function is its name, kept for ever.
fn function(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller of the entry point passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_owned().into_raw().cast()
}

/// Returns true if a handle can be one that [`function`] gave out. Launches take any handle, so that a test can
/// pass values that no driver gives out.
fn is_name(handle: *mut c_void) -> bool {
    const LOWEST: usize = 1 << 16;
    const HIGHEST: usize = 1 << 47;
    (LOWEST..HIGHEST).contains(&handle.addr())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut CUmodule, _image: *const c_void) -> CUresult {
    unlike_others!("cuModuleLoadData");
    // SAFETY: the caller's out-parameter.
    unsafe { put(module, MODULE) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    out: *mut CUfunction,
    _module: CUmodule,
    name: *const c_char,
) -> CUresult {
    unlike_others!("cuModuleGetFunction");
    // SAFETY: the caller's out-parameter.
    unsafe { put(out, CUfunction(function(name))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryLoadData(
    library: *mut CUlibrary,
    _code: *const c_void,
    _jit_options: *mut c_void,
    _jit_values: *mut *mut c_void,
    _jit_count: c_uint,
    _options: *mut c_void,
    _values: *mut *mut c_void,
    _count: c_uint,
) -> CUresult {
    unlike_others!("cuLibraryLoadData");
    // SAFETY: the caller's out-parameter.
    unsafe { put(library, LIBRARY) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLibraryGetKernel(
    out: *mut CUkernel,
    _library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    unlike_others!("cuLibraryGetKernel");
    // SAFETY: the caller's out-parameter.
    unsafe { put(out, CUkernel(function(name))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetFunction(out: *mut CUfunction, kernel: CUkernel) -> CUresult {
    unlike_others!("cuKernelGetFunction");
    // SAFETY: the caller's out-parameter.
    unsafe { put(out, CUfunction(kernel.0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetName(name: *mut *const c_char, function: CUfunction) -> CUresult {
    unlike_others!("cuFuncGetName");
    if !is_name(function.0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    // SAFETY: the caller's out-parameter; a function is its name.
    unsafe { put(name, function.0.cast_const().cast()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) -> CUresult {
    unlike_others!("cuKernelGetName");
    if !is_name(kernel.0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    // SAFETY: the caller's out-parameter; a kernel is its name.
    unsafe { put(name, kernel.0.cast_const().cast()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetModule(module: *mut CUmodule, _function: CUfunction) -> CUresult {
    unlike_others!("cuFuncGetModule");
    // SAFETY: the caller's out-parameter.
    unsafe { put(module, MODULE) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    _attribute: CUfunction_attribute,
    _function: CUfunction,
) -> CUresult {
    unlike_others!("cuFuncGetAttribute");
    // SAFETY: the caller's out-parameter.
    unsafe { put(value, 32) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuKernelGetAttribute(
    value: *mut c_int,
    _attribute: CUfunction_attribute,
    _kernel: CUkernel,
    _device: CUdevice,
) -> CUresult {
    unlike_others!("cuKernelGetAttribute");
    // SAFETY: the caller's out-parameter.
    unsafe { put(value, 32) }
}

/// A graph is a list of kernel nodes; a node is its parameters.
#[derive(Default)]
struct Graph {
    nodes: Vec<CUgraphNode>,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphCreate(out: *mut CUgraph, _flags: c_uint) -> CUresult {
    unlike_others!("cuGraphCreate");
    let graph = Box::into_raw(Box::<Graph>::default());
    // SAFETY: the caller's out-parameter.
    unsafe { put(out, CUgraph(graph.cast())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddKernelNode_v2(
    out: *mut CUgraphNode,
    graph: CUgraph,
    _dependencies: *const CUgraphNode,
    _count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> CUresult {
    unlike_others!("cuGraphAddKernelNode_v2");
    // SAFETY: the caller passes parameters, and a graph made by `cuGraphCreate` that no other
    // thread uses.
    unsafe {
        let node = CUgraphNode(Box::into_raw(Box::new(*params)).cast());
        (*graph.0.cast::<Graph>()).nodes.push(node);
        put(out, node)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetNodes(
    graph: CUgraph,
    nodes: *mut CUgraphNode,
    count: *mut usize,
) -> CUresult {
    unlike_others!("cuGraphGetNodes");
    // SAFETY: a graph made by `cuGraphCreate`; `count` says how many nodes there is room for.
    unsafe {
        let all = &(*graph.0.cast::<Graph>()).nodes;
        if nodes.is_null() {
            return put(count, all.len());
        }
        let room = count.read();
        for i in 0..room {
            nodes.add(i).write(all.get(i).copied().unwrap_or(CUgraphNode(null_mut())));
        }
        put(count, room.min(all.len()))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetType(_node: CUgraphNode, kind: *mut CUgraphNodeType) -> CUresult {
    unlike_others!("cuGraphNodeGetType");
    // SAFETY: the caller's out-parameter.
    unsafe { put(kind, CU_GRAPH_NODE_TYPE_KERNEL) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphKernelNodeGetParams_v2(
    node: CUgraphNode,
    params: *mut CUDA_KERNEL_NODE_PARAMS,
) -> CUresult {
    unlike_others!("cuGraphKernelNodeGetParams_v2");
    // SAFETY: a node made by `cuGraphAddKernelNode_v2`, and the caller's out-parameter.
    unsafe { put(params, *node.0.cast::<CUDA_KERNEL_NODE_PARAMS>()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    _flags: u64,
) -> CUresult {
    unlike_others!("cuGraphInstantiateWithFlags");
    // SAFETY: the caller's out-parameter.
    unsafe { put(exec, CUgraphExec(graph.0)) }
}
