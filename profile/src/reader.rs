//! Reading a profile back. The file is an allegation: nothing in it is
//! believed before it was checked.

use crate::budget::MAX_RECORD;
use crate::codec;
use crate::error::ReadError;
use crate::frame::{self, FRAME_HEAD_BYTES, Found, HEAD_BYTES, MAX_PAYLOAD};
use crate::model::{Job, Note, Profile};
use crate::record::Record;
use crate::units::Bytes;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Take};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

impl Profile {
    /// Reads a profile file. It may still be growing, or be cut off; what is
    /// there is read, and [`Profile::notes`] says what is not.
    pub fn open(path: &Path) -> Result<Profile, ReadError> {
        Profile::of_file(open(path)?)
    }

    /// Reads a profile from an open file, as [`Profile::open`].
    pub fn of_file(file: File) -> Result<Profile, ReadError> {
        read_file(file, &OWN, || false)
    }

    /// Reads the profile of another user, who may have made it to take the reader's time and memory: its beginning, where it
    /// is a long one, or takes more than [`MAX_TIME_OF_OTHERS`]. [`Profile::notes`] says so. `clock` gives the processor
    /// time that this thread has taken.
    pub fn of_others_file(file: File, clock: impl Fn() -> Duration) -> Result<Profile, ReadError> {
        let until = clock() + MAX_TIME_OF_OTHERS;
        read_file(file, &OTHERS, || clock() >= until)
    }
}

/// Bounds of reading a profile.
#[derive(Debug)]
struct Most {
    /// Bytes of the file.
    file: u64,
    /// Bytes of memory that its records take together.
    memory: usize,
    /// Bytes of memory that one record takes.
    record: usize,
    /// Bytes of a frame's payload.
    payload: usize,
    /// The profile, by its owner.
    whose: &'static str,
    /// Way to read more.
    remedy: &'static str,
}

/// Hours of many GPUs take some ten MB, and no profile is written beyond 256 MiB and its job's end.
const OWN: Most = Most {
    file: 384 << 20,
    memory: 1 << 30,
    record: MAX_RECORD,
    payload: MAX_PAYLOAD,
    whose: "a profile",
    remedy: "",
};

/// The largest state that is written, of 4096 kernels with names of 1 KiB and 16 whole timelines, is larger: only its owner
/// reads that.
const OTHERS: Most = Most {
    file: 32 << 20,
    memory: 32 << 20,
    record: 16 << 20,
    payload: 4 << 20,
    whose: "another user's profile",
    remedy: "; its owner reads all of it",
};

/// Processor time that reading another user's profile takes; what is read at a time comes on top.
pub const MAX_TIME_OF_OTHERS: Duration = Duration::from_millis(400);

/// Damaged frames after which the rest is not read.
const MAX_DAMAGED: usize = 100;
/// Remarks that are read: a report prints each.
const MAX_REMARKS: u64 = 1000;

impl Most {
    fn reached(&self, at: u64) -> Note {
        let Self { file, memory, whose, remedy, .. } = self;
        let (file, memory) = (Bytes(*file), Bytes(*memory as u64));
        Note::Collector(format!(
            "of {whose} {file} are read, and no more than fit into {memory} of memory: what stands before byte {at} \
             is shown{remedy}"
        ))
    }

    fn took_long(&self, at: u64) -> Note {
        let Self { whose, remedy, .. } = self;
        let seconds = MAX_TIME_OF_OTHERS.as_secs_f64();
        Note::Collector(format!(
            "{whose} is read for {seconds} s: what stands before byte {at} is shown{remedy}"
        ))
    }
}

/// Opens a file for reading. A pipe in its place is not waited for.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// Returns true if a process still writes the profile. False where that is unknown, as on file systems without
/// locks.
pub fn is_being_written(path: &Path) -> bool {
    let lock = open(path).map(|file| file.try_lock_shared());
    matches!(lock, Ok(Err(TryLockError::WouldBlock)))
}

/// Reads only the job of a profile file, however long the file is. The
/// program's digest is not in it: it is known only later.
pub fn peek_job(path: &Path) -> Result<Job, ReadError> {
    let mut frames = Frames::of(checked(open(path)?, &OWN)?);
    first_record(&mut frames, &Most { memory: MAX_RECORD, ..OWN }).map(|(job, _)| job)
}

/// A file that is no folder and no device, up to the most that is read.
fn checked(file: File, most: &Most) -> Result<Take<File>, ReadError> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(ReadError::Io(io::ErrorKind::IsADirectory.into()));
    }
    if metadata.file_type().is_char_device() || metadata.file_type().is_block_device() {
        return Err(ReadError::Io(io::Error::new(io::ErrorKind::InvalidInput, "it is a device")));
    }
    Ok(file.take(most.file))
}

