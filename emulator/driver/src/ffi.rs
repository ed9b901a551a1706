//! The shape of every entry point. Pointers are those of [`radrm_emulator_ffi`].

pub use radrm_emulator_ffi::{Answer, In, Out, Text, set_text};

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
/// A process that is locked for a checkpoint waits before the body, in all calls but those that unlock it.
///
/// The body gives an [`Answer`]; it runs behind everything that all calls have in common
/// ([`crate::state::call`]). Parameters must have the C types' layout: `Out<T>` and `In<T>` stand for
/// pointers. The `fn` must stand at the beginning of a line with its name: the build script looks
/// for it.
#[macro_export]
macro_rules! entry_points {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) |$driver:pat_param| $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// Every pointer is null or points to what the interface's documentation asks for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> radrm_cuda_abi::CUresult {
            const GATED: bool = !$crate::checkpoint::controls(stringify!($name));
            $crate::state::call::<GATED>(stringify!($name), |$driver: &'static $crate::state::Driver| $body)
        }
    )*};
}
