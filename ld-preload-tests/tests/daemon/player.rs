//! `radrm replay --live` sends the jobs of a trace to a radrmd that runs.

use std::fs;
use std::path::Path;

use radrm_preload_tests::{node::Daemon, programs};
use serde_json::Value;

const TRACE: &str = "arrival_s,task,rad,model,batch,dataset,epochs,n_gpus,mem_mib,duration_min,after\n\
    5,1,big,vgg16,128,imagenet,1,1,12000,1,\n\
    65,2,gang,gpt2,8,wiki,1,2,9000,1,\n\
    75,3,next,resnet18,32,cifar100,20,1,2000,.5,ok:1\n\
    85,4,greedy,resnet18,32,cifar100,20,1,1000,.5,\n";

fn json(daemon: &Daemon, words: &[&str]) -> Value {
    let text = daemon.ok(&[&["replay", "--json", "--live"], words].concat());
    serde_json::from_str(&text).expect("JSON")
}

fn figure(played: &Value, name: &str) -> f64 {
    played["metrics"][name].as_f64().unwrap_or_else(|| panic!("{name}: {played}"))
}

#[test]
fn a_trace_is_played_at_its_times_and_its_figures_are_those_of_the_jobs() {
    let daemon = Daemon::new("emulate = \"2xA100-40GB\"\n");
    fs::write(daemon.path("t.csv"), TRACE).expect("trace");
    fs::write(daemon.mark("marks"), "").expect("file");
    let program = programs::compile("trace_job.c", &[]).display().to_string();
    // One of them takes more than it says.
    let words = "m={mem_mib}; [ {name} = greedy ] && m=9000; exec \"$0\" $MARKS/marks $((m - 600)) {ms} 1 0";
    let line = ["t.csv", "--speed", "40", "--", "sh", "-c", words, &program];
    let played = json(&daemon, &line);
    assert_eq!((&played["jobs"], &played["speed"]), (&4.into(), &40.0.into()), "{played}");
    assert_eq!(played["live"]["emulated"], "2xA100-40GB", "{played}");
    let rows: Vec<Value> = played["numbers"]
        .as_array()
        .expect("numbers")
        .iter()
        .map(|job| daemon.show(job.as_u64().expect("number"))["job"].clone())
        .collect();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().expect("name")).collect();
    assert_eq!(names, ["big", "gang", "next", "greedy"]);
    let at = |row: usize, of: &str| rows[row][of].as_u64().unwrap_or_else(|| panic!("{of}: {}", rows[row]));
    // A minute of the trace is 1.5 s; the first job may have been taken a little late.
    assert!(at(1, "submitted_ms") >= at(0, "submitted_ms") + 1000, "{rows:?}");
    assert!(at(2, "started_ms") >= at(0, "ended_ms"), "it starts after the first: {rows:?}");
    assert_eq!((at(1, "gpus"), &rows[0]["asked"]["gpu_mem"]), (2, &(12_000_u64 << 20).into()), "{rows:?}");
    // What radrmd keeps of them, in the time of the trace.
    let ran: u64 = (0..4).map(|row| at(row, "ran_ms")).sum();
    assert!((figure(&played, "exec_mean_s") - ran as f64 / 4.0 * 0.04).abs() < 0.1, "{played}");
    assert!(figure(&played, "exec_mean_s") >= 45.0, "{played}");
    assert!(figure(&played, "makespan_s") >= 100.0 && figure(&played, "memory_gib") > 0.0, "{played}");
    assert!(figure(&played, "ooms") >= 1.0 && figure(&played, "failed") == 0.0, "{played}");
    for unknown in ["smact", "energy_mj"] {
        assert_eq!(played["metrics"][unknown], Value::Null, "modelled, not measured: {played}");
    }
}

fn rad(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).expect("file");
}

#[test]
fn a_script_of_rad_files_is_played_and_what_is_rejected_is_counted() {
    let daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let folder = daemon.path("tasks");
    fs::create_dir(&folder).expect("folder");
    rad(&folder, "good.rad", "#RADRM --gpu-mem=2GiB\nsleep 0.2\n");
    rad(&folder, "bad.rad", "#RADRM --gpu-mem=2GiB\nexit 3\n");
    rad(&folder, "urgent.rad", "#RADRM --gpu-mem=2GiB --priority=5 --after=ok:99999\ntrue\n");
    let script = "#!/bin/bash\nset -e\npython3 submit.py --task /elsewhere/good.rad\nsleep 60\nsubmit bad.rad &\nsubmit urgent.rad\n";
    fs::write(daemon.path("trace.sh"), script).expect("script");
    let words = ["replay", "--live", "trace.sh", "--rad-files", "tasks", "--speed", "60"];
    let done = daemon.output(&words);
    let (table, said) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}");
    let row = table.lines().last().expect("a row").split_whitespace().collect::<Vec<_>>();
    assert_eq!((row[0], row.len(), row[8]), ("aware", 12, "1.0"), "one failed: {table}");
    assert!(table.contains("trace.sh: 2 jobs on ") && table.contains("(emulated: 1xA100-40GB)"), "{table}");
    assert!(table.contains("nor name a .rad file: 1") && table.contains("not submitted ("), "{table}");
    assert!(said.contains("urgent is not submitted: "), "{said}");
    // All files of a folder at once, with a program in place of theirs.
    let played = json(&daemon, &["tasks", "--", "sh", "-c", "test {mem_mib} = 2048 && test {name} != bad"]);
    assert_eq!((&played["jobs"], figure(&played, "failed")), (&2.into(), 1.0), "{played}");
    assert_eq!(played["not_submitted"].as_object().map(serde_json::Map::len), Some(1), "{played}");
}
