//! The driver's own functions that the hooks call for what the arguments of a program's call do not say.
//!
//! Each is looked up in libcuda itself, at its first use, and never goes through a wrapper. An old
//! driver may lack any of them: the lookup then answers `None`, and so does every query that needs
//! it.

mod query;

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use radrm_cuda_abi::*;

/// Address of one function: null before the first use, [`MISSING`] where the driver lacks it.
struct Slot(AtomicPtr<c_void>);

const MISSING: *mut c_void = core::ptr::without_provenance_mut(1);

impl Slot {
    const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    #[inline(always)]
    fn get(&self, name: &CStr) -> Option<*mut c_void> {
        // Relaxed: the address is all there is to see; the code behind it was mapped by the loader.
        let at = self.0.load(Ordering::Relaxed);
        if at.addr() > MISSING.addr() { Some(at) } else { self.resolve(at, name) }
    }

    #[cold]
    #[inline(never)]
    fn resolve(&self, known: *mut c_void, name: &CStr) -> Option<*mut c_void> {
        if known == MISSING {
            return None;
        }
        let found = crate::resolve::driver_symbol(name);
        if found.is_null() {
            // A driver that is not loaded yet is asked again; one that is loaded will not grow names.
            if crate::resolve::has_driver() {
                self.0.store(MISSING, Ordering::Relaxed);
            }
            return None;
        }
        self.0.store(found, Ordering::Relaxed);
        Some(found)
    }
}

