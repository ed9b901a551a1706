//! One test per family of memory: the shim's figures and the emulator's ledger agree byte for byte,
//! and both say what the steps add up to.

use radrm_preload_tests::{figures::Outcome, programs, rig::Rig};
use radrm_profile::model::Kind;

const MIB: u64 = 1 << 20;

/// Runs steps of `steps.c` by every way into the driver, compares with the ledger, and returns the
/// last outcome.
#[track_caller]
fn agree(machine: &str, steps: &[&str]) -> Outcome {
    let mut last = None;
    for (flags, route) in [(&[][..], "dlsym"), (&[][..], "proc"), (programs::LINKED, "")] {
        let rig = Rig::emulated(machine);
        let mut command = rig.launched(programs::compile("steps.c", flags));
        command.args(steps).env("ROUTE", route);
        let outcome = rig.outcome(radrm_preload_tests::child::run(command, 60)).ok();
        assert_eq!(outcome.assert_equals_ledger(), 1, "{steps:?} {flags:?} {route}");
        last = Some(outcome);
    }
    last.expect("an outcome")
}

/// Now and peak of one kind on GPU 0.
#[track_caller]
fn kind(outcome: &Outcome, kind: Kind) -> (u64, u64) {
    let page = outcome.account(0).kinds[kind.index()];
    (page.now.0, page.peak.0)
}

#[test]
fn plain_memory() {
    let outcome = agree("1xH200", &["use:0", "alloc:a:1000", "alloc:b:3m", "free:a", "alloc:c:1", "free:b"]);
    assert_eq!(kind(&outcome, Kind::Device), (1, 3 * MIB + 1000));
}

#[test]
fn pitched_memory() {
    let outcome = agree("1xH200", &["use:0", "pitch:a:1000:30", "pitch:b:513:7", "free:b"]);
    assert_eq!(kind(&outcome, Kind::Device), (1024 * 30, 1024 * 37));
}

#[test]
fn managed_memory_stands_apart() {
    let outcome = agree("1xH200", &["use:0", "managed:a:5m", "managed:b:1m", "free:a"]);
    assert_eq!(kind(&outcome, Kind::Managed), (MIB, 6 * MIB));
    assert_eq!(outcome.account(0).peak.0, 0);
}

#[test]
fn pinned_host_memory_stands_apart() {
    let outcome = agree(
        "1xH200",
        &["use:0", "hostalloc:a:2m", "allochost:b:1m", "register:c:4m", "freehost:a", "unregister:c"],
    );
    assert_eq!(kind(&outcome, Kind::PinnedHost), (MIB, 7 * MIB));
    assert_eq!(outcome.account(0).peak.0, 0);
}

#[test]
fn host_memory_of_the_virtual_memory_interface_is_pinned_host_memory() {
    let outcome = agree("1xH200", &["use:0", "createhost:a:4m", "createhost:b:2m", "release:a"]);
    assert_eq!(kind(&outcome, Kind::PinnedHost), (2 * MIB, 6 * MIB));
    assert_eq!(outcome.account(0).peak.0, 0);
}

#[test]
fn arrays_and_mipmaps() {
    let steps = [
        "use:0",
        "array:a:1024:256",
        "array3d:b:64:64:64",
        "mipmap:c:256:256:3",
        "freearray:a",
        "freemipmap:c",
    ];
    let outcome = agree("1xH200", &steps);
    let (now, peak) = kind(&outcome, Kind::Array);
    assert_eq!(now, 64 * 64 * 64);
    assert_eq!(peak, 1024 * 256 * 16 + 64 * 64 * 64 + 4 * (256 * 256 + 128 * 128 + 64 * 64));
}

#[test]
fn physical_memory_and_its_handles() {
    // Released while mapped: the memory lives until it is unmapped. Retained: one more handle.
    let steps = [
        "use:0",
        "create:h:4m:0",
        "reserve:v:4m",
        "map:v:h:4m",
        "release:h",
        "create:x:2m:0",
        "retain:r:v",
        "unmap:v:4m",
        "create:y:6m:0",
        "release:r",
        "unreserve:v:4m",
        "release:x",
    ];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::Vmm), (6 * MIB, 12 * MIB));
}

#[test]
fn case_07_address_space_is_not_memory() {
    // Expandable segments reserve 9/8 of the device as addresses, and map from worker threads.
    let steps = [
        "use:0",
        "reserve:v:158g",
        "create:a:20m:0",
        "map:v:a:20m",
        "thread:create.b.2m.0",
        "thread:release.b",
    ];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::Vmm), (20 * MIB, 22 * MIB));
    assert_eq!(outcome.account(0).peak.0, 22 * MIB);
}

#[test]
fn exported_and_imported_handles_are_charged_once() {
    let steps = ["use:0", "create:h:8m:0", "export:f:h", "import:i:f", "release:i"];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::Vmm), (8 * MIB, 8 * MIB));
}

