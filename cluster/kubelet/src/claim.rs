//! Grant of a `ResourceClaim` on this node: checked, and as limits.

use std::collections::BTreeMap;

use radrm_os::nvml::Gpu;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::devices::{self, API, CAPACITY, DRIVER, LIMIT};
use crate::messages;
use crate::quantity;

/// Longest name that Kubernetes gives to anything in a claim.
const MAX_NAME: usize = 253;
/// Longest uid: it becomes the name of a file and of a device.
const MAX_UID: usize = 63;

/// Reason that a claim gets nothing, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum ClaimError {
    #[error("the claim's uid is not one: letters, digits and `-` are, 63 at most")]
    Uid,
    #[error("the claim's namespace or name is not one of Kubernetes")]
    Name,
    #[error("the API server has another claim of this name, with the uid {0}")]
    Another(String),
    #[error("the claim is not allocated")]
    NotAllocated,
    #[error("the claim has no device of {DRIVER} on this node")]
    NoDevice,
    #[error("request {request}: the device {device} of pool {pool} is not on this node")]
    Unknown { request: String, pool: String, device: String },
    #[error("request {0}: {DRIVER} gives no access for administrators")]
    Admin(String),
    #[error("request {request}: `{amount}` is not an amount of memory")]
    Amount { request: String, amount: String },
    #[error("request {0}: the device is shared, and no amount of memory was granted on it")]
    NoAmount(String),
    #[error("request {0}: no program can run with 0 bytes of memory")]
    Nothing(String),
    #[error("{gpu}: the claim's {granted} are more than the GPU has ({total})")]
    TooMuch { gpu: String, granted: String, total: String },
    #[error("{gpu}: the driver itself takes {context} for each process, and the claim has {granted}")]
    TooLittle { gpu: String, granted: String, context: String },
    #[error(
        "{DRIVER} has parameters of one kind, {{\"apiVersion\": \"{API}\", \"kind\": \"{LIMIT}\", \"memory\": \"20Gi\"}}, and the \
         claim or its class has others for it"
    )]
    Parameters,
    #[error("request {request}: the limit of {limit} is below the {granted} that the request has")]
    BelowRequest { request: String, limit: String, granted: String },
}

/// A claim as the API server has it; fields that are not used here are left out.
#[derive(Deserialize, Debug)]
pub struct ResourceClaim {
    pub(crate) metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Metadata {
    pub(crate) uid: String,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase")]
struct Status {
    allocation: Option<Allocation>,
    #[serde(default)]
    reserved_for: Vec<Consumer>,
}

#[derive(Deserialize, Debug)]
struct Consumer {
    uid: String,
}

#[derive(Deserialize, Debug)]
struct Allocation {
    #[serde(default)]
    devices: Devices,
}

#[derive(Deserialize, Debug, Default)]
struct Devices {
    #[serde(default)]
    results: Vec<Outcome>,
    #[serde(default)]
    config: Vec<Configuration>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    request: String,
    driver: String,
    pool: String,
    device: String,
    #[serde(default)]
    admin_access: Option<bool>,
    #[serde(rename = "shareID")]
    share: Option<String>,
    #[serde(default)]
    consumed_capacity: BTreeMap<String, String>,
}

#[derive(Deserialize, Debug)]
struct Configuration {
    /// The requests that it is for; none: all.
    #[serde(default)]
    requests: Vec<String>,
    opaque: Option<Opaque>,
}

#[derive(Deserialize, Debug)]
struct Opaque {
    driver: String,
    #[serde(default)]
    parameters: serde_json::Value,
}

/// Parameters of a request: it may take more than it has, as long as there is more.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Parameters {
    api_version: String,
    kind: String,
    memory: String,
}

impl Configuration {
    fn is_for(&self, request: &str) -> bool {
        let main = request.split('/').next().unwrap_or_default();
        self.requests.is_empty() || self.requests.iter().any(|name| name == request || name == main)
    }

    /// The limit, bytes; `None`: the parameters are those of another driver.
    fn limit(&self) -> Result<Option<u64>, ClaimError> {
        let Some(opaque) = self.opaque.as_ref().filter(|opaque| opaque.driver == DRIVER) else {
            return Ok(None);
        };
        let parameters = Parameters::deserialize(&opaque.parameters).map_err(|_| ClaimError::Parameters)?;
        if (parameters.api_version.as_str(), parameters.kind.as_str()) != (API, LIMIT) {
            return Err(ClaimError::Parameters);
        }
        quantity::bytes(&parameters.memory).map(Some).ok_or(ClaimError::Parameters)
    }
}

/// A device that a request of a claim was given.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Granted {
    /// The request, without the name of a subrequest.
    pub request: String,
    /// The pool of the device.
    pub pool: String,
    /// The device in it.
    pub device: String,
    /// Its GPU.
    pub gpu: String,
}

