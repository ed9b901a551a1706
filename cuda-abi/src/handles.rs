//! Opaque handles and scalar types of the driver interface.

use core::ffi::{c_int, c_void};

macro_rules! opaque_handles {
    ($($name:ident),* $(,)?) => {$(
        #[doc = concat!("Opaque `", stringify!($name), "`.")]
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name(pub *mut c_void);

        impl $name {
            /// The null handle.
            pub const NULL: Self = Self(core::ptr::null_mut());

            /// Returns true for the null handle.
            pub fn is_null(self) -> bool {
                self.0.is_null()
            }

            /// The handle's bits, for use as a key.
            pub fn addr(self) -> u64 {
                self.0 as usize as u64
            }
        }

        // SAFETY: a handle is a token that the driver accepts from any thread; nothing is
        // dereferenced on this side.
        unsafe impl Send for $name {}
        // SAFETY: as for `Send`.
        unsafe impl Sync for $name {}
    )*};
}

opaque_handles!(
    CUcontext,
    CUmodule,
    CUfunction,
    CUkernel,
    CUlibrary,
    CUstream,
    CUevent,
    CUarray,
    CUmipmappedArray,
    CUmemoryPool,
    CUgraph,
    CUgraphExec,
    CUgraphNode,
    CUgreenCtx,
    CUexternalMemory,
    CUexternalSemaphore,
    CUgraphicsResource,
    CUlinkState,
    CUtexref,
    CUsurfref,
    CUuserObject,
    CUdevResourceDesc,
    CUcheckpointOperationHandle,
    nvmlDevice_t,
);

/// Device ordinal, as `CUDA_VISIBLE_DEVICES` leaves it for this process.
pub type CUdevice = c_int;
/// Device address.
pub type CUdeviceptr = u64;
/// Device address of the 32-bit interface that CUDA 3.2 replaced.
pub type CUdeviceptr_v1 = u32;
/// Handle of physical memory made by `cuMemCreate`.
pub type CUmemGenericAllocationHandle = u64;
/// Texture object.
pub type CUtexObject = u64;
/// Surface object.
pub type CUsurfObject = u64;

/// Stream handle that stands for the legacy default stream.
pub const CU_STREAM_LEGACY: CUstream = CUstream(core::ptr::without_provenance_mut(1));
/// Stream handle that stands for the calling thread's default stream.
pub const CU_STREAM_PER_THREAD: CUstream = CUstream(core::ptr::without_provenance_mut(2));