fn read_file(file: File, most: &Most, is_over: impl Fn() -> bool) -> Result<Profile, ReadError> {
    let file = checked(file, most)?;
    // Its end is not read only to count the bytes up to there: zeros of a hole cost no room on the disk.
    let metadata = file.get_ref().metadata()?;
    let length = metadata.is_file().then_some(metadata.len());
    read_frames(Frames { length, ..Frames::of(file) }, most, is_over)
}

/// The job, and what it leaves of the room in memory.
fn first_record(frames: &mut Frames<impl Read>, most: &Most) -> Result<(Job, usize), ReadError> {
    frame::check_head(frames.fill(HEAD_BYTES)?)?;
    frames.skip(HEAD_BYTES);
    if frames.next_payload()? > most.payload {
        return Err(ReadError::DamagedHeader);
    }
    match frames.look()? {
        Found::Frame { kind, payload, next } => {
            match codec::decode(kind, payload, most.memory, most.record) {
                (Ok(Some(Record::Job(job))), Some(left)) => {
                    frames.skip(next);
                    Ok((job, left))
                }
                _ => Err(ReadError::DamagedHeader),
            }
        }
        Found::End | Found::CutOff => Err(ReadError::CutOff { bytes: frames.offset + frames.rest()? }),
        Found::Damaged { .. } => Err(ReadError::DamagedHeader),
    }
}

/// Reads a profile from the bytes of its file.
pub fn read_bytes(file: &[u8]) -> Result<Profile, ReadError> {
    read_from(file)
}

fn read_from(file: impl Read) -> Result<Profile, ReadError> {
    read_frames(Frames::of(file), &OWN, || false)
}

fn read_frames(
    mut frames: Frames<impl Read>,
    most: &Most,
    is_over: impl Fn() -> bool,
) -> Result<Profile, ReadError> {
    let (job, mut room) = first_record(&mut frames, most)?;
    let mut profile = Profile::new(job);
    let (mut unknown, mut damaged, mut remarks) = (0u64, 0, 0u64);
    // The file goes on behind the last byte that may be read.
    let goes_on = frames.length.is_some_and(|length| length > most.file);
    loop {
        let at = frames.offset;
        if damaged >= MAX_DAMAGED {
            let text = format!(
                "the profile is damaged in {damaged} places; what stands behind byte {at} is not read"
            );
            profile.notes.push(Note::Collector(text));
            break;
        }
        if is_over() {
            profile.notes.push(most.took_long(at));
            break;
        }
        if frames.next_payload()? > most.payload {
            profile.notes.push(most.reached(at));
            break;
        }
        match frames.look()? {
            Found::End | Found::CutOff if goes_on => {
                profile.notes.push(most.reached(at));
                break;
            }
            Found::End => break,
            Found::Frame { kind, payload, next } => {
                let (decoded, left) = codec::decode(kind, payload, room, most.record);
                let Some(left) = left else {
                    profile.notes.push(most.reached(at));
                    break;
                };
                room = left;
                match decoded {
                    Ok(Some(record)) => {
                        let is_remark =
                            matches!(record, Record::Note(_) | Record::Unseen(_) | Record::Unmeasured(_));
                        remarks += u64::from(is_remark);
                        if !is_remark || remarks <= MAX_REMARKS {
                            profile.apply(record);
                        }
                    }
                    Ok(None) => unknown += 1,
                    Err(_) => {
                        profile.notes.push(Note::Damaged { at, bytes: next as u64 });
                        damaged += 1;
                    }
                }
                frames.skip(next);
            }
            Found::CutOff => {
                profile.notes.push(Note::Truncated { at, bytes: frames.rest()? });
                break;
            }
            Found::Damaged { next } => {
                // One bad frame does not take the rest with it, provided that
                // a good frame (or the end) follows where its length says.
                frames.skip(next.unwrap_or(0));
                let follows = next.is_some() && matches!(frames.look()?, Found::Frame { .. } | Found::End);
                let rest = if follows { 0 } else { frames.rest()? };
                profile.notes.push(Note::Damaged { at, bytes: frames.offset - at + rest });
                damaged += 1;
                if !follows {
                    break;
                }
            }
        }
    }
    if let Some(more) = remarks.checked_sub(MAX_REMARKS).filter(|more| *more > 0) {
        profile.notes.push(Note::Collector(format!("{more} more remarks of the profile are left out")));
    }
    if unknown > 0 {
        profile.notes.push(Note::UnknownFrames { count: unknown });
    }
    Ok(profile)
}

/// Bytes that are read at a time: small enough for little memory, large enough for few calls.
const WINDOW: usize = 256 << 10;

/// The frames of a file, of which one is in memory. It is read and never mapped: its owner may cut it off meanwhile.
struct Frames<R> {
    from: R,
    window: Vec<u8>,
    /// Place in the window, and in the file.
    at: usize,
    offset: u64,
    /// Length of the file, where it is known.
    length: Option<u64>,
}

