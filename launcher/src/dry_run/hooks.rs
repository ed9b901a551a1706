//! Tests of the Python side without a framework: each file of `hook/tests` stands for a program, with the hook's folders on its path.

use std::path::Path;
use std::process::Command;

/// Runs a file as the only program of an interpreter that finds the modules of the hook.
#[track_caller]
fn holds(name: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folders = ["dry_run/hook", "tensors/hook", "hook"].map(|folder| source.join(folder));
    let mut command = Command::new("python3");
    command.arg("-B").arg(source.join("dry_run/hook/tests").join(name)).args(folders);
    let ended = command.env_remove("RADRM_DRY_RUN_NOTES").output().expect("python3");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn a_programs_own_patch_of_a_replaced_function_stays() {
    holds("patches.py");
}

#[test]
fn memory_that_grows_with_each_call_of_a_model_is_named() {
    holds("passes.py");
}

#[test]
fn graphs_that_only_a_functions_ctx_keeps_are_found() {
    holds("graphs.py");
}

#[test]
fn made_up_data_sets_reach_processes_that_are_spawned() {
    holds("fake_data.py");
}

#[test]
fn versions_of_pytorch_that_lack_an_interface_go_without_it() {
    holds("versions.py");
}

#[test]
fn choices_have_their_shares_of_the_peak() {
    holds("choices.py");
}

#[test]
fn tensorflow_tells_its_arrays_without_what_it_takes_in_advance() {
    holds("tensorflow.py");
}
