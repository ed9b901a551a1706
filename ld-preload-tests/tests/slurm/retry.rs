//! Jobs that ran out of GPU memory are requeued with more of it.

use std::fs;

use radrm_preload_tests::{child, programs, rig::PATIENCE, slurm::Slurm};

/// Script by which attempts of a job write when they begin and end.
const MARKS: &str =
    "date +%s.%N >> began; [ -z \"$SLURM_RESTART_COUNT\" ] || echo $SLURM_RESTART_COUNT >> restarts\n";

fn lines(slurm: &Slurm, name: &str) -> Vec<String> {
    let text = fs::read_to_string(slurm.path("work").join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn needs(mib: u64) -> String {
    format!("{} {mib}", programs::compile("needs.c", &[]).display())
}

fn submit(slurm: &Slurm, words: &[&str]) -> u32 {
    let ended =
        child::run(slurm.radrm(&[&["sbatch", "--parsable", "-o", "out.%j"], words].concat()), PATIENCE).ok();
    ended.stdout.trim().parse().unwrap_or_else(|_| panic!("{ended:?}"))
}

/// Waits until a job is not tried again.
fn until_over(slurm: &Slurm, job: u32) {
    slurm.until("the job is over", || {
        ["COMPLETED", "FAILED", "CANCELLED"].contains(&slurm.field(job, "JobState").as_str())
    });
}

#[test]
fn a_job_that_needs_three_times_its_estimate_ends_well() {
    let Some(slurm) = Slurm::start(1, 40_960) else { return };
    let failed = "&& exit; date +%s.%N >> failed; exit 1";
    slurm.script("train.sh", &format!("{MARKS}{} {failed}", needs(12 << 10)));
    let job = submit(&slurm, &["--gpu-mem-estimate=4GiB", "--comment=my own words", "train.sh"]);
    until_over(&slurm, job);
    assert_eq!(slurm.field(job, "JobState"), "COMPLETED", "{}", slurm.logs());
    let (began, ended) = (lines(&slurm, "began"), lines(&slurm, "failed"));
    assert_eq!((began.len(), ended.len()), (3, 2), "{began:?} {ended:?}");
    for (failed, again) in ended.iter().zip(&began[1..]) {
        let second = |text: &str| text.parse::<f64>().expect("a time");
        eprintln!("from failure to the next attempt: {:.2} s", second(again) - second(failed));
    }
    let comment = slurm.field(job, "Comment");
    // The parts are of 3 GiB: 6 GiB are seen first, and 12 GiB with the 11 GiB of the second attempt.
    let parts = [
        "my own words; radrm: attempt 3 of 4 with 17.0 GiB after 11.0 GiB",
        "ran out of GPU memory: held and asked for 12.0 GiB",
    ];
    assert!(parts.iter().all(|part| comment.contains(part)), "{comment}");
    slurm.until_idle();
}

#[test]
fn a_job_without_hope_fails_and_other_failures_are_not_tried_again() {
    let Some(slurm) = Slurm::start(1, 2048) else { return };
    // More than the GPU has: the second attempt gets all of it, and there is no third.
    slurm.script("large.sh", &format!("date >> began\n{}", needs(4096)));
    let large = submit(&slurm, &["--gpu-mem-estimate=512MiB", "large.sh"]);
    until_over(&slurm, large);
    assert_eq!(slurm.field(large, "JobState"), "FAILED");
    assert!(lines(&slurm, "began").len() <= 2, "a whole GPU was not enough");
    // One attempt, as it was asked for; a failure without want of memory; one that is done without the memory.
    let asker = programs::compile("quota_ask.c", &[]);
    let dispensable = format!("echo 999999999999 | {}; exit 0", asker.display());
    for (name, text, words, state) in [
        ("once", needs(1024), &["--attempts=1"][..], "FAILED"),
        ("other", "exit 3".to_owned(), &[], "FAILED"),
        ("done", dispensable, &[], "COMPLETED"),
        ("fixed", needs(1024), &["--no-requeue"], "FAILED"),
    ] {
        let script = format!("{name}.sh");
        slurm.script(&script, &format!("date >> began.{name}\n{text}"));
        let job = submit(&slurm, &[words, &["--gpu-mem-estimate=512MiB", &script]].concat());
        until_over(&slurm, job);
        slurm.until("nothing of it is left", || slurm.recorders(job) == 0);
        assert_eq!(slurm.field(job, "JobState"), state, "{name}");
        assert_eq!(slurm.field(job, "Restarts"), "0", "{name}");
        assert_eq!(lines(&slurm, &format!("began.{name}")).len(), 1, "{name}");
    }
}

#[test]
fn shards_made_of_the_option_grow_with_the_attempts() {
    let lua = radrm_preload_tests::artifacts::workspace().join("contrib/slurm/job_submit.lua");
    let lua = fs::read_to_string(lua).expect("job_submit.lua");
    let Some(slurm) = Slurm::start_with_script(1, 40_960, &lua) else { return };
    // The failing program is a step of the script, and the administrator allows three attempts.
    slurm.plug("shard=1MiB attempts=3");
    let job = slurm.sbatch(&["--gpu-mem=4GiB"], &format!("{MARKS}srun {}", needs(12 << 10)));
    until_over(&slurm, job);
    assert_eq!(slurm.field(job, "JobState"), "COMPLETED", "{}", slurm.logs());
    assert_eq!(lines(&slurm, "began").len(), 3);
    let shards = slurm.resources(job);
    assert!(
        shards.strip_prefix("gres:shard:").is_some_and(|count| count.parse::<u64>().unwrap() >= 12 << 10),
        "{shards}"
    );
}

#[test]
fn a_cancelled_job_is_not_tried_again() {
    let Some(slurm) = Slurm::start(1, 40_960) else { return };
    slurm.script("stays.sh", &format!("{}; touch refused; sleep 1000; exit 1", needs(12 << 10)));
    let job = submit(&slurm, &["--gpu-mem-estimate=4GiB", "stays.sh"]);
    slurm.until("memory was refused", || slurm.path("work/refused").exists());
    let _ = slurm.said("scancel", &[&job.to_string()]);
    slurm.until_ended(job);
    slurm.until("nothing of it is left", || slurm.recorders(job) == 0);
    assert_eq!(slurm.field(job, "JobState"), "CANCELLED");
    assert_eq!(slurm.field(job, "Restarts"), "0");
    slurm.until_idle();
}
