//! One need for a job: in the report of its dry run, by `radrm estimate`, and as `radrmd` reserves it.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use radrm_base::{Bytes, Permille};
use radrm_collector::dataset::{Dataset, Origin, Row};
use radrm_need::{MemoryModel, Need, Said, Source};
use radrm_preload_tests::{artifacts, node::Daemon, programs};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// Needs of other sizes than one's own are not what these tests are about.
const POLICY: &str = "emulate = \"1xA100-40GB\"\n[scheduler]\npolicy = \"best-fit\"\n";

/// Holds 3 GiB, and stays only as a job of radrmd.
fn command() -> Vec<String> {
    let program = programs::compile("steps.c", &[]).display().to_string();
    let script = format!("\"{program}\" use:0 alloc:a:3g; [ -z \"$RADRM_JOB\" ] || sleep 1000");
    vec!["/bin/sh".to_owned(), "-c".to_owned(), script]
}

fn own_dataset(place: &Path) -> std::path::PathBuf {
    place.join(".local/share/radrm/dataset.db")
}

/// Expected need on a real GPU in the report of a dry run; the run's row goes to the user's own dataset.
fn report(place: &Path, socket: &Path, options: &[&str]) -> Value {
    for library in ["libradrm_emulated_toolkit.so", "libradrm_emulated_cuda.so"] {
        artifacts::file(library);
    }
    let file = place.join("report.json");
    let mut run = Command::new(artifacts::file("radrm-run"));
    run.args(["--dry-run", "--emulate", "1xA100-40GB", "--no-profile"]).args(options);
    run.arg(format!("--json={}", file.display())).arg("--").args(command());
    run.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", place).env("RADRM_SOCKET", socket);
    let done = run.current_dir(place).output().expect("radrm-run");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: Value = serde_json::from_slice(&fs::read(&file).expect("a report")).expect("JSON");
    report["dry_run"]["expected"].clone()
}

/// Need of memory by `radrm estimate`.
fn estimate(place: &Path, socket: &Path, options: &[&str]) -> Value {
    let mut radrm = Command::new(artifacts::directory().join("radrm"));
    radrm.args(["estimate", "--json"]).args(options).arg("--").args(command());
    radrm.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", place).env("RADRM_SOCKET", socket);
    let done = radrm.current_dir(place).output().expect("radrm");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let estimate: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    estimate["memory"].clone()
}

/// Bytes, bound, confidence and source of both are equal; returns the need.
#[track_caller]
fn agree(report: &Value, estimate: &Value) -> Need {
    let of = |value: &Value, upper: &str| {
        ["bytes", upper, "confidence", "source"].map(|field| value[field].clone())
    };
    let [bytes, upper, confidence, source] = of(estimate, "upper_bytes");
    assert_eq!(of(report, "upper"), [bytes.clone(), upper.clone(), confidence.clone(), source.clone()]);
    let bytes = |value: Value| Bytes(value.as_u64().expect("bytes"));
    let source = serde_json::from_value(source).expect("a source");
    let confidence = confidence.as_f64().map(Permille::from_fraction);
    Need::new(bytes(estimate["bytes"].clone()), bytes(upper), confidence, source)
}

/// The report, the estimate and radrmd agree, also on what is reserved for a job that runs; returns the need.
#[track_caller]
fn all_agree(daemon: &Daemon) -> Need {
    let (place, socket) = (daemon.place(), daemon.path("socket"));
    let report = report(place, &socket, &[]);
    let need = agree(&report, &estimate(place, &socket, &[]));
    let command = command();
    let job = daemon.submit(&[], &command.iter().map(String::as_str).collect::<Vec<_>>());
    let shown = daemon.show(job);
    assert!(
        shown["history"].to_string().contains(json!(need.to_string()).to_string().trim_matches('"')),
        "{need}: {shown}"
    );
    daemon.until_state(job, "running");
    let reserved = daemon.show(job)["job"]["reserved"].clone();
    if !need.is_measured() {
        assert_eq!(reserved, need.upper.0, "{need}");
    }
    daemon.ok(&["cancel", &job.to_string()]);
    daemon.end(job);
    need
}

/// A row of the program, of a run that held so much.
fn row(place: &Path, origin: Origin, held: u64) -> Row {
    Row {
        origin,
        uid: fs::metadata(place).expect("the place").uid(),
        footprint_bytes: Some(held),
        complete: true,
        outcome: "exited".into(),
        // As a process there sees its directory.
        ..Row::of_command(&command(), &place.canonicalize().expect("the place"), 1)
    }
}

#[test]
fn a_dry_run_alone_gives_one_need_everywhere() {
    let daemon = Daemon::new(POLICY);
    let need = all_agree(&daemon);
    assert!(need.source.is_dry_run_alone() && need.upper.0 > 3 * GIB && !need.enforce, "{need}");
}

