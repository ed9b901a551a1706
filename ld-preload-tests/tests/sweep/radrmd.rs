//! Sweeps whose runs are jobs of a real radrmd on emulated GPUs: conditions, ends, and what happens when the sweep or the
//! daemon is killed.

use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::channel;

use radrm_preload_tests::node::Daemon;
use radrm_protocol::wire::{self, Request, Response};
use serde_json::Value;

use super::*;

const GPUS: &str = "emulate = \"4xA100-40GB\"\n";

/// A sweep whose daemon listens there.
fn at(place: &Place, socket: &Path, words: &[&str]) -> Command {
    let mut command = sweep(place, words);
    command.env("RADRM_SOCKET", socket);
    command
}

pub(super) fn through(place: &Place, daemon: &Daemon, words: &[&str]) -> Command {
    at(place, &daemon.path("socket"), words)
}

/// The user's jobs, also those that are over.
pub(super) fn jobs(daemon: &Daemon) -> Vec<Value> {
    let text = daemon.ok(&["queue", "--ended", "1000", "--json"]);
    serde_json::from_str(&text).expect("JSON")
}

pub(super) fn open_jobs(daemon: &Daemon) -> Vec<Value> {
    jobs(daemon).into_iter().filter(|job| job["state"] != "ended").collect()
}

/// Every run of these names began and ended once, in one attempt of one job, and no job is left.
#[track_caller]
pub(super) fn each_once(place: &Place, daemon: &Daemon, names: &[String]) {
    let expected: BTreeMap<_, _> = names.iter().map(|name| (name.clone(), (1, 1))).collect();
    assert_eq!(log(place), expected, "runs by how often they began and ended");
    assert_eq!(column(place, "state"), vec!["finished"; names.len()]);
    let started = jobs(daemon).into_iter().filter(|job| job["attempts"] != 0);
    let attempts: Vec<_> = started.map(|job| job["attempts"].as_u64()).collect();
    assert_eq!(attempts, vec![Some(1); names.len()], "attempts of jobs");
    assert_eq!(open_jobs(daemon), [Value::Null; 0]);
}

