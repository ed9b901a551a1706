//! `cuGetProcAddress`: entry points by name, version and flavour.

use core::ffi::{c_int, c_uint, c_void};
use std::sync::Once;

use radrm_cuda_abi::*;

use crate::api::exports::{Entry, TABLE};
use crate::api::{entry, process};
use crate::engine::driver::Driver;
use crate::util::ffi::{Answer, In, Out, Text};
use crate::util::{caller, notes};

/// Values of `CUdriverProcAddressQueryResult`.
const FOUND: c_uint = 0;
const SYMBOL_NOT_FOUND: c_uint = 1;
const VERSION_NOT_SUFFICIENT: c_uint = 2;
/// Flag bits of `cuGetProcAddress`: the legacy and the per-thread default stream.
const LEGACY_STREAM: u64 = 1;
const PER_THREAD_STREAM: u64 = 2;

/// Reason that a name was not resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unresolved {
    /// The driver has no such name.
    NotFound,
    /// All its forms are newer than the version that was asked for.
    TooNew,
}

impl Unresolved {
    fn status(self) -> c_uint {
        match self {
            Self::NotFound => SYMBOL_NOT_FOUND,
            Self::TooNew => VERSION_NOT_SUFFICIENT,
        }
    }
}

/// Finds the newest form of `base` that is not newer than `version`, nor than the driver itself.
///
/// With `per_thread` only forms whose null stream is the thread's default stream are found where there is one; entry
/// points without such a form give their only one.
pub fn find(base: &str, version: u32, driver: u32, per_thread: bool) -> Result<&'static Entry, Unresolved> {
    let first = TABLE.partition_point(|e| e.base < base);
    let forms = || TABLE[first..].iter().take_while(|e| e.base == base).filter(|e| e.version <= driver);
    let per_thread = per_thread && forms().any(|e| e.per_thread);
    let of_flavour = forms().filter(|e| e.per_thread == per_thread && e.version <= version);
    let missing = if forms().next().is_some() { Unresolved::TooNew } else { Unresolved::NotFound };
    of_flavour.max_by_key(|e| e.version).ok_or(missing)
}

fn resolve(
    driver: Option<&Driver>,
    symbol: Text,
    pfn: Out<*const c_void>,
    version: c_int,
    flags: u64,
    status: Option<Out<c_uint>>,
) -> Answer {
    let name = symbol.get()?;
    pfn.required()?;
    if flags & !(LEGACY_STREAM | PER_THREAD_STREAM) != 0 || flags == (LEGACY_STREAM | PER_THREAD_STREAM) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (driver_version, faults) = match driver {
        Some(driver) => (driver.version(), &driver.faults),
        None => (process::early().version, &process::early().faults),
    };
    let missing = faults.missing.contains(&name);
    let found = if missing {
        Err(Unresolved::NotFound)
    } else {
        find(&name, version.max(0) as u32, driver_version, flags & PER_THREAD_STREAM != 0)
    };
    match found {
        Ok(entry) => {
            if let Some(status) = status {
                status.set_if_wanted(FOUND);
            }
            pfn.set(entry.address.cast())
        }
        // The first form leaves the pointer alone. The second clears it, and the status stands for the error.
        Err(why) => {
            let status = status.ok_or(CUDA_ERROR_NOT_FOUND)?;
            pfn.set(core::ptr::null())?;
            status.set(why.status()).map_err(|_| CUDA_ERROR_NOT_FOUND)
        }
    }
}

/// Looks up an entry point (CUDA 11.3 to 11.8).
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: Text,
    pfn: Out<*const c_void>,
    version: c_int,
    flags: u64,
) -> CUresult {
    entry::call_before_init(|driver| resolve(driver, symbol, pfn, version, flags, None))
}

/// Looks up an entry point (from CUDA 12).
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: Text,
    pfn: Out<*const c_void>,
    version: c_int,
    flags: u64,
    status: Out<c_uint>,
) -> CUresult {
    entry::call_before_init(|driver| resolve(driver, symbol, pfn, version, flags, Some(status)))
}

/// Private tables: there are none here, and none is ever served. A dry run notes that a library asked: the
/// CUDA runtime that is linked into it will not start.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetExportTable(table: Out<*const c_void>, id: In<CUuuid>) -> CUresult {
    static NOTED: Once = Once::new();
    NOTED.call_once(|| notes::note("missing", &format!("cuGetExportTable ({})", caller::library())));
    if id.is_null() || table.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    table.set_if_wanted(core::ptr::null());
    CUDA_ERROR_NOT_FOUND
}