/// All that a claim was granted on this node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// Its namespace and name.
    pub claim: String,
    /// Bytes by the UUID of the GPU: a limit for all processes of the claim together.
    pub limits: BTreeMap<String, u64>,
    /// Bytes by the UUID of the GPU that no other claim has, where these are less than the limit.
    #[serde(default)]
    pub requests: BTreeMap<String, u64>,
    /// Its devices.
    pub devices: Vec<Granted>,
}

/// Known properties of this node.
#[derive(Clone, Copy, Debug)]
pub struct Node<'n> {
    /// Its name, which is that of its pool.
    pub name: &'n str,
    /// Its GPUs.
    pub gpus: &'n [Gpu],
    /// Memory that the driver takes for each process, bytes; 0: not known.
    pub context: u64,
}

/// Checks what of a request becomes part of a path.
///
/// # Errors
/// [`ClaimError::Uid`], [`ClaimError::Name`].
pub fn check(claim: &messages::Claim) -> Result<(), ClaimError> {
    if !is_uid(&claim.uid) {
        return Err(ClaimError::Uid);
    }
    let is_named = |name: &str| {
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
        let bytes = name.as_bytes();
        bytes.len() <= MAX_NAME && edge(bytes.first()) && edge(bytes.last()) && name.bytes().all(fits)
    };
    if is_named(&claim.namespace) && is_named(&claim.name) { Ok(()) } else { Err(ClaimError::Name) }
}

