//! The list of entry points as parsed rows.
//!
//! `data/driver_api.tsv` has one row per exported symbol, every version and stream flavour on its
//! own. Build scripts and tests read it through [`rows`]; nothing else in the project repeats it.
//!
//! Processes of different builds share a segment, so an entry point is known by the `id` of its row and never by
//! the row's place. A new row takes the first id that was never used, wherever it is inserted; a row that goes
//! leaves its id unused: add it to [`RETIRED`].

const TSV: &str = include_str!("../data/driver_api.tsv");

/// Ids of rows that were removed.
#[cfg(test)]
const RETIRED: &[u16] = &[];

/// Default stream that a symbol means when it is handed the null stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Flavour {
    /// The legacy default stream.
    Legacy,
    /// The calling thread's default stream, asynchronous calls (`_ptsz`).
    Ptsz,
    /// The calling thread's default stream, synchronous calls (`_ptds`).
    Ptds,
}

/// Duty of a shim at an entry point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Need {
    /// Limits are applied here.
    MustEnforce,
    /// Starts kernels.
    MustLaunch,
    /// Tells the program how much memory there is.
    MustVirtualise,
    /// Changes what is held, or what a handle means.
    MustTrack,
    /// Makes other figures more exact.
    ShouldTrack,
    /// Hands out other entry points.
    MustResolve,
    /// Worth noticing.
    Observe,
    /// Feeds a metric.
    OptionalMetric,
    /// Used by the shim itself, not wrapped.
    Helper,
    /// Nothing to do.
    Passthrough,
    /// Must not be touched.
    LeaveAlone,
    /// May be wrapped.
    Optional,
    /// Only in headers.
    NotExported,
}

impl Need {
    fn parse(text: &str) -> Self {
        match text {
            "must-enforce" => Self::MustEnforce,
            "must-launch" => Self::MustLaunch,
            "must-virtualise" => Self::MustVirtualise,
            "must-track" => Self::MustTrack,
            "should-track" => Self::ShouldTrack,
            "must-resolve" => Self::MustResolve,
            "observe" => Self::Observe,
            "optional-metric" => Self::OptionalMetric,
            "helper" => Self::Helper,
            "passthrough" => Self::Passthrough,
            "leave-alone" => Self::LeaveAlone,
            "optional" => Self::Optional,
            "not-exported" => Self::NotExported,
            other => panic!("driver_api.tsv: unknown need `{other}`"),
        }
    }

    /// Returns true if an interposer has to wrap the entry point for its figures to be right.
    pub fn is_wrapped(self) -> bool {
        matches!(
            self,
            Self::MustEnforce | Self::MustLaunch | Self::MustVirtualise | Self::MustTrack | Self::ShouldTrack
        )
    }
}

/// One parameter of an entry point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arg {
    /// Name in the C prototype.
    pub name: String,
    /// Type in the C prototype.
    pub c_type: String,
}

impl Arg {
    /// The Rust spelling of the type, with the names of this crate and of `core::ffi` in scope.
    pub fn rust_type(&self) -> String {
        rust_type(&self.c_type)
    }
}

/// One exported symbol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Name that the library exports.
    pub symbol: String,
    /// Number by which the segment knows the entry point. The same in every build.
    pub id: u16,
    /// Family, such as `mem-pool`.
    pub group: String,
    /// CUDA version of this form (`12020` is 12.2); `None` where the resolution interface does not
    /// know the symbol.
    pub version: Option<u32>,
    /// Default-stream flavour.
    pub flavour: Flavour,
    /// Duty of a shim.
    pub need: Need,
    /// Name without version and flavour: what programs ask `cuGetProcAddress` for.
    pub base: String,
    /// Parameters; empty for `void`.
    pub args: Vec<Arg>,
}

impl Row {
    /// Returns true if the symbol belongs to NVML rather than to the driver.
    pub fn is_nvml(&self) -> bool {
        self.group == "nvml"
    }
}

