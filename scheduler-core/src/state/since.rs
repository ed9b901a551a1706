//! Devices on which something changed for a job since it found no place.

/// Devices that can have a place now for jobs that found none at one time: those that changed, and those that were kept from
/// them then. Of the jobs behind the first blocked one most were searched at the same time, so the list is kept for the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Since {
    key: Option<[u64; 4]>,
    devices: Vec<usize>,
    more: Vec<usize>,
}

impl Since {
    /// Returns true if the list is the one of this key: changes then and now, versions of the reservation then and now.
    pub(super) fn is_of(&self, key: [u64; 4]) -> bool {
        self.key == Some(key)
    }

    /// Replaces the list.
    pub(super) fn set(&mut self, key: [u64; 4], devices: impl Iterator<Item = usize>) {
        self.key = Some(key);
        self.devices.clear();
        self.devices.extend(devices);
        self.devices.sort_unstable();
        self.devices.dedup();
    }

    /// The devices, in order.
    pub(super) fn devices(&self) -> &[usize] {
        &self.devices
    }

    /// The same and others, in order.
    pub(super) fn with(&mut self, others: &[usize]) -> &[usize] {
        self.more.clear();
        self.more.extend(self.devices.iter().chain(others));
        self.more.sort_unstable();
        self.more.dedup();
        &self.more
    }
}