/// Returns true if a text can be a uid, and so a name of a file: never a path.
#[must_use]
pub fn is_uid(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_UID
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

impl Grant {
    /// Bytes of a GPU that no other claim has. `None`: nothing of the GPU is granted.
    #[must_use]
    pub fn request(&self, gpu: &str) -> Option<u64> {
        self.requests.get(gpu).or_else(|| self.limits.get(gpu)).copied()
    }
}

impl ResourceClaim {
    /// The pods that use it, by their uids.
    pub fn pods(&self) -> impl Iterator<Item = &str> {
        self.status.reserved_for.iter().map(|consumer| consumer.uid.as_str())
    }

    /// Grant of the claim that the kubelet named, on this node.
    ///
    /// # Errors
    /// [`ClaimError`]: a limit that cannot hold is refused here.
    pub fn grant(&self, named: &messages::Claim, node: Node<'_>) -> Result<Grant, ClaimError> {
        if self.metadata.uid != named.uid {
            return Err(ClaimError::Another(self.metadata.uid.clone()));
        }
        let devices = &self.status.allocation.as_ref().ok_or(ClaimError::NotAllocated)?.devices;
        // A claim's own stand behind those of its class, and hold.
        let limit_of = |request: &str| {
            let given = devices.config.iter().filter(|given| given.is_for(request));
            given
                .map(Configuration::limit)
                .try_fold(None, |known, given| Ok::<_, ClaimError>(given?.or(known)))
        };
        devices.config.iter().try_for_each(|given| given.limit().map(drop))?;
        let mut grant = Grant {
            claim: format!("{}/{}", named.namespace, named.name),
            limits: BTreeMap::new(),
            requests: BTreeMap::new(),
            devices: Vec::new(),
        };
        for result in devices.results.iter().filter(|result| result.driver == DRIVER) {
            let gpu = node
                .gpus
                .iter()
                .find(|gpu| result.pool == node.name && devices::name(&gpu.uuid) == result.device)
                .ok_or_else(|| ClaimError::Unknown {
                    request: result.request.clone(),
                    pool: result.pool.clone(),
                    device: result.device.clone(),
                })?;
            let bytes = result.bytes(gpu)?;
            let most = limit_of(&result.request)?.unwrap_or(bytes);
            if most < bytes {
                let (limit, granted) = (quantity::text(most), quantity::text(bytes));
                return Err(ClaimError::BelowRequest { request: result.request.clone(), limit, granted });
            }
            let limit = grant.limits.entry(gpu.uuid.clone()).or_default();
            *limit = limit.saturating_add(most);
            let request = grant.requests.entry(gpu.uuid.clone()).or_default();
            *request = request.saturating_add(bytes);
            let request = result.request.split('/').next().unwrap_or_default().to_owned();
            let (pool, device) = (result.pool.clone(), result.device.clone());
            grant.devices.push(Granted { request, pool, device, gpu: gpu.uuid.clone() });
        }
        if grant.devices.is_empty() {
            return Err(ClaimError::NoDevice);
        }
        let limits = &grant.limits;
        grant.requests.retain(|uuid, request| limits.get(uuid) != Some(request));
        for (uuid, granted) in &grant.limits {
            let total = node.gpus.iter().find(|gpu| gpu.uuid == *uuid).map_or(0, |gpu| gpu.total);
            let (gpu, granted_text) = (uuid.clone(), quantity::text(*granted));
            if *granted > total {
                let total = quantity::text(total);
                return Err(ClaimError::TooMuch { gpu, granted: granted_text, total });
            }
            if *granted < node.context {
                let context = quantity::text(node.context);
                return Err(ClaimError::TooLittle { gpu, granted: granted_text, context });
            }
        }
        Ok(grant)
    }
}

impl Outcome {
    /// Bytes that the result grants on its GPU.
    fn bytes(&self, gpu: &Gpu) -> Result<u64, ClaimError> {
        if self.admin_access == Some(true) {
            return Err(ClaimError::Admin(self.request.clone()));
        }
        let qualified = format!("{DRIVER}/{CAPACITY}");
        let granted = self.consumed_capacity.get(CAPACITY).or_else(|| self.consumed_capacity.get(&qualified));
        match granted {
            Some(amount) => match quantity::bytes(amount) {
                Some(0) => Err(ClaimError::Nothing(self.request.clone())),
                Some(bytes) => Ok(bytes),
                None => Err(ClaimError::Amount { request: self.request.clone(), amount: amount.clone() }),
            },
            None if self.share.is_some() => Err(ClaimError::NoAmount(self.request.clone())),
            // A cluster without consumable capacity gives the whole device to one claim.
            None => Ok(devices::memory(gpu)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const UUID: &str = "GPU-11111111-2222-3333-4444-555555555555";

    fn claim(results: Value) -> ResourceClaim {
        let claim = json!({
            "metadata": { "uid": "u-1", "name": "c", "labels": {} },
            "spec": {},
            "status": { "allocation": { "devices": results }, "reservedFor": [{ "resource": "pods", "name": "p", "uid": "pod-1" }] },
        });
        serde_json::from_value(claim).unwrap()
    }

    fn named() -> messages::Claim {
        messages::Claim { namespace: "default".into(), uid: "u-1".into(), name: "c".into() }
    }

    fn result(more: Value) -> Value {
        let mut result =
            json!({ "request": "gpu", "driver": DRIVER, "pool": "node-1", "device": devices::name(UUID) });
        result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        result
    }

    fn granted(results: Value, context: u64) -> Result<Grant, ClaimError> {
        let gpu = Gpu { uuid: UUID.into(), total: 40 << 30, ..Gpu::default() };
        claim(results).grant(&named(), Node { name: "node-1", gpus: &[gpu], context })
    }

    fn refused(results: Value) -> String {
        granted(results, 0).unwrap_err().to_string()
    }

    #[test]
    fn a_claims_limit_on_a_gpu_is_the_sum_of_its_shares_there() {
        let share = |request: &str, amount: &str| {
            result(
                json!({ "request": request, "shareID": request, "consumedCapacity": { "memory": amount } }),
            )
        };
        let other = json!({ "request": "nic", "driver": "nic.example", "pool": "node-1", "device": "nic-0" });
        let grant =
            granted(json!({ "results": [share("a", "4Gi"), other, share("b/large", "6442450944")] }), 0)
                .unwrap();
        assert_eq!(grant.limits, BTreeMap::from([(UUID.to_owned(), 10 << 30)]));
        let requests: Vec<_> = grant.devices.iter().map(|device| device.request.as_str()).collect();
        assert_eq!((requests, grant.claim.as_str()), (vec!["a", "b"], "default/c"));
        assert_eq!(claim(json!({})).pods().collect::<Vec<_>>(), ["pod-1"]);
    }

    #[test]
    fn a_device_that_is_not_shared_is_given_whole() {
        let grant = granted(json!({ "results": [result(json!({}))] }), 0).unwrap();
        assert_eq!(grant.limits.values().sum::<u64>(), 40 << 30);
        let grant = granted(
            json!({ "results": [result(json!({ "consumedCapacity": { "radrm.dev/memory": "1Gi" } }))] }),
            0,
        );
        assert_eq!(grant.unwrap().limits.values().sum::<u64>(), 1 << 30);
    }

    #[test]
    fn a_limit_that_cannot_hold_is_refused_in_one_sentence() {
        let shared = |amount: &str| json!({ "results": [result(json!({ "shareID": "s", "consumedCapacity": { "memory": amount } }))] });
        for (results, part) in [
            (shared("41Gi"), "more than the GPU has (40Gi)"),
            (shared("0"), "0 bytes"),
            (shared("500m"), "0 bytes"),
            (shared("ten"), "`ten` is not an amount"),
            (json!({ "results": [result(json!({ "shareID": "s" }))] }), "no amount of memory was granted"),
            (json!({ "results": [result(json!({ "adminAccess": true }))] }), "administrators"),
            (json!({ "results": [result(json!({ "pool": "node-2" }))] }), "pool node-2 is not on this node"),
            (json!({ "results": [result(json!({ "device": "gpu-0" }))] }), "the device gpu-0"),
            (json!({ "results": [] }), "no device of radrm.dev"),
            (
                json!({ "results": [result(json!({}))], "config": [{ "source": "FromClaim", "opaque": { "driver": DRIVER, "parameters": {} } }] }),
                "parameters of one kind",
            ),
        ] {
            let sentence = refused(results);
            assert!(sentence.contains(part), "{part}: {sentence}");
        }
        let whole = json!({ "results": [result(json!({}))], "config": [{ "source": "FromClass", "opaque": { "driver": "gpu.example", "parameters": {} } }] });
        assert!(granted(whole, 0).is_ok(), "parameters of other drivers are theirs");
        let small = granted(shared("256Mi"), 300 << 20).unwrap_err().to_string();
        assert!(small.contains("takes 300Mi for each process, and the claim has 256Mi"), "{small}");
    }

    #[test]
    fn a_limit_above_the_request_is_a_parameter() {
        let parameters = |memory: &str| json!({ "driver": DRIVER, "parameters": { "apiVersion": API, "kind": LIMIT, "memory": memory } });
        let given = |memory: &str, requests: Value| {
            let consumed = result(json!({ "shareID": "s", "consumedCapacity": { "memory": "4Gi" } }));
            json!({ "results": [consumed], "config": [{ "source": "FromClaim", "requests": requests, "opaque": parameters(memory) }] })
        };
        let grant = granted(given("20Gi", json!([])), 0).unwrap();
        assert_eq!((grant.limits[UUID], grant.request(UUID)), (20 << 30, Some(4 << 30)));
        let grant = granted(given("20Gi", json!(["another"])), 0).unwrap();
        assert_eq!((grant.limits[UUID], grant.request(UUID)), (4 << 30, Some(4 << 30)));
        assert!(refused(given("1Gi", json!(["gpu"]))).contains("limit of 1Gi is below the 4Gi"));
        assert!(refused(given("41Gi", json!([]))).contains("more than the GPU has"));
    }

    #[test]
    fn a_claim_of_the_same_name_is_not_taken_for_this_one() {
        let other = messages::Claim { uid: "u-2".into(), ..named() };
        let node = Node { name: "node-1", gpus: &[], context: 0 };
        assert!(
            matches!(claim(json!({})).grant(&other, node), Err(ClaimError::Another(uid)) if uid == "u-1")
        );
        let plain: ResourceClaim = serde_json::from_value(json!({ "metadata": { "uid": "u-1" } })).unwrap();
        assert!(matches!(plain.grant(&named(), node), Err(ClaimError::NotAllocated)));
    }

    #[test]
    fn what_becomes_part_of_a_path_is_never_one() {
        let long = "a".repeat(64);
        for uid in ["", "..", ".", "../../etc/x", "a/b", "a\0b", "-a", "a-", "a b", "a.b", "ü", &long, "a\n"]
        {
            assert!(!is_uid(uid), "{uid:?}");
            let claim = messages::Claim { uid: uid.into(), ..named() };
            assert!(matches!(check(&claim), Err(ClaimError::Uid)), "{uid:?}");
        }
        for uid in ["a", "6f1b7a52-0d3f-4b52-9a6c-000000000000", &long[..63]] {
            assert!(is_uid(uid), "{uid}");
        }
        for name in ["", "..", "a/b", "A", "a?b", "a%2f", "a#", "-a", &"a".repeat(254)] {
            let claims = [
                messages::Claim { name: name.into(), ..named() },
                messages::Claim { namespace: name.into(), ..named() },
            ];
            assert!(claims.iter().all(|claim| matches!(check(claim), Err(ClaimError::Name))), "{name:?}");
        }
        assert!(check(&messages::Claim { name: "train-0.gpu-x7".into(), ..named() }).is_ok());
    }
}
