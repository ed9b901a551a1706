//! The GPU and the compiled kernels.

use std::{fmt, sync::Arc};

use anyhow::{Context, Result, bail};
use cudarc::{
    driver::{CudaContext, CudaFunction, CudaModule, CudaStream, DriverError},
    nvrtc::Ptx,
};

use crate::nvrtc::Nvrtc;

/// The kernels.
pub const SOURCE: &str = include_str!("../cuda/kernels.cu");
/// The kernels, compiled to PTX.
pub const PTX: &str = include_str!("../ptx/kernels.ptx");

/// Origin of a GPU's kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Compiled for this GPU: version of NVRTC, and what for (`sm_90`, or `compute_90` where NVRTC made no
    /// machine code for it).
    Nvrtc((i32, i32), String),
    /// The PTX that this program carries.
    Shipped,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nvrtc((major, minor), target) => write!(f, "NVRTC {major}.{minor} for {target}"),
            Self::Shipped => f.write_str("shipped PTX"),
        }
    }
}

/// One GPU with the kernels loaded.
pub struct Gpu {
    /// The primary context.
    pub context: Arc<CudaContext>,
    /// A stream of its own.
    pub stream: Arc<CudaStream>,
    /// Origin of the kernels.
    pub origin: Origin,
    module: Arc<CudaModule>,
}

impl Gpu {
    /// Opens a GPU and loads the kernels: compiled by NVRTC for the GPU where there is one (`RADRM_NVRTC` names
    /// the library, else the usual places; an empty name means none), else the PTX that is shipped.
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
        let (module, origin) = load(&context)?;
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

/// The kernels in a context. Machine code first: unlike PTX it does not have to be of the driver's version or
/// older. A compiler that is too old for the GPU, too new for the driver, or broken, is no reason to stop.
fn load(context: &Arc<CudaContext>) -> Result<(Arc<CudaModule>, Origin)> {
    if let Some(nvrtc) = Nvrtc::find()? {
        let (major, minor) = context.compute_capability()?;
        for target in [format!("sm_{major}{minor}"), format!("compute_{major}{minor}")] {
            if let Ok(code) = nvrtc.compile(SOURCE, &target)
                && let Ok(module) = take(context, code)
            {
                return Ok((module, Origin::Nvrtc(nvrtc.version, target)));
            }
        }
    }
    let module = take(context, PTX.into()).context("loading the kernels")?;
    Ok((module, Origin::Shipped))
}

/// Loads machine code or PTX. The driver takes text that ends with a zero.
fn take(context: &Arc<CudaContext>, mut code: Vec<u8>) -> Result<Arc<CudaModule>, DriverError> {
    code.push(0);
    context.load_module(Ptx::from_binary(code))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        fs,
        os::unix::ffi::OsStrExt,
        path::{Path, PathBuf},
    };

    use super::*;

    /// Entries with the types of their parameters.
    fn entries(ptx: &str) -> BTreeMap<String, Vec<String>> {
        let mut found = BTreeMap::new();
        for part in ptx.split(".visible .entry ").skip(1) {
            let (name, rest) = part.split_once('(').expect("an entry");
            let (parameters, _) = rest.split_once(')').expect("its parameters");
            let types = parameters.split(',').filter_map(|one| one.split_whitespace().nth(1));
            found.insert(name.trim().to_owned(), types.map(str::to_owned).collect());
        }
        found
    }

    fn kernels_of_the_source() -> Vec<&'static str> {
        let names = SOURCE.split("__global__ void ").skip(1).filter_map(|rest| rest.split('(').next());
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_shipped_ptx_has_every_kernel_of_the_source() {
        let shipped: Vec<String> = entries(PTX).into_keys().collect();
        assert_eq!(shipped, kernels_of_the_source());
    }

    #[test]
    fn the_shipped_ptx_was_made_of_this_source() {
        // Changing the source and not the PTX would ship kernels that do something else.
        let mark = format!("of kernels.cu, CRC-32 {:08x}", crc32fast::hash(SOURCE.as_bytes()));
        assert!(PTX.contains(&mark), "make it again as its head says, and write `{mark}` there");
    }

    /// An NVRTC where the loader finds one, else that of the clients' environment.
    fn nvrtc() -> Option<Nvrtc> {
        if let Some(found) = Nvrtc::find().expect("RADRM_NVRTC") {
            return Some(found);
        }
        let inside = |folder: PathBuf| -> Vec<PathBuf> {
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        };
        let pythons = inside(Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/lib"));
        let packages = pythons.into_iter().flat_map(|python| inside(python.join("site-packages/nvidia")));
        let is_it = |file: &PathBuf| {
            file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libnvrtc.so."))
        };
        let file = packages.flat_map(|package| inside(package.join("lib"))).find(is_it)?;
        Some(Nvrtc::open(&file).expect("the client environment's NVRTC"))
    }

    #[test]
    fn what_nvrtc_makes_of_the_source_has_the_entries_of_the_shipped_ptx() {
        let Some(nvrtc) = nvrtc() else {
            eprintln!("skipped: there is no NVRTC here (RADRM_NVRTC names one)");
            return;
        };
        let ptx = nvrtc.compile(SOURCE, "compute_80").expect("compiled");
        assert_eq!(entries(&String::from_utf8(ptx).expect("PTX is text")), entries(PTX));
        let code = nvrtc.compile(SOURCE, "sm_80").expect("compiled");
        assert!(code.starts_with(b"\x7fELF"));
        let refused = nvrtc.compile(SOURCE, "sm_1").expect_err("no such architecture").to_string();
        assert!(refused.contains("sm_1"), "{refused}");
        let wrong = nvrtc.compile("__global__ void f() { g(); }", "sm_80").expect_err("no g").to_string();
        assert!(wrong.contains("kernels.cu(1)"), "{wrong}");
    }
}
