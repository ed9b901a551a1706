//! Texts of `/proc` on another user's process: its environment, and the files that it has mapped.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bolero::check;
use radrm_fuzz::input;
use radrm_os::{Environment, Mapping, paths};

#[test]
fn lines_of_maps() {
    let line = b"7f5c1c000000-7f5c1c021000 r-xp 00001000 08:01 1048602                    /usr/lib/libcuda.so.1 (deleted)";
    let wholes = [line.to_vec()];
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        for line in input(&wholes, bytes).split(|byte| *byte == b'\n') {
            if let Some(mapping) = Mapping::parse(line) {
                assert!(mapping.path.as_os_str().as_bytes().starts_with(b"/"));
            }
        }
    });
}

#[test]
fn environments() {
    let wholes = [b"PATH=/bin\0RADRM_SEGMENT=/dev/shm/s\0LD_PRELOAD=a:b c\0EMPTY=\0=\0X".to_vec()];
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let environment = Environment::from(input(&wholes, bytes));
        for name in ["PATH", "RADRM_SEGMENT", "LD_PRELOAD", "EMPTY", "", "X"] {
            let first = environment.entries().find_map(|entry| {
                let at = entry.iter().position(|byte| *byte == b'=')?;
                (&entry[..at] == name.as_bytes()).then(|| &entry[at + 1..])
            });
            assert_eq!(environment.value(name), first, "{name}");
            let _ = paths(OsStr::from_bytes(environment.value(name).unwrap_or_default()));
        }
    });
}
