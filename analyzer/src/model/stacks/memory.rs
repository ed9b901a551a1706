//! Memories that call stacks are shown of, each with a sum of its own.

use radrm_profile::Bytes;
use radrm_profile::model::{KIND_COUNT, Kind, Site};

/// A sort of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// All that is part of the device total.
    #[default]
    Device,
    /// Managed memory, which the driver can move to the host.
    Managed,
    /// Pinned and registered memory of the host.
    PinnedHost,
}

impl Memory {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Device, Self::Managed, Self::PinnedHost];

    /// The kind of memory; `None`: several.
    pub(crate) fn kind(self) -> Option<Kind> {
        match self {
            Self::Device => None,
            Self::Managed => Some(Kind::Managed),
            Self::PinnedHost => Some(Kind::PinnedHost),
        }
    }

    /// Its name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Device => "device memory",
            Self::Managed => "managed memory",
            Self::PinnedHost => "pinned host memory",
        }
    }

    /// Returns true if a site's memory is part of this memory.
    pub(super) fn has(self, site: &Site) -> bool {
        self.kind().map_or_else(|| site.is_in_total(), |kind| site.kind == kind as u8)
    }

    /// Its bytes, of the device total and the kinds of the same moment.
    pub(super) fn total(self, device: Bytes, kinds: &[Bytes; KIND_COUNT]) -> Bytes {
        self.kind().map_or(device, |kind| kinds[kind.index()])
    }
}
