//! NVRTC, of any version that is installed.
//!
//! cudarc has bindings too, but finds only libraries of the CUDA version it was built for and older.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::Path,
    ptr,
};

use anyhow::{Context, Result, bail, ensure};
use libloading::{Library, Symbol};

/// Names under which the loader may know it, the newest first; the plain one comes with a development
/// package.
const USUAL: [&str; 4] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"];

/// `nvrtcProgram`.
type Handle = *mut c_void;

/// The compiler.
pub struct Nvrtc {
    library: Library,
    /// Major and minor version.
    pub version: (c_int, c_int),
}

impl Nvrtc {
    /// The one that `RADRM_NVRTC` names, none if the name is empty, else the one that the loader finds.
    ///
    /// # Errors
    /// What is named cannot be loaded, or is none.
    pub fn find() -> Result<Option<Self>> {
        match std::env::var_os("RADRM_NVRTC") {
            Some(name) if name.is_empty() => Ok(None),
            Some(name) => {
                let named = Self::open(Path::new(&name));
                let what = || format!("RADRM_NVRTC names {}, which is no NVRTC", name.display());
                named.with_context(what).map(Some)
            }
            None => Ok(USUAL.iter().find_map(|name| Self::open(Path::new(name)).ok())),
        }
    }

    /// The one in a file.
    ///
    /// # Errors
    /// It cannot be loaded, or is none.
    pub fn open(file: &Path) -> Result<Self> {
        // SAFETY: NVRTC does nothing when it is loaded.
        let library = unsafe { Library::new(file)? };
        let mut nvrtc = Self { library, version: (0, 0) };
        let (mut major, mut minor) = (0, 0);
        type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
        // SAFETY: the type of that function, and two places to write to.
        let result = unsafe { nvrtc.function::<Version>(c"nvrtcVersion")?(&mut major, &mut minor) };
        ensure!(result == 0, "nvrtcVersion failed with {result}");
        nvrtc.version = (major, minor);
        Ok(nvrtc)
    }

    /// Compiles CUDA C: for `sm_90` to machine code, for `compute_90` to PTX.
    ///
    /// # Errors
    /// What the compiler said.
    pub fn compile(&self, source: &str, target: &str) -> Result<Vec<u8>> {
        let source = CString::new(source)?;
        let program = Program::new(self, &source)?;
        let option = CString::new(format!("--gpu-architecture={target}"))?;
        let options = [option.as_ptr()];
        type Compile = unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int;
        // SAFETY: the type of that function; the program lives, and there is one option.
        let result =
            unsafe { self.function::<Compile>(c"nvrtcCompileProgram")?(program.handle, 1, options.as_ptr()) };
        if result != 0 {
            let log = program.get(c"nvrtcGetProgramLogSize", c"nvrtcGetProgramLog").unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            bail!("not compiled for {target} ({result}): {}", log.trim_end_matches('\0').trim());
        }
        if target.starts_with("sm_") {
            return program.get(c"nvrtcGetCUBINSize", c"nvrtcGetCUBIN");
        }
        let mut text = program.get(c"nvrtcGetPTXSize", c"nvrtcGetPTX")?;
        text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
        Ok(text)
    }

    /// # Safety
    /// `T` is the type of the function.
    unsafe fn function<T>(&self, name: &CStr) -> Result<Symbol<'_, T>> {
        // SAFETY: the caller's promise.
        unsafe { self.library.get(name.to_bytes_with_nul()) }
            .with_context(|| format!("NVRTC lacks {}", name.to_string_lossy()))
    }
}

/// A program under compilation.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    handle: Handle,
}

impl<'a> Program<'a> {
    fn new(nvrtc: &'a Nvrtc, source: &'a CStr) -> Result<Self> {
        type Create = unsafe extern "C" fn(
            *mut Handle,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        let mut handle = ptr::null_mut();
        // SAFETY: the type of that function; two texts that end with a zero, and no headers.
        let result = unsafe {
            let create = nvrtc.function::<Create>(c"nvrtcCreateProgram")?;
            create(&mut handle, source.as_ptr(), c"kernels.cu".as_ptr(), 0, ptr::null(), ptr::null())
        };
        ensure!(result == 0, "nvrtcCreateProgram failed with {result}");
        Ok(Self { nvrtc, handle })
    }

    /// Asks for a size, then for so many bytes.
    fn get(&self, size: &CStr, content: &CStr) -> Result<Vec<u8>> {
        type Size = unsafe extern "C" fn(Handle, *mut usize) -> c_int;
        type Content = unsafe extern "C" fn(Handle, *mut u8) -> c_int;
        let mut bytes = 0;
        // SAFETY: all functions that are asked for sizes have this type; the program lives.
        let result = unsafe { self.nvrtc.function::<Size>(size)?(self.handle, &mut bytes) };
        ensure!(result == 0, "{} failed with {result}", size.to_string_lossy());
        let mut buffer = vec![0; bytes];
        // SAFETY: as above, and there is as much room as was asked for.
        let result = unsafe { self.nvrtc.function::<Content>(content)?(self.handle, buffer.as_mut_ptr()) };
        ensure!(result == 0, "{} failed with {result}", content.to_string_lossy());
        Ok(buffer)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        type Destroy = unsafe extern "C" fn(*mut Handle) -> c_int;
        // SAFETY: the type of that function; the program is not used after this.
        unsafe {
            if let Ok(destroy) = self.nvrtc.function::<Destroy>(c"nvrtcDestroyProgram") {
                destroy(&mut self.handle);
            }
        }
    }
}
