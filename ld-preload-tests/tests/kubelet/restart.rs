//! The plug-in is killed, and starts again on what it has left.

use std::{fs, thread, time::Duration};

use radrm_kubelet::messages::Claim;

use super::node::{MIB, Node};

#[test]
fn prepared_claims_outlive_the_plugin() {
    let mut node = Node::new("2xA100-40GB");
    let kubelet = node.kubelet();
    let device = node.devices()[0].0.clone();
    let claims: Vec<Claim> =
        ["a", "b", "c", "d"].iter().map(|name| node.allocate(name, &[(&device, 9000 * MIB)])).collect();
    let before = kubelet.prepare(&claims).expect("an answer");
    let inode = |node: &Node| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(node.path("claims/uid-a/segment")).expect("a segment").ino()
    };
    let first = inode(&node);
    node.stop(libc::SIGKILL);
    // What a kill or a cleaner in between leaves: no record, no segment, no device, a device without a claim.
    fs::remove_file(node.path("claims/uid-b/claim.json")).expect("a record");
    fs::remove_file(node.path("claims/uid-c/segment")).expect("a segment");
    fs::remove_file(node.path("cdi/radrm.dev-claim_uid-d.json")).expect("a device");
    fs::write(node.path("cdi/radrm.dev-claim_uid-x.json"), "{}").expect("a device");
    fs::write(node.path("cdi/nvidia.yaml"), "").expect("another driver's device");
    fs::create_dir(node.path("claims/uid-y")).expect("a folder");
    node.start();
    assert_eq!(node.names("claims"), ["uid-a", "uid-d"]);
    let left = ["nvidia.yaml", "radrm.dev-claim_uid-a.json", "radrm.dev-claim_uid-d.json"];
    assert_eq!(node.names("cdi"), left);
    let kubelet = node.kubelet();
    // What is left counts: a fifth claim does not fit beside the four.
    assert_eq!(kubelet.prepare(&claims).expect("an answer"), before);
    let fifth = node.allocate("e", &[(&device, 9000 * MIB)]);
    assert!(kubelet.refused(&fifth).contains("still prepared"));
    assert_eq!(inode(&node), first, "processes of the claim count where they did");
    kubelet.unprepare(&claims).expect("an answer");
    assert_eq!((node.names("cdi"), node.names("claims").len()), (vec!["nvidia.yaml".to_owned()], 0));
}

#[test]
fn a_plugin_killed_at_any_moment_leaves_whole_claims_or_none() {
    let mut node = Node::new("4xA100-40GB");
    let devices = node.devices();
    let claims: Vec<Claim> = (0..40)
        .map(|number| node.allocate(&format!("c{number}"), &[(&devices[number % 4].0, 1000 * MIB)]))
        .collect();
    for round in 0..12u64 {
        let kubelet = node.kubelet();
        let (asking, all) = (kubelet.clone(), claims.clone());
        let asked = thread::spawn(move || {
            // Killed in between, it gives no answer.
            let _ = asking.prepare(&all);
            let _ = asking.unprepare(&all[..20]);
        });
        thread::sleep(Duration::from_millis(round * 5));
        node.stop(libc::SIGKILL);
        asked.join().expect("the kubelet's thread");
        // As one that was killed while it wrote leaves.
        fs::create_dir_all(node.path("cdi")).expect("a folder");
        fs::write(node.path("cdi/.radrm.dev-claim_uid-c0.json.Ab12"), "{").expect("a draft");
        node.start();
        let (records, devices) = (node.names("claims"), node.names("cdi"));
        let specified: Vec<String> =
            records.iter().map(|uid| format!("radrm.dev-claim_{uid}.json")).collect();
        assert_eq!(devices, specified, "round {round}");
    }
    let kubelet = node.kubelet();
    let answers = kubelet.prepare(&claims).expect("an answer");
    assert!(answers.values().all(|answer| answer.error.is_empty()), "{answers:?}");
    assert_eq!((node.names("claims").len(), node.names("cdi").len()), (40, 40));
    kubelet.unprepare(&claims).expect("an answer");
    assert!(node.names("claims").is_empty() && node.names("cdi").is_empty());
}
