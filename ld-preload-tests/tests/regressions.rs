//! What once went wrong; every test is named after what it protects.

use radrm_preload_tests::{programs, rig::Rig};

/// A program's own mistakes with pointers say nothing about the figures: what the driver refuses to
/// free never was a block.
#[test]
fn frees_that_the_driver_refuses_leave_the_figures_complete() {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("bad_frees.c", &[]), &[]).ok();
    let doubts: Vec<_> = outcome.process().state.bypasses.iter().filter(|b| b.matters).collect();
    assert!(doubts.is_empty(), "{doubts:?}");
}
