//! `radrm replay` as its users call it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const TRACE: &str = "arrival_s,task,rad,model,batch,dataset,epochs,n_gpus,mem_mib,duration_min,est_horus_mib\n\
    0,1,big<b>,vgg16,128,imagenet,1,1,24408,40,20000\n\
    60,2,gang,gpt2,8,wiki,1,2,27902,65,40000\n\
    120,3,small,resnet18,32,cifar100,20,1,2006,5,1500\n\
    180,4,small,resnet18,32,cifar100,20,1,2006,,1500\n";

fn radrm(dir: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_radrm"))
        .current_dir(dir)
        .args(line.split_whitespace())
        .output()
        .expect("radrm runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("t.csv"), TRACE).unwrap();
    dir
}

#[test]
fn a_trace_gives_a_table_with_a_bound() {
    let dir = folder();
    let out = radrm(dir.path(), "replay t.csv --policy all --seeds 3");
    let table = text(&out.stdout);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(out.stderr.is_empty(), "no progress without a terminal: {}", text(&out.stderr));
    for name in
        ["t.csv: 4 jobs on 4 GPUs", "exclusive", "round-robin", "best-fit", "aware", "(bound)", "makespan"]
    {
        assert!(table.contains(name), "{name} is missing in\n{table}");
    }
}

#[test]
fn several_factors_give_a_row_each_against_the_thesis() {
    let dir = folder();
    let out = radrm(dir.path(), "replay t.csv --policy all --seeds 2 --interference 0.5,2");
    let table = text(&out.stdout);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let starts = |with: &str| table.lines().filter(|line| line.trim_start().starts_with(with)).count();
    assert_eq!((starts("0.5 "), starts("2 ")), (1, 1), "{table}");
    let heads = table.lines().find(|line| line.trim_start().starts_with("factor")).expect("a head");
    assert!(heads.contains("best") && heads.contains("aware") && !heads.contains("best-fit"), "{table}");
    let scattered = radrm(dir.path(), "replay t.csv --policy aware --seeds 2 --json --scatter 8");
    let plain = radrm(dir.path(), "replay t.csv --policy aware --seeds 2 --json");
    assert!(scattered.status.success() && plain.status.success());
    assert_ne!(scattered.stdout, plain.stdout, "pairs slow each other as before");
}

#[test]
fn json_says_for_each_seed_what_came_out_and_is_the_same_again() {
    let dir = folder();
    let line = "replay t.csv --policy exclusive,aware --seeds 2 --json";
    let out = radrm(dir.path(), line);
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let policies = value["traces"][0]["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 2);
    let makespan = policies[0]["seeds"][0]["makespan_s"].as_f64().unwrap();
    // The gang comes after a minute and runs for 65.
    assert!((makespan / (66.0 * 60.0) - 1.0).abs() < 0.05, "{makespan}");
    assert_eq!(policies[1]["seeds"].as_array().unwrap().len(), 2);
    assert_eq!(radrm(dir.path(), line).stdout, out.stdout);
}

#[test]
fn a_trace_named_twice_has_its_own_rows_each_time() {
    let dir = folder();
    let line = "replay t.csv t.csv --policy exclusive,aware --seeds 1";
    let table = text(&radrm(dir.path(), line).stdout);
    assert_eq!(table.matches("t.csv: 4 jobs").count(), 2, "{table}");
    assert_eq!(table.matches("  aware").count(), 2, "{table}");
    let json = radrm(dir.path(), &format!("{line} --json --html p.html")).stdout;
    let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let traces = value["traces"].as_array().unwrap();
    assert_eq!(traces.len(), 2);
    for trace in traces {
        assert_eq!(trace["policies"].as_array().unwrap().len(), 2);
    }
    let page = fs::read_to_string(dir.path().join("p.html")).unwrap();
    assert_eq!(page.matches("<h3>aware").count(), 2);
}

#[test]
fn a_page_shows_who_was_where() {
    let dir = folder();
    let out = radrm(dir.path(), "replay t.csv --policy aware --html p.html");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let page = fs::read_to_string(dir.path().join("p.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg"));
    // The gang has a bar on each of its two GPUs.
    assert_eq!(page.matches("<rect").count(), 5);
    assert!(page.contains("big&lt;b&gt;") && !page.contains("big<b>"));
    for curve in
        ["GPU memory in use, mean of all GPUs, GiB", "SM activity", "Power", "Energy of all GPUs so far, MJ"]
    {
        assert!(page.contains(&format!("<h3>{curve}")), "{curve}");
    }
    assert!(page.contains("<h3>Completion times") && page.contains("its colour the program"), "{page}");
    assert!(page.contains("<summary>4 jobs</summary>"), "{page}");
    let why = radrm(dir.path(), "replay t.csv --live --seeds 2");
    assert_eq!(why.status.code(), Some(2), "a live node is replayed as it is: {}", text(&why.stderr));
}

#[test]
fn each_job_has_a_row_of_results_as_csv_and_json() {
    let dir = folder();
    let out = radrm(dir.path(), "replay t.csv --policy exclusive,MAGM --seeds 2 --jobs-out j.csv");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let rows = fs::read_to_string(dir.path().join("j.csv")).unwrap();
    assert_eq!(rows.lines().count(), 9, "four jobs under two policies: {rows}");
    assert!(
        rows.starts_with("trace,policy,interference,job,name,submit_s,start_s,end_s,gpus,devices,"),
        "{rows}"
    );
    assert!(rows.lines().any(|row| row.starts_with("t.csv,magm,1.0,1,gang,60.0,")), "{rows}");
    let out = radrm(dir.path(), "replay t.csv --policy exclusive --seeds 0 --jobs-out j.json");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let rows: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("j.json")).unwrap()).unwrap();
    assert_eq!(rows[1]["devices"].as_array().map(Vec::len), Some(2), "the gang has two GPUs");
    assert_eq!(rows[1]["gpus"], 2);
}

