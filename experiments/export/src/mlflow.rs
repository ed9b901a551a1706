//! A server of MLflow, by its REST interface (version 2.0, which servers of MLflow 2 and 3 have).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::figure::Kind;
use crate::run::{Curve, End, Run};
use crate::web::{Credentials, Web, WebError};

mod artifacts;

use artifacts::Place;

/// Tells a run that was sent from all others.
const ID: &str = "radrm.run";

/// The tag by which MLflow shows a run below another.
pub const PARENT: &str = "mlflow.parentRunId";

/// Experiments that are looked through for runs of programs, and runs of one program.
const EXPERIMENTS: usize = 1000;
const CHILDREN: usize = 100;

/// Limits of one request: 1,000 values and 100 parameters or tags, as MLflow documents them.
const METRICS: usize = 1000;
const PARAMS: usize = 100;

/// Longest values: parameters since MLflow 2.8, tags of any version.
const MAX_PARAM: usize = 6000;
const MAX_TAG: usize = 5000;

/// A server, and an experiment on it.
pub struct Server {
    web: Web,
    experiment: String,
}

/// Result of sending a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is there now.
    New {
        /// Its page.
        url: String,
        /// Reason that its files are not there, if they are not.
        without_files: Option<String>,
    },
    /// It was there before.
    Already {
        /// Its page.
        url: String,
        /// Files that it lacked and has now.
        added: usize,
    },
}

/// A run that the server has.
struct Before {
    id: String,
    status: String,
    /// Place of its files.
    artifacts: Option<String>,
}

/// A file that belongs to a run.
pub enum Artifact<'a> {
    /// One of this machine, by its own name.
    File(&'a Path),
    /// A text under a name, which is made where it is sent.
    Text(&'a str, &'a dyn Fn() -> String),
}

impl Artifact<'_> {
    fn name(&self) -> String {
        match self {
            Self::File(file) => file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Self::Text(name, _) => (*name).to_owned(),
        }
    }
}

impl Server {
    /// Finds the experiment on the server at `address`, or makes it.
    ///
    /// # Errors
    /// The address is none, or the server cannot be reached or refuses.
    pub fn open(address: &str, credentials: &Credentials, experiment: &str) -> Result<Self, WebError> {
        let web = Web::new("MLflow", address, credentials)?;
        let experiment = find_or_make(&web, experiment)?;
        Ok(Self { web, experiment })
    }

    /// Sends a run with its files. One that was sent is left as it is but for files that it lacks; one of which only a part
    /// arrived is deleted and sent anew.
    ///
    /// # Errors
    /// The server cannot be reached or refuses: what arrived until then is marked as running there.
    pub fn send(&self, run: &Run, files: &[Artifact<'_>]) -> Result<Sent, WebError> {
        for Before { id, status, artifacts } in self.found(&run.id)? {
            if status != "RUNNING" {
                let place = artifacts.map(|uri| Place::of(&uri, &id, self.web.is_local()));
                let added = match place {
                    Some(Ok(place)) if !files.is_empty() => self.add_missing(&place, &id, files)?,
                    _ => 0,
                };
                return Ok(Sent::Already { url: self.page(&id), added });
            }
            self.web.post("/api/2.0/mlflow/runs/delete", &json!({ "run_id": id }))?;
        }
        let made = self.make(run)?;
        let info = made.pointer("/run/info").unwrap_or(&Value::Null);
        let id = self.text(info, "run_id")?;
        for body in batches(run, &id) {
            self.web.post("/api/2.0/mlflow/runs/log-batch", &body)?;
        }
        let place = Place::of(&self.text(info, "artifact_uri")?, &id, self.web.is_local());
        let without_files = match place {
            _ if files.is_empty() => None,
            Ok(place) => {
                files.iter().try_for_each(|file| self.put(&place, file))?;
                None
            }
            Err(store) => {
                Some(format!("the server keeps files in {store}, where only MLflow's own client writes"))
            }
        };
        let status = match run.end {
            End::Finished => "FINISHED",
            End::Failed => "FAILED",
            End::Killed => "KILLED",
        };
        let end = json!({ "run_id": id, "status": status, "end_time": run.ended_ms });
        self.web.post("/api/2.0/mlflow/runs/update", &end)?;
        Ok(Sent::New { url: self.page(&id), without_files })
    }

    /// Id of the run below which members of a group are shown, by an id that no other group has; it is made where it is not there.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub fn parent(&self, group: &str, name: &str, member: &Run) -> Result<String, WebError> {
        let known = self.found(group)?.into_iter().next();
        if let Some(known) = known.as_ref().filter(|known| known.status != "RUNNING") {
            return Ok(known.id.clone());
        }
        let id = match known {
            // The command ended before it was over.
            Some(known) => known.id,
            None => {
                let tags = BTreeMap::from([(ID.to_owned(), quoted(group))]);
                let body = json!({
                    "experiment_id": self.experiment,
                    "run_name": name,
                    "start_time": member.started_ms,
                    "tags": pairs(&tags, MAX_TAG),
                });
                let made = self.web.post("/api/2.0/mlflow/runs/create", &body)?;
                self.text(made.pointer("/run/info").unwrap_or(&Value::Null), "run_id")?
            }
        };
        let end = json!({ "run_id": id, "status": "FINISHED", "end_time": member.ended_ms });
        self.web.post("/api/2.0/mlflow/runs/update", &end)?;
        Ok(id)
    }

