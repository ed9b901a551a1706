//! Traffic over PCI Express where the performance monitor does not report it: a call of NVML that takes
//! 40 ms, on a thread of its own.

use super::load;
use radrm_os::nvml::{Nvml, NvmlSource};
use radrm_profile::model::{Gpu, GpuIndex};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

/// GPU, bytes per second from it and to it.
pub(super) type Traffic = (GpuIndex, f64, f64);

/// A thread that asks now and then. It ends when this is dropped, and no thread waits for it.
pub(super) struct Pcie {
    gpus: Sender<Gpu>,
    from: Receiver<Traffic>,
}

impl Pcie {
    pub(super) fn start(source: &NvmlSource) -> Option<Pcie> {
        let (gpus, asked) = channel();
        let (to, from) = channel();
        let source = source.clone();
        let work = move || ask(&source, &asked, &to);
        thread::Builder::new().name("radrm-pcie".into()).spawn(work).ok()?;
        Some(Pcie { gpus, from })
    }

    pub(super) fn watch(&self, gpu: Gpu) {
        // A thread that has given up has nothing to report.
        let _ = self.gpus.send(gpu);
    }

    /// Traffic that was measured since the last call.
    pub(super) fn traffic(&self) -> Vec<Traffic> {
        self.from.try_iter().collect()
    }
}

fn ask(source: &NvmlSource, gpus: &Receiver<Gpu>, to: &Sender<Traffic>) {
    let Ok(first) = gpus.recv() else { return };
    let Ok(nvml) = Nvml::open(source) else { return };
    let mut watched = Vec::new();
    let mut next = Some(first);
    loop {
        if let Some(gpu) = next.take()
            && let Ok(device) = nvml.device_or_card(&gpu.uuid, &gpu.pci_bus_id)
        {
            watched.push((gpu.index, device));
        }
        match gpus.recv_timeout(load::PCIE_GAP) {
            Ok(gpu) => next = Some(gpu),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                // A GPU that does not report it is not asked again.
                watched.retain(|(index, device)| {
                    device.pcie().is_some_and(|(from, into)| to.send((*index, from, into)).is_ok())
                });
            }
        }
    }
}