/// All rows, driver and NVML, in the order of the file.
///
/// # Panics
/// If the committed table is malformed: a build must stop there.
pub fn rows() -> Vec<Row> {
    parse(TSV)
}

fn parse(table: &str) -> Vec<Row> {
    let mut lines = table.lines();
    let head: Vec<&str> = lines.next().expect("driver_api.tsv: empty").split('\t').collect();
    let column = |name: &str| head.iter().position(|h| *h == name).expect("driver_api.tsv: column missing");
    let (id, symbol, group, versions) = (column("id"), column("symbol"), column("group"), column("versions"));
    let (stream, need, base, args) =
        (column("stream_kind"), column("need"), column("base"), column("prototype_args"));
    lines
        .map(|line| {
            let cell: Vec<&str> = line.split('\t').collect();
            Row {
                id: cell[id].parse().expect("driver_api.tsv: a row without an id"),
                symbol: cell[symbol].to_owned(),
                group: cell[group].to_owned(),
                version: cell[versions].parse().ok(),
                flavour: match cell[stream] {
                    "ptsz" => Flavour::Ptsz,
                    "ptds" => Flavour::Ptds,
                    _ => Flavour::Legacy,
                },
                need: Need::parse(cell[need]),
                base: cell[base].to_owned(),
                args: parse_args(cell.get(args).copied().unwrap_or("")),
            }
        })
        .collect()
}

/// The symbol of an entry point by its id.
pub fn symbol(id: u16) -> Option<&'static str> {
    TSV.lines().skip(1).find_map(|line| {
        let (number, rest) = line.split_once('\t')?;
        if number.parse() == Ok(id) { rest.split('\t').next() } else { None }
    })
}

fn parse_args(text: &str) -> Vec<Arg> {
    let text = text.trim();
    if text.is_empty() || text == "void" {
        return Vec::new();
    }
    text.split(',')
        .map(|arg| {
            let arg = arg.trim();
            let split = arg
                .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .expect("driver_api.tsv: parameter without a name");
            Arg { name: arg[split + 1..].to_owned(), c_type: arg[..=split].trim().to_owned() }
        })
        .collect()
}

/// Structures and integer types of this crate that may stand behind a pointer or by value.
pub const KNOWN_STRUCTS: &[&str] = &[
    "CUuuid",
    "CUcheckpointLockArgs",
    "CUcheckpointCheckpointArgs",
    "CUcheckpointGpuPair",
    "CUcheckpointRestoreArgs",
    "CUcheckpointUnlockArgs",
    "CUmemLocation",
    "CUmemAllocationProp",
    "CUmemPoolProps",
    "CUmemAccessDesc",
    "CUDA_ARRAY_DESCRIPTOR",
    "CUDA_ARRAY_DESCRIPTOR_v1",
    "CUDA_ARRAY3D_DESCRIPTOR",
    "CUDA_ARRAY3D_DESCRIPTOR_v1",
    "CUDA_ARRAY_MEMORY_REQUIREMENTS",
    "CUDA_KERNEL_NODE_PARAMS_v1",
    "CUDA_KERNEL_NODE_PARAMS",
    "CUDA_MEM_ALLOC_NODE_PARAMS",
    "CUDA_GRAPH_INSTANTIATE_PARAMS",
    "CUDA_LAUNCH_PARAMS",
    "CUlaunchConfig",
    "CUDA_MEMCPY2D",
    "CUDA_MEMCPY3D",
    "CUDA_MEMCPY3D_BATCH_OP",
    "CUDA_EXTERNAL_MEMORY_HANDLE_DESC",
    "CUDA_EXTERNAL_MEMORY_BUFFER_DESC",
    "CUipcMemHandle",
    "CUipcEventHandle",
    "CUmemPoolPtrExportData",
    "nvmlMemory_t",
    "nvmlMemory_v2_t",
    "nvmlProcessInfo_v1_t",
    "nvmlProcessInfo_v2_t",
    "nvmlProcessDetailList_v1_t",
];

