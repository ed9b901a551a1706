//! Tests of requests to an MLflow server: this one stores what it receives, and can fail.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use radrm_export::mlflow::{Artifact, Sent, Server};
use radrm_export::{Credentials, Curve, End, Metric, Run, WebError, figure};
use serde_json::{Value, json};

use crate::http::{Request, serve};

/// State of the server.
#[derive(Default)]
struct Kept {
    experiments: Vec<String>,
    runs: BTreeMap<String, Recorded>,
    files: BTreeMap<String, Vec<u8>>,
    authorization: Option<String>,
    /// Requests that are still answered; then each gets 503.
    answers: Option<usize>,
    /// Tags that were set: run, name and value.
    children: Vec<(String, String, String)>,
    /// Location of the files that it reports.
    store: &'static str,
}

#[derive(Default)]
struct Recorded {
    status: String,
    deleted: bool,
    id: String,
    params: BTreeMap<String, String>,
    metrics: Vec<Value>,
    largest_batch: usize,
}

fn answer(kept: &mut Kept, request: &Request) -> (u16, Value) {
    kept.authorization = request.headers.get("authorization").cloned();
    let is_answered = match &mut kept.answers {
        None => true,
        Some(0) => false,
        Some(left) => {
            *left -= 1;
            true
        }
    };
    match request.path.strip_prefix("/api/2.0/").filter(|_| is_answered) {
        Some(path) => kept.handle(&request.method, path, &request.body),
        None => (503, json!({ "message": "later\u{1b}[2J\nmore" })),
    }
}

