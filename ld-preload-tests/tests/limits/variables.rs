//! Limits in variables of HAMi and of NVIDIA's container toolkit, as `radrm-run` takes them.

use std::process::Command;

use radrm_preload_tests::{
    artifacts,
    child::{self, Ended, Running},
    programs,
    rig::PATIENCE,
};

use super::commands::{Node, finish};

const PERMIT: &str = "[job]\nlimits-from-environment = true\n";

fn with(mut command: Command, node: &Node, config: &str, variables: &[(&str, &str)]) -> Command {
    for name in ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] {
        command.env_remove(name);
    }
    command.env("RADRM_CONFIG", node.config(config)).envs(variables.iter().copied());
    command
}

/// A job with these variables and this configuration, with what it says at its start and in its report.
fn ended(node: &Node, config: &str, variables: &[(&str, &str)], options: &[&str], steps: &[&str]) -> Ended {
    child::run(with(node.run_aloud(options, steps), node, config, variables), PATIENCE)
}

/// Sentences of `radrm-run` beside its report.
fn said(ended: &Ended) -> Vec<&str> {
    ended.stderr.lines().filter_map(|line| line.strip_prefix("radrm-run: ")).collect()
}

#[test]
fn each_variable_of_other_tools_limits_a_job() {
    let node = Node::new(2);
    let one = &["use:0", "toomuch:a:1100m", "alloc:b:1000m", "use:1", "toomuch:c:1100m", "alloc:d:1000m"][..];
    for (variables, steps) in [
        (&[("CUDA_DEVICE_MEMORY_LIMIT", "1g")][..], one),
        (&[("CUDA_DEVICE_MEMORY_LIMIT", "1024M")], one),
        (&[("CUDA_DEVICE_MEMORY_LIMIT", "1073741824")], one),
        (&[("NVIDIA_GPU_MEMORY_LIMIT", "1024")], one),
        (&[("NVIDIA_GPU_MEMORY_REQUEST", "1024")], one),
        (&[("NVIDIA_GPU_MEMORY_REQUEST", "512"), ("NVIDIA_GPU_MEMORY_LIMIT", "1024")], one),
        (&[("NVIDIA_GPU_MEMORY_LIMIT", "3000"), ("CUDA_DEVICE_MEMORY_LIMIT", "1g")], one),
        // By the number that the program has for a GPU.
        (
            &[("CUDA_DEVICE_MEMORY_LIMIT_1", "1g")],
            &["use:0", "alloc:a:2g", "use:1", "toomuch:b:1100m", "alloc:c:1000m"],
        ),
        (
            &[("CUDA_DEVICE_MEMORY_LIMIT", "1g"), ("CUDA_DEVICE_MEMORY_LIMIT_0", "2g")],
            &["use:0", "toomuch:a:2100m", "alloc:b:2000m", "use:1", "toomuch:c:1100m", "alloc:d:1000m"],
        ),
        (
            &[("CUDA_DEVICE_MEMORY_LIMIT_0", "1g"), ("CUDA_VISIBLE_DEVICES", "1,0")],
            &["use:1", "alloc:a:2g", "use:0", "toomuch:b:1100m", "alloc:c:1000m"],
        ),
    ] {
        let ended = ended(&node, PERMIT, variables, &[], steps);
        let said = said(&ended);
        let taken: Vec<_> =
            said.iter().filter(|line| line.starts_with("limits are taken from the environment: ")).collect();
        assert!(ended.status.success(), "{variables:?}: {ended:?}");
        let [line] = taken.as_slice() else { panic!("{variables:?}: {said:?}") };
        for (name, value) in variables.iter().filter(|(name, _)| *name != "CUDA_VISIBLE_DEVICES") {
            assert!(line.contains(&format!("{name}={value}")), "{line}");
        }
        // At the start and in the report.
        assert_eq!(
            ended.stderr.matches("limits are taken from the environment").count(),
            2,
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn variables_without_permission_limit_nothing_and_are_named() {
    let node = Node::new(1);
    let steps = &["use:0", "alloc:a:2g"];
    for (config, value) in [("", "1g"), ("", "3GiB"), ("[job]\nlimits-from-environment = false\n", "1g")] {
        let ended = ended(&node, config, &[("CUDA_DEVICE_MEMORY_LIMIT", value)], &[], steps).ok();
        let said = said(&ended);
        let named: Vec<_> = said
            .iter()
            .filter(|line| line.starts_with(&format!("CUDA_DEVICE_MEMORY_LIMIT={value} is ignored")))
            .collect();
        assert_eq!(named.len(), 1, "{said:?}");
        assert_eq!(named[0].contains("limits-from-environment = true"), config.is_empty(), "{named:?}");
    }
    let quiet = ended(&node, "", &[("CUDA_DEVICE_MEMORY_LIMIT", "1g")], &["--quiet"], steps).ok();
    assert_eq!(quiet.stderr, "");
}

#[test]
fn a_limit_of_the_command_line_wins_over_variables() {
    let node = Node::new(1);
    for (value, option) in [("1g", "2GiB"), ("3g", "2GiB"), ("bad", "2GiB")] {
        let steps = &["use:0", "toomuch:a:2100m", "alloc:b:2000m"];
        let variables = [("CUDA_DEVICE_MEMORY_LIMIT", value)];
        let ended = ended(&node, PERMIT, &variables, &["--mem-limit", option], steps).ok();
        let line = format!("--mem-limit holds in place of CUDA_DEVICE_MEMORY_LIMIT={value}");
        assert!(said(&ended).contains(&line.as_str()), "{ended:?}");
    }
}

#[test]
fn variables_never_loosen_a_configured_limit() {
    let node = Node::new(1);
    for (config, value, fits, over, holds) in [
        ("mem-limit = \"1GiB\"\n", "3g", "alloc:a:1000m", "toomuch:b:1100m", Some("1GiB")),
        ("mem-limit-max = \"1GiB\"\n", "3g", "alloc:a:1000m", "toomuch:b:1100m", Some("1GiB")),
        ("mem-limit = \"25%\"\n", "3g", "alloc:a:1000m", "toomuch:b:1100m", Some("25%")),
        ("mem-limit = \"2GiB\"\n", "1g", "alloc:a:1000m", "toomuch:b:1100m", None),
        ("mem-limit = \"2GiB\"\n", "0", "alloc:a:2000m", "toomuch:b:2100m", None),
    ] {
        let variables = [("CUDA_DEVICE_MEMORY_LIMIT", value)];
        let ended = ended(&node, &format!("{PERMIT}{config}"), &variables, &[], &["use:0", over, fits]);
        assert!(ended.status.success(), "{config}{value}: {ended:?}");
        let stricter = holds.map(|holds| format!("the configured limit of {holds} for a job is stricter"));
        let says = said(&ended).iter().any(|line| stricter.as_ref().is_some_and(|text| line.contains(text)));
        assert_eq!(says, holds.is_some(), "{config}{value}: {ended:?}");
    }
}

#[test]
fn a_malformed_variable_that_would_limit_starts_nothing() {
    let node = Node::new(1);
    for (name, value, part) in [
        ("CUDA_DEVICE_MEMORY_LIMIT", "3GiB", "write 3g, 3000m"),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "lots", "write 3g, 3000m"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "1024", "write 1024m"),
        ("CUDA_DEVICE_SM_LIMIT", "many", "not a percentage"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "4Gi", "write 4096 for 4 GiB"),
    ] {
        let ended = ended(&node, PERMIT, &[(name, value)], &[], &["use:0"]);
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        assert!(ended.stderr.starts_with(&format!("radrm-run: {name}: `{value}`")), "{}", ended.stderr);
        assert!(ended.stderr.contains(part) && ended.stderr.lines().count() == 1, "{}", ended.stderr);
        assert_eq!(ended.stdout, "", "the program ran");
    }
}

#[test]
fn a_share_in_a_variable_becomes_the_jobs_share() {
    let node = Node::new(1);
    for (value, options, expected) in [
        ("30", &[][..], Some(30.0)),
        ("0", &[], None),
        ("100", &[], None),
        ("30", &["--sm-limit=50"], Some(50.0)),
    ] {
        let steps = &["use:0", "alloc:a:10m", "pause"];
        let command = with(node.run(options, steps), &node, PERMIT, &[("CUDA_DEVICE_SM_LIMIT", value)]);
        let mut running = Running::start(command, PATIENCE);
        running.until_ready();
        let shown = node.shown(&[]);
        assert_eq!(shown["jobs"][0]["sm_limit_percent"].as_f64(), expected, "{value} {options:?}");
        finish(running);
    }
}

#[test]
fn the_report_names_limits_from_the_environment() {
    let node = Node::new(1);
    let report = node.rig.path().join("report.json");
    let options = format!("--json={}", report.display());
    let variables = [("CUDA_DEVICE_MEMORY_LIMIT", "1g")];
    ended(&node, PERMIT, &variables, &[&options], &["use:0", "alloc:a:10m"]).ok();
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).expect("report")).expect("JSON");
    let line = "limits are taken from the environment: CUDA_DEVICE_MEMORY_LIMIT=1g";
    assert!(
        report["notes"].as_array().expect("notes").iter().any(|note| note == line),
        "{}",
        report["notes"]
    );
    assert_eq!(report["gpus"][0]["quotas"][0]["spans"][0]["limit_bytes"], 1u64 << 30, "{}", report["gpus"]);
}

#[test]
fn a_job_inside_a_limit_keeps_to_it_whatever_its_variables_state() {
    let node = Node::new(1);
    let steps = programs::compile("steps.c", &[]).display().to_string();
    let inner = artifacts::file("radrm-run").display().to_string();
    let script = format!(
        "CUDA_DEVICE_MEMORY_LIMIT=bad exec '{inner}' --no-profile --no-dataset -- '{steps}' use:0 toomuch:a:1100m alloc:b:1000m"
    );
    let mut command = node.run(&["--mem-limit", "1GiB"], &[]);
    // In place of the program.
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let mut outer = Command::new(command.get_program());
    outer.args(&arguments[..arguments.len() - 1]).args(["sh", "-c", &script]);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        outer.current_dir(folder);
    }
    command = with(outer, &node, PERMIT, &[]);
    let ended = child::run(command, PATIENCE).ok();
    let line = "CUDA_DEVICE_MEMORY_LIMIT=bad is not taken: the limits of the job around it hold";
    assert!(said(&ended).contains(&line), "{ended:?}");
}