#[test]
fn own_measured_runs_give_one_need_everywhere() {
    let daemon = Daemon::new(POLICY);
    let path = own_dataset(daemon.place());
    let mut own = Dataset::open(&path).expect("dataset");
    for held in [5 * GIB, 6 * GIB] {
        own.add(&row(daemon.place(), Origin::Measured, held), None).expect("row");
    }
    drop(own);
    let need = all_agree(&daemon);
    assert_eq!(need.source, Source::OwnDataset(Box::new(Source::EqualRuns { runs: 2 })));
    assert_eq!((need.upper, need.enforce), (Bytes(6 * GIB), false), "radrmd has not seen these runs");
    // Without radrmd, and with a dataset that is named: the same runs, which now stand for themselves.
    let (place, no_socket) = (daemon.place(), daemon.path("none"));
    let named = path.display().to_string();
    for options in [&[][..], &["--dataset", &named]] {
        let need = agree(&report(place, &no_socket, options), &estimate(place, &no_socket, options));
        assert_eq!(need.source, Source::EqualRuns { runs: 2 });
    }
}

#[test]
fn a_sites_trained_model_and_stretch_give_one_need_everywhere() {
    let mut daemon = Daemon::prepare("");
    // A site where programs take 2 GiB more than in dry runs, with a margin of its own.
    let mut model: Value =
        serde_json::from_str(&MemoryModel::shipped().to_json().expect("a model")).expect("JSON");
    for site in model["sites"].as_array_mut().expect("sites") {
        site["dry_run"] = json!(2.0 * GIB as f64);
    }
    model["dry_run"] = json!([0.3, 0.8]);
    fs::write(daemon.path("model.json"), model.to_string()).expect("model");
    let named = format!("[estimator]\nmodel = \"{}\"\n", daemon.path("model.json").display());
    fs::write(
        daemon.path("config.toml"),
        format!("metrics = \"\"\npoll_ms = 100\naudit_s = 0\n{POLICY}{named}"),
    )
    .expect("configuration");
    // Whose jobs took twice what was expected.
    fs::create_dir_all(daemon.path("state")).expect("state");
    let mut history = Dataset::open(&daemon.path("state/dataset.db")).expect("dataset");
    let source = Source::OtherBatchSizes { sizes: 2 };
    let said = vec![Said { source, bytes: Bytes(GIB), weight: Permille::WHOLE }];
    let source = Source::Combined { said, stretch: Permille::WHOLE };
    let expected = Need::new(Bytes(GIB), Bytes(GIB / 10 * 12), Some(Permille(950)), source);
    for job in 1..=20 {
        let command = [format!("/other/{job}")];
        let row = Row {
            job_id: Some(1000 + job),
            attempt: Some(1),
            emulated: Some("1xA100-40GB".into()),
            ..row(daemon.place(), Origin::Daemon, 2 * GIB)
        };
        let of = Row::of_command(&command, daemon.place(), 1);
        let row = Row { command: of.command, arguments: of.arguments, program_key: of.program_key, ..row };
        history.add(&row.predicted_as(Some(&expected), true), None).expect("row");
    }
    drop(history);
    daemon.start();
    let need = all_agree(&daemon);
    let Source::Combined { stretch, .. } = &need.source else { panic!("{need}") };
    assert!(*stretch > Permille(1500) && need.bytes.0 > 5 * GIB, "{need}");
    assert_eq!(need.confidence, Some(Permille(800)), "the trained model's");
}

#[test]
fn a_run_that_radrmd_measured_gives_one_need_everywhere() {
    let daemon = Daemon::new(POLICY);
    let mut history = Dataset::open(&daemon.path("state/dataset.db")).expect("dataset");
    let ran = Row {
        job_id: Some(1000),
        attempt: Some(1),
        emulated: Some("1xA100-40GB".into()),
        gpu_model: Some("NVIDIA A100-SXM4-40GB".into()),
        ..row(daemon.place(), Origin::Daemon, 5 * GIB)
    };
    history.add(&ran, None).expect("row");
    drop(history);
    let need = all_agree(&daemon);
    assert_eq!((need.upper, &need.source), (Bytes(5 * GIB), &Source::EqualRuns { runs: 1 }));
    // The same dataset without radrmd.
    let (place, no_socket) = (daemon.place(), daemon.path("none"));
    let named = daemon.path("state/dataset.db").display().to_string();
    let options = ["--dataset", &named];
    let alone = agree(&report(place, &no_socket, &options), &estimate(place, &no_socket, &options));
    assert_eq!(alone, need);
}
