//! Memory that the processes of a communicator share: how they meet and exchange small messages.
//!
//! ```text
//! head     one word: aborted
//! ranks    for each: process, number of the last exchange it came to, of the last it left, length, content
//! pairs    for each (from, to): messages sent, messages taken, and places for a few of them
//! ```
//! All words are zero in a new file, so the first rank makes it and nothing is prepared.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::runtime::known::LARGEST;

/// Messages between two ranks that may be on their way.
const PLACES: usize = 8;
/// The largest message between two ranks whose content is moved.
pub(super) const LARGEST_TO_ONE: usize = 1 << 20;
const HEAD: usize = 4096;
const WORDS: usize = 64;
const PLACE: usize = 64 + LARGEST_TO_ONE;
/// Between two looks at the others.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// Looks after which it is checked whether the others live.
const LOOKS_PER_CHECK: u32 = 2000;

/// Reason that an exchange did not take place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Broken {
    /// The communicator was aborted.
    Aborted,
    /// Another process ended.
    PeerEnded,
}

/// The shared memory of one communicator, as one rank sees it.
pub(super) struct Region {
    base: *mut u8,
    size: usize,
    path: PathBuf,
    ranks: usize,
    rank: usize,
}

// SAFETY: what is behind the pointer is changed by atomics, or by the rank that owns it at that moment.
unsafe impl Send for Region {}
// SAFETY: as for `Send`.
unsafe impl Sync for Region {}

/// The folder of the run, which goes with it; without one, memory that all processes see.
fn folder() -> PathBuf {
    std::env::var_os(crate::notes::VARIABLE)
        .map(PathBuf::from)
        .and_then(|notes| Some(notes.parent()?.to_owned()))
        .unwrap_or_else(|| PathBuf::from("/dev/shm"))
}

impl Region {
    /// Joins the region of a communicator.
    pub(super) fn join(name: &str, ranks: usize, rank: usize) -> Option<Self> {
        let path = folder().join(format!("radrm-nccl-{name}"));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).ok()?;
        let size = HEAD + ranks * (WORDS + LARGEST) + ranks * ranks * (WORDS + PLACES * PLACE);
        let base = map(&file, size)?;
        let region = Self { base, size, path, ranks, rank };
        // Release: the others may take it that this rank is there.
        region.of(rank, 0).store(std::process::id().into(), Ordering::Release);
        Some(region)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: offsets are multiples of 8 inside the mapping, which lives as long as `self`.
        unsafe { &*self.base.add(offset).cast::<AtomicU64>() }
    }

    fn slot(&self, rank: usize) -> usize {
        HEAD + rank * (WORDS + LARGEST)
    }

    /// Word `index` of a rank: 0 process, 1 came, 2 left, 3 length + 1 (0 = content not known).
    fn of(&self, rank: usize, index: usize) -> &AtomicU64 {
        self.word(self.slot(rank) + 8 * index)
    }

    fn pair(&self, from: usize, to: usize) -> usize {
        HEAD + self.ranks * (WORDS + LARGEST) + (from * self.ranks + to) * (WORDS + PLACES * PLACE)
    }

    /// Returns true if another process takes part: without one there is no rank to wait for.
    pub(super) fn has_others(&self) -> bool {
        let own = u64::from(std::process::id());
        // Acquire: partner of the store in `join`.
        (0..self.ranks).any(|rank| self.of(rank, 0).load(Ordering::Acquire) != own)
    }

    /// Ends all waiting, here and elsewhere.
    pub(super) fn abort(&self) {
        self.word(0).store(1, Ordering::Release);
    }

    fn wait(&self, done: impl Fn() -> bool) -> Result<(), Broken> {
        let mut looks = 0;
        let mut waits = None;
        while !done() {
            // Acquire: partner of `abort`.
            if self.word(0).load(Ordering::Acquire) != 0 {
                return Err(Broken::Aborted);
            }
            looks += 1;
            if looks < 100 {
                thread::yield_now();
            } else {
                thread::sleep(LOOK_INTERVAL);
            }
            if looks % LOOKS_PER_CHECK == 0 && !done() {
                if self.a_rank_ended() {
                    return Err(Broken::PeerEnded);
                }
                waits.get_or_insert_with(Waits::new);
            }
        }
        Ok(())
    }

    fn a_rank_ended(&self) -> bool {
        (0..self.ranks).any(|rank| {
            let process = self.of(rank, 0).load(Ordering::Acquire);
            // SAFETY: signal 0 only asks.
            process != 0 && unsafe { libc::kill(process as libc::pid_t, 0) } != 0
        })
    }

    /// Meets all others for exchange `number` (from 1 on) and gives everyone's content in the order of
    /// ranks; `None` where it is not known.
    pub(super) fn exchange(&self, number: u64, own: Option<&[u8]>) -> Result<Vec<Option<Vec<u8>>>, Broken> {
        let all = |index: usize, least: u64| {
            // Acquire: partner of the Release stores below. Sync point "came" and "left".
            (0..self.ranks).all(|rank| self.of(rank, index).load(Ordering::Acquire) >= least)
        };
        // A rank that still reads the last exchange must not find this one.
        self.wait(|| all(2, number - 1))?;
        let content = own.filter(|content| content.len() <= LARGEST);
        if let Some(content) = content {
            self.write(self.slot(self.rank) + WORDS, content);
        }
        self.of(self.rank, 3).store(content.map_or(0, |content| content.len() as u64 + 1), Ordering::Relaxed);
        self.of(self.rank, 1).store(number, Ordering::Release);
        self.wait(|| all(1, number))?;
        let contents = (0..self.ranks)
            .map(|rank| {
                let length = self.of(rank, 3).load(Ordering::Relaxed).checked_sub(1)?;
                Some(self.read(self.slot(rank) + WORDS, (length as usize).min(LARGEST)))
            })
            .collect();
        self.of(self.rank, 2).store(number, Ordering::Release);
        Ok(contents)
    }

    /// Sends a message to one rank.
    pub(super) fn send(&self, to: usize, content: Option<&[u8]>) -> Result<(), Broken> {
        let pair = self.pair(self.rank, to);
        let (sent, taken) = (self.word(pair), self.word(pair + 8));
        let number = sent.load(Ordering::Relaxed);
        // Acquire: partner of the store in `receive`.
        self.wait(|| number - taken.load(Ordering::Acquire) < PLACES as u64)?;
        let place = pair + WORDS + (number as usize % PLACES) * PLACE;
        let content = content.filter(|content| content.len() <= LARGEST_TO_ONE);
        if let Some(content) = content {
            self.write(place + 64, content);
        }
        self.word(place).store(content.map_or(0, |content| content.len() as u64 + 1), Ordering::Relaxed);
        sent.store(number + 1, Ordering::Release);
        Ok(())
    }

    /// Takes the next message of a rank.
    pub(super) fn receive(&self, from: usize) -> Result<Option<Vec<u8>>, Broken> {
        let pair = self.pair(from, self.rank);
        let (sent, taken) = (self.word(pair), self.word(pair + 8));
        let number = taken.load(Ordering::Relaxed);
        // Acquire: partner of the store in `send`.
        self.wait(|| sent.load(Ordering::Acquire) > number)?;
        let place = pair + WORDS + (number as usize % PLACES) * PLACE;
        let length = self.word(place).load(Ordering::Relaxed).checked_sub(1);
        let content = length.map(|length| self.read(place + 64, (length as usize).min(LARGEST_TO_ONE)));
        taken.store(number + 1, Ordering::Release);
        Ok(content)
    }

    fn write(&self, offset: usize, content: &[u8]) {
        // SAFETY: inside the mapping (callers cap the length), and no rank reads it before the number that says so.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), self.base.add(offset), content.len()) };
    }

    fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut content = vec![0; length];
        // SAFETY: inside the mapping, and its owner does not write it before this rank said that it has left.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(offset), content.as_mut_ptr(), length) };
        content
    }
}

