//! Description of the kernels in a code image, whatever the container.

/// A kernel as its image describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelInfo {
    /// Name in the image: mangled where the compiler mangled it.
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block, bytes.
    pub shared: u32,
    /// Local memory of a thread, bytes.
    pub local: u32,
    /// `__launch_bounds__`: most threads of a block, if stated.
    pub max_threads: Option<u32>,
    /// Block shape that the kernel insists on (`.reqntid`), if stated.
    pub required_block: Option<[u32; 3]>,
    /// Offset and size of each parameter, bytes; `None` where the image does not tell.
    pub params: Option<Vec<(usize, usize)>>,
}

/// A variable at module scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalInfo {
    /// Name in the image.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// An image, parsed.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Kernels in the order of the image.
    pub kernels: Vec<KernelInfo>,
    /// Variables that the host may address by name.
    pub globals: Vec<GlobalInfo>,
    /// Bytes of constant memory.
    pub constants: u64,
    /// Compute capability that the image was made for, times ten; 0 = unknown.
    pub arch: u32,
    /// PTX version times ten; 0 = no PTX.
    pub ptx_version: u32,
    /// True if the code is an intermediate form that any later device can take.
    pub is_ptx: bool,
    /// The contents could not be read (compressed, or a form unknown here): every kernel name is
    /// taken to exist.
    pub opaque: bool,
    /// Size of the image in bytes.
    pub size: usize,
}

/// Reason that an image was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// Neither PTX nor a cubin nor a container of them.
    NotAnImage,
    /// Broken: a table points outside the image.
    Malformed,
    /// PTX text without a `.version` or `.target` line, or that breaks off.
    BadPtx,
    /// Nothing inside runs on the device.
    NoBinary,
}

impl Image {
    /// Returns true if a device of compute capability `major.minor` can run the image.
    /// Binaries run on the same major and the same or a later minor version, PTX on anything from its target
    /// on.
    pub fn runs_on(&self, major: u32, minor: u32) -> bool {
        let device = major * 10 + minor;
        if self.arch == 0 {
            true
        } else if self.is_ptx {
            self.arch <= device
        } else {
            self.arch / 10 == major && self.arch <= device
        }
    }

    /// The kernel of that name; an opaque image has every name.
    pub fn kernel(&self, name: &str) -> Option<KernelInfo> {
        let found = self.kernels.iter().find(|k| k.name == name).cloned();
        if found.is_none() && self.opaque {
            return Some(KernelInfo { name: name.to_owned(), registers: 32, ..KernelInfo::default() });
        }
        found
    }
}
