//! Traces, tables and logs that `radrm replay` reads, and tables of Nsight Compute.

use bolero::check;
use radrm_fuzz::text;
use radrm_scheduler_core::replay::events::{Again, Entry};
use radrm_scheduler_core::replay::{Profiles, Recorded, read};
use radrm_scheduler_core::{Event, Millis, Settings};

const TRACES: [&str; 6] = [
    "arrival_s,task,rad,model,batch,dataset,epochs,n_gpus,mem_mib,duration_min,after,est_horus_mib\n\
     0,1,a.rad,resnet50,32,imagenet,1,1,4000,12.5,,5000\n9,2,b.rad,bert,8,wiki,,2,9000,,ok:1,\n",
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n\
     a,4000,1024,1,500,,LS,Running,0,900,3\nb,8000,2048,2,1000,,BE,Failed,9,90,\n",
    "runtime\n60\n3600.5\n\n0\n",
    "; Version: 2\n1 0 3 600 4 -1 -1 4 900 -1 1 7 1 3 1 1 -1 -1\n",
    r#"[{"status": "Pass", "vc": "ee9e8c", "jobid": "application_1", "user": "ce2f77", "submitted_time": "2017-10-09 07:00:17",
     "attempts": [{"start_time": "2017-10-09 07:02:00", "end_time": "2017-10-09 08:02:00", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}]"#,
    "JobID|JobName|User|Submit|Start|End|State|AllocTRES|Timelimit\n\
     41|train|ann|2026-11-01T10:00:00|2026-11-01T10:05:00|2026-11-01T12:05:00|COMPLETED|gres/gpu:a100=2,gres/gpu=2|1-00:00:00\n",
];

const TABLES: [&str; 3] = [
    "workload,total_s,smact_mean,smocc_mean,drama_mean\na,60,0.5,0.2,0.1\n",
    "rad,kind,dry_run_mib,est_horus_mib\na.rad,pytorch,4000,5000\n",
    "sn,cpu_milli,memory_mib,gpu,model\nn1,96000,393216,2,V100\n",
];

const METRICS: &str = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\
    \"Grid Size\",\"Device\",\"CC\",\"gpu__time_duration.sum\",\"sm__cycles_active.avg\"\n\
    \"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"usecond\",\"cycle\"\n\
    \"0\",\"4711\",\"python3\",\"h\",\"k(int)\",\"1\",\"7\",\"(256, 1, 1)\",\"(1024, 1, 1)\",\"0\",\"8.0\",\"1,000.5\",\"9\"\n";

#[test]
fn traces() {
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let text = text(&TRACES, bytes);
        if let Err(error) = read(&text, &read::Filling::default()) {
            assert!(!error.to_string().is_empty());
        }
        let _ = read::script(&text);
    });
}

#[test]
fn tables() {
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let text = text(&TABLES, bytes);
        let _ = Profiles::read(&text);
        let _ = Recorded::read(&text);
        let _ = read::openb_nodes(&text);
    });
}

#[test]
fn tables_of_metrics() {
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let _ = radrm_collector::ncu::read(&text(&[METRICS], bytes), "a.csv");
    });
}

#[test]
fn logs_of_events() {
    let start = Entry::Start { version: "1".into(), settings: Box::new(Settings::default()) };
    let tick = Entry::Step { at: Millis(9), event: Event::Tick, decisions: Vec::new() };
    let log = [&start, &tick, &tick].map(|entry| serde_json::to_string(entry).expect("JSON") + "\n").concat();
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let mut again = Again::default();
        for line in text(&[&log], bytes).lines() {
            if let Ok(entry) = serde_json::from_str(line) {
                again.feed(entry);
            }
        }
    });
}
