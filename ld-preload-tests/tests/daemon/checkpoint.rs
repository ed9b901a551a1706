//! `radrm.should_checkpoint()` and the callbacks of frameworks, in jobs that radrmd asks to stop.

use std::fs;
use std::process::Command;

use radrm_preload_tests::{artifacts, node::Daemon};

/// Its workers and threads, forked and spawned ones, wait for the request as it does itself; none has a handler of a signal.
const ASKS: &str = "\
import multiprocessing, os, sys, threading, time
import radrm
def note(text):
    with open(os.environ['PLACE'] + '/marks', 'a') as file:
        print(text, file=file, flush=True)
def wait(name):
    while not radrm.should_checkpoint():
        time.sleep(0.01)
    note(name)
if __name__ == '__main__':
    if os.environ['RADRM_ATTEMPT'] == '2':
        note('again: %s' % radrm.should_checkpoint())
        sys.exit(0)
    assert radrm.should_checkpoint() is False
    start = [multiprocessing.get_context(how).Process(target=wait, args=(how,)) for how in ('fork', 'spawn')]
    start.append(threading.Thread(target=wait, args=('thread',)))
    for one in start:
        one.start()
    note('ready')
    wait('main')
    for one in start:
        one.join()
    sys.exit(radrm.REQUEUE)
";

/// Handlers of its signals ask, and end it.
const HANDLES: &str = "\
import os, signal, time
import radrm
def note(text):
    with open(os.environ['PLACE'] + '/marks', 'a') as file:
        print(text, file=file, flush=True)
def handle(number, frame):
    note('%d %s' % (number, radrm.should_checkpoint()))
    os._exit(0)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, handle)
note('ready %s' % radrm.should_checkpoint())
while True:
    time.sleep(0.05)
";

/// The part of PyTorch Lightning's protocol that the callback takes part in: a loop with gradients accumulated over two
/// batches, hooks after each, checkpoints of the trainer's own.
const LIGHTNING: &str = "\
import time
class Callback:
    pass
class Strategy:
    def reduce_boolean_decision(self, decision, all=True):
        return decision
class Trainer:
    def __init__(self, callbacks):
        self.callbacks, self.strategy, self.global_step, self.is_between = callbacks, Strategy(), 0, False
    def save_checkpoint(self, path):
        with open(path, 'w') as file:
            print('between steps' if self.is_between else self.global_step, file=file)
    def fit(self, model, ckpt_path=None):
        if ckpt_path:
            self.global_step = int(open(ckpt_path).read())
        begun = self.global_step
        for callback in self.callbacks:
            callback.on_train_start(self, model)
        batch = 0
        while not (ckpt_path and self.global_step > begun + 3):
            batch += 1
            # Most requests come in the first batch of a step.
            self.is_between = batch % 2 == 1
            time.sleep(0.05 if self.is_between else 0.001)
            self.global_step = begun + batch // 2
            for callback in self.callbacks:
                callback.on_train_batch_end(self, model, None, None, batch)
            model(self, batch)
";

/// The same of transformers' Trainer.
const TRANSFORMERS: &str = "\
import json, time
class TrainerCallback:
    pass
class Named:
    def __init__(self, **names):
        self.__dict__.update(names)
class Trainer:
    def __init__(self, callbacks):
        self.callbacks, self.args = callbacks, Named(world_size=1, device='cpu')
        self.state = Named(global_step=0)
        self.control = Named(should_save=False, should_evaluate=True)
    def _call(self, event):
        for callback in self.callbacks:
            result = getattr(callback, event)(self.args, self.state, self.control, model=None)
            self.control = result if result is not None else self.control
    def train(self, model, resume_from_checkpoint=None):
        if resume_from_checkpoint:
            self.state.global_step = int(open(resume_from_checkpoint).read())
        begun = self.state.global_step
        while not (resume_from_checkpoint and self.state.global_step > begun + 3):
            time.sleep(0.01)
            self.state.global_step += 1
            self.control.should_save, self.control.should_evaluate = False, True
            self._call('on_step_end')
            if self.control.should_save:
                with open('transformers.ckpt', 'w') as file:
                    print(self.state.global_step, file=file)
                self._call('on_save')
            model(self)
";

/// Trains with the framework, from the checkpoint that is there.
const TRAINS: &str = "\
import os, sys
framework, stop = sys.argv[1], sys.argv[2] == 'stop'
os.chdir(os.environ['PLACE'])
def note(text):
    with open('marks', 'a') as file:
        print(text, file=file, flush=True)
noted = set()
def model(*_):
    if 'ready' not in noted:
        noted.add('ready')
        note('ready')
    if not stop and os.path.exists(framework + '.ckpt') and 'on' not in noted:
        noted.add('on')
        note('goes on')
if framework == 'lightning':
    from lightning.pytorch import Trainer
    from radrm.lightning import Checkpoint
    checkpoint = Checkpoint('lightning.ckpt', stop=stop)
    found = checkpoint.found() if stop else None
    Trainer(callbacks=[checkpoint]).fit(model, ckpt_path=found)
else:
    from transformers import Trainer
    from radrm.transformers import Checkpoint
    found = 'transformers.ckpt' if stop and os.path.exists('transformers.ckpt') else None
    Trainer(callbacks=[Checkpoint(stop=stop)]).train(model, resume_from_checkpoint=found)
note('done from %s' % open(found).read().strip())
";