/// Integer-like C enumerations that have a newtype here.
const KNOWN_ENUMS: &[&str] = &[
    "CUresult",
    "CUprocessState",
    "CUmemAllocationType",
    "CUmemPool_attribute",
    "CUgraphMem_attribute",
    "CUstreamCaptureStatus",
    "CUstreamCaptureMode",
    "CUgraphNodeType",
    "CUfunction_attribute",
    "CUpointer_attribute",
];

const HANDLES: &[&str] = &[
    "CUcontext",
    "CUmodule",
    "CUfunction",
    "CUkernel",
    "CUlibrary",
    "CUstream",
    "CUevent",
    "CUarray",
    "CUmipmappedArray",
    "CUmemoryPool",
    "CUgraph",
    "CUgraphExec",
    "CUgraphNode",
    "CUgreenCtx",
    "CUexternalMemory",
    "CUexternalSemaphore",
    "CUgraphicsResource",
    "CUlinkState",
    "CUtexref",
    "CUsurfref",
    "CUuserObject",
    "CUdevResourceDesc",
    "CUcheckpointOperationHandle",
    "nvmlDevice_t",
    "CUdevice",
    "CUdeviceptr",
    "CUdeviceptr_v1",
    "CUmemGenericAllocationHandle",
    "CUtexObject",
    "CUsurfObject",
];

/// Types that are pointers in C although they do not look so: callbacks and foreign handles.
const POINTER_LIKE: &[&str] = &[
    "CUhostFn",
    "CUstreamCallback",
    "CUasyncCallback",
    "CUasyncCallbackHandle",
    "CUcoredumpStatusCallback",
    "CUcoredumpCallbackHandle",
    "CUgraphRecaptureCallback",
    "CUlogsCallback",
    "CUlogsCallbackHandle",
    "CUoccupancyB2DSize",
    "EGLImageKHR",
    "EGLStreamKHR",
    "EGLSyncKHR",
    // `VdpGetProcAddress *` and the like: what stands behind is not read here.
    "VdpGetProcAddress",
];

fn rust_type(c_type: &str) -> String {
    let c_type = c_type.trim();
    if let Some(target) = c_type.strip_suffix('*') {
        let target = target.trim();
        let (constness, target) = match target.strip_prefix("const ") {
            // `const T **` is a mutable pointer to a pointer to constant data.
            Some(inner) if inner.ends_with('*') => ("mut", target.to_owned()),
            Some(inner) => ("const", inner.trim().to_owned()),
            None => ("mut", target.to_owned()),
        };
        let pointee = if target == "void" || target == "const void" {
            "c_void".to_owned()
        } else {
            by_value(&target).unwrap_or_else(|| {
                if target.ends_with('*') { rust_type(&target) } else { "c_void".to_owned() }
            })
        };
        return format!("*{constness} {pointee}");
    }
    by_value(c_type).unwrap_or_else(|| "c_uint".to_owned())
}

