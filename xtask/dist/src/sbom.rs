//! Crates that the programs were linked from, as a CycloneDX document.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use xtask::shell;

use super::release::Release;
use super::tree::LIBRARIES;

/// Writes `radrm-VERSION.cdx.json`: every crate that the shipped programs and libraries depend on, with its version and
/// licence.
///
/// # Errors
/// cargo cannot resolve the dependencies.
pub fn write(release: &Release, out: &Path) -> Result<()> {
    let text = shell::read(shell::cargo().args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform=x86_64-unknown-linux-gnu",
    ]))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "radrm", "version": release.version } },
        "components": components(&metadata).context("the output of cargo metadata is not understood")?,
    });
    let file = out.join(format!("radrm-{}.cdx.json", release.version));
    std::fs::write(file, format!("{document:#}\n"))?;
    Ok(())
}

/// The crates from elsewhere that are reached by ordinary dependencies from what is shipped.
fn components(metadata: &Value) -> Option<Vec<Value>> {
    let packages: BTreeMap<&str, &Value> =
        metadata["packages"].as_array()?.iter().filter_map(|it| Some((it["id"].as_str()?, it))).collect();
    let nodes: BTreeMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()?
        .iter()
        .filter_map(|it| Some((it["id"].as_str()?, it)))
        .collect();
    let shipped = |package: &Value| {
        let name = package["name"].as_str();
        name == Some("radrm") || LIBRARIES.iter().any(|(_, library)| name == Some(library))
    };
    let mut open: Vec<&str> = packages.iter().filter(|(_, it)| shipped(it)).map(|(id, _)| *id).collect();
    let mut seen: BTreeSet<&str> = open.iter().copied().collect();
    while let Some(id) = open.pop() {
        for dependency in nodes.get(id)?["deps"].as_array()? {
            let is_linked = dependency["dep_kinds"].as_array()?.iter().any(|kind| kind["kind"].is_null());
            let to = dependency["pkg"].as_str()?;
            if is_linked && seen.insert(to) {
                open.push(to);
            }
        }
    }
    let external = seen.iter().filter_map(|id| packages.get(id)).filter(|it| !it["source"].is_null());
    let mut all: Vec<Value> = external
        .map(|it| {
            let (name, version) = (it["name"].as_str().unwrap_or("?"), it["version"].as_str().unwrap_or("?"));
            json!({
                "type": "library",
                "name": name,
                "version": version,
                "purl": format!("pkg:cargo/{name}@{version}"),
                "licenses": [{ "expression": it["license"].as_str().map(expression) }],
            })
        })
        .collect();
    all.sort_by_key(|it| it["purl"].as_str().map(str::to_owned));
    Some(all)
}

/// A licence as an SPDX expression. Older crates separate choices by a slash, which is none.
fn expression(license: &str) -> String {
    license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_expressions_of_spdx() {
        assert_eq!(expression("MIT/Apache-2.0"), "MIT OR Apache-2.0");
        assert_eq!(expression("Unlicense / MIT"), "Unlicense OR MIT");
        let whole = "(MIT OR Apache-2.0) AND Unicode-3.0";
        assert_eq!(expression(whole), whole);
    }

    #[test]
    fn only_what_is_linked_is_listed() {
        let package = |id: &str, source: Value| json!({"id": id, "name": id, "version": "1", "source": source, "license": "MIT"});
        let node = |id: &str, deps: Value| json!({"id": id, "deps": deps});
        let dep = |to: &str, kind: Value| json!({"pkg": to, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("radrm", Value::Null), package("linked", json!("r")), package("test-only", json!("r")),
                package("deeper", json!("r")), package("elsewhere", json!("r"))],
            "resolve": {"nodes": [
                node("radrm", json!([dep("linked", Value::Null), dep("test-only", json!("dev"))])),
                node("linked", json!([dep("deeper", Value::Null)])),
                node("deeper", json!([])), node("test-only", json!([])), node("elsewhere", json!([])),
            ]},
        });
        let names: Vec<_> = components(&metadata).unwrap().iter().map(|it| it["name"].clone()).collect();
        assert_eq!(names, ["deeper", "linked"]);
    }
}
