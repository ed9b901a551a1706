//! GPM metrics: for devices of compute capability 9.0 and later.
//!
//! Metrics for which the machine has no figure answer NOT_SUPPORTED one by one.

use std::ffi::{CStr, c_char, c_uint};

use radrm_emulator_machine::{GpuSpec, Machine};

use crate::api::*;
use crate::model::Sums;
use crate::state::{Device, now_ns};

/// A sample, behind the handle of C programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    gpu: Option<usize>,
    sums: Sums,
}

/// `nvmlGpmSample_t`.
pub type Handle = *mut Sample;

/// `nvmlGpmSupport_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Support {
    /// 1.
    pub version: u32,
    /// 1 if the device has GPM, else 0.
    pub supported: u32,
}

/// `nvmlGpmMetric_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Metric id.
    pub id: u32,
    /// Return code: success if there is a value.
    pub outcome: u32,
    /// The value.
    pub value: f64,
    /// Short name, long name, unit.
    pub texts: [*const c_char; 3],
}
const _: () = assert!(size_of::<Metric>() == 40);

/// `nvmlGpmMetricsGet_t` without the metrics, which follow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// 1.
    pub version: u32,
    /// Number of metrics.
    pub count: u32,
    /// Earlier sample.
    pub first: Handle,
    /// Later sample.
    pub second: Handle,
}
const _: () = assert!(size_of::<Request>() == 24);

struct Known {
    value: f64,
    short: &'static CStr,
    long: &'static CStr,
    unit: &'static CStr,
}

/// A metric over the time between two samples. Kernels are taken to keep the memory busy for half of their time; PCI
/// Express moves as much in each direction.
fn metric(id: u32, now: &Sums, before: &Sums, spec: &GpuSpec) -> Option<Known> {
    let (kernels, copies) = now.shares_since(before);
    let (active, resident) = now.sm_since(before, spec);
    let mib_per_s = spec.pcie_gbs() * 1e9 / f64::from(1 << 20) * copies / 2.0;
    let known = |value, short, long, unit| Some(Known { value, short, long, unit });
    match id {
        1 => known(kernels * 100.0, c"GRACT", c"Graphics Engine Active", c"%"),
        2 => known(active * 100.0, c"SMACT", c"SM Activity", c"%"),
        3 => known(resident * 100.0, c"SMOCC", c"SM Occupancy", c"%"),
        10 => known((kernels / 2.0 + copies).min(1.0) * 100.0, c"DRAMA", c"DRAM Active", c"%"),
        20 => known(mib_per_s, c"PCITX", c"PCIe Bytes Transmitted", c"MiB/s"),
        21 => known(mib_per_s, c"PCIRX", c"PCIe Bytes Received", c"MiB/s"),
        _ => None,
    }
}

fn supported(machine: &Machine, device: Device) -> Answer<bool> {
    Ok(device.spec(machine)?.capability().0 >= 9)
}

/// Reads a sample behind a handle.
fn sample(handle: Handle) -> Answer<Sample> {
    if handle.is_null() {
        return Err(ERROR_INVALID_ARGUMENT);
    }
    // SAFETY: not null, and then the caller promises a handle of `nvmlGpmSampleAlloc`.
    Ok(unsafe { *handle })
}

entry_points! {
    /// Reports whether a device has GPM.
    fn nvmlGpmQueryDeviceSupport(device: Device, out: Out<Support>) |machine| {
        if out.get()?.version != 1 {
            return Err(ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        out.set(Support { version: 1, supported: u32::from(supported(machine, device)?) })
    }

    /// Makes room for a sample.
    fn nvmlGpmSampleAlloc(out: Out<Handle>) |_machine| {
        let sample = Box::into_raw(Box::<Sample>::default());
        let stored = out.set(sample);
        if stored.is_err() {
            // SAFETY: made above, and nothing else refers to it.
            drop(unsafe { Box::from_raw(sample) });
        }
        stored
    }

    /// Gives a sample back.
    fn nvmlGpmSampleFree(handle: Handle) |_machine| {
        sample(handle)?;
        // SAFETY: not null, and the caller promises that it came from `nvmlGpmSampleAlloc` and is not
        // used again.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    }

    /// Takes a sample.
    fn nvmlGpmSampleGet(device: Device, handle: Handle) |machine| {
        if !supported(machine, device)? {
            return Err(ERROR_NOT_SUPPORTED);
        }
        sample(handle)?;
        let gpu = device.gpu(machine)?;
        // SAFETY: checked above.
        unsafe { *handle = Sample { gpu: Some(gpu), sums: Sums::read(machine, gpu, now_ns()) } };
        Ok(())
    }

    /// Metrics over the time between two samples of one device.
    fn nvmlGpmMetricsGet(out: Out<Request>) |machine| {
        let request = out.get()?;
        if request.version != 1 {
            return Err(ERROR_ARGUMENT_VERSION_MISMATCH);
        }
        let (first, second) = (sample(request.first)?, sample(request.second)?);
        let gpu = first.gpu.filter(|_| first.gpu == second.gpu).ok_or(ERROR_INVALID_ARGUMENT)?;
        let spec = machine.gpu(gpu).ok_or(ERROR_INVALID_ARGUMENT)?;
        let metrics = out.after(1).cast::<Metric>();
        for index in 0..request.count as usize {
            let mut place = metrics.after(index).get()?;
            match metric(place.id, &second.sums, &first.sums, spec) {
                Some(known) => {
                    place.value = known.value;
                    place.outcome = SUCCESS.0;
                    place.texts = [known.short.as_ptr(), known.long.as_ptr(), known.unit.as_ptr()];
                }
                None => {
                    place.value = 0.0;
                    place.outcome = ERROR_NOT_SUPPORTED.0;
                    place.texts = [c"".as_ptr(); 3];
                }
            }
            metrics.set_at(index, place)?;
        }
        Ok(())
    }

    /// Samples of MIG instances do not exist here.
    fn nvmlGpmMigSampleGet(device: Device, _instance: c_uint, _handle: Handle) |machine| {
        device.gpu(machine)?;
        Err(ERROR_NOT_SUPPORTED)
    }
}