#[test]
fn runs_are_jobs_with_their_limits_and_their_profiles_are_kept() {
    let place = Place::new();
    fs::write(place.join("program.py"), ALLOCATE).unwrap();
    let text = "command = \"python3 program.py {mib} asked.{mib} 1\"\n\
                mem_limit = \"4GiB\"\nsm_limit = \"50%\"\ntimeout = \"100s\"\n[axes]\nmib = [300, 5000]\n";
    fs::write(place.join("sweep.toml"), text).unwrap();
    let daemon = Daemon::new(GPUS);
    let socket = daemon.path("socket").display().to_string();
    let output = finish(sweep(&place, &["--socket", &socket, "--through", "radrmd", "sweep.toml"]));
    output.code(1);
    for part in
        ["2 jobs for radrmd; `--through self`", "mem_limit=4GiB sm_limit=50%: failed with exit code 2"]
    {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    assert!(output.text().contains("by radrmd"), "{}", output.text());
    let jobs = jobs(&daemon);
    assert_eq!(jobs.len(), 2);
    for job in &jobs {
        assert!(job["name"].as_str().unwrap().starts_with("mib="), "{job}");
        let asked = &job["asked"];
        assert_eq!((&asked["gpu_mem"], &asked["gpu_share"]), (&(4_u64 << 30).into(), &500.into()), "{job}");
        // The one that ran out of its limit is not tried with more.
        assert_eq!((&job["attempts"], &job["time_limit_ms"]), (&1.into(), &100_000.into()), "{job}");
    }
    drop(daemon);
    assert_eq!(column(&place, "state"), ["finished", "failed"]);
    assert_eq!(column(&place, "emulated"), ["true", "true"]);
    let peaks: Vec<u64> =
        column(&place, "peak_bytes").iter().map(|peak| peak.parse().unwrap_or(0) >> 20).collect();
    assert!((300..400).contains(&peaks[0]) && peaks[1] < 4096, "{peaks:?}");
    for profile in column(&place, "profile") {
        assert!(Path::new(&profile).starts_with(place.join("sweep.toml.sweep").canonicalize().unwrap()));
        assert!(fs::metadata(&profile).unwrap().len() > 0);
    }
    // On the same machine: no daemon is needed for what is over.
    finish(sweep(&place, &["sweep.toml"])).code(1);
    assert!(place.join("sweep.toml.sweep/00001/1/output.log").exists());
}

#[test]
fn runs_without_a_limit_are_alone_on_their_gpus_and_end_as_they_end() {
    let place = place(
        "command = \"python3 program.py {x} {seconds} {code}\"\ntimeout = \"8s\"\n[axes]\nx = [\"x\"]\n\
         [[group]]\nname = \"ends\"\nmembers = [{ seconds = 0, code = 0 }]\n\
         [[group]]\nname = \"fails\"\nmembers = [{ seconds = 0, code = 3 }]\n\
         [[group]]\nname = \"hangs\"\nmembers = [{ seconds = 600, code = 0 }]\n",
    );
    let daemon = Daemon::new(GPUS);
    let output = finish(through(&place, &daemon, &["sweep.toml"]));
    output.code(1);
    assert!(output.text().contains("alone") && !output.text().contains("by radrmd"), "{}", output.text());
    assert!(jobs(&daemon).iter().all(|job| job["asked"]["exclusive"] == true));
    assert_eq!(column(&place, "state"), ["finished", "failed", "timeout"], "{}", output.stderr);
    assert_eq!(column(&place, "exit_code"), ["0", "3", ""]);
    // What is over is not submitted again, but for what is asked for.
    finish(through(&place, &daemon, &["sweep.toml"])).code(1);
    assert_eq!(jobs(&daemon).len(), 3);
    finish(through(&place, &daemon, &["--rerun", "sweep.toml"])).code(1);
    assert_eq!(jobs(&daemon).len(), 5);
}

#[test]
fn what_radrmd_cannot_start_as_it_is_meant_is_refused_before_anything_starts() {
    let daemon = Daemon::new(GPUS);
    for (text, words, part) in [
        (
            "collocation = \"3g.20gb\"\n",
            &[][..],
            "group : its run asks for a MIG instance of profile 3g.20gb, and radrmd has none",
        ),
        ("mem_limit = \"50%\"\n", &[], "cannot be a job of radrmd: --gpu-mem: `50%`"),
        ("emulate = \"T4\"\n", &["--through", "radrmd"], "emulated for the sweep"),
    ] {
        let place = place(&format!("command = \"python3 program.py a 0\"\n{text}"));
        let output = finish(through(&place, &daemon, &[words, &["sweep.toml"]].concat()));
        output.code(1).one_sentence(part).one_sentence("`--through self`");
        assert!(!place.join("log").exists());
    }
    let place = place("command = \"python3 program.py a 0\"\ncollocation = \"streams\"\n");
    finish(through(&place, &daemon, &["--through", "self", "sweep.toml"])).code(0);
    assert_eq!(log(&place)["a"], (1, 1));
    // Emulated GPUs of its own need no daemon.
    fs::write(place.join("sweep.toml"), "command = \"python3 program.py b 0\"\nemulate = \"T4\"\n").unwrap();
    finish(through(&place, &daemon, &["sweep.toml"])).code(0);
    assert_eq!((log(&place)["b"], jobs(&daemon).len()), ((1, 1), 0));
}

#[test]
fn a_mig_profile_asks_for_an_instance_of_it() {
    let profile = |name: &str, count: u32| {
        format!(
            "[[gpu]]\nmodel = \"A100-40GB\"\nname = \"NVIDIA A100 MIG {name}\"\nmig_profile = \"{name}\"\n\
             memory_mib = 4864\nsms = 14\ncount = {count}\n"
        )
    };
    let machine = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    fs::write(machine.path(), profile("3g.20gb", 1) + &profile("1g.5gb", 2)).unwrap();
    let daemon = Daemon::new(&format!("emulate = \"{}\"\n", machine.path().display()));
    let place = place(
        "command = \"python3 program.py {x} 0\"\ncollocation = \"1g.5gb\"\n[axes]\nx = [1]\n[[group]]\nname = \"two\"\n\
         members = [{ copies = 2 }]\n",
    );
    finish(through(&place, &daemon, &["sweep.toml"])).code(0);
    assert_eq!(log(&place)["1"], (2, 2));
    let jobs = jobs(&daemon);
    assert!(jobs.iter().all(|job| job["asked"]["gpu_model"] == "NVIDIA A100 MIG 1g.5gb"), "{jobs:?}");
    assert_ne!(jobs[0]["devices"], jobs[1]["devices"], "an instance for each");
    // Three at once are more than there are.
    let text = fs::read_to_string(place.join("sweep.toml")).unwrap().replace("copies = 2", "copies = 3");
    fs::write(place.join("sweep.toml"), text).unwrap();
    let output = finish(through(&place, &daemon, &["sweep.toml"]));
    output.code(1);
    assert!(
        output.stderr.contains("radrmd rejects its group: the 3 jobs could never start together: "),
        "{}",
        output.stderr
    );
}

#[test]
fn runs_under_mps_are_jobs_that_ask_for_it() {
    let daemon = Daemon::new(GPUS);
    let bin = daemon.path("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_radrm-mps-standin"), bin.join("nvidia-cuda-mps-control"))
        .unwrap();
    let place = place(
        "command = \"sh -c 'echo $CUDA_MPS_PIPE_DIRECTORY >> pipes'\"\ncollocation = \"mps\"\ntogether = 2\n",
    );
    let mut command = through(&place, &daemon, &["sweep.toml"]);
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default()));
    finish(command).code(0);
    let pipes = fs::read_to_string(place.join("pipes")).unwrap();
    let pipes: Vec<&str> = pipes.lines().collect();
    assert!(pipes.len() == 2 && pipes[0].ends_with("/mps") && pipes[0] == pipes[1], "{pipes:?}");
    assert!(jobs(&daemon).iter().all(|job| job["asked"]["mps"] == true));
}

