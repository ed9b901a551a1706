//! Appending records to a file.

use crate::codec;
use crate::error::WriteError;
use crate::frame::{self, MAX_PAYLOAD};
use crate::model::Job;
use crate::record::Record;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The mode of a new profile: it holds the command line and a part of the environment.
const PRIVATE: u32 = 0o600;

/// Writes a profile. Every record is one frame and one write call at the
/// file's end; nothing is ever written twice or changed.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
    written: u64,
}

impl Writer {
    /// Begins a profile at a path where no file may be yet.
    pub fn create_new(path: &Path, job: &Job) -> Result<Writer, WriteError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path)?;
        Writer::begin(file, path, job)
    }

    /// Begins a profile at a path of the user's choice; a file that is there
    /// is replaced.
    pub fn create(path: &Path, job: &Job) -> Result<Writer, WriteError> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(path)?;
        Writer::begin(file, path, job)
    }

    /// Begins a profile in a file that is open already, whatever has its path by now. What it holds is replaced.
    pub fn over(mut file: File, path: &Path, job: &Job) -> Result<Writer, WriteError> {
        use io::Seek;
        if file.metadata()?.is_file() {
            file.set_len(0)?;
            file.rewind()?;
        }
        Writer::begin(file, path, job)
    }

    /// Opens a profile that has ended, to append what was found out about it later. A file that is no profile is left alone:
    /// another user of the directory may have put it, or a link, in the profile's place.
    pub fn reopen(path: &Path) -> Result<Writer, WriteError> {
        let mut head = frame::head();
        let is_profile = OpenOptions::new().read(true).append(true).open(path).and_then(|file| {
            let expected = head;
            file.read_exact_at(&mut head, 0)?;
            if head == expected { Ok(file) } else { Err(io::ErrorKind::InvalidData.into()) }
        });
        let file = is_profile?;
        let written = file.metadata()?.len();
        Ok(Writer { file, path: path.to_owned(), written })
    }

    fn begin(file: File, path: &Path, job: &Job) -> Result<Writer, WriteError> {
        // Readers take the lock for a sign that the job still runs. File systems without locks have no such sign.
        let _ = file.try_lock();
        let mut writer = Writer { file, path: path.to_owned(), written: 0 };
        // Head and job in one call: no file has a head but no job.
        let mut bytes = frame::head().to_vec();
        bytes.extend_from_slice(&frame_bytes(&Record::Job(job.clone()))?);
        writer.write(&bytes)?;
        Ok(writer)
    }

    /// Appends a record. After an error the file ends where it ended before,
    /// and a later record may be appended.
    pub fn append(&mut self, record: &Record) -> Result<(), WriteError> {
        let bytes = frame_bytes(record)?;
        self.write(&bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.written += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.drop_torn_frame();
                Err(error.into())
            }
        }
    }

    /// A full disk leaves a part of a frame behind, which would hide all that
    /// is appended later.
    fn drop_torn_frame(&mut self) {
        use io::{Seek, SeekFrom};
        // What cannot be undone here shows up at the next write.
        let _ = self.file.set_len(self.written);
        let _ = self.file.seek(SeekFrom::Start(self.written));
    }

    /// Makes what was written survive a crash of the machine.
    pub fn sync(&self) -> Result<(), WriteError> {
        match self.file.sync_data() {
            Ok(()) => Ok(()),
            // Pipes and devices have nothing to make safe.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The file's path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }
}

fn frame_bytes(record: &Record) -> Result<Vec<u8>, WriteError> {
    let (kind, payload) = codec::encode(record).map_err(|error| WriteError::Encode(error.0))?;
    if payload.len() > MAX_PAYLOAD {
        return Err(WriteError::TooLarge { bytes: payload.len() });
    }
    Ok(frame::frame(kind, &payload))
}
