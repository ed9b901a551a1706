//! The devices of `radrm cdi generate`, checked with the schema that the interface publishes, and what `radrm cdi apply`
//! starts.

use std::fs;

use serde_json::{Value, json};

use crate::common::{Place, finish};

/// The schema, and what it refers to.
struct Schema {
    whole: Value,
    definitions: Value,
}

impl Schema {
    fn published() -> Self {
        let read = |text| serde_json::from_str(text).unwrap();
        Self {
            whole: read(include_str!("../data/cdi/schema.json")),
            definitions: read(include_str!("../data/cdi/defs.json")),
        }
    }

    /// Checks a document by draft 7 of JSON Schema.
    fn check(&self, document: &Value) -> Result<(), String> {
        self.check_part(&self.whole, document, "")
    }

    fn check_part(&self, schema: &Value, part: &Value, at: &str) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("{at}: {what}"));
        for (keyword, value) in schema.as_object().unwrap() {
            match keyword.as_str() {
                // `ref` is a slip of the published file, and no keyword.
                "$schema" | "description" | "ref" => {}
                "$ref" => {
                    let (_, pointer) = value.as_str().unwrap().split_once('#').unwrap();
                    self.check_part(self.definitions.pointer(pointer).unwrap(), part, at)?;
                }
                "type" => {
                    let is = match value.as_str().unwrap() {
                        "object" => part.is_object(),
                        "array" => part.is_array(),
                        "string" => part.is_string(),
                        "boolean" => part.is_boolean(),
                        "integer" => part.is_i64() || part.is_u64(),
                        other => panic!("the type {other} is not known here"),
                    };
                    if !is {
                        return wrong(&format!("is no {value}"));
                    }
                }
                "required" => {
                    for name in value.as_array().unwrap() {
                        if part.is_object() && part.get(name.as_str().unwrap()).is_none() {
                            return wrong(&format!("lacks {name}"));
                        }
                    }
                }
                "properties" => {
                    for (name, schema) in value.as_object().unwrap() {
                        if let Some(part) = part.get(name) {
                            self.check_part(schema, part, &format!("{at}/{name}"))?;
                        }
                    }
                }
                "items" => {
                    for (number, item) in part.as_array().into_iter().flatten().enumerate() {
                        self.check_part(value, item, &format!("{at}/{number}"))?;
                    }
                }
                "minimum" if part.as_f64() < value.as_f64() => return wrong("is too small"),
                "maximum" if part.as_f64() > value.as_f64() => return wrong("is too large"),
                "minimum" | "maximum" => {}
                other => panic!("the keyword {other} is not known here"),
            }
        }
        Ok(())
    }
}

/// Document that `radrm cdi generate` writes with these words.
fn generated(words: &[&str]) -> Value {
    let place = Place::new();
    let mut all = vec!["cdi", "generate", "--output", "cdi/radrm.json", "--folder", "limits"];
    all.extend(words);
    finish(&mut place.command(env!("CARGO_BIN_EXE_radrm"), &all)).code(0);
    let document = serde_json::from_slice(&fs::read(place.join("cdi/radrm.json")).unwrap()).unwrap();
    for device in devices(&document) {
        for mount in device["containerEdits"]["mounts"].as_array().unwrap() {
            let path = mount["hostPath"].as_str().unwrap();
            assert!(fs::metadata(path).is_ok(), "{path} is not there to be mounted");
        }
    }
    document
}

fn devices(document: &Value) -> &[Value] {
    document["devices"].as_array().unwrap()
}

#[test]
fn the_specification_holds_to_the_published_schema() {
    let schema = Schema::published();
    for (words, number) in [(&["2GiB", "50%", "--preload"][..], 2), (&[], 12)] {
        let document = generated(words);
        assert_eq!(schema.check(&document), Ok(()));
        assert_eq!(devices(&document).len(), number);
    }
}

#[test]
fn the_schema_is_applied_to_every_part() {
    let schema = Schema::published();
    let good = generated(&["2GiB"]);
    let mount = "/devices/0/containerEdits/mounts/0";
    for (at, value, expected) in [
        ("", json!([]), ": is no \"object\""),
        ("/cdiVersion", json!(5), "/cdiVersion: is no \"string\""),
        ("/devices", json!({}), "/devices: is no \"array\""),
        ("/devices/0", json!({ "name": "x" }), "/devices/0: lacks \"containerEdits\""),
        (
            "/devices/0/containerEdits",
            json!({ "env": "A=b" }),
            "/devices/0/containerEdits/env: is no \"array\"",
        ),
        (mount, json!({ "hostPath": "/a" }), "/devices/0/containerEdits/mounts/0: lacks \"containerPath\""),
        (
            "/devices/0/containerEdits/mounts/0/options",
            json!([1]),
            "/devices/0/containerEdits/mounts/0/options/0: is no \"string\"",
        ),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(at).unwrap() = value;
        assert_eq!(schema.check(&bad), Err(expected.to_owned()));
    }
}

#[test]
fn a_container_is_started_unless_its_limit_cannot_hold() {
    let place = Place::new();
    let apply = |given: Option<&str>, runtime: &[&str]| {
        let words = [&["cdi", "apply", "bundle", "--"][..], runtime].concat();
        let mut command = place.command(env!("CARGO_BIN_EXE_radrm"), &words);
        if let Some(given) = given {
            command.env("RADRM_CONTAINER", given);
        }
        finish(&mut command)
    };
    let runtime = ["/bin/sh", "-c", "echo \"runs: $RADRM_CONTAINER\"; exit 7"];
    // There is no bundle yet.
    for given in [None, Some("")] {
        assert_eq!(apply(given, &runtime).code(7).text(), "runs: \n");
    }
    apply(Some("limited\nA=1"), &runtime)
        .code(125)
        .one_sentence("the container is not started: bundle/config.json");
    apply(Some("anything"), &runtime).code(125).one_sentence("RADRM_CONTAINER");
    let unrecorded = apply(Some("recorded\nA=1"), &runtime);
    assert!(unrecorded.code(7).text().contains("runs: "));
    unrecorded.one_sentence("nothing of the container is recorded");
    apply(None, &["/nowhere/runtime"]).code(125).one_sentence("/nowhere/runtime cannot be executed");
    apply(None, &[]).code(2);
    fs::create_dir(place.join("bundle")).unwrap();
    // SAFETY: always works.
    let uid = unsafe { libc::geteuid() };
    let configuration = json!({ "process": { "user": { "uid": uid }, "env": ["A=0"] } });
    fs::write(place.join("bundle/config.json"), configuration.to_string()).unwrap();
    apply(Some("limited\nA=1"), &runtime).code(7);
    let changed: Value =
        serde_json::from_slice(&fs::read(place.join("bundle/config.json")).unwrap()).unwrap();
    assert_eq!(changed["process"]["env"], json!(["A=1"]));
}