/// The Rust type of a C type that is not a pointer; `None` where this crate has no name for it.
fn by_value(c_type: &str) -> Option<String> {
    let named = |list: &[&str]| list.contains(&c_type).then(|| c_type.to_owned());
    named(HANDLES).or_else(|| named(KNOWN_ENUMS)).or_else(|| named(KNOWN_STRUCTS)).or_else(|| {
        Some(
            match c_type {
                "unsigned int" | "unsigned" | "cuuint32_t" | "GLuint" | "GLenum" | "VdpDevice"
                | "VdpOutputSurface" | "VdpVideoSurface" => "c_uint",
                "int" | "EGLint" => "c_int",
                "size_t" => "usize",
                "unsigned long long" | "cuuint64_t" | "CUlogicalEndpointId" => "u64",
                "unsigned short" => "u16",
                "unsigned char" => "u8",
                "char" => "c_char",
                "float" => "f32",
                _ if POINTER_LIKE.contains(&c_type) => "*mut c_void",
                _ => return None,
            }
            .to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(symbol: &str) -> Row {
        rows().into_iter().find(|r| r.symbol == symbol).expect(symbol)
    }

    fn signature(symbol: &str) -> String {
        row(symbol)
            .args
            .iter()
            .map(|a| format!("{}: {}", a.name, a.rust_type()))
            .collect::<Vec<_>>()
            .join(", ")
    }

    #[test]
    fn signatures_are_spelled_as_the_driver_means_them() {
        assert_eq!(signature("cuMemAlloc_v2"), "dptr: *mut CUdeviceptr, bytesize: usize");
        assert_eq!(signature("cuMemAlloc"), "dptr: *mut CUdeviceptr_v1, bytesize: c_uint");
        assert_eq!(
            signature("cuGetProcAddress_v2"),
            "symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: c_int, flags: u64, symbolStatus: *mut c_void"
        );
        assert_eq!(
            signature("cuLaunchKernelEx_ptsz"),
            "config: *const CUlaunchConfig, f: CUfunction, kernelParams: *mut *mut c_void, extra: *mut *mut c_void"
        );
        assert_eq!(
            signature("cuIpcOpenMemHandle_v2"),
            "pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: c_uint"
        );
        assert_eq!(signature("cuGetErrorName"), "error: CUresult, pStr: *mut *const c_char");
        assert_eq!(
            signature("nvmlDeviceGetComputeRunningProcesses_v3"),
            "device: nvmlDevice_t, infoCount: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t"
        );
    }

    #[test]
    fn every_symbol_stands_once() {
        let mut names: Vec<String> = rows().into_iter().map(|r| r.symbol).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_symbol_is_found_by_its_id() {
        for row in rows() {
            assert_eq!(symbol(row.id), Some(row.symbol.as_str()));
        }
        assert_eq!(symbol(u16::MAX), None);
    }

    #[test]
    fn an_inserted_row_changes_no_other_id() {
        let mut lines: Vec<&str> = TSV.lines().collect();
        let fresh = format!("{}\tcuNew\tinit\t14000\tlegacy\tobserve\tcuNew\t14.0\t14.0\tvoid", rows().len());
        lines.insert(lines.len() / 2, &fresh);
        let ids = |rows: Vec<Row>| -> std::collections::BTreeMap<String, u16> {
            rows.into_iter().map(|row| (row.symbol, row.id)).collect()
        };
        let mut with = ids(parse(&lines.join("\n")));
        assert_eq!(with.remove("cuNew").map(usize::from), Some(rows().len()));
        assert_eq!(with, ids(rows()));
    }

    #[test]
    fn ids_are_given_once_and_leave_no_gap() {
        let mut ids: Vec<u16> = rows().iter().map(|row| row.id).chain(RETIRED.iter().copied()).collect();
        ids.sort_unstable();
        let expected: Vec<u16> = (0..).take(ids.len()).collect();
        assert_eq!(ids, expected);
    }

    /// The first ids that were given out, with a hash (FNV-1a) of what they mean. Both stay as they are.
    #[test]
    fn released_ids_keep_their_meaning() {
        const RELEASED: (u16, u64) = (733, 0x046f_8d22_05bf_49b0);
        let text: String = (0..RELEASED.0)
            .map(|id| format!("{id} {}\n", symbol(id).expect("a released id has a row")))
            .collect();
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        assert_eq!(hash, RELEASED.1);
    }

    #[test]
    fn versions_and_flavours_are_read() {
        let ptsz = row("cuMemcpy3DBatchAsync_v2_ptsz");
        assert_eq!(
            (ptsz.version, ptsz.flavour, ptsz.base.as_str()),
            (Some(13000), Flavour::Ptsz, "cuMemcpy3DBatchAsync")
        );
        assert!(row("cuMemAllocAsync_ptsz").need.is_wrapped());
        assert!(!row("cuGetExportTable").need.is_wrapped());
    }
}
