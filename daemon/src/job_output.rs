//! Output of a job, which the supervisor copies to its file: as much as the job may have, and never the disk's last room,
//! which is for the queue.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{StatVfs, fstatvfs};
use serde::{Deserialize, Serialize};

use crate::status::{self, OutputEnd};

/// Name in front of the line that ends an output.
const NAME: &str = "radrmd";
/// Read at a time, bytes.
const BUFFER: usize = 64 << 10;
/// Bytes between two looks at the room on the disk.
const CHECK: u64 = 1 << 20;
/// Reads of what is left in the pipe at the end: more than any pipe has.
const MAX_LEFT: usize = 64;
/// Part of the file system that the reserve is at most.
const MAX_PART: u64 = 10;

/// Bytes of a disk for which file systems have one inode: a file takes so much of what there is for files.
pub(crate) const BYTES_OF_INODE: u64 = 16 << 10;

/// A file system, bytes and inodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disk {
    /// Free for all users.
    pub(crate) free: u64,
    pub(crate) all: u64,
    /// Likewise.
    pub(crate) free_inodes: u64,
    /// 0: the file system makes them as they are needed.
    pub(crate) all_inodes: u64,
}

impl Disk {
    pub(crate) fn of(found: &StatVfs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Self {
            free: bytes(found.f_bavail),
            all: bytes(found.f_blocks),
            free_inodes: found.f_favail,
            all_inodes: found.f_files,
        }
    }

    /// Inodes that are left where the configuration names this reserve of bytes.
    pub(crate) fn inode_reserve(self, configured: u64) -> u64 {
        (configured / BYTES_OF_INODE).min(self.all_inodes / MAX_PART)
    }

    /// Bytes that outputs leave of it where the configuration names this reserve.
    pub(crate) fn reserve(self, configured: u64) -> u64 {
        configured.min(self.all / MAX_PART)
    }
}

/// Room for a job's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutputLimit {
    /// Size of the file, bytes; 0: any.
    pub(crate) max: u64,
    /// Free bytes that stay on the disk, but no more than a tenth of it.
    pub(crate) reserve: u64,
}

/// Copying under way.
#[derive(Debug)]
pub(crate) struct Copying {
    thread: JoinHandle<Vec<u8>>,
    /// Closed when no more is awaited.
    end: PipeWriter,
}

impl Copying {
    /// Copies from the pipe to the file, on a thread of its own. An early end of the output is noted in the status file.
    ///
    /// # Errors
    /// There is no thread.
    pub(crate) fn start(from: PipeReader, to: &File, limit: OutputLimit, status: &File) -> io::Result<Self> {
        let (ended, end) = io::pipe()?;
        let mut copy = Copy::to(to.try_clone()?, limit);
        let status = status.try_clone()?;
        let work = move || {
            let note = |why| drop(status::put_output_end(&status, why));
            copy.run(from, &ended, note);
            copy.lost
        };
        let thread = thread::Builder::new().name("output".into()).stack_size(256 << 10).spawn(work)?;
        Ok(Self { thread, end })
    }

    /// Waits until all that was written is copied. Returns the last of what the file has no room for.
    pub(crate) fn finish(self) -> Vec<u8> {
        drop(self.end);
        self.thread.join().unwrap_or_default()
    }
}

/// State of the copying.
#[derive(Debug)]
struct Copy {
    to: File,
    limit: OutputLimit,
    /// Size of the file.
    size: u64,
    /// Bytes that can be written before the next look at the disk.
    unchecked: u64,
    /// The last byte was the end of a line.
    at_line: bool,
    ended: bool,
    /// The end of what is not in the file.
    lost: Vec<u8>,
}

impl Copy {
    fn to(to: File, limit: OutputLimit) -> Self {
        let size = to.metadata().map_or(0, |found| found.len());
        Self { to, limit, size, unchecked: 0, at_line: true, ended: false, lost: Vec::new() }
    }

