//! A terminal with a `radrm` on it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A `radrm` on a terminal, as a user has it.
pub(crate) struct Screen {
    pub(crate) client: Child,
    keyboard: File,
    seen: String,
}

impl Screen {
    pub(crate) fn new(mut command: Command, rows: u16, columns: u16) -> Self {
        let (mut master, mut slave) = (-1, -1);
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let null = std::ptr::null_mut();
        // SAFETY: the outputs are writable, no name is asked for, and the size is a valid one.
        let got = unsafe {
            libc::openpty(&raw mut master, &raw mut slave, null, std::ptr::null(), &raw const size)
        };
        assert_eq!(got, 0, "a terminal");
        // SAFETY: the call has just opened both.
        let (master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        // SAFETY: plain system calls on descriptors of this test.
        unsafe {
            libc::fcntl(master.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC);
            libc::fcntl(master.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        let client = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("radrm");
        Self { client, keyboard: File::from(master), seen: String::new() }
    }

    pub(crate) fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("keys");
    }

    /// Waits until this is on the screen, and forgets what was there up to its end.
    pub(crate) fn until(&mut self, text: &str) {
        let since = Instant::now();
        loop {
            let mut bytes = [0; 4096];
            if let Ok(read) = self.keyboard.read(&mut bytes) {
                self.seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(120), "no {text:?} in {:?}", self.seen);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn code(&mut self) -> Option<i32> {
        self.client.wait().expect("an end").code()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}
