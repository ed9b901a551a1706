//! Registration of the plug-in and the node's GPUs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use radrm_kubelet::messages::{InfoRequest, PluginInfo, REGISTRATION, RegistrationStatus};
use tonic::Code;

use super::node::{Kubelet, NODE, Node, call};

#[test]
fn the_kubelet_finds_the_plugin_and_the_services_that_it_has() {
    let mut node = Node::new("2xA100-40GB");
    let registration = Kubelet { socket: node.registration(), service: REGISTRATION.to_owned() };
    let info = registration.info().expect("an answer");
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", "radrm.dev"));
    assert_eq!(info.supported_versions, ["v1.DRAPlugin", "v1beta1.DRAPlugin"]);
    assert_eq!(info.endpoint, node.path("kubelet/plugins/radrm.dev/dra@plugin.sock").display().to_string());
    for socket in [&registration.socket, &info.endpoint.clone().into()] {
        let mode = fs::metadata(socket).expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only root talks to the plug-in");
    }
    // Each socket has its own services, under both names of the protocol that the kubelet knows.
    let kubelet = node.kubelet();
    assert!(kubelet.prepare(&[]).expect("an answer").is_empty());
    let older =
        Kubelet { service: "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin".into(), ..kubelet.clone() };
    assert!(older.unprepare(&[]).expect("an answer").is_empty());
    for (socket, service, method) in [
        (&kubelet.socket, REGISTRATION, "GetInfo"),
        (&registration.socket, kubelet.service.as_str(), "NodePrepareResources"),
        (&kubelet.socket, kubelet.service.as_str(), "NodeWatchResources"),
        (&kubelet.socket, "k8s.io.kubelet.pkg.apis.dra.v2.DRAPlugin", "NodePrepareResources"),
    ] {
        let answer = call::<_, PluginInfo>(socket, service, method, InfoRequest {});
        assert_eq!(answer.expect_err("no such method").code(), Code::Unimplemented, "{service}/{method}");
    }
    node.until("the registration is reported", |node| node.said().contains("has registered this plug-in"));
    assert_eq!(node.stop(libc::SIGTERM), Some(0));
    assert!(!registration.socket.exists() && !kubelet.socket.exists(), "the kubelet sees that it has ended");
}

#[test]
fn a_plugin_that_the_kubelet_rejects_ends_with_its_reason() {
    let mut node = Node::new("A100-40GB");
    let registration = Kubelet { socket: node.registration(), service: REGISTRATION.to_owned() };
    let status = RegistrationStatus { plugin_registered: false, error: "the name is taken".into() };
    // On a slow machine the plug-in may be gone before its answer is.
    let _ = registration.notify(status);
    assert_eq!(node.stop(0), Some(1));
    node.until("its reason is reported", |node| {
        node.said().contains("the kubelet rejects this plug-in: the name is taken")
    });
    assert!(!registration.socket.exists());
}

#[test]
fn gpus_are_published_with_memory_that_claims_consume() {
    let mut node = Node::new("2xA100-40GB");
    assert_eq!(node.devices().len(), 2);
    let [slice] = node.api.slices().try_into().expect("one slice");
    let spec = &slice["spec"];
    assert_eq!((&spec["driver"], &spec["nodeName"]), (&"radrm.dev".into(), &NODE.into()));
    assert_eq!(spec["pool"], serde_json::json!({ "name": NODE, "generation": 1, "resourceSliceCount": 1 }));
    assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], "node-uid");
    for device in spec["devices"].as_array().expect("devices") {
        assert_eq!(device["allowMultipleAllocations"], true);
        assert_eq!(device["capacity"]["memory"]["value"], "40Gi");
        assert!(device["attributes"]["productName"]["string"].as_str().expect("a name").contains("A100"));
    }
    // A plug-in that finds what it would write writes nothing.
    node.stop(libc::SIGKILL);
    let requests = node.api.state().log.len();
    node.start();
    node.until("it has looked", |node| node.api.state().log.len() > requests);
    assert_eq!(node.api.slices()[0]["metadata"], slice["metadata"]);
    // One that finds something else makes a new generation under the same name, and removes what is too much.
    node.stop(libc::SIGKILL);
    {
        let mut state = node.api.state();
        let name = slice["metadata"]["name"].as_str().expect("a name").to_owned();
        let mut changed = slice.clone();
        changed["spec"]["devices"][0]["capacity"]["memory"]["value"] = "8Gi".into();
        changed["metadata"]["resourceVersion"] = "77".into();
        let mut surplus = changed.clone();
        surplus["metadata"]["name"] = "z-surplus".into();
        state.slices.insert(name, changed);
        state.slices.insert("z-surplus".to_owned(), surplus);
    }
    node.start();
    node.until("the slice is right again", |node| {
        let slices = node.api.slices();
        slices.len() == 1 && slices[0]["spec"]["pool"]["generation"] == 2
    });
    assert_eq!(node.api.slices()[0]["spec"]["devices"], spec["devices"]);
}

#[test]
fn slices_that_a_starting_kubelet_removes_come_back() {
    let mut node = Node::new("A100-40GB");
    node.devices();
    // A kubelet removes the slices of its node when it starts, then finds the plug-ins.
    node.api.state().slices.clear();
    node.kubelet();
    node.until("the slices are back", |node| node.api.slices().len() == 1);
    // It may also remove them a moment later.
    node.api.state().slices.clear();
    node.until("the slices are back again", |node| node.api.slices().len() == 1);
}

#[test]
fn a_server_without_shared_devices_is_reported_once() {
    let mut node = Node::new("A100-40GB");
    node.devices();
    node.stop(libc::SIGKILL);
    {
        let mut state = node.api.state();
        state.slices.clear();
        state.drops_sharing = true;
    }
    node.start();
    node.until("the warning", |node| node.said().contains("DRAConsumableCapacity"));
    assert_eq!(node.api.slices().len(), 1);
    assert_eq!(node.said().matches("DRAConsumableCapacity").count(), 1);
}

#[test]
fn a_server_that_fails_is_asked_again() {
    let mut node = Node::new("A100-40GB");
    node.devices();
    node.stop(libc::SIGKILL);
    {
        let mut state = node.api.state();
        state.slices.clear();
        state.failures = 1;
    }
    node.start();
    node.until("the failure is reported", |node| node.said().contains("(500): etcd is away; trying again"));
    node.until("it is published", |node| node.api.slices().len() == 1);
}
