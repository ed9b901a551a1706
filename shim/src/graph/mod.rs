//! Executable graphs and the kernels that they launch.

use core::ffi::{c_uint, c_void};

use radrm_cuda_abi::*;

use crate::cx::Cx;
use crate::map::HandleMap;

/// The process's executable graphs.
pub(crate) struct Graphs {
    #[allow(dead_code)]
    execs: HandleMap,
}

impl Graphs {
    /// None known.
    pub(crate) const fn new() -> Self {
        Self { execs: HandleMap::new() }
    }
}

pub(crate) unsafe fn launch(_: &Cx<'_>, call: impl FnOnce() -> CUresult, _: CUgraphExec, _: CUstream) -> CUresult {
    call()
}
pub(crate) unsafe fn instantiate(_: &Cx<'_>, call: impl FnOnce() -> CUresult, _: *mut CUgraphExec, _: CUgraph) -> CUresult {
    call()
}
pub(crate) unsafe fn destroy(_: &Cx<'_>, call: impl FnOnce() -> CUresult, _: CUgraphExec) -> CUresult {
    call()
}
pub(crate) unsafe fn update(_: &Cx<'_>, call: impl FnOnce() -> CUresult, _: CUgraphExec, _: CUgraph) -> CUresult {
    call()
}
pub(crate) unsafe fn set_kernel(_: &Cx<'_>, call: impl FnOnce() -> CUresult, _: CUgraphExec, _: CUgraphNode) -> CUresult {
    call()
}
pub(crate) unsafe fn set_node(_: &Cx<'_>, call: impl FnOnce() -> CUresult, _: CUgraphExec, _: CUgraphNode, _: *mut c_void) -> CUresult {
    call()
}
pub(crate) unsafe fn set_child(_: &Cx<'_>, call: impl FnOnce() -> CUresult, _: CUgraphExec, _: CUgraphNode, _: CUgraph) -> CUresult {
    call()
}
pub(crate) unsafe fn set_enabled(_: &Cx<'_>, call: impl FnOnce() -> CUresult, _: CUgraphExec, _: CUgraphNode, _: c_uint) -> CUresult {
    call()
}
