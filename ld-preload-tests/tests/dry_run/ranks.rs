//! Some ranks of a large job, with the others modelled.

use std::collections::BTreeMap;

use radrm_preload_tests::python::script;
use serde_json::Value;

use super::harness::{DryRun, dry_run, python};

/// Runs a mode of `dry_run_ranks.py` on ranks of a job.
fn run(mode: &[&str], ranks: &str, world: u32) -> Option<DryRun> {
    let (python, world) = (python()?, world.to_string());
    let client = script("dry_run_ranks.py");
    let options = ["--emulate", "4xA100-40GB", "--ranks", ranks, "--world", &world];
    let arguments: Vec<&str> = std::iter::once(client.as_str()).chain(mode.iter().copied()).collect();
    Some(dry_run(&python, &options, &arguments))
}

/// The figures of each rank: what the program saw, and those of the report for its GPU.
fn by_rank(run: &DryRun) -> BTreeMap<u64, (String, Value)> {
    let told = &run.report["dry_run"];
    let gpus = told["gpus"].as_array().unwrap_or_else(|| panic!("{told:#}"));
    let printed = |rank: u64| {
        let start = format!("rank {rank} ");
        let line = run.ended.stdout.lines().find(|line| line.starts_with(&start));
        line.unwrap_or_else(|| panic!("rank {rank} in {}", run.ended.stdout)).to_owned()
    };
    let figures = |ran: &Value| {
        let rank = ran["rank"].as_u64().expect("rank");
        let gpu = gpus.iter().find(|gpu| gpu["gpu"] == ran["gpu"]).expect("the rank's GPU");
        let mut gpu = gpu.clone();
        gpu["gpu"] = Value::Null;
        (rank, (printed(rank), gpu))
    };
    told["ranks"]["ran"].as_array().expect("ranks").iter().map(figures).collect()
}

/// All four ranks, then two of them: the figures of these two are the same to the byte.
fn alone_as_among_all(mode: &[&str]) {
    let Some(all) = run(mode, "0-3", 4) else { return };
    let all = by_rank(&all.ok());
    assert_eq!(all.len(), 4);
    let part = run(mode, "0,3", 4).expect("ran before").ok();
    assert_eq!(part.report["dry_run"]["withheld"], Value::Null);
    let alone = by_rank(&part);
    assert_eq!(alone.keys().copied().collect::<Vec<_>>(), [0, 3]);
    for (rank, figures) in &alone {
        assert_eq!(figures, &all[rank], "{mode:?}: rank {rank}");
    }
    part.leaves_nothing();
}

/// A communicator for each group from its making on. Used are one of them, and the one that they are split from.
const GROUPS: &str = "import os, torch, torch.distributed as dist
device = torch.device('cuda', int(os.environ['LOCAL_RANK']))
torch.cuda.set_device(device)
dist.init_process_group('nccl', device_id=device)
groups = [dist.new_group(range(8), use_local_synchronization=False) for _ in range(6)]
dist.all_reduce(torch.ones(1, device=device), group=groups[2])
dist.destroy_process_group()
";

#[test]
fn communicators_are_counted_with_those_that_were_used() {
    let Some(python) = python() else { return };
    let options = ["--emulate", "8xH200", "--ranks", "0", "--world", "8"];
    let run = dry_run(&python, &options, &["-c", GROUPS]).ok();
    let told = &run.report["dry_run"];
    let remarks = told["remarks"].to_string();
    assert!(remarks.contains("no bound: 7 communicators of 64 MiB, of which 2 were used"), "{told:#}");
    assert_eq!(told["expected"]["upper"], Value::Null, "{told:#}");
}

#[test]
fn ranks_of_ddp_take_alone_what_they_take_among_all() {
    alone_as_among_all(&["ddp", "nccl"]);
}

#[test]
fn ranks_of_fsdp2_take_alone_what_they_take_among_all() {
    alone_as_among_all(&["fsdp"]);
}

#[test]
fn ranks_of_tensor_parallel_take_alone_what_they_take_among_all() {
    alone_as_among_all(&["tensor", "bound"]);
}

#[test]
fn ranks_of_a_pipeline_take_alone_what_they_take_among_all() {
    alone_as_among_all(&["pipeline", "nccl"]);
}

#[test]
fn ranks_that_do_not_come_hold_up_no_barrier_and_no_store() {
    for mode in
        [&["barrier"][..], &["barrier", "bound"], &["store", "nccl"], &["objects"], &["objects", "nccl"]]
    {
        let Some(run) = run(mode, "0,3", 4) else { return };
        let run = run.ok();
        assert_eq!(run.ended.stdout.matches("allocated").count(), 2, "{mode:?} {}", run.ended.stdout);
        let answered = run.report["dry_run"]["ranks"]["answered"].as_array().map_or(0, Vec::len);
        assert!(answered > 0, "{mode:?} {:#}", run.report["dry_run"]);
    }
}

#[test]
fn objects_of_a_rank_that_does_not_run_are_an_error() {
    for backend in [&["broadcast"][..], &["broadcast", "nccl"]] {
        let Some(run) = run(backend, "0,3", 4) else { return };
        assert_eq!(run.ended.status.code(), Some(1), "{}", run.ended.stderr);
        let sentence =
            "broadcast_object_list: rank 1 is modelled and has no objects to send; name it in --ranks";
        assert!(run.ended.stderr.contains(sentence), "{}", run.ended.stderr);
    }
}

/// Ranks 0 and 4 are the first GPU of their nodes.
#[test]
fn ranks_of_two_nodes_have_gpus_of_their_own() {
    let Some(run) = run(&["fsdp"], "0,4,63", 64) else { return };
    let run = run.ok();
    let told = &run.report["dry_run"];
    let ran = told["ranks"]["ran"].as_array().expect("ranks");
    let gpus: Vec<u64> = ran.iter().filter_map(|ran| ran["gpu"].as_u64()).collect();
    assert_eq!(gpus, [0, 1, 3]);
    assert_eq!((&told["ranks"]["world"], &told["ranks"]["per_node"]), (&64.into(), &4.into()));
    let processes: Vec<_> =
        told["gpus"].as_array().expect("gpus").iter().map(|gpu| &gpu["processes"]).collect();
    assert_eq!(processes, [1, 1, 1]);
    let figures = by_rank(&run);
    assert_eq!(figures[&0].1, figures[&4].1);
    let memory = ran.iter().map(|ran| ran["host_memory"].as_u64().expect("host memory")).sum::<u64>();
    assert_eq!(told["host_memory"].as_u64(), Some(memory), "the ranks' together");
}

/// By hand: bytes of the parameters over all ranks, the same for gradients, twice that for the states of Adam.
#[test]
fn a_sharded_llama_takes_what_its_parameters_say() {
    let Some(python) = python() else { return };
    let options = ["--emulate", "8xB200", "--ranks", "0,127", "--world", "128"];
    let run = dry_run(&python, &options, &[&script("dry_run_llama.py"), "tiny", "256"]).ok();
    let (width, of_keys, inner, words, world) = (512, 128, 1024, 4096, 128);
    let block = 2 * width * width + 2 * width * of_keys + 3 * width * inner + 2 * width;
    let parameters = 2 * (2 * words * width + 2 * block + width) / world;
    for rank in [0, 127] {
        let line =
            format!("rank {rank} parameters {parameters} gradients {parameters} states {} ", 2 * parameters);
        assert!(run.ended.stdout.contains(&line), "{line} is not in\n{}", run.ended.stdout);
    }
}
