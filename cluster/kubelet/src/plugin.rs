//! Handler of the kubelet's requests: claims are prepared and taken down, each with an answer of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use radrm_limits::LimitError;
use radrm_limits::start::Machine;
use radrm_os::nvml::NvmlSource;
use thiserror::Error;

use crate::api::{Api, ApiError};
use crate::claim::{self, ClaimError, Grant, Node};
use crate::fence;
use crate::messages::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesResponse, NodeUnprepareResourceResponse,
    NodeUnprepareResourcesResponse,
};
use crate::store::{KIND, Store, StoreError};

/// Requests to the API server at once.
const AT_ONCE: usize = 16;

/// Reason that a claim was not prepared or taken down, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum PluginError {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Gpus(#[from] LimitError),
    #[error(
        "a pod has this claim and {0}, and a container is limited by one claim only: let one claim of the pod have all \
         its requests"
    )]
    SecondOfPod(String),
    #[error("the claim could not be looked up")]
    Unknown,
}

/// The plug-in, as the kubelet's requests meet it.
#[derive(Debug)]
pub struct Plugin {
    api: Api,
    node: String,
    source: NvmlSource,
    context: u64,
    /// Name of a GPU for the container runtime, with `{uuid}` for its UUID; `None`: another part of the node brings
    /// GPUs into containers.
    gpu_device: Option<String>,
    store: Mutex<Store>,
}

/// A claim that the API server has, before it is prepared.
struct Found {
    grant: Grant,
    pods: BTreeSet<String>,
}

impl Plugin {
    /// A plug-in for the node of this name.
    #[must_use]
    pub fn new(
        api: Api,
        node: String,
        source: NvmlSource,
        context: u64,
        gpu_device: Option<String>,
        store: Store,
    ) -> Self {
        Self { api, node, source, context, gpu_device, store: Mutex::new(store) }
    }

    /// The API server.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The node's name.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The node's GPUs, as they are now.
    #[must_use]
    pub fn machine(&self) -> Machine {
        Machine::new(self.source.clone())
    }

    /// The prepared claims.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        // A claim is entered after all of it is on disk, so what a thread that panicked has left is whole.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prepares claims; each has an answer.
    #[must_use]
    pub fn prepare(&self, claims: &[Claim]) -> NodePrepareResourcesResponse {
        let machine = self.machine();
        let mut found = self.find(claims, &machine);
        refuse_seconds(&mut found);
        let mut answers = HashMap::new();
        for (uid, found) in found {
            let devices = found.and_then(|found| self.prepare_one(&uid, found, &machine));
            let answer = match devices {
                Ok(devices) => NodePrepareResourceResponse { devices, error: String::new() },
                Err(error) => NodePrepareResourceResponse { devices: Vec::new(), error: error.to_string() },
            };
            answers.insert(uid, answer);
        }
        NodePrepareResourcesResponse { claims: answers }
    }

    /// Takes claims down; each has an answer.
    #[must_use]
    pub fn unprepare(&self, claims: &[Claim]) -> NodeUnprepareResourcesResponse {
        let take_down = |claim: &Claim| {
            if !claim::is_uid(&claim.uid) {
                return Err(ClaimError::Uid.into());
            }
            let groups = self.store().groups(&claim.uid).to_vec();
            fence::lower(&self.source, &groups);
            Ok::<_, PluginError>(self.store().unprepare(&claim.uid)?)
        };
        let answer = |claim: &Claim| {
            let error = take_down(claim).err().map(|error| error.to_string()).unwrap_or_default();
            (claim.uid.clone(), NodeUnprepareResourceResponse { error })
        };
        NodeUnprepareResourcesResponse { claims: claims.iter().map(answer).collect() }
    }

    /// Asks the API server for each claim once, several at a time.
    fn find(&self, claims: &[Claim], machine: &Machine) -> BTreeMap<String, Result<Found, PluginError>> {
        let gpus = machine.inventory();
        let gpus = &gpus;
        let mut seen = BTreeSet::new();
        let claims: Vec<&Claim> = claims.iter().filter(|claim| seen.insert(claim.uid.as_str())).collect();
        let look_up = |claim: &Claim| {
            claim::check(claim)?;
            let known = self.api.claim(claim)?;
            let gpus: Vec<_> = gpus.as_ref().map_err(Clone::clone)?.usable().cloned().collect();
            let node = Node { name: &self.node, gpus: &gpus, context: self.context };
            Ok(Found { grant: known.grant(claim, node)?, pods: known.pods().map(str::to_owned).collect() })
        };
        let share = claims.len().div_ceil(AT_ONCE).max(1);
        thread::scope(|scope| {
            let look_up = &look_up;
            let parts: Vec<_> = claims
                .chunks(share)
                .map(|part| {
                    let each = move || part.iter().map(|claim| look_up(claim)).collect::<Vec<_>>();
                    (part, scope.spawn(each))
                })
                .collect();
            let mut all = BTreeMap::new();
            for (part, thread) in parts {
                let mut found = thread.join().unwrap_or_default().into_iter();
                for claim in part {
                    all.insert(claim.uid.clone(), found.next().unwrap_or(Err(PluginError::Unknown)));
                }
            }
            all
        })
    }

    fn prepare_one(&self, uid: &str, found: Found, machine: &Machine) -> Result<Vec<Device>, PluginError> {
        let Found { grant, pods } = found;
        let inventory = machine.inventory()?;
        let total = |uuid: &str| inventory.usable().find(|gpu| gpu.uuid == uuid).map_or(0, |gpu| gpu.total);
        self.store().prepare(uid, grant.clone(), total)?;
        let groups = fence::raise(&self.source, &inventory, &grant, &pods);
        self.store().set_groups(uid, groups)?;
        let device = |granted: claim::Granted| {
            let gpu = self.gpu_device.as_ref().map(|name| name.replace("{uuid}", &granted.gpu));
            Device {
                request_names: vec![granted.request],
                pool_name: granted.pool,
                device_name: granted.device,
                cdi_device_ids: gpu.into_iter().chain([format!("{KIND}={uid}")]).collect(),
            }
        };
        Ok(grant.devices.into_iter().map(device).collect())
    }
}

/// Refuses claims that a pod has beside another one of the same request: the kubelet asks for all claims of a pod at once.
fn refuse_seconds(found: &mut BTreeMap<String, Result<Found, PluginError>>) {
    let mut by_pod: HashMap<&str, Vec<&str>> = HashMap::new();
    for (uid, claim) in found.iter() {
        for pod in claim.iter().flat_map(|claim| &claim.pods) {
            by_pod.entry(pod).or_default().push(uid);
        }
    }
    let name = |uid: &str| Some(found.get(uid)?.as_ref().ok()?.grant.claim.clone());
    let refused: Vec<(String, String)> = by_pod
        .values()
        .filter(|claims| claims.len() > 1)
        .flat_map(|claims| {
            let other = |uid: &str| claims.iter().find(|known| **known != uid).and_then(|other| name(other));
            claims.iter().map(|uid| ((*uid).to_owned(), other(uid).unwrap_or_default())).collect::<Vec<_>>()
        })
        .collect();
    for (uid, other) in refused {
        found.insert(uid, Err(PluginError::SecondOfPod(other)));
    }
}
