//! Cases that need no second program.

use radrm_preload_tests::{artifacts, child, python};

use super::{PATIENCE, program, program_of};

fn passes(script: &str, case: &str) {
    let runtime = tempfile::tempdir().expect("folder");
    let Some(command) = program(runtime.path(), script, &[case]) else { return };
    let ended = child::run(command, PATIENCE).ok();
    assert_eq!(ended.stdout, format!("ok {case}\n"));
}

/// The same where PyTorch is, whose CUDA libraries are the dry run's.
fn passes_with_torch(case: &str) {
    let runtime = tempfile::tempdir().expect("folder");
    let (Some(torch), Some(command)) = (python::torch(), program(runtime.path(), "share_cases.py", &[case]))
    else {
        return;
    };
    let mut dry_run = std::process::Command::new(artifacts::file("radrm-run"));
    dry_run
        .args(["--dry-run", "--no-profile", "--no-dataset", "-q", "--"])
        .arg(torch)
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => dry_run.env(name, value),
            None => dry_run.env_remove(name),
        };
    }
    let ended = child::run(dry_run, PATIENCE).ok();
    assert!(ended.stdout.contains(&format!("ok {case}\n")), "{}", ended.stdout);
}

macro_rules! cases {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            passes("share_cases.py", stringify!($name));
        }
    )*};
}

cases! {
    structures
    what_has_no_form_is_refused_with_its_path
    dictionaries_keep_their_classes
    what_would_lose_its_type_is_refused
    epochs_are_as_of_a_loader
    batches_of_other_sizes
    batches_are_read_in_place
    batches_that_are_kept_do_not_change
    slow_consumers_miss_batches_or_get_them_from_disk
    a_late_consumer_begins_with_an_epoch_or_now
    a_state_continues_with_the_first_sample_that_was_not_handed_out
    a_failure_of_the_loader_is_raised_on_both_sides
    names_are_taken_and_found
    forked_children_release_nothing
    malformed_messages_end_their_connection_only
    a_false_producer_cannot_harm_a_consumer
}

#[test]
fn memory_is_that_of_the_ring_and_of_a_batch_for_each_consumer() {
    passes("share_memory_cases.py", "memory_is_that_of_the_ring_and_of_a_batch_for_each_consumer");
}

#[test]
fn what_is_made_before_its_batch_comes_is_that_batch() {
    passes("share_memory_cases.py", "what_is_made_before_its_batch_comes_is_that_batch");
}

#[test]
fn pinned_batches_are_known_to_the_driver_until_they_go() {
    let case = "pinned_batches_are_known_to_the_driver_until_they_go";
    let runtime = tempfile::tempdir().expect("folder");
    let Some(command) = program(runtime.path(), "share_memory_cases.py", &[case]) else { return };
    let mut emulated = std::process::Command::new(artifacts::file("radrm-run"));
    emulated.args(["--emulate", "A100-40GB", "--no-profile", "--no-dataset", "-q", "--"]);
    emulated.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        emulated.env(name, value);
    }
    let ended = child::run(emulated, PATIENCE).ok();
    assert_eq!(ended.stdout, format!("ok {case}\n"));
}

#[test]
fn tensors_and_loaders_of_pytorch() {
    passes_with_torch("tensors_and_loaders_of_pytorch");
}

#[test]
fn the_order_of_another_seed_is_refused() {
    passes_with_torch("the_order_of_another_seed_is_refused");
}

#[test]
fn batches_are_arrays_of_jax_without_a_copy() {
    let runtime = tempfile::tempdir().expect("folder");
    let Some(jax) = python::framework("venv-jax") else { return };
    let mut command = program_of(&jax, runtime.path(), "share_jax.py", &[]);
    command.env("JAX_PLATFORMS", "cpu");
    assert_eq!(child::run(command, PATIENCE).ok().stdout, "ok share_jax\n");
}
