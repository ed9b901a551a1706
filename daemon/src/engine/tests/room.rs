//! Room that outputs have on the disk.

use super::*;

#[test]
fn outputs_of_jobs_that_waited_stay_within_their_users_room() {
    let (dir, world) = (tempfile::tempdir().unwrap(), Recorder::default());
    let mut engine = open(dir.path(), &world);
    let job = submit(&mut engine, 1);
    let max = |engine: &Engine| engine.output_limit(engine.jobs.entry(job).unwrap()).map(|limit| limit.max);
    let (_to, from) = channel();
    let measured = |engine: &mut Engine, job: u64, bytes: u64| {
        engine.batch(vec![Message::Measured(job, peer().uid, bytes)], &mut Inbox::new(&from));
    };
    (engine.config.max_output, engine.config.disk_per_user) = (8 << 20, 32 << 20);
    assert_eq!(max(&engine), Some(8 << 20));
    measured(&mut engine, job + 50, 30 << 20);
    assert_eq!(max(&engine), Some(2 << 20), "what is left to the user");
    submit(&mut engine, 1);
    round(&mut engine, &world);
    assert_eq!(world.0.borrow().started.len(), 2);
    assert_eq!(max(&engine), Some(1 << 20), "another job of the user writes beside it");
    measured(&mut engine, job, 3 << 20);
    assert_eq!(max(&engine), Some((3 << 20) + (64 << 10)), "what it has, and a few lines");
    engine.config.disk_per_user = 0;
    assert_eq!(max(&engine), Some(8 << 20));
}
