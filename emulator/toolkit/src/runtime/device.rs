//! Devices, and the context that the runtime makes for a thread before it does anything.

use core::ffi::{c_char, c_int, c_uint};
use std::cell::Cell;
use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::{LazyLock, Mutex, PoisonError};

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, In, Out};

use super::runtime;
use radrm_cuda_client as driver;

const PROPERTIES: &str = include_str!("../../data/device_properties.tsv");
/// `cudaDeviceProp` of CUDA 12 and 13: where its members are.
static LAYOUTS: LazyLock<HashMap<u32, Layout>> = LazyLock::new(|| {
    let mut layouts: HashMap<u32, Layout> = HashMap::new();
    for line in PROPERTIES.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let &[cuda, member, offset, bytes, source] = fields.as_slice() else { continue };
        let (Ok(cuda), Ok(offset), Ok(bytes)) = (cuda.parse(), offset.parse(), bytes.parse()) else {
            continue;
        };
        let layout = layouts.entry(cuda).or_default();
        match (member, source.parse()) {
            ("size", _) => layout.size = offset,
            ("name", _) => layout.name = offset,
            ("uuid", _) => layout.uuid = offset,
            ("totalGlobalMem", _) => layout.total = offset,
            (_, Ok(attribute)) => layout.attributes.push(Member { offset, bytes, attribute }),
            _ => {}
        }
    }
    layouts
});

#[derive(Default)]
struct Layout {
    size: usize,
    name: usize,
    uuid: usize,
    total: usize,
    attributes: Vec<Member>,
}

struct Member {
    offset: usize,
    bytes: usize,
    attribute: c_int,
}

thread_local! {
    /// The thread's device, once it chose one.
    static CHOSEN: Cell<Option<CUdevice>> = const { Cell::new(None) };
}

/// Primary contexts that the runtime holds, by device, and the process that took them.
static PRIMARY: Mutex<Vec<(u32, CUdevice, CUcontext)>> = Mutex::new(Vec::new());

/// Loads and starts the driver.
fn start() -> Answer {
    // The driver answers at once if it is running; a forked child gets its refusal.
    // SAFETY: no pointers.
    unsafe { driver::cuInit(0) }
}

/// The primary context of a device, which the runtime retains once.
pub(crate) fn primary(device: CUdevice) -> Answer<CUcontext> {
    let mut known = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((_, _, context)) = known.iter().find(|(p, d, _)| *p == process && *d == device) {
        return Ok(*context);
    }
    let mut context = CUcontext::NULL;
    // SAFETY: a place for the context.
    unsafe { driver::cuDevicePrimaryCtxRetain(&raw mut context, device)? };
    known.push((process, device, context));
    Ok(context)
}

fn current() -> Answer<CUcontext> {
    let mut context = CUcontext::NULL;
    // SAFETY: a place for the context.
    unsafe { driver::cuCtxGetCurrent(&raw mut context)? };
    Ok(context)
}

/// Makes sure that the thread has a context: that of its device, if it has none.
pub(crate) fn ready() -> Answer {
    start()?;
    if current()?.is_null() {
        let context = primary(CHOSEN.get().unwrap_or(0))?;
        // SAFETY: a context that lives as long as the process.
        unsafe { driver::cuCtxSetCurrent(context)? };
    }
    Ok(())
}

/// The thread's device.
pub(crate) fn device() -> Answer<CUdevice> {
    start()?;
    if current()?.is_null() {
        return Ok(CHOSEN.get().unwrap_or(0));
    }
    let mut device = 0;
    // SAFETY: a place for the device.
    unsafe { driver::cuCtxGetDevice(&raw mut device)? };
    Ok(device)
}

fn count() -> Answer<c_int> {
    start()?;
    let mut count = 0;
    // SAFETY: a place for the count.
    unsafe { driver::cuDeviceGetCount(&raw mut count)? };
    if count == 0 { Err(CUDA_ERROR_NO_DEVICE) } else { Ok(count) }
}

fn existing(device: CUdevice) -> Answer<CUdevice> {
    if (0..count()?).contains(&device) { Ok(device) } else { Err(CUDA_ERROR_INVALID_DEVICE) }
}

/// Value of a device's attribute.
pub(crate) fn attribute(device: CUdevice, attribute: c_int) -> Answer<c_int> {
    let mut value = 0;
    // SAFETY: a place for the value.
    unsafe { driver::cuDeviceGetAttribute(&raw mut value, attribute.cast_unsigned(), device)? };
    Ok(value)
}

