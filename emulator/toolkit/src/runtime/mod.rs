//! The CUDA runtime on the driver's public interface.
//!
//! | module | is |
//! |---|---|
//! | [`error`] | the thread's last error, names of errors |
//! | [`device`] | devices and contexts: what the runtime does before it can do anything |
//! | [`code`] | fat binaries, kernels and variables that a program registers |
//! | [`launch`] | launches, function attributes, occupancy |
//! | [`memory`], [`copy`] | memory, copies and memsets |
//! | [`mod@array`], [`copy_array`], [`texture`] | arrays, copies to and from them, texture and surface objects |
//! | `counts`, `known` | numbers of elements that depend on data; the little that is known of contents |
//! | [`graph`], [`stream`] | graphs; streams and events, as far as they differ from the driver's |
//! | [`forward`] | all functions that mean the same to the driver, generated from `data/forwards.tsv` |

pub mod array;
pub mod code;
pub mod copy;
pub mod copy_array;
mod counts;
pub mod device;
pub mod error;
pub mod forward;
pub mod graph;
pub(crate) mod known;
pub mod launch;
pub mod memory;
pub mod stream;
pub mod texture;

use core::ffi::c_int;

use radrm_cuda_abi::CUDA_ERROR_UNKNOWN;
use radrm_emulator_ffi::Answer;

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
