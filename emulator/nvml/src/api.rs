//! Results, and the shape of every entry point. Pointers are those of [`radrm_emulator_ffi`].

use std::ffi::{CStr, c_char, c_uint};

use radrm_emulator_ffi::Code;

/// `nvmlReturn_t`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Return(pub c_uint);

macro_rules! results {
    ($($name:ident = $value:expr, $text:literal;)*) => {
        $(
            #[doc = concat!("`NVML_", stringify!($name), "`: ", $text, ".")]
            pub const $name: Return = Return($value);
        )*
        /// Every code with its text.
        pub const RESULTS: &[(Return, &CStr)] = &[$((
            $name,
            // SAFETY: the literal ends with the only NUL in it.
            unsafe { CStr::from_bytes_with_nul_unchecked(concat!($text, "\0").as_bytes()) },
        ),)*];
    };
}

results! {
    SUCCESS = 0, "Success";
    ERROR_UNINITIALIZED = 1, "Uninitialized";
    ERROR_INVALID_ARGUMENT = 2, "Invalid Argument";
    ERROR_NOT_SUPPORTED = 3, "Not Supported";
    ERROR_NO_PERMISSION = 4, "Insufficient Permissions";
    ERROR_ALREADY_INITIALIZED = 5, "Already Initialized";
    ERROR_NOT_FOUND = 6, "Not Found";
    ERROR_INSUFFICIENT_SIZE = 7, "Insufficient Size";
    ERROR_INSUFFICIENT_POWER = 8, "Insufficient External Power";
    ERROR_DRIVER_NOT_LOADED = 9, "Driver Not Loaded";
    ERROR_TIMEOUT = 10, "Timeout";
    ERROR_IRQ_ISSUE = 11, "Interrupt Request Issue";
    ERROR_LIBRARY_NOT_FOUND = 12, "NVML Shared Library Not Found";
    ERROR_FUNCTION_NOT_FOUND = 13, "Function Not Found";
    ERROR_CORRUPTED_INFOROM = 14, "Corrupted infoROM";
    ERROR_GPU_IS_LOST = 15, "GPU is lost";
    ERROR_RESET_REQUIRED = 16, "GPU requires reset";
    ERROR_OPERATING_SYSTEM = 17, "GPU access blocked by the operating system";
    ERROR_LIB_RM_VERSION_MISMATCH = 18, "Driver/library version mismatch";
    ERROR_IN_USE = 19, "In use by another client";
    ERROR_MEMORY = 20, "Insufficient Memory";
    ERROR_NO_DATA = 21, "No data";
    ERROR_VGPU_ECC_NOT_SUPPORTED = 22, "vGPU ECC not supported";
    ERROR_INSUFFICIENT_RESOURCES = 23, "Insufficient Resources";
    ERROR_FREQ_NOT_SUPPORTED = 24, "Invalid Frequency";
    ERROR_ARGUMENT_VERSION_MISMATCH = 25, "Argument version mismatch";
    ERROR_DEPRECATED = 26, "Requested functionality has been deprecated";
    ERROR_NOT_READY = 27, "System is not in ready state";
    ERROR_GPU_NOT_FOUND = 28, "No supported GPUs were found";
    ERROR_INVALID_STATE = 29, "Resource not in correct state to perform requested operation";
    ERROR_UNKNOWN = 999, "Unknown Error";
}

/// Result of a call: a value, or the code that the caller gets.
pub type Answer<T = ()> = Result<T, Return>;

impl Code for Return {
    const INVALID: Self = ERROR_INVALID_ARGUMENT;
}

/// Pointer to the place in which a caller wants a result, and often gives something too.
pub type Out<T> = radrm_emulator_ffi::Out<T, Return>;
/// A text that a caller hands over.
pub type Text = radrm_emulator_ffi::Text<Return>;

/// Writes a list by NVML's protocol: `count` is the caller's room, and becomes the number of values
/// there are. Too little room, or none at all, is an error that says how much is needed.
///
/// # Errors
/// INSUFFICIENT_SIZE, INVALID_ARGUMENT.
pub fn fill<T: Copy>(count: Out<c_uint>, list: Out<T>, values: &[T]) -> Answer {
    let room = count.get()? as usize;
    count.set(values.len() as c_uint)?;
    if values.len() > room {
        return Err(ERROR_INSUFFICIENT_SIZE);
    }
    for (index, value) in values.iter().enumerate() {
        list.set_at(index, *value)?;
    }
    Ok(())
}

/// Writes a text with its NUL.
///
/// # Errors
/// INSUFFICIENT_SIZE if it does not fit, INVALID_ARGUMENT if there is no room at all.
pub fn set_text(out: Out<c_char>, room: c_uint, text: &str) -> Answer {
    out.required()?;
    if (1..=text.len()).contains(&(room as usize)) {
        return Err(ERROR_INSUFFICIENT_SIZE);
    }
    radrm_emulator_ffi::set_text(out, room, text)
}

/// Puts a text into a field of fixed size, cut to what fits with its NUL.
pub fn fixed_text<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    for (place, byte) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = byte;
    }
    field
}

/// Version word of a structure: size, and number of the version in the top byte.
pub const fn version_of<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | number << 24
}

/// Runs one call; a defect must not unwind into a C caller.
pub fn guarded(work: impl FnOnce() -> Answer) -> Return {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => ERROR_UNKNOWN,
    }
}

/// Writes entry points whose body gets the machine; they answer UNINITIALIZED before `nvmlInit`. `also other;` before it
/// gives a function one more name.
#[macro_export]
macro_rules! entry_points {
    ($($(#[$meta:meta])* $(also $($other:ident),+;)? fn $name:ident $args:tt |$machine:pat_param| $body:block)*) => {$(
        $crate::entry_point! { $(#[$meta])* $name $args |machine| {
            let $machine = machine;
            $body
        } }
        $($($crate::entry_point! { #[doc = concat!("As `", stringify!($name), "`.")] $other $args |machine| {
            let $machine = machine;
            $body
        } })+)?
    )*};
}

/// Writes one entry point.
#[macro_export]
macro_rules! entry_point {
    ($(#[$meta:meta])* $name:ident ($($arg:ident: $ty:ty),* $(,)?) |$machine:ident| $body:block) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// Every pointer is null or points to what the interface's documentation asks for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::api::Return {
            $crate::api::guarded(|| {
                let $machine = &$crate::state::machine()?;
                $body
            })
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_tell_how_much_room_they_need() {
        let mut count = 1;
        let mut room = [0_u32; 3];
        let list = Out::of(&mut room).cast();
        assert_eq!(fill(Out::of(&mut count), list, &[7, 8]), Err(ERROR_INSUFFICIENT_SIZE));
        assert_eq!((count, room), (2, [0; 3]));
        count = 3;
        assert_eq!(fill(Out::of(&mut count), list, &[7, 8]), Ok(()));
        assert_eq!((count, room), (2, [7, 8, 0]));
        count = 0;
        // SAFETY: null.
        let none = unsafe { Out::at(std::ptr::null_mut()) };
        assert_eq!(fill::<u32>(Out::of(&mut count), none, &[]), Ok(()));
    }

    #[test]
    fn texts_end_with_nul_or_are_refused() {
        let mut room = [1_i8; 4];
        assert_eq!(set_text(Out::of(&mut room).cast(), 4, "abc"), Ok(()));
        assert_eq!(room, [97, 98, 99, 0]);
        assert_eq!(set_text(Out::of(&mut room).cast(), 3, "abc"), Err(ERROR_INSUFFICIENT_SIZE));
        assert_eq!(fixed_text::<4>("abcdef"), *b"abc\0");
    }
}