fn properties(cuda: u32, out: Out<u8>, device: CUdevice) -> Answer {
    out.required()?;
    existing(device)?;
    let layout = LAYOUTS.get(&cuda).ok_or(CUDA_ERROR_UNKNOWN)?;
    let mut bytes = vec![0_u8; layout.size];
    let mut total = 0_usize;
    let mut uuid = CUuuid::default();
    // SAFETY: places for the results; the name is cut to the 256 bytes that it has.
    unsafe {
        driver::cuDeviceGetName(bytes[layout.name..].as_mut_ptr().cast(), 256, device)?;
        driver::cuDeviceTotalMem_v2(&raw mut total, device)?;
        driver::cuDeviceGetUuid_v2(&raw mut uuid, device)?;
    }
    bytes[layout.total..layout.total + 8].copy_from_slice(&(total as u64).to_le_bytes());
    bytes[layout.uuid..layout.uuid + 16].copy_from_slice(&uuid.bytes);
    for member in &layout.attributes {
        let value = i64::from(attribute(device, member.attribute).unwrap_or(0)).to_le_bytes();
        bytes[member.offset..member.offset + member.bytes].copy_from_slice(&value[..member.bytes]);
    }
    for (index, byte) in bytes.into_iter().enumerate() {
        out.set_at(index, byte)?;
    }
    Ok(())
}

runtime! {
    /// Number of devices.
    bare radrm_cudaGetDeviceCount(out: Out<c_int>) {
        out.required()?;
        out.set(0)?;
        out.set(count()?)
    }

    /// The thread's device.
    bare radrm_cudaGetDevice(out: Out<c_int>) {
        out.required()?;
        count()?;
        out.set(device()?)
    }

    /// Chooses the thread's device and makes its context.
    bare radrm_cudaSetDevice(device: c_int) {
        existing(device)?;
        CHOSEN.set(Some(device));
        // SAFETY: a context that lives as long as the process.
        unsafe { driver::cuCtxSetCurrent(primary(device)?) }
    }

    /// Makes a device's context without choosing it.
    bare radrm_cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) {
        primary(existing(device)?).map(|_| ())
    }

    /// The devices that a thread may be given: all of them.
    bare radrm_cudaSetValidDevices(devices: In<c_int>, len: c_int) {
        for device in devices.list(usize::try_from(len).map_err(|_| CUDA_ERROR_INVALID_VALUE)?)? {
            existing(device)?;
        }
        Ok(())
    }

    /// The device that fits best: the first.
    bare radrm_cudaChooseDevice(out: Out<c_int>, _properties: In<u8>) {
        count()?;
        out.set(0)
    }

    /// Flags of the thread's device.
    bare radrm_cudaGetDeviceFlags(out: Out<c_uint>) {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: places for the results.
        unsafe { driver::cuDevicePrimaryCtxGetState(device()?, &raw mut flags, &raw mut active)? };
        out.set(flags)
    }

    /// Sets flags of the thread's device.
    bare radrm_cudaSetDeviceFlags(flags: c_uint) {
        // SAFETY: no pointers.
        unsafe { driver::cuDevicePrimaryCtxSetFlags_v2(device()?, flags) }
    }

    /// Properties of a device.
    bare radrm_cudaGetDeviceProperties(out: Out<u8>, device: c_int) {
        properties(13, out, device)
    }

    /// Properties of a device in the form of CUDA 12.
    bare radrm_12_cudaGetDeviceProperties_v2(out: Out<u8>, device: c_int) {
        properties(12, out, device)
    }

    /// An attribute of a device.
    bare radrm_cudaDeviceGetAttribute(out: Out<c_int>, id: c_int, device: c_int) {
        out.required()?;
        out.set(attribute(existing(device)?, id)?)
    }

    /// PCI bus id as text.
    bare radrm_cudaDeviceGetPCIBusId(text: *mut c_char, len: c_int, device: c_int) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuDeviceGetPCIBusId(text, len, existing(device)?) }
    }

    /// The device at a PCI bus id.
    bare radrm_cudaDeviceGetByPCIBusId(device: *mut c_int, text: *const c_char) {
        count()?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuDeviceGetByPCIBusId(device, text) }
    }

    /// Reports whether a device can reach another one's memory.
    bare radrm_cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) {
        existing(device)?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuDeviceCanAccessPeer(can, device, existing(peer)?) }
    }

    /// Attribute of the peer-to-peer access from a device to another one.
    bare radrm_cudaDeviceGetP2PAttribute(value: *mut c_int, id: c_int, device: c_int, peer: c_int) {
        existing(device)?;
        // SAFETY: as the caller promises.
        unsafe { driver::cuDeviceGetP2PAttribute(value, id.cast_unsigned(), device, existing(peer)?) }
    }

    /// Lets the thread's device reach another one's memory.
    with_context radrm_cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        // SAFETY: a context that lives as long as the process.
        unsafe { driver::cuCtxEnablePeerAccess(primary(existing(peer)?)?, flags) }
    }

    /// Takes that back.
    with_context radrm_cudaDeviceDisablePeerAccess(peer: c_int) {
        // SAFETY: a context that lives as long as the process.
        unsafe { driver::cuCtxDisablePeerAccess(primary(existing(peer)?)?) }
    }

    /// Waits for the device.
    with_context radrm_cudaDeviceSynchronize() {
        // SAFETY: no pointers.
        unsafe { driver::cuCtxSynchronize() }
    }

    /// Waits for the device, by the old name.
    with_context radrm_cudaThreadSynchronize() {
        // SAFETY: no pointers.
        unsafe { driver::cuCtxSynchronize() }
    }

    /// Destroys everything on the thread's device.
    bare radrm_cudaDeviceReset() {
        let device = device()?;
        PRIMARY.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, held, _)| *held != device);
        super::code::forget();
        // SAFETY: no pointers.
        unsafe { driver::cuDevicePrimaryCtxReset_v2(device) }
    }

    /// A limit of the device.
    with_context radrm_cudaDeviceGetLimit(value: *mut usize, limit: c_uint) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuCtxGetLimit(value, limit) }
    }

    /// Sets a limit of the device.
    with_context radrm_cudaDeviceSetLimit(limit: c_uint, value: usize) {
        // SAFETY: no pointers.
        unsafe { driver::cuCtxSetLimit(limit, value) }
    }

    /// Preference between cache and shared memory.
    with_context radrm_cudaDeviceGetCacheConfig(config: *mut c_uint) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuCtxGetCacheConfig(config.cast()) }
    }

    /// Sets that preference.
    with_context radrm_cudaDeviceSetCacheConfig(config: c_uint) {
        // SAFETY: no pointers.
        unsafe { driver::cuCtxSetCacheConfig(config) }
    }

    /// Width of a shared memory bank: four bytes on every device that there is.
    with_context radrm_cudaDeviceGetSharedMemConfig(config: Out<c_uint>) {
        config.set(1)
    }

    /// Has no effect on any device that there is.
    with_context radrm_cudaDeviceSetSharedMemConfig(_config: c_uint) {
        Ok(())
    }

    /// Priorities that streams may have.
    with_context radrm_cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        // SAFETY: as the caller promises.
        unsafe { driver::cuCtxGetStreamPriorityRange(least, greatest) }
    }

    /// Writes of other devices are there at once.
    with_context radrm_cudaDeviceFlushGPUDirectRDMAWrites(_target: c_uint, _scope: c_uint) {
        Ok(())
    }

    /// Version of the driver.
    bare radrm_cudaDriverGetVersion(out: *mut c_int) {
        if out.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, and then a place for the version.
        unsafe { driver::cuDriverGetVersion(out) }
    }

    /// Version of the runtime.
    bare radrm_cudaRuntimeGetVersion(out: Out<c_int>) {
        out.set(VERSION)
    }

    /// Version of the runtime, in CUDA 12.
    bare radrm_12_cudaRuntimeGetVersion(out: Out<c_int>) {
        out.set(VERSION_12)
    }

    /// A driver entry point as it is in the runtime's own version.
    bare radrm_cudaGetDriverEntryPoint(
        name: *const c_char, address: *mut *mut core::ffi::c_void, flags: u64, status: *mut c_uint,
    ) {
        entry_point(name, address, VERSION, flags, status)
    }

    /// A driver entry point as it is in the runtime's own version, in CUDA 12.
    bare radrm_12_cudaGetDriverEntryPoint(
        name: *const c_char, address: *mut *mut core::ffi::c_void, flags: u64, status: *mut c_uint,
    ) {
        entry_point(name, address, VERSION_12, flags, status)
    }

    /// A driver entry point as it is in a certain version.
    bare radrm_cudaGetDriverEntryPointByVersion(
        name: *const c_char, address: *mut *mut core::ffi::c_void, version: c_uint, flags: u64, status: *mut c_uint,
    ) {
        entry_point(name, address, version.cast_signed(), flags, status)
    }

    /// Private tables are not served, as the driver serves none.
    bare radrm_cudaGetExportTable(_table: Out<*const core::ffi::c_void>, _id: In<CUuuid>) {
        Err(CUDA_ERROR_NOT_FOUND)
    }
}

