//! Ways of a copy.

use crate::models::timing::TransferKind;

/// Way of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Between places of host memory.
    HostToHost,
    /// To a device.
    HostToDevice,
    /// From a device.
    DeviceToHost,
    /// Within a device; memsets too.
    OnDevice,
    /// From one device to another.
    Peer,
}

impl Direction {
    /// The way as it is timed.
    pub fn kind(self) -> TransferKind {
        match self {
            Self::HostToHost => TransferKind::HostToHost,
            Self::HostToDevice => TransferKind::HostToDevice,
            Self::DeviceToHost => TransferKind::DeviceToHost,
            Self::OnDevice => TransferKind::DeviceToDevice,
            Self::Peer => TransferKind::PeerToPeer,
        }
    }
}
