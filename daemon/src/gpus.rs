//! The machine's GPUs: which there are, and what they do, polled on a thread of its own, since
//! a call into a broken driver can hang.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use std::{fs, thread};

use radrm_base::machine_file;
use radrm_collector::{Activities, DcgmSource, GpuActivity, NodeDcgm};
use radrm_emulator_machine::{ENV_MACHINE, Machine, MachineSpec};
use radrm_limits::audit;
use radrm_limits::audit::judge::Expected;
use radrm_limits::cgroup;
use radrm_limits::program::libraries;
use radrm_os::nvml::{Gpu, Inventory, Monitor, Nvml, NvmlError, NvmlSource};
use radrm_protocol::wire::{ActivitySource, GpuRow};
use radrm_scheduler_core::Permille;

use super::config::Config;
use super::device_filter;
use super::error::DaemonError;
use super::gpu_numbers::{number, number_of};
use super::message::Message;

/// The GPUs that jobs are placed on.
#[derive(Clone, Debug)]
pub(crate) struct Gpus {
    pub(crate) source: NvmlSource,
    /// The emulated machine's file.
    pub(crate) machine: Option<PathBuf>,
    /// Description of what is emulated, in words.
    pub(crate) emulated: Option<String>,
    pub(crate) list: Vec<Gpu>,
    /// Minor numbers of GPUs' device files, by UUID, where the kernel can hide these from jobs.
    pub(crate) files: Vec<(String, u32)>,
    /// Version of the kernel driver; empty if there is none.
    pub(crate) driver: String,
    /// Reason that there are no GPUs.
    pub(crate) trouble: Option<String>,
    /// MIG instances take several jobs each.
    pub(crate) share_instances: bool,
}

impl Gpus {
    /// No GPUs, and no driver.
    pub(crate) fn off() -> Self {
        Self {
            source: NvmlSource::Off,
            machine: None,
            emulated: None,
            list: Vec::new(),
            files: Vec::new(),
            driver: String::new(),
            trouble: None,
            share_instances: false,
        }
    }

    /// Finds the GPUs, or emulates those that are asked for by name. Called while this process has one thread.
    pub(crate) fn find(config: &Config, boot_is_new: bool) -> Result<Self, DaemonError> {
        if !config.emulate.is_empty() {
            return Self::emulate(&config.emulate, &config.state.join("machine"), boot_is_new);
        }
        let trouble = match inventory(&NvmlSource::System) {
            Ok(found) if !found.gpus.is_empty() => {
                return Ok(Self {
                    source: NvmlSource::System,
                    machine: None,
                    emulated: None,
                    list: found.gpus,
                    files: hideable(),
                    driver: found.driver,
                    trouble: None,
                    share_instances: config.share_instances,
                });
            }
            Ok(_) => "NVML knows no GPU".to_owned(),
            Err(why) => DaemonError::Nvml(why).to_string(),
        };
        Ok(Self { trouble: Some(trouble), ..Self::off() })
    }

    /// GPUs that a daemon with this configuration would find, as far as that can be said without one.
    pub(crate) fn expected(config: &Config) -> Vec<Gpu> {
        if config.emulate.is_empty() {
            return inventory(&NvmlSource::System).map(|found| found.gpus).unwrap_or_default();
        }
        let Ok(spec) = MachineSpec::parse(&config.emulate) else { return Vec::new() };
        let gpu = |at: usize| Gpu {
            index: u32::try_from(at).ok(),
            uuid: spec.uuid_text(at),
            total: spec.gpu[at].memory_bytes(),
            ..Gpu::default()
        };
        (0..spec.gpu.len()).map(gpu).collect()
    }

    /// Returns true if this daemon can have the driver limit the control groups of jobs.
    pub(crate) fn has_fence(&self) -> bool {
        rustix::process::geteuid().is_root() && cgroup::has_limits(&self.driver)
    }

    /// In words.
    pub(crate) fn describe(&self) -> String {
        match (&self.emulated, self.list.len()) {
            (Some(spec), _) => format!("emulated GPUs ({spec})"),
            (None, 0) => {
                let why = self.trouble.as_deref().unwrap_or("none was looked for");
                format!(
                    "no GPU: {why}. radrmd looks again every {} s and takes the GPUs that it finds \
                     (--emulate 2xA100-40GB emulates some)",
                    REOPEN.as_secs()
                )
            }
            (None, 1) => "1 GPU".to_owned(),
            (None, count) => format!("{count} GPUs"),
        }
    }

