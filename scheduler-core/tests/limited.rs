//! A job whose request for memory was refused by a limit that holds on every device.

use crate::common::{Node, gib, verdict};
use radrm_scheduler_core::{Bytes, Evidence, Outcome, Settings, Verdict};

#[test]
fn it_is_not_tried_elsewhere() {
    // How the first of a job's attempts on one of two devices is judged.
    let verdict_after = |outcome| {
        let mut node = Node::new(2, Settings::default());
        node.run(gib(1, 3));
        verdict(&node.at(1).finish(1, outcome), 1)
    };
    let oom = |evidence| Outcome::OutOfMemory { seen: Some(Bytes::from_gib(4)), evidence, code: 1 };
    let limit = oom(Evidence::Limit);
    assert_eq!(verdict_after(limit), Some(Verdict::Ended(limit)));
    assert_eq!(verdict_after(oom(Evidence::Shim)), None, "another device may have more");
}