    /// Copies until all writers are gone, or until `ended` is closed and the pipe is empty.
    fn run(&mut self, mut from: PipeReader, ended: &PipeReader, note: impl Fn(OutputEnd)) {
        let mut buffer = vec![0; BUFFER];
        let mut left = None;
        while left != Some(0) {
            let mut both = [PollFd::new(&from, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let watched = if left.is_some() { &mut both[..1] } else { &mut both[..] };
            match poll(watched, left.map(|_| &now)) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
                Ok(_) => {}
            }
            let (has_more, is_over) = (!both[0].revents().is_empty(), !both[1].revents().is_empty());
            if let Some(left) = &mut left {
                *left -= 1;
            } else if is_over {
                left = Some(MAX_LEFT);
            }
            match (has_more, left) {
                (false, Some(_)) if left != Some(MAX_LEFT) => return,
                (false, _) => continue,
                (true, _) => {}
            }
            match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(more) => {
                    if let Some(why) = self.take(&buffer[..more]) {
                        note(why);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Writes what there is room for; with the reason if the output ends with it.
    fn take(&mut self, bytes: &[u8]) -> Option<OutputEnd> {
        if self.ended {
            self.lose(bytes);
            return None;
        }
        let room = match self.limit.max {
            0 => bytes.len(),
            max => bytes.len().min(usize::try_from(max.saturating_sub(self.size)).unwrap_or(usize::MAX)),
        };
        let why = if !self.has_disk(room as u64) || self.write(&bytes[..room]).is_err() {
            self.lose(bytes);
            OutputEnd::Disk
        } else if room < bytes.len() {
            self.lose(&bytes[room..]);
            OutputEnd::Limit(self.limit.max)
        } else {
            return None;
        };
        self.ended = true;
        let line = if self.at_line { "" } else { "\n" };
        let text = format!("{line}{}: {}\n", NAME, why.sentence());
        let _ = self.to.write_all(text.as_bytes());
        Some(why)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.size += bytes.len() as u64;
        self.at_line = bytes.last().map_or(self.at_line, |last| *last == b'\n');
        Ok(())
    }

    /// Keeps the end of what is not in the file: a program's last words may say why it failed.
    fn lose(&mut self, bytes: &[u8]) {
        self.lost.extend_from_slice(bytes);
        let more = self.lost.len().saturating_sub(BUFFER);
        self.lost.drain(..more);
    }

    /// Returns true if the reserve is still free after so many bytes.
    fn has_disk(&mut self, bytes: u64) -> bool {
        if self.limit.reserve == 0 {
            return true;
        }
        if let Some(left) = self.unchecked.checked_sub(bytes) {
            self.unchecked = left;
            return true;
        }
        let Ok(disk) = fstatvfs(self.to.as_fd()).map(|found| Disk::of(&found)) else { return true };
        self.unchecked = CHECK;
        disk.free >= disk.reserve(self.limit.reserve).saturating_add(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn copied(limit: OutputLimit, pieces: &[&[u8]]) -> (String, Option<OutputEnd>, Vec<u8>) {
        let place = tempfile::tempdir().unwrap();
        let (output, status) = (place.path().join("output"), place.path().join("status"));
        let append = |path| File::options().create(true).append(true).open(path).unwrap();
        let file = status::make(&status).unwrap();
        let (from, mut to) = io::pipe().unwrap();
        let copying = Copying::start(from, &append(&output), limit, &file).unwrap();
        pieces.iter().for_each(|piece| to.write_all(piece).unwrap());
        // The writer stays open: a process that is no part of the job may hold it for ever.
        let lost = copying.finish();
        let end = status::read(&status).unwrap().unwrap().status.output_end;
        drop(to);
        (fs::read_to_string(output).unwrap(), end, lost)
    }

    #[test]
    fn output_ends_at_its_limit_with_one_line_and_the_writer_goes_on() {
        let limit = OutputLimit { max: 10, reserve: 0 };
        assert_eq!(copied(limit, &[b"0123\n", b"5678\n"]), ("0123\n5678\n".into(), None, vec![]));
        let many = vec![b'x'; 3 << 20];
        let (text, end, lost) = copied(limit, &[b"0123\n567", &many, b"CUDA out of memory"]);
        assert_eq!(text, format!("0123\n567xx\nradrmd: {}\n", OutputEnd::Limit(10).sentence()));
        assert_eq!(end, Some(OutputEnd::Limit(10)));
        assert!(lost.len() == BUFFER && lost.ends_with(b"CUDA out of memory"), "its last words");
        assert_eq!(copied(OutputLimit::default(), &[&many]).0.len(), many.len(), "no limit");
    }

    #[test]
    fn output_leaves_the_reserve_of_the_disk() {
        let place = tempfile::tempdir().unwrap();
        let file = File::options().create(true).append(true).open(place.path().join("o")).unwrap();
        let found = fstatvfs(&file).unwrap();
        let free = found.f_bavail * found.f_frsize;
        let reserve = found.f_blocks * found.f_frsize / MAX_PART;
        if free < reserve + (1 << 30) {
            eprintln!("skipped: the disk is nearly full");
            return;
        }
        let mut copy = Copy::to(file, OutputLimit { max: 0, reserve: u64::MAX });
        assert!(copy.has_disk(1) && copy.has_disk(CHECK), "a tenth of the disk at most");
        copy.unchecked = 0;
        assert!(!copy.has_disk(free - reserve / 2));
    }
}
