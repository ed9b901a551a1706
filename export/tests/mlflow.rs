//! What is asked of a server of MLflow: this one stores what it receives, and can fail.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use radrm_export::mlflow::{Artifact, Sent, Server};
use radrm_export::{Credentials, End, Metric, Run, WebError};
use serde_json::{Value, json};

/// What the server keeps.
#[derive(Default)]
struct Kept {
    experiments: Vec<String>,
    runs: BTreeMap<String, Recorded>,
    files: BTreeMap<String, Vec<u8>>,
    authorization: Option<String>,
    /// Requests that are still answered; then each gets 503.
    answers: Option<usize>,
    /// Where it says that files are.
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

fn serve(kept: Arc<Mutex<Kept>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let kept = kept.clone();
            thread::spawn(move || while answer(&connection, &kept).is_some() {});
        }
    });
    address
}

/// Answers one request; `None` at the end of the connection.
fn answer(connection: &TcpStream, kept: &Mutex<Kept>) -> Option<()> {
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let [method, path]: [String; 2] =
        line.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>().try_into().ok()?;
    let (mut length, mut chunked, mut authorization) = (0, false, None);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "transfer-encoding" => chunked = value == "chunked",
            "authorization" => authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    while chunked {
        let mut size = String::new();
        reader.read_line(&mut size).ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let mut part = vec![0; size + 2];
        reader.read_exact(&mut part).ok()?;
        body.extend_from_slice(&part[..size]);
        chunked = size > 0;
    }
    let mut kept = kept.lock().unwrap();
    kept.authorization = authorization;
    let is_answered = match &mut kept.answers {
        None => true,
        Some(0) => false,
        Some(left) => {
            *left -= 1;
            true
        }
    };
    let (status, value) = if is_answered {
        kept.handle(&method, path.strip_prefix("/api/2.0/")?, &body)
    } else {
        (503, json!({ "message": "later\u{1b}[2J\nmore" }))
    };
    let text = value.to_string();
    let mut connection = connection;
    write!(connection, "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{text}", text.len()).ok()
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
            "mlflow/runs/search" => {
                let filter = text("filter");
                let found = self
                    .runs
                    .iter()
                    .filter(|(_, run)| !run.deleted && filter.ends_with(&format!("= '{}'", run.id)));
                let found: Vec<_> = found
                    .map(|(id, run)| json!({ "info": { "run_id": id, "status": run.status } }))
                    .collect();
                // As MLflow does: no list where nothing is found.
                (200, if found.is_empty() { json!({}) } else { json!({ "runs": found }) })
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
    let metrics =
        (0..2500).map(|step| Metric { key: "a".into(), value: step as f64, t_ms: 1000 + step, step });
    Run {
        id: "host-1-2".into(),
        name: "train".into(),
        user: Some("ada".into()),
        started_ms: 1000,
        ended_ms: 5000,
        end: End::Failed,
        params: (0..150).map(|number| (format!("p{number}"), number.to_string())).collect(),
        tags: BTreeMap::new(),
        metrics: metrics.collect(),
    }
}

fn server(store: &'static str) -> (Arc<Mutex<Kept>>, String) {
    let kept = Arc::new(Mutex::new(Kept { store, ..Kept::default() }));
    (kept.clone(), serve(kept))
}

const PROXIED: &str = "mlflow-artifacts:/0/ID/artifacts";

#[test]
fn a_run_arrives_whole_in_parts_that_the_server_takes() {
    let (kept, address) = server(PROXIED);
    let token = Credentials::Password("ada".into(), "secret".into());
    let server = Server::open(&format!("{address}/"), &token, "resnet").unwrap();
    let files = [Artifact::Text("report.html", "<p>page</p>")];
    let url = format!("{address}/#/experiments/0/runs/r0");
    assert_eq!(server.send(&run(), &files).unwrap(), Sent::New { url: url.clone(), without_files: None });
    let again = Server::open(&address, &token, "resnet").unwrap();
    assert_eq!(again.send(&run(), &files).unwrap(), Sent::Already { url });
    let kept = kept.lock().unwrap();
    let sent = &kept.runs["r0"];
    assert_eq!((kept.runs.len(), kept.experiments.len(), sent.status.as_str()), (1, 1, "FAILED"));
    assert_eq!((sent.params.len(), sent.metrics.len(), sent.largest_batch), (150, 2500, 1000));
    assert_eq!(sent.metrics[2499], json!({ "key": "a", "value": 2499.0, "timestamp": 3499, "step": 2499 }));
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
        let error = server.send(&run, &[Artifact::Text("a", "b")]).unwrap_err();
        assert_eq!(error.to_string(), format!("{address} answers 503: later\\u{{1b}}[2J"));
        kept.lock().unwrap().answers = None;
        let sent = server.send(&run, &[Artifact::Text("a", "b")]).unwrap();
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
fn files_that_only_mlflows_own_client_can_write_are_named() {
    let (_, address) = server("s3://bucket/ID");
    let server = Server::open(&address, &Credentials::None, "x").unwrap();
    let Sent::New { without_files: Some(why), .. } =
        server.send(&run(), &[Artifact::Text("a", "b")]).unwrap()
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
    assert!(open(&format!("http://{gone}")).to_string().contains("cannot be reached"));
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
