//! Early stopping of real programs, and a sweep that is killed in the middle of it.

use super::*;

/// Logs a loss of 27 steps. One that early stopping is to end does not end by itself.
const TRAIN: &str = r#"
import json, os, sys, time
loss = float(sys.argv[1])
def log(word):
    with open('log', 'ab', buffering=0) as file:
        file.write(('%s %s %f\n' % (word, sys.argv[1], time.time())).encode())
log('begin')
file = os.open(os.environ['RADRM_METRICS'], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for step in range(1, 28):
    os.write(file, (json.dumps({'name': 'loss', 'value': loss + 1 / step, 'step': step}) + '\n').encode())
if loss > 0.5: time.sleep(100)
log('end')
"#;

const SWEEP: &str = "command = \"python3 train.py {loss}\"\n[axes]\nloss = [0.5, 0.9, 0.8, 0.1, 0.7]\n\
                     [early_stopping]\nrule = \"halving\"\nmetric = \"loss:min\"\n";

const STATES: [&str; 5] = ["finished", "stopped", "stopped", "finished", "stopped"];

fn training() -> Place {
    let place = place(SWEEP);
    fs::write(place.join("train.py"), TRAIN).unwrap();
    place
}

#[test]
fn early_stopping_ends_runs_that_are_behind_and_no_other() {
    let place = training();
    let output = finish(sweep(&place, &["sweep.toml"]));
    output.code(0);
    assert_eq!(column(&place, "state"), STATES, "{}", output.stderr);
    let line = output.stderr.lines().find(|line| line.contains("2/5 loss=0.9")).unwrap();
    assert!(line.contains("stopped early after ") && line.contains("is not the best of 2 runs"), "{line}");
    let report = finish(sweep(&place, &["report", "sweep.toml", "--best", "loss:min"]));
    for part in ["STOPPED", "best: loss=0.1, alone: loss 0.1370", "their figures are in no mean"] {
        assert!(report.text().contains(part), "{part}: {}", report.text());
    }
    // All are over.
    finish(sweep(&place, &["--rerun", "sweep.toml"])).code(0);
    assert!(log(&place).values().all(|count| count.0 == 1), "{:?}", log(&place));
}

#[test]
fn early_stopping_goes_on_after_the_sweep_was_killed() {
    let place = training();
    let mut killed =
        sweep(&place, &["sweep.toml"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while !log(&place).contains_key("0.8") {
        assert!(begin.elapsed() < Duration::from_secs(PATIENCE), "{:?}", log(&place));
        thread::sleep(Duration::from_millis(20));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    finish(sweep(&place, &["sweep.toml"])).code(0);
    assert_eq!(column(&place, "state"), STATES);
    assert!(log(&place).values().all(|count| count.0 == 1), "{:?}", log(&place));
}

#[test]
fn early_stopping_is_for_runs_that_start_alone() {
    let place = place(&SWEEP.replace("[axes]", "together = 2\n[axes]"));
    finish(sweep(&place, &["sweep.toml"]))
        .code(1)
        .one_sentence("cannot be used with runs that start together");
}
