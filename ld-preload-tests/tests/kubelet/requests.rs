//! Claims: each is answered, malformed ones too, and what was prepared is what was granted.

use std::{collections::BTreeSet, fs, thread};

use radrm_kubelet::messages::{Claim, PLUGIN};
use radrm_telemetry::ledger::{LedgerView, Place};
use serde_json::{Value, json};

use super::node::{MIB, Node};

#[test]
fn a_claim_becomes_a_device_of_the_container_runtime() {
    let mut node = Node::with("2xA100-40GB", &["--context", "300MiB"]);
    let kubelet = node.kubelet();
    let devices = node.devices();
    let claim = node.allocate(
        "train",
        &[(&devices[0].0, 2048 * MIB), (&devices[1].0, 1024 * MIB), (&devices[0].0, 512 * MIB)],
    );
    let answer = kubelet.prepared(&claim);
    assert_eq!(answer.devices.len(), 3);
    for (number, (device, gpu)) in answer.devices.iter().zip([0, 1, 0]).enumerate() {
        assert_eq!(device.request_names, [format!("r{number}")]);
        assert_eq!((device.pool_name.as_str(), &device.device_name), ("node-1", &devices[gpu].0));
        let [gpu_device, claim_device] = device.cdi_device_ids.as_slice() else { panic!("{device:?}") };
        assert_eq!(gpu_device.to_lowercase(), format!("nvidia.com/gpu={}", devices[gpu].0));
        assert_eq!(claim_device, "radrm.dev/claim=uid-train");
    }
    let specification = node.specification(&claim).expect("a specification");
    check_published_form(&specification);
    assert_eq!(specification["kind"], "radrm.dev/claim");
    let edits = &specification["devices"][0]["containerEdits"];
    let env: BTreeSet<&str> =
        edits["env"].as_array().expect("env").iter().filter_map(Value::as_str).collect();
    let expected = [
        "NVIDIA_VISIBLE_DEVICES=void",
        "RADRM_DISABLE=0",
        "RADRM_QUOTA=1",
        "RADRM_SEGMENT=/run/radrm/claim/segment",
    ];
    assert_eq!(env, BTreeSet::from(expected));
    // Everything that is mounted is there, on the node and not in the plug-in's own files.
    for mount in edits["mounts"].as_array().expect("mounts") {
        let host = mount["hostPath"].as_str().expect("a path");
        assert!(
            fs::metadata(host).is_ok() && host.starts_with(node.rig.path().to_str().expect("a path")),
            "{host}"
        );
    }
    let ledger = LedgerView::open(&node.path("claims/uid-train/segment"), Place::Segment).expect("a ledger");
    let mut limits: Vec<_> = ledger.gpus().iter().map(|gpu| (gpu.limit, gpu.context)).collect();
    limits.sort();
    assert_eq!(limits, [(Some(1024 * MIB), 300 * MIB), (Some(2560 * MIB), 300 * MIB)]);
    // The kubelet asks again after its own restart, also by the older protocol.
    let older = super::node::Kubelet { service: PLUGIN[1].1.to_owned(), ..kubelet.clone() };
    assert_eq!(older.prepared(&claim), answer);
    assert_eq!(node.specification(&claim), Some(specification));
    // Other limits under the same uid are not the ones that its processes were started with.
    node.allocate("train", &[(&devices[0].0, 4096 * MIB)]);
    assert!(kubelet.refused(&claim).contains("prepared with other limits"));
    for _ in 0..2 {
        let gone = kubelet.unprepare(std::slice::from_ref(&claim)).expect("an answer");
        assert_eq!(gone["uid-train"].error, "");
        assert!(node.names("cdi").is_empty() && node.names("claims").is_empty());
    }
}

/// As the published schema has it.
pub fn check_published_form(specification: &Value) {
    let keys = |value: &Value, expected: &[&str]| {
        let keys: Vec<&String> = value.as_object().expect("an object").keys().collect();
        assert_eq!(keys, expected, "{value}");
    };
    keys(specification, &["cdiVersion", "devices", "kind"]);
    for device in specification["devices"].as_array().expect("devices") {
        keys(device, &["containerEdits", "name"]);
        keys(&device["containerEdits"], &["env", "mounts"]);
        for mount in device["containerEdits"]["mounts"].as_array().expect("mounts") {
            keys(mount, &["containerPath", "hostPath", "options"]);
        }
    }
}

