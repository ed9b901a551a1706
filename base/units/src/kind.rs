//! Kinds of GPU memory that are counted apart.

/// Kind of memory. The numbers are part of the shared-memory layout and of the profile format.
///
/// The device total of a GPU is the sum of [`Kind::DEVICE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Device = 0,
    /// Reserved by stream-ordered pools on the device.
    PoolReserved = 1,
    /// `cuMemCreate` with device location.
    Vmm = 2,
    /// Arrays and mipmapped arrays.
    Array = 3,
    /// Reserved by the driver for graphs.
    Graph = 4,
    /// Managed (unified) memory; the driver can move it to the host.
    Managed = 5,
    /// Pinned or registered host memory.
    PinnedHost = 6,
    /// Allocated from pools: a part of [`Kind::PoolReserved`], never added to totals.
    PoolUsed = 7,
    /// Imported from another process, which is charged for it.
    Imported = 8,
}

/// Number of memory kinds.
pub const KIND_COUNT: usize = Kind::ALL.len();

impl Kind {
    /// Every kind, in the order of the numbers.
    pub const ALL: [Self; 9] = [
        Self::Device,
        Self::PoolReserved,
        Self::Vmm,
        Self::Array,
        Self::Graph,
        Self::Managed,
        Self::PinnedHost,
        Self::PoolUsed,
        Self::Imported,
    ];

    /// The kinds whose sum is the device total.
    pub const DEVICE: [Self; 5] = [Self::Device, Self::PoolReserved, Self::Vmm, Self::Array, Self::Graph];

    /// The kind with this number, if there is one.
    #[inline]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        if (raw as usize) < KIND_COUNT { Some(Self::ALL[raw as usize]) } else { None }
    }

    /// Index into an array with one entry per kind.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns true if this kind is part of the device total.
    #[inline]
    pub const fn in_total(self) -> bool {
        (self as u8) <= Self::Graph as u8
    }

    /// Returns true if a quota counts this kind.
    /// It counts device memory, and managed memory, which may move to the device at any time.
    #[inline]
    pub const fn in_quota(self) -> bool {
        self.in_total() || matches!(self, Self::Managed)
    }

    /// Returns true if a request of this kind asks for memory of the GPU.
    #[inline]
    pub const fn is_of_gpu(self) -> bool {
        self.in_quota() || matches!(self, Self::PoolUsed)
    }

    /// Stable name for programs: JSON keys, column names.
    pub const fn key(self) -> &'static str {
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
        }
    }

    /// Name for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::PoolReserved => "pool reserved",
            Self::Vmm => "virtual memory",
            Self::Array => "arrays",
            Self::Graph => "graphs",
            Self::PinnedHost => "pinned host",
            Self::PoolUsed => "pool used",
            Self::Device | Self::Managed | Self::Imported => self.key(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_kinds_are_those_of_the_formats() {
        let numbered = Kind::ALL.map(|kind| (kind as u8, kind.key()));
        let formats = [
            (0, "device"),
            (1, "pool_reserved"),
            (2, "vmm"),
            (3, "array"),
            (4, "graph"),
            (5, "managed"),
            (6, "pinned_host"),
            (7, "pool_used"),
            (8, "imported"),
        ];
        assert_eq!(numbered, formats);
        for kind in Kind::ALL {
            assert_eq!(Kind::from_raw(kind as u8), Some(kind));
            assert_eq!(Kind::DEVICE.contains(&kind), kind.in_total());
        }
        assert_eq!(Kind::from_raw(9), None);
    }
}
