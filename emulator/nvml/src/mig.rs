//! MIG. Instances are GPUs of their own on the emulated machine; a whole GPU has none below it.

use std::ffi::c_uint;

use crate::api::*;
use crate::state::Device;

entry_points! {
    /// MIG mode, now and after the next start.
    /// Devices of compute capability before 8.0, and from 8.6 to 8.9, do not have it.
    fn nvmlDeviceGetMigMode(device: Device, now: Out<c_uint>, pending: Out<c_uint>) |machine| {
        let spec = device.spec(machine)?;
        let (major, minor) = spec.capability();
        if (major, minor) < (8, 0) || matches!((major, minor), (8, 6..)) {
            return Err(ERROR_NOT_SUPPORTED);
        }
        now.set(u32::from(spec.mig))?;
        pending.set(u32::from(spec.mig))
    }

    /// An instance below a device: there is none.
    fn nvmlDeviceGetMigDeviceHandleByIndex(device: Device, _index: c_uint, _out: Out<Device>) |machine| {
        device.gpu(machine)?;
        Err(ERROR_NOT_FOUND)
    }

    /// Reports whether a device is an instance below another one: never.
    /// An emulated instance is counted and found by an index as a GPU is, and monitors look for the GPU above one that
    /// is below.
    fn nvmlDeviceIsMigDeviceHandle(device: Device, out: Out<c_uint>) |machine| {
        device.gpu(machine)?;
        out.set(0)
    }

    /// The device above an instance: no device is below another one.
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device: Device, _out: Out<Device>) |machine| {
        device.gpu(machine)?;
        Err(ERROR_INVALID_ARGUMENT)
    }
}
