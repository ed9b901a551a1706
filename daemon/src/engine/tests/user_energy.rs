//! Energy of users: what one of them alone took, kept over a restart.

use radrm_protocol::wire::UsageRow;

use super::*;
use crate::gpus::Sample;
use crate::long_read::{LongRead, Progress};

/// A poll at which the GPU has counted so much, mJ.
fn counted(engine: &mut Engine, energy_mj: u64) {
    let sample = Sample { uuid: "GPU-0".into(), energy_mj: Some(energy_mj), ..Sample::default() };
    let poll = Poll { samples: vec![sample], ..Poll::begin() };
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

#[test]
fn the_energy_of_a_gpu_is_that_of_the_one_user_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open(dir.path(), &world);
    counted(&mut engine, 1_000_000_000);
    counted(&mut engine, 2_000_000_000);
    let job = submit(&mut engine, 5);
    for _ in 0..3 {
        round(&mut engine, &world);
        world.0.borrow_mut().advance(|_| None);
    }
    assert_eq!(engine.jobs.entry(job).unwrap().stage, Stage::Running);
    // What ran for no time has no GPU-hours.
    std::thread::sleep(std::time::Duration::from_millis(5));
    counted(&mut engine, 2_500_000_000);
    counted(&mut engine, 4_000_000_000);
    engine.note_energy();
    assert!(engine.commit().is_some());
    let energy = |engine: &Engine| usage(engine).into_iter().map(|row| row.energy_mj).collect::<Vec<_>>();
    assert_eq!(energy(&engine), [Some(2.0)], "2.0 of 3.0 MJ were counted while the job ran");
    drop(engine);
    assert_eq!(energy(&open(dir.path(), &world)), [Some(2.0)]);
}
