//! The shape of every entry point, and what all calls have in common.

use radrm_cuda_abi::*;

use crate::api::exports::BEFORE_INIT;
use crate::api::process::driver;
use crate::engine::driver::Driver;
use crate::engine::stream::op;
use crate::util::ffi::Answer;

/// Writes entry points.
///
/// ```text
/// entry_points! {
///     /// What it does.
///     fn cuDriverGetVersion(version: Out<c_int>) |driver| {
///         version.set(driver.version() as c_int)
///     }
/// }
/// ```
///
/// Before `cuInit` a call answers as [`before_init`] says. A process that is locked for a checkpoint waits before the
/// body.
///
/// The body gives an [`Answer`]; it runs behind everything that all calls have in common
/// ([`call`]). Parameters must have the C types' layout: `Out<T>` and `In<T>` stand for
/// pointers. The `fn` must stand at the beginning of a line with its name: the build script looks
/// for it.
macro_rules! entry_points {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) |$driver:pat_param| $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// Every pointer is null or points to what the interface's documentation asks for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> radrm_cuda_abi::CUresult {
            let empty = || true $(&& $crate::api::entry::is_empty(&$arg))*;
            $crate::api::entry::call(stringify!($name), empty, |$driver: &'static $crate::engine::driver::Driver| $body)
        }
    )*};
}

/// Runs one call: everything that all calls have in common is here.
#[inline]
pub fn call(
    name: &'static str,
    empty: impl FnOnce() -> bool,
    work: impl FnOnce(&'static Driver) -> Answer,
) -> CUresult {
    let driver = match driver() {
        Ok(driver) => driver,
        Err(_) if empty() => return before_init(name),
        Err(code) => return code,
    };
    if driver.faulty {
        if driver.faults.slow_ns > 0 {
            wait(driver.faults.slow_ns);
        }
        if driver.faults.missing.contains(name) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    // Host functions run as part of work that a lock waits for.
    let _inside = op::not_in_callback().is_ok().then(|| driver.process.enter());
    guarded(|| work(driver))
}

/// Answer of a call without any handle or pointer before `cuInit`: the driver checks some arguments first.
#[cold]
pub fn before_init(name: &str) -> CUresult {
    let at = BEFORE_INIT.binary_search_by_key(&name, |(name, _)| name);
    at.map_or(CUDA_ERROR_NOT_INITIALIZED, |at| CUresult(BEFORE_INIT[at].1))
}

/// Returns true if an argument is neither a handle nor a pointer, or is null.
/// The handles of the default streams count as null.
pub fn is_empty<T>(argument: &T) -> bool {
    // SAFETY: handles, pointers, sizes and addresses are all there is of that size, and all of their bytes are set.
    size_of::<T>() != size_of::<usize>()
        || unsafe { std::ptr::from_ref(argument).cast::<usize>().read_unaligned() } <= 2
}

/// Runs a call that is allowed before `cuInit`; the driver is there if it was made.
pub fn call_before_init(work: impl FnOnce(Option<&'static Driver>) -> Answer) -> CUresult {
    guarded(|| work(driver().ok()))
}

fn guarded(work: impl FnOnce() -> Answer) -> CUresult {
    // A defect here must not unwind into a C caller.
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(Ok(())) => CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CUDA_ERROR_UNKNOWN,
    }
}

fn wait(ns: u64) {
    if ns >= 50_000 {
        std::thread::sleep(std::time::Duration::from_nanos(ns));
        return;
    }
    let start = std::time::Instant::now();
    while (start.elapsed().as_nanos() as u64) < ns {
        std::hint::spin_loop();
    }
}
