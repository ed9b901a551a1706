//! Kinds of memory that a ledger tells apart.

/// Number of kinds.
pub const KINDS: usize = 10;

/// Kind of memory. The first nine have the numbers of the telemetry segment's kinds.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Plain device memory: `cuMemAlloc`, `cuMemAllocPitch`.
    Device = 0,
    /// What stream-ordered pools took from the device.
    PoolReserved = 1,
    /// Physical memory of `cuMemCreate` on a device.
    Vmm = 2,
    /// Arrays and mipmapped arrays.
    Array = 3,
    /// Memory that the driver keeps for allocation nodes of graphs.
    Graph = 4,
    /// Managed memory: can be evicted, so it is not charged.
    Managed = 5,
    /// Page-locked host memory.
    PinnedHost = 6,
    /// What pools handed out: part of `PoolReserved`.
    PoolUsed = 7,
    /// Memory of another process: charged there.
    Imported = 8,
    /// A context's own memory.
    Context = 9,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; KINDS] = [
        Self::Device,
        Self::PoolReserved,
        Self::Vmm,
        Self::Array,
        Self::Graph,
        Self::Managed,
        Self::PinnedHost,
        Self::PoolUsed,
        Self::Imported,
        Self::Context,
    ];

    /// Whether held bytes of this kind count against the GPU's memory.
    pub fn is_charged(self) -> bool {
        self.is_device_total() || self == Self::Context
    }

    /// Whether the kind is part of what a program's own calls took on the device.
    pub fn is_device_total(self) -> bool {
        (self as u8) <= Self::Graph as u8
    }

    /// Name as it stands in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::PoolReserved => "pool_reserved",
            Self::Vmm => "vmm",
            Self::Array => "array",
            Self::Graph => "graph",
            Self::Managed => "managed",
            Self::PinnedHost => "pinned_host",
            Self::PoolUsed => "pool_used",
            Self::Imported => "imported",
            Self::Context => "context",
        }
    }
}
