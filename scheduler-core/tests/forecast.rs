//! Expected starts of the jobs in the queue.

use crate::common::{Node, gib, with};
use radrm_scheduler_core::{ExpectedStart, Job, JobId, Millis, Policy, UserId};

const HOUR: u64 = 3600;

/// A job with GPUs of its own.
fn of(id: u64, gpus: u16, hours: Option<u64>) -> Job {
    let time_limit = hours.map(|hours| Millis::from_secs(hours * HOUR));
    Job { user: UserId(8), gpus, exclusive: true, time_limit, ..gib(id, 1) }
}

fn node(gpus: u32, jobs: Vec<Job>) -> Node {
    let mut node = Node::new(gpus, with(Policy::FirstFit));
    jobs.into_iter().for_each(|job| {
        node.run(job);
    });
    node
}

fn starts(node: &Node, jobs: impl IntoIterator<Item = u64>) -> Vec<Option<ExpectedStart>> {
    jobs.into_iter().map(|job| node.state.expected_start(JobId(job))).collect()
}

fn at(hours: u64) -> Option<ExpectedStart> {
    Some(ExpectedStart::At(Millis::from_secs(hours * HOUR)))
}

#[test]
fn jobs_behind_the_head_are_expected_when_those_before_them_have_left() {
    let mut jobs = vec![of(1, 1, Some(3)), of(2, 1, Some(5)), of(3, 1, Some(2)), of(4, 1, Some(1))];
    jobs.extend([of(5, 1, Some(1)), of(6, 1, Some(1)), of(7, 2, None)]);
    let node = node(2, jobs);
    assert_eq!(starts(&node, 1..=2), [None, None], "they run");
    // GPU 0 is free after 3 hours, and with job 3 again after 5, as GPU 1 is.
    assert_eq!(starts(&node, 3..=7), [at(3), at(5), at(5), at(6), at(7)]);
}

#[test]
fn a_job_that_ends_before_the_head_starts_is_expected_before_it() {
    let jobs =
        vec![of(1, 1, Some(3)), of(2, 1, Some(1)), of(3, 2, Some(4)), of(4, 1, Some(1)), of(5, 1, Some(5))];
    assert_eq!(starts(&node(2, jobs), 3..=5), [at(3), at(1), at(7)]);
}

#[test]
fn a_start_behind_a_job_without_an_end_is_not_known_and_says_why() {
    let jobs = vec![of(1, 1, None), of(2, 1, Some(3)), of(3, 2, Some(1)), of(4, 1, Some(1))];
    let expected = starts(&node(2, jobs), 3..=4);
    let (no_end, behind) = (ExpectedStart::NoEnd { job: JobId(1) }, ExpectedStart::Behind { job: JobId(3) });
    assert_eq!(expected, [Some(no_end), Some(behind)]);
    let why = [no_end, behind].map(|expected| expected.why_unknown().unwrap());
    assert_eq!(why[0], "job 1 before it has no time limit and no known run time");
    assert_eq!(why[1], "GPUs are kept for job 3, whose start is not known");
    assert_eq!(at(1).unwrap().why_unknown(), None);
}

#[test]
fn jobs_that_share_a_gpu_are_expected_when_their_memory_is_free() {
    let of =
        |id, amount, hours| Job { exclusive: false, need: gib(id, amount).need, ..of(id, 1, Some(hours)) };
    let jobs = vec![of(1, 20, 2), of(2, 15, 4), of(3, 30, 1), of(4, 18, 1), of(5, 8, 1)];
    // Of 40 GiB 35 are in use for 2 hours, then 15 for 2 more. Job 3 has to wait for both, job 4 fits beside job 2 before that, and
    // job 5 after job 4.
    assert_eq!(starts(&node(1, jobs), 3..=5), [at(4), at(2), at(3)]);
}

#[test]
fn a_plan_ends_where_it_takes_too_much_work_and_says_so() {
    // A job of 12 GPUs for each hour: each one that is planned is in the way of the next at more times of more GPUs.
    let node = node(12, (1..=60).map(|id| of(id, 12, Some(1))).collect());
    let expected = starts(&node, 2..=60);
    assert_eq!(expected[..2], [at(1), at(2)]);
    let unplanned = expected.iter().position(|start| *start == Some(ExpectedStart::Unplanned)).unwrap();
    let rest = &expected[unplanned..];
    assert!(rest.iter().all(|start| *start == Some(ExpectedStart::Unplanned)), "{rest:?}");
    let planned: Vec<_> = (1..=unplanned as u64).map(at).collect();
    assert_eq!(expected[..unplanned], planned, "all before it are as without an end");
    assert!(ExpectedStart::Unplanned.why_unknown().is_some());
}

#[test]
fn no_more_than_the_first_jobs_of_a_long_queue_are_planned() {
    let node = node(1, (1..=100).map(|id| of(id, 1, Some(1))).collect());
    assert_eq!(starts(&node, [2, 65]), [at(1), at(64)]);
    assert_eq!(starts(&node, [66, 100]), [None, None]);
}
