//! Frames without information about a program: those of allocators, of the CUDA runtime and of interpreters.
//! They are left out unless the user requests all frames.

use crate::model::names;

/// Libraries all of whose frames are left out.
const LIBRARIES: [&str; 8] = [
    "libradrm.so",
    "libradrm_emulated",
    "libcuda.so",
    "libcudart",
    "libcudadevrt",
    "libpython",
    "libffi.so",
    "_ctypes.",
];

/// Functions, by how their names begin: allocators and what only passes calls on.
const FUNCTIONS: [&str; 29] = [
    "at::native",
    "at::meta::",
    "at::cuda::",
    "at::_ops::",
    "at::detail::empty",
    "at::empty",
    "at::redispatch",
    "at::(anonymous namespace)",
    "c10::cuda::CUDACachingAllocator",
    "c10::cuda::",
    "c10::impl::",
    "c10::Dispatcher",
    "c10::StorageImpl",
    "c10::alloc_",
    "torch::autograd::VariableType",
    "torch::autograd::Engine::",
    "torch::autograd::python::PythonEngine::",
    "torch::autograd::Node::operator()",
    "std::thread::_State_impl",
    "execute_native_thread_routine",
    "torch::ADInplaceOrView",
    "cudaMalloc",
    "cuMem",
    "rmm::",
    "tsl::BFCAllocator",
    "stream_executor::",
    "ffi_call",
    "std::_Function_handler",
    "__libc_start",
];

/// Functions by their whole names.
const WHOLE: [&str; 4] = ["_start", "clone3", "start_thread", "__clone"];

/// Allocators that keep what was given back to them, by how their functions begin, and whose they are.
const CACHES: [(&str, &str); 5] = [
    ("c10::cuda::CUDACachingAllocator", "PyTorch"),
    ("tsl::BFCAllocator", "XLA"),
    ("rmm::mr::pool_memory_resource", "RMM"),
    ("rmm::mr::arena_memory_resource", "RMM"),
    ("__pyx_f_4cupy_4cuda_6memory_", "CuPy"),
];

/// Owner of the caching allocator that a function is part of, if any.
/// A caching allocator keeps memory that was given back.
pub(super) fn cache(function: &str) -> Option<&'static str> {
    let name = names::qualified(function);
    CACHES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, owner)| *owner)
}

/// Returns true for a Python file that RADRM loads with the program's interpreter, from a folder of its own.
pub(super) fn is_own_python(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let (name, folder) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    folder.starts_with("radrm-") && (name.starts_with("radrm_") || name == "sitecustomize.py")
}

/// Returns true if a library's frames are left out.
pub(super) fn is_folded_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    LIBRARIES.iter().any(|library| name.starts_with(library))
}

/// Returns true if a library's frames are left out where they have no names: a thread begins in the C library.
pub(super) fn is_c_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    ["libc.so", "libc-", "libpthread", "libstdc++.so", "ld-linux", "ld-musl"]
        .iter()
        .any(|library| name.starts_with(library))
}

/// Returns true for the program or library of an interpreter, whose native frames stand for its own functions.
pub(super) fn is_interpreter(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 't' | 'd'));
    name.strip_prefix("python").is_some_and(version) || name.starts_with("libpython")
}

/// Returns true for the functions that PyTorch's threads of the backward pass run.
pub(super) fn is_backward(function: &str) -> bool {
    ["torch::autograd::Engine::thread_main", "torch::autograd::Engine::thread_init"]
        .iter()
        .any(|name| function.starts_with(name))
}

/// The function whose backward pass this is.
pub(super) fn differentiated(function: &str) -> Option<&str> {
    function.strip_prefix("torch::autograd::generated::")?.strip_suffix("::apply")
}

/// Returns true if a function's frame is left out.
pub(super) fn is_folded_function(function: &str) -> bool {
    FUNCTIONS.iter().any(|prefix| function.starts_with(prefix)) || WHOLE.contains(&function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_folded_and_the_programs_functions_are_not() {
        for function in [
            "at::native::empty_cuda",
            "at::meta::structured_mm::meta",
            "c10::cuda::CUDACachingAllocator::Native::malloc",
            "cudaMalloc",
            "_start",
        ] {
            assert!(is_folded_function(function), "{function}");
        }
        for function in ["main", "make_weights", "myapp::at::native", "_start_training"] {
            assert!(!is_folded_function(function), "{function}");
        }
        for library in
            ["/usr/local/cuda/lib64/libcudart.so.12", "/opt/lib/radrm/libradrm_emulated_toolkit.so"]
        {
            assert!(is_folded_library(library), "{library}");
        }
        assert!(!is_folded_library("/home/u/libcudamodel.so"));
    }

    #[test]
    fn caches_of_frameworks_are_known_by_their_functions() {
        let malloc = "_ZN3c104cuda20CUDACachingAllocator6Native6mallocEv";
        assert_eq!(cache(malloc), Some("PyTorch"));
        assert_eq!(cache("__pyx_f_4cupy_4cuda_6memory_22SingleDeviceMemoryPool__malloc"), Some("CuPy"));
        assert_eq!((cache("cudaMalloc"), cache("main")), (None, None));
    }

    #[test]
    fn interpreters_are_known_by_their_files() {
        for path in
            ["/usr/bin/python3.11", "/usr/bin/python3", "/opt/lib/libpython3.13t.so.1.0", "/usr/bin/python"]
        {
            assert!(is_interpreter(path), "{path}");
        }
        for path in ["/usr/bin/pythonic", "/usr/bin/train", "/x/libtorch_python.so"] {
            assert!(!is_interpreter(path), "{path}");
        }
    }
}
