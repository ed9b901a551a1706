//! Launch parameters of a kernel node, in the forms that the driver's versions have.

use radrm_cuda_abi::*;

use super::plan::Work;
use crate::cx::Cx;
use crate::kernels::learn;

/// Fields that all forms have in common.
#[derive(Clone, Copy)]
pub(crate) struct KernelParams {
    function: CUfunction,
    /// Set where `function` is null.
    kernel: CUkernel,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
}

macro_rules! common {
    ($p:expr, $kernel:expr) => {
        KernelParams {
            function: $p.func,
            kernel: $kernel,
            grid: [$p.gridDimX, $p.gridDimY, $p.gridDimZ],
            block: [$p.blockDimX, $p.blockDimY, $p.blockDimZ],
            shared: $p.sharedMemBytes,
        }
    };
}

impl From<&CUDA_KERNEL_NODE_PARAMS_v1> for KernelParams {
    fn from(p: &CUDA_KERNEL_NODE_PARAMS_v1) -> Self {
        common!(p, CUkernel::NULL)
    }
}

impl From<&CUDA_KERNEL_NODE_PARAMS> for KernelParams {
    fn from(p: &CUDA_KERNEL_NODE_PARAMS) -> Self {
        common!(p, p.kern)
    }
}

impl KernelParams {
    /// The launch as a plan counts it.
    pub(super) fn work(&self, cx: &Cx<'_>) -> Work {
        let kernel = if self.function.is_null() {
            cx.page.kernels.mark_kernel(self.kernel.addr());
            learn::kernel_of(cx, CUfunction(self.kernel.0))
        } else {
            learn::kernel_of(cx, self.function)
        };
        let product = |d: [u32; 3]| d.into_iter().map(u64::from).fold(1, u64::wrapping_mul);
        Work {
            kernel: kernel.number(),
            launches: 1,
            blocks: product(self.grid),
            threads: product(self.block),
            shared: u64::from(self.shared),
        }
    }
}

/// `CUgraphNodeParams`: the node's kind, then a union.
#[repr(C)]
pub(super) struct AnyNodeParams {
    pub(super) kind: CUgraphNodeType,
    reserved: [i32; 3],
    union: [u64; 29],
    reserved2: i64,
}

const _: () = assert!(size_of::<AnyNodeParams>() == 256 && core::mem::offset_of!(AnyNodeParams, union) == 16);

impl AnyNodeParams {
    /// The union as a kernel's parameters; the caller has checked `kind`.
    pub(super) fn kernel(&self) -> KernelParams {
        let at = (&raw const self.union).cast::<CUDA_KERNEL_NODE_PARAMS>();
        // SAFETY: 72 bytes of integers and pointers at the start of the 232-byte union, 8-byte aligned.
        KernelParams::from(unsafe { &*at })
    }

    /// The union as a child graph; the caller has checked `kind`.
    pub(super) fn child(&self) -> CUgraph {
        let [first, ..] = self.union;
        CUgraph(first as *mut core::ffi::c_void)
    }
}