    /// Minor numbers of the files of GPUs that a job with these devices does not have.
    pub(crate) fn hidden_from(&self, devices: &[String]) -> Vec<u32> {
        // Instances follow their GPU, whose file they need.
        let gpu_of = |uuid: &String| {
            let at = self.list.iter().position(|gpu| gpu.uuid == *uuid)?;
            self.list[..=at].iter().rfind(|gpu| gpu.index.is_some()).map(|gpu| &gpu.uuid)
        };
        let own: Vec<&String> = devices.iter().filter_map(gpu_of).chain(devices).collect();
        self.files.iter().filter(|(uuid, _)| !own.contains(&uuid)).map(|(_, minor)| *minor).collect()
    }

    /// Why the emulated machine cannot be read any more: each of its users may write its file, and so shorten it.
    fn broken(&self) -> Option<String> {
        let file = self.machine.as_deref()?;
        let is_whole = fs::metadata(file).is_ok_and(|found| found.len() == machine_file::BYTES);
        (!is_whole).then(|| {
            format!(
                "the emulated GPUs are lost: {} cannot be read, a user has shortened or removed it; restart radrmd to make it anew",
                file.display()
            )
        })
    }

    fn uuids(&self) -> Vec<String> {
        self.list.iter().map(|gpu| gpu.uuid.clone()).collect()
    }

    /// For a job that needs one where there is none, as one sentence.
    pub(crate) fn waiting_for_one(&self) -> Option<String> {
        let why = self.trouble.as_ref().filter(|_| self.list.is_empty())?;
        Some(format!("this node has no GPU ({why}): the job waits until radrmd finds one"))
    }

    fn emulate(wanted: &str, file: &Path, boot_is_new: bool) -> Result<Self, DaemonError> {
        let failed = |why: &dyn std::fmt::Display| DaemonError::Emulation(why.to_string());
        let spec = MachineSpec::parse(wanted).map_err(|error| failed(&error))?;
        // What processes of another boot, or of other GPUs, held is free.
        let same = Machine::open(file).is_ok_and(|machine| machine.spec() == &spec);
        if boot_is_new || !same {
            let _ = fs::remove_file(file);
            Machine::create(&spec, file).map_err(|error| failed(&error))?;
        }
        if rustix::process::geteuid().is_root() {
            // Jobs of all users share the emulated GPUs. They are no real memory.
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(file, fs::Permissions::from_mode(0o666))
                .map_err(|error| DaemonError::file(file, &error))?;
        }
        // SAFETY: called while this process has one thread.
        unsafe { std::env::set_var(ENV_MACHINE, file) };
        let source = NvmlSource::Library(libraries::find(libraries::EMULATED_NVML)?);
        let Inventory { gpus: list, driver, .. } = inventory(&source).map_err(DaemonError::EmulatedNvml)?;
        let emulated = Some(wanted.to_owned());
        let files = hideable();
        let machine = Some(file.to_owned());
        Ok(Self { source, machine, emulated, list, files, driver, ..Self::off() })
    }
}

fn hideable() -> Vec<(String, u32)> {
    if device_filter::is_possible() { device_filter::minors() } else { Vec::new() }
}

fn inventory(source: &NvmlSource) -> Result<Inventory, NvmlError> {
    Nvml::open(source)?.inventory()
}

/// GPUs that `gpu_reserve_mib` leaves nothing of, as a sentence; `None` if there are none.
///
/// # Errors
/// It leaves nothing of any GPU.
pub(crate) fn reserved_whole(list: &[Gpu], reserve_mib: u64) -> Result<Option<String>, DaemonError> {
    let whole = || list.iter().enumerate().filter(|(_, gpu)| gpu.total >> 20 <= reserve_mib);
    if reserve_mib == 0 || whole().next().is_none() {
        return Ok(None);
    }
    let largest = list.iter().map(|gpu| gpu.total >> 20).max().unwrap_or(0);
    if whole().count() == list.len() {
        return Err(DaemonError::GpuReserve { reserve: reserve_mib, largest });
    }
    let names = whole().map(|(at, gpu)| format!("{} ({} MiB)", number(list, at), gpu.total >> 20));
    let names: Vec<String> = names.collect();
    Ok(Some(format!(
        "gpu_reserve_mib = {reserve_mib} leaves jobs nothing of GPU {}: no job gets it",
        names.join(", ")
    )))
}

