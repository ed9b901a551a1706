//! Programs and libraries: how they are loaded, and whether the shim can get into them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use bolero::check;
use radrm_fuzz::input;
use radrm_limits::program::elf::Elf;
use radrm_limits::program::target;

fn program() -> Vec<u8> {
    let place = tempfile::tempdir().expect("a folder");
    let (source, built) = (place.path().join("a.c"), place.path().join("a"));
    fs::write(&source, "#include <stdio.h>\nint main(void) { return puts(\"\"); }").expect("a source");
    let compiled = Command::new("cc").arg("-o").args([&built, &source]).status();
    assert!(compiled.is_ok_and(|status| status.success()), "no C compiler");
    fs::read(built).expect("a program")
}

#[test]
fn elf() {
    let wholes = [program(), b"#!/usr/bin/env python3\nimport torch\n".to_vec()];
    let place = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
    let path = place.path().to_path_buf();
    check!().with_max_len(64).for_each(|bytes: &[u8]| {
        let content = input(&wholes, bytes);
        let file = File::options().read(true).write(true).open(&path).expect("the file");
        file.set_len(0).and_then(|()| file.write_all_at(&content, 0)).expect("written");
        if let Ok(Some(elf)) = Elf::read(&file) {
            assert!(elf.interpreter.is_none_or(|name| name.len() <= 1024));
        }
        let _ = target::examine(&path).reason().map(str::len);
    });
}
