//! Links between devices.

use std::ffi::c_uint;

use crate::api::*;
use crate::state::Device;

/// `nvmlGpuFabricInfo_t` without its version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Fabric {
    cluster: [u8; 16],
    status: u32,
    clique: u32,
    /// One byte in C; as a word its padding is zero too.
    state: u32,
}

/// `nvmlGpuFabricInfo_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FabricV2 {
    version: u32,
    cluster: [u8; 16],
    status: u32,
    clique: u32,
    /// One byte in C; as a word its padding is zero too.
    state: u32,
    health: u32,
}
const _: () = assert!(size_of::<FabricV2>() == 36);

/// `nvmlGpuFabricInfo_v3_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FabricV3 {
    before: FabricV2,
    summary: u8,
}
const _: () = assert!(size_of::<FabricV3>() == 40);

entry_points! {
    /// The fabric that a device is part of: none.
    fn nvmlDeviceGetGpuFabricInfo(device: Device, out: Out<Fabric>) |machine| {
        device.gpu(machine)?;
        out.set(Fabric::default())
    }

    /// The fabric that a device is part of: none. The caller says which version of the structure it has.
    fn nvmlDeviceGetGpuFabricInfoV(device: Device, out: Out<FabricV2>) |machine| {
        device.gpu(machine)?;
        let version = out.cast::<u32>().get()?;
        if version == version_of::<FabricV2>(2) {
            out.set(FabricV2 { version, ..FabricV2::default() })
        } else if version == version_of::<FabricV3>(3) {
            let before = FabricV2 { version, ..FabricV2::default() };
            out.cast::<FabricV3>().set(FabricV3 { before, summary: 0 })
        } else {
            Err(ERROR_ARGUMENT_VERSION_MISMATCH)
        }
    }

    /// Nearest common ancestor of two devices: the board (0) with itself, else the NUMA node (40).
    fn nvmlDeviceGetTopologyCommonAncestor(one: Device, other: Device, out: Out<c_uint>) |machine| {
        out.set(if one.gpu(machine)? == other.gpu(machine)? { 0 } else { 40 })
    }

    /// Devices within a distance: all others from the NUMA node (40) on, none closer.
    fn nvmlDeviceGetTopologyNearestGpus(device: Device, level: c_uint, count: Out<c_uint>, out: Out<Device>) |machine| {
        let own = device.gpu(machine)?;
        let near: Vec<Device> =
            (0..machine.gpu_count()).filter(|gpu| *gpu != own && level >= 40).map(Device::new).collect();
        if out.is_null() {
            return count.set(near.len() as c_uint);
        }
        fill(count, out, &near)
    }

    /// Peer-to-peer status of two devices: they reach each other (0).
    fn nvmlDeviceGetP2PStatus(one: Device, other: Device, _kind: c_uint, out: Out<c_uint>) |machine| {
        one.gpu(machine)?;
        other.gpu(machine)?;
        out.set(0)
    }

    /// Reports whether two devices are on one board.
    fn nvmlDeviceOnSameBoard(one: Device, other: Device, out: Out<c_uint>) |machine| {
        out.set(u32::from(one.gpu(machine)? == other.gpu(machine)?))
    }
}
