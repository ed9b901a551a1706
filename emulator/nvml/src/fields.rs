//! Field values: the few that the machine has a figure for.

use std::ffi::c_int;

use radrm_emulator_machine::Machine;

use crate::activity::{energy, power};
use crate::api::*;
use crate::state::Device;

/// `nvmlFieldValue_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Field id.
    pub id: u32,
    /// Part of the device that it is about.
    pub scope: u32,
    /// Time (us since 1970).
    pub time_us: i64,
    /// Duration of the query, us.
    pub took_us: i64,
    /// Type of `value`: 1 `unsigned int`, 3 `unsigned long long`.
    pub kind: u32,
    /// Return code: success if there is a value.
    pub outcome: u32,
    /// The value.
    pub value: u64,
}
const _: () = assert!(size_of::<Field>() == 40);

const UNSIGNED: u32 = 1;
const UNSIGNED_LONG_LONG: u32 = 3;

fn value(machine: &Machine, device: Device, id: u32) -> Answer<(u32, u64)> {
    let spec = device.spec(machine)?;
    match id {
        // Error correction now and pending, errors of all sorts.
        1 | 2 if spec.ecc => Ok((UNSIGNED, 1)),
        3..=30 if spec.ecc => Ok((UNSIGNED_LONG_LONG, 0)),
        // Energy (mJ).
        83 => Ok((UNSIGNED_LONG_LONG, energy(machine, device)?)),
        // Average and instantaneous power (mW).
        185 | 186 => Ok((UNSIGNED, power(machine, device)?.into())),
        _ => Err(ERROR_NOT_SUPPORTED),
    }
}

fn now_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

entry_points! {
    /// Several fields; each says whether it has a value.
    fn nvmlDeviceGetFieldValues(device: Device, count: c_int, fields: Out<Field>) |machine| {
        device.gpu(machine)?;
        let count = usize::try_from(count).map_err(|_| ERROR_INVALID_ARGUMENT)?;
        for index in 0..count {
            let mut field = fields.after(index).get()?;
            field.time_us = now_us();
            field.took_us = 0;
            match value(machine, device, field.id) {
                Ok((kind, value)) => (field.kind, field.value, field.outcome) = (kind, value, SUCCESS.0),
                Err(error) => (field.kind, field.value, field.outcome) = (UNSIGNED, 0, error.0),
            }
            fields.set_at(index, field)?;
        }
        Ok(())
    }
}