#[test]
fn every_claim_of_a_request_is_answered_whatever_it_says() {
    let mut node = Node::new("2xA100-40GB");
    let kubelet = node.kubelet();
    let device = node.devices()[0].0.clone();
    let good = node.allocate("good", &[(&device, 1024 * MIB)]);
    let huge = node.allocate("huge", &[(&device, 41_000 * MIB)]);
    let foreign = node.allocate("foreign", &[("gpu-of-another-node", 1024 * MIB)]);
    let replaced = Claim { uid: "uid-of-the-old-one".into(), ..node.allocate("replaced", &[(&device, MIB)]) };
    let absent = Claim { uid: "uid-absent".into(), name: "absent".into(), ..good.clone() };
    let unallocated = node.allocate("unallocated", &[]);
    node.api.state().claims.get_mut("default/unallocated").expect("a claim")["status"] = json!({});
    let strange = node.allocate("strange", &[(&device, MIB)]);
    node.api.state().claims.insert("default/strange".into(), json!({ "metadata": 7 }));
    let with_uid = |uid: &str| Claim { uid: uid.into(), ..good.clone() };
    let with_name =
        |name: &str| Claim { uid: format!("uid-{}", name.len()), name: name.into(), ..good.clone() };
    let cases = [
        (good.clone(), ""),
        (good.clone(), ""),
        (huge, "more than the GPU has"),
        (foreign, "is not on this node"),
        (replaced, "another claim of this name, with the uid uid-replaced"),
        (absent, "(404)"),
        (unallocated, "is not allocated"),
        (strange, "is not understood"),
        (with_uid(""), "uid is not one"),
        (with_uid("../../etc/cron.d/x"), "uid is not one"),
        (with_uid("uid-good/../../x"), "uid is not one"),
        (with_uid(".."), "uid is not one"),
        (with_uid(&"u".repeat(300)), "uid is not one"),
        (with_name("a/../../../../api/v1/secrets"), "namespace or name is not one"),
        (with_name("good?x=y"), "namespace or name is not one"),
    ];
    let claims: Vec<Claim> = cases.iter().map(|(claim, _)| claim.clone()).collect();
    let answers = kubelet.prepare(&claims).expect("an answer");
    for (claim, part) in &cases {
        let answer = answers.get(&claim.uid).unwrap_or_else(|| panic!("no answer for {claim:?}"));
        assert_eq!(answer.error.is_empty(), part.is_empty(), "{claim:?}: {answer:?}");
        assert!(answer.error.contains(part), "{claim:?}: {answer:?}");
    }
    assert_eq!(node.names("cdi"), ["radrm.dev-claim_uid-good.json"]);
    assert_eq!(node.names("claims"), ["uid-good"]);
    let log = node.api.state().log.clone();
    assert!(log.iter().all(|request| !request.contains("secrets") && !request.contains("..")), "{log:?}");
    let gone = kubelet.unprepare(&claims).expect("an answer");
    for (claim, part) in &cases {
        let expected = part.contains("uid is not one");
        assert_eq!(gone[&claim.uid].error.contains("uid is not one"), expected, "{claim:?}");
    }
    assert!(node.names("cdi").is_empty() && node.names("claims").is_empty());
}

#[test]
fn a_pod_with_two_claims_is_refused_with_a_way_out() {
    let mut node = Node::new("2xA100-40GB");
    let kubelet = node.kubelet();
    let devices = node.devices();
    let claims: Vec<Claim> = ["a", "b", "c"]
        .iter()
        .zip([0, 1, 1])
        .map(|(name, gpu)| node.allocate(name, &[(&devices[gpu].0, MIB)]))
        .collect();
    let pod = json!([{ "resource": "pods", "name": "p", "uid": "pod-p" }]);
    for name in ["a", "b"] {
        node.api.state().claims.get_mut(&format!("default/{name}")).expect("a claim")["status"]["reservedFor"] =
            pod.clone();
    }
    let answers = kubelet.prepare(&claims).expect("an answer");
    assert!(answers["uid-a"].error.contains("this claim and default/b"), "{answers:?}");
    assert!(answers["uid-b"].error.contains("this claim and default/a"), "{answers:?}");
    assert_eq!(answers["uid-c"].error, "", "another pod's claim is prepared");
}

#[test]
fn two_hundred_claims_in_parallel_get_what_fits_and_no_more() {
    let mut node = Node::new("4xA100-40GB");
    let kubelet = node.kubelet();
    let devices = node.devices();
    // 50 claims of 800 MiB on each GPU leave 960 MiB.
    let claims: Vec<Claim> = (0..200)
        .map(|number| node.allocate(&format!("c{number}"), &[(&devices[number % 4].0, 800 * MIB)]))
        .collect();
    thread::scope(|scope| {
        for part in claims.chunks(25) {
            let kubelet = &kubelet;
            scope.spawn(move || {
                let answers = kubelet.prepare(part).expect("an answer");
                for claim in part {
                    assert_eq!(answers[&claim.uid].error, "", "{claim:?}");
                }
            });
        }
    });
    assert_eq!((node.names("cdi").len(), node.names("claims").len()), (200, 200));
    for claim in &claims {
        check_published_form(&node.specification(claim).expect("a specification"));
    }
    let more = node.allocate("more", &[(&devices[1].0, 1000 * MIB)]);
    let refused = kubelet.refused(&more);
    assert!(refused.contains("still prepared: default/c"), "{refused}");
    let fits = node.allocate("fits", &[(&devices[1].0, 960 * MIB)]);
    kubelet.prepared(&fits);
    // When one goes, there is room.
    kubelet.unprepare(&claims[1..3]).expect("an answer");
    let gone = kubelet.prepared(&node.allocate("later", &[(&devices[1].0, 800 * MIB)]));
    assert_eq!(gone.devices.len(), 1);
    thread::scope(|scope| {
        for part in claims.chunks(25) {
            let kubelet = &kubelet;
            scope.spawn(move || {
                let answers = kubelet.unprepare(part).expect("an answer");
                assert!(part.iter().all(|claim| answers[&claim.uid].error.is_empty()));
            });
        }
    });
    assert_eq!(node.names("claims"), ["uid-fits", "uid-later"]);
}