/// The part of a GPU's row that is known of every GPU, also of one that is lost and has no sample.
pub(crate) fn row(gpu: &Gpu, number: u32, sample: Option<&Sample>) -> GpuRow {
    let part = |at: usize| Some(Permille::from_fraction(sample?.activity[at]?).0);
    GpuRow {
        index: number,
        uuid: gpu.uuid.clone(),
        model: gpu.name.clone(),
        total: gpu.total,
        used: sample.map(|sample| sample.used),
        activity_source: sample.and_then(|sample| sample.source),
        smact: part(0),
        smocc: part(1),
        drama: part(2),
        gract: sample.and_then(|sample| sample.gr_active).map(|part| Permille::from_fraction(part).0),
        utilization: sample.and_then(|sample| sample.utilization),
        power_mw: sample.and_then(|sample| sample.power_mw),
        energy_mj: sample.and_then(|sample| sample.energy_mj),
        pcie: [0, 1].map(|way| Some(sample?.pcie[way]?.round() as u64)),
        ..GpuRow::default()
    }
}

/// Sample of a GPU's memory, activity and power.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) uuid: String,
    pub(crate) used: u64,
    /// Memory of it that each process holds, by process id, bytes, contexts included, where the driver reports it.
    pub(crate) processes: Vec<(u32, u64)>,
    /// Per cent of the time in which any kernel ran.
    pub(crate) utilization: Option<u32>,
    /// SM activity, SM occupancy and DRAM activity.
    pub(crate) activity: Activities,
    /// Source of these.
    pub(crate) source: Option<ActivitySource>,
    /// Part of the time in which the graphics or compute engine was in use. It decides nothing.
    pub(crate) gr_active: Option<f64>,
    /// The GPU is emulated and its kernels take modelled time, which is not the time between two polls.
    pub(crate) is_modelled: bool,
    pub(crate) power_mw: Option<u32>,
    /// Since the driver was loaded, mJ.
    pub(crate) energy_mj: Option<u64>,
    /// Bytes a second over PCIe to the GPU and from it, since the last poll, by GPM.
    pub(crate) pcie: [Option<f64>; 2],
}

/// A process that takes GPU memory past the shim.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Unmanaged {
    /// Its user.
    pub(crate) uid: Option<u32>,
    /// UUID of the GPU that it is on.
    pub(crate) gpu: String,
    pub(crate) words: String,
}

/// One poll of all GPUs.
#[derive(Clone, Debug)]
pub(crate) struct Poll {
    /// Start time of the poll: what it shows is true at or after this.
    pub(crate) begun: Instant,
    /// Of those that answer; of none where only the losses were asked for.
    pub(crate) samples: Vec<Sample>,
    /// Why DCGM does not measure GPUs that have no GPM.
    pub(crate) unmetered: Option<String>,
    /// UUIDs of those that are gone: off the bus, or an instance that was taken away. One that merely does
    /// not answer is in neither list.
    pub(crate) lost: Vec<String>,
    /// Why the emulated machine cannot be read any more.
    pub(crate) broken: Option<String>,
}

impl Poll {
    /// A poll that begins now and has seen nothing yet.
    pub(crate) fn begin() -> Self {
        Self { begun: Instant::now(), samples: Vec::new(), unmetered: None, lost: Vec::new(), broken: None }
    }
}

/// A GPU that is back is seen by an NVML that was opened after that; it is opened anew so often while one
/// is lost, or while it cannot be opened at all.
const REOPEN: Duration = Duration::from_secs(5);
/// DCGM that could not be used is tried again after this.
const DCGM_RETRY: Duration = Duration::from_secs(60);

/// Polls all GPUs at intervals, until no receiver is left.
pub(crate) fn watch(
    gpus: &Gpus,
    every: Duration,
    audit: Option<Duration>,
    asked: Receiver<()>,
    to: Sender<Message>,
) {
    let gpus = gpus.clone();
    thread::Builder::new()
        .name("gpus".into())
        .stack_size(512 << 10)
        .spawn(move || {
            let mut audited: Option<Instant> = None;
            if gpus.source == NvmlSource::Off {
                await_gpus(&to);
                return;
            }
            loop {
                if let Ok(nvml) = Nvml::open(&gpus.source)
                    && poll_with(&nvml, &gpus, every, audit, &mut audited, &asked, &to).is_none()
                {
                    return;
                }
                thread::sleep(REOPEN);
            }
        })
        .ok();
}

