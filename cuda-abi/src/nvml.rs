//! The part of NVML's interface that tells of memory and of who holds it.
//!
//! The names are those of `nvml.h`, under which NVIDIA's "NVML API Reference Guide" documents them.

use core::ffi::{c_uint, c_ulonglong};

/// Result of an NVML call. A newtype over the number, so that an unknown code passes through unharmed.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[must_use]
pub struct nvmlReturn_t(pub c_uint);

impl nvmlReturn_t {
    /// Returns true if the call succeeded.
    pub const fn is_ok(self) -> bool {
        self.0 == NVML_SUCCESS.0
    }
}

/// The call succeeded.
pub const NVML_SUCCESS: nvmlReturn_t = nvmlReturn_t(0);
/// The caller's list has too little room; the count says how much is needed.
pub const NVML_ERROR_INSUFFICIENT_SIZE: nvmlReturn_t = nvmlReturn_t(7);
/// The library is not there.
pub const NVML_ERROR_LIBRARY_NOT_FOUND: nvmlReturn_t = nvmlReturn_t(12);
/// The library has no such function.
pub const NVML_ERROR_FUNCTION_NOT_FOUND: nvmlReturn_t = nvmlReturn_t(13);

/// Room for the text of a UUID, terminating zero included (`NVML_DEVICE_UUID_V2_BUFFER_SIZE`).
pub const NVML_DEVICE_UUID_V2_BUFFER_SIZE: usize = 96;

/// Memory of a device in bytes: total = free + used.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct nvmlMemory_t {
    /// In all.
    pub total: c_ulonglong,
    /// Of that, free.
    pub free: c_ulonglong,
    /// Of that, taken by processes and by the device itself.
    pub used: c_ulonglong,
}

/// Memory of a device in bytes: total = reserved + free + used.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct nvmlMemory_v2_t {
    /// [`nvmlMemory_v2`], set by the caller.
    pub version: c_uint,
    /// In all.
    pub total: c_ulonglong,
    /// Of that, kept by the driver and the firmware.
    pub reserved: c_ulonglong,
    /// Of that, free.
    pub free: c_ulonglong,
    /// Of that, taken by processes.
    pub used: c_ulonglong,
}

/// Version word of [`nvmlMemory_v2_t`]: its size, and 2 in the top byte.
pub const nvmlMemory_v2: c_uint = size_of::<nvmlMemory_v2_t>() as c_uint | 2 << 24;

/// A process on a device, as the functions without a version in their name list it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct nvmlProcessInfo_v1_t {
    /// Process.
    pub pid: c_uint,
    /// Bytes that it holds on the device.
    pub usedGpuMemory: c_ulonglong,
}

/// A process on a device, as the functions with `_v2` and `_v3` list it. For a time `_v3` had one more
/// 64-bit word at the end, [`PROCESS_INFO_LONGEST`].
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct nvmlProcessInfo_v2_t {
    /// Process.
    pub pid: c_uint,
    /// Bytes that it holds on the device.
    pub usedGpuMemory: c_ulonglong,
    /// GPU instance under MIG, else all ones.
    pub gpuInstanceId: c_uint,
    /// Compute instance under MIG, else all ones.
    pub computeInstanceId: c_uint,
}

/// Bytes of one process in a list of `_v3` by the NVML of driver 535 in its first releases, which tells the
/// memory that confidential computing protects as well.
pub const PROCESS_INFO_LONGEST: usize = 32;

/// A process on a device, as [`nvmlProcessDetailList_v1_t`] lists it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct nvmlProcessDetail_v1_t {
    /// Process.
    pub pid: c_uint,
    /// Bytes that it holds on the device.
    pub usedGpuMemory: c_ulonglong,
    /// GPU instance under MIG, else all ones.
    pub gpuInstanceId: c_uint,
    /// Compute instance under MIG, else all ones.
    pub computeInstanceId: c_uint,
    /// Bytes that confidential computing protects.
    pub usedGpuCcProtectedMemory: c_ulonglong,
}

/// The processes on a device of one kind.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct nvmlProcessDetailList_v1_t {
    /// [`nvmlProcessDetailList_v1`], set by the caller.
    pub version: c_uint,
    /// Kind of process: 0 computing, 1 drawing, 2 computing under MPS.
    pub mode: c_uint,
    /// Room in the list, and then processes in it.
    pub numProcArrayEntries: c_uint,
    /// The list.
    pub procArray: *mut nvmlProcessDetail_v1_t,
}

/// Version word of [`nvmlProcessDetailList_v1_t`].
pub const nvmlProcessDetailList_v1: c_uint = size_of::<nvmlProcessDetailList_v1_t>() as c_uint | 1 << 24;

const _: () = {
    assert!(size_of::<nvmlProcessDetail_v1_t>() == 32 && nvmlProcessDetailList_v1 == 0x0100_0018);
    assert!(size_of::<nvmlMemory_t>() == 24);
    assert!(size_of::<nvmlMemory_v2_t>() == 40 && nvmlMemory_v2 == 0x0200_0028);
    assert!(size_of::<nvmlProcessInfo_v1_t>() == 16);
    assert!(size_of::<nvmlProcessInfo_v2_t>() == 24);
};