impl<R: Read> Frames<R> {
    fn of(from: R) -> Self {
        Self { from, window: Vec::new(), at: 0, offset: 0, length: None }
    }

    /// The next bytes: so many or more, as far as there are any.
    fn fill(&mut self, bytes: usize) -> io::Result<&[u8]> {
        if self.window.len() - self.at < bytes {
            self.window.drain(..self.at);
            self.at = 0;
            let more = bytes.max(WINDOW) - self.window.len();
            // Not twice as much, as a vector that grows takes.
            self.window.reserve_exact(more);
            (&mut self.from).take(more as u64).read_to_end(&mut self.window)?;
        }
        Ok(&self.window[self.at..])
    }

    /// Bytes of the payload of the frame that comes next; 0 if its head cannot be believed.
    fn next_payload(&mut self) -> io::Result<usize> {
        Ok(frame::payload_bytes(self.fill(FRAME_HEAD_BYTES)?).unwrap_or(0))
    }

    /// The frame that comes next. `next` counts from here.
    fn look(&mut self) -> io::Result<Found<'_>> {
        let payload = self.next_payload()?;
        Ok(frame::at(self.fill(FRAME_HEAD_BYTES + payload)?, 0))
    }

    /// Goes on behind bytes that were seen.
    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
        self.offset += bytes as u64;
    }

    /// Goes to the end; returns the number of bytes up to there.
    fn rest(&mut self) -> io::Result<u64> {
        if let Some(length) = self.length {
            return Ok(length.saturating_sub(self.offset));
        }
        Ok((self.window.len() - self.at) as u64 + io::copy(&mut self.from, &mut io::sink())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    /// A file that loses its end once something was read of it.
    struct CutOff {
        file: File,
        to: u64,
    }

    impl Read for CutOff {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(WINDOW);
            let count = self.file.read(&mut buffer[..most])?;
            self.file.set_len(self.to)?;
            Ok(count)
        }
    }

    #[test]
    fn a_file_that_is_cut_off_while_it_is_read_is_read_up_to_there() {
        let (kind, payload) = codec::encode(&Record::Job(Job::default())).unwrap();
        let mut bytes = [frame::head().to_vec(), frame::frame(kind, &payload)].concat();
        let first = bytes.len() as u64;
        // Of a type that no version knows.
        let unknown = frame::frame(u32::MAX, &[7; 100_000]);
        let frames = 3 * WINDOW / unknown.len();
        (0..frames).for_each(|_| bytes.extend_from_slice(&unknown));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.rewind().unwrap();
        // Behind what one reading takes.
        let end = first + 5 * unknown.len() as u64;
        let to = end + 50_000;
        let whole = read_bytes(&bytes).unwrap();
        assert_eq!(whole.notes, [Note::UnknownFrames { count: frames as u64 }]);
        let cut = read_from(CutOff { file, to }).unwrap();
        assert_eq!(cut.notes, [Note::Truncated { at: end, bytes: 50_000 }, Note::UnknownFrames { count: 5 }]);
    }

    #[test]
    fn the_end_of_a_file_is_not_read_to_know_where_it_is() {
        let (kind, payload) = codec::encode(&Record::Job(Job::default())).unwrap();
        let bytes = [frame::head().to_vec(), frame::frame(kind, &payload)].concat();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file.set_len(1 << 40).unwrap();
        file.rewind().unwrap();
        let mut reader = file.try_clone().unwrap();
        let notes = Profile::of_file(file).unwrap().notes;
        let at = bytes.len() as u64;
        assert_eq!(notes, [Note::Damaged { at, bytes: (1 << 40) - at }]);
        let read = reader.stream_position().unwrap();
        assert!(read <= 2 * WINDOW as u64, "{read} bytes were read");
    }

    #[test]
    fn no_more_than_a_frame_of_a_file_is_in_memory() {
        let payload = vec![7; 1 << 20];
        let frame = frame::frame(u32::MAX, &payload);
        let mut frames = Frames::of(Repeated { frame: &frame, at: 0 });
        for _ in 0..20 {
            let Found::Frame { next, .. } = frames.look().unwrap() else { panic!("no frame") };
            frames.skip(next);
        }
        assert!(frames.window.capacity() <= 4 * frame.len(), "{}", frames.window.capacity());
    }

    /// The same frame again and again.
    struct Repeated<'a> {
        frame: &'a [u8],
        at: usize,
    }

    impl Read for Repeated<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(self.frame.len() - self.at);
            buffer[..count].copy_from_slice(&self.frame[self.at..][..count]);
            self.at = (self.at + count) % self.frame.len();
            Ok(count)
        }
    }
}