#[test]
fn a_daemon_that_is_named_and_absent_is_one_sentence() {
    let place = place("command = \"python3 program.py a 0\"\n");
    let none = place.join("none");
    finish(at(&place, &none, &["sweep.toml"])).code(1).one_sentence("no radrmd answers");
    finish(sweep(&place, &["--socket", "none", "sweep.toml"])).code(1).one_sentence("no radrmd answers");
    assert!(!place.join("log").exists());
    finish(at(&place, &none, &["--through", "self", "sweep.toml"])).code(0);
    assert_eq!(log(&place)["a"], (1, 1));
}

#[test]
fn a_run_that_radrmd_rejects_fails_and_the_others_run() {
    let place = place(
        "command = \"python3 program.py {x} 0\"\n[axes]\nx = [1]\n\
         [[group]]\nname = \"large\"\nmembers = [{ x = 2, devices = [0, 1, 2, 3, 4] }]\n\
         [[group]]\nname = \"small\"\nmembers = [{ x = 3, devices = [7] }]\n",
    );
    let daemon = Daemon::new(GPUS);
    let output = finish(through(&place, &daemon, &["sweep.toml"]));
    output.code(1);
    assert!(output.stderr.contains("radrmd rejects its job: "), "{}", output.stderr);
    assert!(output.stderr.contains("radrmd chooses the GPUs"), "{}", output.stderr);
    assert_eq!(column(&place, "state"), ["failed", "finished"]);
}

/// A sweep under way, with the lines of its standard error.
pub(super) fn started(mut command: Command) -> (Child, BufReader<std::process::ChildStderr>) {
    command.process_group(0).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    (child, stderr)
}

/// A program that ends when it may.
fn waits(place: &Place) {
    let waits =
        PROGRAM.replace("time.sleep(float(sys.argv[2]))", "while not os.path.exists('go'): time.sleep(0.05)");
    fs::write(place.join("program.py"), waits).unwrap();
}

