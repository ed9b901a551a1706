//! Figures of runs for OpenTelemetry: OTLP 1.x over HTTP, in its JSON encoding.
//!
//! A run is a resource, a figure a metric with its semantic conventions' name where they have one. Values keep the times at
//! which they were measured, so sending a run again changes nothing at a store that keeps one value for a moment.

use serde_json::{Value, json};

use crate::figure::Kind;
use crate::run::{Curve, Gpu, Run};
use crate::web::{Credentials, Web, WebError};

/// Values in one request: some hundred kB of JSON, where collectors take some MB.
const POINTS: usize = 1000;

/// Result of sending one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Values that were sent.
    pub points: usize,
    /// Values that the receiver did not take.
    pub rejected: u64,
    /// Its words on that.
    pub words: String,
}

/// A receiver of OTLP over HTTP.
pub struct Receiver {
    web: Web,
    path: &'static str,
}

impl Receiver {
    /// At a base address, to which `/v1/metrics` is added, or at the whole address of metrics.
    ///
    /// # Errors
    /// The address is none.
    pub fn new(address: &str, is_whole: bool, headers: Vec<(String, String)>) -> Result<Self, WebError> {
        let open = if is_whole { Web::at } else { Web::new };
        let web = open("a receiver of OTLP", address, &Credentials::None)?.with_headers(headers);
        Ok(Self { web, path: if is_whole { "" } else { "/v1/metrics" } })
    }

    /// Sends a run's figures.
    ///
    /// # Errors
    /// The receiver cannot be reached or refuses: what was sent until then may be there.
    pub fn send(&self, run: &Run) -> Result<Sent, WebError> {
        let mut sent = Sent { points: 0, rejected: 0, words: String::new() };
        for (body, points) in requests(run) {
            let answer = match self.web.post(self.path, &body) {
                Ok(answer) => answer,
                // As Prometheus answers to values that are older than its newest, or there already.
                Err(WebError::Refused { status: 400, words, .. }) => {
                    json!({ "partialSuccess": { "rejectedDataPoints": points, "errorMessage": words } })
                }
                Err(error) => return Err(error),
            };
            let part = &answer["partialSuccess"];
            // Numbers of 64 bits are strings in this encoding, and receivers differ.
            let rejected = &part["rejectedDataPoints"];
            let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0);
            if let Some(words) = part["errorMessage"].as_str().filter(|words| !words.is_empty()) {
                words.clone_into(&mut sent.words);
            }
            sent.points += points;
            sent.rejected += rejected;
        }
        Ok(sent)
    }
}

/// Bodies of requests, each with its number of values.
fn requests(run: &Run) -> Vec<(Value, usize)> {
    let curves: Vec<_> = run.curves.iter().map(|curve| (curve, last_of_each_moment(&curve.points))).collect();
    let parts =
        curves.iter().flat_map(|(curve, points)| points.chunks(POINTS).map(move |part| (*curve, part)));
    let mut requests: Vec<(Vec<Value>, usize)> = Vec::new();
    for (curve, points) in parts {
        let metric = metric(run, curve, points);
        match requests.last_mut() {
            Some((metrics, count)) if *count + points.len() <= POINTS => {
                metrics.push(metric);
                *count += points.len();
            }
            _ => requests.push((vec![metric], points.len())),
        }
    }
    let resource = resource(run);
    let scope = json!({ "name": "radrm", "version": env!("CARGO_PKG_VERSION") });
    let whole = |metrics: Vec<Value>| {
        let scoped = json!([{ "scope": scope, "metrics": metrics }]);
        json!({ "resourceMetrics": [{ "resource": { "attributes": resource }, "scopeMetrics": scoped }] })
    };
    requests.into_iter().map(|(metrics, count)| (whole(metrics), count)).collect()
}

/// The last value of each moment: receivers take one.
fn last_of_each_moment(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let mut kept: Vec<(u64, f64)> = Vec::with_capacity(points.len());
    for point in points {
        match kept.last_mut().filter(|last| last.0 == point.0) {
            Some(last) => *last = *point,
            None => kept.push(*point),
        }
    }
    kept
}

/// Attributes of the run that the figures are of.
fn resource(run: &Run) -> Vec<Value> {
    let mut attributes = vec![
        attribute("service.name", "radrm"),
        attribute("service.instance.id", &run.id),
        attribute("radrm.run.name", &run.name),
        attribute("radrm.run.end", run.end.word()),
    ];
    attributes.extend(run.user.iter().map(|user| attribute("process.owner", user)));
    for (name, value) in &run.params {
        let known = (name == "command").then(|| "process.command_line".to_owned());
        attributes.push(attribute(&known.unwrap_or_else(|| format!("radrm.param.{name}")), value));
    }
    for (name, value) in &run.tags {
        attributes.push(attribute(if name == "radrm.host" { "host.name" } else { name }, value));
    }
    attributes
}

fn metric(run: &Run, curve: &Curve, points: &[(u64, f64)]) -> Value {
    let figure = curve.figure;
    let gpu = curve.gpu.and_then(|index| run.gpus.iter().find(|gpu| gpu.index == index));
    let mut attributes = gpu.map(hardware).unwrap_or_default();
    if figure.otel == "hw.gpu.utilization" {
        attributes.push(attribute("hw.gpu.task", "general"));
    }
    let point = |(at, value): &(u64, f64)| {
        json!({
            "attributes": attributes,
            "startTimeUnixNano": nanoseconds(run.started_ms),
            "timeUnixNano": nanoseconds(*at),
            "asDouble": value,
        })
    };
    let points: Vec<Value> = points.iter().map(point).collect();
    // 2: cumulative.
    let sum = |monotonic: bool| json!({ "dataPoints": points, "aggregationTemporality": 2, "isMonotonic": monotonic });
    let (kind, data) = match figure.kind {
        Kind::Gauge => ("gauge", json!({ "dataPoints": points })),
        Kind::Level => ("sum", sum(false)),
        Kind::Counter => ("sum", sum(true)),
    };
    json!({ "name": figure.otel, "unit": figure.unit, kind: data })
}

/// Attributes of a GPU in the conventions for hardware.
fn hardware(gpu: &Gpu) -> Vec<Value> {
    let mut attributes = vec![
        attribute("hw.id", &gpu.uuid),
        attribute("hw.type", "gpu"),
        attribute("hw.model", &gpu.model),
        attribute("hw.name", &format!("GPU {}", gpu.index)),
        attribute("hw.vendor", "NVIDIA"),
    ];
    attributes.extend(gpu.driver.iter().map(|version| attribute("hw.driver_version", version)));
    attributes
}

fn attribute(name: &str, value: &str) -> Value {
    json!({ "key": name, "value": { "stringValue": value } })
}

/// Numbers of 64 bits are strings in this encoding.
fn nanoseconds(ms: u64) -> String {
    ms.saturating_mul(1_000_000).to_string()
}
