//! `radrm doctor`: what works on this machine. The libraries must be built (`cargo build --workspace`).

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Place, finish};

#[test]
fn doctor_sees_the_emulated_gpus_of_the_run_around_it() {
    let place = Place::new();
    let options = ["--quiet", "--no-profile", "--no-dataset", "--emulate", "2xH200", "--"];
    let doctor = [env!("CARGO_BIN_EXE_radrm"), "doctor", "--json"];
    let output = finish(&mut place.run(&[&options[..], &doctor[..]].concat()));
    output.code(0);
    let report: Value = serde_json::from_str(&output.text()).expect("JSON");
    let checks = report["checks"].as_array().expect("checks");
    let of = |subject: &str| {
        let found = checks.iter().filter(|check| check["subject"] == subject);
        found.map(|check| format!("{} {}", check["status"], check["found"])).collect::<Vec<_>>()
    };
    assert_eq!(of("GPU").len(), 2, "{report:#}");
    assert!(of("driver")[0].starts_with("\"ok\"") && of("shim")[0].starts_with("\"ok\""), "{report:#}");
    assert!(of("device files")[0].contains("emulated") || Path::new("/dev/nvidiactl").exists());
}

#[test]
fn doctor_names_the_line_of_a_wrong_configuration() {
    let place = Place::new();
    let file = place.join("radrm.toml");
    fs::write(&file, "[default]\nmem-limit = \"much\"\n").unwrap();
    let mut command = place.command(env!("CARGO_BIN_EXE_radrm"), &["doctor"]);
    let output = finish(command.env("RADRM_CONFIG", &file));
    output.code(1);
    assert!(output.text().contains("FAILS") && output.text().contains("radrm.toml"), "{}", output.text());
    assert!(output.text().contains("-> correct the file"), "{}", output.text());
}
