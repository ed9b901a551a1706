//! The harness itself: a hang fails, and fails in time.

use std::process::Command;

use radrm_preload_tests::{child, header, programs};

#[test]
#[should_panic(expected = "did not end in time")]
fn a_program_that_hangs_is_killed_with_its_children() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "sleep 1000 & sleep 1000"]);
    child::run(command, 1);
}

#[test]
fn the_header_declares_every_entry_point_that_has_a_prototype() {
    let text = header::text();
    for row in header::declared() {
        assert!(text.contains(&format!("CUresult {}(", row.symbol)), "{}", row.symbol);
    }
    assert!(header::declared().len() > 650);
}

#[test]
fn a_program_that_does_not_compile_says_why() {
    let error = programs::try_compile("probe.c", &["-DMUST=@"]).expect_err("this is no C");
    assert!(error.contains("error"), "{error}");
}
