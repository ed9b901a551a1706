//! NVML, on a thread of its own: its calls can take long, or hang with a
//! broken driver, and a job must not wait for them.

mod load;
mod pcie;

use crate::activity::Reading;
use crate::pace::sample_gap;
use pcie::Pcie;
use radrm_os::nvml::{Device, Monitor, Nvml, NvmlError};
use radrm_profile::model::{Gpu, GpuIndex, NvmlSample, ProcessUse};
use radrm_profile::{Bytes, Nanos};
use radrm_telemetry::monotonic_ns;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

pub use radrm_os::nvml::NvmlSource;

/// Message of the sampler.
#[derive(Debug)]
pub(crate) enum Message {
    /// Version of the kernel driver, newest CUDA version that it supports.
    Driver(Option<String>, Option<u32>),
    /// A sample; all processes of the GPU are in it.
    Sample(NvmlSample),
    /// Reading of the GPU's load.
    Load(Reading),
    /// There is no performance monitor for a GPU: its number for NVML, and why.
    NoMonitor(GpuIndex, Option<u32>, String),
    /// NVML cannot be used; nothing follows.
    Unusable(String),
    /// NVML does not know a GPU of the job, or reports nothing of it (any more).
    NoSuchGpu(GpuIndex, String),
}

/// Message to the sampler.
#[derive(Debug)]
enum Ask {
    /// The job uses this GPU.
    Watch(Box<Gpu>),
    /// Sample now, not when it is time.
    Now,
}

/// A sampler. It does nothing until it has a GPU: a job that never
/// touches a GPU does not wake NVML up.
#[derive(Debug)]
pub(crate) struct Sampler {
    to: Option<Sender<Ask>>,
    awake: bool,
    from: Receiver<Message>,
}

impl Sampler {
    /// Starts it. Times count from `origin_mono_ns` on CLOCK_MONOTONIC.
    pub(crate) fn start(source: &NvmlSource, origin_mono_ns: u64) -> Sampler {
        let (to, asks) = channel();
        let (messages, from) = channel();
        if *source == NvmlSource::Off {
            return Sampler { to: None, awake: false, from };
        }
        let source = source.clone();
        let work = move || sample(&source, origin_mono_ns, &asks, &messages);
        let started = thread::Builder::new().name("radrm-nvml".into()).spawn(work);
        Sampler { to: started.ok().map(|_| to), awake: false, from }
    }

    /// Adds a GPU that the job uses.
    pub(crate) fn watch(&mut self, gpu: &Gpu) {
        // After an error the thread is gone; it has said why.
        self.awake = self.to.as_ref().is_some_and(|to| to.send(Ask::Watch(Box::new(gpu.clone()))).is_ok());
    }

    /// Asks for a sample of all GPUs now.
    pub(crate) fn ask(&self) {
        if let Some(to) = self.to.as_ref().filter(|_| self.awake) {
            // A thread that is gone has said why.
            let _ = to.send(Ask::Now);
        }
    }

    /// True if it may have something to say.
    pub(crate) fn is_awake(&self) -> bool {
        self.awake
    }

    /// Messages since the last call.
    pub(crate) fn messages(&mut self) -> Vec<Message> {
        self.from.try_iter().collect()
    }

    /// Ends it and gives what it said last. A call that hangs is left behind.
    pub(crate) fn stop(mut self, at_most: Duration) -> Vec<Message> {
        self.to = None;
        let give_up = Instant::now() + at_most;
        let mut messages = Vec::new();
        loop {
            match self.from.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
                Ok(message) => messages.push(message),
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return messages,
            }
        }
    }
}