    /// Makes the runs that a program opened itself, by a tag of theirs, children of a run that was sent; gives their number.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub fn adopt(&self, run: &Run, tag: &str, value: &str) -> Result<usize, WebError> {
        let Some(own) = self.found(&run.id)?.into_iter().next() else { return Ok(0) };
        let found =
            self.web.post("/api/2.0/mlflow/experiments/search", &json!({ "max_results": EXPERIMENTS }))?;
        let experiments = found.get("experiments").and_then(Value::as_array);
        let ids = experiments.into_iter().flatten().filter_map(|one| one.get("experiment_id")?.as_str());
        let ids: Vec<&str> = ids.collect();
        let filter = format!("tags.`{tag}` = '{}'", quoted(value));
        let body = json!({ "experiment_ids": ids, "filter": filter, "max_results": CHILDREN });
        let found = self.web.post("/api/2.0/mlflow/runs/search", &body)?;
        let runs = found.get("runs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut adopted = 0;
        for child in runs {
            let id = self.text(child.get("info").unwrap_or(&Value::Null), "run_id")?;
            if id == own.id || has_tag(child, PARENT) {
                continue;
            }
            let body = json!({ "run_id": id, "key": PARENT, "value": own.id });
            self.web.post("/api/2.0/mlflow/runs/set-tag", &body)?;
            adopted += 1;
        }
        Ok(adopted)
    }

