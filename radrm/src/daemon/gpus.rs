//! The machine's GPUs: which there are, and what they do, looked at on a thread of its own, since
//! a call into a broken driver can hang.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use std::{fs, thread};

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, Nvml};
use radrm_collector::NvmlSource;
use radrm_emulator_machine::{ENV_MACHINE, Machine, MachineSpec};

use super::config::{Config, EMBEDDED};
use super::engine::Message;
use crate::audit::judge::{self, Entry, Expected};
use crate::audit::{devices, known, why};
use crate::limits::contexts::Contexts;
use crate::limits::gpus::{self, Gpu};
use crate::quota::{jobs, proc::Process};
use crate::run::libraries;

/// The GPUs that jobs are placed on.
#[derive(Clone, Debug)]
pub(crate) struct Gpus {
    pub(crate) source: NvmlSource,
    /// The emulated machine's file.
    pub(crate) machine: Option<PathBuf>,
    /// What is emulated, in words.
    pub(crate) emulated: Option<String>,
    pub(crate) list: Vec<Gpu>,
    /// Why there are none.
    pub(crate) trouble: Option<String>,
}

impl Gpus {
    /// Finds the GPUs, or emulates some. Called while this process has one thread.
    pub(crate) fn find(config: &Config, boot_is_new: bool) -> Result<Self, String> {
        let real = gpus::open(&NvmlSource::System).and_then(|nvml| gpus::inventory(&nvml));
        let trouble = match real {
            _ if !matches!(config.emulate.as_str(), "" | "never") => String::new(),
            Ok(found) if !found.gpus.is_empty() => {
                return Ok(Self {
                    source: NvmlSource::System,
                    machine: None,
                    emulated: None,
                    list: found.gpus,
                    trouble: None,
                });
            }
            Ok(_) => "NVML knows no GPU".to_owned(),
            Err(why) => format!("NVML does not work: {why}"),
        };
        if config.emulate == "never" {
            let none = (NvmlSource::Off, None, None, Vec::new());
            let (source, machine, emulated, list) = none;
            return Ok(Self { source, machine, emulated, list, trouble: Some(trouble) });
        }
        let wanted = if config.emulate.is_empty() { EMBEDDED } else { &config.emulate };
        Self::emulate(wanted, &config.state.join("machine"), boot_is_new)
    }

    fn emulate(wanted: &str, file: &Path, boot_is_new: bool) -> Result<Self, String> {
        let spec = MachineSpec::parse(wanted).map_err(|error| error.to_string())?;
        // What processes of another boot, or of other GPUs, held is nobody's.
        let same = Machine::open(file).is_ok_and(|machine| machine.spec() == &spec);
        if boot_is_new || !same {
            let _ = fs::remove_file(file);
            Machine::create(&spec, file).map_err(|error| error.to_string())?;
        }
        if rustix::process::geteuid().is_root() {
            // Jobs of all users share the emulated GPUs. They are nobody's memory.
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(file, fs::Permissions::from_mode(0o666))
                .map_err(|error| format!("{}: {error}", file.display()))?;
        }
        // SAFETY: called while this process has one thread.
        unsafe { std::env::set_var(ENV_MACHINE, file) };
        let source = NvmlSource::Library(libraries::find(libraries::EMULATED_NVML)?);
        let list = gpus::open(&source)
            .and_then(|nvml| gpus::inventory(&nvml))
            .map_err(|why| format!("the emulated NVML does not work: {why}"))?
            .gpus;
        let emulated = Some(wanted.to_owned());
        Ok(Self { source, machine: Some(file.to_owned()), emulated, list, trouble: None })
    }
}

/// What a GPU does.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) uuid: String,
    pub(crate) used: u64,
    /// Per cent of the time in which any kernel ran.
    pub(crate) utilization: Option<u32>,
    /// SM activity, SM occupancy and DRAM activity, as fractions.
    pub(crate) activity: Option<[f64; 3]>,
    pub(crate) power_mw: Option<u32>,
    /// Since the driver was loaded, mJ.
    pub(crate) energy_mj: Option<u64>,
}

