//! Groups of a sweep as jobs of a real radrmd that start together: at one barrier, or none of them.

use std::os::unix::fs::PermissionsExt;

use radrm_preload_tests::node::Daemon;
use radrm_protocol::ProtocolError;
use radrm_protocol::connection::Connection;
use radrm_protocol::spec::Spec;
use radrm_protocol::together::{Member, Place as Position};
use radrm_protocol::wire::{Request, Response};
use serde_json::Value;

use super::radrmd::{each_once, jobs, open_jobs, started, through};
use super::*;

/// Begins, and ends when all of its group have begun: alone it never ends.
const MEETS: &str = r#"
import os, sys, time
def log(word):
    with open('log', 'ab', buffering=0) as file:
        file.write(('%s %s %f\n' % (word, sys.argv[1], time.time())).encode())
log('begin')
with open('meets', 'ab', buffering=0) as file:
    file.write(b'.')
while os.path.getsize('meets') < int(sys.argv[2]): time.sleep(0.01)
log('end')
"#;

/// A sweep of one group of runs `a`, `b` and so on, each with these lines.
fn group(program: &str, members: &[&str]) -> Place {
    let place = Place::new();
    fs::write(place.join("program.py"), program).unwrap();
    let count = members.len();
    let member = |(name, more): (char, &&str)| {
        let comma = if more.is_empty() { "" } else { ", " };
        format!("{{ x = \"{name}\"{comma}{more} }}")
    };
    let members: Vec<_> = ('a'..).zip(members).map(member).collect();
    let text = format!(
        "command = \"python3 program.py {{x}} {count}\"\nmem_limit = \"4GiB\"\n[[group]]\nname = \"group\"\nmembers = [{}]\n",
        members.join(", ")
    );
    fs::write(place.join("sweep.toml"), text).unwrap();
    place
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A daemon whose prolog of the second job waits for the file `go`.
fn with_a_slow_second() -> Daemon {
    let mut daemon = Daemon::prepare("emulate = \"2xA100-40GB\"\n");
    let prolog = daemon.path("prolog");
    let place = daemon.place().display();
    let text = format!(
        "#!/bin/sh\nif [ $RADRM_JOB = 2 ]; then touch {place}/second; while [ ! -e {place}/go ]; do sleep 0.05; done; fi\n"
    );
    fs::write(&prolog, text).unwrap();
    fs::set_permissions(&prolog, fs::Permissions::from_mode(0o755)).unwrap();
    let config = fs::read_to_string(daemon.path("config.toml")).unwrap();
    fs::write(daemon.path("config.toml"), format!("{config}[hooks]\nprolog = \"{}\"\n", prolog.display()))
        .unwrap();
    daemon.start();
    daemon
}

/// Waits until an attempt of the first job is at the barrier, and the second's prolog runs.
fn until_at_barrier(daemon: &Daemon) {
    daemon.until("one waits at the barrier", |daemon| {
        let files = fs::read_dir(daemon.path("state/attempts")).unwrap().flatten();
        let mut barriers = files.filter(|file| file.file_name().to_string_lossy().ends_with(".together"));
        let has_come = barriers.any(|file| fs::read(file.path()).is_ok_and(|bytes| bytes == b"+"));
        has_come && daemon.path("second").exists()
    });
}

#[test]
fn runs_of_a_group_begin_together_where_their_file_says() {
    let place = group(MEETS, &["", "", "devices = [1]"]);
    let text = fs::read_to_string(place.join("sweep.toml")).unwrap();
    let text = text.replace(
        "{ x = \"a\" }, { x = \"b\" }",
        "{ x = \"a\", devices = [0] }, { x = \"b\", devices = [0] }",
    );
    fs::write(place.join("sweep.toml"), text).unwrap();
    let daemon = Daemon::new("emulate = \"2xA100-40GB\"\n");
    let output = finish(through(&place, &daemon, &["sweep.toml"]));
    output.code(0);
    assert!(output.stderr.contains("3 jobs for radrmd"), "{}", output.stderr);
    each_once(&place, &daemon, &names(&["a", "b", "c"]));
    let devices: Vec<Value> = jobs(&daemon).iter().map(|job| job["devices"].clone()).collect();
    assert!(devices[0] == devices[1] && devices[0] != devices[2], "{devices:?}");
}

#[test]
fn runs_without_a_limit_share_the_gpu_of_their_group() {
    let place = group(MEETS, &["", ""]);
    let text = fs::read_to_string(place.join("sweep.toml")).unwrap().replace("mem_limit = \"4GiB\"\n", "");
    fs::write(place.join("sweep.toml"), text).unwrap();
    let daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    finish(through(&place, &daemon, &["sweep.toml"])).code(0);
    each_once(&place, &daemon, &names(&["a", "b"]));
}

#[test]
fn none_of_a_group_begins_before_all_are_at_the_barrier_also_if_radrmd_is_killed() {
    let place = group(MEETS, &["", ""]);
    let mut daemon = with_a_slow_second();
    let (mut child, _stderr) = started(through(&place, &daemon, &["sweep.toml"]));
    until_at_barrier(&daemon);
    daemon.kill();
    daemon.start();
    assert!(!place.join("log").exists(), "one began without the other");
    fs::write(daemon.path("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", daemon.log());
    each_once(&place, &daemon, &names(&["a", "b"]));
}

#[test]
fn an_attempt_that_is_killed_at_the_barrier_is_made_again_with_its_group() {
    for with_daemon in [true, false] {
        let place = group(MEETS, &["", ""]);
        let mut daemon = with_a_slow_second();
        let (mut child, _stderr) = started(through(&place, &daemon, &["sweep.toml"]));
        until_at_barrier(&daemon);
        if !with_daemon {
            daemon.kill();
        }
        // The one in whose prolog the other one waits.
        let status = fs::read(daemon.path("state/attempts/2.1")).unwrap();
        let status = String::from_utf8_lossy(&status);
        let status: Value = serde_json::from_str(status.lines().next().unwrap()).unwrap();
        let pid = status["pid"].as_i64().unwrap();
        // SAFETY: a plain system call on a process that this test's daemon started.
        assert_eq!(unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) }, 0);
        fs::write(daemon.path("go"), "").unwrap();
        if !with_daemon {
            daemon.start();
        }
        assert_eq!(child.wait().unwrap().code(), Some(0), "{}", daemon.log());
        assert_eq!(log(&place), BTreeMap::from([("a".into(), (1, 1)), ("b".into(), (1, 1))]));
        assert!(jobs(&daemon).iter().all(|job| job["attempts"] == 2), "{:?}", jobs(&daemon));
    }
}