/// Waits until the system has GPUs, for instance once its driver is loaded.
fn await_gpus(to: &Sender<Message>) {
    loop {
        thread::sleep(REOPEN);
        if inventory(&NvmlSource::System).is_ok_and(|found| !found.gpus.is_empty()) {
            let _ = to.send(Message::GpusAppeared);
            return;
        }
    }
}

/// Polls until NVML has to be opened anew; `None` if no receiver is left.
fn poll_with(
    nvml: &Nvml,
    gpus: &Gpus,
    every: Duration,
    audit: Option<Duration>,
    audited: &mut Option<Instant>,
    asked: &Receiver<()>,
    to: &Sender<Message>,
) -> Option<()> {
    let opened = Instant::now();
    let mut monitors: HashMap<String, Monitor<'_>> = HashMap::new();
    let mut meter = NodeMeter::new(nvml, gpus);
    let machine = gpus.machine.as_deref().and_then(|file| Machine::open(file).ok());
    if let Some(file) = &gpus.machine {
        let _ = radrm_guard::protect_file(file);
    }
    loop {
        let mut poll = Poll::begin();
        for gpu in &gpus.list {
            match sample(nvml, &gpu.uuid, &mut monitors) {
                Ok(mut sample) => {
                    sample.is_modelled = gpus.emulated.is_some() && !is_of_real_time(machine.as_ref(), gpu);
                    poll.samples.push(sample);
                }
                Err(error) if error.means_lost() => poll.lost.push(gpu.uuid.clone()),
                Err(_) => {}
            }
        }
        poll.unmetered = meter.add_to(&mut poll.samples);
        // After the reading: what was read before the file was shortened is true.
        if let Some(broken) = gpus.broken() {
            to.send(Message::Polled(Poll { broken: Some(broken), lost: gpus.uuids(), ..Poll::begin() }))
                .ok()?;
            return Some(());
        }
        let lost = !poll.lost.is_empty();
        to.send(Message::Polled(poll)).ok()?;
        if let Some(gap) = audit
            && audited.is_none_or(|last| last.elapsed() >= gap)
        {
            *audited = Some(Instant::now());
            if let Some(found) = find_unmanaged(gpus) {
                to.send(Message::Audited(found)).ok()?;
            }
        }
        if lost && opened.elapsed() > REOPEN {
            return Some(());
        }
        let next = Instant::now() + every;
        while let Some(rest) = next.checked_duration_since(Instant::now())
            && asked.recv_timeout(rest).is_ok()
        {
            to.send(Message::Polled(losses(nvml, gpus))).ok()?;
        }
    }
}

/// Returns true if an emulated GPU gets on with the wall clock (`RADRM_EMULATOR_TIME=real`).
fn is_of_real_time(machine: Option<&Machine>, gpu: &Gpu) -> bool {
    let at = gpu.index.and_then(|index| usize::try_from(index).ok());
    let worked = |machine: &Machine| machine.worked_ns(at?, radrm_telemetry::monotonic_ns());
    machine.and_then(worked).is_some()
}

/// Only which GPUs are gone: activities are means since the last poll, which stays as it is.
fn losses(nvml: &Nvml, gpus: &Gpus) -> Poll {
    let begun = Poll::begin();
    let gone = |gpu: &&Gpu| {
        let asked = nvml.device(&gpu.uuid).and_then(|device| device.memory());
        asked.is_err_and(|error| error.means_lost())
    };
    let lost = gpus.list.iter().filter(gone).map(|gpu| gpu.uuid.clone()).collect();
    Poll { lost, ..begun }
}

/// DCGM, for the GPUs that have no performance monitor of NVML's.
struct NodeMeter {
    gpus: Vec<(u32, String)>,
    source: DcgmSource,
    running: Option<NodeDcgm>,
    /// Why it measures nothing, and since when.
    failed: Option<(String, Instant)>,
}