#[test]
fn ctrl_c_cancels_the_jobs_and_the_next_call_goes_on() {
    let place = place("command = \"python3 program.py {x} 0\"\n[axes]\nx = [1, 2, 3]\n");
    waits(&place);
    let daemon = Daemon::new("emulate = \"2xA100-40GB\"\n");
    let (mut child, mut stderr) = started(through(&place, &daemon, &["sweep.toml"]));
    for name in ["1", "2"] {
        wait_for(&place, &format!("begin {name}"));
    }
    signal(&child, libc::SIGINT);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("interrupted: `radrm sweep sweep.toml` goes on"), "{said}");
    assert_eq!(column(&place, "state"), ["waiting"; 3]);
    let jobs = jobs(&daemon);
    assert!(jobs.len() == 3 && jobs.iter().all(|job| job["end"] == "cancelled"), "{jobs:?}");
    assert_eq!(log(&place).len(), 2, "the third one never began");
    fs::write(place.join("go"), "").unwrap();
    finish(through(&place, &daemon, &["sweep.toml"])).code(0);
    let twice = ("1".to_owned(), (2, 1));
    assert_eq!(log(&place), BTreeMap::from([twice, ("2".into(), (2, 1)), ("3".into(), (1, 1))]));
}

#[test]
fn a_daemon_that_goes_away_is_one_sentence_and_its_return_ends_the_sweep() {
    let place = place("command = \"python3 program.py {x} 0\"\n[axes]\nx = [1, 2]\n");
    waits(&place);
    let mut daemon = Daemon::new(GPUS);
    let (mut child, stderr) = started(through(&place, &daemon, &["sweep.toml"]));
    for name in ["1", "2"] {
        wait_for(&place, &format!("begin {name}"));
    }
    daemon.kill();
    let mut lines = stderr.lines().map(Result::unwrap);
    let away = lines.find(|line| line.contains("radrmd went away")).unwrap();
    assert!(away.contains("its jobs go on, and the sweep waits for it"), "{away}");
    fs::write(place.join("go"), "").unwrap();
    for name in ["1", "2"] {
        wait_for(&place, &format!("end {name}"));
    }
    daemon.start();
    let rest: Vec<_> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest:?}");
    assert!(rest[0].contains("radrmd answers again") && !rest.concat().contains("went away"), "{rest:?}");
    each_once(&place, &daemon, &["1".to_owned(), "2".to_owned()]);
}

#[test]
fn jobs_of_a_killed_sweep_are_waited_for_also_by_a_sweep_without_radrmd() {
    let place = place("command = \"python3 program.py {x} 0\"\n[axes]\nx = [1, 2]\n");
    waits(&place);
    let daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let other = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let (mut child, _stderr) = started(through(&place, &daemon, &["sweep.toml"]));
    wait_for(&place, "begin 1");
    daemon.until("both are released", |daemon| {
        open_jobs(daemon).iter().map(|job| job["state"].as_str()).eq([Some("running"), Some("waiting")])
    });
    signal(&child, libc::SIGKILL);
    child.wait().unwrap();
    // With the numbers of this sweep's jobs, and other jobs.
    for _ in 0..2 {
        other.submit(&["--hold", "--name", "other"], &["true"]);
    }
    let output = finish(through(&place, &other, &["sweep.toml"]));
    output.code(1);
    assert!(output.stderr.contains("does not know it: name the other's socket"), "{}", output.stderr);
    finish(at(&place, &place.join("none"), &["--through", "self", "sweep.toml"]))
        .code(1)
        .one_sentence("each of 2 runs is a job of radrmd: no radrmd answers");
    fs::write(place.join("go"), "").unwrap();
    finish(through(&place, &daemon, &["--through", "self", "sweep.toml"])).code(0);
    each_once(&place, &daemon, &["1".to_owned(), "2".to_owned()]);
    assert_eq!(open_jobs(&other).len(), 2, "jobs of others are left alone");
}

