//! Tests of requests to a receiver of OTLP.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver as Requests, channel};

use radrm_export::otlp::{Receiver, Sent};
use radrm_export::{Curve, End, Gpu, Run, figure};
use serde_json::{Value, json};

use crate::http::{Request, serve};

fn receiver(status: u16, answer: Value) -> (String, Requests<Request>) {
    let (sender, requests) = channel();
    let address = serve(move |request| {
        sender.send(request).unwrap();
        (status, answer.clone())
    });
    (address, requests)
}

fn run() -> Run {
    let points = |count: u64| (0..count).map(|at| (1000 + at, at as f64)).collect();
    let of = |figure, count| Curve { figure, gpu: Some(0), points: points(count) };
    let gpu = Gpu { index: 0, uuid: "GPU-1".into(), model: "T4".into(), driver: Some("570.1".into()) };
    Run {
        id: "host-1-2".into(),
        name: "train".into(),
        user: None,
        started_ms: 1000,
        ended_ms: 5000,
        end: End::Finished,
        params: BTreeMap::from([("command".into(), "train.py".into()), ("batch".into(), "8".into())]),
        tags: BTreeMap::from([("radrm.host".into(), "node1".into())]),
        curves: vec![
            Curve { figure: &figure::LAUNCHES, gpu: None, points: vec![(5000, 12.0)] },
            of(&figure::GPU_MEMORY, 2500),
            of(&figure::GPU_POWER, 1),
        ],
        gpus: vec![gpu],
        metrics: BTreeMap::new(),
    }
}

/// The metrics of a request, each with its points.
fn metrics(request: &Request) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap().clone()
}

fn values(attributes: &Value) -> BTreeMap<&str, &str> {
    let attributes = attributes.as_array().unwrap().iter();
    attributes
        .map(|one| (one["key"].as_str().unwrap(), one["value"]["stringValue"].as_str().unwrap()))
        .collect()
}

#[test]
fn figures_arrive_with_their_conventions_names_in_requests_of_bounded_size() {
    let (address, requests) = receiver(200, json!({}));
    let headers = vec![("authorization".to_owned(), "Bearer x".to_owned())];
    let sent = Receiver::new(&address, false, headers).unwrap().send(&run()).unwrap();
    assert_eq!(sent, Sent { points: 2502, rejected: 0, words: String::new() });
    let requests: Vec<Request> = requests.try_iter().collect();
    let mut points: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for request in &requests {
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/metrics"));
        assert_eq!(request.headers["authorization"], "Bearer x");
        assert_eq!(request.headers["content-type"], "application/json");
        let mut count = 0;
        for metric in metrics(request) {
            let kind = if metric["gauge"].is_object() { "gauge" } else { "sum" };
            let own = metric[kind]["dataPoints"].as_array().unwrap().clone();
            count += own.len();
            let shape = &metric[kind];
            let shape = format!("{kind} {} {}", metric["unit"], shape["isMonotonic"]);
            points.entry(format!("{} {shape}", metric["name"].as_str().unwrap())).or_default().extend(own);
        }
        assert!((1..=1000).contains(&count), "{count}");
    }
    let counts: BTreeMap<_, _> = points.iter().map(|(name, points)| (name.as_str(), points.len())).collect();
    let expected = [
        ("hw.gpu.memory.usage sum \"By\" false", 2500),
        ("hw.power gauge \"W\" null", 1),
        ("radrm.launches sum \"{launch}\" true", 1),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
    let last = &points["hw.gpu.memory.usage sum \"By\" false"][2499];
    assert_eq!((&last["asDouble"], &last["timeUnixNano"]), (&json!(2499.0), &json!("3499000000")));
    let hardware = values(&last["attributes"]);
    assert_eq!((hardware["hw.id"], hardware["hw.type"], hardware["hw.model"]), ("GPU-1", "gpu", "T4"));
    let body: Value = serde_json::from_slice(&requests[0].body).unwrap();
    let resource = values(&body["resourceMetrics"][0]["resource"]["attributes"]);
    assert_eq!((resource["host.name"], resource["process.command_line"]), ("node1", "train.py"));
    assert_eq!((resource["radrm.param.batch"], resource["service.instance.id"]), ("8", "host-1-2"));
}

#[test]
fn what_the_receiver_does_not_take_is_reported() {
    let partial = json!({ "partialSuccess": { "rejectedDataPoints": "3", "errorMessage": "too old" } });
    let (address, _requests) = receiver(200, partial);
    let sent = Receiver::new(&address, false, Vec::new()).unwrap().send(&run()).unwrap();
    // In each of four requests.
    assert_eq!((sent.rejected % 3, sent.words.as_str()), (0, "too old"));
    assert!(sent.rejected >= 9, "{sent:?}");
    // As Prometheus does for old values. A value that another of the same moment replaces is not sent.
    let (address, requests) = receiver(400, json!({ "message": "out of order sample\nmore" }));
    let mut old = run();
    old.curves[2].points = vec![(1000, 1.0), (1000, 2.0)];
    let sent = Receiver::new(&address, false, Vec::new()).unwrap().send(&old).unwrap();
    assert_eq!((sent.points, sent.rejected, sent.words.as_str()), (2502, 2502, "out of order sample"));
    assert!(requests.try_iter().any(|request| {
        let all = metrics(&request);
        all.iter().any(|one| one["name"] == "hw.power" && one["gauge"]["dataPoints"][0]["asDouble"] == 2.0)
    }));
    // A redirection is not followed: headers may be secret.
    let (address, _requests) = receiver(302, json!({}));
    let error = Receiver::new(&address, false, Vec::new()).unwrap().send(&run()).unwrap_err();
    assert_eq!(error.to_string(), format!("{address} answers 302"));
    let error = Receiver::new("http://h/?api-key=secret", false, Vec::new()).err().unwrap().to_string();
    assert!(error.contains("http://h/") && !error.contains("secret"), "{error}");
    let (address, requests) = receiver(401, json!({ "message": "no token" }));
    let error = Receiver::new(&format!("{address}/own?key=secret"), true, Vec::new())
        .unwrap()
        .send(&run())
        .unwrap_err();
    assert_eq!(error.to_string(), format!("{address}/own answers 401: no token"));
    assert_eq!(requests.recv().unwrap().path, "/own?key=secret");
}