/// A file that says that this rank of a large job waits for another one, for as long as it does: ranks that wait in the
/// store for one that does not run see by that that they would wait for ever.
struct Waits(Option<PathBuf>);

impl Waits {
    fn new() -> Self {
        static WAITS: AtomicU64 = AtomicU64::new(0);
        let rank = std::env::var_os("RADRM_DRY_RUN_RANKS").and_then(|_| std::env::var("RANK").ok());
        let path = rank.map(|rank| folder().join(format!("waiting-{rank}")));
        // Relaxed: numbers only have to differ.
        let text = format!("NCCL {}", WAITS.fetch_add(1, Ordering::Relaxed));
        Self(path.filter(|path| std::fs::write(path, text).is_ok()))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Gone already with the folder: nothing waits any more.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn map(file: &File, size: usize) -> Option<*mut u8> {
    file.set_len(size as u64).ok()?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of a file of this size.
    let base =
        unsafe { libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    (base != libc::MAP_FAILED).then_some(base.cast())
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `join` with this size, and no reference is left.
        unsafe { libc::munmap(self.base.cast(), self.size) };
        // The last one to leave finds it gone already; those who still use it keep their mapping.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks of one process: as two threads they meet like two processes.
    fn two(name: &str) -> [Region; 2] {
        let name = format!("test-{}-{name}", std::process::id());
        [0, 1].map(|rank| Region::join(&name, 2, rank).unwrap())
    }

    #[test]
    fn everybody_gets_what_everybody_brought_many_times_over() {
        let [zero, one] = two("exchange");
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..500_u64 {
                    let all = zero.exchange(number, Some(&number.to_le_bytes())).unwrap();
                    assert_eq!(all[1], Some((number * 2).to_le_bytes().to_vec()));
                }
            });
            for number in 1..500_u64 {
                let all = one.exchange(number, Some(&(number * 2).to_le_bytes())).unwrap();
                assert_eq!(all[0], Some(number.to_le_bytes().to_vec()));
            }
        });
        assert!(!zero.has_others());
    }

    #[test]
    fn messages_between_two_arrive_in_order_and_unknown_ones_as_such() {
        let [zero, one] = two("send");
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..100_u8 {
                    zero.send(1, (number % 3 > 0).then_some(&[number][..])).unwrap();
                }
            });
            for number in 0..100_u8 {
                assert_eq!(one.receive(0), Ok((number % 3 > 0).then_some(vec![number])));
            }
        });
    }

    #[test]
    fn an_abort_wakes_who_waits() {
        let [zero, one] = two("abort");
        thread::scope(|scope| {
            scope.spawn(|| one.abort());
            assert_eq!(zero.exchange(1, None), Err(Broken::Aborted));
        });
    }
}
