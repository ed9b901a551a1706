//! Speed of replays with a long queue: jobs a minute by policy.
//! `cargo run -p radrm-scheduler-core --example replaying -- JOBS GPUS LOAD [gangs] [POLICY...]`: synthetic jobs on machines of 8 GPUs;
//! with `gangs` a third of them take 2, 4 or 8 GPUs. `LOAD` is the use of the GPUs by all jobs, above 1 the queue grows.

use std::time::Instant;

use radrm_scheduler_core::replay::{Cluster, Filling, Options, read, replay};
use radrm_scheduler_core::{Bytes, NodeId, Policy, Settings};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: f64| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(usual);
    let (jobs, gpus, load) = (number(0, 5000.0) as usize, number(1, 1000.0) as u32, number(2, 2.3));
    let has_gangs = words.iter().any(|word| word == "gangs");
    let named: Vec<Policy> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let policies =
        if named.is_empty() { vec![Policy::Exclusive, Policy::Magm, Policy::Aware] } else { named };
    let mut cluster = Cluster::uniform(gpus, "A100-40GB", Bytes::from_gib(40));
    cluster.devices.iter_mut().for_each(|device| device.node = NodeId(device.id.0 / 8));
    // A job of a gang takes several GPUs: 19 for 9 jobs.
    let load = if has_gangs { load * 9.0 / 19.0 } else { load };
    let mut trace = read::synthetic(jobs, &Filling { load, devices: gpus as usize, ..Filling::default() });
    for (at, job) in trace.iter_mut().enumerate().filter(|(at, _)| has_gangs && at % 3 == 0) {
        job.gpus = [2, 4, 8][at / 3 % 3];
    }
    println!("{jobs} jobs on {gpus} GPUs, load {}", number(2, 2.3));
    for policy in policies {
        let settings =
            if policy == Policy::Aware { Settings::default() } else { Settings::published(policy) };
        let options = Options { settings, ..Options::default() };
        let begun = Instant::now();
        let report = replay(&trace, &cluster, &options, &mut ());
        let took = begun.elapsed().as_secs_f64();
        let starts: u64 = report.jobs.iter().map(|job| u64::from(job.attempts)).sum();
        println!(
            "{:<12} {took:8.2} s, {:8.3} million starts a minute, makespan {:.2} h, mean wait {:.2} h",
            policy.name(),
            starts as f64 / took * 60.0 / 1e6,
            report.metrics().makespan_s / 3600.0,
            report.metrics().wait_mean_s / 3600.0
        );
    }
}
