//! The driver's own limits for control groups, on an emulated driver that has them: they hold what evades the shim.

use std::process::Command;

use radrm_preload_tests::{
    artifacts,
    child::{self, Running},
    groups::ControlGroup,
    programs,
    rig::{PATIENCE, Rig},
};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// Bytes that the fence lets through above the quota.
const SLACK: u64 = 512 * MIB;

fn name(test: &str) -> String {
    format!("radrm-test-{test}-{}", std::process::id())
}

/// `radrm-run` inside a group, with a limit and without a program yet.
fn launcher(rig: &Rig, group: &ControlGroup, limit: &str) -> Command {
    let mut command = rig.bare_command("/bin/sh");
    let launcher = rig.launcher();
    command.envs(launcher.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env_remove("RADRM_EMULATED_MACHINE");
    command.args(["-c", &format!("{}; exec \"$@\"", group.entrance()), "sh"]);
    command.arg(launcher.get_program()).args(launcher.get_args()).args(["--mem-limit", limit, "--"]);
    command
}

/// A program without the shim, inside a job with a limit.
fn evader(rig: &Rig, group: &ControlGroup, limit: &str) -> Running {
    let mut command = launcher(rig, group, limit);
    command.args(["env", "-u", "LD_PRELOAD"]).arg(programs::compile("quota_ask.c", &[]));
    let mut running = Running::start(command, PATIENCE);
    running.until_ready();
    running
}

#[test]
fn the_driver_refuses_what_evades_the_shim() {
    let Some(group) = ControlGroup::new(&name("evades")) else { return };
    let rig = Rig::emulated("1xA100-40GB,driver=13000");
    let mut free = evader(&rig, &group, "1GiB");
    assert_eq!(free.ask(&(8192 * MIB).to_string()), "granted", "an older driver has no such limits");
    drop(free);
    let rig = Rig::emulated("1xA100-40GB,driver=13040");
    let mut held = evader(&rig, &group, "1GiB");
    let context = rig.machine().memory(0).used;
    let room = 1024 * MIB + SLACK - context;
    assert_eq!(held.ask(&room.to_string()), "granted");
    assert_eq!(held.ask(&(room + 2 * MIB).to_string()), "refused");
    // The limits that hold, as any user sees them.
    let own = std::fs::read_dir(group.path()).expect("groups").flatten().find(|entry| entry.path().is_dir());
    let own = own.expect("the job's group").path();
    let mut command = rig.bare_command(artifacts::file("radrm"));
    command.args(["fence", "show", "--json", "--machine"]).arg(rig.machine_path()).arg(&own);
    command.env("RADRM_LIB_DIR", artifacts::directory());
    let shown: Value = serde_json::from_str(&child::run(command, PATIENCE).ok().stdout).expect("JSON");
    assert_eq!(shown[0]["soft_bytes"], 1024 * MIB);
    assert_eq!(shown[0]["hard_bytes"], 1024 * MIB + SLACK);
    assert_eq!(shown[0]["used_bytes"], context);
    drop(held);
}

#[test]
fn the_group_of_a_job_goes_with_it() {
    let Some(group) = ControlGroup::new(&name("goes")) else { return };
    let rig = Rig::emulated("1xA100-40GB,driver=13040");
    let held = evader(&rig, &group, "1GiB");
    let own = rig.machine().group_memory(group.path(), 0);
    assert_eq!(own, None, "the group around it is not limited");
    let ended = held.end();
    assert!(ended.status.success(), "{ended:?}");
    let groups = std::fs::read_dir(group.path()).expect("groups").flatten();
    assert_eq!(groups.filter(|entry| entry.path().is_dir()).count(), 0);
}

/// Asks until the quota has taken the driver's figure into account.
fn until_refused(running: &mut Running, bytes: u64) -> bool {
    (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        running.ask(&bytes.to_string()) == "refused"
    })
}

/// The figure that is charged does not change by itself.
#[track_caller]
fn assert_stays_refused(running: &mut Running, bytes: u64) {
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(running.ask(&bytes.to_string()), "refused", "{bytes} bytes");
    }
}

#[test]
fn what_evades_the_shim_is_charged_by_the_drivers_figure() {
    let Some(group) = ControlGroup::new(&name("charged")) else { return };
    let asker = programs::compile("quota_ask.c", &[]);
    for (driver, is_charged) in [("13040", true), ("13000", false)] {
        let rig = Rig::emulated(&format!("1xA100-40GB,driver={driver}"));
        let mut command = launcher(&rig, &group, "4GiB");
        // The second one holds 2 GiB past the shim for as long as the first one runs.
        let script = format!(
            "{{ echo keep {0}; sleep 1000; }} | env -u LD_PRELOAD {1} > past & \
             until grep -q granted past; do sleep 0.02; done; exec {1}",
            2048 * MIB,
            asker.display()
        );
        command.args(["/bin/sh", "-c", &script]);
        let mut running = Running::start(command, PATIENCE);
        running.until_ready();
        let refused = if is_charged {
            until_refused(&mut running, 2048 * MIB)
        } else {
            std::thread::sleep(std::time::Duration::from_secs(2));
            running.ask(&(2048 * MIB).to_string()) == "refused"
        };
        assert_eq!(refused, is_charged, "driver {driver}");
        if is_charged {
            assert_stays_refused(&mut running, 2048 * MIB);
        }
        running.kill();
    }
}

