//! Entry points that concern no device.

use std::ffi::{c_char, c_int, c_uint};

use crate::api::*;
use crate::state;

/// Version of the display driver that comes with a CUDA version (such as 12080).
pub fn driver_version(cuda: u32) -> &'static str {
    match cuda {
        13040.. => "615.71",
        13000.. => "580.65.06",
        12090.. => "575.51.03",
        12080.. => "570.86.10",
        12060.. => "560.28.03",
        12040.. => "550.54.14",
        12020.. => "535.54.03",
        12000.. => "525.60.13",
        11080.. => "520.61.05",
        11040.. => "470.42.01",
        _ => "450.51.06",
    }
}

/// Opens the machine.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlInit_v2() -> Return {
    guarded(state::init)
}

/// Opens the machine.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlInit() -> Return {
    guarded(state::init)
}

/// Opens the machine; the flags say what to do about absent GPUs, and none is absent here.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> Return {
    guarded(state::init)
}

/// Gives the machine back.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlShutdown() -> Return {
    guarded(state::shutdown)
}

/// Text of a result; never null.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlErrorString(result: Return) -> *const c_char {
    RESULTS.iter().find(|(code, _)| *code == result).map_or(c"Unknown Error", |(_, text)| text).as_ptr()
}

entry_points! {
    /// Version of the display driver.
    fn nvmlSystemGetDriverVersion(out: Out<c_char>, room: c_uint) |machine| {
        set_text(out, room, driver_version(machine.spec().driver_version))
    }

    /// Version of this library.
    fn nvmlSystemGetNVMLVersion(out: Out<c_char>, room: c_uint) |machine| {
        let cuda = machine.spec().driver_version;
        set_text(out, room, &format!("{}.{}", cuda / 1000, driver_version(cuda)))
    }

    /// CUDA version of the driver.
    also nvmlSystemGetCudaDriverVersion;
    fn nvmlSystemGetCudaDriverVersion_v2(out: Out<c_int>) |machine| {
        out.set(machine.spec().driver_version as c_int)
    }

    /// Name of a process.
    fn nvmlSystemGetProcessName(pid: c_uint, out: Out<c_char>, room: c_uint) |_machine| {
        let path = std::fs::read_link(format!("/proc/{pid}/exe")).map_err(|_| ERROR_NOT_FOUND)?;
        let text = path.to_string_lossy().into_owned();
        let cut = text.len().min((room as usize).saturating_sub(1));
        set_text(out, room, text.get(..cut).unwrap_or_default())
    }

    /// There are no S-class units.
    fn nvmlUnitGetCount(out: Out<c_uint>) |_machine| {
        out.set(0)
    }

    /// No GPU is excluded.
    fn nvmlGetExcludedDeviceCount(out: Out<c_uint>) |_machine| {
        out.set(0)
    }
}