#[test]
fn a_job_that_its_radrmd_does_not_know_is_run_again_only_if_asked() {
    let place = place("command = \"python3 program.py a 600\"\n");
    let lost = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let (mut child, _stderr) = started(through(&place, &lost, &["sweep.toml"]));
    wait_for(&place, "begin a");
    signal(&child, libc::SIGKILL);
    child.wait().unwrap();
    drop(lost);
    let daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let output = finish(through(&place, &daemon, &["sweep.toml"]));
    output.code(1);
    assert!(output.stderr.contains("is job 1 of a radrmd"), "{}", output.stderr);
    fs::write(place.join("program.py"), PROGRAM.replace("float(sys.argv[2])", "0")).unwrap();
    finish(through(&place, &daemon, &["--rerun", "sweep.toml"])).code(0);
    assert_eq!((log(&place)["a"], jobs(&daemon).len()), ((2, 1), 1));
}

/// Message that never arrives.
#[derive(Clone, Copy, PartialEq)]
enum Lost {
    Submission,
    Answer,
    /// Three seconds of each submission.
    Time,
}

/// Stands between clients and a daemon: passes on what they say, but never the first submission, or the answer to it, or
/// late.
fn silenced(place: &Place, daemon: &Daemon, lost: Lost, then: impl FnOnce() + Send + 'static) -> PathBuf {
    let (socket, real) = (place.join("between"), daemon.path("socket"));
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        let mut then = Some(then);
        for client in listener.incoming() {
            let (Ok(mut client), Ok(mut server)) = (client, UnixStream::connect(&real)) else { return };
            if wire::greet(&mut client).is_err() || wire::greet(&mut server).is_err() {
                continue;
            }
            'requests: while let Ok(Some(request)) = wire::read::<Request>(&mut client) {
                let is_submission = matches!(request, Request::Submit(_));
                if is_submission
                    && lost == Lost::Submission
                    && let Some(then) = then.take()
                {
                    then();
                    break;
                }
                if is_submission && lost == Lost::Time {
                    thread::sleep(Duration::from_secs(3));
                }
                wire::write(&mut server, &request).unwrap();
                let Ok(Some(mut answer)) = wire::read::<Response>(&mut server) else { break };
                if is_submission
                    && lost != Lost::Time
                    && let Some(then) = then.take()
                {
                    then();
                    break;
                }
                // A list comes in parts.
                loop {
                    let is_part = matches!(answer, Response::Part(_));
                    if wire::answer(&mut client, answer).is_err() {
                        break 'requests;
                    }
                    if !is_part {
                        break;
                    }
                    let Ok(Some(next)) = wire::read::<Response>(&mut server) else { break 'requests };
                    answer = next;
                }
            }
        }
    });
    socket
}

#[test]
fn a_job_that_was_submitted_and_not_recorded_is_found_again() {
    // The sweep is killed before it gets the answer, or only the connection is lost.
    for is_killed in [true, false] {
        let place = place("command = \"python3 program.py {x} 0\"\n[axes]\nx = [1, 2]\n");
        let daemon = Daemon::new(GPUS);
        let (to_test, submitted) = channel();
        let (go_on, to_go_on) = channel::<()>();
        let socket = silenced(&place, &daemon, Lost::Answer, move || {
            to_test.send(()).unwrap();
            let _ = to_go_on.recv();
        });
        let (mut child, stderr) = started(at(&place, &socket, &["sweep.toml"]));
        submitted.recv().unwrap();
        let open = open_jobs(&daemon);
        assert!(open.len() == 1 && open[0]["state"] == "held", "{open:?}");
        if is_killed {
            signal(&child, libc::SIGKILL);
            child.wait().unwrap();
            go_on.send(()).unwrap();
            assert!(!place.join("log").exists(), "no job runs whose number is not recorded");
            finish(through(&place, &daemon, &["sweep.toml"])).code(0);
        } else {
            go_on.send(()).unwrap();
            let said: Vec<_> = stderr.lines().map(Result::unwrap).collect();
            assert_eq!(child.wait().unwrap().code(), Some(0), "{said:?}");
        }
        each_once(&place, &daemon, &["1".to_owned(), "2".to_owned()]);
        assert_eq!(jobs(&daemon).len(), 2, "no job was submitted twice");
    }
}