#[test]
fn memory_opened_from_another_process_is_charged_to_its_owner() {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("ipc.c", &[]), &[]).ok();
    assert_eq!(outcome.assert_equals_ledger(), 2);
    let mut accounts: Vec<_> = outcome
        .profile
        .processes
        .iter()
        .flat_map(|p| &p.state.accounts)
        .filter(|a| a.peak.0 > 0)
        .map(|a| (a.peak.0 / MIB, a.kinds[Kind::Imported.index()].peak.0 / MIB))
        .collect();
    accounts.sort_unstable();
    assert_eq!(accounts, [(1, 64), (64, 0)]);
}

#[test]
fn stream_ordered_memory_of_the_default_pool() {
    let steps = [
        "use:0",
        "async:a:1m",
        "async:b:40m",
        "asyncpt:c:3m",
        "freeasync:b",
        "async:d:100m",
        "freeasyncpt:c",
        "sync",
        "freeasync:d",
        "sync",
    ];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::PoolUsed), (MIB, 104 * MIB));
    let (now, peak) = kind(&outcome, Kind::PoolReserved);
    assert!(now >= MIB && peak >= 104 * MIB && now <= peak, "{now} {peak}");
}

#[test]
fn pools_of_the_programs_own_and_what_they_keep() {
    let steps = [
        "use:0",
        "pool:p:0",
        "keep:p:64m",
        "frompool:a:p:10m",
        "frompool:b:p:70m",
        "freeasync:a",
        "freeasync:b",
        "sync",
        "frompool:c:p:5m",
        "trim:p:0",
        "defaultpool:q:0",
        "keep:q:1g",
        "async:d:200m",
        "freeasync:d",
        "sync",
    ];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::PoolUsed), (5 * MIB, 205 * MIB));
    assert!(kind(&outcome, Kind::PoolReserved).0 >= 205 * MIB, "what a pool keeps is held");
}

#[test]
fn a_destroyed_pool_gives_back() {
    let steps = [
        "use:0",
        "pool:p:0",
        "keep:p:1g",
        "frompool:a:p:10m",
        "freeasync:a",
        "sync",
        "freepool:p",
        "alloc:x:1m",
    ];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::PoolReserved).0, 0);
    assert_eq!(outcome.account(0).now.0, MIB);
}

#[test]
fn a_destroyed_pool_holds_what_it_held_until_its_last_block() {
    let steps =
        ["use:0", "pool:p:0", "frompool:a:p:10m", "frompool:b:p:40m", "freeasync:b", "freepool:p", "sync"];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::PoolReserved).0, 96 * MIB);
    let outcome = agree("1xH200", &[&steps[..], &["freeasync:a"]].concat());
    assert_eq!(kind(&outcome, Kind::PoolReserved).0, 0);
}

#[test]
fn case_08_mixed_frees() {
    // An ordered block freed by the plain call, a plain block freed by the ordered one.
    let steps = ["use:0", "async:a:3m", "sync", "free:a", "alloc:b:5m", "freeasync:b", "sync", "alloc:c:1m"];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::PoolUsed), (0, 3 * MIB));
    assert_eq!(kind(&outcome, Kind::Device).0, MIB);
}

#[test]
fn case_08_failed_requests_leave_nothing_behind() {
    let steps = [
        "use:0",
        "alloc:a:1g",
        "toomuch:x:80g",
        "toomuchcreate:x:80g",
        "toomuchasync:x:80g",
        "toomuch:x:100g",
        "alloc:b:1g",
        "free:a",
    ];
    let outcome = agree("1xH100-80GB", &steps);
    assert_eq!(outcome.account(0).now.0, 1 << 30);
    assert_eq!(outcome.account(0).failed, 4);
    let failures = &outcome.process().state.failures;
    let sizes: Vec<u64> = failures.iter().map(|f| f.size.0 >> 30).collect();
    assert_eq!(sizes, [80, 80, 80, 100]);
    assert!(failures.iter().all(|f| f.result == 2), "{failures:?}");
    assert!(failures[0].call.starts_with("cuMemAlloc"), "{failures:?}");
    assert!(failures[1].call.starts_with("cuMemCreate"), "{failures:?}");
    assert!(failures[2].call.starts_with("cuMemAllocAsync"), "{failures:?}");
    let free = failures[0].free.expect("what was free").0;
    assert!(free > 70 << 30 && free < 79 << 30, "{free}");
}

#[test]
fn memory_of_graphs_is_charged_at_launch() {
    let steps = ["use:0", "memgraph:g:24m", "launchgraph:g", "sync", "launchgraph:g", "sync"];
    let outcome = agree("1xH200", &steps);
    assert!(kind(&outcome, Kind::Graph).1 >= 24 * MIB);
    let steps = ["use:0", "memgraph:g:24m", "launchgraph:g", "sync", "freegraph:g", "trimgraphs:0"];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::Graph).0, 0);
}

