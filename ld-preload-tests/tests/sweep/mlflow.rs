//! Runs of a sweep on a server of MLflow, read by MLflow's own client. Its environment is large: `cargo xtask venv
//! --frameworks` makes it, and without it the test says that it is skipped.

use std::net::TcpListener;
use std::path::Path;

use radrm_preload_tests::python;

use super::*;

/// Prints what the server has of an experiment, a line for each run, with the file that its profile was fetched to.
const READ: &str = r#"
import os, sys, mlflow
client = mlflow.MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name(sys.argv[2])
for run in client.search_runs([experiment.experiment_id], order_by=["attributes.run_name"]):
    os.mkdir(run.info.run_id)
    path = client.download_artifacts(run.info.run_id, "profile.radrm", run.info.run_id)
    peak = run.data.metrics["radrm/gpu_0_peak_memory_megabytes"]
    curve = max(point.value for point in client.get_metric_history(run.info.run_id, "radrm/gpu_0_memory_megabytes"))
    names = sorted(file.path for file in client.list_artifacts(run.info.run_id))
    print(run.info.run_name, run.info.status, run.data.params["mib"], peak, curve, ",".join(names), path, sep="|")
"#;

/// Ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: a signal to the server's own process group.
        unsafe { libc::kill(-self.0.id().cast_signed(), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

fn server(python: &Path, place: &Place, port: u16) -> Server {
    let store = format!("sqlite:///{}", place.join("mlflow.db").display());
    let mut command = Command::new(python);
    command.args([
        "-m",
        "mlflow",
        "server",
        "--workers",
        "1",
        "--host",
        "127.0.0.1",
        "--port",
        &port.to_string(),
    ]);
    command.args(["--backend-store-uri", &store, "--artifacts-destination"]).arg(place.join("kept"));
    command.current_dir(place.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Server(command.process_group(0).spawn().expect("mlflow"))
}

fn export(place: &Place, address: &str) -> Ended {
    let mut command = Command::new(artifacts::file("radrm"));
    command.args(["export", "mlflow", "--server", address, "sweep.toml"]).current_dir(place.path());
    finish(command)
}

#[test]
fn runs_of_a_sweep_arrive_on_a_server_of_mlflow_once() {
    let Some(python) = python::framework("venv-mlflow") else { return };
    let place = place(
        "command = \"python3 allocate.py {mib} {mib}.asked 1\"\nemulate = \"A100-40GB\"\n[axes]\nmib = [300, 500]\n",
    );
    fs::write(place.join("allocate.py"), ALLOCATE).unwrap();
    finish(sweep(&place, &["sweep.toml"])).code(0);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("http://127.0.0.1:{port}");
    let down = export(&place, &address);
    down.code(1);
    assert!(down.stderr.contains("2 of 2 runs are not sent"), "{}", down.stderr);
    let _server = server(&python, &place, port);
    let begin = Instant::now();
    let first = loop {
        let ended = export(&place, &address);
        if ended.status.success() || begin.elapsed() > Duration::from_secs(PATIENCE) {
            break ended;
        }
        thread::sleep(Duration::from_millis(500));
    };
    first.code(0);
    assert_eq!(first.text().matches("/runs/").count(), 2, "{}", first.text());
    assert_eq!(export(&place, &address).text().matches("(was there)").count(), 2);

    fs::write(place.join("read.py"), READ).unwrap();
    let mut read = Command::new(&python);
    read.args(["read.py", &address, "sweep"]).current_dir(place.path());
    let read = finish(read);
    read.code(0);
    let profiles = column(&place, "profile");
    let lines: Vec<_> = read.text().lines().collect();
    assert_eq!((lines.len(), profiles.len()), (2, 2), "{lines:?}");
    for ((line, profile), mib) in lines.iter().zip(profiles).zip([300_u64, 500]) {
        let peak = (mib << 20) as f64 / 1e6;
        let (figures, fetched) = line.rsplit_once('|').unwrap();
        assert_eq!(figures, format!("mib={mib}|FINISHED|{mib}|{peak}|{peak}|profile.radrm,report.html"));
        assert_eq!(fs::read(place.join(fetched)).unwrap(), fs::read(profile).unwrap(), "{mib}");
    }
}
