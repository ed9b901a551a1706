//! Frameworks that a process uses, by the libraries that it has loaded.

use core::ffi::{CStr, c_int, c_void};

use crate::cx::Cx;
use crate::telemetry::framework;

/// Part of a library's path, and the framework that it gives away.
const SIGNS: &[(&[u8], u64)] = &[
    (b"libc10_cuda", framework::PYTORCH),
    (b"libtorch_cuda", framework::PYTORCH),
    (b"libtensorflow", framework::TENSORFLOW),
    (b"_pywrap_tensorflow", framework::TENSORFLOW),
    (b"xla_cuda_plugin", framework::JAX),
    (b"/jaxlib/", framework::JAX),
    (b"/numba/", framework::NUMBA),
    (b"/cupy/", framework::CUPY),
    (b"libtriton", framework::TRITON),
    (b"libnccl.so", framework::NCCL),
    (b"libcudnn.so", framework::CUDNN),
    (b"libcublas.so", framework::CUBLAS),
    (b"/cuda/bindings/", framework::CUDA_PYTHON),
    (b"libcudart.so", framework::CUDART),
];

/// Writes into the segment which frameworks' libraries are loaded.
pub(crate) fn report(cx: &Cx<'_>) {
    let mut found = 0u64;
    crate::errno::keep(|| {
        // SAFETY: the callback only reads what it is handed, during the call.
        unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
    });
    if found != 0 {
        cx.writer().framework(found);
    }
}

unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
    // SAFETY: the linker hands a valid structure whose name is a C string, and `report`'s word.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<u64>()) };
    if !info.dlpi_name.is_null() {
        // SAFETY: as above.
        *found |= of_path(unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes());
    }
    0
}

fn of_path(path: &[u8]) -> u64 {
    let has = |sign: &[u8]| path.windows(sign.len()).any(|part| part == sign);
    SIGNS.iter().filter(|(sign, _)| has(sign)).fold(0, |bits, (_, bit)| bits | bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_give_their_framework_away() {
        let site = "/venv/lib/python3.11/site-packages";
        let check = |path: &str, bits| assert_eq!(of_path(path.as_bytes()), bits, "{path}");
        check(&format!("{site}/torch/lib/libc10_cuda.so"), framework::PYTORCH);
        check(&format!("{site}/numba/_dispatcher.cpython-311-x86_64-linux-gnu.so"), framework::NUMBA);
        check(&format!("{site}/cuda/bindings/_bindings/cydriver.so"), framework::CUDA_PYTHON);
        check("/usr/lib/x86_64-linux-gnu/libc.so.6", 0);
        check("", 0);
    }
}