#[test]
fn a_group_that_waits_outlives_radrmd_and_a_cancelled_job_ends_it() {
    let place = group(MEETS, &["", ""]);
    let mut daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let ahead = daemon.submit(&["--exclusive"], &["/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"]);
    daemon.until_state(ahead, "running");
    let (mut child, _stderr) = started(through(&place, &daemon, &["sweep.toml"]));
    let waits =
        |daemon: &Daemon| open_jobs(daemon).iter().filter(|job| job["state"] == "waiting").count() == 2;
    daemon.until("both are released", waits);
    daemon.kill();
    daemon.start();
    daemon.until("both wait again", waits);
    fs::write(daemon.path("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", daemon.log());
    each_once_beside(&place, &daemon, ahead);

    let other = group(MEETS, &["", ""]);
    fs::remove_file(daemon.path("go")).unwrap();
    let ahead = daemon.submit(&["--exclusive"], &["/bin/sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"]);
    daemon.until_state(ahead, "running");
    let (mut child, _stderr) = started(through(&other, &daemon, &["sweep.toml"]));
    daemon.until("both are released", waits);
    let second = open_jobs(&daemon).iter().filter_map(|job| job["job"].as_u64()).max().unwrap();
    daemon.ok(&["cancel", &second.to_string()]);
    assert_eq!(child.wait().unwrap().code(), Some(1), "{}", daemon.log());
    assert_eq!(column(&other, "state"), ["failed"; 2]);
    assert!(!other.join("log").exists(), "none of them began");
    fs::write(daemon.path("go"), "").unwrap();
    daemon.end(ahead);
}

/// The runs `a` and `b` ran once, beside a job that is not of the sweep.
#[track_caller]
fn each_once_beside(place: &Place, daemon: &Daemon, other: u64) {
    assert_eq!(log(place), BTreeMap::from([("a".into(), (1, 1)), ("b".into(), (1, 1))]));
    let of_sweep: Vec<_> = jobs(daemon).into_iter().filter(|job| job["job"] != other).collect();
    assert!(of_sweep.len() == 2 && of_sweep.iter().all(|job| job["attempts"] == 1), "{of_sweep:?}");
}

#[test]
fn a_sweep_with_groups_that_is_interrupted_goes_on_with_the_next_call() {
    let place = group(MEETS, &["", ""]);
    // One of them does not let the other one end.
    fs::write(place.join("program.py"), MEETS.replace("int(sys.argv[2])", "int(sys.argv[2]) + 1")).unwrap();
    let daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let (mut child, _stderr) = started(through(&place, &daemon, &["sweep.toml"]));
    ["a", "b"].iter().for_each(|name| wait_for(&place, &format!("begin {name}")));
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!((column(&place, "state"), open_jobs(&daemon).len()), (names(&["waiting"; 2]), 0));
    fs::remove_file(place.join("meets")).unwrap();
    fs::write(place.join("program.py"), MEETS).unwrap();
    finish(through(&place, &daemon, &["sweep.toml"])).code(0);
    assert_eq!(log(&place), BTreeMap::from([("a".into(), (2, 1)), ("b".into(), (2, 1))]));
}

#[test]
fn a_sweep_of_groups_that_is_killed_runs_each_group_once() {
    let place = place(
        "command = \"python3 program.py {x} 0.1\"\nmem_limit = \"4GiB\"\ntogether = 2\n[axes]\nx = { from = 1, to = 6, step = 1 }\n",
    );
    let daemon = Daemon::new("emulate = \"4xA100-40GB\"\n");
    let mut random = Random(19);
    for _ in 0..6 {
        let mut command = through(&place, &daemon, &["sweep.toml"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(random.below(500)));
        signal(&child, libc::SIGKILL);
        child.wait().unwrap();
    }
    let output = finish(through(&place, &daemon, &["sweep.toml"]));
    output.code(0);
    let expected: BTreeMap<_, _> = (1..=6).map(|run| (run.to_string(), (2, 2))).collect();
    assert_eq!(log(&place), expected);
    assert_eq!(column(&place, "state"), vec!["finished"; 12]);
    assert_eq!(open_jobs(&daemon), [Value::Null; 0]);
}

/// A job that is submitted through the socket itself.
fn member(daemon: &Daemon, memory: u64, site: u32) -> Member {
    let spec = Spec {
        command: names(&["/bin/true"]),
        cwd: daemon.place().to_owned(),
        gpus: 1,
        mem: Some(memory << 30),
        ..Spec::default()
    };
    Member { spec, site }
}

#[test]
fn a_group_of_which_one_job_is_rejected_has_no_job() {
    let daemon = Daemon::new("emulate = \"2xA100-40GB\"\njobs_per_user = 3\n");
    let mut connection = Connection::open(Some(&daemon.path("socket"))).unwrap();
    let good = || member(&daemon, 1, 0);
    let with = |change: fn(&mut Spec)| {
        let mut member = good();
        change(&mut member.spec);
        member
    };
    for (group, part) in [
        (vec![good(), with(|spec| spec.command.clear())], "in place 2: "),
        (vec![good(), Member { site: 1, ..with(|spec| spec.gpus = 5) }], "in place 2: "),
        (vec![good(), with(|spec| spec.array = Some("0-1".parse().unwrap()))], "array"),
        (vec![member(&daemon, 30, 0), member(&daemon, 30, 0)], "the 2 jobs could never start together: "),
        ((0..3).map(|site| member(&daemon, 1, site)).collect(), "the 3 jobs could never start together: "),
        (vec![], "0 jobs"),
        (
            vec![good(), with(|spec| spec.together = Some(Position { position: 0, members: 1, site: 0 }))],
            "found by radrmd",
        ),
    ] {
        let text = match connection.ask(&Request::SubmitTogether(group)) {
            Err(ProtocolError::Refused(text)) => text,
            other => panic!("{part}: {other:?}"),
        };
        assert!(text.contains(part) && text.lines().count() == 1, "{part}: {text}");
    }
    // More than the user may have at the moment: later, and then none is taken either.
    let held = daemon.submit(&["--hold", "--gpus", "1", "--gpu-mem", "1GiB"], &["true"]);
    let answer = connection.ask(&Request::SubmitTogether((0..3).map(|_| good()).collect()));
    assert!(matches!(&answer, Err(ProtocolError::Later(text)) if text.contains("in place 3")), "{answer:?}");
    // One job cannot give itself a place in a group of another.
    let place = Some(Position { position: 1, members: 2, site: 0 });
    let forged = Request::Submit(Box::new(Spec { together: place, ..good().spec }));
    assert!(matches!(connection.ask(&forged), Err(ProtocolError::Refused(_))));
    assert_eq!(jobs(&daemon).len(), 1, "none of them is a job");
    daemon.ok(&["cancel", &held.to_string()]);
    let answer = connection.ask(&Request::SubmitTogether((0..3).map(|_| good()).collect())).unwrap();
    let Response::Submitted { job: first, .. } = answer else { panic!("{answer:?}") };
    for job in first..first + 3 {
        assert_eq!(daemon.end(job)["exit_code"], 0);
        let history = daemon.show(job)["history"].to_string();
        assert!(history.contains(&format!("jobs {first} to {} start together", first + 2)), "{history}");
    }
}
