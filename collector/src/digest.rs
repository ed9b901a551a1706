//! SHA-256 of the program, on a thread of its own.

use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// A digest that is being computed.
#[derive(Debug)]
pub(crate) struct PendingDigest(Option<Receiver<[u8; 32]>>);

impl PendingDigest {
    /// Starts to read the file. If the thread cannot be started or the file
    /// cannot be read, there will be no digest.
    pub(crate) fn start(program: PathBuf) -> PendingDigest {
        let (sender, receiver) = channel();
        let work = move || {
            if let Ok(digest) = sha256(File::open(program)) {
                // The other end may be gone.
                let _ = sender.send(digest);
            }
        };
        let started = thread::Builder::new().name("radrm-digest".into()).stack_size(256 << 10).spawn(work);
        PendingDigest(started.ok().map(|_| receiver))
    }

    pub(crate) fn none() -> PendingDigest {
        PendingDigest(None)
    }

    /// The digest, once, as soon as it is there.
    pub(crate) fn poll(&mut self) -> Option<[u8; 32]> {
        match self.0.as_ref()?.try_recv() {
            Ok(digest) => {
                self.0 = None;
                Some(digest)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.0 = None;
                None
            }
        }
    }

    /// Waits for it, but not for long: a program of many gigabytes on a slow
    /// disk does not hold up the end of a job.
    pub(crate) fn wait(&mut self, at_most: Duration) -> Option<[u8; 32]> {
        let receiver = self.0.take()?;
        receiver.recv_timeout(at_most).ok()
    }
}

fn sha256(file: std::io::Result<File>) -> std::io::Result<[u8; 32]> {
    let mut file = file?;
    if !file.metadata()?.is_file() {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = file.read(&mut buffer)?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        hasher.update(bytes);
    }
    Ok(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_sha256() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        std::fs::write(&path, "abc").unwrap();
        let digest = PendingDigest::start(path).wait(Duration::from_secs(60)).unwrap();
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn what_cannot_be_read_has_none() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("none")] {
            assert_eq!(PendingDigest::start(path).wait(Duration::from_secs(60)), None);
        }
        assert_eq!(PendingDigest::none().poll(), None);
    }
}
