//! Fate of claims while writes of the plug-in fail, and the room that their shared memory takes.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    process::Command,
};

use radrm_kubelet::messages::Claim;
use radrm_preload_tests::faults::{self, Fault, Faults, kinds};

use super::node::{MIB, Node};

/// Distance from one failing call to the next in tests that are run by default; `RADRM_TEST_STRIDE=1` takes all.
fn stride(usual: usize) -> usize {
    std::env::var("RADRM_TEST_STRIDE").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// A node whose plug-in is on a layer of failing calls.
fn node() -> Option<(Node, Faults)> {
    if !faults::are_possible() {
        return None;
    }
    let mut node = Node::new("1xA100-40GB");
    node.stop(libc::SIGKILL);
    let faults = Faults::new(&node.path("faults"));
    // The folders of the plug-in, and not the file that controls the layer.
    node.behind(faults.words(node.rig.path()));
    node.start();
    Some((node, faults))
}

fn inode(node: &Node, claim: &Claim) -> u64 {
    fs::metadata(node.path(&format!("claims/{}/segment", claim.uid))).expect("a segment").ino()
}

/// A claim that is whole, or none: nothing half done, and no draft.
fn assert_whole(node: &Node, claims: &[&Claim], what: &str) {
    let uids: Vec<&str> = claims.iter().map(|claim| claim.uid.as_str()).collect();
    assert_eq!(node.names("claims"), uids, "{what}");
    let devices: Vec<String> = uids.iter().map(|uid| format!("radrm.dev-claim_{uid}.json")).collect();
    assert_eq!(node.names("cdi"), devices, "{what}");
    for uid in uids {
        assert_eq!(node.names(&format!("claims/{uid}")), ["claim.json", "segment"], "{what}");
    }
}

#[test]
fn claims_are_whole_or_refused_while_writes_fail() {
    let Some((mut node, faults)) = node() else { return };
    let kubelet = node.kubelet();
    let device = node.devices()[0].0.clone();
    let claim = node.allocate("a", &[(&device, 9000 * MIB)]);
    for fault in [Fault::ONE_ERROR, Fault::ERRORS, Fault::READ_ONLY, Fault::NO_INODES] {
        for number in (1..).step_by(stride(3)) {
            let what = || format!("{fault:?} from call {number} on\n{}", faults.log());
            faults.begin(fault, number);
            let answer = kubelet.prepare(std::slice::from_ref(&claim)).expect("an answer").remove(&claim.uid);
            let prepared = faults.end();
            let error = answer.expect("an answer for the claim").error;
            assert!(error.lines().count() <= 1, "{error}");
            let before = error.is_empty().then(|| inode(&node, &claim));
            // The kubelet asks again, and so it does where it has an answer.
            kubelet.prepared(&claim);
            assert!(before.is_none_or(|before| before == inode(&node, &claim)), "{}", what());
            assert_whole(&node, &[&claim], &what());
            faults.begin(fault, number);
            let answer =
                kubelet.unprepare(std::slice::from_ref(&claim)).expect("an answer").remove(&claim.uid);
            let unprepared = faults.end();
            let error = answer.expect("an answer for the claim").error;
            assert!(error.lines().count() <= 1, "{error}");
            let answer =
                kubelet.unprepare(std::slice::from_ref(&claim)).expect("an answer").remove(&claim.uid);
            assert_eq!(answer.expect("an answer for the claim").error, "", "{}", what());
            assert_whole(&node, &[], &what());
            if prepared + unprepared == 0 {
                assert!(number > 5, "only {number} calls");
                break;
            }
        }
    }
}

#[test]
fn a_start_on_a_failing_disk_keeps_claims() {
    let Some((mut node, faults)) = node() else { return };
    let device = node.devices()[0].0.clone();
    let claim = node.allocate("a", &[(&device, 9000 * MIB)]);
    node.kubelet().prepared(&claim);
    let first = inode(&node, &claim);
    let unread = Fault { kinds: kinds::READ, errno: libc::EIO, length: 1 };
    for (fault, usual) in [(Fault::ONE_ERROR, 2), (Fault::ERRORS, 4), (Fault::READ_ONLY, 4), (unread, 2)] {
        for number in (1..).step_by(stride(usual)) {
            node.stop(libc::SIGKILL);
            faults.begin(fault, number);
            let said = node.tries_to_start();
            let failed = faults.end();
            let what = format!("{fault:?} from call {number} on\n{}", faults.log());
            if let Err(said) = said {
                assert_eq!(said.lines().count(), 1, "{said}\n{what}");
                node.start();
            }
            assert_eq!(inode(&node, &claim), first, "{what}");
            assert_whole(&node, &[&claim], &what);
            if failed == 0 {
                break;
            }
        }
    }
}

/// A folder of claims that is mounted for others too, as in a pod whose manifest says so; taken back when dropped.
struct Shared(std::path::PathBuf);

impl Shared {
    fn new(node: &Node) -> Option<Self> {
        let folder = node.path("claims");
        let mount = |words: &[&str]| {
            Command::new("mount").args(words).arg(&folder).status().is_ok_and(|status| status.success())
        };
        let bound = folder.display().to_string();
        if !mount(&["--bind", &bound]) {
            eprintln!("skipped: nothing can be mounted here");
            return None;
        }
        let shared = Self(folder.clone());
        assert!(mount(&["--make-shared"]));
        Some(shared)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--recursive", "--lazy"]).arg(&self.0).status();
    }
}

#[test]
fn a_claim_takes_no_more_of_the_nodes_memory_than_its_room() {
    let mut node = Node::with("1xA100-40GB", &["--gpu-device", "none", "--segment-memory", "8MiB"]);
    let Some(_shared) = Shared::new(&node) else { return };
    let kubelet = node.kubelet();
    let device = node.devices()[0].0.clone();
    let [full, other] = ["full", "other"].map(|name| node.allocate(name, &[(&device, 9000 * MIB)]));
    kubelet.prepared(&full);
    kubelet.prepared(&other);
    let segment = node.path(&format!("claims/{}/segment", full.uid));
    // As its containers can: the file is larger than any memory, and theirs to write.
    let file = fs::File::options().write(true).open(&segment).expect("a segment");
    let piece = vec![1; MIB as usize];
    let written = (0..64).take_while(|at| file.write_all_at(&piece, (1 << 30) + at * MIB).is_ok()).count();
    assert!((4..8).contains(&written), "{written} MiB could be written");
    let taken = |claim: &Claim| {
        fs::metadata(node.path(&format!("claims/{}/segment", claim.uid))).expect("a segment").blocks() * 512
    };
    assert!(taken(&full) <= 8 * MIB);
    let own = fs::File::options().write(true).open(node.path(&format!("claims/{}/segment", other.uid)));
    own.expect("a segment").write_all_at(&piece, 1 << 30).expect("another claim has room of its own");
    // A plug-in that starts again finds both, and takes both down.
    node.stop(libc::SIGKILL);
    node.start();
    let kubelet = node.kubelet();
    kubelet.prepared(&full);
    let answers = kubelet.unprepare(&[full, other]).expect("an answer");
    assert!(answers.values().all(|answer| answer.error.is_empty()), "{answers:?}");
    assert_whole(&node, &[], "");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let place = node.rig.path().display().to_string();
    assert!(!mounts.lines().any(|line| line.contains("radrm-claim") && line.contains(&place)), "{mounts}");
}

#[test]
fn without_shared_mounts_a_segment_beyond_its_room_is_emptied() {
    let mut node = Node::with("1xA100-40GB", &["--gpu-device", "none", "--segment-memory", "8MiB"]);
    let kubelet = node.kubelet();
    let device = node.devices()[0].0.clone();
    let claim = node.allocate("a", &[(&device, 9000 * MIB)]);
    kubelet.prepared(&claim);
    let segment = node.path(&format!("claims/{}/segment", claim.uid));
    let file = fs::File::options().write(true).open(&segment).expect("a segment");
    if file.write_all_at(&vec![1; 32 * MIB as usize], 1 << 30).is_err() {
        eprintln!("skipped: mounts are shared here");
        return;
    }
    node.until("it is emptied", |_| file.metadata().expect("a segment").blocks() == 0);
    node.until("that is said", |node| node.said().contains("claim uid-a: its segment took"));
}
