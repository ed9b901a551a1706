//! Launches of every kind, counted by kernel, on a driver whose every answer is known.

mod support;

use radrm_telemetry::{Bypass, ProcessSnapshot};
use support::{Driver, kernel, run, run_one};

/// Launches, blocks, threads and dynamic shared memory of a kernel.
fn figures(process: &ProcessSnapshot, name: &str) -> [u64; 4] {
    match kernel(process, name) {
        Some(k) => [k.launches, k.blocks, k.threads, k.dynamic_shared_bytes],
        None => [0; 4],
    }
}

/// Launches, blocks and threads of a kernel by graphs.
fn by_graphs(process: &ProcessSnapshot, name: &str) -> [u64; 3] {
    kernel(process, name).map_or([0; 3], |k| [k.graph_launches, k.graph_blocks, k.graph_threads])
}

#[test]
fn every_entry_point_counts_what_succeeded_and_passes_all_arguments() {
    for (driver, rounds) in [(Driver::New, 1), (Driver::New, 20), (Driver::CallsItself, 20)] {
        let process = run_one(driver, &["launches", &rounds.to_string()]);
        let shape = [rounds, 24 * rounds, 24 * 210 * rounds, 8 * rounds];
        for name in ["plain", "plain_ptsz", "coop", "coop_ptsz", "ex"] {
            assert_eq!(figures(&process, name), shape, "{name}, {driver:?}");
        }
        // One block, 9 and 10 blocks of 64 threads.
        assert_eq!(figures(&process, "old"), [3 * rounds, 20 * rounds, 20 * 64 * rounds, 0]);
        if rounds == 1 {
            assert_eq!(figures(&process, "multi"), [2, 4, 128, 18]);
        }
        assert_eq!(figures(&process, "fails"), [0; 4]);
    }
}

#[test]
fn a_driver_that_calls_itself_by_name_is_counted_once() {
    let process = run_one(Driver::CallsItself, &["launches", "5"]);
    // The outer call has the program's shape; the inner one would add a launch of one block.
    assert_eq!(figures(&process, "nested"), [5, 5 * 24, 5 * 24 * 210, 5 * 8]);
}

#[test]
fn a_handle_that_comes_back_after_an_unload_is_another_kernel() {
    let process = run_one(Driver::New, &["reuse"]);
    for round in 0..5u64 {
        assert_eq!(figures(&process, &format!("round{round}"))[0], 10 * (round + 1), "round{round}");
    }
}

#[test]
fn a_kernel_in_a_functions_place_is_named_and_has_attributes() {
    for driver in [Driver::New, Driver::Old] {
        let process = run_one(driver, &["kernels"]);
        let k = kernel(&process, "as_kernel").expect("the kernel");
        assert_eq!(k.launches, 2, "{driver:?}");
        assert_eq!((k.attributes.registers, k.attributes.static_shared_bytes), (9, 48), "{driver:?}");
        assert_eq!((k.attributes.local_bytes, k.attributes.max_threads), (16, 1024), "{driver:?}");
    }
}

#[test]
fn old_drivers_are_named_by_what_the_program_asked_for() {
    let process = run_one(Driver::Old, &["reuse"]);
    for round in 0..5u64 {
        assert_eq!(figures(&process, &format!("round{round}"))[0], 10 * (round + 1), "round{round}");
    }
}

#[test]
fn long_and_empty_names_are_kept_as_far_as_there_is_room() {
    for driver in [Driver::New, Driver::Old] {
        let process = run_one(driver, &["names"]);
        let long = process.kernels.iter().find(|k| k.name.len() == 1023).expect("the long name, cut");
        assert_eq!(long.launches, 1);
        assert_eq!(process.launches(), 2, "{driver:?}");
    }
}

#[test]
fn captured_launches_are_not_counted_and_queries_break_no_capture() {
    let process = run_one(Driver::New, &["captures"]);
    assert_eq!(figures(&process, "captured")[0], 5);
    assert_eq!(figures(&process, "unseen")[0], 1);
}

#[test]
fn graphs_count_their_kernels_through_every_change() {
    let process = run_one(Driver::New, &["graphs", "0"]);
    // Launches and blocks as the client's comments say; ten threads in a block.
    let a = [[2, 3], [1, 2], [1, 2], [2, 52], [3, 1052], [3, 1052], [2, 3]];
    let b = [[2, 10], [3, 110], [2, 10], [1, 3], [1, 3], [1, 3], [2, 10]];
    for (name, rows) in [("a", a), ("b", b)] {
        let launches: u64 = rows.iter().map(|r| r[0]).sum();
        let blocks: u64 = rows.iter().map(|r| r[1]).sum();
        assert_eq!(by_graphs(&process, name), [launches, blocks, blocks * 10], "{name}");
        // Two bytes of dynamic shared memory in a block for each block.
        assert_eq!(figures(&process, name), [0, 0, 0, blocks * 2], "{name}");
    }
    assert_eq!(process.graph_launches, 7);
    assert!(!process.bypasses.iter().any(|(reason, _)| *reason == Bypass::GraphUnknown));
}

#[test]
fn a_million_updates_of_a_graph_take_no_memory() {
    run_one(Driver::New, &["graphs", "1000000"]);
}

#[test]
fn a_forked_child_counts_for_itself() {
    let mut all = run(Driver::New, &["forked"]);
    assert_eq!(all.len(), 2);
    all.sort_by_key(|p| p.joined_ns);
    assert_eq!((figures(&all[0], "parent")[0], figures(&all[0], "child")[0]), (6, 0));
    assert_eq!((figures(&all[1], "parent")[0], figures(&all[1], "child")[0]), (0, 3));
}

#[test]
fn more_threads_than_lanes_lose_no_launch() {
    let process = run_one(Driver::New, &["threads"]);
    assert_eq!(figures(&process, "from_threads"), [300_000, 300_000, 300_000 * 32, 0]);
}

#[test]
fn contexts_are_counted_on_their_gpu() {
    let process = run_one(Driver::New, &["contexts"]);
    let account = process.accounts.first().expect("one GPU");
    // Three created, one destroyed, and the primary one, which is still held once.
    assert_eq!(account.contexts, 3);
}

#[test]
fn threads_that_end_inside_the_driver_are_unwound() {
    let process = run_one(Driver::New, &["left"]);
    assert_eq!(figures(&process, "after_threads_left")[0], 6);
}
