//! The driver's own limits on the control groups of pods.

use radrm_emulator_machine::GroupMemory;
use radrm_preload_tests::groups::ControlGroup;
use radrm_telemetry::ledger::{LedgerView, Place};
use serde_json::json;

use super::node::{MIB, Node};

/// Bytes that the driver lets through above a limit.
const SLACK: u64 = 512 * MIB;

#[test]
fn the_driver_limits_the_pods_of_a_claim_and_guarantees_the_request() {
    let name = format!("fence{}", std::process::id());
    let Some(pod) = ControlGroup::new(&format!("kubepods/burstable/podpod-{name}")) else { return };
    let mut node = Node::new("2xA100-40GB,driver=13040");
    let kubelet = node.kubelet();
    let device = node.devices()[0].0.clone();
    let claim = node.allocate(&name, &[(&device, 1024 * MIB)]);
    let memory = |node: &Node, gpu| node.rig.machine().group_memory(pod.path(), gpu);
    kubelet.prepared(&claim);
    let expected = GroupMemory { soft: 1024 * MIB, hard: 1024 * MIB + SLACK, used: 0 };
    assert_eq!((memory(&node, 0), memory(&node, 1)), (Some(expected), None));
    // A plug-in that was killed in between takes them back too.
    node.stop(libc::SIGKILL);
    node.start();
    let kubelet = node.kubelet();
    let unprepare = || kubelet.unprepare(std::slice::from_ref(&claim)).expect("an answer");
    assert_eq!(unprepare()[&claim.uid].error, "");
    assert_eq!(memory(&node, 0), None);
    // A limit above the request.
    let parameters = json!({ "apiVersion": "radrm.dev/v1alpha1", "kind": "MemoryLimit", "memory": "4Gi" });
    let config =
        json!([{ "source": "FromClaim", "opaque": { "driver": "radrm.dev", "parameters": parameters } }]);
    let key = format!("default/{name}");
    node.api.state().claims.get_mut(&key).expect("a claim")["status"]["allocation"]["devices"]["config"] =
        config;
    kubelet.prepared(&claim);
    let expected = GroupMemory { soft: 1024 * MIB, hard: 4096 * MIB + SLACK, used: 0 };
    assert_eq!(memory(&node, 0), Some(expected));
    let segment = node.path("claims").join(&claim.uid).join("segment");
    let ledger = LedgerView::open(&segment, Place::Segment).expect("a ledger");
    assert!(ledger.gpus().iter().any(|gpu| gpu.limit == Some(4096 * MIB)), "{:?}", ledger.gpus());
    assert_eq!(unprepare()[&claim.uid].error, "");
}

#[test]
fn requests_fill_a_gpu_and_not_limits() {
    let mut node = Node::new("1xA100-40GB");
    let kubelet = node.kubelet();
    let device = node.devices()[0].0.clone();
    let parameters = json!({ "apiVersion": "radrm.dev/v1alpha1", "kind": "MemoryLimit", "memory": "30Gi" });
    let config =
        json!([{ "source": "FromClass", "opaque": { "driver": "radrm.dev", "parameters": parameters } }]);
    let claims = ["a", "b", "c"].map(|name| {
        let claim = node.allocate(name, &[(&device, 16 * 1024 * MIB)]);
        let key = format!("default/{name}");
        node.api.state().claims.get_mut(&key).expect("a claim")["status"]["allocation"]["devices"]["config"] =
            config.clone();
        claim
    });
    kubelet.prepared(&claims[0]);
    kubelet.prepared(&claims[1]);
    let refused = kubelet.refused(&claims[2]);
    assert!(refused.contains("belong to claims that are still prepared: default/a, default/b"), "{refused}");
}