/// The versions that the lists of exports are of.
const VERSION: c_int = 13020;
const VERSION_12: c_int = 12090;

fn entry_point(
    name: *const c_char,
    address: *mut *mut core::ffi::c_void,
    version: c_int,
    flags: u64,
    status: *mut c_uint,
) -> Answer {
    if name.is_null() || address.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    start()?;
    let mut found = 0;
    // SAFETY: a C string and places for the results.
    let answer =
        unsafe { driver::cuGetProcAddress_v2(name, address, version, flags, (&raw mut found).cast()) };
    if answer.is_err() {
        // SAFETY: not null, and then a place for the address.
        unsafe { address.write(null_mut()) };
    }
    if status.is_null() {
        // Without a place for the status a name that does not exist is an error.
        return if found == 0 { answer } else { answer.and(Err(CUDA_ERROR_NOT_FOUND)) };
    }
    // SAFETY: not null, and then a place for the status.
    unsafe { status.write(found) };
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_are_complete_and_members_do_not_overlap() {
        for (cuda, size) in [(12, 1032), (13, 1008)] {
            let layout = &LAYOUTS[&cuda];
            assert_eq!(layout.size, size);
            let mut places: Vec<_> = layout.attributes.iter().map(|m| (m.offset, m.bytes)).collect();
            places.extend([(layout.name, 256), (layout.uuid, 16), (layout.total, 8)]);
            places.sort_unstable();
            assert!(places.len() > 90, "CUDA {cuda}: {}", places.len());
            assert!(places.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "CUDA {cuda}");
            assert!(places.last().is_some_and(|(offset, bytes)| offset + bytes <= size));
        }
    }
}
