//! Ends of jobs that are asked to stop: each process has its signal once, and the whole of its time.

use radrm_preload_tests::{artifacts, node::Daemon};

/// A program that saves its work at a signal, which takes two seconds, and ends with 75. It writes each call of its handler
/// and whether it came to its end.
const SAVES: &str = "\
import os, signal, sys, time
def save(number, frame):
    with open(os.environ['PLACE'] + '/' + sys.argv[1], 'a') as file:
        print('signal', number, file=file, flush=True)
        time.sleep(2)
        print('saved', file=file, flush=True)
    os._exit(75)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, save)
with open(os.environ['PLACE'] + '/' + sys.argv[1], 'a') as file:
    print('ready', file=file, flush=True)
while True:
    time.sleep(0.05)
";

fn daemon(config: &str) -> Daemon {
    artifacts::file("radrm");
    let daemon = Daemon::new(config);
    std::fs::write(daemon.path("saves.py"), SAVES).expect("program");
    daemon
}

/// Scripts in which the program is not the job's first process, but for the last one.
const SCRIPTS: [(&str, &str); 6] = [
    ("behind", "python3 saves.py FILE; echo \"python ended with $?\""),
    ("nested", "bash -c 'python3 saves.py FILE; true'; true"),
    ("pipeline", "python3 saves.py FILE | cat; true"),
    ("background", "python3 saves.py FILE & wait; true"),
    ("session", "setsid --wait python3 saves.py FILE; true"),
    ("exec", "exec python3 saves.py FILE"),
];

fn submit(daemon: &Daemon, name: &str, script: &str, options: &[&str]) -> u64 {
    let script = script.replace("FILE", name);
    let job = daemon.submit(&[&["--gpus", "0"], options].concat(), &["/bin/bash", "-c", &script]);
    daemon.until("the program is ready", |daemon| !daemon.lines(name).is_empty());
    job
}

#[test]
fn a_cancelled_job_has_one_sigterm_for_each_process_and_its_whole_grace() {
    let daemon = daemon("cpus = 100\n");
    let jobs = SCRIPTS.map(|(name, script)| (name, submit(&daemon, name, script, &[])));
    for (_, job) in jobs {
        daemon.ok(&["cancel", &job.to_string()]);
    }
    for (name, job) in jobs {
        assert_eq!(daemon.end(job)["end"], "cancelled", "{name}");
        assert_eq!(daemon.lines(name), ["ready", "signal 15", "saved"], "{name}: {}", daemon.show(job));
    }
}

#[test]
fn a_checkpoint_before_the_time_limit_is_finished_whatever_started_the_program() {
    let daemon = daemon("cpus = 100\n");
    let options = ["--checkpoint-signal", "USR1", "--grace", "6s", "--time", "9s"];
    let jobs = SCRIPTS.map(|(name, script)| (name, submit(&daemon, name, script, &options)));
    for (name, job) in jobs {
        assert_eq!(daemon.end(job)["end"], "ended by its time limit", "{name}");
        assert_eq!(daemon.lines(name), ["ready", "signal 10", "saved"], "{name}: {}", daemon.show(job));
    }
}

#[test]
fn a_job_at_its_time_limit_runs_again_where_it_asked_for_that() {
    let daemon = daemon("cpus = 100\n");
    let script = "[ $RADRM_ATTEMPT = 2 ] && exit 0; python3 saves.py FILE; echo \"python ended with $?\"";
    let options = ["--checkpoint-signal", "USR1", "--grace", "6s", "--time", "9s", "--requeue-on-timeout"];
    let job = submit(&daemon, "marks", script, &options);
    let ended = daemon.end(job);
    assert_eq!((&ended["exit_code"], &ended["attempts"]), (&0.into(), &2.into()), "{}", daemon.show(job));
    assert_eq!(daemon.lines("marks"), ["ready", "signal 10", "saved"]);
    assert!(daemon.ok(&["show", &job.to_string()]).contains("--requeue-on-timeout"));
}

#[test]
fn a_preempted_job_behind_a_shell_finishes_its_checkpoint_and_is_requeued() {
    let daemon = daemon("emulate = \"1xA100-40GB\"\n");
    let script = "[ $RADRM_ATTEMPT = 2 ] && exit 0; python3 saves.py FILE; echo \"python ended with $?\"";
    let options = ["--exclusive", "--preemptible", "--checkpoint-signal", "USR1", "--grace", "20s"];
    let job = daemon.submit(&options, &["/bin/bash", "-c", &script.replace("FILE", "marks")]);
    daemon.until("it is ready", |daemon| !daemon.lines("marks").is_empty());
    let important = daemon.submit(&["--priority", "5", "--exclusive"], &["true"]);
    assert_eq!(daemon.end(important)["exit_code"], 0);
    let ended = daemon.end(job);
    assert_eq!((&ended["exit_code"], &ended["attempts"]), (&0.into(), &2.into()), "{}", daemon.show(job));
    assert_eq!(daemon.lines("marks"), ["ready", "signal 10", "saved"]);
}

#[test]
fn what_a_stopped_job_leaves_running_is_killed_when_its_grace_is_over() {
    let daemon = daemon("[scheduler.eviction]\nkill_after = 500\n");
    let deaf = "trap '' TERM; echo ready >> $PLACE/deaf; while :; do sleep 0.1; done";
    let script = format!("bash -c \"{}\"; true", deaf.replace('$', "\\$"));
    let job = daemon.submit(&["--gpus", "0"], &["/bin/bash", "-c", &script]);
    daemon.until("it is deaf", |daemon| !daemon.lines("deaf").is_empty());
    daemon.ok(&["cancel", &job.to_string()]);
    assert_eq!(daemon.end(job)["end"], "cancelled");
}

#[test]
fn a_refused_request_of_a_job_that_ends_with_0_is_shown_and_fails_it_where_asked() {
    let daemon = daemon("");
    let program = radrm_preload_tests::programs::compile("every_gpu.c", &[]).display().to_string();
    std::fs::write(daemon.path("go"), "").expect("file");
    let script = format!("{program} keep 3000 go; true");
    let submit = |options: &[&str]| {
        daemon.submit(
            &[&["--gpu-mem", "1GiB", "--attempts", "1"], options].concat(),
            &["/bin/sh", "-c", &script],
        )
    };
    let job = submit(&[]);
    let end = daemon.end(job);
    assert_eq!((&end["exit_code"], &end["refused"]), (&0.into(), &1.into()), "{end}");
    let shown = daemon.ok(&["show", &job.to_string()]);
    assert!(
        shown.contains("ended with 0 after a request for GPU memory had been refused: the last was 2.93 GiB"),
        "{shown}"
    );
    assert!(daemon.ok(&["stats"]).contains("1 (1 after a refused request for GPU memory)"));
    let end = daemon.end(submit(&["--oom-fails"]));
    assert_eq!((&end["exit_code"], &end["ooms"]), (&1.into(), &1.into()), "{end}");
}
