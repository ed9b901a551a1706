//! Addresses of blocks: the profile's maps have the addresses that the program got.

use radrm_preload_tests::{
    child, programs,
    rig::{PATIENCE, Rig},
};
use radrm_profile::model::{BlockRun, Kind, Profile};

const STEPS: [&str; 8] =
    ["use:0", "alloc:a:8m", "alloc:b:16m", "alloc:c:4m", "free:b", "async:d:2m", "create:h:6m:0", "pause"];

fn recorded(options: &[&str]) -> (Rig, Profile) {
    let rig = Rig::emulated("H100-80GB");
    let mut command = rig.launcher();
    command.args(options).arg("--").arg(programs::compile("steps.c", &[])).args(STEPS);
    let mut running = child::Running::start(command, PATIENCE);
    running.until_ready();
    running.go_on();
    running.end().ok();
    let profile = Profile::open(&rig.profile_path()).expect("a profile");
    (rig, profile)
}

fn page(rig: &Rig) -> String {
    let path = rig.report(&["--html"]).stdout;
    std::fs::read_to_string(path.trim()).expect("a page")
}

#[test]
fn a_map_has_blocks_by_address_with_the_hole_of_what_was_freed() {
    let (rig, profile) = recorded(&["--stacks"]);
    let map = profile.block_maps.last().expect("a map");
    let account = &profile.processes[0].state.accounts[0];
    assert_eq!(map.total, account.now, "what is held at exit was held at the last moment");
    let of =
        |kind: Kind| -> Vec<&BlockRun> { map.runs.iter().filter(|run| run.kind == kind as u8).collect() };
    let sizes = |kind| of(kind).iter().map(|run| (run.held.0 >> 20, run.blocks)).collect::<Vec<_>>();
    let mut device = sizes(Kind::Device);
    device.sort_unstable();
    assert_eq!(device, [(4, 1), (8, 1)]);
    assert_eq!(sizes(Kind::PoolUsed), [(2, 1)]);
    assert_eq!(
        (sizes(Kind::Vmm).len(), map.kinds[Kind::Vmm.index()].0 >> 20),
        (0, 6),
        "it has a handle only"
    );
    assert!(map.runs.is_sorted_by_key(|run| run.address) && map.runs[0].address > 0, "{map:?}");
    let page = page(&rig);
    assert!(page.contains("<h3>Address space</h3>") && page.contains("virtual memory 6.00 MiB"), "{page}");
}

#[test]
fn without_call_stacks_no_address_is_recorded() {
    let (rig, profile) = recorded(&[]);
    assert_eq!(profile.block_maps, []);
    let page = page(&rig);
    assert!(page.contains("peak device memory") && !page.contains("Address space"), "{page}");
}
