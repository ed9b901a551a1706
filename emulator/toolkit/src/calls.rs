//! Calls for which a library launches kernels of its own: nothing is computed, and they are counted by library.
//!
//! Only the library knows which kernels these would be, so they are not among the launches of a run.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::notes::{self, Kind};

/// Functions that count a call of a library and succeed, whatever the arguments.
macro_rules! counted {
    ($($function:ident $library:literal)*) => {
        $(
            #[doc = concat!("A call of ", $library, ".")]
            #[unsafe(no_mangle)]
            pub extern "C" fn $function() -> c_int {
                // Relaxed: a count, which nothing else depends on.
                static CALLS: AtomicU64 = AtomicU64::new(0);
                notes::at_powers_of_ten(Kind::Call, CALLS.fetch_add(1, Ordering::Relaxed) + 1, $library);
                0
            }
        )*
    };
}

counted! {
    radrm_work_cublas "cuBLAS"
    radrm_work_cudnn "cuDNN"
    radrm_work_cufft "cuFFT"
    radrm_work_cusparse "cuSPARSE"
    radrm_work_cusparselt "cuSPARSELt"
    radrm_work_cusolver "cuSOLVER"
    radrm_work_curand "cuRAND"
}
