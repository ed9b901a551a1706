//! The files of the plug-in are those of `docs/security.md`, with owners and modes as there.

use std::{fs, os::unix::fs::MetadataExt};

use radrm_preload_tests::rights::Rights;

use super::node::{MIB, Node};

#[test]
fn files_of_the_plugin_have_the_rights_that_the_page_states() {
    let mut node = Node::new("1xA100-40GB");
    let kubelet = node.kubelet();
    let device = node.devices()[0].0.clone();
    let claim = node.allocate("a", &[(&device, 9000 * MIB)]);
    kubelet.prepared(&claim);
    let own = fs::metadata(node.path("claims")).expect("its folder").uid();
    Rights::of("Kubernetes").assert(
        &[("CLAIMS", &node.path("claims")), ("KUBELET", &node.path("kubelet")), ("CDI", &node.path("cdi"))],
        &[("root", own)],
        &["CLAIMS", "CLAIMS/*/segment", "CDI/radrm.dev-claim_*.json"],
    );
}
