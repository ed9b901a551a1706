//! The GPU and the compiled kernels.

use std::{ffi::CString, panic::catch_unwind, sync::Arc};

use anyhow::{Context, Result, bail};
use cudarc::{
    driver::{CudaContext, CudaFunction, CudaModule, CudaStream},
    nvrtc::{self, Ptx},
};

const SOURCE: &str = include_str!("../cuda/kernels.cu");
const PTX: &str = include_str!("../ptx/kernels.ptx");

/// One GPU with the kernels loaded.
pub struct Gpu {
    /// The primary context.
    pub context: Arc<CudaContext>,
    /// A stream of its own.
    pub stream: Arc<CudaStream>,
    /// Where the kernels come from.
    pub origin: &'static str,
    module: Arc<CudaModule>,
}

impl Gpu {
    /// Opens a GPU and loads the kernels: compiled by NVRTC where there is one (`RADRM_NVRTC` names
    /// the library, else the usual places), else the embedded PTX.
    ///
    /// # Errors
    /// No driver, no such GPU, or kernels that the driver does not take.
    pub fn open(ordinal: usize) -> Result<Self> {
        // SAFETY: only looks for the library.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            bail!("libcuda.so.1 is not there: no NVIDIA driver, and not run under `radrm-run --emulate`");
        }
        let count = CudaContext::device_count().context("asking for the number of GPUs")?;
        if ordinal >= usize::try_from(count).unwrap_or(0) {
            bail!("there is no GPU {ordinal}: this machine has {count}");
        }
        let context = CudaContext::new(ordinal).context("opening the GPU")?;
        let (ptx, origin) = match compile(&context)? {
            Some(ptx) => (ptx, "NVRTC"),
            None => (Ptx::from_src(PTX), "embedded PTX"),
        };
        let module = context.load_module(ptx).context("loading the kernels")?;
        let stream = context.new_stream()?;
        Ok(Self { context, stream, origin, module })
    }

    /// A kernel by its name.
    ///
    /// # Errors
    /// There is no such kernel.
    pub fn kernel(&self, name: &str) -> Result<CudaFunction> {
        self.module.load_function(name).with_context(|| format!("kernel {name}"))
    }
}

/// Compiles the kernels for the GPU; `None` where there is no NVRTC.
fn compile(context: &CudaContext) -> Result<Option<Ptx>> {
    if let Ok(path) = std::env::var("RADRM_NVRTC") {
        if path.is_empty() {
            return Ok(None);
        }
        let name = CString::new(path.as_str())?;
        // SAFETY: loads a library that the user named; it stays loaded, so that the look-up by its
        // usual name finds it.
        if unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }.is_null() {
            bail!("RADRM_NVRTC names {path}, which cannot be loaded");
        }
    }
    // SAFETY: only looks for the library. It panics where a library lacks a function.
    let present = catch_unwind(|| unsafe { nvrtc::sys::is_culib_present() }).unwrap_or(false);
    if !present {
        return Ok(None);
    }
    let (major, minor) = context.compute_capability()?;
    let options = nvrtc::CompileOptions {
        options: vec![format!("--gpu-architecture=compute_{major}{minor}")],
        ..Default::default()
    };
    // A compiler that is too old for the GPU, or a broken one, is no reason to stop.
    let compiled = catch_unwind(|| nvrtc::compile_ptx_with_opts(SOURCE, options));
    Ok(compiled.ok().and_then(Result::ok))
}