    /// Sends the files that a run on the server lacks; gives their number.
    fn add_missing(&self, place: &Place, id: &str, files: &[Artifact<'_>]) -> Result<usize, WebError> {
        let there = match place {
            Place::Folder(folder) => artifacts::names(folder),
            Place::Server(_) => self.listed(id)?,
        };
        let missing: Vec<_> = files.iter().filter(|file| !there.contains(&file.name())).collect();
        missing.iter().try_for_each(|file| self.put(place, file))?;
        Ok(missing.len())
    }

    /// Names of a run's files on the server.
    fn listed(&self, id: &str) -> Result<BTreeSet<String>, WebError> {
        let found = self.web.get("/api/2.0/mlflow/artifacts/list", &[("run_id", id)])?;
        let files = found.get("files").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let path = |file: &Value| file.get("path").and_then(Value::as_str).map(str::to_owned);
        Ok(files.iter().filter_map(path).collect())
    }

    /// Runs of that id on the server.
    fn found(&self, id: &str) -> Result<Vec<Before>, WebError> {
        let filter = format!("tags.`{ID}` = '{}'", quoted(id));
        let body = json!({ "experiment_ids": [self.experiment], "filter": filter, "max_results": 10 });
        let found = self.web.post("/api/2.0/mlflow/runs/search", &body)?;
        let runs = found.get("runs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let info = |run: &Value| {
            let info = run.get("info").unwrap_or(&Value::Null);
            let artifacts = self.text(info, "artifact_uri").ok();
            Ok(Before { id: self.text(info, "run_id")?, status: self.text(info, "status")?, artifacts })
        };
        runs.iter().map(info).collect()
    }

    fn make(&self, run: &Run) -> Result<Value, WebError> {
        let mut tags = run.tags.clone();
        tags.insert(ID.to_owned(), quoted(&run.id));
        tags.insert("mlflow.source.type".to_owned(), "LOCAL".to_owned());
        if let Some(command) = run.params.get("command") {
            tags.insert("mlflow.source.name".to_owned(), command.clone());
        }
        if let Some(user) = &run.user {
            tags.insert("mlflow.user".to_owned(), user.clone());
        }
        let body = json!({
            "experiment_id": self.experiment,
            "run_name": run.name,
            "start_time": run.started_ms,
            "tags": pairs(&tags, MAX_TAG),
        });
        self.web.post("/api/2.0/mlflow/runs/create", &body)
    }

    fn put(&self, place: &Place, file: &Artifact<'_>) -> Result<(), WebError> {
        let name = file.name();
        let folder = match place {
            Place::Server(folder) => folder,
            Place::Folder(folder) => return artifacts::write(folder, &name, file),
        };
        let path = format!("/api/2.0/mlflow-artifacts/artifacts/{folder}/{}", escaped(&name));
        match file {
            Artifact::File(file) => self.web.put_file(&path, file),
            Artifact::Text(_, text) => self.web.put_bytes(&path, text().as_bytes()),
        }
    }

    fn page(&self, id: &str) -> String {
        format!("{}/#/experiments/{}/runs/{id}", self.web.base(), self.experiment)
    }

    fn text(&self, value: &Value, name: &str) -> Result<String, WebError> {
        text(&self.web, value, name)
    }
}

/// A value as the server's filters can have it: they have no way to write a quote.
fn quoted(value: &str) -> String {
    value.replace('\'', "_")
}

fn has_tag(run: &Value, name: &str) -> bool {
    let tags = run.pointer("/data/tags").and_then(Value::as_array);
    tags.into_iter().flatten().any(|tag| tag.get("key").and_then(Value::as_str) == Some(name))
}

fn text(web: &Web, value: &Value, name: &str) -> Result<String, WebError> {
    let text = value.get(name).and_then(Value::as_str).map(str::to_owned);
    text.ok_or_else(|| web.strange())
}

fn find_or_make(web: &Web, name: &str) -> Result<String, WebError> {
    if let Some(found) = find(web, name)? {
        return Ok(found);
    }
    match web.post("/api/2.0/mlflow/experiments/create", &json!({ "name": name })) {
        Ok(made) => text(web, &made, "experiment_id"),
        // Another one made it meanwhile.
        Err(error @ WebError::Refused { .. }) => find(web, name)?.ok_or(error),
        Err(error) => Err(error),
    }
}

fn find(web: &Web, name: &str) -> Result<Option<String>, WebError> {
    match web.get("/api/2.0/mlflow/experiments/get-by-name", &[("experiment_name", name)]) {
        Ok(found) => text(web, found.get("experiment").unwrap_or(&Value::Null), "experiment_id").map(Some),
        Err(WebError::Refused { code: Some(code), .. }) if code == "RESOURCE_DOES_NOT_EXIST" => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bodies of the requests that carry a run's parameters and values.
fn batches(run: &Run, id: &str) -> Vec<Value> {
    let params: Vec<_> = run.params.iter().map(|(name, value)| pair(name, value, MAX_PARAM)).collect();
    let params = params.chunks(PARAMS).map(|params| json!({ "run_id": id, "params": params }));
    let logged = run.metrics.iter().map(|(name, metric)| {
        let step = metric.step.unwrap_or(0);
        json!({ "key": key(name), "value": metric.last, "timestamp": run.ended_ms, "step": step })
    });
    let metrics: Vec<_> = run.curves.iter().flat_map(metrics).chain(logged).collect();
    let metrics = metrics.chunks(METRICS).map(|metrics| json!({ "run_id": id, "metrics": metrics }));
    params.chain(metrics).collect()
}

fn metrics(curve: &Curve) -> impl Iterator<Item = Value> {
    let key = key(&curve.name());
    (0_u64..).zip(until_the_end(curve)).map(move |(step, (at, value))| {
        json!({ "key": key, "value": curve.figure.scale.of(*value), "timestamp": at, "step": step })
    })
}

/// The points of a curve. MLflow shows the last one as the figure of the run, and of memory that is what was left when the
/// program had freed all: the curve ends before that.
fn until_the_end(curve: &Curve) -> &[(u64, f64)] {
    let held = curve.points.iter().rposition(|(_, value)| *value > 0.0);
    match held.filter(|_| curve.figure.kind == Kind::Level) {
        Some(last) => &curve.points[..=last],
        None => &curve.points,
    }
}

fn pairs(all: &BTreeMap<String, String>, longest: usize) -> Vec<Value> {
    all.iter().map(|(name, value)| pair(name, value, longest)).collect()
}

fn pair(name: &str, value: &str, longest: usize) -> Value {
    let value: String = value.chars().take(longest).collect();
    json!({ "key": key(name), "value": value })
}

/// A name as MLflow takes it: letters, digits and `_-. :/`, at most 250 of them.
fn key(name: &str) -> String {
    let is_taken = |letter: char| letter.is_alphanumeric() || "_-. :/".contains(letter);
    name.chars().map(|letter| if is_taken(letter) { letter } else { '_' }).take(250).collect()
}

/// A file's name in the path of an address (RFC 3986).
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure;

    #[test]
    fn names_are_such_as_the_server_takes() {
        assert_eq!(key("radrm/gpu_0 a.b-c:d"), "radrm/gpu_0 a.b-c:d");
        assert_eq!(key("lr,µ=%\u{202e}"), "lr_µ___");
        assert_eq!(key(&"x".repeat(300)).len(), 250);
        assert_eq!(escaped("a b/%.radrm"), "a%20b%2F%25.radrm");
    }

    #[test]
    fn the_last_value_of_memory_is_not_what_was_freed_at_the_end() {
        let curve = |figure, points: &[f64]| Curve {
            figure,
            gpu: Some(0),
            points: (0..).zip(points.iter().copied()).collect(),
        };
        let last = |curve: &Curve| metrics(curve).last().unwrap()["value"].as_f64().unwrap();
        assert_eq!(last(&curve(&figure::MEMORY, &[0.0, 3e6, 2e6, 0.0, 0.0])), 2.0);
        assert_eq!(last(&curve(&figure::MEMORY, &[0.0])), 0.0);
        assert_eq!(last(&curve(&figure::GPU_UTILIZATION, &[0.5, 0.0])), 0.0, "an idle GPU is a figure");
    }
}
