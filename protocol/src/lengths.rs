//! Lengths of what a client writes into a specification: the daemon keeps all of it, and lists it.

use crate::ProtocolError;
use crate::bounds::{MAX_BYTES, MAX_ESTIMATES, MAX_NAME, MAX_PATH, MAX_SOURCE, MAX_WORD};
use crate::spec::Spec;

impl Spec {
    /// Checks that all that its user wrote is of bounded length: the daemon keeps it, and lists it.
    pub(crate) fn check_lengths(&self, command: &[String]) -> Result<(), ProtocolError> {
        let long = |word: &&String| word.len() >= MAX_WORD;
        let too_long = |what, word: &String| ProtocolError::LongWord { what, bytes: word.len() };
        if let Some(word) = command.iter().find(long) {
            return Err(too_long("a word of the job's command".to_owned(), word));
        }
        if let Some(variable) = self.environment.iter().find(long) {
            let name: String = variable.split('=').next().unwrap_or_default().chars().take(64).collect();
            return Err(too_long(format!("{name} in the environment"), variable));
        }
        let sum: usize = command.iter().chain(&self.environment).map(|word| word.len() + 1).sum();
        if sum > MAX_BYTES {
            return Err(ProtocolError::LongCommand(sum >> 10));
        }
        if self.file_estimates.len() > MAX_ESTIMATES {
            return Err(ProtocolError::ManyEstimates);
        }
        let source = self.estimate.as_ref().and_then(|estimate| estimate.source.as_ref());
        let bytes = source.map_or(0, |source| source.to_text().len());
        if bytes > MAX_SOURCE {
            return Err(ProtocolError::LongName { what: "estimate's source", bytes });
        }
        let run = self.dry_run.as_ref();
        let gpu = run.map_or("", |run| &run.gpu);
        let framework = run.and_then(|run| run.framework.as_deref());
        let no_bound = run.and_then(|run| run.no_bound.as_deref());
        let names = self.file_estimates.keys().map(|name| ("estimator", name.as_str()));
        let names = names.chain([
            ("name", self.name.raw()),
            ("GPU model", self.model.as_deref().unwrap_or_default()),
            ("dry run's GPU model", gpu),
            ("dry run's framework", framework.unwrap_or_default()),
            ("dry run's reason for no bound", no_bound.unwrap_or_default()),
        ]);
        for (what, text) in names {
            if text.len() > MAX_NAME {
                return Err(ProtocolError::LongName { what, bytes: text.len() });
            }
        }
        for path in [Some(&self.cwd), self.output.as_ref(), self.error.as_ref()].into_iter().flatten() {
            let bytes = path.as_os_str().len();
            if bytes >= MAX_PATH {
                return Err(ProtocolError::LongPath(bytes));
            }
        }
        if self.summary.as_ref().is_some_and(|summary| !summary.layers.is_empty()) {
            return Err(ProtocolError::Layers);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use radrm_need::{DryRun, Source, StepPrediction, UserEstimate};
    use radrm_scheduler_core::{Bytes, LatencyTarget, Permille, Target};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_submission_is_no_larger_than_what_a_program_can_be_given() {
        let good = Spec { command: vec!["a".into()], cwd: "/".into(), gpus: 1, ..Spec::default() };
        let word = |bytes: usize| "x".repeat(bytes);
        let at_most = Spec {
            command: vec![word((128 << 10) - 1); 8],
            environment: vec![word((128 << 10) - 1); 8],
            name: word(256).into(),
            ..good.clone()
        };
        at_most.check().unwrap();
        let path = PathBuf::from(format!("/{}", word(4095)));
        let long = Source::File { estimator: word(4096) };
        let estimate = UserEstimate { bytes: Bytes(1), upper: Bytes(1), ..UserEstimate::default() };
        for (bad, part) in [
            (Spec { command: vec![word(128 << 10)], ..good.clone() }, "128 KiB"),
            (Spec { environment: vec![format!("LONG={}", word(8 << 20))], ..good.clone() }, "LONG in the"),
            (Spec { environment: vec![word(1000); 2100], ..good.clone() }, "2 MiB is the most"),
            (Spec { command: vec![word(100_000); 22], ..good.clone() }, "2 MiB is the most"),
            (Spec { name: word(257).into(), ..good.clone() }, "name has 257"),
            (Spec { model: Some(word(257)), ..good.clone() }, "GPU model"),
            (
                Spec {
                    estimate: Some(UserEstimate { source: Some(long), ..estimate.clone() }),
                    ..good.clone()
                },
                "estimate's source has 41",
            ),
            (
                Spec {
                    dry_run: Some(DryRun { framework: Some(word(257)), ..DryRun::default() }),
                    ..good.clone()
                },
                "framework",
            ),
            (Spec { output: Some(path.clone()), ..good.clone() }, "a path of the job"),
            (Spec { cwd: path, ..good.clone() }, "a path of the job"),
        ] {
            let text = bad.check().unwrap_err().to_string();
            assert!(text.contains(part) && text.lines().count() == 1 && text.len() < 200, "{text}");
        }
    }

    /// A specification with a value in each of its fields, as a client sends it. The parts that hold texts state all of
    /// their fields: a new one has to be given a value here.
    fn full() -> Value {
        let run = DryRun {
            held: Bytes(1),
            kind: None,
            steps: 3,
            gpu: "A100".to_owned(),
            framework: Some("PyTorch".to_owned()),
            card: Some(Bytes(7)),
            no_bound: Some("shapes vary".to_owned()),
            step: Some(Box::new(StepPrediction {
                gpu: [1, 2, 3],
                host: Some(1),
                low: 1,
                time: Some([1, 2, 3]),
                confidence: Some(Permille(900)),
                smact: Permille(100),
                drama: Permille(100),
                runs: 7,
            })),
            background: true,
        };
        let file = json!({"file": {"estimator": "horus"}});
        let source = json!({"combined": {"said": [{"source": file, "bytes": 1, "weight": 1}], "stretch": 1}});
        let of = Some("request".to_owned());
        let latency = LatencyTarget { quantile: Permille(990), limit_ns: 20_000_000, of };
        let target = Target { latency: Some(latency), speed: Some(Permille(500)) };
        json!({"name": "n", "command": ["a", "b"], "cwd": "/c", "environment": ["A=1"], "umask": 18, "gpus": 1,
            "priority": 1, "time_limit_ms": 9000, "cpu_milli": 1, "host_memory": 1, "mem": 1,
            "estimate": {"bytes": 1, "upper": 2, "confidence": 3, "source": source}, "mem_upper": 2,
            "fixed_shapes": true, "dry_run": run, "no_dry_run": true, "file_estimates": {"horus": 1},
            "summary": {"layers": [], "parameters": 1, "trainable": 1, "activations": 1, "batch": 1},
            "share": 500, "target": target, "mps": true, "exclusive": true, "model": "G", "attempts": 2,
            "oom_fails": true, "requeue_on_timeout": true, "preemptible": true, "slot_ms": 9000,
            "expected_ms": 5, "total_steps": 7, "checkpoint_signal": 10, "grace_ms": 1, "batch": 4, "output": "/o", "error": "/e",
            "held": true, "loader": {"name": "l", "command": ["p", "q"], "is_producer": true},
            "after": [{"condition": "ok", "job": "12_3", "jobs": [12, 14]}], "array": "0-3",
            "task": {"index": 1, "position": 1, "tasks": 2, "at_once": 1},
            "together": {"position": 0, "members": 2, "site": 0}})
    }

    /// Places of all values in it, as JSON pointers.
    fn places(of: &Value, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        match of {
            Value::Array(list) => {
                (0..)
                    .zip(list)
                    .for_each(|(index, value): (usize, _)| places(value, &format!("{at}/{index}"), found));
            }
            Value::Object(map) => {
                map.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), found))
            }
            _ => {}
        }
    }

    /// Values of this type that are larger than a specification may have them, in each way that its type has.
    fn huge(value: &Value) -> Vec<Value> {
        const TEXT: usize = 256 << 10;
        const LIST: usize = 3 << 20;
        match value {
            Value::String(text) => {
                let repeated = format!("{text},").repeat(TEXT / (text.len() + 1));
                let repeated = repeated.trim_end_matches(',').to_owned();
                vec![json!("x".repeat(TEXT)), json!(format!("{text}{}", "x".repeat(TEXT))), json!(repeated)]
            }
            Value::Array(list) => {
                let Some(first) = list.first() else { return Vec::new() };
                vec![Value::Array(vec![first.clone(); LIST / first.to_string().len()])]
            }
            Value::Object(map) => {
                let Some(first) = map.values().next() else { return Vec::new() };
                let with = |names: Vec<String>| {
                    let new = names.into_iter().map(|name| (name, first.clone()));
                    Value::Object(map.clone().into_iter().chain(new).collect())
                };
                let many = (0..1000).map(|at| format!("{at}{}", "x".repeat(40))).collect();
                vec![with(many), with(vec!["x".repeat(TEXT)])]
            }
            _ => Vec::new(),
        }
    }

    /// The part that a client may send: the daemon writes the other fields.
    fn by_client(spec: Spec) -> Spec {
        let mut spec = Spec { task: None, together: None, ..spec };
        spec.after.iter_mut().for_each(|after| after.jobs = None);
        spec.loader.iter_mut().for_each(|loader| loader.is_producer = false);
        spec
    }

    #[test]
    fn no_text_and_no_list_of_a_specification_is_unbounded() {
        let full = full();
        // The error names all fields that there are.
        let fields = serde_json::from_value::<Spec>(json!({"no_field": 1})).unwrap_err().to_string();
        for field in fields.split('`').skip(3).step_by(2) {
            assert!(
                full.get(field).is_some(),
                "{field} has no value here: state one, so that its length is tried"
            );
        }
        by_client(serde_json::from_value(full.clone()).unwrap()).check().unwrap();
        let mut found = Vec::new();
        places(&full, "", &mut found);
        for place in &found {
            for value in huge(full.pointer(place).unwrap()) {
                let mut large = full.clone();
                *large.pointer_mut(place).unwrap() = value;
                // An unknown field, and a value that the field does not take, are rejected or left out.
                let Ok(large) = serde_json::from_value::<Spec>(large) else { continue };
                let large = by_client(large);
                let bytes = serde_json::to_vec(&large).unwrap().len();
                assert!(bytes < 32 << 10 || large.check().is_err(), "{place} is accepted with {bytes} bytes");
            }
        }
    }
}
