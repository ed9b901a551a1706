//! The files of the SPANK plug-in are those of `docs/security.md`, with owners and modes as there.

use std::{fs, os::unix::fs::MetadataExt};

use radrm_preload_tests::{child::Running, programs, rig::PATIENCE, rights::Rights, slurm::Slurm};

#[test]
fn files_of_the_plugin_have_the_rights_that_the_page_states() {
    let Some(slurm) = Slurm::start(1, 1024) else { return };
    // radrmd makes this folder where it counts Slurm's jobs; the plug-in then keeps a file for each step.
    let state = slurm.path("state-radrm1");
    fs::create_dir_all(state.join("steps")).expect("folder");
    let mut command = slurm.command("srun");
    command.arg("--gres=shard:100").arg(programs::compile("quota_ask.c", &[]));
    let mut task = Running::start(command, PATIENCE);
    task.until_ready();
    let own = fs::metadata(&state).expect("its folder").uid();
    Rights::of("Slurm").assert(
        &[("/run/radrm-slurm", &state)],
        &[("root", own)],
        &["/run/radrm-slurm", "/run/radrm-slurm/*", "/run/radrm-slurm/steps/*"],
    );
}
