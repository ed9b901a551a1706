//! NVML's answers to the program: under a quota the quota is the device's memory, and the job is alone on it.
//!
//! A program that asks NVML need not use CUDA (a monitor): it does not join the job's segment for this, it
//! reads the ledgers ([`ledgers`]). Where a GPU has no limit, where anything is missing, and for every
//! answer but success, the program gets what NVML says, untouched.

mod ledgers;
pub(crate) mod memory;
pub(crate) mod processes;
mod uuid;

use radrm_cuda_abi::nvmlDevice_t;

use crate::quota::{View, deny};
use crate::shell;
use ledgers::Ledgers;

/// The quota's view of a device; `None`: the program gets what NVML says. `total_bytes`: memory of the device.
fn view(device: nvmlDevice_t, total_bytes: u64) -> Option<View> {
    match seen(device, total_bytes) {
        Some((_, view)) => Some(view),
        // What cannot be counted is refused. Ledgers that can be read have no limit on this device.
        None => (deny::applies() && !has_ledgers()).then(|| deny::view(uuid::of(device), total_bytes)),
    }
}

fn has_ledgers() -> bool {
    shell::caught_cold(ledgers::get).flatten().is_some()
}

/// The ledgers and the quota's view of a device; `None`: the program gets what NVML says.
/// `total_bytes`: memory of the device.
fn seen(device: nvmlDevice_t, total_bytes: u64) -> Option<(&'static Ledgers, View)> {
    let ledgers = shell::caught_cold(ledgers::get)??;
    let uuid = uuid::of(device)?;
    let view = shell::caught_cold(|| ledgers.view(&uuid, total_bytes))??;
    Some((ledgers, view))
}
