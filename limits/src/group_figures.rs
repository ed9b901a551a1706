//! Figures of the driver for a control group, read by a thread: a call of the driver can hang.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use radrm_os::nvml::{Nvml, NvmlSource};

/// Between two readings.
const INTERVAL: Duration = Duration::from_millis(100);

type Figures = Vec<([u8; 16], u64)>;

/// Bytes that a control group holds of each GPU, by its UUID. The thread ends with this.
#[derive(Debug, Default)]
pub struct GroupFigures {
    latest: Arc<Mutex<Option<Figures>>>,
    /// Source and group that the thread reads.
    of: Option<(NvmlSource, PathBuf)>,
}

impl GroupFigures {
    /// Reads the figures of a group from now on. Without a thread, a driver that has them, or limits on the group there
    /// are none.
    #[must_use]
    pub fn of(source: NvmlSource, group: PathBuf) -> Self {
        let latest = Arc::new(Mutex::new(None));
        let place = Arc::downgrade(&latest);
        let of = Some((source.clone(), group.clone()));
        let _ = thread::Builder::new().name("group".into()).spawn(move || read(&source, &group, &place));
        Self { latest, of }
    }

    /// Goes on in a forked child, which has no thread of its parent's: what that one may have locked stays untouched.
    pub(crate) fn resume(&mut self) {
        if let Some((source, group)) = self.of.take() {
            *self = Self::of(source, group);
        }
    }

    /// Figures of a test.
    #[cfg(test)]
    pub(crate) fn put(&self, figures: Figures) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(figures);
    }

    /// The newest figures, once.
    pub(crate) fn news(&self) -> Option<Figures> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn read(source: &NvmlSource, group: &std::path::Path, place: &Weak<Mutex<Option<Figures>>>) {
    let Ok(nvml) = Nvml::open(source) else { return };
    let Ok(inventory) = nvml.inventory() else { return };
    let devices: Vec<_> =
        inventory.usable().filter_map(|gpu| Some((gpu.bytes, nvml.device(&gpu.uuid).ok()?))).collect();
    while let Some(latest) = place.upgrade() {
        let used =
            devices.iter().filter_map(|(gpu, device)| Some((*gpu, device.group_memory(group).ok()?.used)));
        let figures: Figures = used.collect();
        if !figures.is_empty() {
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(figures);
        }
        drop(latest);
        thread::sleep(INTERVAL);
    }
}