#[test]
fn a_run_whose_sweep_was_killed_before_its_folder_was_made_is_run() {
    let place = place("command = \"python3 program.py {x} 0\"\n[axes]\nx = [1]\n");
    let daemon = Daemon::new(GPUS);
    let (to_test, submitted) = channel();
    let socket = silenced(&place, &daemon, Lost::Submission, move || to_test.send(()).unwrap());
    let (mut child, _stderr) = started(at(&place, &socket, &["sweep.toml"]));
    submitted.recv().unwrap();
    signal(&child, libc::SIGKILL);
    child.wait().unwrap();
    assert_eq!((column(&place, "state"), open_jobs(&daemon).len()), (vec!["started".to_owned()], 0));
    fs::remove_dir_all(place.join("sweep.toml.sweep/00001")).unwrap();
    finish(through(&place, &daemon, &["sweep.toml"])).code(0);
    each_once(&place, &daemon, &["1".to_owned()]);
}

#[test]
fn more_runs_than_a_user_may_have_jobs_wait_in_the_sweep() {
    let place = place("command = \"python3 program.py {x} 0\"\n[axes]\nx = [1, 2, 3, 4, 5]\n");
    let daemon = Daemon::new(&format!("jobs_per_user = 2\n{GPUS}"));
    let output = finish(through(&place, &daemon, &["sweep.toml"]));
    output.code(0);
    assert_eq!(
        output.stderr.matches("radrmd rejects requests for now, and the sweep tries again: ").count(),
        1,
        "{}",
        output.stderr
    );
    each_once(&place, &daemon, &["1", "2", "3", "4", "5"].map(str::to_owned));
}

#[test]
fn submissions_that_take_long_do_not_delay_what_is_over() {
    let place = place("command = \"python3 program.py {x} 0\"\n[axes]\nx = [1, 2, 3]\n");
    let daemon = Daemon::new(GPUS);
    let socket = silenced(&place, &daemon, Lost::Time, || {});
    // Only lists are spaced by twenty times what they take: of the submissions that would be longer than this waits.
    finish(at(&place, &socket, &["sweep.toml"])).code(0);
    each_once(&place, &daemon, &["1", "2", "3"].map(str::to_owned));
}

/// Kills a sweep at random moments and starts it again, until it is done; gives how many kills met it.
fn killed(runs: u32, kills: u32, seed: u64) -> u32 {
    let place = place(&format!(
        "command = \"python3 program.py {{x}} 0.1\"\n[axes]\nx = {{ from = 1, to = {runs}, step = 1 }}\n"
    ));
    let daemon = Daemon::new(GPUS);
    let (mut random, mut met) = (Random(seed), 0);
    for _ in 0..kills {
        let mut command = through(&place, &daemon, &["sweep.toml"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(random.below(500)));
        signal(&child, libc::SIGKILL);
        let status = child.wait().unwrap();
        met += u32::from(status.signal() == Some(libc::SIGKILL));
        assert!(status.signal() == Some(libc::SIGKILL) || status.success(), "{status:?}");
    }
    let output = finish(through(&place, &daemon, &["sweep.toml"]));
    let failed: Vec<_> = jobs(&daemon).into_iter().filter(|job| job["end"] != "succeeded").collect();
    assert!(output.status.success(), "{failed:#?}\n{}", output.stderr);
    let names: Vec<_> = (1..=runs).map(|run| run.to_string()).collect();
    each_once(&place, &daemon, &names);
    met
}

#[test]
fn a_sweep_of_jobs_that_is_killed_ten_times_runs_each_run_once() {
    assert_eq!(killed(40, 10, 3), 10, "kills that met the sweep");
}

#[test]
#[ignore = "some minutes: 50 kills"]
fn a_sweep_of_jobs_that_is_killed_fifty_times_runs_each_run_once() {
    assert!(killed(120, 50, 4) > 25);
}