impl NodeMeter {
    fn new(nvml: &Nvml, gpus: &Gpus) -> Self {
        let has_gpm = |uuid: &str| nvml.device(uuid).is_ok_and(|device| device.monitor().is_ok());
        let unmetered = gpus.list.iter().filter(|gpu| !has_gpm(&gpu.uuid));
        let unmetered = unmetered.filter_map(|gpu| Some((gpu.index?, gpu.uuid.clone()))).collect();
        // The system's DCGM knows nothing of emulated GPUs.
        let source = if gpus.emulated.is_some() { DcgmSource::Off } else { DcgmSource::System };
        Self { gpus: unmetered, source, running: None, failed: None }
    }

    /// Adds what it measured; returns why it measures nothing.
    fn add_to(&mut self, samples: &mut [Sample]) -> Option<String> {
        if self.gpus.is_empty() || self.source == DcgmSource::Off {
            return None;
        }
        let is_due = self.failed.as_ref().is_none_or(|(_, since)| since.elapsed() > DCGM_RETRY);
        if self.running.is_none() && is_due {
            match NodeDcgm::start(&self.source, &self.gpus) {
                Ok(dcgm) => self.running = Some(dcgm),
                Err(why) => self.failed = Some((why.to_string(), Instant::now())),
            }
        }
        match self.running.as_mut().map(NodeDcgm::read) {
            Some(Ok(measured)) => {
                self.failed = None;
                for GpuActivity { uuid, activity, gr_active } in measured {
                    if let Some(sample) = samples.iter_mut().find(|sample| sample.uuid == uuid) {
                        (sample.activity, sample.gr_active) = (activity, gr_active);
                        sample.source = activity[0].map(|_| ActivitySource::Dcgm);
                    }
                }
            }
            Some(Err(why)) => {
                self.failed = Some((why, Instant::now()));
                self.running = None;
            }
            None => {}
        }
        self.failed.as_ref().map(|(why, _)| why.clone())
    }
}

fn sample<'a>(
    nvml: &'a Nvml,
    uuid: &str,
    monitors: &mut HashMap<String, Monitor<'a>>,
) -> Result<Sample, NvmlError> {
    let device = nvml.device(uuid)?;
    let memory = device.memory()?;
    if !monitors.contains_key(uuid)
        && let Ok(monitor) = device.monitor()
    {
        monitors.insert(uuid.to_owned(), monitor);
    }
    let metrics = monitors.get_mut(uuid).and_then(|monitor| monitor.read(&device).ok().flatten());
    let pcie = metrics.map_or([None; 2], |metrics| [metrics.pcie_to_gpu, metrics.pcie_from_gpu]);
    let activity = metrics.map_or([None; 3], |metrics| {
        let parts = [metrics.sm_active, metrics.sm_occupancy, metrics.dram_active];
        parts.map(|percent| percent.map(|percent| percent / 100.0))
    });
    let processes = device.processes().unwrap_or_default();
    Ok(Sample {
        uuid: uuid.to_owned(),
        used: memory.used,
        processes: processes.into_iter().filter_map(|held| Some((held.pid, held.used?))).collect(),
        utilization: device.utilization().map(|(gpu, _)| gpu),
        activity,
        source: activity[0].map(|_| ActivitySource::Gpm),
        gr_active: metrics.and_then(|metrics| metrics.gr_active).map(|percent| percent / 100.0),
        is_modelled: false,
        power_mw: device.power_mw(),
        energy_mj: device.energy_mj(),
        pcie,
    })
}

/// Processes that hold GPU memory that no shim explains, in words.
fn find_unmanaged(gpus: &Gpus) -> Option<Vec<Unmanaged>> {
    let audit = audit::of_source(&gpus.source, Expected::configured(gpus.machine.is_some(), None)).ok()?;
    let unmanaged = audit.findings.into_iter().filter_map(|finding| {
        let reason = finding.reason.as_ref()?;
        let number = number_of(&gpus.list, &finding.gpu.uuid);
        let gpu = number.map_or_else(|| finding.gpu.uuid.clone(), |number| number.to_string());
        let words = format!(
            "process {} on GPU {gpu} holds {} that no job accounts for: {}; {}",
            finding.pid,
            radrm_profile::Bytes(finding.unexplained),
            reason.sentence(),
            reason.remedy()
        );
        Some(Unmanaged { uid: finding.uid, gpu: finding.gpu.uuid, words })
    });
    Some(unmanaged.collect())
}