/// The thread. Ends when the other side is gone.
fn sample(source: &NvmlSource, origin: u64, asks: &Receiver<Ask>, messages: &Sender<Message>) {
    let Ok(first) = asks.recv() else { return };
    let nvml = match Nvml::open(source) {
        Ok(nvml) => nvml,
        Err(error) => {
            let _ = messages.send(Message::Unusable(error.to_string()));
            return;
        }
    };
    let _ = messages.send(Message::Driver(nvml.driver(), nvml.cuda()));

    let mut watched: Vec<Watched<'_>> = Vec::new();
    let mut slow: Option<Pcie> = None;
    let mut next = Some(first);
    loop {
        while let Some(ask) = next.take().or_else(|| asks.try_recv().ok()) {
            let Ask::Watch(gpu) = ask else { continue };
            match nvml.device_or_card(&gpu.uuid, &gpu.pci_bus_id) {
                Ok(device) => {
                    let monitor = match device.monitor() {
                        Ok(monitor) => Some(monitor),
                        Err(error) => {
                            let why = load::no_monitor(&error);
                            let _ = messages.send(Message::NoMonitor(gpu.index, device.index(), why));
                            if slow.is_none() {
                                slow = Pcie::start(source);
                            }
                            slow.iter().for_each(|slow| slow.watch((*gpu).clone()));
                            None
                        }
                    };
                    watched.push(Watched { gpu: gpu.index, device, monitor });
                }
                Err(error) => {
                    let _ = messages.send(Message::NoSuchGpu(gpu.index, error.to_string()));
                }
            }
        }
        let t = Nanos(monotonic_ns().saturating_sub(origin));
        // A GPU that reports nothing (an old driver, a GPU that has gone) is left
        // out from then on.
        let mut gone = false;
        let traffic = slow.as_ref().map(Pcie::traffic).unwrap_or_default();
        watched.retain_mut(|Watched { gpu, device, monitor }| {
            let sample = match of_device(*gpu, device, t) {
                Ok(sample) => sample,
                Err(error) => {
                    gone |= messages.send(Message::NoSuchGpu(*gpu, error.to_string())).is_err();
                    return false;
                }
            };
            let (mut reading, failed) = load::read(device, &sample, monitor);
            if let Some((_, from, into)) = traffic.iter().rfind(|traffic| traffic.0 == *gpu) {
                (reading.pcie_from_gpu, reading.pcie_to_gpu) = (Some(*from), Some(*into));
            }
            gone |= messages.send(Message::Sample(sample)).is_err();
            gone |= messages.send(Message::Load(reading)).is_err();
            if let Some(why) = failed {
                gone |= messages.send(Message::NoMonitor(*gpu, device.index(), why)).is_err();
            }
            true
        });
        if gone {
            return;
        }
        match asks.recv_timeout(sample_gap(t)) {
            Ok(ask) => next = Some(ask),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A GPU of the job.
struct Watched<'n> {
    gpu: GpuIndex,
    device: Device<'n>,
    monitor: Option<Monitor<'n>>,
}

fn of_device(gpu: GpuIndex, device: &Device<'_>, t: Nanos) -> Result<NvmlSample, NvmlError> {
    let memory = device.memory()?;
    let utilization = device.utilization();
    let percent = |value: u32| u8::try_from(value.min(100)).unwrap_or(100);
    let processes = device.processes().unwrap_or_default();
    Ok(NvmlSample {
        t,
        gpu,
        used: Bytes(memory.used),
        total: Bytes(memory.total),
        utilization: utilization.map(|(gpu, _)| percent(gpu)),
        memory_utilization: utilization.map(|(_, memory)| percent(memory)),
        power_mw: device.power_mw(),
        temperature: device.temperature(),
        processes: processes.iter().map(|p| ProcessUse { pid: p.pid, used: p.used.map(Bytes) }).collect(),
        others: Bytes::ZERO,
        others_count: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gpu_nothing_is_loaded() {
        let sampler = Sampler::start(&NvmlSource::Library("/none/libnvidia-ml.so.1".into()), 0);
        assert!(sampler.stop(Duration::from_secs(60)).is_empty());
        let mut off = Sampler::start(&NvmlSource::Off, 0);
        off.watch(&Gpu::default());
        assert!(off.stop(Duration::from_secs(60)).is_empty());
    }

    #[test]
    fn a_missing_library_is_said_in_one_sentence() {
        let mut sampler = Sampler::start(&NvmlSource::Library("/none/libnvidia-ml.so.1".into()), 0);
        sampler.watch(&Gpu::default());
        match sampler.stop(Duration::from_secs(60)).as_slice() {
            [Message::Unusable(why)] => assert_eq!(why, "its library was not found"),
            other => panic!("{other:?}"),
        }
    }
}
