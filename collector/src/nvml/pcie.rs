//! Traffic over PCI Express where the performance monitor does not tell it: a call of NVML that takes
//! 40 ms, on a thread of its own.

use super::{find, load};
use nvml_wrapper::Nvml;
use radrm_profile::model::{Gpu, GpuIndex};
use std::ffi::OsStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

/// GPU, bytes per second from it and to it.
pub(super) type Traffic = (GpuIndex, f64, f64);

/// A thread that asks now and then. It ends when this is dropped, and nobody waits for it.
pub(super) struct Pcie {
    gpus: Sender<Gpu>,
    from: Receiver<Traffic>,
}

impl Pcie {
    pub(super) fn start(library: &OsStr) -> Option<Pcie> {
        let (gpus, asked) = channel();
        let (to, from) = channel();
        let library = library.to_owned();
        let work = move || ask(&library, &asked, &to);
        thread::Builder::new().name("radrm-pcie".into()).spawn(work).ok()?;
        Some(Pcie { gpus, from })
    }

    pub(super) fn watch(&self, gpu: Gpu) {
        // A thread that has given up has nothing to tell.
        let _ = self.gpus.send(gpu);
    }

    /// What was measured since the last call.
    pub(super) fn traffic(&self) -> Vec<Traffic> {
        self.from.try_iter().collect()
    }
}

fn ask(library: &OsStr, gpus: &Receiver<Gpu>, to: &Sender<Traffic>) {
    let Ok(first) = gpus.recv() else { return };
    let Ok(nvml) = Nvml::builder().lib_path(library).init() else { return };
    let mut watched = Vec::new();
    let mut next = Some(first);
    loop {
        if let Some(gpu) = next.take()
            && let Ok(device) = find(&nvml, &gpu)
        {
            watched.push((gpu.index, device));
        }
        match gpus.recv_timeout(load::PCIE_GAP) {
            Ok(gpu) => next = Some(gpu),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                // A GPU that does not tell is not asked again.
                watched.retain(|(index, device)| {
                    load::pcie(device).is_some_and(|(from, into)| to.send((*index, from, into)).is_ok())
                });
            }
        }
    }
}
