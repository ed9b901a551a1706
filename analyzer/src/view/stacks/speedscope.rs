//! The file format of speedscope.

use super::{names, prefix};
use crate::model::stacks::Flame;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One profile for each of the titled lists of flames and each flame in them.
pub fn speedscope(name: &str, lists: &[(String, Vec<Flame>)]) -> String {
    let mut numbers = BTreeMap::<String, usize>::new();
    let mut frames = Vec::new();
    let mut profiles = Vec::new();
    for (title, flames) in lists {
        for flame in flames {
            let prefix = prefix(flames, flame);
            let mut samples = Vec::new();
            for stack in &flame.stacks {
                let mut sample = Vec::new();
                for (at, name) in names(&prefix, stack).into_iter().enumerate() {
                    let number = *numbers.entry(name.clone()).or_insert_with(|| {
                        let label = at.checked_sub(prefix.len()).and_then(|at| stack.frames.get(at));
                        let file = label.and_then(|label| label.file.as_deref());
                        let line = label.and_then(|label| label.line);
                        frames.push(frame(&name, file, line));
                        frames.len() - 1
                    });
                    sample.push(number);
                }
                samples.push(sample);
            }
            let process = flame.pid.map_or(String::new(), |pid| format!(", pid {pid}"));
            let weights: Vec<u64> = flame.stacks.iter().map(|stack| stack.bytes.0).collect();
            profiles.push(json!({
                "type": "sampled",
                "name": format!("{title}{process}, GPU {}", flame.gpu.0),
                "unit": "bytes",
                "startValue": 0,
                "endValue": flame.total().0,
                "samples": samples,
                "weights": weights,
            }));
        }
    }
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": name,
        "exporter": concat!("radrm ", env!("CARGO_PKG_VERSION")),
        "activeProfileIndex": 0,
        "shared": { "frames": frames },
        "profiles": profiles,
    });
    format!("{file}\n")
}

fn frame(name: &str, file: Option<&str>, line: Option<u32>) -> Value {
    let mut frame = json!({ "name": name });
    if let Some(file) = file {
        frame["file"] = file.into();
    }
    if let Some(line) = line {
        frame["line"] = line.into();
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::super::tests::flame;
    use super::*;

    #[test]
    fn samples_name_frames_and_weights_add_up() {
        let lists = ["peak", "end"].map(|title| (title.to_owned(), vec![flame(7, 0)]));
        let file: Value = serde_json::from_str(&speedscope("a run", &lists)).unwrap();
        let frames = file["shared"]["frames"].as_array().unwrap();
        assert_eq!(frames.len(), 3, "frames are shared: {frames:?}");
        let profiles = file["profiles"].as_array().unwrap();
        assert_eq!(profiles.len(), 2);
        let first = &profiles[0];
        assert_eq!((&first["endValue"], &first["weights"]), (&json!(701), &json!([700, 1])));
        assert_eq!(first["samples"], json!([[0, 1], [2]]));
        assert_eq!(frames[1], json!({"name": "a;b\nc (a.cpp:5)", "file": "/src/a.cpp", "line": 5}));
    }
}