#[test]
fn a_script_of_rad_files_is_replayed_as_it_is_published() {
    let dir = tempfile::tempdir().unwrap();
    let scripts = dir.path().join("assets");
    fs::create_dir_all(&scripts).unwrap();
    fs::create_dir_all(dir.path().join("workloads")).unwrap();
    fs::write(
        scripts.join("t.sh"),
        "python src/submit.py --task workloads/a.rad\nsleep 60\npython src/submit.py --task workloads/a.rad\n",
    )
    .unwrap();
    let file = "# a\nconda activate t\npython3 a.py\nvgg16.txt\nimagenet\n32\ncollocation\n1\n8222\n21525.8\n3121\n16000.0\n";
    fs::write(dir.path().join("workloads/a.rad"), file).unwrap();
    fs::write(dir.path().join("times.csv"), "rad,duration_min\na,30\n").unwrap();
    let line = "replay assets/t.sh --policy magm --estimator GPUMemNet --seeds 0";
    let out = radrm(dir.path(), line);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("run times assumed: of 2 jobs, 5 min each"), "{}", text(&out.stdout));
    let known = radrm(dir.path(), &format!("{line} --estimates times.csv"));
    assert!(known.status.success(), "{}", text(&known.stderr));
    assert!(!text(&known.stdout).contains("run times assumed"), "{}", text(&known.stdout));
}

#[test]
fn estimates_of_the_trace_are_used_and_others_refused() {
    let dir = folder();
    assert!(radrm(dir.path(), "replay t.csv --estimator horus").status.success());
    let out = radrm(dir.path(), "replay t.csv --estimator guess");
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(
        text(&out.stderr),
        "radrm: t.csv has no estimates of guess; there are measured, oracle, none, history, dry, learned, \
         combined, horus\n"
    );
}

#[test]
fn recorded_estimates_feed_the_estimators() {
    let dir = folder();
    let table = "rad,dry_run_mib,est_faketensor_mib\nsmall,700,90\n";
    fs::write(dir.path().join("e.csv"), table).unwrap();
    fs::write(dir.path().join("others.csv"), table.replace("small", "other")).unwrap();
    for estimator in ["dry", "learned", "combined"] {
        let line = format!("replay t.csv --policy aware --seeds 0 --estimator {estimator}");
        let out = radrm(dir.path(), &format!("{line} --estimates e.csv"));
        assert!(out.status.success(), "{estimator}: {}", text(&out.stderr));
        assert!(text(&out.stdout).contains("harmed"), "{}", text(&out.stdout));
    }
    for (line, part) in [
        ("--estimator dry", "t.csv has no dry runs; --estimates FILE adds recorded ones"),
        ("--estimator learned", "t.csv has no FakeTensor figures"),
        ("--estimates others.csv", "others.csv: there are no estimates of the trace's jobs in it"),
    ] {
        let out = radrm(dir.path(), &format!("replay t.csv --seeds 0 --policy aware {line}"));
        let why = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{line}: {why}");
        assert!(why.contains(part) && why.lines().count() == 1, "{line}: {why}");
    }
}