impl Kept {
    fn handle(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        if let (true, Some(file)) = (method == "PUT", path.strip_prefix("mlflow-artifacts/artifacts/")) {
            self.files.insert(file.to_owned(), body.to_vec());
            return (200, json!({}));
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        match path.split('?').next().unwrap_or_default() {
            "mlflow/experiments/get-by-name" => {
                let name = path.rsplit('=').next().unwrap_or_default();
                match self.experiments.iter().position(|known| known == name) {
                    Some(at) => (200, json!({ "experiment": { "experiment_id": at.to_string() } })),
                    None => (404, json!({ "error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no" })),
                }
            }
            "mlflow/experiments/create" => {
                self.experiments.push(text("name"));
                (200, json!({ "experiment_id": (self.experiments.len() - 1).to_string() }))
            }
            "mlflow/experiments/search" => {
                let all = (0..self.experiments.len()).map(|at| json!({ "experiment_id": at.to_string() }));
                (200, json!({ "experiments": all.collect::<Vec<_>>() }))
            }
            "mlflow/runs/set-tag" => {
                self.children.push((text("run_id"), text("key"), text("value")));
                (200, json!({}))
            }
            "mlflow/runs/search" if text("filter").starts_with("tags.`of`") => {
                assert_eq!(
                    (text("filter").as_str(), &body["experiment_ids"]),
                    ("tags.`of` = 'k.1'", &json!(["0"]))
                );
                let own =
                    |id: &str, tags: Value| json!({ "info": { "run_id": id }, "data": { "tags": tags } });
                let nested = json!([{ "key": "mlflow.parentRunId", "value": "script1" }]);
                (200, json!({ "runs": [own("script1", json!([])), own("script2", nested)] }))
            }
            "mlflow/runs/search" => {
                let filter = text("filter");
                let found = self
                    .runs
                    .iter()
                    .filter(|(_, run)| !run.deleted && filter.ends_with(&format!("= '{}'", run.id)));
                let found: Vec<_> = found
                    .map(|(id, run)| {
                        let uri = self.store.replace("ID", id);
                        json!({ "info": { "run_id": id, "status": run.status, "artifact_uri": uri } })
                    })
                    .collect();
                // As MLflow does: no list where nothing is found.
                (200, if found.is_empty() { json!({}) } else { json!({ "runs": found }) })
            }
            "mlflow/artifacts/list" => {
                let folder = format!("0/{}/artifacts/", path.rsplit('=').next().unwrap_or_default());
                let names = self.files.keys().filter_map(|file| file.strip_prefix(&folder));
                (200, json!({ "files": names.map(|name| json!({ "path": name })).collect::<Vec<_>>() }))
            }
            "mlflow/runs/create" => {
                let id = format!("r{}", self.runs.len());
                let tag =
                    body["tags"].as_array().unwrap().iter().find(|tag| tag["key"] == "radrm.run").unwrap();
                let tag = tag["value"].as_str().unwrap().to_owned();
                self.runs.insert(
                    id.clone(),
                    Recorded { status: "RUNNING".into(), id: tag, ..Recorded::default() },
                );
                let uri = self.store.replace("ID", &id);
                (200, json!({ "run": { "info": { "run_id": id, "artifact_uri": uri } } }))
            }
            "mlflow/runs/log-batch" => {
                let run = self.runs.get_mut(&text("run_id")).unwrap();
                let of = |name: &str| body[name].as_array().cloned().unwrap_or_default();
                let (metrics, params) = (of("metrics"), of("params"));
                run.largest_batch = run.largest_batch.max(metrics.len()).max(params.len() * 10);
                run.metrics.extend(metrics);
                let word = |pair: &Value, name: &str| pair[name].as_str().unwrap().to_owned();
                run.params.extend(params.iter().map(|pair| (word(pair, "key"), word(pair, "value"))));
                (200, json!({}))
            }
            "mlflow/runs/update" => {
                self.runs.get_mut(&text("run_id")).unwrap().status = text("status");
                (200, json!({}))
            }
            "mlflow/runs/delete" => {
                self.runs.get_mut(&text("run_id")).unwrap().deleted = true;
                (200, json!({}))
            }
            other => panic!("{method} {other}"),
        }
    }
}

fn run() -> Run {
    let points = (0..2500).map(|step| (1000 + step, step as f64 * 1e6)).collect();
    Run {
        id: "host-1-2".into(),
        name: "train".into(),
        user: Some("ada".into()),
        started_ms: 1000,
        ended_ms: 5000,
        end: End::Failed,
        params: (0..150).map(|number| (format!("p{number}"), number.to_string())).collect(),
        tags: BTreeMap::new(),
        curves: vec![Curve { figure: &figure::MEMORY, gpu: Some(3), points }],
        gpus: Vec::new(),
        metrics: BTreeMap::new(),
    }
}

fn server(store: &'static str) -> (Arc<Mutex<Kept>>, String) {
    let kept = Arc::new(Mutex::new(Kept { store, ..Kept::default() }));
    let of_server = kept.clone();
    (kept, serve(move |request| answer(&mut of_server.lock().unwrap(), &request)))
}

const PROXIED: &str = "mlflow-artifacts:/0/ID/artifacts";

#[test]
fn a_run_arrives_whole_in_parts_that_the_server_takes() {
    let (kept, address) = server(PROXIED);
    let token = Credentials::Password("ada".into(), "secret".into());
    let server = Server::open(&format!("{address}/"), &token, "resnet").unwrap();
    let files = [Artifact::Text("report.html", &|| "<p>page</p>".to_owned())];
    let url = format!("{address}/#/experiments/0/runs/r0");
    assert_eq!(server.send(&run(), &files).unwrap(), Sent::New { url: url.clone(), without_files: None });
    let again = Server::open(&address, &token, "resnet").unwrap();
    assert_eq!(again.send(&run(), &files).unwrap(), Sent::Already { url, added: 0 });
    let kept = kept.lock().unwrap();
    let sent = &kept.runs["r0"];
    assert_eq!((kept.runs.len(), kept.experiments.len(), sent.status.as_str()), (1, 1, "FAILED"));
    assert_eq!((sent.params.len(), sent.metrics.len(), sent.largest_batch), (150, 2500, 1000));
    assert_eq!(
        sent.metrics[2499],
        json!({ "key": "radrm/gpu_3_memory_megabytes", "value": 2499.0, "timestamp": 3499, "step": 2499 })
    );
    assert_eq!(kept.files["0/r0/artifacts/report.html"], b"<p>page</p>");
    assert_eq!(kept.authorization.as_deref(), Some("Basic YWRhOnNlY3JldA=="));
}

#[test]
fn a_run_of_which_a_part_arrived_is_sent_anew_and_stands_there_once() {
    let (kept, address) = server(PROXIED);
    // Whatever request is the first that fails.
    for answers in 2..9 {
        let server = Server::open(&address, &Credentials::None, "resnet").unwrap();
        let run = Run { id: format!("host-{answers}"), ..run() };
        kept.lock().unwrap().answers = Some(answers - 1);
        let error = server.send(&run, &[Artifact::Text("a", &|| "b".to_owned())]).unwrap_err();
        assert_eq!(error.to_string(), format!("{address} answers 503: later\\u{{1b}}[2J"));
        kept.lock().unwrap().answers = None;
        let sent = server.send(&run, &[Artifact::Text("a", &|| "b".to_owned())]).unwrap();
        assert!(matches!(sent, Sent::New { .. }), "{answers}: {sent:?}");
        let kept = kept.lock().unwrap();
        let there: Vec<_> = kept.runs.values().filter(|it| it.id == run.id && !it.deleted).collect();
        assert_eq!(
            (there.len(), there[0].status.as_str(), there[0].metrics.len()),
            (1, "FAILED", 2500),
            "{answers}"
        );
    }
}

#[test]
fn runs_that_a_program_opened_itself_become_children_once() {
    let (kept, address) = server(PROXIED);
    let server = Server::open(&address, &Credentials::None, "x").unwrap();
    assert_eq!(server.adopt(&run(), "of", "k.1").unwrap(), 0, "its own run is not there");
    server.send(&run(), &[]).unwrap();
    assert_eq!(server.adopt(&run(), "of", "k.1").unwrap(), 1);
    let tag = ("script1", "mlflow.parentRunId", "r0");
    let set = kept.lock().unwrap().children.clone();
    let set: Vec<_> =
        set.iter().map(|(run, key, value)| (run.as_str(), key.as_str(), value.as_str())).collect();
    assert_eq!(set, [tag], "one that has a parent keeps it");
}

#[test]
fn members_of_a_group_have_one_parent() {
    let (kept, address) = server(PROXIED);
    let server = Server::open(&address, &Credentials::None, "x").unwrap();
    let parent = server.parent("group a.1", "pair", &run()).unwrap();
    assert_eq!(server.parent("group a.1", "pair", &run()).unwrap(), parent);
    assert_ne!(server.parent("group a.2", "pair", &run()).unwrap(), parent);
    // The command was killed before the run was over.
    kept.lock().unwrap().runs.get_mut(&parent).unwrap().status = "RUNNING".into();
    assert_eq!(server.parent("group a.1", "pair", &run()).unwrap(), parent);
    let kept = kept.lock().unwrap();
    assert_eq!((kept.runs.len(), kept.runs[&parent].status.as_str()), (2, "FINISHED"));
}

#[test]
fn files_can_be_added_to_a_run_that_is_there() {
    let (kept, address) = server(PROXIED);
    let server = Server::open(&address, &Credentials::None, "x").unwrap();
    assert!(matches!(server.send(&run(), &[]).unwrap(), Sent::New { .. }));
    let files = [Artifact::Text("a", &|| "1".to_owned()), Artifact::Text("b", &|| "2".to_owned())];
    let added = |files: &[Artifact<'_>]| match server.send(&run(), files).unwrap() {
        Sent::Already { added, .. } => added,
        other => panic!("{other:?}"),
    };
    assert_eq!([added(&files[..1]), added(&files), added(&files), added(&[])], [1, 1, 0, 0]);
    let kept = kept.lock().unwrap();
    assert_eq!(kept.runs.len(), 1);
    assert_eq!(kept.files.keys().collect::<Vec<_>>(), ["0/r0/artifacts/a", "0/r0/artifacts/b"]);
}

#[test]
fn files_reach_the_local_folder_of_a_server_on_this_machine() {
    let root = tempfile::tempdir().unwrap();
    let store = format!("{}/0/ID/artifacts", root.path().display());
    let (kept, address) = server(String::leak(store));
    let server = Server::open(&address, &Credentials::None, "x").unwrap();
    let files = [Artifact::Text("a", &|| "b".to_owned())];
    let sent = server.send(&run(), &files).unwrap();
    assert!(matches!(sent, Sent::New { without_files: None, .. }), "{sent:?}");
    assert_eq!(std::fs::read(root.path().join("0/r0/artifacts/a")).unwrap(), b"b");
    assert!(kept.lock().unwrap().files.is_empty());
    assert!(matches!(server.send(&run(), &files).unwrap(), Sent::Already { added: 0, .. }));
}

#[test]
fn what_a_program_logged_is_a_metric_with_its_step() {
    let (kept, address) = server(PROXIED);
    let server = Server::open(&address, &Credentials::None, "x").unwrap();
    let metrics = [("val/loss".to_owned(), Metric { last: 0.25, step: Some(9) })].into();
    server.send(&Run { metrics, ..run() }, &[]).unwrap();
    let kept = kept.lock().unwrap();
    let last = kept.runs["r0"].metrics.last().unwrap().clone();
    assert_eq!(last, json!({ "key": "val/loss", "value": 0.25, "timestamp": 5000, "step": 9 }));
}

#[test]
fn files_that_only_mlflows_own_client_can_write_are_named() {
    let (_, address) = server("s3://bucket/ID");
    let server = Server::open(&address, &Credentials::None, "x").unwrap();
    let Sent::New { without_files: Some(why), .. } =
        server.send(&run(), &[Artifact::Text("a", &|| "b".to_owned())]).unwrap()
    else {
        panic!("no reason")
    };
    assert!(why.contains("s3"), "{why}");
}

#[test]
fn what_is_no_server_is_said_in_one_sentence() {
    let open = |address: &str| Server::open(address, &Credentials::None, "x").map(|_| ()).unwrap_err();
    for address in [
        "",
        "foo",
        "ftp://x",
        "file:///tmp",
        "http://ada:secret@host",
        "http://ada:s p@secret@host",
        "http://host?x=1",
    ] {
        let error = open(address);
        assert!(matches!(error, WebError::Address(_)), "{address}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let why = open(&format!("http://{gone}")).to_string();
    assert!(why.contains("cannot be reached: Connection refused") && !why.contains("os error"), "{why}");
    // A server of something else.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n<html");
        }
    });
    assert!(open(&address).to_string().contains("does not answer as MLflow does"));
}
