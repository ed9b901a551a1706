//! First and last steps of every function of the runtime.

use core::ffi::c_int;

use radrm_cuda_abi::CUDA_ERROR_UNKNOWN;
use radrm_emulator_ffi::Answer;

use super::{device, error};

/// Runs a runtime function that needs a context, and remembers its error.
pub(crate) fn call(body: impl FnOnce() -> Answer) -> c_int {
    bare_call(|| {
        device::ready()?;
        body()
    })
}

/// Runs a runtime function that needs no context.
pub(crate) fn bare_call(body: impl FnOnce() -> Answer) -> c_int {
    let answer = crate::guarded(Err(CUDA_ERROR_UNKNOWN), body);
    error::remember(answer)
}

/// Writes runtime functions: `fn radrm_NAME(arguments) { body }`, where the body gives an [`Answer`].
/// With `bare` in front no context is made.
macro_rules! runtime {
    ($($(#[$meta:meta])* $kind:ident $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// Every pointer is null or points to what the interface's documentation asks for.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> core::ffi::c_int {
            $crate::runtime::runtime!(@$kind $body)
        }
    )*};
    (@with_context $body:block) => { $crate::runtime::call(|| $body) };
    (@bare $body:block) => { $crate::runtime::bare_call(|| $body) };
}
pub(crate) use runtime;