#[test]
fn a_graph_that_is_never_launched_takes_nothing() {
    let outcome = agree("1xH200", &["use:0", "memgraph:g:24m", "alloc:a:1m"]);
    assert_eq!(kind(&outcome, Kind::Graph), (0, 0));
}

#[test]
fn a_destroyed_context_gives_everything_back() {
    let steps = [
        "use:0",
        "alloc:a:1m",
        "context:c:0",
        "alloc:b:7m",
        "array:d:64:64",
        "destroy:c",
        "current",
        "alloc:e:2m",
    ];
    let outcome = agree("1xH200", &steps);
    assert_eq!(outcome.account(0).now.0, 3 * MIB);
    assert_eq!(outcome.account(0).peak.0, 8 * MIB + 64 * 64 * 16);
}

#[test]
fn memory_taken_in_a_green_context_stays_when_that_is_gone() {
    let steps =
        ["use:0", "green:g:0", "alloc:a:7m", "async:p:1m", "greengone:g", "current", "alloc:b:2m", "free:a"];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::Device), (2 * MIB, 9 * MIB));
    assert_eq!(kind(&outcome, Kind::PoolUsed), (MIB, MIB));
}

#[test]
fn memory_of_the_last_green_context_goes_with_the_primary_one() {
    let steps = ["init", "green:g:0", "alloc:a:7m", "async:p:1m", "greengone:g", "use:0", "alloc:b:2m"];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::Device), (2 * MIB, 7 * MIB));
    assert_eq!(kind(&outcome, Kind::PoolUsed).0, 0);
}

#[test]
fn blocks_of_a_pool_go_with_their_context_while_the_pool_has_others() {
    let steps = [
        "use:0",
        "async:a:3m",
        "context:c:0",
        "async:b:5m",
        "async:d:1k",
        "destroy:c",
        "current",
        "async:e:2m",
        "freeasync:a",
        "sync",
    ];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::PoolUsed), (2 * MIB, 8 * MIB + 1024));
}

#[test]
fn a_stream_ordered_request_for_nothing_holds_nothing() {
    let outcome = agree("1xH200", &["use:0", "async:a:0", "async:b:1m", "freeasync:a", "async:c:0"]);
    assert_eq!(kind(&outcome, Kind::PoolUsed), (MIB, MIB));
}

#[test]
fn a_reset_primary_context_gives_everything_back() {
    let steps = ["use:0", "alloc:a:9m", "async:p:1m", "reset:0", "use:0", "alloc:e:2m"];
    let outcome = agree("1xH200", &steps);
    assert_eq!(kind(&outcome, Kind::Device), (2 * MIB, 9 * MIB));
}

#[test]
fn several_gpus_are_kept_apart() {
    let steps = [
        "use:1",
        "alloc:a:1m",
        "use:0",
        "alloc:b:2m",
        "alloc:c:3m",
        "free:c",
        "free:a",
        "use:1",
        "alloc:d:5m",
    ];
    let outcome = agree("2xH200", &steps);
    assert_eq!((outcome.account(0).now.0, outcome.account(0).peak.0), (2 * MIB, 5 * MIB));
    assert_eq!((outcome.account(1).now.0, outcome.account(1).peak.0), (5 * MIB, 5 * MIB));
}

#[test]
fn launches_by_every_entry_point() {
    let steps = [
        "use:0",
        "load",
        "launch:3",
        "launchpt:4",
        "launchex:5",
        "cooperative:6",
        "kernelgraph:g:7",
        "launchgraph:g",
        "launchgraph:g",
    ];
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("steps.c", &[]), &steps).ok();
    assert_eq!(outcome.launches("nothing"), (18, 14));
    let process = outcome.profile.processes.first().expect("a process");
    assert_eq!((process.state.launches, process.state.graph_launches), (18, 2));
    let kernel = process.kernels.iter().find(|k| k.name == "nothing").expect("the kernel");
    // 18 launches of 8 blocks of 64 threads, 14 nodes of 4 blocks of 32.
    assert_eq!((kernel.blocks, kernel.threads), (18 * 8 + 14 * 4, 18 * 512 + 14 * 128));
    assert_eq!(kernel.dynamic_shared.0, 18 * 64);
    let counted: u64 = outcome.ledgers.iter().flat_map(|b| &b.gpus).map(|g| g.launches).sum();
    assert_eq!(counted, 32);
}

#[test]
fn many_live_blocks() {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("storm.c", &[]), &["200000", "50000"]).ok();
    assert_eq!(outcome.assert_equals_ledger(), 1);
    let page = outcome.account(0).kinds[0];
    assert_eq!(page.allocations, 200_000);
    assert_eq!(page.blocks, page.allocations - page.frees);
    assert!(page.blocks > 30_000);
}
