//! The driver's entry points, found as the genuine runtime finds them: by `dlopen` and `dlsym`.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use radrm_cuda_abi::*;
use radrm_emulator_ffi::Answer;

/// The driver, once it is loaded. It stays: functions of it are called until the process ends.
fn library() -> Option<*mut c_void> {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let handle = *LIBRARY.get_or_init(|| {
        // SAFETY: a C string; loading the driver runs its own code only.
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) as usize }
    });
    (handle != 0).then_some(handle as *mut c_void)
}

/// An entry point that is looked up when it is first called.
pub struct Entry {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Entry {
    /// The entry point of that name.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Its address.
    ///
    /// # Errors
    /// CUDA_ERROR_NOT_SUPPORTED if the driver does not have it, CUDA_ERROR_STUB_LIBRARY if there is no driver.
    pub fn get(&self) -> Answer<*const c_void> {
        // Relaxed: the value is the same for every thread, and what it points to was there before.
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return Ok(known);
        }
        let library = library().ok_or(CUDA_ERROR_STUB_LIBRARY)?;
        // SAFETY: the handle of a loaded library and a C string.
        let found = unsafe { libc::dlsym(library, self.name.as_ptr()) };
        if found.is_null() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        self.address.store(found, Ordering::Relaxed);
        Ok(found)
    }
}

/// A driver call's result as an answer.
///
/// # Errors
/// What the driver said.
pub fn checked(result: CUresult) -> Answer {
    if result.is_ok() { Ok(()) } else { Err(result) }
}

macro_rules! entries {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the driver.")]
        ///
        /// # Errors
        /// What the driver says.
        ///
        /// # Safety
        /// Pointers are what the driver's documentation asks for.
        #[allow(clippy::too_many_arguments)]
        pub unsafe fn $name($($arg: $ty),*) -> Answer {
            static AT: Entry = {
                const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
                Entry::new(NAME)
            };
            let entry = AT.get()?;
            // SAFETY: the entry point of that name has these arguments.
            let call = unsafe {
                core::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> CUresult>(entry)
            };
            // SAFETY: as the caller promises.
            checked(unsafe { call($($arg),*) })
        }
    )*};
}

