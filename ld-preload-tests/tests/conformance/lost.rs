//! Launches in surroundings that take something away: the emulated machine's variables, a usable TMPDIR, the stack.

use std::{fs, path::Path, process::Command};

use radrm_preload_tests::{
    artifacts,
    child::{self, Ended},
    programs,
    rig::{PATIENCE, Rig},
};

/// `radrm-run --emulate` itself, with a folder of its own for everything.
fn launcher(rig: &Rig, options: &[&str]) -> Command {
    for library in ["libradrm.so", "libradrm_emulated_cuda.so", "libradrm_emulated_nvml.so"] {
        artifacts::file(library);
    }
    let mut command = rig.bare_command(artifacts::file("radrm-run"));
    command.env("RADRM_LIB_DIR", artifacts::directory()).args(["--quiet", "--no-dataset", "--no-profile"]);
    command.args(options);
    command
}

fn run(mut command: Command, words: &[&str]) -> Ended {
    command.arg("--").args(words);
    child::run(command, PATIENCE).ok()
}

/// A program that prints which GPU it sees.
const WHICH: &[&str] = &["use:0", "uuid:0", "info"];

#[test]
fn a_child_without_its_variables_finds_the_same_machine() {
    let steps = programs::compile("steps.c", &[]).display().to_string();
    let rig = Rig::empty();
    let file = rig.path().join("shared-machine").display().to_string();
    // Another model and size than that of a machine without a description.
    for options in [&["--emulate", "T4"][..], &["--emulate", "T4", "--machine", &file]] {
        let expected = run(launcher(&rig, options), &[&[&*steps], WHICH].concat()).stdout;
        assert!(expected.contains("uuid") && expected.contains("info"), "{expected}");
        let kept = "exec env -i LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH\" \"$@\"";
        for words in
            [&["env", "-u", "RADRM_EMULATED_MACHINE", &*steps][..], &["sh", "-c", kept, "sh", &*steps]]
        {
            let seen = run(launcher(&rig, options), &[words, WHICH].concat()).stdout;
            let total =
                |text: &str| text.lines().last().and_then(|line| line.split(' ').nth(2)).map(str::to_owned);
            assert_eq!(total(&seen), total(&expected), "{words:?}: {seen}");
        }
    }
}

#[test]
fn a_child_that_outlived_its_machine_finds_no_gpu() {
    let steps = programs::compile("steps.c", &[]);
    let rig = Rig::emulated("1xT4");
    let folder = rig.path().join("gone");
    fs::create_dir(&folder).expect("folder");
    for file in ["libcuda.so.1", "machine"] {
        std::os::unix::fs::symlink(rig.libraries().join(file), folder.join(file)).expect("link");
    }
    let mut command = rig.bare_command(&steps);
    command.env_remove("RADRM_EMULATED_MACHINE").env("LD_LIBRARY_PATH", &folder).args(WHICH);
    child::run(command, PATIENCE).ok();
    fs::remove_file(rig.machine_path()).expect("machine");
    let mut command = rig.bare_command(&steps);
    command.env_remove("RADRM_EMULATED_MACHINE").env("LD_LIBRARY_PATH", &folder).args(WHICH);
    let ended = child::run(command, PATIENCE);
    // CUDA_ERROR_NO_DEVICE, and not another machine.
    assert!(ended.stderr.contains("= 100"), "{ended:?}");
}

#[test]
fn emulation_works_where_no_list_can_name_tmpdir() {
    let steps = programs::compile("steps.c", &[]).display().to_string();
    let rig = Rig::empty();
    for name in ["with:colon", "with space", "with;semicolon", "$LIB"] {
        let folder = rig.path().join(name);
        fs::create_dir(&folder).expect("folder");
        let mut command = launcher(&rig, &["--emulate", "T4", "--mem-limit", "1GiB"]);
        command.env("TMPDIR", &folder);
        run(command, &[&*steps, "use:0", "alloc:a:1g", "!alloc:b:1m"]);
        assert_eq!(fs::read_dir(&folder).expect("folder").count(), 0, "{name}");
    }
}

#[test]
fn a_small_stack_is_enough_for_the_launcher_and_stays_the_programs() {
    let rig = Rig::empty();
    let launcher = launcher(&rig, &["--emulate", "T4"]);
    let mut command = rig.bare_command("/bin/sh");
    command
        .args(["-c", "ulimit -s 128; exec \"$@\"", "sh"])
        .arg(launcher.get_program())
        .args(launcher.get_args());
    command.env("RADRM_LIB_DIR", artifacts::directory());
    let ended = run(command, &["sh", "-c", "ulimit -s"]);
    assert_eq!(ended.stdout.trim(), "128");
    assert!(Path::new(artifacts::directory()).exists());
}
