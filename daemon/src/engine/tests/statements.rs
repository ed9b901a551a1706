//! Work on the queue's disk at the end of a job: as much behind ten waiting jobs as behind a thousand.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::ffi;

use super::*;
use crate::status::End;

unsafe extern "C" fn count(_: c_uint, counter: *mut c_void, _: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: `counter` is the address that `statements` registered, of a value that is never freed.
    unsafe { &*counter.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
    0
}

/// Counts all statements that SQLite runs on the engine's queue from here on.
fn statements(engine: &Engine) -> &'static AtomicU64 {
    let counter: &'static AtomicU64 = Box::leak(Box::default());
    let address = std::ptr::from_ref(counter).cast_mut().cast();
    // SAFETY: the connection is open, the callback has the type that SQLite calls, and the counter lives for ever.
    let done = unsafe {
        let connection = engine.outbox.store().connection.handle();
        ffi::sqlite3_trace_v2(connection, ffi::SQLITE_TRACE_STMT, Some(count), address)
    };
    assert_eq!(done, ffi::SQLITE_OK);
    counter
}

/// Statements for each of some ends in front of so many waiting jobs of the same program, the first of which teaches all of them.
fn per_end(waiting: u32) -> Vec<u64> {
    let dir = tempfile::tempdir().unwrap();
    let world = Recorder::default();
    let mut engine = open(dir.path(), &world);
    let array = format!("0-{}", waiting + 9).parse().ok();
    let spec = Spec { command: vec!["p".to_owned()], cwd: "/".into(), gpus: 1, array, ..Spec::default() };
    let Response::Submitted { .. } = ask(&mut engine, Request::Submit(Box::new(spec))) else { panic!() };
    let counter = statements(&engine);
    let mut counts = Vec::new();
    for number in 0..6 {
        round(&mut engine, &world);
        let attempt = *world.0.borrow().started.last().unwrap();
        let began = engine.now.at.0 - 70_000;
        world.0.borrow_mut().begin(attempt, began);
        round(&mut engine, &world);
        counter.store(0, Ordering::Relaxed);
        // No two runs are equal: they differ by 0.2 s of a minute and by 4 MiB of 20 GiB.
        let (at_ms, peak) = (began + 60_000 + number * 200, Some(20 * GIB + (number << 22)));
        world.0.borrow_mut().end(attempt, End { code: Some(0), at_ms, peak, ..End::default() });
        round(&mut engine, &world);
        while !engine.unlearned.is_empty() {
            round(&mut engine, &world);
        }
        counts.push(counter.load(Ordering::Relaxed));
        let started = world.0.borrow().started.len();
        assert_eq!(started as u64, number + 2, "the next one is started");
    }
    counts
}

#[test]
fn an_end_takes_as_many_statements_behind_ten_jobs_as_behind_a_thousand() {
    let [few, many] = [10, 1000].map(per_end);
    assert!(many[0] > few[0] + 900, "what the first run teaches is written for each job: {few:?} {many:?}");
    assert_eq!(few[1..], many[1..]);
}