fn daemon() -> Daemon {
    let daemon = Daemon::new("emulate = \"1xA100-40GB\"\n");
    let packages = [("lightning/pytorch", LIGHTNING), ("transformers", TRANSFORMERS)];
    for (package, text) in packages {
        let folder = daemon.path("packages").join(package);
        fs::create_dir_all(&folder).expect("folder");
        fs::write(folder.join("__init__.py"), text).expect("module");
    }
    fs::write(daemon.path("packages/lightning/__init__.py"), "").expect("module");
    for (name, text) in [("asks.py", ASKS), ("handles.py", HANDLES), ("trains.py", TRAINS)] {
        fs::write(daemon.path(name), text).expect("program");
    }
    daemon
}

/// A command line that runs a program of the daemon's place behind a shell, with the module and the frameworks to be found.
fn command(words: &str) -> [String; 3] {
    let module = artifacts::workspace().join("contrib/python");
    let path = format!("export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={}:$PLACE/packages", module.display());
    let script =
        format!("{path}; cd $PLACE; python3 {words}; code=$?; echo ended $code >> marks; exit $code");
    ["/bin/bash".to_owned(), "-c".to_owned(), script]
}

/// Submits it and waits until it runs.
fn submit(daemon: &Daemon, words: &str, options: &[&str]) -> u64 {
    let command = command(words);
    let job = daemon.submit(options, &command.each_ref().map(String::as_str));
    daemon.until("the program is ready", |daemon| {
        daemon.lines("marks").iter().any(|line| line.starts_with("ready"))
    });
    job
}

const PREEMPTIBLE: [&str; 6] = ["--exclusive", "--preemptible", "--checkpoint-signal", "0", "--grace", "60s"];

/// A job that preempts others.
fn preempt(daemon: &Daemon) {
    let important = daemon.submit(&["--priority", "5", "--exclusive"], &["true"]);
    assert_eq!(daemon.end(important)["exit_code"], 0);
}

#[test]
fn every_process_of_a_preempted_job_sees_the_request_without_a_signal() {
    let daemon = daemon();
    let job = submit(&daemon, "asks.py", &PREEMPTIBLE);
    preempt(&daemon);
    let ended = daemon.end(job);
    assert_eq!((&ended["exit_code"], &ended["attempts"]), (&0.into(), &2.into()), "{}", daemon.show(job));
    let mut lines = daemon.lines("marks");
    lines[1..5].sort();
    let expected = ["ready", "fork", "main", "spawn", "thread", "ended 75", "again: False", "ended 0"];
    assert_eq!(lines, expected, "{}", daemon.show(job));
    assert!(daemon.ok(&["show", &job.to_string()]).contains("--checkpoint-signal 0"));
}

#[test]
fn a_handler_of_the_checkpoint_signal_or_of_sigterm_sees_the_request() {
    for (options, seen) in [
        (&PREEMPTIBLE[..2], "15 True"),
        (&["--exclusive", "--preemptible", "--checkpoint-signal", "USR1"], "10 True"),
    ] {
        let daemon = daemon();
        let job = submit(&daemon, "handles.py", options);
        preempt(&daemon);
        daemon.until("its handler has run", |daemon| daemon.lines("marks").len() > 2);
        assert_eq!(daemon.lines("marks")[..2], ["ready False", seen], "{}", daemon.show(job));
        daemon.ok(&["cancel", &job.to_string()]);
        daemon.end(job);
    }
}

#[test]
fn callbacks_save_at_the_next_step_and_the_next_attempt_goes_on_there() {
    for framework in ["lightning", "transformers"] {
        let daemon = daemon();
        let job = submit(&daemon, &format!("trains.py {framework} stop"), &PREEMPTIBLE);
        preempt(&daemon);
        let ended = daemon.end(job);
        assert_eq!((&ended["exit_code"], &ended["attempts"]), (&0.into(), &2.into()), "{}", daemon.show(job));
        let saved = fs::read_to_string(daemon.path(&format!("{framework}.ckpt"))).expect("checkpoint");
        let done = format!("done from {}", saved.trim());
        assert_eq!(daemon.lines("marks"), ["ready", "ended 75", "ready", &done, "ended 0"], "{framework}");
        assert!(saved.trim().parse::<u64>().is_ok_and(|step| step > 0), "{framework}: {saved}");
    }
}

#[test]
fn callbacks_that_do_not_stop_save_once_and_go_on_until_sigterm() {
    for framework in ["lightning", "transformers"] {
        let daemon = daemon();
        let options = ["--exclusive", "--preemptible", "--checkpoint-signal", "0", "--grace", "3s"];
        let job = submit(&daemon, &format!("trains.py {framework} on"), &options);
        preempt(&daemon);
        daemon.until("it has begun again", |daemon| {
            daemon.lines("marks").iter().filter(|line| *line == "ready").count() == 2
        });
        let lines = daemon.lines("marks");
        assert_eq!(lines[..2], ["ready", "goes on"], "{framework}");
        daemon.ok(&["cancel", &job.to_string()]);
        daemon.end(job);
    }
}

#[test]
fn outside_of_radrmd_no_checkpoint_is_asked_for() {
    let module = artifacts::workspace().join("contrib/python");
    let asked = |file: Option<&str>| {
        let mut command = Command::new("python3");
        command.args(["-c", "import radrm; print(radrm.should_checkpoint())"]).env("PYTHONPATH", &module);
        command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("RADRM_CHECKPOINT");
        if let Some(file) = file {
            command.env("RADRM_CHECKPOINT", file);
        }
        let output = command.output().expect("python");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!([asked(None), asked(Some("")), asked(Some("/none/of/it"))], ["False"; 3]);
}
