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

/// Programs in a folder's `bin`, without their libraries.
fn programs_alone(place: &Place) -> std::path::PathBuf {
    let bin = place.join("bin");
    fs::create_dir(&bin).unwrap();
    for program in [env!("CARGO_BIN_EXE_radrm"), env!("CARGO_BIN_EXE_radrm-run")] {
        let name = Path::new(program).file_name().unwrap();
        // A link would lead back to the libraries.
        fs::hard_link(program, bin.join(name))
            .or_else(|_| fs::copy(program, bin.join(name)).map(drop))
            .unwrap();
    }
    bin
}

#[test]
fn programs_that_cargo_installed_name_the_libraries_and_how_to_build_them() {
    let place = Place::new();
    let bin = programs_alone(&place);
    let says = |remedy: &str| {
        let doctor = finish(&mut place.command(bin.join("radrm"), &["doctor"]));
        doctor.code(1);
        assert!(doctor.text().contains("libradrm.so is not in"), "{}", doctor.text());
        assert!(doctor.text().contains(remedy), "{}", doctor.text());
        let ordinary = finish(&mut place.command(bin.join("radrm-run"), &["--no-dataset", "--", "true"]));
        ordinary.code(0);
        assert!(ordinary.stderr.contains(remedy), "{}", ordinary.stderr);
        let emulated = ["--emulate", "A100-40GB", "--", "true"];
        let refused = finish(&mut place.command(bin.join("radrm-run"), &emulated));
        refused.code(125);
        assert!(refused.stderr.contains(remedy), "{}", refused.stderr);
    };
    says("keep bin/ and lib/radrm/ of the package together");
    // What `cargo install` leaves beside `bin`.
    fs::write(place.join(".crates.toml"), "[v1]\n").unwrap();
    says("cargo build --release -p radrm-shim");
}

#[test]
fn doctor_says_what_a_pid_namespace_hides() {
    let place = Place::new();
    let words = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
        env!("CARGO_BIN_EXE_radrm"),
        "doctor",
    ];
    let output = finish(&mut place.command("unshare", &words));
    if !output.text().contains("namespaces") {
        eprintln!("skipped: this system gives no user namespaces: {}", output.stderr);
        return;
    }
    assert!(output.text().contains("in a pid namespace of its own"), "{}", output.text());
    assert!(output.text().contains("-> start the container with --pid=host"), "{}", output.text());
}
