//! One user limit over containers with pid, user and mount namespaces of their own: what lives there counts, and the
//! share of a container that was killed comes back, although its pids mean nothing outside.
//!
//! `RADRM_TEST_KILLS=2000 cargo nextest run -p radrm-preload-tests -E 'test(killed_containers)'` kills as many.

use std::{path::Path, process::Command, time::Duration};

use radrm_preload_tests::{artifacts, child::Running, programs, rig::PATIENCE};
use radrm_telemetry::ledger::{Access, ScopeDirectory, ScopeReport};

use super::hostile::Shared;
use super::users::ALICE;

const MIB: u64 = 1 << 20;
/// The user's limit.
const LIMIT: u64 = 1024 * MIB;
/// Memory that each container takes, bytes.
const TAKEN: u64 = 600 * MIB;

/// Way in which a container is made.
#[derive(Clone, Copy, Debug)]
enum Container {
    /// The launcher runs in it, under the user's own id.
    Whole,
    /// The launcher runs outside; inside, the user is root.
    Program,
    /// As `Program`, with the `/proc` of the namespace outside, where its pids are those of other processes.
    ForeignProc,
}

const KINDS: [Container; 3] = [Container::Whole, Container::Program, Container::ForeignProc];

/// `radrm-run` with a program in a container, as this user.
fn command(shared: &Shared, container: Container, program: &Path, arguments: &[&str]) -> Command {
    let mut words: Vec<String> = Vec::new();
    let mut unshare = |options: &[&str]| {
        words.push("unshare".to_owned());
        words.extend(["--user", "--pid", "--mount", "--fork", "--kill-child"].map(str::to_owned));
        words.extend(options.iter().map(|option| (*option).to_owned()));
    };
    let own_id = format!("--map-user={ALICE}");
    match container {
        Container::Whole => unshare(&[&own_id, "--mount-proc"]),
        Container::Program => unshare(&["--map-root-user", "--mount-proc"]),
        Container::ForeignProc => unshare(&["--map-root-user"]),
    }
    shared.wrapped(ALICE, &words, matches!(container, Container::Whole), program, arguments)
}

fn start(shared: &Shared, container: Container, program: &Path, arguments: &[&str]) -> Running {
    let mut running = Running::start(command(shared, container, program, arguments), 4 * PATIENCE);
    running.until_ready();
    running
}

fn ask(asker: &mut Running, bytes: u64) -> bool {
    match asker.ask(&bytes.to_string()).as_str() {
        "granted" => true,
        "refused" => false,
        other => panic!("the asker said {other:?}"),
    }
}

#[test]
fn shares_of_killed_containers_come_back_under_one_user_limit() {
    let Some(shared) = Shared::with(&format!("[user.{ALICE}]\nmem-limit = \"1GiB\"\n")) else { return };
    let may = Command::new("unshare").args(["--user", "--pid", "--fork", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this system gives no user namespaces");
        return;
    }
    let kills = std::env::var("RADRM_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(90usize);
    let (asking, steps) = (programs::compile("quota_ask.c", &[]), programs::compile("steps.c", &[]));
    let outside = shared.wrapped(ALICE, &[], true, &asking, &[]);
    let mut outside = Running::start(outside, 3600);
    outside.until_ready();
    let mut inside = Running::start(command(&shared, Container::Whole, &asking, &[]), 3600);
    inside.until_ready();
    for kill in 0..kills {
        let container = KINDS[kill % KINDS.len()];
        let take = format!("alloc:a:{TAKEN}");
        let victim = start(&shared, container, &steps, &["use:0", &take, "pause"]);
        let what = format!("kill {kill}, {container:?}");
        for asker in [&mut outside, &mut inside] {
            assert!(
                !ask(asker, LIMIT - TAKEN + 2 * MIB),
                "{what}: a living container's share was given away"
            );
            assert!(ask(asker, LIMIT - TAKEN), "{what}: more is charged than was taken");
        }
        victim.kill();
        // The one that finds the dead gives the share back to all.
        let (first, second) =
            if kill % 2 == 0 { (&mut outside, &mut inside) } else { (&mut inside, &mut outside) };
        for asker in [first, second] {
            assert!(ask(asker, LIMIT), "{what}: the share is not back");
        }
    }
    let directory = format!("{}.user-{ALICE}", shared.node.rig.machine_path().display());
    let scope = ScopeDirectory::open(Path::new(&directory), Access::User(ALICE), &[0]).expect("the scope");
    let report = ScopeReport::read(&scope).expect("a report");
    assert_eq!(report.gpus.iter().map(|gpu| gpu.used).sum::<u64>(), 0, "{report:?}");
    assert_eq!(report.members.len(), 2, "{report:?}");
    for asker in [outside, inside] {
        asker.kill();
    }
}

#[test]
fn two_programs_of_a_container_share_what_is_left() {
    let Some(shared) = Shared::with(&format!("[user.{ALICE}]\nmem-limit = \"1GiB\"\n")) else { return };
    artifacts::file("libradrm.so");
    let (asking, steps) = (programs::compile("quota_ask.c", &[]), programs::compile("steps.c", &[]));
    for container in KINDS {
        // The first process is a shell, so that both programs are members with small pids of their own.
        let script = format!(
            "sleep 3600 | '{}' use:0 alloc:a:{TAKEN} pause >ready-{container:?} & \
             until grep -q ready ready-{container:?}; do sleep 0.01; done; exec '{}'",
            steps.display(),
            asking.display()
        );
        let mut asker = start(&shared, container, Path::new("/bin/sh"), &["-c", &script]);
        assert!(
            !ask(&mut asker, LIMIT - TAKEN + 2 * MIB),
            "{container:?}: the other one's share was given away"
        );
        asker.kill();
    }
}

#[test]
fn what_a_container_holds_is_not_charged_to_the_same_pid_in_another() {
    let Some(shared) = Shared::with(&format!("[user.{ALICE}]\nmem-limit = \"1GiB\"\n")) else { return };
    let (asking, steps) = (programs::compile("quota_ask.c", &[]), programs::compile("steps.c", &[]));
    let mut asker = start(&shared, Container::Whole, &asking, &[]);
    let take = format!("alloc:a:{TAKEN}");
    let holder = start(&shared, Container::Whole, &steps, &["use:0", &take, "pause"]);
    // Long enough for several samples of the launchers', all of which agree.
    std::thread::sleep(Duration::from_secs(2));
    assert!(ask(&mut asker, LIMIT - TAKEN), "more is charged than was taken");
    holder.kill();
    assert!(ask(&mut asker, LIMIT), "the share is not back");
    // What was learned of a context is charged to the next process from its start.
    let holder = start(&shared, Container::Whole, &steps, &["use:0", &take, "pause"]);
    for one in [asker, holder] {
        one.kill();
    }
}
