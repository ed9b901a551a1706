//! Entry points of virtual memory management.

use core::ffi::{c_int, c_uint, c_void};
use std::os::fd::IntoRawFd;

use radrm_cuda_abi::*;
use radrm_emulator_machine::{Kind, Mark, SharedKind, SharedObject};

use crate::engine::driver;
use crate::engine::memory::charge::{charge, request};
use crate::engine::memory::objects::Physical;
use crate::engine::memory::pool::POSIX_FD;
use crate::engine::memory::space::{Block, Use};
use crate::engine::memory::vmm::{
    GRANULARITY, RIGHTS, aligned, drop_if_unused, mappings, place, reservation, rights, set_host_access,
};
use crate::engine::memory::{ipc, pages};
use crate::util::ffi::{In, Out};

entry_points! {
    /// Smallest and best size of physical memory.
    fn cuMemGetAllocationGranularity(
        out: Out<usize>, prop: In<CUmemAllocationProp>, option: c_uint,
    ) |driver| {
        out.required()?;
        place(driver, &prop.get()?)?;
        if option > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(GRANULARITY as usize)
    }

    /// Takes physical memory.
    fn cuMemCreate(
        out: Out<CUmemGenericAllocationHandle>, size: usize, prop: In<CUmemAllocationProp>, flags: u64,
    ) |driver| {
        out.required()?;
        let prop = prop.get()?;
        let (device, gpu, host) = place(driver, &prop)?;
        let size = size as u64;
        if flags != 0 || size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        aligned(&[size])?;
        let mut physical = Physical {
            size, gpu, device, host, prop, references: 1, mappings: 0, imported: false, offered: None,
            pages: None,
        };
        physical.prop.location.id = if host { prop.location.id } else { device };
        let kind = physical.kind();
        if !host {
            request(driver, gpu, size)?;
        }
        if driver.backed && physical.prop.requestedHandleTypes & POSIX_FD != 0 {
            physical.pages = Some(pages::of(size)?);
        }
        charge(driver, gpu, kind, size, if host { 0 } else { size })?;
        let handle = driver.handles.next();
        driver.memory.lock().physical.insert(handle, physical);
        out.set(handle)
    }

    /// Gives a reference to physical memory back.
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) |driver| {
        let mut state = driver.memory.lock();
        let physical = state.physical.get_mut(&handle).filter(|p| p.references > 0);
        physical.ok_or(CUDA_ERROR_INVALID_VALUE)?.references -= 1;
        drop_if_unused(driver, &mut state, handle);
        Ok(())
    }

    /// Takes a reference to the physical memory behind an address.
    fn cuMemRetainAllocationHandle(out: Out<CUmemGenericAllocationHandle>, address: u64) |driver| {
        out.required()?;
        let mut state = driver.memory.lock();
        let Some(Use::Mapped { handle, .. }) = state.blocks.find(address).map(|b| b.kind) else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        state.physical.get_mut(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?.references += 1;
        out.set(handle)
    }

    /// Properties that physical memory was made with.
    fn cuMemGetAllocationPropertiesFromHandle(
        out: Out<CUmemAllocationProp>, handle: CUmemGenericAllocationHandle,
    ) |driver| {
        out.required()?;
        let state = driver.memory.lock();
        out.set(state.physical.get(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?.prop)
    }

    /// Takes addresses without memory.
    fn cuMemAddressReserve(
        out: Out<CUdeviceptr>, size: usize, alignment: usize, address: CUdeviceptr, flags: u64,
    ) |driver| {
        out.required()?;
        let (size, alignment) = (size as u64, alignment as u64);
        if size == 0 || flags != 0 || !(alignment == 0 || alignment.is_power_of_two()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        aligned(&[size])?;
        let mut state = driver.memory.lock();
        let hint = (address != 0 && address.is_multiple_of(GRANULARITY.max(alignment))).then_some(address);
        let base = match hint.and_then(|hint| state.space.take_at(hint, size)) {
            Some(base) => base,
            None => state.space.take(size, alignment)?,
        };
        state.reservations.insert(base, size);
        out.set(base)
    }

    /// Gives reserved addresses back; nothing may be mapped there.
    fn cuMemAddressFree(address: CUdeviceptr, size: usize) |driver| {
        let mut state = driver.memory.lock();
        if state.reservations.get(&address) != Some(&(size as u64)) || state.blocks.overlaps(address, size as u64) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        state.reservations.remove(&address);
        state.space.give(address, size as u64);
        Ok(())
    }

    /// Maps physical memory to reserved addresses.
    fn cuMemMap(
        address: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64,
    ) |driver| {
        let (size, offset) = (size as u64, offset as u64);
        if flags != 0 || size == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        aligned(&[address, size, offset])?;
        let mut state = driver.memory.lock();
        reservation(&state, address, size)?;
        if state.blocks.overlaps(address, size) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let physical = state.physical.get_mut(&handle).filter(|p| p.references > 0);
        let physical = physical.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if offset.checked_add(size).is_none_or(|end| end > physical.size) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let Some(file) = &physical.pages {
            pages::map(file, address, size, offset)?;
        }
        physical.mappings += 1;
        let (device, gpu, host) = (physical.device, physical.gpu, physical.host);
        let mut block = Block::new(address, size, Use::Mapped { handle, host }, None, device, gpu);
        block.count = 0;
        state.blocks.insert(block);
        if host {
            set_host_access(driver, address, size, true);
        }
        Ok(())
    }

    /// Ends all mappings in a range, which must be whole ones.
    fn cuMemUnmap(address: CUdeviceptr, size: usize) |driver| {
        let mut state = driver.memory.lock();
        for base in mappings(&state, address, size as u64)? {
            let Some(block) = state.blocks.remove(base) else { continue };
            if let Use::Mapped { handle, host } = block.kind {
                if host {
                    set_host_access(driver, block.base, block.size, false);
                }
                if let Some(physical) = state.physical.get_mut(&handle) {
                    physical.mappings -= 1;
                    if physical.pages.is_some() {
                        pages::unmap(block.base, block.size);
                    }
                }
                drop_if_unused(driver, &mut state, handle);
            }
        }
        Ok(())
    }

    /// Gives devices rights to whole mappings.
    fn cuMemSetAccess(address: CUdeviceptr, size: usize, list: In<CUmemAccessDesc>, count: usize) |driver| {
        let list = list.list(count)?;
        let mut state = driver.memory.lock();
        let bases = mappings(&state, address, size as u64)?;
        for entry in &list {
            if !matches!(entry.flags, 0 | 1 | 3) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            if entry.location.kind != CU_MEM_LOCATION_TYPE_DEVICE {
                continue;
            }
            let device = driver.device(entry.location.id)?.ordinal;
            for base in &bases {
                let Some(block) = state.blocks.at(*base) else { continue };
                let own = block.device == device || matches!(block.kind, Use::Mapped { host: true, .. });
                if !own && !driver::can_access(driver, device, block.device)? {
                    return Err(CUDA_ERROR_INVALID_DEVICE);
                }
                let shift = device as u32 * RIGHTS;
                block.count = block.count & !(3 << shift) | u64::from(entry.flags) << shift;
            }
        }
        Ok(())
    }

    /// Rights of a device to the mapping at an address.
    fn cuMemGetAccess(flags: Out<u64>, location: In<CUmemLocation>, address: CUdeviceptr) |driver| {
        flags.required()?;
        let location = location.get()?;
        if location.kind != CU_MEM_LOCATION_TYPE_DEVICE {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = driver.device(location.id)?.ordinal;
        let state = driver.memory.lock();
        let block = state.blocks.find(address).filter(|b| matches!(b.kind, Use::Mapped { .. }));
        flags.set(rights(block.ok_or(CUDA_ERROR_INVALID_VALUE)?, device))
    }

    /// Makes a file descriptor that stands for physical memory.
    fn cuMemExportToShareableHandle(
        out: Out<c_int>, handle: CUmemGenericAllocationHandle, kind: c_uint, flags: u64,
    ) |driver| {
        out.required()?;
        if kind != POSIX_FD || flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = driver.memory.lock();
        let physical = state.physical.get_mut(&handle).filter(|p| p.references > 0);
        let physical = physical.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if physical.prop.requestedHandleTypes & POSIX_FD == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let id = match physical.offered {
            Some(id) => id,
            None => driver.process.offer(SharedObject {
                kind: SharedKind::Physical,
                gpu: physical.gpu,
                size: physical.size,
                address: handle,
                extra: u64::from(physical.host),
                pid: 0,
            }).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?,
        };
        physical.offered = Some(id);
        out.set(pages::exported(physical, id)?.into_raw_fd())
    }

    /// Physical memory behind a file descriptor of this or another process. The descriptor stays the
    /// program's.
    fn cuMemImportFromShareableHandle(
        out: Out<CUmemGenericAllocationHandle>, file: *mut c_void, kind: c_uint,
    ) |driver| {
        out.required()?;
        if kind != POSIX_FD {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let object = pages::read(driver, file as usize as c_int)?;
        if object.kind != SharedKind::Physical {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = driver.memory.lock();
        // The process's own memory is the same memory.
        if object.pid == std::process::id()
            && let Some(physical) = state.physical.get_mut(&object.address)
        {
            physical.references += 1;
            return out.set(object.address);
        }
        let device = ipc::device_of(driver, object.gpu)?;
        let host = object.extra != 0;
        let location = CUmemLocation {
            kind: if host { CU_MEM_LOCATION_TYPE_HOST } else { CU_MEM_LOCATION_TYPE_DEVICE },
            id: device,
        };
        let prop = CUmemAllocationProp {
            kind: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: POSIX_FD,
            location,
            win32HandleMetaData: core::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags { compressionType: 0, gpuDirectRDMACapable: 0, usage: 0, reserved: [0; 4] },
        };
        let pages = if driver.backed { pages::behind(file as usize as c_int, object.size) } else { None };
        driver.process.mark(Mark::Imported);
        charge(driver, object.gpu, Kind::Imported, object.size, 0)?;
        let handle = driver.handles.next();
        let (size, gpu) = (object.size, object.gpu);
        state.physical.insert(handle, Physical {
            size, gpu, device, host, prop, references: 1, mappings: 0, imported: true, offered: None,
            pages,
        });
        out.set(handle)
    }
}