/// Looks at all GPUs again and again, until nobody listens.
pub(crate) fn watch(gpus: &Gpus, every: Duration, audit: Option<Duration>, to: Sender<Message>) {
    let gpus = gpus.clone();
    thread::Builder::new()
        .name("gpus".into())
        .stack_size(512 << 10)
        .spawn(move || {
            let Ok(nvml) = gpus::open(&gpus.source) else { return };
            let mut before: HashMap<String, GpmSample<'_>> = HashMap::new();
            let mut audited: Option<Instant> = None;
            loop {
                let mut samples = Vec::new();
                for gpu in &gpus.list {
                    let Ok(device) = nvml.device_by_uuid(gpu.uuid.as_str()) else { continue };
                    let Ok(memory) = device.memory_info() else { continue };
                    let now =
                        device.gpm_support().unwrap_or(false).then(|| device.gpm_sample().ok()).flatten();
                    let last = before.remove(&gpu.uuid);
                    let activity = last.zip(now.as_ref()).and_then(|(last, now)| activity(&nvml, &last, now));
                    if let Some(now) = now {
                        before.insert(gpu.uuid.clone(), now);
                    }
                    samples.push(Sample { activity, ..plain(&gpu.uuid, memory.used, &device) });
                }
                if to.send(Message::Sampled(samples)).is_err() {
                    return;
                }
                if let Some(gap) = audit
                    && audited.is_none_or(|last| last.elapsed() >= gap)
                {
                    audited = Some(Instant::now());
                    if let Some(found) = look_for_strangers(&gpus)
                        && to.send(Message::Audited(found)).is_err()
                    {
                        return;
                    }
                }
                thread::sleep(every);
            }
        })
        .ok();
}

fn plain(uuid: &str, used: u64, device: &Device<'_>) -> Sample {
    Sample {
        uuid: uuid.to_owned(),
        used,
        utilization: device.utilization_rates().ok().map(|rates| rates.gpu),
        activity: None,
        power_mw: device.power_usage().ok(),
        energy_mj: device.total_energy_consumption().ok(),
    }
}

fn activity(nvml: &Nvml, last: &GpmSample<'_>, now: &GpmSample<'_>) -> Option<[f64; 3]> {
    let wanted = [GpmMetricId::SmUtil, GpmMetricId::SmOccupancy, GpmMetricId::DramBwUtil];
    let metrics = gpm_metrics_get(nvml, last, now, &wanted).ok()?;
    let mut values = [0.0; 3];
    for (value, metric) in values.iter_mut().zip(metrics) {
        *value = metric.ok()?.value / 100.0;
    }
    Some(values)
}

/// Processes that hold GPU memory that no shim explains, in words.
fn look_for_strangers(gpus: &Gpus) -> Option<Vec<(Option<u32>, String)>> {
    let listed = devices::list(&gpus.source).ok()?;
    let contexts = Contexts::load(gpus.machine.is_some());
    let expected = Expected { tolerance: judge::TOLERANCE, fixed: None, contexts };
    let known = known::all(&jobs::all());
    let mut found = Vec::new();
    for device in &listed.devices {
        for entry in &device.processes {
            let process = Process(entry.pid);
            if why::is_service(process) {
                continue;
            }
            let counted = known.of(process, &device.gpu.bytes);
            let entry =
                Entry { process, gpu: device.gpu.clone(), driver: listed.driver.clone(), held: entry.used };
            let finding = judge::judge(entry, counted, &expected);
            if let Some(reason) = &finding.reason {
                let gpu = finding.gpu.index.map_or_else(|| finding.gpu.uuid.clone(), |n| n.to_string());
                let words = format!(
                    "process {} on GPU {gpu} holds {} that nobody counts: {}",
                    finding.pid,
                    radrm_profile::Bytes(finding.unexplained),
                    reason.sentence()
                );
                found.push((finding.uid, words));
            }
        }
    }
    Some(found)
}
