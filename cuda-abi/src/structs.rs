//! Structures that cross the driver interface by pointer or by value.
//!
//! Only structures that this project reads or writes are spelled out; all others pass as
//! `*mut c_void`. Their names are listed in `table::KNOWN_STRUCTS`, which a test compares with this
//! module.

use core::ffi::{c_int, c_uint, c_void};

use crate::handles::*;

macro_rules! int_enums {
    ($($(#[$meta:meta])* $name:ident : $repr:ty { $($variant:ident = $value:expr),* $(,)? })*) => {$(
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(pub $repr);
        $(
            #[doc = concat!("Value of [`", stringify!($name), "`].")]
            pub const $variant: $name = $name($value);
        )*
    )*};
}

int_enums! {
    /// Kind of a memory location.
    CUmemLocationType: u32 {
        CU_MEM_LOCATION_TYPE_INVALID = 0,
        CU_MEM_LOCATION_TYPE_DEVICE = 1,
        CU_MEM_LOCATION_TYPE_HOST = 2,
        CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
        CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT = 4,
    }
    /// Checkpoint state of a process.
    CUprocessState: u32 {
        CU_PROCESS_STATE_RUNNING = 0,
        CU_PROCESS_STATE_LOCKED = 1,
        CU_PROCESS_STATE_CHECKPOINTED = 2,
        CU_PROCESS_STATE_FAILED = 3,
    }
    /// Kind of a physical allocation.
    CUmemAllocationType: u32 {
        CU_MEM_ALLOCATION_TYPE_INVALID = 0,
        CU_MEM_ALLOCATION_TYPE_PINNED = 1,
        CU_MEM_ALLOCATION_TYPE_MANAGED = 2,
    }
    /// Pool attribute.
    CUmemPool_attribute: u32 {
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC = 2,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
        CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,
    }
    /// Attribute of a device's graph memory.
    CUgraphMem_attribute: u32 {
        CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT = 0,
        CU_GRAPH_MEM_ATTR_USED_MEM_HIGH = 1,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH = 3,
    }
    /// State of a stream with respect to capture.
    CUstreamCaptureStatus: u32 {
        CU_STREAM_CAPTURE_STATUS_NONE = 0,
        CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
        CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
    }
    /// Interaction of a thread's calls with captures under way.
    CUstreamCaptureMode: u32 {
        CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
        CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    }
    /// Kind of a graph node.
    CUgraphNodeType: u32 {
        CU_GRAPH_NODE_TYPE_KERNEL = 0,
        CU_GRAPH_NODE_TYPE_MEMCPY = 1,
        CU_GRAPH_NODE_TYPE_MEMSET = 2,
        CU_GRAPH_NODE_TYPE_HOST = 3,
        CU_GRAPH_NODE_TYPE_GRAPH = 4,
        CU_GRAPH_NODE_TYPE_EMPTY = 5,
        CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6,
        CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7,
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL = 8,
        CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT = 9,
        CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
        CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
        CU_GRAPH_NODE_TYPE_BATCH_MEM_OP = 12,
        CU_GRAPH_NODE_TYPE_CONDITIONAL = 13,
    }
    /// Attribute of a function or kernel.
    CUfunction_attribute: u32 {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
        CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
        CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
        CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
        CU_FUNC_ATTRIBUTE_CACHE_MODE_CA = 7,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
    }
    /// Attribute of a pointer.
    CUpointer_attribute: u32 {
        CU_POINTER_ATTRIBUTE_CONTEXT = 1,
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
        CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
        CU_POINTER_ATTRIBUTE_P2P_TOKENS = 5,
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
        CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
        CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
        CU_POINTER_ATTRIBUTE_MAPPED = 13,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15,
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18,
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,
        CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20,
    }
}

macro_rules! plain_structs {
    ($($(#[$meta:meta])* $name:ident [$size:expr] { $($(#[$fmeta:meta])* $field:ident : $ty:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $($(#[$fmeta])* #[allow(missing_docs)] pub $field: $ty,)*
        }
        const _: () = assert!(core::mem::size_of::<$name>() == $size, stringify!($name));
    )*};
}

plain_structs! {
    /// 16-byte device identifier.
    #[derive(Default)]
    CUuuid [16] { bytes: [u8; 16] }
    /// Arguments of `cuCheckpointProcessLock`; `timeoutMs` 0 waits without end.
    #[derive(Default)]
    CUcheckpointLockArgs [64] { timeoutMs: c_uint, reserved0: c_uint, reserved1: [u64; 7] }
    /// Arguments of `cuCheckpointProcessCheckpoint`.
    #[derive(Default)]
    CUcheckpointCheckpointArgs [64] { reserved: [u64; 8] }
    /// A GPU that takes another one's place in a restore.
    #[derive(Default)]
    CUcheckpointGpuPair [32] { oldUuid: CUuuid, newUuid: CUuuid }
    /// Arguments of `cuCheckpointProcessRestore`.
    CUcheckpointRestoreArgs [64] {
        gpuPairs: *mut CUcheckpointGpuPair,
        gpuPairsCount: c_uint,
        padding0: c_uint,
        customStorageInfo_out: *mut c_void,
        reserved: [u64; 5],
    }
    /// Arguments of `cuCheckpointProcessUnlock`.
    #[derive(Default)]
    CUcheckpointUnlockArgs [64] { reserved: [u64; 8] }
    /// Location of memory: a device (`id` is the ordinal), the host, or a NUMA node.
    CUmemLocation [8] { kind: CUmemLocationType, id: c_int }
    /// Flags inside [`CUmemAllocationProp`].
    CUmemAllocationFlags [8] {
        compressionType: u8,
        gpuDirectRDMACapable: u8,
        usage: u16,
        reserved: [u8; 4],
    }
    /// Properties of a physical allocation.
    CUmemAllocationProp [32] {
        kind: CUmemAllocationType,
        requestedHandleTypes: u32,
        location: CUmemLocation,
        win32HandleMetaData: *mut c_void,
        allocFlags: CUmemAllocationFlags,
    }
    /// Properties of a memory pool.
    CUmemPoolProps [88] {
        allocType: CUmemAllocationType,
        handleTypes: u32,
        location: CUmemLocation,
        win32SecurityAttributes: *mut c_void,
        maxSize: usize,
        usage: u16,
        reserved: [u8; 54],
    }
    /// Access rights of a location to memory.
    CUmemAccessDesc [12] { location: CUmemLocation, flags: u32 }
    /// Descriptor of an array.
    CUDA_ARRAY_DESCRIPTOR [24] { Width: usize, Height: usize, Format: u32, NumChannels: c_uint }
    /// Descriptor of an array in the 32-bit interface.
    CUDA_ARRAY_DESCRIPTOR_v1 [16] { Width: c_uint, Height: c_uint, Format: u32, NumChannels: c_uint }
    /// Descriptor of a 3D array.
    CUDA_ARRAY3D_DESCRIPTOR [40] {
        Width: usize, Height: usize, Depth: usize, Format: u32, NumChannels: c_uint, Flags: c_uint,
    }
    /// Descriptor of a 3D array in the 32-bit interface.
    CUDA_ARRAY3D_DESCRIPTOR_v1 [24] {
        Width: c_uint, Height: c_uint, Depth: c_uint, Format: u32, NumChannels: c_uint, Flags: c_uint,
    }
    /// Memory that an array takes.
    CUDA_ARRAY_MEMORY_REQUIREMENTS [32] { size: usize, alignment: usize, reserved: [c_uint; 4] }
    /// Parameters of a kernel node (CUDA 11).
    CUDA_KERNEL_NODE_PARAMS_v1 [56] {
        func: CUfunction,
        gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint,
        blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
    }
    /// Parameters of a kernel node (CUDA 12): exactly one of `func` and `kern` is set.
    CUDA_KERNEL_NODE_PARAMS [72] {
        func: CUfunction,
        gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint,
        blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
        kern: CUkernel,
        ctx: CUcontext,
    }
    /// Parameters of a memory allocation node.
    CUDA_MEM_ALLOC_NODE_PARAMS [120] {
        poolProps: CUmemPoolProps,
        accessDescs: *const CUmemAccessDesc,
        accessDescCount: usize,
        bytesize: usize,
        dptr: CUdeviceptr,
    }
    /// Parameters of `cuGraphInstantiateWithParams`.
    CUDA_GRAPH_INSTANTIATE_PARAMS [32] {
        flags: u64,
        hUploadStream: CUstream,
        hErrNode_out: CUgraphNode,
        result_out: u32,
    }
    /// Launch of one device in `cuLaunchCooperativeKernelMultiDevice`.
    CUDA_LAUNCH_PARAMS [56] {
        function: CUfunction,
        gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint,
        blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        hStream: CUstream,
        kernelParams: *mut *mut c_void,
    }
    /// Configuration of `cuLaunchKernelEx`.
    CUlaunchConfig [56] {
        gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint,
        blockDimX: c_uint, blockDimY: c_uint, blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        hStream: CUstream,
        attrs: *mut c_void,
        numAttrs: c_uint,
    }
    /// Two-dimensional copy. Memory types: 1 host, 2 device, 3 array, 4 unified.
    CUDA_MEMCPY2D [128] {
        srcXInBytes: usize, srcY: usize, srcMemoryType: u32, srcHost: *const c_void,
        srcDevice: CUdeviceptr, srcArray: CUarray, srcPitch: usize,
        dstXInBytes: usize, dstY: usize, dstMemoryType: u32, dstHost: *mut c_void,
        dstDevice: CUdeviceptr, dstArray: CUarray, dstPitch: usize,
        WidthInBytes: usize, Height: usize,
    }
    /// Three-dimensional copy; between devices the reserved fields are contexts.
    CUDA_MEMCPY3D [200] {
        srcXInBytes: usize, srcY: usize, srcZ: usize, srcLOD: usize, srcMemoryType: u32,
        srcHost: *const c_void, srcDevice: CUdeviceptr, srcArray: CUarray, reserved0: *mut c_void,
        srcPitch: usize, srcHeight: usize,
        dstXInBytes: usize, dstY: usize, dstZ: usize, dstLOD: usize, dstMemoryType: u32,
        dstHost: *mut c_void, dstDevice: CUdeviceptr, dstArray: CUarray, reserved1: *mut c_void,
        dstPitch: usize, dstHeight: usize,
        WidthInBytes: usize, Height: usize, Depth: usize,
    }
    /// One side of a copy of `cuMemcpy3DBatchAsync`: a pointer (`kind` 1: address, row length and layer
    /// height in elements, location) or an array (`kind` 2: handle and offset in x, y, z).
    CUmemcpy3DOperand [40] { kind: u32, words: [u64; 4] }
    /// One copy of `cuMemcpy3DBatchAsync`.
    CUDA_MEMCPY3D_BATCH_OP [112] {
        src: CUmemcpy3DOperand, dst: CUmemcpy3DOperand,
        width: usize, height: usize, depth: usize, srcAccessOrder: u32, flags: c_uint,
    }
    /// External memory to import; `handle` is a union whose first word holds a file descriptor.
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC [104] {
        kind: u32, handle: [u64; 2], size: u64, flags: c_uint, reserved: [c_uint; 16],
    }
    /// Part of external memory.
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC [88] { offset: u64, size: u64, flags: c_uint, reserved: [c_uint; 16] }
    /// Inter-process handle of device memory.
    CUipcMemHandle [64] { reserved: [u8; 64] }
    /// Inter-process handle of an event.
    CUipcEventHandle [64] { reserved: [u8; 64] }
    /// Opaque data that names a pool allocation in another process.
    CUmemPoolPtrExportData [64] { reserved: [u8; 64] }
}