entries! {
    fn cuInit(flags: c_uint);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuGetErrorString(error: CUresult, text: *mut *const c_char);
    fn cuGetProcAddress_v2(name: *const c_char, address: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_uint);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    fn cuDeviceGetPCIBusId(text: *mut c_char, len: c_int, device: CUdevice);
    fn cuDeviceGetByPCIBusId(device: *mut CUdevice, text: *const c_char);
    fn cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
    fn cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, device: CUdevice, peer: CUdevice);
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    fn cuDevicePrimaryCtxReset_v2(device: CUdevice);
    fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int);
    fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint);
    fn cuCtxGetCurrent(context: *mut CUcontext);
    fn cuCtxSetCurrent(context: CUcontext);
    fn cuCtxGetDevice(device: *mut CUdevice);
    fn cuCtxSynchronize();
    fn cuCtxGetLimit(value: *mut usize, limit: c_uint);
    fn cuCtxSetLimit(limit: c_uint, value: usize);
    fn cuCtxGetCacheConfig(config: *mut c_uint);
    fn cuCtxSetCacheConfig(config: c_uint);
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
    fn cuCtxDisablePeerAccess(peer: CUcontext);
    fn cuLibraryLoadData(
        library: *mut CUlibrary, code: *const c_void, jit: *mut c_void, jit_values: *mut c_void, jit_count: c_uint,
        options: *mut c_void, values: *mut c_void, count: c_uint,
    );
    fn cuLibraryUnload(library: CUlibrary);
    fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    fn cuLibraryGetGlobal(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);
    fn cuKernelGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, kernel: CUkernel, device: CUdevice);
    fn cuKernelSetAttribute(attribute: CUfunction_attribute, value: c_int, kernel: CUkernel, device: CUdevice);
    fn cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel);
    fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel);
    fn cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize);
    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    fn cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
    fn cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
    fn cuFuncSetCacheConfig(function: CUfunction, config: c_uint);
    fn cuLaunchKernel(
        function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void,
    );
    fn cuLaunchCooperativeKernel(
        function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: CUstream, params: *mut *mut c_void,
    );
    fn cuLaunchKernelEx(
        config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void,
    );
    fn cuLaunchHostFunc(stream: CUstream, function: *const c_void, data: *mut c_void);
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int, function: CUfunction, block: c_int, shared: usize, flags: c_uint,
    );
    fn cuOccupancyAvailableDynamicSMemPerBlock(bytes: *mut usize, function: CUfunction, blocks: c_int, block: c_int);
    fn cuOccupancyMaxActiveClusters(count: *mut c_int, function: CUfunction, config: *const CUlaunchConfig);
    fn cuOccupancyMaxPotentialClusterSize(size: *mut c_int, function: CUfunction, config: *const CUlaunchConfig);
    fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    fn cuMemAllocPitch_v2(address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint);
    fn cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    fn cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    fn cuMemFree_v2(address: CUdeviceptr);
    fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    fn cuMemFreeHost(address: *mut c_void);
    fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint);
    fn cuMemHostUnregister(address: *mut c_void);
    fn cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, host: *mut c_void, flags: c_uint);
    fn cuMemHostGetFlags(flags: *mut c_uint, host: *mut c_void);
    fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, address: CUdeviceptr);
    fn cuMemcpy(target: CUdeviceptr, source: CUdeviceptr, bytes: usize);
    fn cuMemcpyHtoD_v2(target: CUdeviceptr, source: *const c_void, bytes: usize);
    fn cuMemcpyDtoH_v2(target: *mut c_void, source: CUdeviceptr, bytes: usize);
    fn cuMemcpyDtoD_v2(target: CUdeviceptr, source: CUdeviceptr, bytes: usize);
    fn cuMemcpyAsync(target: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyHtoDAsync_v2(target: CUdeviceptr, source: *const c_void, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoHAsync_v2(target: *mut c_void, source: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoDAsync_v2(target: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyPeer(target: CUdeviceptr, to: CUcontext, source: CUdeviceptr, from: CUcontext, bytes: usize);
    fn cuMemcpyPeerAsync(
        target: CUdeviceptr, to: CUcontext, source: CUdeviceptr, from: CUcontext, bytes: usize, stream: CUstream,
    );
    fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D);
    fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream);
    fn cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D);
    fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream);
    fn cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D);
    fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D, stream: CUstream);
    fn cuArray3DCreate_v2(array: *mut CUarray, shape: *const CUDA_ARRAY3D_DESCRIPTOR);
    fn cuArray3DGetDescriptor_v2(shape: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray);
    fn cuArrayDestroy(array: CUarray);
    fn cuMipmappedArrayCreate(
        mipmap: *mut CUmipmappedArray, shape: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint,
    );
    fn cuMipmappedArrayDestroy(mipmap: CUmipmappedArray);
    fn cuDeviceGetTexture1DLinearMaxWidth(
        width: *mut usize, format: c_uint, channels: c_uint, device: CUdevice,
    );
    fn cuTexObjectCreate(
        texture: *mut u64, resource: *const c_void, sampling: *const c_void, view: *const c_void,
    );
    fn cuTexObjectDestroy(texture: u64);
    fn cuTexObjectGetResourceDesc(resource: *mut c_void, texture: u64);
    fn cuTexObjectGetTextureDesc(sampling: *mut c_void, texture: u64);
    fn cuTexObjectGetResourceViewDesc(view: *mut c_void, texture: u64);
    fn cuSurfObjectCreate(surface: *mut u64, resource: *const c_void);
    fn cuSurfObjectDestroy(surface: u64);
    fn cuSurfObjectGetResourceDesc(resource: *mut c_void, surface: u64);
    fn cuMemsetD8_v2(address: CUdeviceptr, value: u8, count: usize);
    fn cuMemsetD8Async(address: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    fn cuMemsetD2D8_v2(address: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize);
    fn cuMemsetD2D8Async(
        address: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream,
    );
    fn cuPointerGetAttribute(value: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr);
    fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: CUdeviceptr);
    fn cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint);
    fn cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle);
    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus);
    fn cuEventCreate(event: *mut CUevent, flags: c_uint);
    fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    fn cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    );
    fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS);
    fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS);
    fn cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS,
    );
    fn cuGraphAddMemcpyNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        copy: *const CUDA_MEMCPY3D, context: CUcontext,
    );
    fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, copy: *const CUDA_MEMCPY3D);
    fn cuGraphExecMemcpyNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, copy: *const CUDA_MEMCPY3D, context: CUcontext,
    );
    fn cuGraphAddMemsetNode(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *const c_void,
        context: CUcontext,
    );
    fn cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, params: *const c_void, context: CUcontext,
    );
    fn cuGraphAddNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const c_void, count: usize,
        params: *mut c_void,
    );
    fn cuGraphConditionalHandleCreate(
        handle: *mut u64, graph: CUgraph, context: CUcontext, value: c_uint, flags: c_uint,
    );
}