/// Memory that each process of the job on this machine is charged, bytes.
fn charged(rig: &Rig) -> Vec<u64> {
    let mut command = rig.bare_command(artifacts::file("radrm"));
    command.args(["quota", "show", "--json", "--machine"]).arg(rig.machine_path());
    let text = child::run(command, PATIENCE).ok().stdout;
    let shown: Value = serde_json::from_str(&text).expect("JSON");
    let processes = shown["jobs"][0]["processes"].as_array().into_iter().flatten();
    processes.filter_map(|process| process["bytes"][0].as_u64()).collect()
}

#[test]
fn processes_that_only_have_contexts_are_charged_by_the_drivers_figure() {
    let Some(group) = ControlGroup::new(&name("contexts")) else { return };
    // No earlier job has measured what a context takes.
    let rig = Rig::emulated("1xA100-40GB,driver=13040");
    let mut command = launcher(&rig, &group, "4GiB");
    let holds = programs::compile("holds_context.c", &[]);
    command.args(["/bin/sh", "-c", &format!("{0} & {0} & exec {0}", holds.display())]);
    let running = Running::start(command, PATIENCE);
    let context = 420 * MIB;
    let in_time = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        charged(&rig) == [context; 3]
    });
    assert!(in_time, "{:?} of {} bytes", charged(&rig), rig.machine().memory(0).used);
    running.kill();
}

/// Runs `radrm fence` on a group, as a plug-in does that asks for it.
fn fence(rig: &Rig, words: &[&str], group: &ControlGroup) -> child::Ended {
    let mut command = rig.bare_command(artifacts::file("radrm"));
    command.arg("fence").args(words).arg("--machine").arg(rig.machine_path()).arg(group.path());
    command.env("RADRM_LIB_DIR", artifacts::directory());
    child::run(command, PATIENCE)
}

#[test]
fn the_command_sets_the_strictest_limits_and_what_is_guaranteed() {
    let Some(group) = ControlGroup::new(&name("command")) else { return };
    let rig = Rig::emulated("2xA100-40GB,driver=13040");
    let memory = |gpu| rig.machine().group_memory(group.path(), gpu).map(|memory| (memory.soft, memory.hard));
    let set = |options: &[&str]| fence(&rig, &[&["set"], options].concat(), &group);
    set(&["--limit=0=4GiB,1=10GiB", "--limit=8GiB"]).ok();
    let whole = |gib: u64| Some((gib * 1024 * MIB, gib * 1024 * MIB + SLACK));
    assert_eq!([memory(0), memory(1)], [whole(4), whole(8)], "all of each limit is guaranteed");
    set(&["--limit=8GiB", "--request=0=2GiB"]).ok();
    let limit = 8192 * MIB + SLACK;
    assert_eq!([memory(0), memory(1)], [Some((2048 * MIB, limit)), Some((0, limit))]);
    // A limit that is none is not a failure, and changes nothing.
    let ended = set(&["--limit=100%"]).ok();
    assert!(ended.stderr.contains("no limit is below what its GPU has"), "{ended:?}");
    assert_eq!(memory(1), Some((0, limit)));
    let shown = fence(&rig, &["show"], &group).ok().stdout;
    assert!(shown.lines().count() == 2 && shown.contains("8.50 GiB at most, 2.00 GiB guaranteed"), "{shown}");
    fence(&rig, &["clear"], &group).ok();
    assert_eq!([memory(0), memory(1)], [None; 2]);
    assert_eq!(fence(&rig, &["show"], &group).ok().stdout, "no limits\n");
}

#[test]
fn an_older_driver_is_named_by_each_command() {
    let Some(group) = ControlGroup::new(&name("older")) else { return };
    let rig = Rig::emulated("1xA100-40GB,driver=13000");
    for words in [&["set", "--limit=1GiB"][..], &["show"], &["clear"]] {
        let ended = fence(&rig, words, &group);
        assert_eq!(ended.status.code(), Some(1), "{words:?}: {ended:?}");
        assert!(ended.stderr.contains("has no memory limits for control groups"), "{words:?}: {ended:?}");
    }
}
