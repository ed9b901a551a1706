//! A disk that fills up in the middle of a frame. Played by the limit on the
//! size of files, in a process of its own.

mod common;

use common::*;
use radrm_profile::*;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

#[test]
fn a_disk_that_fills_up_leaves_whole_frames_and_can_be_used_again() {
    const CHILD: &str = "RADRM_TEST_FULL_DISK";
    if let Some(path) = std::env::var_os(CHILD) {
        return fill(Path::new(&path));
    }
    let (small, _) = file(&records()[..2]);
    let limit = small.len() as u64 + 40;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.radrm");
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "a_disk_that_fills_up_leaves_whole_frames_and_can_be_used_again"])
        .env(CHILD, &path);
    let limits = move || {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: both calls are async-signal-safe and get valid arguments.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            if libc::setrlimit(libc::RLIMIT_FSIZE, &limit) != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes async-signal-safe calls only.
    unsafe { child.pre_exec(limits) };
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));

    let read = Profile::open(&path).unwrap();
    let kept = [records()[0].clone(), records()[1].clone(), Record::Note("fits".into())];
    assert_eq!(read, profile(&kept));
}

fn fill(path: &Path) {
    let records = records();
    let mut writer = Writer::create_new(path, &job()).unwrap();
    writer.append(&records[0]).unwrap();
    writer.append(&records[1]).unwrap();
    let before = writer.written();
    assert!(matches!(writer.append(&records[3]), Err(WriteError::Io(_))));
    assert_eq!(writer.written(), before);
    assert_eq!(std::fs::metadata(path).unwrap().len(), before, "the torn frame is still there");
    writer.append(&Record::Note("fits".into())).unwrap();
}