macro_rules! functions {
    ($($(#[$meta:meta])* $name:ident = $symbol:literal ( $($arg:ty),* $(,)? );)*) => {
        /// Lazily bound functions of the driver.
        pub(crate) struct Driver {
            $($name: Slot,)*
        }

        static DRIVER: Driver = Driver { $($name: Slot::new(),)* };

        impl Driver {
            $(
                #[doc = concat!("`", stringify!($symbol), "` of the driver; `None` where it has none.")]
                $(#[$meta])*
                #[inline(always)]
                pub(crate) fn $name(&self) -> Option<unsafe extern "C" fn($($arg),*) -> CUresult> {
                    let at = self.$name.get($symbol)?;
                    // SAFETY: the driver exports the function of this name with this prototype.
                    Some(unsafe {
                        core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> CUresult>(at)
                    })
                }
            )*
        }
    };
}

functions! {
    ctx_get_current = c"cuCtxGetCurrent"(*mut CUcontext);
    ctx_get_device = c"cuCtxGetDevice"(*mut CUdevice);
    ctx_from_green = c"cuCtxFromGreenCtx"(*mut CUcontext, CUgreenCtx);
    primary_ctx_get_state = c"cuDevicePrimaryCtxGetState"(CUdevice, *mut c_uint, *mut c_int);
    primary_ctx_retain = c"cuDevicePrimaryCtxRetain"(*mut CUcontext, CUdevice);
    primary_ctx_release = c"cuDevicePrimaryCtxRelease_v2"(CUdevice);
    primary_ctx_release_v1 = c"cuDevicePrimaryCtxRelease"(CUdevice);
    device_get_uuid_v2 = c"cuDeviceGetUuid_v2"(*mut CUuuid, CUdevice);
    device_get_uuid = c"cuDeviceGetUuid"(*mut CUuuid, CUdevice);
    device_get_name = c"cuDeviceGetName"(*mut c_char, c_int, CUdevice);
    device_get_pci_bus_id = c"cuDeviceGetPCIBusId"(*mut c_char, c_int, CUdevice);
    device_total_mem = c"cuDeviceTotalMem_v2"(*mut usize, CUdevice);
    driver_get_version = c"cuDriverGetVersion"(*mut c_int);
    mem_get_info = c"cuMemGetInfo_v2"(*mut usize, *mut usize);
    mem_free = c"cuMemFree_v2"(CUdeviceptr);
    mem_free_async = c"cuMemFreeAsync"(CUdeviceptr, CUstream);
    mem_pool_trim_to = c"cuMemPoolTrimTo"(CUmemoryPool, usize);
    stream_synchronize = c"cuStreamSynchronize"(CUstream);
    array_destroy = c"cuArrayDestroy"(CUarray);
    mipmap_destroy = c"cuMipmappedArrayDestroy"(CUmipmappedArray);
    mem_get_address_range = c"cuMemGetAddressRange_v2"(*mut CUdeviceptr, *mut usize, CUdeviceptr);
    pointer_get_attribute = c"cuPointerGetAttribute"(*mut c_void, CUpointer_attribute, CUdeviceptr);
    device_get_mem_pool = c"cuDeviceGetMemPool"(*mut CUmemoryPool, CUdevice);
    device_get_default_mem_pool = c"cuDeviceGetDefaultMemPool"(*mut CUmemoryPool, CUdevice);
    mem_pool_get_attribute = c"cuMemPoolGetAttribute"(CUmemoryPool, CUmemPool_attribute, *mut c_void);
    graph_mem_attribute = c"cuDeviceGetGraphMemAttribute"(CUdevice, CUgraphMem_attribute, *mut c_void);
    array_memory = c"cuArrayGetMemoryRequirements"(*mut CUDA_ARRAY_MEMORY_REQUIREMENTS, CUarray, CUdevice);
    mipmap_memory =
        c"cuMipmappedArrayGetMemoryRequirements"(*mut CUDA_ARRAY_MEMORY_REQUIREMENTS, CUmipmappedArray, CUdevice);
    mem_properties =
        c"cuMemGetAllocationPropertiesFromHandle"(*mut CUmemAllocationProp, CUmemGenericAllocationHandle);
    device_get_attribute = c"cuDeviceGetAttribute"(*mut c_int, c_int, CUdevice);
    occupancy_blocks = c"cuOccupancyMaxActiveBlocksPerMultiprocessor"(*mut c_int, CUfunction, c_int, usize);
    ctx_get_id = c"cuCtxGetId"(CUcontext, *mut u64);
    event_create = c"cuEventCreate"(*mut CUevent, c_uint);
    event_record = c"cuEventRecord"(CUevent, CUstream);
    event_record_ptsz = c"cuEventRecord_ptsz"(CUevent, CUstream);
    event_query = c"cuEventQuery"(CUevent);
    event_elapsed = c"cuEventElapsedTime"(*mut f32, CUevent, CUevent);
    event_elapsed_v2 = c"cuEventElapsedTime_v2"(*mut f32, CUevent, CUevent);
    stream_get_device = c"cuStreamGetDevice"(CUstream, *mut CUdevice);
    stream_is_capturing = c"cuStreamIsCapturing"(CUstream, *mut CUstreamCaptureStatus);
    stream_is_capturing_ptsz = c"cuStreamIsCapturing_ptsz"(CUstream, *mut CUstreamCaptureStatus);
    exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode"(*mut CUstreamCaptureMode);
    func_get_name = c"cuFuncGetName"(*mut *const c_char, CUfunction);
    func_get_module = c"cuFuncGetModule"(*mut CUmodule, CUfunction);
    func_get_attribute = c"cuFuncGetAttribute"(*mut c_int, CUfunction_attribute, CUfunction);
    kernel_get_name = c"cuKernelGetName"(*mut *const c_char, CUkernel);
    kernel_get_function = c"cuKernelGetFunction"(*mut CUfunction, CUkernel);
    kernel_get_attribute = c"cuKernelGetAttribute"(*mut c_int, CUfunction_attribute, CUkernel, CUdevice);
    graph_get_nodes = c"cuGraphGetNodes"(CUgraph, *mut CUgraphNode, *mut usize);
    graph_node_get_type = c"cuGraphNodeGetType"(CUgraphNode, *mut CUgraphNodeType);
    graph_kernel_params_v1 = c"cuGraphKernelNodeGetParams"(CUgraphNode, *mut CUDA_KERNEL_NODE_PARAMS_v1);
    graph_kernel_params = c"cuGraphKernelNodeGetParams_v2"(CUgraphNode, *mut CUDA_KERNEL_NODE_PARAMS);
    graph_alloc_params = c"cuGraphMemAllocNodeGetParams"(CUgraphNode, *mut CUDA_MEM_ALLOC_NODE_PARAMS);
    graph_child_graph = c"cuGraphChildGraphNodeGetGraph"(CUgraphNode, *mut CUgraph);
}

/// The driver's functions.
#[inline(always)]
pub(crate) fn get() -> &'static Driver {
    &DRIVER
}
