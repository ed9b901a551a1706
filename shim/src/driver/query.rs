//! Questions to the driver, answered `None` where it lacks the function or reports an error.
//!
//! Handles and addresses that are asked about come from the program's own calls; the driver checks
//! them, so that a wrong one is an error and not undefined behaviour.

use core::ffi::{CStr, c_char, c_void};
use core::mem::MaybeUninit;

use radrm_cuda_abi::*;

use super::Driver;

/// Memory of the current context's device as the driver reports it, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MemoryInfo {
    /// Free.
    pub(crate) free: u64,
    /// Total.
    pub(crate) total: u64,
}

impl Driver {
    /// The calling thread's current context; `None` where it has none.
    #[inline(always)]
    pub(crate) fn current_context(&self) -> Option<CUcontext> {
        let ask = self.ctx_get_current()?;
        let mut context = CUcontext::NULL;
        // SAFETY: the out-parameter lives over the call.
        let answer = unsafe { ask(&mut context) };
        (answer.is_ok() && !context.is_null()).then_some(context)
    }

    /// Ordinal of the current context's device.
    pub(crate) fn current_device(&self) -> Option<CUdevice> {
        let ask = self.ctx_get_device()?;
        let mut device = -1;
        // SAFETY: the out-parameter lives over the call.
        unsafe { ask(&mut device) }.is_ok().then_some(device)
    }

    /// The device's identifier: the MIG instance's own where the device is one.
    pub(crate) fn uuid(&self, device: CUdevice) -> Option<[u8; 16]> {
        let mut uuid = CUuuid::default();
        for ask in [self.device_get_uuid_v2(), self.device_get_uuid()].into_iter().flatten() {
            // SAFETY: the out-parameter lives over the call.
            if unsafe { ask(&mut uuid, device) }.is_ok() {
                return Some(uuid.bytes);
            }
        }
        None
    }

