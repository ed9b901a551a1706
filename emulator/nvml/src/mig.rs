//! MIG. Instances are GPUs of their own on the emulated machine; a whole GPU has none below it.

use std::ffi::c_uint;

use crate::api::*;
use crate::state::Device;

entry_points! {
    /// Whether MIG is on, now and after the next start; devices before 8.0 do not have it.
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

    /// Whether a device is an instance.
    fn nvmlDeviceIsMigDeviceHandle(device: Device, out: Out<c_uint>) |machine| {
        out.set(u32::from(device.spec(machine)?.mig_profile.is_some()))
    }

    /// The device above an instance is not on the machine.
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device: Device, _out: Out<Device>) |machine| {
        match device.spec(machine)?.mig_profile {
            Some(_) => Err(ERROR_NOT_FOUND),
            None => Err(ERROR_INVALID_ARGUMENT),
        }
    }
}
