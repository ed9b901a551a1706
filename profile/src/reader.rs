//! Reading a profile back. The file is an allegation: nothing in it is
//! believed before it was checked.

use crate::codec;
use crate::error::ReadError;
use crate::frame::{self, Found, HEAD_BYTES};
use crate::model::{Job, Note, Profile};
use crate::record::Record;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

impl Profile {
    /// Reads a profile file. It may still be growing, or be cut off; what is
    /// there is read, and [`Profile::notes`] says what is not.
    pub fn open(path: &Path) -> Result<Profile, ReadError> {
        with_bytes(File::open(path)?, read_bytes)
    }

    /// Reads a profile from an open file, as [`Profile::open`].
    pub fn of_file(file: File) -> Result<Profile, ReadError> {
        with_bytes(file, read_bytes)
    }
}

/// A file up to this size is read: its owner may cut it off meanwhile. A larger one is mapped.
const MAX_READ: u64 = 64 << 20;
/// Bytes that are read of a pipe at most.
const MAX_PIPED: u64 = 1 << 30;

/// Returns true if a process still writes the profile. False where that is unknown, as on file systems without
/// locks.
pub fn is_being_written(path: &Path) -> bool {
    let lock = File::open(path).map(|file| file.try_lock_shared());
    matches!(lock, Ok(Err(TryLockError::WouldBlock)))
}

/// Reads only the job of a profile file, however long the file is. The
/// program's digest is not in it: it is known only later.
pub fn peek_job(path: &Path) -> Result<Job, ReadError> {
    with_bytes(File::open(path)?, |file| first_record(file).map(|(job, _)| job))
}

fn with_bytes<T>(file: File, read: impl FnOnce(&[u8]) -> Result<T, ReadError>) -> Result<T, ReadError> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(ReadError::Io(std::io::ErrorKind::IsADirectory.into()));
    }
    if metadata.is_file() && metadata.len() > MAX_READ {
        // SAFETY: the mapping is private and read-only, and lives as long as
        // the slice. Profiles only grow: their writer never changes a byte
        // that it has written. If the file is cut off meanwhile,
        // the program gets SIGBUS, as with every mapped file; no memory of
        // this program is touched.
        let mapping = unsafe { memmap2::Mmap::map(&file) }?;
        return read(&mapping);
    }
    if metadata.file_type().is_char_device() || metadata.file_type().is_block_device() {
        return Err(ReadError::Io(std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is a device")));
    }
    let most = if metadata.is_file() { MAX_READ } else { MAX_PIPED };
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    read(&bytes)
}

/// The job and the offset of the second frame.
fn first_record(file: &[u8]) -> Result<(Job, usize), ReadError> {
    frame::check_head(file)?;
    match frame::at(file, HEAD_BYTES) {
        Found::Frame { kind, payload, next } => match codec::decode(kind, payload) {
            Ok(Some(Record::Job(job))) => Ok((job, next)),
            _ => Err(ReadError::DamagedHeader),
        },
        Found::End | Found::CutOff => Err(ReadError::CutOff { bytes: file.len() as u64 }),
        Found::Damaged { .. } => Err(ReadError::DamagedHeader),
    }
}

/// Reads a profile from the bytes of its file.
pub fn read_bytes(file: &[u8]) -> Result<Profile, ReadError> {
    let (job, mut offset) = first_record(file)?;
    let mut profile = Profile::new(job);
    let mut unknown = 0u64;
    loop {
        match frame::at(file, offset) {
            Found::End => break,
            Found::Frame { kind, payload, next } => {
                match codec::decode(kind, payload) {
                    Ok(Some(record)) => profile.apply(record),
                    Ok(None) => unknown += 1,
                    Err(_) => {
                        profile.notes.push(Note::Damaged { at: offset as u64, bytes: (next - offset) as u64 })
                    }
                }
                offset = next;
            }
            Found::CutOff => {
                profile
                    .notes
                    .push(Note::Truncated { at: offset as u64, bytes: (file.len() - offset) as u64 });
                break;
            }
            Found::Damaged { next } => {
                // One bad frame does not take the rest with it, provided that
                // a good frame (or the end) follows where its length says.
                let next =
                    next.filter(|&next| matches!(frame::at(file, next), Found::Frame { .. } | Found::End));
                let end = next.unwrap_or(file.len());
                profile.notes.push(Note::Damaged { at: offset as u64, bytes: (end - offset) as u64 });
                match next {
                    Some(next) => offset = next,
                    None => break,
                }
            }
        }
    }
    if unknown > 0 {
        profile.notes.push(Note::UnknownFrames { count: unknown });
    }
    Ok(profile)
}
