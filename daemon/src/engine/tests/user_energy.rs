//! Energy of users: what one of them alone took, kept over a restart.

use std::time::{Duration, Instant};

use radrm_protocol::wire::UsageRow;

use super::*;
use crate::gpus::Sample;
use crate::long_read::{LongRead, Progress};

/// A poll at which the GPU has counted so much, mJ.
fn counted(engine: &mut Engine, energy_mj: u64) {
    counted_at(engine, energy_mj, Instant::now());
}

fn counted_at(engine: &mut Engine, energy_mj: u64, begun: Instant) {
    let sample = Sample { uuid: "GPU-0".into(), energy_mj: Some(energy_mj), ..Sample::default() };
    let poll = Poll { samples: vec![sample], begun, ..Poll::begin() };
    let (_to, from) = channel();
    engine.batch(vec![Message::Polled(poll)], &mut Inbox::new(&from));
}

fn usage(engine: &Engine) -> Vec<UsageRow> {
    let request = Request::Usage { user: None, from_ms: 0, to_ms: u64::MAX };
    let mut read = LongRead::of(request).unwrap();
    loop {
        match engine.read_on(&peer(), read) {
            Progress::More(rest) => read = rest,
            Progress::Done(Response::Usage(rows)) => return rows,
            Progress::Done(other) => panic!("{other:?}"),
        }
    }
}

/// An engine on whose GPU one user has a job; it has counted 2 MJ before.
fn with_a_job(dir: &Path, world: &Recorder) -> Engine {
    let mut engine = open(dir, world);
    counted(&mut engine, 1_000_000_000);
    counted(&mut engine, 2_000_000_000);
    let job = submit(&mut engine, 5);
    for _ in 0..3 {
        round(&mut engine, world);
        world.0.borrow_mut().advance(|_| None);
    }
    assert_eq!(engine.jobs.entry(job).unwrap().stage, Stage::Running);
    // What ran for no time has no GPU-hours.
    std::thread::sleep(Duration::from_millis(5));
    engine
}

fn energy(engine: &mut Engine) -> Vec<Option<f64>> {
    engine.note_energy();
    assert!(engine.commit().is_some());
    usage(engine).into_iter().map(|row| row.energy_mj).collect()
}

#[test]
fn energy_that_a_gpu_took_while_it_was_not_polled_is_no_users() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = with_a_job(dir.path(), &Recorder::default());
    let begin = Instant::now();
    let after = |seconds| begin + Duration::from_secs(seconds);
    counted_at(&mut engine, 2_500_000_000, begin);
    counted_at(&mut engine, 9_000_000_000, after(3600));
    counted_at(&mut engine, 9_250_000_000, after(3601));
    assert_eq!(energy(&mut engine), [Some(0.75)], "0.5 MJ before the gap and 0.25 MJ after it");
}

#[test]
fn the_energy_of_a_gpu_is_that_of_the_one_user_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = with_a_job(dir.path(), &world);
    counted(&mut engine, 2_500_000_000);
    counted(&mut engine, 4_000_000_000);
    assert_eq!(energy(&mut engine), [Some(2.0)], "2.0 of 3.0 MJ were counted while the job ran");
    drop(engine);
    assert_eq!(energy(&mut open(dir.path(), &world)), [Some(2.0)]);
}