#[test]
fn what_is_wrong_is_told_in_one_sentence() {
    let dir = folder();
    fs::write(dir.path().join("bad.csv"), TRACE.replace("60,2", "soon,2")).unwrap();
    fs::write(dir.path().join("other.txt"), "hello\n").unwrap();
    fs::write(dir.path().join("lacks.csv"), "rad,batch,mem_mib,arrival_s,duration\na,1,2,3,4\n").unwrap();
    fs::write(dir.path().join("s.toml"), "min_gain = 100\nmin_gian = 200\n").unwrap();
    for (line, code, part) in [
        ("replay none.csv", 1, "none.csv: No such file or directory"),
        (
            "replay lacks.csv",
            1,
            "lacks.csv: it has columns of a trace of the thesis and lacks model, dataset, n_gpus and duration_min",
        ),
        ("replay t.csv --jobs-out j.txt", 2, "j.txt ends with neither .csv nor .json"),
        ("replay t.csv --policy magn", 2, "did you mean magm?"),
        ("replay t.csv --estimator horos", 1, "did you mean horus?"),
        ("replay bad.csv", 1, "bad.csv: line 3: arrival_s is \"soon\""),
        ("replay other.txt", 1, "this is not a trace that is known"),
        ("replay t.csv --gpus 4xB9000", 2, "there is no model B9000"),
        ("replay synthetic:99999999999999", 2, "no more than 5000000 jobs"),
        ("replay t.csv --gpus 1xT4", 0, ""),
        ("replay t.csv --settings s.toml --policy aware", 1, "s.toml: line 2: unknown field"),
        ("replay t.csv --policy fastest", 2, "miso, kace, aware, or all"),
        ("replay t.csv --policy all,aware", 2, "all stands alone"),
        ("replay t.csv --mode fast", 2, "none of mps, streams and mig"),
        ("replay t.csv --smact much", 2, "much is not a percentage from 0 to 100, or none"),
        ("replay t.csv --min-free 5G", 2, "--min-free: "),
        ("replay t.csv --interference 0", 2, "is not a number above 0"),
        ("replay t.csv --interference 1,2 --html x.html", 2, "--html shows one factor"),
        ("replay t.csv --scatter 0.5", 2, "is not a number from 1 to 1000"),
        ("replay", 2, "missing"),
    ] {
        let out = radrm(dir.path(), line);
        let told = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{line}: {told}");
        assert!(told.contains(part), "{line}: {told}");
        assert!(told.lines().count() <= 1, "{line}: {told}");
    }
}

#[test]
fn jobs_that_fit_no_device_are_counted_as_failed() {
    let dir = folder();
    let out = radrm(dir.path(), "replay t.csv --gpus 1xT4 --policy aware --seeds 0 --json");
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(value["traces"][0]["policies"][0]["seeds"][0]["failed"].as_f64(), Some(2.0));
}

#[test]
fn a_published_table_is_made_from_the_researchers_own_files() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let list = radrm(dir.path(), "reproduce");
    assert!(text(&list.stdout).contains("carma-table-6.3"), "{}", text(&list.stdout));
    for (line, part) in [
        ("reproduce kace-partners", "kace-partners needs output/dataset/MPS100/"),
        ("reproduce carma-table-6.33", "did you mean carma-table-6.3?"),
        ("reproduce carma-table-6.4", "it comes from github.com/ehsanyousefzadehasl/CARMA"),
        ("reproduce all", "no table has its data in "),
    ] {
        let out = radrm(dir.path(), line);
        assert_eq!(out.status.code(), Some(1), "{line}");
        assert!(
            text(&out.stderr).contains(part) && text(&out.stderr).lines().count() == 1,
            "{}",
            text(&out.stderr)
        );
    }
    write(
        "Results_plotter_for_paper/data.csv",
        ",batch_size,Actual GPU memory,GPUMemNet ,FakeTensor,Horus\nvgg16,128,24408,24000,9894.4,82119.9\n",
    );
    let out = radrm(dir.path(), "reproduce gpumemnet-real-models --json");
    let rows: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(rows[0]["ours"].as_f64().zip(rows[0]["published"].as_f64()), Some((1.0, 2.0)), "{rows}");
    write(
        "assets/philly-based-evaluation-traces/philly_mix-90-tasks.sh",
        "python src/submit.py --task workloads/a.rad\nsleep 60\npython src/submit.py --task workloads/a.rad\n",
    );
    write(
        "workloads/a.rad",
        "# a\nconda activate t\npython3 a.py\nvgg16.txt\nimagenet\n32\ncollocation\n1\n8222\n21525.8\n3121\n16000.0\n",
    );
    write(
        "workloads_a100/workloads.csv",
        "workload,smact_mean,smocc_mean,drama_mean\nvgg16_imagenet_bs32_1e_1gpu,0.8,0.4,0.3\n",
    );
    let line = "reproduce CARMA-Table-6.4 --seeds 1";
    let why = text(&radrm(dir.path(), line).stderr);
    assert!(why.contains("philly_mix-90-tasks.sh states no run times: add them by --times"), "{why}");
    write("times.csv", "rad,duration_min\na,30\n");
    let out = radrm(dir.path(), &format!("{line} --times times.csv"));
    let table = text(&out.stdout);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(table.contains("OURS") && table.contains("90: MAGM + GPUMemNet, 80 %"), "{table}");
    let all = text(&radrm(dir.path(), "reproduce all --seeds 1 --times times.csv").stdout);
    assert!(
        all.contains("kace-partners needs ") && all.contains("gpumemnet-real-models: GPUMemNet"),
        "{all}"
    );
}