    /// The device's name, as text in `buffer`; empty where the driver does not report it.
    pub(crate) fn device_name<'b>(&self, device: CUdevice, buffer: &'b mut [u8]) -> &'b [u8] {
        let (at, room) = parts(buffer);
        if let Some(ask) = self.device_get_name() {
            // SAFETY: the driver writes at most `room` bytes at `at`.
            let _ = unsafe { ask(at, room, device) };
        }
        text(buffer)
    }

    /// The device's PCI bus id, as text in `buffer`; empty where the driver does not report it.
    pub(crate) fn pci_bus_id<'b>(&self, device: CUdevice, buffer: &'b mut [u8]) -> &'b [u8] {
        let (at, room) = parts(buffer);
        if let Some(ask) = self.device_get_pci_bus_id() {
            // SAFETY: the driver writes at most `room` bytes at `at`.
            let _ = unsafe { ask(at, room, device) };
        }
        text(buffer)
    }

    /// The device's memory, in bytes.
    pub(crate) fn total_memory(&self, device: CUdevice) -> Option<u64> {
        let ask = self.device_total_mem()?;
        let mut total = 0usize;
        // SAFETY: the out-parameter lives over the call.
        unsafe { ask(&mut total, device) }.is_ok().then_some(total as u64)
    }

    /// Free and total memory of the current context's device.
    pub(crate) fn memory_info(&self) -> Option<MemoryInfo> {
        let ask = self.mem_get_info()?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: the out-parameters live over the call.
        let answer = unsafe { ask(&mut free, &mut total) };
        answer.is_ok().then_some(MemoryInfo { free: free as u64, total: total as u64 })
    }

    /// Frees memory that the program does not know of.
    pub(crate) fn free(&self, address: u64) -> bool {
        // SAFETY: the address was handed out just now, and nothing else has it.
        self.mem_free().is_some_and(|free| unsafe { free(address) }.is_ok())
    }

    /// Gives a pool's block back that the program does not know of, and waits until the pool has it.
    pub(crate) fn free_async(&self, address: u64, stream: CUstream) -> bool {
        let (Some(free), Some(wait)) = (self.mem_free_async(), self.stream_synchronize()) else {
            return false;
        };
        // SAFETY: the address was handed out just now on this stream, and nothing else has it.
        unsafe { free(address, stream).is_ok() && wait(stream).is_ok() }
    }

    /// Has a pool give back what it does not use, down to `keep` bytes.
    pub(crate) fn trim_pool(&self, pool: CUmemoryPool, keep: u64) -> bool {
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        // SAFETY: the driver checks the handle.
        self.mem_pool_trim_to().is_some_and(|trim| unsafe { trim(pool, keep) }.is_ok())
    }

    /// Destroys an array that the program does not know of.
    pub(crate) fn destroy_array(&self, array: CUarray) -> bool {
        // SAFETY: the handle was handed out just now, and nothing else has it.
        self.array_destroy().is_some_and(|destroy| unsafe { destroy(array) }.is_ok())
    }

    /// Destroys a mipmapped array that the program does not know of.
    pub(crate) fn destroy_mipmap(&self, mipmap: CUmipmappedArray) -> bool {
        // SAFETY: the handle was handed out just now, and nothing else has it.
        self.mipmap_destroy().is_some_and(|destroy| unsafe { destroy(mipmap) }.is_ok())
    }

    /// Size of the allocation that an address lies in, in bytes.
    pub(crate) fn allocation_size(&self, address: u64) -> Option<u64> {
        let ask = self.mem_get_address_range()?;
        let (mut base, mut size) = (0, 0usize);
        // SAFETY: the out-parameters live over the call.
        unsafe { ask(&mut base, &mut size, address) }.is_ok().then_some(size as u64)
    }

    /// Ordinal of the device that an address belongs to.
    pub(crate) fn device_of_pointer(&self, address: u64) -> Option<CUdevice> {
        let device = self.attribute::<i32>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)?;
        (device >= 0).then_some(device)
    }

    /// The device of a stream; `None` on drivers before CUDA 12.8.
    pub(crate) fn device_of_stream(&self, stream: CUstream) -> Option<CUdevice> {
        let ask = self.stream_get_device()?;
        let mut device = 0;
        // SAFETY: the out-parameter lives over the call.
        unsafe { ask(stream, &mut device) }.is_ok().then_some(device)
    }

    /// Returns true if the driver reports that nothing stands at an address. False where it reports nothing, for lack
    /// of a context for instance.
    pub(crate) fn is_nothing_at(&self, address: u64) -> bool {
        let Some(ask) = self.pointer_get_attribute() else { return false };
        let mut device = [0i32; 2];
        // SAFETY: the out-parameter has room for the attribute, and lives over the call.
        let answer = unsafe { ask(device.as_mut_ptr().cast(), CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) };
        answer == CUDA_ERROR_INVALID_VALUE
    }

    /// Pool that a stream-ordered allocation came from.
    pub(crate) fn pool_of_pointer(&self, address: u64) -> Option<CUmemoryPool> {
        let pool = self.attribute::<*mut c_void>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address)?;
        (!pool.is_null()).then_some(CUmemoryPool(pool))
    }

    /// One attribute of a pointer. `T` is what the driver writes for `attribute`.
    fn attribute<T: Copy>(&self, attribute: CUpointer_attribute, address: u64) -> Option<T> {
        let ask = self.pointer_get_attribute()?;
        // Zeroed, and 8 bytes at least, so that a driver that writes less or more than `T` does no harm.
        let mut room = MaybeUninit::<(T, [u64; 2])>::zeroed();
        // SAFETY: the attribute's value fits into the room, which lives over the call.
        let answer = unsafe { ask(room.as_mut_ptr().cast(), attribute, address) };
        if !answer.is_ok() {
            return None;
        }
        // SAFETY: `T` is an integer or a raw pointer here: any bytes are a value, and all were set.
        Some(unsafe { room.as_ptr().cast::<T>().read() })
    }

    /// The pool that a device's stream-ordered allocations come from at present.
    pub(crate) fn current_pool(&self, device: CUdevice) -> Option<CUmemoryPool> {
        let mut pool = CUmemoryPool::NULL;
        for ask in [self.device_get_mem_pool(), self.device_get_default_mem_pool()].into_iter().flatten() {
            // SAFETY: the out-parameter lives over the call.
            if unsafe { ask(&mut pool, device) }.is_ok() && !pool.is_null() {
                return Some(pool);
            }
        }
        None
    }

    /// A 64-bit attribute of a pool.
    pub(crate) fn pool_attribute(&self, pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Option<u64> {
        let ask = self.mem_pool_get_attribute()?;
        let mut value = 0u64;
        // SAFETY: the memory figures are 64 bits wide; the out-parameter lives over the call.
        unsafe { ask(pool, attribute, (&raw mut value).cast()) }.is_ok().then_some(value)
    }

    /// Bytes that a device holds for the allocation nodes of graphs.
    pub(crate) fn graph_memory_reserved(&self, device: CUdevice) -> Option<u64> {
        let ask = self.graph_mem_attribute()?;
        let mut value = 0u64;
        let attribute = CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
        // SAFETY: the attribute is 64 bits wide; the out-parameter lives over the call.
        unsafe { ask(device, attribute, (&raw mut value).cast()) }.is_ok().then_some(value)
    }

    /// Memory that an array takes; only arrays of some kinds are answered for.
    pub(crate) fn array_needs(
        &self,
        array: CUarray,
        device: CUdevice,
    ) -> Option<CUDA_ARRAY_MEMORY_REQUIREMENTS> {
        let ask = self.array_memory()?;
        let mut needs = CUDA_ARRAY_MEMORY_REQUIREMENTS { size: 0, alignment: 0, reserved: [0; 4] };
        // SAFETY: the out-parameter lives over the call.
        unsafe { ask(&mut needs, array, device) }.is_ok().then_some(needs)
    }

    /// Memory that a mipmapped array takes; only arrays of some kinds are answered for.
    pub(crate) fn mipmap_needs(
        &self,
        mipmap: CUmipmappedArray,
        device: CUdevice,
    ) -> Option<CUDA_ARRAY_MEMORY_REQUIREMENTS> {
        let ask = self.mipmap_memory()?;
        let mut needs = CUDA_ARRAY_MEMORY_REQUIREMENTS { size: 0, alignment: 0, reserved: [0; 4] };
        // SAFETY: the out-parameter lives over the call.
        unsafe { ask(&mut needs, mipmap, device) }.is_ok().then_some(needs)
    }

    /// Location of the physical memory behind a handle.
    pub(crate) fn location_of(&self, handle: CUmemGenericAllocationHandle) -> Option<CUmemLocation> {
        let ask = self.mem_properties()?;
        let mut room = MaybeUninit::<(CUmemAllocationProp, [u64; 4])>::zeroed();
        // SAFETY: the out-parameter lives over the call; a newer driver's longer structure still fits.
        if !unsafe { ask(room.as_mut_ptr().cast(), handle) }.is_ok() {
            return None;
        }
        // SAFETY: plain integers and pointers, zeroed before the driver filled them.
        Some(unsafe { room.as_ptr().cast::<CUmemAllocationProp>().read() }.location)
    }

    /// The device's primary context where it is active; `None` where it is not, or is unknown.
    ///
    /// Takes and gives back a reference, so that the context stays as active as it was.
    pub(crate) fn primary_context(&self, device: CUdevice) -> Option<CUcontext> {
        if !self.primary_is_active(device)? {
            return None;
        }
        let retain = self.primary_ctx_retain()?;
        let release = self.primary_ctx_release().or_else(|| self.primary_ctx_release_v1())?;
        let mut context = CUcontext::NULL;
        // SAFETY: the out-parameter lives over the call.
        if !unsafe { retain(&mut context, device) }.is_ok() {
            return None;
        }
        // SAFETY: gives back the reference taken just above.
        let _ = unsafe { release(device) };
        (!context.is_null()).then_some(context)
    }

    /// The handle that stands for a green context where a context is asked for.
    pub(crate) fn context_of_green(&self, green: CUgreenCtx) -> Option<CUcontext> {
        let ask = self.ctx_from_green()?;
        let mut context = CUcontext::NULL;
        // SAFETY: the out-parameter lives over the call.
        unsafe { ask(&mut context, green) }.is_ok().then_some(context)
    }

    /// Returns true if the device's primary context is active.
    pub(crate) fn primary_is_active(&self, device: CUdevice) -> Option<bool> {
        let ask = self.primary_ctx_get_state()?;
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the out-parameters live over the call.
        unsafe { ask(device, &mut flags, &mut active) }.is_ok().then_some(active != 0)
    }
}

fn parts(buffer: &mut [u8]) -> (*mut c_char, i32) {
    buffer.fill(0);
    let room = i32::try_from(buffer.len()).unwrap_or(i32::MAX);
    (buffer.as_mut_ptr().cast(), room)
}

/// Content of a buffer before its first zero byte.
fn text(buffer: &[u8]) -> &[u8] {
    match CStr::from_bytes_until_nul(buffer) {
        Ok(text) => text.to_bytes(),
        Err(_) => buffer,
    }
}
