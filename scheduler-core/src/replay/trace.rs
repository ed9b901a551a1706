//! Jobs of a trace, and the devices they are replayed on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::device::{Device, DeviceId, Node, NodeId};
use crate::interference::Activity;
use crate::job::{Dependency, HostNeed, Preemption};
use crate::units::{Bytes, Millis, Permille};
use radrm_base::UserId;
use radrm_need::DryRun;

/// A job as it really was (or is taken to be).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceJob {
    /// Its name: jobs of one name are equal runs of one program.
    pub name: String,
    /// Program that it runs, without the batch size.
    pub program: String,
    /// Samples in a batch, where the trace names them.
    pub batch: Option<u32>,
    /// Submission time.
    pub arrival: Millis,
    /// Run time alone on a whole device.
    pub duration: Millis,
    /// True if the trace has no run time of it, and `duration` is what the reader was asked to take.
    #[serde(default)]
    pub is_duration_assumed: bool,
    /// Devices at the same time.
    pub gpus: u16,
    /// Its real peak on each device; zero if the trace does not know.
    pub peak: Bytes,
    /// Activity alone on a GPU.
    pub activity: Option<Activity>,
    /// GPU memory that its user declares, if that is known.
    pub declared: Option<Bytes>,
    /// A dry run of it.
    pub dry_run: Option<DryRun>,
    /// The model of device that it asks for.
    pub model: Option<String>,
    /// The part of a device it declares.
    pub share: Option<Permille>,
    /// Host resources.
    pub host: HostNeed,
    /// User who submits it.
    pub user: UserId,
    /// Priority.
    pub priority: i32,
    /// A time limit that comes with the trace.
    pub time_limit: Option<Millis>,
    /// Estimates by name of the estimator.
    pub estimates: BTreeMap<String, Bytes>,
    /// Permission to preempt it, and the ways to do so.
    #[serde(default)]
    pub preemption: Preemption,
    /// Jobs that have to end before it may start, by their places in the trace.
    #[serde(default)]
    pub after: Vec<Dependency>,
}

impl TraceJob {
    /// A job of one device.
    #[must_use]
    pub fn new(name: impl Into<String>, arrival: Millis, duration: Millis) -> Self {
        let name = name.into();
        Self {
            program: name.clone(),
            name,
            batch: None,
            arrival,
            duration,
            is_duration_assumed: false,
            gpus: 1,
            peak: Bytes::ZERO,
            activity: None,
            declared: None,
            dry_run: None,
            model: None,
            share: None,
            host: HostNeed::default(),
            user: UserId(0),
            priority: 0,
            time_limit: None,
            estimates: BTreeMap::new(),
            preemption: Preemption::default(),
            after: Vec::new(),
        }
    }
}

/// Devices and machines of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Machines with bounds.
    pub nodes: Vec<Node>,
    /// Devices.
    pub devices: Vec<Device>,
}

impl Cluster {
    /// Returns true if there are devices on which a job can run that has them to itself.
    #[must_use]
    pub fn holds(&self, job: &TraceJob) -> bool {
        let fits = |device: &&Device| {
            device.capacity >= job.peak && job.model.as_ref().is_none_or(|model| *model == device.model)
        };
        self.devices.iter().filter(fits).count() >= usize::from(job.gpus)
    }

    /// So many equal GPUs in one machine.
    #[must_use]
    pub fn uniform(count: u32, model: &str, capacity: Bytes) -> Self {
        let device = |id| Device {
            id: DeviceId(id),
            node: NodeId(0),
            model: model.to_owned(),
            capacity,
            parent: None,
            shared: true,
        };
        Self { nodes: Vec::new(), devices: (0..count).map(device).collect() }
    }

    /// Each GPU divided into equal MIG instances, which are used by one job each.
    #[must_use]
    pub fn divided(&self, instances: u32, capacity: Bytes) -> Self {
        let mut all = self.clone();
        let mut next = self.devices.iter().map(|device| device.id.0 + 1).max().unwrap_or(0);
        for gpu in &self.devices {
            for _ in 0..instances {
                all.devices.push(Device {
                    id: DeviceId(next),
                    node: gpu.node,
                    model: gpu.model.clone(),
                    capacity,
                    parent: Some(gpu.id),
                    shared: false,
                });
                next += 1;
            }
        }
        all
    }
}
